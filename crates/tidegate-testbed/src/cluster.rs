//! Several servers that share the slots.

use std::net::SocketAddr;
use std::time::Duration;

use crate::client::Reply;
use crate::find::Kind;
use crate::proxy::Proxy;
use crate::server::{Mode, Options, Server};
use crate::slots::{SLOTS, slot_of};
use crate::wait::until;

/// Until the servers agree: on who is there, on a new primary. They talk to each other about once a second.
const AGREE_MAX: Duration = Duration::from_secs(30);

/// Servers give a failover by agreement up after five seconds, which may be too few where the machine does something else. Then it is begun
/// again.
const FAILOVER_MAX: Duration = Duration::from_secs(10);
const FAILOVERS_MAX: usize = 3;

const HOPS_MAX: usize = 5;

/// For one key that moves.
const MIGRATE_TIMEOUT_MS: &str = "2000";

/// Primaries, and their replicas. Servers are named by their place: first all primaries, then the first replica of each primary, then the
/// second of each.
pub struct Cluster {
    servers: Vec<Server>,
    ids: Vec<String>,
    proxies: Vec<Proxy>,
    primaries: usize,
}

impl Cluster {
    /// Starts a cluster whose slots are shared out evenly, and waits until every server knows all and says that it is well. A primary that
    /// does not answer for `node_timeout_ms` is taken for dead.
    pub fn start(
        kind: Kind,
        primaries: usize,
        replicas_each: usize,
        node_timeout_ms: u32,
    ) -> Result<Self, String> {
        Self::form(kind, primaries, replicas_each, node_timeout_ms, false)
    }

    /// The same with a proxy before each server. The servers tell the addresses of the proxies, so that clients are sent through these
    /// from the first redirect on; so are replicas. (The servers' talk about each other goes another way and is not disturbed.)
    pub fn start_behind_proxies(
        kind: Kind,
        primaries: usize,
        replicas_each: usize,
        node_timeout_ms: u32,
    ) -> Result<Self, String> {
        Self::form(kind, primaries, replicas_each, node_timeout_ms, true)
    }

    /// All servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The proxy before each server; empty if there are none.
    pub fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    /// How the product is told to connect: `redis+cluster://`, with the addresses of all primaries, or of their proxies.
    pub fn url(&self) -> String {
        let addresses: Vec<String> = (0..self.primaries).map(|place| self.told(place).to_string()).collect();
        format!("redis+cluster://{}", addresses.join(","))
    }

    /// Which server has a slot now: of the primaries that say so and answer, the one whose claim is the newest.
    pub fn place_of(&self, slot: u16) -> Result<usize, String> {
        let claims = (0..self.servers.len()).filter(|place| self.servers[*place].is_awake());
        let claims = claims.filter_map(|place| Some((self.claim(place, slot)?, place)));
        let newest = claims.max().map(|(_, place)| place);
        newest.ok_or_else(|| format!("no server says that it has slot {slot}"))
    }

    /// The server that has a slot now; panics if none has.
    pub fn primary_of(&self, slot: u16) -> &Server {
        &self.servers[self.place_of(slot).unwrap_or_else(|reason| panic!("{reason}"))]
    }

    /// Sends a command to where a key is, and after it if it has moved; panics if there is no reply.
    pub fn command_on<W: AsRef<[u8]>>(&self, key: impl AsRef<[u8]>, words: &[W]) -> Reply {
        let mut place = self.place_of(slot_of(key)).unwrap_or_else(|reason| panic!("{reason}"));
        let mut asking = false;
        for _ in 0..HOPS_MAX {
            let server = &self.servers[place];
            let ask = || {
                let mut client = server.client()?;
                if asking {
                    client.command(&["ASKING"])?;
                }
                client.command(words)
            };
            let reply = ask().unwrap_or_else(|reason| panic!("{reason}\n{}", server.log_tail()));
            let error = reply.error().unwrap_or_default().to_string();
            asking = error.starts_with("ASK ");
            if !asking && !error.starts_with("MOVED ") {
                return reply;
            }
            let address = error.rsplit(' ').next().and_then(|address| address.parse::<SocketAddr>().ok());
            let known = |place: &usize| {
                address.is_some_and(|address| {
                    address == self.servers[*place].address() || address == self.told(*place)
                })
            };
            place = (0..self.servers.len()).find(known).unwrap_or_else(|| panic!("nobody is at {error}"));
        }
        panic!("sent around in circles {HOPS_MAX} times")
    }

