//! The start-up of envoyproxy/ratelimit: its environment variables, as settings of a node. Start at [`read`].

mod values; // how Go writes them
mod variables; // the table

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::scalars::ListenAt;
use crate::settings::Instead;

pub use variables::{Fate, Form, VARIABLES, Variable};

/// What a node does because it stands in for envoyproxy/ratelimit, as far as no other setting says it.
#[derive(Clone, Debug)]
pub struct DropIn {
    /// The folder below which files are named, in what is said of them; none where rules come from a server.
    pub rules_root: Option<PathBuf>,
    /// Every request is let through.
    pub shadow: bool,
    /// All limits are in quota mode.
    pub quota: bool,
    /// Answers bring metadata in its shape.
    pub metadata: bool,
    /// The names of the headers for limit, remaining and reset, if there are any.
    pub headers: Option<[String; 3]>,
    /// From which part of a limit on it is near.
    pub near_limit_ratio: f32,
    /// Are refusals that were remembered counted as hits of its local cache?
    pub local_cache: bool,
    /// Where its debug pages are served.
    pub debug: SocketAddr,
    /// Where its metrics are served, and under which path.
    pub prometheus: Option<(SocketAddr, String)>,
    /// Where its stats are sent.
    pub statsd: Option<Statsd>,
    /// What every stat is told with.
    pub extra_tags: Vec<(String, String)>,
    /// The name that certificates of clients have to have.
    pub client_name: Option<String>,
    /// Is a node without a connection to its store ill?
    pub health_needs_store: bool,
    /// Who asks the sentinels of the main store, if not who asks the store.
    pub sentinel_auth: Option<StoreAuth>,
    /// The store of limits per second, if they have one of their own.
    pub per_second: Option<OtherStore>,
}

/// Where stats are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statsd {
    /// To which host.
    pub host: String,
    /// To which port.
    pub port: u16,
    /// Over TCP, or over UDP?
    pub is_tcp: bool,
    /// How often.
    pub every: Duration,
    /// In the words of Datadog, with these changes to names; none is plain.
    pub dog: Option<Vec<Mogrify>>,
}

/// How a name is made over for Datadog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mogrify {
    /// Names that fit this expression
    pub pattern: String,
    /// are called this,
    pub name: String,
    /// with these tags.
    pub tags: Vec<(String, String)>,
}

/// Who asks a store.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreAuth {
    /// The user, if not the default one.
    pub user: Option<String>,
    /// Its password.
    pub password: String,
}

impl std::fmt::Debug for StoreAuth {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("StoreAuth(…)")
    }
}

/// A store beside the main one.
#[derive(Clone, PartialEq, Eq)]
pub struct OtherStore {
    /// Where it is; there may be a password in it.
    pub url: String,
    /// Who asks its sentinels.
    pub sentinel_auth: Option<StoreAuth>,
    /// How long it may take to connect, if that is said.
    pub connect_timeout: Option<Duration>,
}

impl std::fmt::Debug for OtherStore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("OtherStore(…)") // There may be a password in it.
    }
}

/// What the environment says.
#[derive(Debug)]
pub struct Read {
    /// What no other setting says.
    pub drop_in: DropIn,
    /// What holds instead of the defaults of settings.
    pub instead: Vec<Instead>,
    /// What is wrong with it.
    pub troubles: Vec<Diagnostic>,
    /// Variables that are set and have no effect.
    pub ignored: Vec<&'static Variable>,
}

/// Reads the variables of envoyproxy/ratelimit.
pub fn read(variables: &[(String, String)]) -> Read {
    let mut reader = Reader { variables, troubles: Vec::new(), instead: Vec::new() };
    let drop_in = reader.read();
    let is_ignored = |known: &&Variable| {
        let set = variables.iter().find(|(name, _)| name == known.name);
        known.fate == Fate::Ignored && set.is_some_and(|(_, value)| value != known.default)
    };
    let ignored = VARIABLES.iter().filter(is_ignored).collect();
    Read { drop_in, instead: reader.instead, troubles: reader.troubles, ignored }
}

/// Reads, and collects what is wrong.
struct Reader<'v> {
    variables: &'v [(String, String)],
    troubles: Vec<Diagnostic>,
    instead: Vec<Instead>,
}

