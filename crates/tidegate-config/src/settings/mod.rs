//! The settings of a node: flags before environment before file before defaults, all read by one table. Start at [`resolve`].

mod places; // the table

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::fields::{Field, Kind, Place};
use crate::load::{RuleFiles, read_file};
use crate::near::nearest;
use crate::reader::{Map, Reader, Value};
use crate::report::Report;
use crate::rules::Defaults;
use crate::source::Sources;
use crate::yaml::{self, Caps, NodeKind, Tree};

pub use places::SETTINGS;

/// The file that is read if none is named and it is there.
pub const SETTINGS_FILE: &str = "tidegate.yaml";
/// What the names of environment variables begin with.
const PREFIX: &str = "TIDEGATE_";
/// The variable that names the file.
pub const FILE_VARIABLE: &str = "TIDEGATE_SETTINGS";

/// How a node is set up.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Which rules, and what holds for them.
    pub rules: RuleFiles,
    /// Are they loaded again when they change?
    pub watch: bool,
}

/// One thing that can be set.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its place in the file, such as `rules.path`.
    pub name: String,
    /// What the table says.
    pub field: &'static Field,
}

impl Setting {
    /// All of them, in the order of the table.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        collect(&SETTINGS, "", &mut all);
        all
    }

    /// Its flag, such as `rules-path`.
    pub fn flag(&self) -> String {
        self.name.replace(['.', '_'], "-")
    }

    /// Its environment variable, such as `TIDEGATE_RULES_PATH`.
    pub fn variable(&self) -> String {
        format!("{PREFIX}{}", self.name.replace('.', "_").to_uppercase())
    }

    /// What holds where nobody says: as the table has it, but for what each limit decides for itself.
    fn default(&self) -> &'static str {
        if self.name.starts_with("defaults.") { "" } else { self.field.default }
    }
}

fn collect(place: &'static Place, prefix: &str, all: &mut Vec<Setting>) {
    for field in place.fields {
        let name = format!("{prefix}{}", field.name);
        match field.kind {
            Kind::Map(place) => collect(place, &format!("{name}."), all),
            _ => all.push(Setting { name, field }),
        }
    }
}

/// What the command line and the environment say.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The settings file, if one is named.
    pub file: Option<PathBuf>,
    /// Flags that were given: the name of the setting, and what it was set to.
    pub flags: Vec<(String, String)>,
    /// The environment.
    pub variables: Vec<(String, String)>,
}

/// Settings, where each comes from, and what is wrong with them.
#[derive(Debug)]
pub struct Resolved {
    /// The settings, to be used only if there are no errors.
    pub settings: Settings,
    /// Each setting in the order of the table: its value as it was written, and where.
    pub said: Vec<(Setting, Option<Said>)>,
    /// What is wrong.
    pub report: Report,
    /// The file, flags and variables, to show it.
    pub sources: Sources,
}

/// What a setting was set to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// As it was written.
    pub value: String,
    /// Where: a flag, a variable, a line of a file, `default`.
    pub place: String,
}

/// Puts together what flags, environment, file and table say.
pub fn resolve(given: &Given) -> Resolved {
    let reader = Reader::new(&[&SETTINGS]);
    let mut sources = Sources::new();
    let all = Setting::all();
    let file =
        given.file.clone().or_else(|| Some(SETTINGS_FILE.into()).filter(|path: &PathBuf| path.exists()));
    let file_tree = file.as_deref().and_then(|path| open(path, &mut sources, &reader));
    let layers: Vec<Layer> = all.iter().map(|setting| Layer::of(setting, given, &mut sources)).collect();
    check_variables(&all, given, &reader);

    let in_file = file_tree.as_ref().map(|tree| in_file(&reader, tree)).unwrap_or_default();
    let chosen: HashMap<&str, Value<'_>> = all
        .iter()
        .zip(&layers)
        .filter_map(|(setting, layer)| {
            let name = setting.name.as_str();
            let above = layer.above.as_ref().and_then(|tree| tree.documents().next());
            let below = || layer.below.as_ref().and_then(|tree| tree.documents().next());
            let value = |node| reader.value(name, node, setting.field.kind);
            let value =
                above.map(value).or_else(|| in_file.get(name).copied()).or_else(|| below().map(value));
            Some((name, value?))
        })
        .collect();
    for value in chosen.values().filter(|value| matches!(value.kind(), Kind::Text)) {
        if value.node().text() == Some("") {
            reader.say(
                Diagnostic::new(Code::EmptyText, value.span(), "a setting that is empty")
                    .label("empty")
                    .help("write a value, or do not set it: then the default holds"),
            );
        }
    }
    let folder = file.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_path_buf();
    let settings = settings(&chosen, &folder, &all, &layers);
    let said = all.iter().map(|setting| {
        let value = chosen.get(setting.name.as_str())?;
        let text = value.node().text().unwrap_or_else(|| sources.slice(value.span()));
        let span = value.span();
        let place = match sources.name(span.source) {
            name if file_tree.is_some() && span.source == 0 => {
                format!("{name}:{}", sources.place(span.source, span.start).line)
            }
            name => name.to_string(),
        };
        Some(Said { value: text.into(), place })
    });
    let said = all.iter().cloned().zip(said.collect::<Vec<_>>()).collect();
    drop((chosen, in_file));
    Resolved { settings, said, report: reader.finish(), sources }
}

