//! One call of the admin API, and what comes of it.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderValue, Method};
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::problem::{Refused, refused};
use super::{ADMIN_VARIABLE, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE};
use crate::cli::ask::CA_VARIABLE;
use crate::cli::exit::Exit;
use crate::cli::http::{Given, Place, Sent, exchange, receive};
use crate::cli::output::{self, Output};

/// What a page of the API holds at most.
const PAGE_MAX: usize = 1_000;
/// What a list holds at most: it is held whole. Exports are not.
const LIST_MAX: usize = 100_000;
/// Calls that may take long may take so many times as long, here as there.
const LONG: u32 = 60;
/// So often a change is tried that somebody else's came before.
const TRIES: u32 = 5;
/// A token is much shorter.
const TOKEN_BYTES_MAX: u64 = 4_096;

/// Which API is asked, by whom, and in which form it is told.
#[derive(Args, Debug)]
#[command(next_help_heading = "Whom to ask")]
pub(crate) struct Admin {
    /// The admin API of a node
    #[arg(long, value_name = "URL", env = ADMIN_VARIABLE, default_value = "http://127.0.0.1:8082")]
    admin: String,
    /// A file with the token [default: the token in the variable TIDEGATE_TOKEN]
    #[arg(long, value_name = "FILE", env = TOKEN_FILE_VARIABLE, hide_env_values = true)]
    token_file: Option<PathBuf>,
    /// Who signed the API's certificate, as PEM [default: whom this machine trusts]
    #[arg(long, value_name = "FILE", env = CA_VARIABLE, hide_env_values = true)]
    ca: Option<PathBuf>,
    /// Seconds to wait for an answer
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    timeout: u64,
    /// The form of the answer; `json` is the API's own
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Why a verb did not do what it was asked.
pub(super) enum Trouble {
    /// Nobody was asked, or nobody answered.
    Failed(io::Error),
    /// The API says no.
    Refused(Refused),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// What a verb ends with.
pub(super) type Ended = Result<Exit, Trouble>;

/// One call.
pub(super) struct Call {
    method: Method,
    path: String,
    body: Option<(&'static str, Bytes)>,
    condition: Option<(HeaderName, HeaderValue)>,
    is_long: bool,
    looks: Looks,
}

/// The commands that show what there is.
#[derive(Clone)]
pub(super) struct Looks {
    /// All such things.
    pub(super) at_all: String,
    /// This one, if it is one.
    pub(super) at_one: Option<String>,
}

impl Call {
    /// At a path whose parts are names that anybody may have given. `at_all` is the command that shows what there is.
    pub(super) fn new(method: Method, parts: &[&str], at_all: impl Into<String>) -> Self {
        let parts: Vec<String> = parts.iter().map(|part| encoded(part)).collect();
        let path = format!("/admin/v1/{}", parts.join("/"));
        let looks = Looks { at_all: at_all.into(), at_one: None };
        Self { method, path, body: None, condition: None, is_long: false, looks }
    }

    /// The command that shows what it is about.
    pub(super) fn look(mut self, verb: &str, name: &str) -> Self {
        self.looks.at_one = Some(format!("tidegate {verb} {}", output::word(name)));
        self
    }

    pub(super) fn query(mut self, name: &str, value: Option<&str>) -> Self {
        if let Some(value) = value {
            let sign = if self.path.contains('?') { '&' } else { '?' };
            self.path += &format!("{sign}{name}={}", encoded(value));
        }
        self
    }

    pub(super) fn flag(self, name: &str, is_set: bool) -> Self {
        self.query(name, is_set.then_some("true"))
    }

    pub(super) fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    pub(super) fn body(mut self, form: &'static str, body: impl Into<Bytes>) -> Self {
        self.body = Some((form, body.into()));
        self
    }

    /// Only if this is the version that is there; 0 is none.
    pub(super) fn if_version(mut self, version: Option<u64>) -> Self {
        self.condition = match version {
            None => None,
            Some(0) => Some((IF_NONE_MATCH, HeaderValue::from_static("*"))),
            Some(version) => {
                HeaderValue::from_str(&format!("\"{version}\"")).ok().map(|version| (IF_MATCH, version))
            }
        };
        self
    }

