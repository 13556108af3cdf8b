//! `tidegate explain`

use std::io;

use clap::Args;

use super::ask::Asked;
use super::exit::Exit;
use super::output::{self, Output};

#[derive(Args, Debug)]
#[command(after_help = "\
The node goes the whole way to a decision, writes down every step, and charges nothing. Ends with 3 if the request would be refused.
How to read it: docs/explain.md

Examples:
  tidegate explain api_key=alice endpoint='GET /orders'
  tidegate explain --cost 100 --output json api_key=alice")]
pub(crate) struct Explain {
    #[command(flatten)]
    asked: Asked,
    /// The form of the answer
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

impl Explain {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let answer = self.asked.send("/v1/check?explain")?;
        match self.output {
            Output::Json => output::write_json(&answer["explanation"])?,
            Output::Table => output::write(answer["text"].as_str().unwrap_or_default())?,
        }
        Ok(if answer["explanation"]["admitted"] == true { Exit::Yes } else { Exit::No })
    }
}