impl Reader<'_> {
    fn read(&mut self) -> DropIn {
        self.refuse();
        self.listeners();
        self.logging();
        self.rules();
        self.counting();
        let named = ["LIMIT_LIMIT_HEADER", "LIMIT_REMAINING_HEADER", "LIMIT_RESET_HEADER"];
        let headers = named.map(|name| self.header_name(name));
        let statsd = Statsd {
            host: self.text("STATSD_HOST"),
            port: self.port("STATSD_PORT"),
            is_tcp: self.word("STATSD_PROTOCOL") == "tcp",
            every: self.time("STATS_FLUSH_INTERVAL").max(Duration::from_millis(10)),
            dog: self.flag("USE_DOG_STATSD").then(|| self.mogrifiers()),
        };
        // There it is one or the other; a DogStatsD is reached by UDP alone.
        let statsd = Statsd { is_tcp: statsd.is_tcp && statsd.dog.is_none(), ..statsd };
        let prometheus = self.address_of("PROMETHEUS_ADDR").map(|address| (address, self.prometheus_path()));
        let client_name = Some(self.text("GRPC_CLIENT_TLS_SAN")).filter(|name| !name.is_empty());
        DropIn {
            rules_root: self.rules_root(),
            shadow: self.flag("SHADOW_MODE"),
            quota: self.flag("QUOTA_MODE"),
            metadata: self.flag("RESPONSE_DYNAMIC_METADATA"),
            headers: self.flag("LIMIT_RESPONSE_HEADERS_ENABLED").then_some(headers),
            near_limit_ratio: self.ratio("NEAR_LIMIT_RATIO"),
            local_cache: self.count("LOCAL_CACHE_SIZE_IN_BYTES") > 0,
            debug: self.listen("DEBUG_HOST", "DEBUG_PORT"),
            prometheus: prometheus.filter(|_| self.flag("USE_PROMETHEUS")),
            statsd: Some(statsd)
                .filter(|statsd| self.flag("USE_STATSD") || statsd.dog.is_some())
                .filter(|_| !self.flag("DISABLE_STATS")),
            extra_tags: self.pairs("EXTRA_TAGS"),
            client_name,
            health_needs_store: self.flag("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION"),
            sentinel_auth: self.sentinel_auth(&MAIN),
            per_second: self.flag("REDIS_PERSECOND").then(|| self.per_second()),
        }
    }

    /// What cannot be done here is not left undone in silence.
    fn refuse(&mut self) {
        for known in VARIABLES.iter().filter(|known| known.fate == Fate::Refused) {
            let said = match known.form {
                Form::Flag => self.flag(known.name),
                Form::Words(_) => self.word(known.name) != known.default,
                _ => !self.text(known.name).is_empty(),
            };
            if said {
                let value = quoted(self.said(known.name).unwrap_or_default());
                self.wrong(known.name, format!("{}={value} cannot be honoured", known.name), known.note);
            }
        }
    }

    fn listeners(&mut self) {
        let (http, rls) = (self.listen("HOST", "PORT"), self.listen("GRPC_HOST", "GRPC_PORT"));
        self.instead("http.listen", http.to_string(), "PORT");
        self.instead("control.enabled", "false".into(), "PORT"); // There is none there, nor a port for one.
        match self.text("GRPC_UDS") {
            none if none.is_empty() => self.instead("rls.listen", rls.to_string(), "GRPC_PORT"),
            path => self.instead("rls.listen", ListenAt::Unix(path.into()).to_string(), "GRPC_UDS"),
        }
        let age = self.time("GRPC_MAX_CONNECTION_AGE").clamp(Duration::from_secs(1), MONTH);
        self.instead("rls.connection_age", micros(age), "GRPC_MAX_CONNECTION_AGE");
        if self.flag("GRPC_SERVER_USE_TLS") {
            for (setting, name) in [
                ("rls.tls_certificate", "GRPC_SERVER_TLS_CERT"),
                ("rls.tls_key", "GRPC_SERVER_TLS_KEY"),
                ("rls.tls_client_roots", "GRPC_CLIENT_TLS_CACERT"),
            ] {
                self.pass_on(setting, name);
            }
            if self.text("GRPC_SERVER_TLS_CERT").is_empty() || self.text("GRPC_SERVER_TLS_KEY").is_empty() {
                let fix = "set GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY";
                self.wrong(
                    "GRPC_SERVER_USE_TLS",
                    "GRPC_SERVER_USE_TLS needs a certificate and its key".into(),
                    fix,
                );
            }
        }
    }

    fn logging(&mut self) {
        let level = match self.word("LOG_LEVEL") {
            "warning" => "warn",
            "fatal" | "panic" => "error",
            level => level,
        };
        self.instead("log.level", level.into(), "LOG_LEVEL");
        let format = if self.word("LOG_FORMAT") == "json" { "json-at" } else { "text" };
        self.instead("log.format", format.into(), "LOG_FORMAT");
    }

    fn rules(&mut self) {
        if self.word("CONFIG_TYPE") == "grpc_xds_sotw" {
            self.xds();
        } else {
            let path = self.runtime_path(&["RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"]);
            self.instead("rules.path", path.display().to_string(), "RUNTIME_ROOT");
        }
        let merge = self.flag("MERGE_DOMAIN_CONFIG").to_string();
        self.instead("rules.merge_domains", merge, "MERGE_DOMAIN_CONFIG");
        // As there: one algorithm, and whoever cannot be told what to do lets Envoy decide.
        self.instead("defaults.algorithm", "fixed_window".into(), "the drop-in");
        self.instead("defaults.on_store_failure", "error".into(), "the drop-in");
    }

    fn runtime_path(&self, below: &[&str]) -> PathBuf {
        let mut path = PathBuf::from(self.text("RUNTIME_ROOT"));
        path.extend(below.iter().map(|name| self.text(name)));
        path
    }

    /// Where the watch of the reference server begins.
    fn rules_root(&mut self) -> Option<PathBuf> {
        let watches_root = self.flag("RUNTIME_WATCH_ROOT");
        let below = ["RUNTIME_SUBDIRECTORY", "RUNTIME_APPDIRECTORY"];
        let is_file = self.word("CONFIG_TYPE") != "grpc_xds_sotw";
        is_file.then(|| self.runtime_path(&below[..if watches_root { 1 } else { 2 }]))
    }

    fn counting(&mut self) {
        let url = self.url(&MAIN);
        self.instead("store.url", url, "REDIS_URL");
        self.instead("store.reference_names", "true".into(), "the drop-in");
        self.pass_on("store.reference_prefix", "CACHE_KEY_PREFIX");
        if let Some(timeout) = self.connect_timeout(&MAIN) {
            self.instead("store.connect_timeout", micros(timeout), MAIN.timeout);
        }
        if self.flag(MAIN.tls) || self.flag("REDIS_PERSECOND") && self.flag(PER_SECOND.tls) {
            for (setting, name) in [
                ("store.tls.ca", "REDIS_TLS_CACERT"),
                ("store.tls.certificate", "REDIS_TLS_CLIENT_CERT"),
                ("store.tls.key", "REDIS_TLS_CLIENT_KEY"),
            ] {
                self.pass_on(setting, name);
            }
            let any = self.flag("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION");
            self.instead("store.tls.any_name", any.to_string(), "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION");
        }
    }

    fn per_second(&mut self) -> OtherStore {
        OtherStore {
            url: self.url(&PER_SECOND),
            sentinel_auth: self.sentinel_auth(&PER_SECOND),
            connect_timeout: self.connect_timeout(&PER_SECOND),
        }
    }

    /// Who asks sentinels.
    fn sentinel_auth(&self, names: &StoreNames) -> Option<StoreAuth> {
        let (auth, said) = (self.text(names.sentinel_auth), self.text(names.url));
        let named = said.split(',').nth(1).and_then(|part| values::store_address(part.trim()).user);
        match (auth.split_once(':'), named) {
            (Some((user, password)), _) => {
                Some(StoreAuth { user: Some(user.into()), password: password.into() })
            }
            (None, _) if !auth.is_empty() => Some(StoreAuth { user: None, password: auth }),
            (None, Some((user, password))) => {
                let user = (!user.is_empty()).then(|| user.to_owned());
                Some(StoreAuth { user, password: password.into() })
            }
            (None, None) => None,
        }
    }

    fn connect_timeout(&mut self, names: &StoreNames) -> Option<Duration> {
        self.said(names.timeout)?;
        let least = Duration::from_millis(1);
        Some(self.time(names.timeout).clamp(least, Duration::from_secs(60)))
    }

    /// A store as a URL of ours.
    fn url(&mut self, names: &StoreNames) -> String {
        let (said, auth) = (self.text(names.url), self.text(names.auth));
        let is_sentinel = self.word(names.kind) == "sentinel";
        let first = values::store_address(said.split(',').next().unwrap_or_default().trim());
        let auth = match (auth.split_once(':'), first.user) {
            (Some((user, password)), _) => {
                format!("{}:{}@", values::percent(user), values::percent(password))
            }
            (None, _) if !auth.is_empty() => format!(":{}@", values::percent(&auth)),
            // Who is named in the addresses of sentinels asks those.
            (None, Some((user, password))) if !is_sentinel => {
                format!("{}:{}@", values::percent_once(user), values::percent_once(password))
            }
            _ => String::new(),
        };
        let scheme = if self.flag(names.tls) { "rediss" } else { "redis" };
        let parts = said.split(',').map(str::trim).filter(|part| !part.is_empty());
        let mut hosts: Vec<&str> = parts.map(|part| values::store_address(part).host).collect();
        match self.word(names.kind) {
            "sentinel" if hosts.len() >= 2 => {
                let master = values::percent(hosts.remove(0));
                format!("{scheme}+sentinel://{auth}{}/{master}", hosts.join(","))
            }
            "sentinel" => {
                let message = format!("{} names no sentinel", names.url); // Without its value: a password may be in it.
                self.wrong(
                    names.url,
                    message,
                    "write the name of the primary and then its sentinels: `master,host:port,host:port`",
                );
                String::new()
            }
            "cluster" => format!("{scheme}+cluster://{auth}{}", hosts.join(",")),
            _ if self.word(names.socket) == "unix" => {
                let path = said.split('/').map(values::percent).collect::<Vec<_>>().join("/");
                format!("redis+unix://{auth}{path}")
            }
            _ if said.starts_with("redis://") && !first.database.is_empty() => {
                format!("{scheme}://{auth}{}/{}", first.host, first.database)
            }
            _ if said.starts_with("redis://") => format!("{scheme}://{auth}{}", first.host),
            _ => format!("{scheme}://{auth}{said}"),
        }
    }

    /// Rules that come from an xDS server, in place of files.
    fn xds(&mut self) {
        for (setting, name) in [
            ("xds.server", "CONFIG_GRPC_XDS_SERVER_URL"),
            ("xds.node_id", "CONFIG_GRPC_XDS_NODE_ID"),
            ("xds.node_metadata", "CONFIG_GRPC_XDS_NODE_METADATA"),
            ("xds.headers", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"),
        ] {
            self.pass_on(setting, name);
        }
        for (setting, name) in [
            ("xds.backoff.initial", "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL"),
            ("xds.backoff.max", "XDS_CLIENT_BACKOFF_MAX_INTERVAL"),
        ] {
            let wait = self.time(name).clamp(Duration::from_millis(10), Duration::from_secs(600));
            self.instead(setting, micros(wait), name);
        }
        let size = self.count("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES");
        if size > 0 {
            self.instead("xds.message_bytes_max", size.to_string(), "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES");
        }
        if self.flag("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
            self.instead("xds.tls.enabled", "true".into(), "CONFIG_GRPC_XDS_SERVER_USE_TLS");
            for (setting, name) in [
                ("xds.tls.ca", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
                ("xds.tls.certificate", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT"),
                ("xds.tls.key", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY"),
                ("xds.tls.server_name", "CONFIG_GRPC_XDS_SERVER_TLS_SAN"),
            ] {
                self.pass_on(setting, name);
            }
        }
    }

    fn mogrifiers(&mut self) -> Vec<Mogrify> {
        let list = self.text("USE_DOG_STATSD_MOGRIFIERS");
        let mut all = Vec::new();
        for at in list.split(',').map(str::trim).filter(|at| !at.is_empty()) {
            let part = |part: &str| {
                let name = format!("DOG_STATSD_MOGRIFIER_{at}_{part}");
                self.said(&name).unwrap_or_default().to_owned()
            };
            let (pattern, name, tags) = (part("PATTERN"), part("NAME"), values::pairs(&part("TAGS")));
            match tags {
                Some(tags) if !pattern.is_empty() && !name.is_empty() => {
                    all.push(Mogrify { pattern, name, tags })
                }
                _ => self.wrong(
                    "USE_DOG_STATSD_MOGRIFIERS",
                    format!("the mogrifier {} has no pattern, no name, or tags that are none", quoted(at)),
                    "set DOG_STATSD_MOGRIFIER_<N>_PATTERN and _NAME, and _TAGS as `name:value,name:value`",
                ),
            }
        }
        all
    }

    fn prometheus_path(&mut self) -> String {
        let path = self.text("PROMETHEUS_PATH");
        if path.starts_with('/') { path } else { format!("/{path}") }
    }

    fn header_name(&mut self, name: &'static str) -> String {
        let text = self.text(name);
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if text.is_empty() || text.len() > 128 || !text.bytes().all(token) {
            let message = format!("{name}={} is no name of a header", quoted(&text));
            self.wrong(name, message, "write letters, digits and dashes");
        }
        text
    }

    fn instead(&mut self, setting: &'static str, value: String, place: &'static str) {
        self.instead.push(Instead { setting, value, place });
    }

    /// Hands a text on, if it says something.
    fn pass_on(&mut self, setting: &'static str, name: &'static str) {
        let text = self.text(name);
        if !text.is_empty() {
            self.instead(setting, text, name);
        }
    }

    fn said(&self, name: &str) -> Option<&str> {
        // An empty variable is one that is not set, as in Go.
        let said = self.variables.iter().find(|(known, _)| known == name);
        said.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    fn known(name: &str) -> &'static Variable {
        let known = VARIABLES.iter().find(|known| known.name == name);
        known.unwrap_or_else(|| unreachable!("`{name}` is not in the table"))
    }

    fn text(&self, name: &str) -> String {
        self.said(name).unwrap_or(Self::known(name).default).to_owned()
    }

    /// A value that is read by its form; the default where it cannot be.
    fn value<T>(&mut self, name: &'static str, wanted: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.text(name);
        let value = read(text.trim());
        if value.is_none() {
            self.wrong(
                name,
                format!("{name}={} is not {wanted}", quoted(&text)),
                "correct it, or leave it out",
            );
        }
        value.or_else(|| read(Self::known(name).default))
    }

    fn flag(&mut self, name: &'static str) -> bool {
        self.value(name, "true or false", values::flag).unwrap_or_default()
    }

    fn count(&mut self, name: &'static str) -> u64 {
        self.value(name, "a whole number", |text| text.parse().ok()).unwrap_or_default()
    }

    fn port(&mut self, name: &'static str) -> u16 {
        self.value(name, "the number of a port", |text| text.parse().ok()).unwrap_or_default()
    }

    fn ratio(&mut self, name: &'static str) -> f32 {
        let ratio = |text: &str| text.parse().ok().filter(|ratio: &f32| (0.0..=1.0).contains(ratio));
        self.value(name, "a number from 0 to 1", ratio).unwrap_or_default()
    }

    fn time(&mut self, name: &'static str) -> Duration {
        self.value(name, "a duration such as `10s` or `150us`", values::time).unwrap_or_default()
    }

    fn pairs(&mut self, name: &'static str) -> Vec<(String, String)> {
        self.value(name, "a list such as `name:value,name:value`", values::pairs).unwrap_or_default()
    }

    fn word(&mut self, name: &'static str) -> &'static str {
        let Form::Words(words) = Self::known(name).form else { unreachable!("`{name}` is no word") };
        let word = |text: &str| words.iter().find(|word| word.eq_ignore_ascii_case(text)).copied();
        self.value(name, &format!("one of {}", words.join(", ")), word).unwrap_or_default()
    }

    fn address_of(&mut self, name: &'static str) -> Option<SocketAddr> {
        let address = |text: &str| {
            let (host, port) = values::host_and_port(text)?;
            values::address(host, port)
        };
        self.value(name, "an address such as `:9090`", address)
    }

    fn listen(&mut self, host: &'static str, port: &'static str) -> SocketAddr {
        let port = self.port(port);
        let address = self.value(host, "an address of this machine", |host| values::address(host, port));
        address.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], port)))
    }

    fn wrong(&mut self, name: &'static str, message: String, fix: &str) {
        let told = Diagnostic::nowhere(Code::BadVariable, message);
        let told = told.help(fix).fact(format!("{name} is a variable of envoyproxy/ratelimit"));
        if !self.troubles.contains(&told) {
            self.troubles.push(told);
        }
    }
}