    pub(super) fn long(mut self) -> Self {
        self.is_long = true;
        self
    }
}

/// Letters that mean something in a URL are written otherwise.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut to, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' => {
                to.push(char::from(byte))
            }
            other => to += &format!("%{other:02X}"),
        }
        to
    })
}

/// A good answer.
pub(super) struct Answer {
    pub(super) bytes: Bytes,
    pub(super) json: Value,
}

impl Admin {
    pub(super) fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    /// Says how it ended.
    pub(super) fn end(&self, ended: Ended) -> io::Result<Exit> {
        match ended {
            Ok(exit) => Ok(exit),
            Err(Trouble::Failed(error)) => Err(error),
            Err(Trouble::Refused(refused)) => {
                if self.is_json() {
                    print(&refused.body)?;
                }
                anstream::eprintln!("tidegate: {}", refused.told);
                Ok(refused.exit)
            }
        }
    }

    /// Asks, and shows the answer: as it came, or as a text for people.
    pub(super) fn show(&self, call: Call, told: impl FnOnce(&Value) -> String) -> Ended {
        let answer = self.ask(call)?;
        self.tell(&answer, told)?;
        Ok(Exit::Yes)
    }

    pub(super) fn tell(&self, answer: &Answer, told: impl FnOnce(&Value) -> String) -> io::Result<()> {
        match self.output {
            Output::Json => print(&answer.bytes),
            Output::Table => output::write(&told(&answer.json)),
        }
    }

    pub(super) fn ask(&self, call: Call) -> Result<Answer, Trouble> {
        let wait = Duration::from_secs(self.timeout) * if call.is_long { LONG } else { 1 };
        let looks = call.looks.clone();
        let place = Place::read(&self.admin)?;
        let given = exchange(&place, self.ca.as_deref(), self.sent(call)?, wait);
        let given = given.map_err(|error| self.unreachable(&error))?;
        self.judged(given, &looks)
    }

    /// Reads what there is and writes it with a change, over exactly that version. Whoever names no version means what is there, whatever
    /// that is: what came between is read again.
    pub(super) fn change(
        &self,
        call: impl Fn(Method) -> Call,
        if_version: Option<u64>,
        body: impl Fn(&Value) -> io::Result<Value>,
    ) -> Result<Answer, Trouble> {
        let mut tries = 1;
        loop {
            let there = match self.ask(call(Method::GET)) {
                Ok(answer) => answer.json,
                Err(Trouble::Refused(refused)) if refused.is_not_found => Value::Null,
                Err(trouble) => return Err(trouble),
            };
            let version = if_version.unwrap_or(there["version"].as_u64().unwrap_or(0));
            match self.ask(call(Method::PUT).json(&body(&there)?).if_version(Some(version))) {
                Err(Trouble::Refused(refused))
                    if refused.is_conflict && if_version.is_none() && tries < TRIES =>
                {
                    tries += 1;
                }
                ended => return ended,
            }
        }
    }

