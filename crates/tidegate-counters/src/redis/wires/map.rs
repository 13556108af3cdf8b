//! Reading which server answers for which slot.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::time::Instant;

use super::Wires;
use super::connection::{Connection, Purpose};
use super::link::Outcome;
use super::reply::{address, words};
use super::servers::{Map, SLOTS, Server};
use crate::redis::settings::{Address, RedisSettings, Topology};

/// How long one server has to tell what it knows, and how long all of them have.
const ANSWER_MAX: Duration = Duration::from_millis(250);
const ROUND_MAX: Duration = Duration::from_secs(3);

/// Asks the servers, one after the other, until one of them knows.
pub(super) async fn read(wires: &Rc<Wires>) -> Result<Map, String> {
    let asked = async {
        match &wires.servers.settings.topology {
            Topology::Standalone(_) => Err("there is one server only".to_owned()),
            Topology::Cluster(seeds) => cluster(wires, seeds).await,
            Topology::Sentinel { name, sentinels } => sentinel(wires, name, sentinels).await,
        }
    };
    let round = tokio::time::timeout(ROUND_MAX, asked).await;
    round.unwrap_or_else(|_| Err(format!("no server told within {} s", ROUND_MAX.as_secs())))
}

async fn cluster(wires: &Rc<Wires>, seeds: &[Address]) -> Result<Map, String> {
    let mut problem = String::new();
    // First those that are connected, beginning with the one that replied last: it is the least likely to hang.
    let mut connected = wires.connected();
    connected.sort_by_key(|link| std::cmp::Reverse(link.heard_at.get()));
    let mut candidates: Vec<Address> = connected.iter().map(|link| link.server.address.clone()).collect();
    let primaries = wires.servers.map().primaries().to_vec();
    for address in primaries.iter().map(|server| &server.address).chain(seeds) {
        if !candidates.contains(address) {
            candidates.push(address.clone());
        }
    }
    for asked in candidates {
        let command = redis::cmd("CLUSTER").arg("SLOTS").take();
        match ask(wires, &asked, &command).await {
            Ok(reply) => match ranges(wires, &reply, &asked) {
                Some(ranges) if !ranges.is_empty() => return Ok(Map::of_ranges(ranges)),
                Some(_) => problem = format!("{asked} knows of no slots: the cluster is not set up yet"),
                None => problem = format!("{asked} tells its slots in a way that is not understood"),
            },
            Err(why) => problem = why,
        }
    }
    Err(problem)
}

/// Asks a server over this thread's connection to it.
async fn ask(wires: &Rc<Wires>, asked: &Address, command: &redis::Cmd) -> Result<Value, String> {
    let server = wires.servers.server(asked).ok_or("there are too many servers")?;
    let link = wires.link(&server);
    let until = Instant::now() + wires.servers.settings.connect_timeout.max(ANSWER_MAX);
    let connection = link.connection(until).await.map_err(|failed| failed.why)?;
    match link.exchange(&connection, command, false, "map", Instant::now() + ANSWER_MAX).await {
        Outcome::Done(value) => Ok(value),
        Outcome::Refused(error) => {
            let words = words(&error);
            Err(match words.contains("cluster support disabled") {
                true => format!("{asked} is no cluster: write redis:// in the store's URL"),
                false => format!("{asked} does not tell who is primary: {words}"),
            })
        }
        Outcome::Lost(why) | Outcome::NotSent(why) => Err(format!("{asked} broke the connection off: {why}")),
        Outcome::TimedOut => Err(format!("{asked} did not answer within {} ms", ANSWER_MAX.as_millis())),
    }
}