/// What stands above and below the file for one setting.
struct Layer {
    /// A flag or a variable.
    above: Option<Tree>,
    /// The default.
    below: Option<Tree>,
}

impl Layer {
    fn of(setting: &Setting, given: &Given, sources: &mut Sources) -> Self {
        let flag = given.flags.iter().rev().find(|(name, _)| *name == setting.name);
        let flag = flag.map(|(_, value)| (format!("--{}", setting.flag()), value.as_str()));
        let variable = given.variables.iter().find(|(name, _)| *name == setting.variable());
        let variable = variable.map(|(name, value)| (name.clone(), value.as_str()));
        let default = Some(setting.default()).filter(|text| !text.is_empty());
        Self {
            above: flag.or(variable).and_then(|(name, value)| single(&name, value, sources)),
            below: default.and_then(|text| single("default", text, sources)),
        }
    }
}

/// A single value that came without YAML around it.
fn single(name: &str, value: &str, sources: &mut Sources) -> Option<Tree> {
    let quoted = serde_json::Value::from(value).to_string(); // Every JSON text is a YAML text.
    let source = sources.add(name, quoted.into_bytes()).ok()?;
    yaml::parse(source, sources, &Caps::default()).ok()
}

fn open(path: &Path, sources: &mut Sources, reader: &Reader) -> Option<Tree> {
    let caps = Caps::default();
    let tree = read_file(path, caps.bytes)
        .and_then(|bytes| sources.add(path.display().to_string(), bytes))
        .and_then(|source| yaml::parse(source, sources, &caps));
    match tree {
        Ok(tree) => Some(tree),
        Err(trouble) => {
            reader.say(trouble);
            None
        }
    }
}

/// The settings of the file, by name. A file that says nothing is fine: all has a default.
fn in_file<'a>(reader: &'a Reader, tree: &'a Tree) -> HashMap<String, Value<'a>> {
    let mut found = HashMap::new();
    let mut documents = tree.documents().filter(|node| node.kind() != NodeKind::Null);
    if let Some(map) = documents.next().and_then(|node| reader.map(node, &SETTINGS)) {
        descend(&map, "", &mut found);
    }
    if let Some(second) = documents.next() {
        reader.say(
            Diagnostic::new(Code::SaidTwice, second.span(), "a second document of settings")
                .label("which of the two holds?")
                .help("put all settings into one document, and remove the `---`"),
        );
    }
    found
}

fn descend<'a>(map: &Map<'a>, prefix: &str, found: &mut HashMap<String, Value<'a>>) {
    for field in map.place().fields {
        let name = format!("{prefix}{}", field.name);
        match (field.kind, map.get(field.name)) {
            (Kind::Map(_), Some(value)) => {
                if let Some(map) = value.map() {
                    descend(&map, &format!("{name}."), found);
                }
            }
            (_, Some(value)) => drop(found.insert(name, value)),
            (_, None) => {}
        }
    }
}

fn settings(chosen: &HashMap<&str, Value<'_>>, folder: &Path, all: &[Setting], layers: &[Layer]) -> Settings {
    let get = |name: &str| chosen.get(name).copied();
    let flag = |name| get(name).and_then(Value::flag).is_some_and(|flag| flag.value);
    // A path of the command line is meant from where one stands, one of the file from where the file is.
    let from_above =
        |name| all.iter().zip(layers).any(|(setting, layer)| setting.name == name && layer.above.is_some());
    let path = |name| {
        let text = get(name).and_then(Value::text).map_or("", |text| text.value);
        if from_above(name) { PathBuf::from(text) } else { folder.join(text) }
    };
    let mut caps = Caps::default();
    if let Some(bytes) = get("rules.file_bytes_max").and_then(Value::bytes) {
        caps.bytes = usize::try_from(bytes.value).unwrap_or(usize::MAX);
    }
    Settings {
        rules: RuleFiles {
            paths: vec![path("rules.path")],
            texts: Vec::new(),
            caps,
            merge_domains: flag("rules.merge_domains"),
            defaults: Defaults::of(|name| get(&format!("defaults.{name}")), Defaults::default()),
        },
        watch: flag("rules.watch"),
    }
}

/// A variable that was meant as a setting, and is none, would be ignored in silence.
fn check_variables(all: &[Setting], given: &Given, reader: &Reader) {
    let known: Vec<String> = all.iter().map(Setting::variable).chain([FILE_VARIABLE.into()]).collect();
    for (name, _) in
        given.variables.iter().filter(|(name, _)| name.starts_with(PREFIX) && !known.contains(name))
    {
        let message = format!("the environment variable {} is no setting", quoted(name));
        let trouble = Diagnostic::nowhere(Code::UnknownVariable, message);
        reader.say(match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => trouble.help(format!("did you mean `{near}`?")),
            None => trouble.help("`tidegate config settings` lists them"),
        });
    }
}
