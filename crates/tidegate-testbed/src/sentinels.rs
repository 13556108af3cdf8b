//! A primary, a replica, and three sentinels that watch them.

use std::net::SocketAddr;
use std::time::Duration;

use crate::client::Reply;
use crate::find::Kind;
use crate::server::{Mode, Options, Server};
use crate::wait::until;

/// Sentinels say hello to each other every two seconds.
const AGREE_MAX: Duration = Duration::from_secs(30);

const SENTINELS: usize = 3;

/// Two of three agree.
const QUORUM: usize = 2;

/// What the sentinels call the primary.
const NAME: &str = "tide";

/// Two servers and three sentinels.
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinels {
    /// Starts them, and waits until every sentinel knows the others and the replica. A primary that does not answer for `down_after_ms` is
    /// taken for dead.
    pub fn start(kind: Kind, down_after_ms: u32) -> Result<Self, String> {
        let primary = Server::start(kind, &Options::new())?;
        let port = primary.address().port();
        let replica = Server::start(kind, &Options::new().line(format!("replicaof 127.0.0.1 {port}")))?;
        let options = Options::new()
            .line(format!("sentinel monitor {NAME} 127.0.0.1 {port} {QUORUM}"))
            .line(format!("sentinel down-after-milliseconds {NAME} {down_after_ms}"))
            .line(format!("sentinel failover-timeout {NAME} 10000"))
            .mode(Mode::Sentinel);
        let start = |_| Server::start(kind, &options);
        let sentinels = (0..SENTINELS).map(start).collect::<Result<_, _>>()?;
        let all = Self { servers: vec![primary, replica], sentinels };
        until("all sentinels know each other", AGREE_MAX, || all.agreed())?;
        Ok(all)
    }

    /// The primary that was first, and the replica that was first.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The three that watch.
    pub fn sentinels(&self) -> &[Server] {
        &self.sentinels
    }

    /// How the product is told to connect: `redis+sentinel://`, with the addresses of all sentinels.
    pub fn url(&self) -> String {
        let addresses: Vec<String> =
            self.sentinels.iter().map(|server| server.address().to_string()).collect();
        format!("redis+sentinel://{}/{NAME}", addresses.join(","))
    }

    /// Which of the servers all sentinels that answer name as the primary, if it is one.
    pub fn primary_place(&self) -> Result<usize, String> {
        let mut named = None;
        for sentinel in self.sentinels.iter().filter(|sentinel| sentinel.is_awake()) {
            let reply = sentinel.try_command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME])?;
            let words: Vec<String> = reply.items().iter().filter_map(Reply::text).collect();
            let address = words.join(":").parse::<SocketAddr>().map_err(|_| format!("{reply:?}"))?;
            if named.is_some_and(|named| named != address) {
                return Err(format!("one sentinel names {named:?}, another {address}"));
            }
            named = Some(address);
        }
        let place = self.servers.iter().position(|server| Some(server.address()) == named);
        let place = place.ok_or_else(|| format!("the sentinels name {named:?}"))?;
        let role = self.servers[place].try_command(&["ROLE"])?;
        match role.items().first().and_then(Reply::text).as_deref() {
            Some("master") => Ok(place),
            _ => Err(format!("the sentinels name {named:?}, which says {role:?}")),
        }
    }

    /// The primary; panics if the sentinels do not agree.
    pub fn primary(&self) -> &Server {
        &self.servers[self.primary_place().unwrap_or_else(|reason| panic!("{reason}"))]
    }

    /// Has the sentinels make the replica the primary, and waits until all know it.
    pub fn failover(&self) -> Result<(), String> {
        let (before, asked) = (self.primary_place()?, self.sentinels.iter().find(|server| server.is_awake()));
        let asked = asked.ok_or("no sentinel answers")?;
        until("a failover begins", AGREE_MAX, || {
            // It is refused as long as the replica was not heard of lately.
            let reply = asked.try_command(&["SENTINEL", "FAILOVER", NAME])?;
            if reply.text().as_deref() == Some("OK") { Ok(()) } else { Err(format!("{reply:?}")) }
        })?;
        self.wait_failover_from(before)
    }

    /// Waits until the primary is another than this one, and all sentinels know it: after it was killed.
    pub fn wait_failover_from(&self, before: usize) -> Result<(), String> {
        until("another primary", AGREE_MAX, || match self.primary_place()? {
            place if place != before => Ok(()),
            _ => Err("still the old one".into()),
        })
    }

    fn agreed(&self) -> Result<(), String> {
        for sentinel in &self.sentinels {
            let reply = sentinel.try_command(&["SENTINEL", "MASTER", NAME])?;
            let words: Vec<String> = reply.items().iter().filter_map(Reply::text).collect();
            let field =
                |name: &str| words.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1].as_str());
            let others = (SENTINELS - 1).to_string();
            if (field("flags"), field("num-slaves"), field("num-other-sentinels"))
                != (Some("master"), Some("1"), Some(&others))
            {
                return Err(format!("{} sees: {}", sentinel.address(), words.join(" ")));
            }
        }
        let state = self.servers[1].try_command(&["INFO", "replication"])?.text().unwrap_or_default();
        if state.contains("master_link_status:up") { Ok(()) } else { Err(state) }
    }
}
