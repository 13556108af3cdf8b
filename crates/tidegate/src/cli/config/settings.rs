//! `tidegate config settings`

use std::io;

use clap::Args;
use serde_json::{Value, json};

use super::{Form, tell};
use crate::cli::exit::Exit;
use crate::cli::output::{self, Output};
use crate::cli::settings::SettingFlags;

#[derive(Args, Debug)]
pub(crate) struct Settings {
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    form: Form,
}

impl Settings {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let resolved = self.settings.resolve();
        tell(&resolved.report, &resolved.sources);
        let said = resolved.said.iter().map(|(setting, said)| {
            let (value, place) = said.as_ref().map_or(("", ""), |said| (&said.value, &said.place));
            let flag = format!("--{}", setting.flag());
            [setting.name.clone(), value.into(), place.into(), setting.variable(), flag]
        });
        let rows: Vec<[String; 5]> = said.collect();
        match self.form.output {
            Output::Json => output::write_json(&rows.iter().map(json).collect())?,
            Output::Table => {
                output::write(&output::table(["setting", "value", "from", "variable", "flag"], &rows))?;
            }
        }
        Ok(if resolved.report.errors() == 0 { Exit::Yes } else { Exit::Config })
    }
}

fn json([name, value, place, variable, flag]: &[String; 5]) -> Value {
    let (value, from) =
        if place.is_empty() { (Value::Null, Value::Null) } else { (json!(value), json!(place)) };
    json!({ "name": name, "value": value, "from": from, "variable": variable, "flag": flag })
}