/// The variables of one store.
struct StoreNames {
    kind: &'static str,
    socket: &'static str,
    url: &'static str,
    auth: &'static str,
    sentinel_auth: &'static str,
    tls: &'static str,
    timeout: &'static str,
}

const MAIN: StoreNames = StoreNames {
    kind: "REDIS_TYPE",
    socket: "REDIS_SOCKET_TYPE",
    url: "REDIS_URL",
    auth: "REDIS_AUTH",
    sentinel_auth: "REDIS_SENTINEL_AUTH",
    tls: "REDIS_TLS",
    timeout: "REDIS_TIMEOUT",
};

const PER_SECOND: StoreNames = StoreNames {
    kind: "REDIS_PERSECOND_TYPE",
    socket: "REDIS_PERSECOND_SOCKET_TYPE",
    url: "REDIS_PERSECOND_URL",
    auth: "REDIS_PERSECOND_AUTH",
    sentinel_auth: "REDIS_PERSECOND_SENTINEL_AUTH",
    tls: "REDIS_PERSECOND_TLS",
    timeout: "REDIS_PERSECOND_TIMEOUT",
};

/// The longest that a connection may live.
const MONTH: Duration = Duration::from_secs(30 * 86_400);

fn micros(time: Duration) -> String {
    format!("{}us", time.as_micros())
}
