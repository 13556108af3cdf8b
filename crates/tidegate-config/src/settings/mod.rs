//! The settings of a node: flags before environment before file before defaults, all read by one table. Start at [`resolve`].

mod control; // those of the control plane
mod places; // the table

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::fields::{Field, Kind, Place};
use crate::load::{RuleFiles, read_file};
use crate::near::nearest;
use crate::reader::{Map, Reader, Value};
use crate::report::Report;
use crate::rules::Defaults;
use crate::scalars::{ListenAt, check_socket_path};
use crate::source::{Sources, Span};
use crate::yaml::{self, Caps, NodeKind, Tree};

pub use control::{AuditSinkSettings, ControlSettings, Role};
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
    /// Did anybody say where they are?
    pub rules_said: bool,
    /// Are they loaded again when they change?
    pub watch: bool,
    /// The server that they come from, if they come from one.
    pub xds: XdsSettings,
    /// Envoy's protocol.
    pub rls: ListenerSettings,
    /// Is rule, mode and bound told in its answers?
    pub rls_metadata: bool,
    /// When its connections are asked to end.
    pub rls_connection_age: Duration,
    /// Checks and metrics.
    pub http: ListenerSettings,
    /// The domain of checks that do not name one.
    pub http_default_domain: Option<String>,
    /// When its idle connections are closed.
    pub http_idle_timeout: Duration,
    /// Calls that come from inside.
    pub internal: InternalSettings,
    /// Bytes for counters.
    pub counters_memory: usize,
    /// Counters that a fleet shares.
    pub store: StoreSettings,
    /// Tiers, quotas of single callers, rules by API.
    pub control: ControlSettings,
    /// What the process does.
    pub role: Role,
    /// How many threads decide; none is one for each core.
    pub threads: Option<usize>,
    /// How long an answer may take.
    pub deadline: Duration,
    /// The folder for what outlives the process.
    pub data: PathBuf,
    /// Did anybody say where it is?
    pub data_said: bool,
    /// How long requests are taken after a SIGTERM.
    pub drain_delay: Duration,
    /// How long connections may take to end after that.
    pub drain_timeout: Duration,
    /// `text` or `json`.
    pub log_format: &'static str,
    /// From `error` to `trace`.
    pub log_level: &'static str,
    /// How many refusals are logged each second.
    pub log_refusals_per_second: u32,
    /// The file that refusals are written to as well.
    pub refusals_file: Option<PathBuf>,
    /// How many of them each second.
    pub refusals_file_per_second: u32,
    /// How large it may get, with the one before it.
    pub refusals_file_bytes: usize,
}

/// How a node listens at one place, and what it says there.
#[derive(Clone, Debug, Default)]
pub struct ListenerSettings {
    /// Where; none only beside an error.
    pub listen: Option<ListenAt>,
    /// Which headers callers get.
    pub headers: Vec<&'static str>,
    /// What the body of a refusal looks like; `none` is none.
    pub body: &'static str,
    /// How many connections are served.
    pub connections_max: usize,
    /// How many of one address.
    pub connections_per_peer_max: usize,
    /// The files of its certificates.
    pub tls: Option<TlsSettings>,
}

/// The files of certificates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsSettings {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Roots for the certificates of clients.
    pub client_roots: Option<PathBuf>,
}

/// How calls from inside are told apart.
#[derive(Clone, Debug, Default)]
pub struct InternalSettings {
    /// The file with secrets.
    pub secrets_file: Option<PathBuf>,
    /// How old a signature may be.
    pub max_age: Duration,
    /// The domain whose rules hold for them.
    pub domain: Option<String>,
}