    /// Asks, and hands on what comes as it comes.
    pub(super) fn stream(&self, call: Call) -> Ended {
        let looks = call.looks.clone();
        let place = Place::read(&self.admin)?;
        let sent = self.sent(call)?;
        let mut is_read = true;
        let mut write = |bytes: &[u8]| {
            is_read = output::write_bytes(bytes)?;
            // Whoever read it has gone: `tidegate … | head` is no trouble.
            if is_read { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        };
        let given = receive(&place, self.ca.as_deref(), sent, Duration::from_secs(self.timeout), &mut write);
        if !is_read {
            return Ok(Exit::Yes);
        }
        let given = given.map_err(|error| self.unreachable(&error))?;
        if !(200..300).contains(&given.status) {
            self.judged(given, &looks)?;
        }
        Ok(Exit::Yes)
    }

    /// Asks page by page for so many, and shows them.
    pub(super) fn list(
        &self,
        limit: usize,
        page: impl Fn() -> Call,
        told: impl FnOnce(&[Value]) -> String,
    ) -> Ended {
        let (mut items, mut first, mut cursor) = (Vec::new(), None, None::<String>);
        loop {
            let size = (limit - items.len()).min(PAGE_MAX).to_string();
            let answer = self.ask(page().query("limit", Some(&size)).query("cursor", cursor.as_deref()))?;
            let Answer { bytes, mut json } = answer;
            let next = json["next"].as_str().map(str::to_owned);
            if let Value::Array(more) = json["items"].take() {
                items.extend(more);
            }
            let is_first = first.is_none();
            first.get_or_insert((bytes, is_first && next.is_none()));
            // The server never says the same twice; one that does is not followed in a circle.
            let is_over = next.is_none() || items.len() >= limit || next == cursor;
            cursor = next;
            if is_over {
                break;
            }
        }
        items.truncate(limit);
        let shown = items.len();
        match (self.output, first) {
            // One page is told as it came.
            (Output::Json, Some((bytes, true))) => print(&bytes)?,
            (Output::Json, _) => print(json!({ "items": items, "next": cursor }).to_string().as_bytes())?,
            (Output::Table, _) => output::write(&told(&items))?,
        }
        if cursor.is_some() && self.output == Output::Table {
            anstream::eprintln!(
                "these are the first {shown}, and there are more: --limit says how many to show"
            );
        }
        Ok(Exit::Yes)
    }

    fn sent(&self, call: Call) -> io::Result<Sent> {
        let mut headers = vec![(AUTHORIZATION, self.bearer()?)];
        headers.extend(call.condition);
        let mut body = Bytes::new();
        if let Some((form, bytes)) = call.body {
            headers.push((CONTENT_TYPE, HeaderValue::from_static(form)));
            body = bytes;
        }
        Ok(Sent { method: call.method, path: call.path, headers, body })
    }

    /// The token. Never from the command line, which everybody on the machine can read.
    fn bearer(&self) -> io::Result<HeaderValue> {
        let (text, place) = match &self.token_file {
            Some(file) => (read_token(file)?, file.display().to_string()),
            None => {
                let text = std::env::var(TOKEN_VARIABLE).unwrap_or_default();
                (text, format!("the variable {TOKEN_VARIABLE}"))
            }
        };
        let text = text.trim();
        if text.is_empty() {
            let advice = format!(
                "put one into the variable {TOKEN_VARIABLE}, or name a file that has it by --token-file; \
                 the first one is printed at the first start of a node"
            );
            return Err(io::Error::other(format!("there is no token in {place}: {advice}")));
        }
        let value = HeaderValue::from_str(&format!("Bearer {text}"));
        let mut value = value.map_err(|_| io::Error::other(format!("what is in {place} is no token")))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn judged(&self, given: Given, looks: &Looks) -> Result<Answer, Trouble> {
        let json = serde_json::from_slice(&given.body).unwrap_or(Value::Null);
        if !(200..300).contains(&given.status) {
            let refused = refused(&self.admin, &given, &json, looks);
            return Err(Trouble::Refused(refused));
        }
        Ok(Answer { bytes: given.body, json })
    }

    fn unreachable(&self, error: &io::Error) -> io::Error {
        let advice = "is a node running there, with the control plane? (--admin, TIDEGATE_ADMIN; `tidegate run` says where it is)";
        io::Error::other(format!("the admin API at {} cannot be asked: {error}; {advice}", self.admin))
    }
}

/// How many things a list may hold.
pub(super) fn limit(said: &str) -> Result<usize, String> {
    let read = said.parse::<usize>().ok().filter(|limit| (1..=LIST_MAX).contains(limit));
    read.ok_or_else(|| format!("a number from 1 to {LIST_MAX} is expected"))
}

fn print(bytes: &[u8]) -> io::Result<()> {
    let end: &[u8] = if bytes.is_empty() || bytes.ends_with(b"\n") { b"" } else { b"\n" };
    output::write_bytes(&[bytes, end].concat()).map(drop)
}

fn read_token(file: &Path) -> io::Result<String> {
    let told = |error: io::Error| io::Error::other(format!("{} cannot be read: {error}", file.display()));
    let mut text = String::new();
    std::fs::File::open(file).map_err(told)?.take(TOKEN_BYTES_MAX).read_to_string(&mut text).map_err(told)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
