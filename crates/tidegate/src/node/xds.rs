//! Rules that come from an xDS server: put in force as they come, and kept in the folder for data, for a start without that server.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tidegate_config::{Loaded, XdsSettings};
use tidegate_server::rls::Beside;
use tidegate_server::{Node, XdsStatus};
use tidegate_xds::{ClientSettings, ClientTls, Event, Place, RuleText, Subscriber, Update};
use tokio::runtime::{Builder, Handle};

use super::rules::{self, NOT_LOADED};

/// How long the server may take to answer a ping.
const PONG_MAX: Duration = Duration::from_secs(20);
/// How long a server may be silent on a new stream before it is asked once more.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// How long a node that starts waits for the server, before it goes by the rules of the last run.
const KEPT_AFTER: Duration = Duration::from_secs(1);
/// How many errors a server is told of.
const TOLD_MAX: usize = 10;
/// What the names of sources begin with.
const PREFIX: &str = "xds:";

/// What the settings say about the server; none is files.
pub(crate) fn settings(said: &XdsSettings) -> Result<Option<ClientSettings>, String> {
    let Some(server) = &said.server else { return Ok(None) };
    let place = Place::of_text(server).ok_or_else(|| {
        format!("`{server}` is no host and port; write it as `host:18000` or `[::1]:18000`")
    })?;
    for (name, value) in &said.headers {
        if HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err() {
            return Err(format!("xds.headers: no header can be made of `{name}` and its value"));
        }
    }
    let tls = said.tls.as_ref().map(|tls| ClientTls {
        ca: tls.ca.clone(),
        certificate: tls.certificate.clone(),
        server_name: tls.server_name.clone(),
    });
    Ok(Some(ClientSettings {
        server: place,
        node_id: said.node_id.clone(),
        node_metadata: said.node_metadata.clone(),
        headers: said.headers.clone(),
        tls,
        message_bytes_max: said.message_bytes_max,
        connect_timeout: said.connect_timeout,
        settled_after: SETTLED_AFTER,
        keepalive: (said.keepalive, PONG_MAX),
        backoff: (said.backoff_initial, said.backoff_max),
    }))
}

/// Follows the rules of the server for as long as the node lives, on a thread where no decision waits.
pub(super) fn follow(
    node: &Arc<Node>,
    settings: ClientSettings,
    status: Arc<XdsStatus>,
    beside: Beside,
    kept: Option<PathBuf>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let kept = kept.map(|path| Kept { path, of: kept_of(&settings) });
    let follower = Arc::new_cyclic(|me| Follower {
        me: me.clone(),
        node: Arc::downgrade(node),
        status,
        beside,
        kept,
        turn: Mutex::new(()),
        runtime: runtime.handle().clone(),
    });
    let thread = std::thread::Builder::new().name("xds".into());
    // It ends with the process; nobody has to wait for that.
    thread.spawn(move || {
        runtime.block_on(async {
            let kept = follower.clone();
            tokio::spawn(async move {
                tokio::time::sleep(KEPT_AFTER).await;
                kept.load_kept_aside();
            });
            tidegate_xds::follow(settings, follower).await;
        });
    })?;
    Ok(())
}

/// Who puts the rules in force.
struct Follower {
    me: Weak<Self>,
    node: Weak<Node>,
    status: Arc<XdsStatus>,
    beside: Beside,
    kept: Option<Kept>,
    /// Whoever loads rules has it, so that those of the last run never replace those of the server.
    turn: Mutex<()>,
    runtime: Handle,
}

impl Subscriber for Follower {
    fn apply(&self, update: &Update) -> Result<(), String> {
        let Some(node) = self.node.upgrade() else { return Err("the node is ending".into()) };
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = node.rules.replace(texts(&update.rules));
        if !loaded.is_valid() {
            return Err(why(&loaded));
        }
        rules::tell(&node, &loaded);
        self.tell_health(&node);
        if let Some(kept) = &self.kept
            && let Err(error) = kept.write(update)
        {
            let file = kept.path.display();
            tracing::warn!(%error, %file, "rules not kept: a start without the xDS server would have older ones");
        }
        Ok(())
    }

