//! Prints where the programs of PostgreSQL are, or how to get them: `cargo xtask test` asks here.

fn main() -> std::process::ExitCode {
    match tidegate_testbed::find_postgres() {
        Ok(folder) => {
            println!("{}", folder.display());
            std::process::ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{reason}");
            std::process::ExitCode::FAILURE
        }
    }
}
