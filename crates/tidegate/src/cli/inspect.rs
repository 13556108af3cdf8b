//! `tidegate inspect`

use std::io;

use clap::Args;
use serde_json::Value;

use super::ask::Asked;
use super::exit::Exit;
use super::output::{self, Output};

#[derive(Args, Debug)]
#[command(after_help = "\
The counters that a request would be counted by are looked at, and nothing else. Ends with 3 if there are none.

Example:
  tidegate inspect api_key=alice endpoint='GET /orders'")]
pub(crate) struct Inspect {
    #[command(flatten)]
    asked: Asked,
    /// The form of the answer
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Inspect {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let answer = self.asked.send("/v1/inspect")?;
        let counters = answer["counters"].as_array().map_or(&[][..], Vec::as_slice);
        match self.output {
            Output::Json => output::write_json(&answer)?,
            Output::Table if counters.is_empty() => output::write("no limit is counted for this request\n")?,
            Output::Table => {
                let rows: Vec<[String; 6]> = counters.iter().map(row).collect();
                let head = ["rule", "used", "remaining", "limit", "untouched in", "key"];
                output::write(&output::table(head, &rows))?;
            }
        }
        Ok(if counters.is_empty() { Exit::No } else { Exit::Yes })
    }
}

fn row(counter: &Value) -> [String; 6] {
    let text = |name: &str| counter[name].as_str().unwrap_or("-").to_string();
    let wait_ms = counter["resetAfterMs"].as_u64().unwrap_or(0);
    [
        text("rule"),
        counter["used"].to_string(),
        counter["remaining"].to_string(),
        counter["limit"].to_string(),
        format!("{}.{:03} s", wait_ms / 1_000, wait_ms % 1_000),
        text("key"),
    ]
}
