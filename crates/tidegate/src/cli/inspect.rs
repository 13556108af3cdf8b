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
With --reset they are made as if never touched, after a question. Only the node's own machine may do that.

Examples:
  tidegate inspect api_key=alice endpoint='GET /orders'
  tidegate inspect --reset --yes api_key=alice")]
pub(crate) struct Inspect {
    #[command(flatten)]
    asked: Asked,
    /// Make these counters as if never touched
    #[arg(long)]
    reset: bool,
    /// Do not ask before
    #[arg(long, requires = "reset")]
    yes: bool,
    /// The form of the answer
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Inspect {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        if self.reset {
            return self.reset();
        }
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

    fn reset(&self) -> io::Result<Exit> {
        if !self.yes && !self.is_meant()? {
            output::write("nothing was reset\n")?;
            return Ok(Exit::No);
        }
        let answer = self.asked.send("/v1/counters/reset")?;
        let counters = answer["counters"].as_array().map_or(&[][..], Vec::as_slice);
        match self.output {
            Output::Json => output::write_json(&answer)?,
            Output::Table if counters.is_empty() => output::write("no limit is counted for this request\n")?,
            Output::Table => {
                let rows: Vec<[String; 3]> = counters.iter().map(reset_row).collect();
                output::write(&output::table(["rule", "was there", "key"], &rows))?;
            }
        }
        Ok(if counters.is_empty() { Exit::No } else { Exit::Yes })
    }

    /// Shows what would be reset, and asks.
    fn is_meant(&self) -> io::Result<bool> {
        output::need_somebody_to_ask()?;
        let answer = self.asked.send("/v1/inspect")?;
        let counters = answer["counters"].as_array().map_or(&[][..], Vec::as_slice);
        let used: Vec<String> = counters
            .iter()
            .map(|counter| format!("  {}: {} used", row(counter)[0], counter["used"]))
            .collect();
        output::is_meant(&format!("{}\nreset {} counters?", used.join("\n"), counters.len()))
    }
}

fn reset_row(counter: &Value) -> [String; 3] {
    let text = |name: &str| counter[name].as_str().unwrap_or("-").to_string();
    [text("rule"), if counter["wasStored"] == true { "yes" } else { "no" }.into(), text("key")]
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
