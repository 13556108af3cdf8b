//! Every setting as a flag, made from the table of settings.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use tidegate_config::{Code, FILE_VARIABLE, Given, Instead, Resolved, SETTINGS_FILE, Setting, resolve};

use super::control;
use crate::node::{fleet, xds};

/// What the command line says about settings.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingFlags {
    file: Option<PathBuf>,
    flags: Vec<(String, String)>,
}

impl SettingFlags {
    /// All settings, with those of the environment and the file.
    pub(crate) fn resolve(&self) -> Resolved {
        self.resolve_instead(Vec::new())
    }

    /// The same, where something else holds instead of defaults.
    pub(crate) fn resolve_instead(&self, instead: Vec<Instead>) -> Resolved {
        // What is no text is told of where it is used; left out, it would be ignored in silence.
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        // Some are not for nodes: they say whom to ask, and with which token.
        let variables = variables.filter(|(name, _)| !control::VARIABLES.contains(&name.as_str())).collect();
        let given = Given { file: self.file.clone(), flags: self.flags.clone(), variables, instead };
        let mut resolved = resolve(&given);
        // Which stores there are is known where they are asked, and an error is told where it was written.
        if let Err(error) = fleet::settings(&resolved.settings.store) {
            resolved.refuse("store.url", Code::BadStoreUrl, error.to_string());
        }
        let asked = match &resolved.settings {
            settings if settings.xds.server.is_some() && settings.rules_said => {
                Err("rules come from files or from an xDS server: set either rules.path or xds.server".into())
            }
            settings => xds::settings(&settings.xds),
        };
        if let Err(error) = asked {
            resolved.refuse("xds.server", Code::BadXds, error);
        }
        resolved
    }
}

const FILE: &str = "settings";
const HEADING: &str = "Settings";

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(FILE).long(FILE).value_name("FILE").env(FILE_VARIABLE).hide_env_values(true);
        let file = file.help(format!("The settings file [default: {SETTINGS_FILE}, if it is there]"));
        let file = file.value_parser(clap::value_parser!(PathBuf)).help_heading(HEADING);
        Setting::all().into_iter().fold(command.arg(file), |command, setting| {
            let default = match setting.field.default {
                "" => String::new(),
                default => format!(" [default: {default}]"),
            };
            let help = format!("{}{default} [env: {}]", setting.field.doc, setting.variable());
            command.arg(
                Arg::new(setting.name.clone())
                    .long(setting.flag())
                    .visible_aliases(setting.short_flag())
                    .value_name("VALUE")
                    .help(help)
                    .help_heading(HEADING)
                    .hide_short_help(true),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.file = matches.get_one::<PathBuf>(FILE).cloned();
        let given = |setting: Setting| {
            Some((setting.name.clone(), matches.get_one::<String>(&setting.name)?.clone()))
        };
        self.flags = Setting::all().into_iter().filter_map(given).collect();
        Ok(())
    }
}