/// Where the counters of a fleet are.
#[derive(Clone, Default)]
pub struct StoreSettings {
    /// Where the store is; none is in memory. There may be a password in it.
    pub url: Option<String>,
    /// The ACL user.
    pub user: Option<String>,
    /// The file with its password.
    pub password_file: Option<PathBuf>,
    /// What all keys begin with.
    pub prefix: String,
    /// How long one operation may take.
    pub timeout: Duration,
    /// How long it may take to connect.
    pub connect_timeout: Duration,
    /// How many requests may wait for it on each thread.
    pub in_flight: usize,
    /// After how many failures a server is left alone; 0 is never.
    pub circuit_failures: u32,
    /// Within what time; none is in a row.
    pub circuit_within: Option<Duration>,
    /// How long it is left alone.
    pub circuit_open_for: Duration,
    /// What the names of fixed windows begin with, if they are the reference server's.
    pub reference_prefix: Option<String>,
    /// The file with roots.
    pub tls_ca: Option<PathBuf>,
    /// The files with a certificate and its key.
    pub tls_certificate: Option<(PathBuf, PathBuf)>,
    /// May the store's certificate have any name?
    pub tls_any_name: bool,
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.as_deref().map(without_password);
        out.debug_struct("StoreSettings").field("url", &url).field("user", &self.user).finish_non_exhaustive()
    }
}

/// The xDS server that rules come from.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct XdsSettings {
    /// Where it is, as `host:port`; none is nowhere, and rules come from files.
    pub server: Option<String>,
    /// The id of the node.
    pub node_id: String,
    /// What else it tells of itself.
    pub node_metadata: Vec<(String, String)>,
    /// Headers of its calls. There may be a password in them.
    pub headers: Vec<(String, String)>,
    /// How large a message may be.
    pub message_bytes_max: usize,
    /// How long it may take to connect.
    pub connect_timeout: Duration,
    /// After what time without a word the server is asked whether it is there.
    pub keepalive: Duration,
    /// The first wait after a connection that ended.
    pub backoff_initial: Duration,
    /// The longest.
    pub backoff_max: Duration,
    /// The files of certificates; none is plain text.
    pub tls: Option<XdsTlsSettings>,
}

/// How connections to an xDS server are encrypted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct XdsTlsSettings {
    /// The file with roots; none are those that the machine trusts.
    pub ca: Option<PathBuf>,
    /// The files with a certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate has to have; none is the server's host.
    pub server_name: Option<String>,
}

impl fmt::Debug for XdsSettings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| &**name).collect();
        out.debug_struct("XdsSettings")
            .field("server", &self.server)
            .field("node_id", &self.node_id)
            .field("headers", &headers)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Where passwords stand in a URL, in order: before its host, and behind it as PostgreSQL takes them too, `?password=`. A host has no
/// `@`, a password may.
fn passwords_of(url: &str) -> Vec<Range<usize>> {
    let before_host = || {
        let start = url.find("://")? + 3;
        let end = start + url[start..].rfind('@')?;
        let colon = start + url[start..end].find(':')?;
        (colon + 1 < end).then_some(colon + 1..end)
    };
    let mut passwords: Vec<Range<usize>> = before_host().into_iter().collect();
    let mut at = passwords.first().map_or(0, |password| password.end);
    while let Some(found) = url[at..].find(PASSWORD) {
        let asked = at + found;
        let start = asked + PASSWORD.len();
        let end = url[start..].find('&').map_or(url.len(), |length| start + length);
        if url[..asked].ends_with(['?', '&']) && start < end {
            passwords.push(start..end);
        }
        at = end;
    }
    passwords
}

/// How a password is named behind a host.
const PASSWORD: &str = "password=";

/// A URL that can be shown.
pub fn without_password(url: &str) -> String {
    let (mut shown, mut at) = (String::new(), 0);
    for password in passwords_of(url) {
        shown.push_str(&url[at..password.start]);
        shown.push_str(HIDDEN);
        at = password.end;
    }
    shown + &url[at..]
}

/// What stands for a password.
const HIDDEN: &str = "***";

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

    /// A shorter spelling of the flag, for what is said often.
    pub fn short_flag(&self) -> Option<&'static str> {
        (self.name == "node.role").then_some("role")
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
    /// What holds instead of defaults, because a node is started in another's place.
    pub instead: Vec<Instead>,
}

/// What holds for a setting where neither flags, environment nor file say otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instead {
    /// The name of the setting.
    pub setting: &'static str,
    /// Its value.
    pub value: String,
    /// Who says so.
    pub place: &'static str,
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
    /// The same in the sources.
    pub at: Span,
}

