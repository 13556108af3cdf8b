//! `cargo xtask image`: what `deploy/Dockerfile` puts into an image, made without Docker: a static binary in a folder that is a whole root.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::{Failure, Outcome, shell, unknown};

/// Programs of this target need nothing from the system that they run on.
const TARGET: &str = "x86_64-unknown-linux-musl";
const QUICK: &str = "--quick";
/// "nobody", as in the image.
const USER: &str = "65534:65534";
/// Until the binary says where it listens, and until it answers; a busy machine may take seconds for it.
const SOON: Duration = Duration::from_secs(30);

pub(crate) fn details() -> String {
    format!(
        "\nBuilds a static binary ({TARGET}; the target, and musl-gcc for what is C below it, are installed where that needs no \
         password)\n\
         and puts it into a folder, `image/root` in the target folder, as /bin/tidegate and /bin/ratelimit: what deploy/Dockerfile\n\
         puts into an image.\n  \
         {QUICK}  with the profile of the tests, which is much faster to build and slower to run\n\
         `cargo xtask test image` builds the quick one and runs it in that root, where there is nothing else."
    )
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    let quick = match arguments {
        [] => false,
        [flag] if flag == QUICK => true,
        [other, ..] => return Err(Failure::Usage(unknown("flag", other, &[QUICK]))),
    };
    let root = build(quick)?;
    println!("{}: the root of the image", root.display());
    Ok(())
}

/// The check of `cargo xtask test`: the binary runs where there is nothing but itself, as nobody, and answers.
pub(crate) fn check() -> Outcome {
    // The profile of the tests: what is shipped takes minutes to optimise, and whether it is static does not depend on that.
    let root = build(true)?;
    answers_alone(&root)?;
    stands_in(&root)
}

/// Builds the binary and the folder.
fn build(quick: bool) -> Result<PathBuf, Failure> {
    need_target()?;
    let mut cargo = shell::cargo(&["build", "--package=tidegate", "--target", TARGET]);
    if !quick {
        cargo.arg("--release");
    }
    shell::run(&mut cargo)?;
    let target = shell::target_folder()?;
    let binary = target.join(TARGET).join(if quick { "debug" } else { "release" }).join("tidegate");
    let root = target.join("image").join("root");
    place(&binary, &root).map_err(|error| Failure::Failed(format!("{}: {error}", root.display())))?;
    Ok(root)
}

/// A root with the binary under both names, and nothing that anybody may write to.
fn place(binary: &Path, root: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(root) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let bin = root.join("bin");
    std::fs::create_dir_all(&bin)?;
    std::fs::copy(binary, bin.join("tidegate"))?;
    symlink("tidegate", bin.join("ratelimit"))?;
    for path in [bin.join("tidegate"), bin, root.to_path_buf()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn need_target() -> Outcome {
    shell::need_musl()?;
    let installed = shell::read(&mut shell::program("rustup", &["target", "list", "--installed"]));
    if installed.is_ok_and(|list| list.lines().any(|line| line == TARGET)) {
        return Ok(());
    }
    println!("the target {TARGET} is missing, adding it");
    shell::run(&mut shell::program("rustup", &["target", "add", TARGET])).map_err(|_| {
        Failure::Failed(format!(
            "the target {TARGET} is missing and could not be added: no static binary\nwith rustup: rustup target add {TARGET}"
        ))
    })
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::Failed(format!("the static binary does not run alone: {what}"))
}

/// Starts something in the root, and waits until it says where it serves HTTP.
fn start(root: &Path, words: &[&str], variables: &[(&str, &str)]) -> Result<(Running, String), Failure> {
    let mut command = inside(root);
    command.args(words).envs(variables.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped());
    println!("$ {}, in a root with nothing else", words.join(" "));
    let mut running = Running(command.spawn().map_err(failed)?);
    let (told, lines) = channel();
    let said = running.0.stdout.take().map(BufReader::new);
    std::thread::spawn(move || {
        said.into_iter()
            .flat_map(|said| said.lines().map_while(Result::ok))
            .try_for_each(|line| told.send(line))
    });
    loop {
        let line = lines.recv_timeout(SOON).map_err(|_| failed("it does not say where it listens"))?;
        let told = line.trim_start().strip_prefix("HTTP").and_then(|rest| rest.split_once("http://"));
        if let Some((_, rest)) = told {
            return Ok((running, rest.split_whitespace().next().unwrap_or_default().to_string()));
        }
    }
}

/// Starts `/bin/tidegate` in the root and asks it for decisions.
fn answers_alone(root: &Path) -> Outcome {
    let words = ["/bin/tidegate", "run", "--rls-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"];
    let (_running, address) = start(root, &words, &[])?;
    // The demo rules: five requests in any ten seconds, and a sixth that is refused.
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let body = r#"{"clientId": "alice", "endpoint": "GET /"}"#;
        statuses.push(asked(&address, "/v1/check?enforce", body)?.0);
    }
    if statuses != [200, 200, 200, 200, 200, 429] {
        return Err(failed(format!("six checks of a limit of five were answered with {statuses:?}")));
    }
    println!("it runs alone, as {USER}, and refused the sixth of six requests");
    Ok(())
}

/// The only rule that is answered without a store.
const RULES: &str = "domain: shop\ndescriptors:\n  - key: free\n    rate_limit: { unlimited: true }\n";

/// Starts `/bin/ratelimit` in the root, by the variables of envoyproxy/ratelimit alone, and asks it a question.
fn stands_in(root: &Path) -> Outcome {
    let folder = root.join("rules");
    let write = || {
        std::fs::create_dir_all(folder.join("config"))?;
        std::fs::write(folder.join("config").join("shop.yaml"), RULES)
    };
    write().map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    let variables = [
        ("HOST", "127.0.0.1"),
        ("PORT", "0"),
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", "0"),
        ("DEBUG_HOST", "127.0.0.1"),
        ("DEBUG_PORT", "0"),
        ("RUNTIME_ROOT", "/rules"),
        ("USE_STATSD", "false"),
    ];
    let (_running, address) = start(root, &["/bin/ratelimit"], &variables)?;
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"free","value":"a"}]}]}"#;
    let (status, answer) = asked(&address, "/json", body)?;
    let is_told = answer.contains("4294967295"); // What is left of a limit that is none.
    if status != 200 || !is_told {
        return Err(failed(format!("/json was answered with {answer:?}")));
    }
    std::fs::remove_dir_all(&folder).map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    println!("it stands in for envoyproxy/ratelimit under that name, and answered over /json");
    Ok(())
}

/// A command that runs what follows in this root, as nobody. Only root may change the root; others do so in a namespace of their own,
/// where they are the only user there is.
fn inside(root: &Path) -> Command {
    let is_root = shell::read(&mut shell::program("id", &["-u"])).is_ok_and(|id| id.trim() == "0");
    let mut command = if is_root {
        shell::program("chroot", &["--userspec", USER])
    } else {
        shell::program("unshare", &["--user", "--map-root-user", "chroot"])
    };
    command.arg(root);
    command
}

/// The status of an answer, and all of it.
fn asked(address: &str, path: &str, body: &str) -> Result<(u16, String), Failure> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(SOON))?;
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.0\r\nhost: node\r\ncontent-length: {length}\r\n\r\n{body}")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().map_err(|error| failed(format!("no answer from {address}: {error}")))?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.map(|status| (status, answer.clone())).ok_or_else(|| failed(format!("{answer:?}")))
}