    fn tell(&self, event: Event<'_>) {
        let server = &*self.status.server;
        match event {
            Event::Connected => {
                self.status.connected();
                tracing::info!(server, "connected to the xDS server");
            }
            Event::Disconnected { why, wait } => {
                if self.status.disconnected(why) {
                    let wait_ms = wait.as_millis() as u64;
                    tracing::warn!(
                        server,
                        why,
                        wait_ms,
                        "no connection to the xDS server; the rules in force stay"
                    );
                }
                self.load_kept_aside();
            }
            Event::Accepted { version } => {
                self.status.accepted();
                tracing::info!(server, version, "rules from the xDS server accepted");
            }
            Event::Rejected { version, why } => {
                self.status.rejected(why);
                match self.node.upgrade().as_ref().and_then(|node| node.stand_in.as_ref()) {
                    Some(stand_in) => {
                        stand_in.stats.config_load(false);
                        tracing::error!(server, version, "{NOT_LOADED}: {why}; the rules in force stay");
                    }
                    None => tracing::error!(
                        server,
                        version,
                        why,
                        "rules from the xDS server rejected; those in force stay"
                    ),
                }
                self.load_kept_aside();
            }
        }
    }
}

impl Follower {
    /// Goes by the rules of the last run, if there are no others yet. Loading takes its time, so it is done aside.
    fn load_kept_aside(&self) {
        let (Some(me), Some(node)) = (self.me.upgrade(), self.node.upgrade()) else { return };
        if me.kept.is_some() && !node.rules.is_loaded() {
            self.runtime.spawn_blocking(move || me.load_kept(&node));
        }
    }

    fn load_kept(&self, node: &Node) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = self.kept.as_ref().filter(|_| !node.rules.is_loaded()) else { return };
        let file = kept.path.display();
        let update = match kept.read() {
            Ok(Some(update)) => update,
            Ok(None) => return,
            Err(error) => return tracing::warn!(%error, %file, "the rules of the last run cannot be read"),
        };
        let loaded = node.rules.replace(texts(&update.rules));
        if !loaded.is_valid() {
            return tracing::warn!(%file, why = why(&loaded), "the rules of the last run are not valid any more");
        }
        let version = update.version;
        tracing::warn!(%file, version, "the rules of the last run are in force until the xDS server sends its own");
        rules::tell(node, &loaded);
        self.tell_health(node);
    }

    fn tell_health(&self, node: &Node) {
        self.runtime.block_on(self.beside.tell_health(node.is_well()));
    }
}

/// Rules as sources, which say where they came from.
fn texts(rules: &[RuleText]) -> Vec<(String, Arc<str>)> {
    rules.iter().map(|rule| (format!("{PREFIX}{}", rule.name), rule.text.clone())).collect()
}

/// What is wrong with rules, as a server is told: `<resource>: <message>`, as envoyproxy/ratelimit does, in its words where it has some,
/// with ours behind them.
fn why(loaded: &Loaded) -> String {
    let errors = loaded.report.json(&loaded.sources).into_iter().filter(|told| told["severity"] == "error");
    let mut told: Vec<String> = errors.take(TOLD_MAX).map(|trouble| message(&trouble)).collect();
    let more = loaded.report.errors().saturating_sub(told.len());
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    told.join("; ")
}

fn message(trouble: &Value) -> String {
    let text = |name: &str| trouble.get(name).and_then(Value::as_str).unwrap_or_default();
    let named = |text: &str| text.strip_prefix(PREFIX).unwrap_or(text).to_string();
    if !text("reference").is_empty() {
        return format!("{} ({})", named(text("reference")), text("message"));
    }
    let resource = named(text("file"));
    if resource.is_empty() { text("message").into() } else { format!("{resource}: {}", text("message")) }
}

/// The file with the last good rules.
#[derive(Debug)]
struct Kept {
    path: PathBuf,
    /// Whose rules they are: those of another server, or for another node, are not ours.
    of: Value,
}

/// The first line of the file.
const HEAD: &str = "# The last good rules of an xDS server, for a start without it. The node writes this file: changes are lost.\n";
/// What the line begins with that says whose they are.
const OF: &str = "# of ";
/// What stands before each resource, with its name behind it. No line of JSON begins like that.
const NEXT: &str = "--- # ";
/// Longer files are none that a node has written.
const KEPT_BYTES_MAX: u64 = 1 << 30;

