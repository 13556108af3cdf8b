//! `tidegate check`

use std::io;

use clap::Args;
use serde_json::Value;
use tidegate_config::escaped;

use super::ask::Asked;
use super::exit::Exit;
use super::output::{self, Output};

#[derive(Args, Debug)]
#[command(after_help = "\
The request is charged as if it were made; `tidegate explain` charges nothing. Ends with 3 if it is refused.

Examples:
  tidegate check api_key=alice endpoint='GET /orders'
  tidegate check --domain shop --cost 5 api_key=alice + remote_address=192.0.2.7")]
pub(crate) struct Check {
    #[command(flatten)]
    asked: Asked,
    /// The form of the answer
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Check {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let answer = self.asked.send("/v1/check")?;
        match self.output {
            Output::Json => output::write_json(&answer)?,
            Output::Table => output::write(&told(&answer))?,
        }
        Ok(if answer["allowed"] == true { Exit::Yes } else { Exit::No })
    }
}

fn told(answer: &Value) -> String {
    let word = if answer["allowed"] == true { "admitted" } else { "refused" };
    let Some(limit) = answer["limit"].as_u64() else {
        let why = answer["code"].as_str().map_or(String::new(), |code| format!(": {code}"));
        return format!("{word}{why}; no limit was counted for it\n");
    };
    let rule = escaped(answer["rule"].as_str().unwrap_or("the limit of the request"));
    let mut text = format!("{word} by {rule}\n  remaining  {} of {limit}\n", answer["remaining"]);
    match (&answer["allowed"], answer["retryAfterMs"].as_u64()) {
        (Value::Bool(true), _) => {}
        (_, Some(wait)) => text += &format!("  passes in  {}.{:03} s\n", wait / 1_000, wait % 1_000),
        (_, None) => {
            text += &format!("  passes in  no wait cures it ({})\n", answer["code"].as_str().unwrap_or("?"))
        }
    }
    let mode = answer["mode"].as_str().unwrap_or("?");
    let bound = match &answer["bound"] {
        Value::Object(bound) => format!("+{}/-{}", bound["over"], bound["under"]),
        other => other.as_str().unwrap_or("?").to_string(),
    };
    text + &format!("  bound      {bound} ({mode})\n")
}