/// The reply to CLUSTER SLOTS: `[from, to, [host, port, id, …], replicas…]` for each range.
fn ranges(wires: &Wires, reply: &Value, asked: &Address) -> Option<Vec<(u16, u16, Arc<Server>)>> {
    let Value::Array(ranges) = reply else { return None };
    ranges
        .iter()
        .map(|range| {
            let Value::Array(range) = range else { return None };
            let [Value::Int(from), Value::Int(to), Value::Array(primary), ..] = range.as_slice() else {
                return None;
            };
            let (from, to) = (u16::try_from(*from).ok()?, u16::try_from(*to).ok()?);
            let [host, Value::Int(port), rest @ ..] = primary.as_slice() else { return None };
            let host = match text(host) {
                // A server whose name was not set; its number may stand behind.
                Some("?") => number_of(rest).unwrap_or_default(),
                host => host.unwrap_or_default(),
            };
            let port = u16::try_from(*port).ok().filter(|port| *port != 0)?;
            let server = wires.servers.server(&address(host, port, asked))?;
            (from <= to && to < SLOTS).then_some((from, to, server))
        })
        .collect()
}

/// The address in `id, ["ip", address, …]`.
fn number_of(rest: &[Value]) -> Option<&str> {
    let [_, Value::Array(pairs), ..] = rest else { return None };
    let pair = pairs.chunks_exact(2).find(|pair| text(&pair[0]) == Some("ip"))?;
    text(&pair[1])
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

async fn sentinel(wires: &Rc<Wires>, name: &str, sentinels: &[Address]) -> Result<Map, String> {
    let mut problem = String::new();
    for sentinel in sentinels {
        let told = told_by_sentinel(wires, name, sentinel).await;
        match told {
            Ok(primary) => match is_primary(wires, &primary).await {
                Ok(server) => return Ok(Map::one(server)),
                Err(why) => problem = format!("sentinel {sentinel} names {primary}, but {why}"),
            },
            Err(why) => problem = why,
        }
    }
    Err(problem)
}

async fn told_by_sentinel(wires: &Rc<Wires>, name: &str, sentinel: &Address) -> Result<Address, String> {
    let settings = match (&wires.servers.settings, &wires.servers.settings.sentinel_login) {
        (settings, None) => Cow::Borrowed(settings),
        (settings, Some(login)) => {
            let (user, password) = (login.user.clone(), Some(login.password.clone()));
            Cow::Owned(RedisSettings { user, password, ..settings.clone() })
        }
    };
    let late = |_| format!("sentinel {sentinel} did not answer in time");
    // A connection for this question alone: they are few, and asked rarely.
    let opened = Connection::open(sentinel, &settings, Purpose::Sentinel, None);
    let opened = tokio::time::timeout(settings.connect_timeout, opened).await.map_err(late)?;
    let connection = opened.map_err(|failed| {
        wires.servers.troubles.count(failed.trouble);
        format!("sentinel {}", failed.why)
    })?;
    let command = redis::cmd("SENTINEL").arg("get-master-addr-by-name").arg(name).take();
    let reply = tokio::time::timeout(ANSWER_MAX, connection.send(&command)).await.map_err(late)?;
    match reply.map_err(|lost| format!("sentinel {sentinel}: {}", lost.0))? {
        Value::ServerError(error) => Err(format!("sentinel {sentinel}: {}", words(&error))),
        Value::Nil => {
            Err(format!("sentinel {sentinel} knows no `{name}`; correct the name in the store's URL"))
        }
        Value::Array(parts) => {
            let parts: Vec<&str> = parts.iter().filter_map(text).collect();
            match parts.as_slice() {
                [host, port] => match port.parse() {
                    Ok(port) if port != 0 => Ok(address(host, port, sentinel)),
                    _ => Err(format!("sentinel {sentinel} names a port that is none")),
                },
                _ => Err(format!("sentinel {sentinel} answers in a way that is not understood")),
            }
        }
        _ => Err(format!("sentinel {sentinel} answers in a way that is not understood")),
    }
}

/// A sentinel may be behind the times: what it names has to say itself that it is a primary.
async fn is_primary(wires: &Rc<Wires>, named: &Address) -> Result<Arc<Server>, String> {
    let reply = ask(wires, named, &redis::cmd("ROLE")).await?;
    let role = match &reply {
        Value::Array(parts) => parts.first().and_then(text),
        _ => None,
    };
    match role {
        Some("master") => wires.servers.server(named).ok_or_else(|| "there are too many servers".into()),
        Some(role) => Err(format!("that says it is a {role}")),
        None => Err("that does not tell its role".into()),
    }
}