impl Resolved {
    /// Adds an error about what a setting was set to, which only whoever uses it could find.
    pub fn refuse(&mut self, setting: &str, code: Code, message: impl Into<String>) {
        let said = self.said.iter().find(|(known, _)| known.name == setting);
        self.report.push(match said.and_then(|(_, said)| said.as_ref()) {
            Some(said) => Diagnostic::new(code, said.at, message).label(format!("`{setting}`")),
            None => Diagnostic::nowhere(code, message),
        });
    }
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
    let read = Chosen { values: &chosen, folder: &folder, all: &all, layers: &layers, in_file: &in_file };
    let settings = read.settings();
    ["rls", "http", "control"].into_iter().for_each(|name| read.check_tls(&reader, name));
    read.check_listen(&reader, "rls.listen");
    read.check_store(&reader);
    read.check_xds(&reader);
    read.check_control(&reader);
    // One that did not win must not be shown either.
    let both = |name: &str| [read.get(name), in_file.get(name).copied()];
    let urls = both(STORE_URL).into_iter().chain(both(control::DATABASE)).flatten();
    let mut passwords: Vec<Span> = urls.flat_map(|url| hidden(&sources, url.span())).collect();
    let headers = [read.get(XDS_HEADERS), in_file.get(XDS_HEADERS).copied()].into_iter().flatten();
    passwords.extend(headers.map(|value| value.span()));
    let said = all.iter().map(|setting| {
        let value = chosen.get(setting.name.as_str())?;
        let text = value.node().text().unwrap_or_else(|| sources.slice(value.span()));
        let text = match setting.name.as_str() {
            STORE_URL | control::DATABASE => without_password(text),
            XDS_HEADERS => {
                let names = read.pairs(XDS_HEADERS, ':').into_iter();
                names.map(|(name, _)| format!("{name}:{HIDDEN}")).collect::<Vec<_>>().join(",")
            }
            _ => text.into(),
        };
        let span = value.span();
        let place = match sources.name(span.source) {
            name if file_tree.is_some() && span.source == 0 => {
                format!("{name}:{}", sources.place(span.source, span.start).line)
            }
            name => name.to_string(),
        };
        Some(Said { value: text, place, at: span })
    });
    let said = all.iter().cloned().zip(said.collect::<Vec<_>>()).collect();
    drop((chosen, in_file));
    passwords.into_iter().for_each(|password| sources.hide(password));
    Resolved { settings, said, report: reader.finish(), sources }
}

/// The settings that may hold a password.
const STORE_URL: &str = "store.url";
const XDS_HEADERS: &str = "xds.headers";

/// Where the passwords of a URL stand in the sources.
fn hidden(sources: &Sources, url: Span) -> Vec<Span> {
    let at = |offset: usize| url.start + offset as u32;
    let span = |password: Range<usize>| Span { start: at(password.start), end: at(password.end), ..url };
    passwords_of(sources.slice(url)).into_iter().map(span).collect()
}

/// What stands above and below the file for one setting.
struct Layer {
    /// A flag or a variable.
    above: Option<Tree>,
    /// The default.
    below: Option<Tree>,
    /// Did somebody say what it is?
    is_instead: bool,
}

impl Layer {
    fn of(setting: &Setting, given: &Given, sources: &mut Sources) -> Self {
        let flag = given.flags.iter().rev().find(|(name, _)| *name == setting.name);
        let flag = flag.map(|(_, value)| (format!("--{}", setting.flag()), value.as_str()));
        let variable = given.variables.iter().find(|(name, _)| *name == setting.variable());
        let variable = variable.map(|(name, value)| (name.clone(), value.as_str()));
        let instead = given.instead.iter().find(|instead| instead.setting == setting.name);
        let default = Some(("default", setting.default())).filter(|(_, text)| !text.is_empty());
        let default = instead.map(|instead| (instead.place, instead.value.as_str())).or(default);
        Self {
            above: flag
                .or(variable)
                .and_then(|(name, value)| single(&name, value, setting.field.kind, sources)),
            below: default.and_then(|(place, text)| single(place, text, setting.field.kind, sources)),
            is_instead: instead.is_some(),
        }
    }
}

