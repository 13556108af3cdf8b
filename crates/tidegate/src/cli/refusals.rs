//! `tidegate refusals`: what one caller was refused, by the file that a node wrote.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::ask::{Named, NodeAddress};
use super::exit::Exit;
use super::output::{self, Output};

/// The longest line: a rule's id may be long.
const LINE_MAX: u64 = 1 << 20;
/// So many are shown, the newest.
const LINES_MAX: usize = 100_000;

#[derive(Args, Debug)]
#[command(after_help = "\
No names are in the file (log.refusals_file), but hashes under the fleet's secret: a running node is asked for the caller's. The caller is
the entry that the domain's rules call quota_key, `api_key` unless they say otherwise. Ends with 3 if there are no lines.

Examples:
  tidegate refusals api_key=abc123 --file /var/log/tidegate/refusals.jsonl
  tidegate refusals api_key=abc123 --domain shop --file refusals.jsonl --output json")]
pub(crate) struct Refusals {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    node: NodeAddress,
    /// A file of refusals; the one before it, which ends in `.1`, is read too
    #[arg(long, value_name = "FILE", required = true)]
    file: Vec<PathBuf>,
    /// The form of the answer
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Refusals {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let answer = self.named.send("/v1/inspect", 0, &self.node)?;
        let caller = answer["caller"].as_str().ok_or_else(|| {
            io::Error::other(
                "these entries name no caller: write the entry that the domain's rules call quota_key",
            )
        })?;
        let mut found = Vec::new();
        for file in &self.file {
            let mut before = file.clone().into_os_string();
            before.push(".1");
            let before = PathBuf::from(before);
            if before.exists() {
                read(&before, caller, &mut found)?;
            }
            read(file, caller, &mut found)?;
        }
        if found.len() > LINES_MAX {
            found.drain(..found.len() - LINES_MAX);
        }
        match self.output {
            Output::Json => {
                let lines: String = found.iter().map(|line| format!("{line}\n")).collect();
                output::write(&lines)?;
            }
            Output::Table if found.is_empty() => output::write("no refusal of this caller is in there\n")?,
            Output::Table => {
                let rows: Vec<[String; 7]> = found.iter().map(row).collect();
                let head = ["time", "rule", "limit", "source", "state", "reason", "passes in"];
                output::write(&output::table(head, &rows))?;
            }
        }
        Ok(if found.is_empty() { Exit::No } else { Exit::Yes })
    }
}

fn read(path: &Path, caller: &str, found: &mut Vec<Value>) -> io::Result<()> {
    let told = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
    let mut file = BufReader::new(File::open(path).map_err(told)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if file.by_ref().take(LINE_MAX).read_until(b'\n', &mut line).map_err(told)? == 0 {
            return Ok(());
        }
        // Half a line is what a full disk leaves.
        let Ok(value) = serde_json::from_slice::<Value>(&line) else { continue };
        if value["caller"] == caller {
            found.push(value);
            if found.len() > 2 * LINES_MAX {
                found.drain(..LINES_MAX);
            }
        }
    }
}

fn row(line: &Value) -> [String; 7] {
    let text = |name: &str| line[name].as_str().unwrap_or("-").to_string();
    let wait = line["retry_after_ms"].as_u64().map(|ms| format!("{}.{:03} s", ms / 1_000, ms % 1_000));
    let source = match line["tier"].as_str() {
        Some(tier) => format!("{} ({tier})", text("source")),
        None => text("source"),
    };
    [
        text("time"),
        text("rule"),
        text("limit"),
        source,
        text("state"),
        text("reason"),
        wait.unwrap_or("-".into()),
    ]
}
