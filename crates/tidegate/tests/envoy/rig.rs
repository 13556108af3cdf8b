//! Envoy, an upstream, nodes and their store, together.

use tidegate_testbed::{Kind, Options, Server, free_port};

use crate::config::{self, Manners};
use crate::envoy::{self, Door, Envoy};
use crate::support::http::Reply;
use crate::support::{Http, Node, Setup, until};
use crate::upstream::Upstream;

/// How long Envoy waits for an answer where that is not what a test is about: a busy machine may pause for a second.
const PATIENT: &str = "20s";

/// Where counters are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counters {
    Memory,
    Redis,
}

/// What a test needs.
pub(crate) struct Needs {
    counters: Counters,
    nodes: usize,
    manners: Manners,
    /// Does a node wait as long as Envoy does? Not where it matters what is answered without the store.
    patient: bool,
    /// Are nodes asked at sockets of the file system?
    sockets: bool,
    settings: Vec<(&'static str, &'static str)>,
}

impl Needs {
    pub(crate) fn of(counters: Counters) -> Self {
        let manners = Manners { patience: PATIENT, ejects: true };
        Self { counters, nodes: 1, manners, patient: true, sockets: false, settings: Vec::new() }
    }

    pub(crate) fn memory() -> Self {
        Self::of(Counters::Memory)
    }

    pub(crate) fn redis() -> Self {
        Self::of(Counters::Redis)
    }

    pub(crate) fn nodes(self, nodes: usize) -> Self {
        Self { nodes, ..self }
    }

    /// Envoy waits so long for an answer, and asks a node again that gave none.
    pub(crate) fn patience(self, patience: &'static str) -> Self {
        Self { manners: Manners { patience, ejects: false }, ..self }
    }

    /// A node gives the store up when it does by default.
    pub(crate) fn impatient(self) -> Self {
        Self { patient: false, ..self }
    }

    /// Nodes listen at sockets of the file system.
    pub(crate) fn sockets(self) -> Self {
        Self { sockets: true, ..self }
    }

    /// A setting of the nodes.
    pub(crate) fn set(mut self, flag: &'static str, value: &'static str) -> Self {
        self.settings.push((flag, value));
        self
    }

    /// Starts all of it, and waits until a request passes through it and is counted where it should be; none if there is no Envoy.
    pub(crate) async fn start(self) -> Option<Rig> {
        let program = envoy::program()?;
        let redis = (self.counters == Counters::Redis)
            .then(|| Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}")));
        let nodes: Vec<Node> = (0..self.nodes).map(|_| self.setup(redis.as_ref()).start()).collect();
        let upstream = Upstream::start();
        let addresses: Vec<_> = nodes.iter().map(address_of).collect();
        for node in nodes.iter().filter(|_| redis.is_some()) {
            until("a node counts in the store", async || {
                let told = node.http().await.post("/v1/check", &asked("busy", "warm")).await;
                (told.json()["mode"] == "exact").then_some(())
            })
            .await;
        }
        let envoy = Envoy::start(program, upstream.address, &addresses, self.manners).await;
        let rig = Rig { envoy, upstream, nodes, redis };
        until("a request is decided", async || {
            let reply = rig.get(Door::Open, "/busy", "warm").await;
            (reply.status == 200 && !reply.header("x-ratelimit-remaining").is_empty()).then_some(())
        })
        .await;
        Some(rig)
    }

    fn setup(&self, redis: Option<&Server>) -> Setup {
        // A port that a second node finds free when the first has gone.
        let address = || format!("127.0.0.1:{}", free_port().unwrap_or_else(|error| panic!("{error}")));
        let setup = Setup::new(&config::rules()).set("rls-listen", &address()).set("http-listen", &address());
        let setup = if self.sockets { setup.set("rls-listen", "unix:rls.sock") } else { setup };
        let setup = self.settings.iter().fold(setup, |setup, (flag, value)| setup.set(flag, value));
        let Some(redis) = redis else { return setup };
        let setup = setup.set("store-url", &redis.url());
        if self.patient {
            return setup
                .set("node-deadline", "10s")
                .set("store-timeout", "10s")
                .set("store-circuit-failures", "0");
        }
        setup
    }
}

/// Where a node listens, as the document writes it.
fn address_of(node: &Node) -> String {
    match &node.rls_socket {
        Some(path) => format!("{{ pipe: {{ path: {} }} }}", path.display()),
        None => config::address(node.rls.port()),
    }
}

/// All of it, running.
pub(crate) struct Rig {
    pub(crate) envoy: Envoy,
    pub(crate) upstream: Upstream,
    pub(crate) nodes: Vec<Node>,
    pub(crate) redis: Option<Server>,
}

impl Rig {
    /// A request of a key, on a connection of its own.
    pub(crate) async fn get(&self, door: Door, path: &str, key: &str) -> Reply {
        self.get_with(door, path, &[("x-api-key", key)]).await
    }

    pub(crate) async fn get_with(&self, door: Door, path: &str, headers: &[(&str, &str)]) -> Reply {
        Http::connect(self.envoy.address(door)).await.request("GET", path, headers, "").await
    }

    /// The units in use of a counter.
    pub(crate) async fn used(&self, key: &str, value: &str) -> u64 {
        let used = self.nodes[0].used(&asked(key, value)).await;
        assert_eq!(used.len(), 1, "one counter for {key}");
        used[0]
    }

    /// Waits until a counter holds this: what is sent at the end of a stream nobody waits for.
    pub(crate) async fn until_used(&self, key: &str, value: &str, expected: u64) {
        let mut last = None;
        let reached = async {
            loop {
                let used = self.used(key, value).await;
                last = Some(used);
                if used == expected {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        let reached = tokio::time::timeout(crate::support::SOON, reached).await.is_ok();
        assert!(reached, "{key} of {value} holds {last:?}, not {expected}");
    }

    /// A metric of all nodes.
    pub(crate) async fn metric(&self, name: &str, labels: &str) -> u64 {
        let mut sum = 0;
        for node in &self.nodes {
            sum += node.metric(name, labels).await;
        }
        sum
    }
}

/// The body of a check of one counter.
fn asked(key: &str, value: &str) -> String {
    format!(r#"{{"domain":"gateway","descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}]}}"#)
}