/// A single value that came without YAML around it; where there may be several, with commas between them.
fn single(name: &str, value: &str, kind: Kind, sources: &mut Sources) -> Option<Tree> {
    let several = || value.split(',').map(str::trim).collect::<Vec<_>>();
    let value = match kind {
        Kind::OneOrMore(_) if value.contains(',') => serde_json::Value::from(several()),
        _ => serde_json::Value::from(value),
    };
    let quoted = value.to_string(); // Every JSON text is a YAML text.
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

/// What was chosen for each setting, to be read.
struct Chosen<'a> {
    values: &'a HashMap<&'a str, Value<'a>>,
    /// The folder of the file.
    folder: &'a Path,
    all: &'a [Setting],
    layers: &'a [Layer],
    in_file: &'a HashMap<String, Value<'a>>,
}

impl<'a> Chosen<'a> {
    fn get(&self, name: &str) -> Option<Value<'a>> {
        self.values.get(name).copied()
    }

    /// Was it said by a flag or a variable?
    fn is_from_above(&self, name: &str) -> bool {
        self.all.iter().zip(self.layers).any(|(setting, layer)| setting.name == name && layer.above.is_some())
    }

    /// Does it hold because a node stands in another's place?
    fn is_instead(&self, name: &str) -> bool {
        let mut all = self.all.iter().zip(self.layers);
        !self.is_from_above(name)
            && !self.in_file.contains_key(name)
            && all.any(|(setting, layer)| setting.name == name && layer.is_instead)
    }

    fn is_said(&self, name: &str) -> bool {
        self.is_from_above(name) || self.in_file.contains_key(name) || self.is_instead(name)
    }

    fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Value::flag).is_some_and(|flag| flag.value)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Value::text).map(|text| text.value).filter(|text| !text.is_empty())
    }

    fn word(&self, name: &str) -> &'static str {
        self.get(name).and_then(Value::word).map_or("", |word| word.value)
    }

    fn whole(&self, name: &str) -> Option<usize> {
        self.get(name).and_then(Value::whole).and_then(|number| usize::try_from(number.value).ok())
    }

    fn bytes(&self, name: &str) -> usize {
        let bytes = self.get(name).and_then(Value::bytes).map_or(0, |bytes| bytes.value);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    fn duration(&self, name: &str) -> Duration {
        Duration::from_micros(self.get(name).and_then(Value::duration).map_or(0, |time| time.value.get()))
    }

    /// A path of the command line is meant from where one stands, one of the file from where the file is.
    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.meant(name, self.text(name)?.into()))
    }

    fn meant(&self, name: &str, path: PathBuf) -> PathBuf {
        let from_here = self.is_from_above(name) || self.is_instead(name);
        if from_here { path } else { self.folder.join(path) }
    }

    /// Where to listen; the path of a socket is meant as other paths are.
    fn listen(&self, name: &str) -> Option<ListenAt> {
        let value = self.get(name)?;
        let Kind::Listen = value.kind() else { return Some(ListenAt::Tcp(value.socket()?.value)) };
        Some(match value.listen()?.value {
            ListenAt::Unix(path) => ListenAt::Unix(self.meant(name, path)),
            address => address,
        })
    }

    fn check_listen(&self, reader: &Reader, name: &str) {
        let (Some(value), Some(ListenAt::Unix(path))) = (self.get(name), self.listen(name)) else { return };
        if let Err(wrong) = check_socket_path(&path) {
            let trouble = Diagnostic::new(wrong.code, value.span(), wrong.message).label("too long");
            reader.say(trouble.help(wrong.help.unwrap_or_default()));
        }
    }

    fn listener(&self, name: &str) -> ListenerSettings {
        let of = |field: &str| format!("{name}.{field}");
        let words = self.get(&of("headers")).and_then(Value::list).into_iter().flatten();
        let headers: Vec<&str> = words.filter_map(|word| Some(word.word()?.value)).collect();
        let tls = self.path(&of("tls_certificate")).zip(self.path(&of("tls_key")));
        ListenerSettings {
            listen: self.listen(&of("listen")),
            headers: headers.into_iter().filter(|word| *word != "none").collect(),
            body: self.word(&of("body")),
            connections_max: self.whole(&of("connections_max")).unwrap_or(0),
            connections_per_peer_max: self.whole(&of("connections_per_peer_max")).unwrap_or(0),
            tls: tls.map(|(certificate, key)| TlsSettings {
                certificate,
                key,
                client_roots: self.path(&of("tls_client_roots")),
            }),
        }
    }

    /// Half of a pair of files would be no TLS, in silence.
    fn check_tls(&self, reader: &Reader, name: &str) {
        let of = |field: &str| format!("{name}.{field}");
        let said = ["tls_certificate", "tls_key", "tls_client_roots"].map(|field| self.get(&of(field)));
        let ([Some(_), Some(_), _] | [None, None, None]) = said else {
            let lone = said.into_iter().flatten().next();
            let span = lone.map(|value| value.span());
            let message = format!("TLS for `{name}` needs both a certificate and its key");
            let trouble = match span {
                Some(span) => Diagnostic::new(Code::HalfOfTls, span, message).label("not enough"),
                None => Diagnostic::nowhere(Code::HalfOfTls, message),
            };
            return reader
                .say(trouble.help(format!("set both `{name}.tls_certificate` and `{name}.tls_key`")));
        };
    }

    fn store(&self) -> StoreSettings {
        let tls_certificate = self.path("store.tls.certificate").zip(self.path("store.tls.key"));
        StoreSettings {
            url: self.text(STORE_URL).map(String::from),
            user: self.text("store.user").map(String::from),
            password_file: self.path("store.password_file"),
            prefix: self.text("store.prefix").unwrap_or_default().into(),
            timeout: self.duration("store.timeout"),
            connect_timeout: self.duration("store.connect_timeout"),
            in_flight: self.whole("store.in_flight").unwrap_or(0),
            circuit_failures: self
                .whole("store.circuit.failures")
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(0),
            circuit_within: self
                .is_said("store.circuit.within")
                .then(|| self.duration("store.circuit.within")),
            circuit_open_for: self.duration("store.circuit.open_for"),
            reference_prefix: self
                .flag("store.reference_names")
                .then(|| self.text("store.reference_prefix").unwrap_or_default().to_owned()),
            tls_ca: self.path("store.tls.ca"),
            tls_certificate,
            tls_any_name: self.flag("store.tls.any_name"),
        }
    }

    fn check_store(&self, reader: &Reader) {
        if let [Some(lone), None] | [None, Some(lone)] =
            ["certificate", "key"].map(|field| self.get(&format!("store.tls.{field}")))
        {
            let message = "a certificate for `store` needs both the certificate and its key";
            let trouble = Diagnostic::new(Code::HalfOfTls, lone.span(), message).label("not enough");
            reader.say(trouble.help("set both `store.tls.certificate` and `store.tls.key`"));
        }
        let Some(url) = self.get(STORE_URL) else { return };
        let has_password = self.text(STORE_URL).is_some_and(|text| !passwords_of(text).is_empty());
        if has_password && !self.is_instead(STORE_URL) {
            let message = "a password in `store.url`: files and command lines are read by more people than should know it";
            let trouble =
                Diagnostic::new(Code::PasswordInUrl, url.span(), message).label("it is not shown here");
            reader.say(trouble.help("use `store.password_file`"));
        }
    }

    /// Pairs that stand in a list, as `name=value`. What is none is told by [`Self::check_xds`].
    fn pairs(&self, name: &str, between: char) -> Vec<(String, String)> {
        let texts = self.get(name).and_then(Value::list).into_iter().flatten();
        let pair = |text: &str| {
            let (name, value) = text.split_once(between)?;
            Some((name.trim().to_string(), value.trim().to_string()))
        };
        texts.filter_map(|text| pair(text.text()?.value)).collect()
    }

    fn xds(&self) -> XdsSettings {
        let tls = self.flag("xds.tls.enabled").then(|| XdsTlsSettings {
            ca: self.path("xds.tls.ca"),
            certificate: self.path("xds.tls.certificate").zip(self.path("xds.tls.key")),
            server_name: self.text("xds.tls.server_name").map(String::from),
        });
        XdsSettings {
            server: self.text("xds.server").map(String::from),
            node_id: self.text("xds.node_id").unwrap_or_default().into(),
            node_metadata: self.pairs("xds.node_metadata", '='),
            headers: self.pairs(XDS_HEADERS, ':'),
            message_bytes_max: self.bytes("xds.message_bytes_max"),
            connect_timeout: self.duration("xds.connect_timeout"),
            keepalive: self.duration("xds.keepalive"),
            backoff_initial: self.duration("xds.backoff.initial"),
            backoff_max: self.duration("xds.backoff.max"),
            tls,
        }
    }

    fn check_xds(&self, reader: &Reader) {
        let halves = ["certificate", "key"].map(|field| self.get(&format!("xds.tls.{field}")));
        if let [Some(lone), None] | [None, Some(lone)] = halves {
            let message = "a certificate for `xds` needs both the certificate and its key";
            let trouble = Diagnostic::new(Code::HalfOfTls, lone.span(), message).label("not enough");
            reader.say(trouble.help("set both `xds.tls.certificate` and `xds.tls.key`"));
        }
        let unused = ["ca", "certificate", "key", "server_name"].map(|field| format!("xds.tls.{field}"));
        if let Some(value) =
            unused.iter().find_map(|name| self.get(name)).filter(|_| !self.flag("xds.tls.enabled"))
        {
            let message = "`xds.tls` is set, and not enabled: the connection would be plain text";
            let trouble = Diagnostic::new(Code::HalfOfTls, value.span(), message).label("not used");
            reader.say(trouble.help("set `xds.tls.enabled`, or remove this"));
        }
        for (name, between) in [("xds.node_metadata", '='), (XDS_HEADERS, ':')] {
            let texts = self.get(name).and_then(Value::list).into_iter().flatten();
            let is_pair =
                |text: &str| text.split_once(between).is_some_and(|(name, _)| !name.trim().is_empty());
            for text in texts.filter(|text| text.text().is_some_and(|text| !is_pair(text.value))) {
                let message = format!("`{name}` is a list of `name{between}value`");
                let trouble = Diagnostic::new(Code::BadXds, text.span(), message).label("no such pair");
                reader.say(
                    trouble.help(format!("write `name{between}value`, several with commas between them")),
                );
            }
        }
    }

    fn settings(&self) -> Settings {
        let caps = Caps { bytes: self.bytes("rules.file_bytes_max"), ..Caps::default() };
        let per_second =
            |name: &str| self.whole(name).and_then(|number| u32::try_from(number).ok()).unwrap_or(0);
        Settings {
            rules: RuleFiles {
                paths: self.path("rules.path").into_iter().collect(),
                texts: Vec::new(),
                added: Vec::new(),
                caps,
                merge_domains: self.flag("rules.merge_domains"),
                defaults: Defaults::of(|name| self.get(&format!("defaults.{name}")), Defaults::default()),
                as_reference: false,
                reference_root: None,
            },
            rules_said: self.is_said("rules.path"),
            watch: self.flag("rules.watch"),
            xds: self.xds(),
            rls: self.listener("rls"),
            rls_metadata: self.flag("rls.metadata"),
            rls_connection_age: self.duration("rls.connection_age"),
            http: self.listener("http"),
            http_default_domain: self.text("http.default_domain").map(String::from),
            http_idle_timeout: self.duration("http.idle_timeout"),
            internal: InternalSettings {
                secrets_file: self.path("internal.secrets_file"),
                max_age: self.duration("internal.max_age"),
                domain: self.text("internal.domain").map(String::from),
            },
            counters_memory: self.bytes("counters.memory"),
            store: self.store(),
            control: self.control(),
            role: Role::named(self.word("node.role")),
            threads: self.whole("node.threads"),
            deadline: self.duration("node.deadline"),
            data: self.path("node.data").unwrap_or_default(),
            data_said: self.is_said("node.data"),
            drain_delay: self.duration("node.drain_delay"),
            drain_timeout: self.duration("node.drain_timeout"),
            log_format: self.word("log.format"),
            log_level: self.word("log.level"),
            log_refusals_per_second: per_second("log.refusals_per_second"),
            refusals_file: self.path("log.refusals_file"),
            refusals_file_per_second: per_second("log.refusals_file_per_second"),
            refusals_file_bytes: self.bytes("log.refusals_file_bytes"),
        }
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