fn kept_of(settings: &ClientSettings) -> Value {
    json!({ "server": settings.server.to_string(), "node": settings.node_id })
}

impl Kept {
    /// Writes the rules: whole or not at all. The file is a rule file of several documents, which `tidegate config check` takes too.
    fn write(&self, update: &Update) -> io::Result<()> {
        let mut text = HEAD.to_string();
        let mut of = self.of.clone();
        of["version"] = json!(update.version);
        let _ = writeln!(text, "{OF}{of}"); // A string takes whatever is written.
        for rule in &update.rules {
            let _ = writeln!(text, "{NEXT}{}\n{}", json!(rule.name), rule.text);
        }
        let part = self.path.with_extension("part");
        let mut file = File::create(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &self.path)
    }

    /// Reads them again; none where there are none, or they are somebody else's.
    fn read(&self) -> io::Result<Option<Update>> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(metadata) if metadata.len() > KEPT_BYTES_MAX => return Err(damaged("it is too large")),
            _ => {}
        }
        let text = fs::read_to_string(&self.path)?;
        let between = format!("\n{NEXT}");
        let mut parts = text.split(&between);
        let head = parts.next().unwrap_or_default();
        let of =
            head.lines().find_map(|line| line.strip_prefix(OF)).ok_or_else(|| damaged("it has no head"))?;
        let mut of: Value = serde_json::from_str(of).map_err(|error| damaged(&error.to_string()))?;
        let version = of.as_object_mut().and_then(|of| of.remove("version"));
        if of != self.of {
            tracing::info!(file = %self.path.display(), %of, "rules of another xDS server or node are left alone");
            return Ok(None);
        }
        let version = version.and_then(|version| Some(version.as_str()?.to_string())).unwrap_or_default();
        let rule = |part: &str| {
            let (name, text) = part.split_once('\n')?;
            Some(RuleText { name: serde_json::from_str(name).ok()?, text: text.into() })
        };
        let rules: Option<Vec<RuleText>> = parts.map(rule).collect();
        Ok(Some(Update { version, rules: rules.ok_or_else(|| damaged("a resource has no name"))? }))
    }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Where the rules are kept in a folder for data.
pub(super) fn kept_in(folder: &Path) -> PathBuf {
    folder.join("xds-rules.yaml")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(folder: &Path, node: &str) -> Kept {
        Kept { path: kept_in(folder), of: json!({ "server": "a:1", "node": node }) }
    }

    #[test]
    fn kept_rules_come_back_as_they_were() {
        let folder = tempfile::tempdir().expect("a folder");
        let ours = kept(folder.path(), "one");
        assert_eq!(ours.read().expect("no file"), None);
        let text: Arc<str> = json!({ "domain": "a\n--- # \"b\"\n# of {}" }).to_string().into();
        let odd = "odd\n--- # \"x\"\u{2028}: name";
        let rules = vec![
            RuleText { name: odd.into(), text: text.clone() },
            RuleText { name: "second".into(), text: "{\n  \"domain\": \"b\"\n}".into() },
        ];
        for rules in [rules, Vec::new()] {
            let update = Update { version: "7\n".into(), rules };
            ours.write(&update).expect("written");
            let read = ours.read().expect("read").expect("rules");
            let trimmed = |text: &str| text.trim_end().to_string();
            assert_eq!(read.version, update.version);
            let pairs = |update: &Update| -> Vec<(String, String)> {
                update.rules.iter().map(|rule| (rule.name.clone(), trimmed(&rule.text))).collect()
            };
            assert_eq!(pairs(&read), pairs(&update));
        }
        assert_eq!(kept(folder.path(), "another").read().expect("read"), None, "those of another node");
        for damage in ["", "# of {\n", "# of {\"server\":\"a:1\",\"node\":\"one\"}\n--- # name\n{}"] {
            fs::write(&ours.path, damage).expect("written");
            assert!(ours.read().is_err(), "{damage}");
        }
    }
}