    /// Begins to move a slot: from now on, keys that are no longer (or not yet) there are asked for at the new place (`ASK`).
    pub fn begin_move(&self, slot: u16, from: usize, to: usize) -> Result<(), String> {
        let slot = slot.to_string();
        self.ok(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.ids[from]])?;
        self.ok(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.ids[to]])
    }

    /// Moves one key of a slot that is being moved; which one, or none if all have moved.
    pub fn move_one_key(&self, slot: u16, from: usize, to: usize) -> Result<Option<Vec<u8>>, String> {
        let reply = self.servers[from].try_command(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1"])?;
        match reply.items() {
            [] if reply.error().is_none() => Ok(None),
            [Reply::Bytes(key)] => self.move_key(key, from, to).map(|()| Some(key.clone())),
            _ => Err(format!("GETKEYSINSLOT: {reply:?}")),
        }
    }

    /// Moves this key, whose slot is being moved.
    pub fn move_key(&self, key: impl AsRef<[u8]>, from: usize, to: usize) -> Result<(), String> {
        let address = self.servers[to].address();
        let (host, port) = (address.ip().to_string(), address.port().to_string());
        let words =
            [b"MIGRATE", host.as_bytes(), port.as_bytes(), key.as_ref(), b"0", MIGRATE_TIMEOUT_MS.as_bytes()];
        self.ok(from, &words)
    }

    /// Ends the move of a slot: it is at the new place, and every primary is told.
    pub fn finish_move(&self, slot: u16, from: usize, to: usize) -> Result<(), String> {
        let others = (0..self.servers.len()).filter(|place| *place != to && *place != from);
        // The new place first: a slot must never be nobody's.
        for place in [to, from].into_iter().chain(others) {
            if self.servers[place].is_awake() && self.is_primary(place) {
                self.ok(place, &["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &self.ids[to]])?;
            }
        }
        Ok(())
    }

    /// Moves a slot with all its keys, one by one.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) -> Result<(), String> {
        self.begin_move(slot, from, to)?;
        while self.move_one_key(slot, from, to)?.is_some() {}
        self.finish_move(slot, from, to)
    }

    /// Makes a replica the primary, by agreement (nothing is lost), and waits until all know it.
    pub fn failover(&self, replica: usize) -> Result<(), String> {
        let mut well = Ok(());
        for _ in 0..FAILOVERS_MAX {
            if !self.is_primary(replica) {
                self.ok(replica, &["CLUSTER", "FAILOVER"])?;
            }
            well = self.wait_promoted_within(replica, FAILOVER_MAX);
            if well.is_ok() {
                break;
            }
        }
        well
    }

    /// Waits until this server is a primary and all that answer know it: after [`Self::failover`], or after its primary was killed.
    pub fn wait_promoted(&self, replica: usize) -> Result<(), String> {
        self.wait_promoted_within(replica, AGREE_MAX)
    }

    fn wait_promoted_within(&self, replica: usize, at_most: Duration) -> Result<(), String> {
        until("a replica becomes the primary", at_most, || {
            let awake = (0..self.servers.len()).filter(|place| self.servers[*place].is_awake());
            for place in awake {
                let nodes = self.nodes(place)?;
                let line =
                    nodes.lines().find(|line| line.starts_with(&self.ids[replica])).unwrap_or_default();
                let flags = line.split(' ').nth(2).unwrap_or_default();
                // Eight words, and then the slots that it has.
                if !flags.contains("master") || line.split(' ').count() <= 8 {
                    return Err(format!("{} sees: {line}", self.servers[place].address()));
                }
                let info = self.info(place)?;
                if !info.contains("cluster_state:ok") {
                    return Err(format!("{} says: {info}", self.servers[place].address()));
                }
            }
            Ok(())
        })
    }

    /// Every key of all primaries.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.primaries_now().flat_map(Server::keys).collect()
    }

    /// Every key of all primaries that never expires, but for these.
    pub fn immortal_keys(&self, except: &[&str]) -> Vec<Vec<u8>> {
        self.primaries_now().flat_map(|server| server.immortal_keys(except)).collect()
    }

    fn form(
        kind: Kind,
        primaries: usize,
        replicas_each: usize,
        node_timeout_ms: u32,
        behind_proxies: bool,
    ) -> Result<Self, String> {
        let count = primaries * (1 + replicas_each);
        let (mut servers, mut proxies) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let proxy = if behind_proxies { Some(Proxy::start_without_target()?) } else { None };
            let announced = proxy.as_ref().map(|proxy| proxy.address().port());
            let options = Options::new().line(format!("cluster-node-timeout {node_timeout_ms}"));
            let server = Server::start(kind, &options.mode(Mode::Cluster { announced }))?;
            if let Some(proxy) = proxy {
                proxy.set_target(server.address());
                proxies.push(proxy);
            }
            servers.push(server);
        }
        let id = |server: &Server| server.command(&["CLUSTER", "MYID"]).text().unwrap_or_default();
        let ids = servers.iter().map(id).collect();
        let cluster = Self { servers, ids, proxies, primaries };
        cluster.join()?;
        Ok(cluster)
    }

    /// From servers that know nothing of each other to a cluster.
    fn join(&self) -> Result<(), String> {
        let count = self.servers.len();
        for place in 0..count {
            // Epochs that differ need no agreement later on.
            self.ok(place, &["CLUSTER", "SET-CONFIG-EPOCH", &(place + 1).to_string()])?;
        }
        for place in 0..self.primaries {
            let bound = |place: usize| usize::from(SLOTS) * place / self.primaries;
            let (first, last) = (bound(place).to_string(), (bound(place + 1) - 1).to_string());
            self.ok(place, &["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
        }
        // Each meets those after it, since waiting for gossip takes longer.
        for place in 0..count {
            for other in place + 1..count {
                let (port, bus_port) = (self.told(other).port(), self.servers[other].bus_port());
                self.ok(place, &["CLUSTER", "MEET", "127.0.0.1", &port.to_string(), &bus_port.to_string()])?;
            }
        }
        until("all servers know each other", AGREE_MAX, || self.agreed(count, 0))?;
        for place in self.primaries..count {
            let primary = &self.ids[place % self.primaries];
            until("a replica knows its primary", AGREE_MAX, || {
                self.ok(place, &["CLUSTER", "REPLICATE", primary])
            })?;
        }
        until("the cluster is well", AGREE_MAX, || self.agreed(count, count - self.primaries))
    }

    /// Does every server know all others, so many of them replicas, and is it well?
    fn agreed(&self, count: usize, replicas: usize) -> Result<(), String> {
        for place in 0..self.servers.len() {
            let (nodes, info) = (self.nodes(place)?, self.info(place)?);
            let flags = || nodes.lines().filter_map(|line| line.split(' ').nth(2));
            let known =
                flags().filter(|flags| !flags.contains("handshake") && !flags.contains("fail")).count();
            let follow = flags().filter(|flags| flags.contains("slave")).count();
            let told = (0..count)
                .all(|other| nodes.lines().any(|line| line.contains(&format!(" {}@", self.told(other)))));
            let is_well = info.contains("cluster_state:ok");
            if known != count || nodes.lines().count() != count || follow != replicas || !told || !is_well {
                return Err(format!("{} sees:\n{nodes}{info}", self.servers[place].address()));
            }
            if replicas > 0 && place >= self.primaries {
                let state =
                    self.servers[place].try_command(&["INFO", "replication"])?.text().unwrap_or_default();
                if !state.contains("master_link_status:up") {
                    return Err(format!("{}: {state}", self.servers[place].address()));
                }
            }
        }
        Ok(())
    }

    /// How new the claim of a server to a slot is, if it makes one.
    fn claim(&self, place: usize, slot: u16) -> Option<u64> {
        let nodes = self.nodes(place).ok()?;
        let line = nodes.lines().find(|line| line.contains("myself"))?;
        let words: Vec<&str> = line.split(' ').collect();
        let epoch = words.get(6)?.parse().ok()?;
        let has = words.get(8..)?.iter().filter(|range| !range.starts_with('[')).any(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bounds = (first.parse::<u16>(), last.parse::<u16>());
            matches!(bounds, (Ok(first), Ok(last)) if (first..=last).contains(&slot))
        });
        (has && words.get(2)?.contains("master")).then_some(epoch)
    }

    fn is_primary(&self, place: usize) -> bool {
        let role = self.servers[place].command(&["ROLE"]);
        role.items().first().and_then(Reply::text).as_deref() == Some("master")
    }

    fn primaries_now(&self) -> impl Iterator<Item = &Server> {
        let places = 0..self.servers.len();
        places
            .filter(|place| self.servers[*place].is_awake() && self.is_primary(*place))
            .map(|place| &self.servers[place])
    }

    /// The address that clients are told.
    fn told(&self, place: usize) -> SocketAddr {
        self.proxies.get(place).map_or_else(|| self.servers[place].address(), Proxy::address)
    }

    fn nodes(&self, place: usize) -> Result<String, String> {
        Ok(self.servers[place].try_command(&["CLUSTER", "NODES"])?.text().unwrap_or_default())
    }

    fn info(&self, place: usize) -> Result<String, String> {
        Ok(self.servers[place].try_command(&["CLUSTER", "INFO"])?.text().unwrap_or_default())
    }

    /// Sends a command that must be answered by OK.
    fn ok<W: AsRef<[u8]>>(&self, place: usize, words: &[W]) -> Result<(), String> {
        let reply = self.servers[place].try_command(words)?;
        let spoken =
            || -> Vec<_> { words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect() };
        match reply {
            Reply::Status(text) if text == "OK" => Ok(()),
            other => Err(format!("`{}` at {}: {other:?}", spoken().join(" "), self.servers[place].address())),
        }
    }
}
