//! Plays a script, such as a failing property prints, and shows each answer beside the oracle's.
//!
//! `cargo run -p tidegate-core --example replay -- crates/tidegate-core/tests/scripts/receipt-used-twice.script`

#[path = "../tests/law/subject.rs"]
#[allow(dead_code, reason = "the tests look at more of each step than this does")]
mod subject;

use std::process::ExitCode;

use tidegate_oracle::Script;

fn main() -> ExitCode {
    match replay() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn replay() -> Result<(), String> {
    let path = std::env::args()
        .nth(1)
        .ok_or("name a script: cargo run -p tidegate-core --example replay -- FILE")?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let script: Script = text.parse().map_err(|error| format!("{path}: {error}"))?;
    let expected = tidegate_oracle::run(&script);
    let mut differences = 0;
    subject::walk(&script, |step| {
        let (got, expected) = (subject::answer(&step.verdict), &expected[step.number]);
        println!("#{} at {} under {}: {:?}\n    {got}", step.number, step.now, step.limit, step.ask);
        if got != *expected {
            println!("    {expected} says the oracle");
            differences += 1;
        }
        println!("    {:?}", step.after);
        Ok::<(), String>(())
    })?;
    if differences == 0 { Ok(()) } else { Err(format!("{differences} answers differ from the oracle's")) }
}
