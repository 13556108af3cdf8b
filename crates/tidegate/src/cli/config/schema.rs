//! `tidegate config schema`

use std::io;

use clap::{Args, ValueEnum};
use tidegate_config::{rule_tests_schema, rules_schema, settings_schema};

use crate::cli::exit::Exit;
use crate::cli::output;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  tidegate config schema > schema/rules.schema.json
  # yaml-language-server: $schema=schema/rules.schema.json     as the first line of a rule file")]
pub(crate) struct Schema {
    /// Of which kind of file
    #[arg(value_enum, default_value_t)]
    of: Of,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Of {
    /// Rule files
    #[default]
    Rules,
    /// tidegate.yaml
    Settings,
    /// Files of rule tests
    Tests,
}

impl Schema {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        output::write_json(&match self.of {
            Of::Rules => rules_schema(),
            Of::Settings => settings_schema(),
            Of::Tests => rule_tests_schema(),
        })?;
        Ok(Exit::Yes)
    }
}
