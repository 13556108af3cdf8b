//! Servers, nodes, keys and a load. A row starts a [`Rig`], breaks something of it, lets time pass and finishes it.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_testbed::{Cluster, Kind, Options, Proxy, Reply, SLOTS, Server, free_port, slot_of};
use tokio::runtime::Runtime;

use crate::audit::Record;
use crate::load::{Asked, Load, Style};
use crate::support::{Http, Node, SOON, Setup, asks, descriptor, until};
use crate::switch::{Protection, Way};
use crate::watch::{Seen, Watcher};

pub(crate) const PRIMARIES: usize = 3;

/// What a row needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) kind: Kind,
    pub(crate) way: Way,
    /// For each primary.
    pub(crate) replicas: usize,
    /// After this, servers take each other for dead.
    pub(crate) node_timeout_ms: u32,
    /// A proxy before each server.
    pub(crate) proxies: bool,
    /// A server whose slots nobody has makes the others refuse theirs too.
    pub(crate) full_coverage: bool,
    pub(crate) nodes: usize,
    /// Calls in each second.
    pub(crate) rate: u64,
    /// The limit of rules that are meant to be met, and its window.
    pub(crate) limit: u64,
    pub(crate) window_s: u64,
    /// Units that each key has used before the row begins: so many times its number.
    pub(crate) used_before: u64,
}

impl Needs {
    pub(crate) fn new(kind: Kind, way: Way) -> Self {
        Self {
            kind,
            way,
            replicas: 0,
            node_timeout_ms: 15_000,
            proxies: false,
            full_coverage: false,
            nodes: 1,
            rate: if way.is_long { 2_000 } else { 1_000 },
            limit: if way.is_long { 20 } else { 10 },
            window_s: 2,
            used_before: 0,
        }
    }

    /// Servers that fail over: each primary has a replica, which takes over soon.
    pub(crate) fn failing_over(self) -> Self {
        Self { replicas: 1, node_timeout_ms: 1_000, ..self }
    }

    pub(crate) fn window_us(&self) -> u64 {
        self.window_s * 1_000_000
    }

    /// What one node may admit alone with `on_store_failure: local`.
    pub(crate) fn share(&self) -> u64 {
        (self.limit * LOCAL_SHARE_PERCENT / 100).max(1)
    }
}

const LOCAL_SHARE_PERCENT: u64 = 20;

/// Which rule a key is under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// Met limits, by what they say about a store that does not answer.
    Local,
    Deny,
    Allow,
    /// A limit that is never met: what its counter holds tells what was charged.
    Quota,
    /// Such a limit and one that is met, which are charged together or not at all.
    Pair,
    /// A met limit whose charges have to be on the replica.
    Kept,
}

impl Rule {
    const ALL: [Self; 6] = [Self::Local, Self::Deny, Self::Allow, Self::Quota, Self::Pair, Self::Kept];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Deny => "deny",
            Self::Allow => "allow",
            Self::Quota => "quota",
            Self::Pair => "pair",
            Self::Kept => "kept",
        }
    }

    /// Is its limit met under the load?
    pub(crate) fn is_met(self) -> bool {
        self != Self::Quota
    }

    /// Is the first of its counters one that is never full?
    pub(crate) fn has_quota(self) -> bool {
        matches!(self, Self::Quota | Self::Pair)
    }
}

/// A key of the load, and on which primary its counter was at the start.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) rule: Rule,
    pub(crate) value: String,
    pub(crate) place: usize,
    pub(crate) cost: u64,
    /// Units that it had used before the row began.
    pub(crate) used_before: u64,
}

impl Key {
    pub(crate) fn body(&self) -> String {
        let (key, value) = (self.rule.name(), &self.value);
        format!(r#"{{"descriptors":[{{"entries":[{{"key":"{key}","value":"{value}"}}]}}]}}"#)
    }
}

const KEYS: usize = 120;

/// How long a store that is well may take to tell what a counter holds; a busy machine may need many seconds.
const TELLS_MAX: Duration = Duration::from_secs(25);
const _: () = assert!(TELLS_MAX.as_secs() < SOON.as_secs());

const LOG_LINES: usize = 40;

/// A limit that is never met.
const MANY: &str = "4000000000/1h";

/// Servers, nodes and a load.
pub(crate) struct Rig {
    pub(crate) needs: Needs,
    pub(crate) cluster: Cluster,
    pub(crate) nodes: Vec<Node>,
    /// A node whose store nothing happens to.
    _control: (Node, Server),
    pub(crate) keys: Vec<Key>,
    pub(crate) watch: Stopwatch,
    watcher: Option<Watcher>,
    load: Option<Load>,
    runtime: Runtime,
}

/// What is left of a rig when its load has ended.
pub(crate) struct Run {
    pub(crate) rig: Rig,
    pub(crate) record: Record,
    pub(crate) seen: Seen,
    /// Places whose primary is none any more: a replica has taken over.
    pub(crate) moved: Vec<usize>,
}

impl Rig {
    /// Starts all of it, and waits until nodes count in the store and the load runs.
    pub(crate) fn start(needs: Needs) -> Self {
        let cluster = cluster(&needs);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let rules = rules(&needs);
        let nodes: Vec<Node> =
            (0..needs.nodes).map(|_| setup(&needs, &rules, &cluster.url()).start()).collect();
        let well = Server::start(needs.kind, &Options::new()).unwrap_or_else(|error| panic!("{error}"));
        // Not the rules of the row: the control has its protections, whatever is switched off.
        let setup =
            Setup::new(&self::rules(&Needs { way: Way { off: None, ..needs.way }, replicas: 0, ..needs }));
        let control = setup.set("store-url", &well.url()).set("rls-metadata", "true").start();
        let keys = runtime.block_on(keys(&needs, &nodes));
        let watch = Stopwatch::start();
        let watcher = Some(Watcher::start(&nodes.iter().map(|node| node.http).collect::<Vec<_>>(), watch));
        let asked = keys.iter().map(|key| Asked {
            request: asks("faults", [cost(descriptor(&[(key.rule.name(), &key.value)]), key.cost)]),
            cost: key.cost,
        });
        let tells_time = needs.way.has(Protection::Time);
        let style = Style { rate: needs.rate, connections_each: 2, tells_time };
        let addresses: Vec<SocketAddr> = nodes.iter().map(|node| node.rls).collect();
        let load = Some(Load::start(&addresses, control.rls, asked.collect(), style, watch));
        let rig =
            Self { needs, cluster, nodes, _control: (control, well), keys, watch, watcher, load, runtime };
        rig.pass(Duration::from_millis(600)); // Connections are made, scripts loaded, pages of memory touched.
        rig
    }

    /// Now, on the watch of the record.
    pub(crate) fn now_us(&self) -> u64 {
        self.watch.elapsed().as_micros() as u64
    }

    /// Lets the load run for so long: until as many more calls were sent as it sends in this time.
    pub(crate) fn pass(&self, time: Duration) {
        let load = self.load();
        let last = load.sent() + (self.needs.rate as f64 * time.as_secs_f64()) as u64;
        let passed = tidegate_testbed::until("the load goes on", time + SOON, || match load.sent() {
            sent if sent >= last => Ok(()),
            sent => Err(format!("{sent} of {last} calls were sent")),
        });
        passed.unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) fn load(&self) -> &Load {
        self.load.as_ref().expect("the load runs")
    }

    /// What the nodes have shown so far.
    pub(crate) fn seen(&self) -> Seen {
        self.watcher.as_ref().map(Watcher::seen).unwrap_or_default()
    }

    /// Ends the load.
    pub(crate) fn finish(mut self) -> Run {
        let record = self.load.take().expect("the load runs").finish();
        let seen = self.seen();
        self.watcher = None;
        let is_moved = |place: &usize| {
            let replica = self.cluster.servers().get(place + PRIMARIES);
            replica.is_some_and(|replica| replica.is_awake() && primary(replica).is_ok())
        };
        let moved = (0..PRIMARIES).filter(is_moved).collect();
        Run { rig: self, record, seen, moved }
    }

    pub(crate) fn server(&self, place: usize) -> &Server {
        &self.cluster.servers()[place]
    }

    pub(crate) fn proxy(&self, place: usize) -> &Proxy {
        &self.cluster.proxies()[place]
    }

    /// How the node calls a server.
    pub(crate) fn shard(&self, place: usize) -> String {
        let proxy = self.cluster.proxies().get(place).map(Proxy::address);
        proxy.unwrap_or_else(|| self.server(place).address()).to_string()
    }

    /// Runs something that waits on the sockets of a node.
    pub(crate) fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// The value of a metric of all nodes, added up.
    pub(crate) fn metric(&self, name: &str, labels: &str) -> u64 {
        self.wait(async {
            let mut sum = 0;
            for node in &self.nodes {
                sum += node.metric(name, labels).await;
            }
            sum
        })
    }

    /// What the counters of a key hold, as soon as the store can say; none if it cannot.
    pub(crate) fn used(&self, key: &Key) -> Option<Vec<u64>> {
        let look = async {
            let mut http = Http::connect(self.nodes[0].http).await;
            until("the store tells what is used", async || {
                let told = http.post("/v1/inspect", &key.body()).await;
                (told.status == 200).then(|| {
                    let counters = told.json()["counters"].as_array().cloned().unwrap_or_default();
                    counters.iter().filter_map(|counter| counter["used"].as_u64()).collect()
                })
            })
            .await
        };
        self.wait(async { tokio::time::timeout(TELLS_MAX, look).await.ok() })
    }

    /// The end of what the nodes logged, for somebody who wonders why a row is red.
    pub(crate) fn logs(&self) -> String {
        let tail = |node: &Node| {
            let log = node.log();
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
        };
        self.nodes.iter().map(tail).collect::<Vec<_>>().join("\n--- the next node\n")
    }

    /// Fills a primary with keys of somebody else.
    pub(crate) fn fill(&self, place: usize, count: usize, bytes: usize) {
        let tag = (0..).map(|number| format!("{{{number}}}")).find(|tag| place_of(slot_of(tag)) == place);
        let tag = tag.expect("a tag for every place");
        let value = "x".repeat(bytes);
        let mut client = self.server(place).client().unwrap_or_else(|error| panic!("{error}"));
        for number in 0..count {
            let name = format!("foreign{tag}{number}");
            let reply = client.command(&["SET", &name, &value, "EX", "600"]);
            assert!(reply.as_ref().is_ok_and(|reply| reply.error().is_none()), "{reply:?}");
        }
    }
}

/// Is this server a primary?
pub(crate) fn primary(server: &Server) -> Result<(), String> {
    let role = server.try_command(&["ROLE"])?.items().first().and_then(Reply::text);
    if role.as_deref() == Some("master") { Ok(()) } else { Err(format!("it is a {role:?}")) }
}

fn cluster(needs: &Needs) -> Cluster {
    let start = if needs.proxies { Cluster::start_behind_proxies } else { Cluster::start };
    let cluster = start(needs.kind, PRIMARIES, needs.replicas, needs.node_timeout_ms);
    let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
    let coverage = if needs.full_coverage { "yes" } else { "no" };
    for server in cluster.servers() {
        let reply = server.command(&["CONFIG", "SET", "cluster-require-full-coverage", coverage]);
        assert_eq!(reply.error(), None);
    }
    cluster
}

fn rules(needs: &Needs) -> String {
    let met = format!("limit: {}/{}s, algorithm: sliding_log", needs.limit, needs.window_s);
    let policy = |said: &'static str| if needs.way.has(Protection::Policy) { said } else { "allow" };
    let (local, deny) = (policy("local"), policy("deny"));
    let replicate = u8::from(needs.way.has(Protection::Replicas) && needs.replicas > 0);
    format!(
        "domain: faults
descriptors:
  - key: local
    rate_limit: {{ {met}, on_store_failure: {local}, local_share: {LOCAL_SHARE_PERCENT}% }}
  - key: deny
    rate_limit: {{ {met}, on_store_failure: {deny} }}
  - key: allow
    rate_limit: {{ {met}, on_store_failure: allow }}
  - key: quota
    rate_limit: {{ limit: {MANY}, on_store_failure: {deny} }}
  - key: pair
    rate_limits:
      - {{ limit: {MANY}, on_store_failure: {deny} }}
      - {{ {met}, on_store_failure: {deny} }}
  - key: kept
    rate_limit: {{ {met}, on_store_failure: {deny}, replicate: {replicate} }}
"
    )
}

fn setup(needs: &Needs, rules: &str, url: &str) -> Setup {
    let setup = Setup::new(rules).set("store-url", url).set("rls-metadata", "true");
    let address = || format!("127.0.0.1:{}", free_port().unwrap_or_else(|error| panic!("{error}")));
    let setup = setup.set("rls-listen", &address()).set("http-listen", &address());
    if needs.way.has(Protection::Time) {
        return setup;
    }
    setup.set("node-deadline", "10s").set("store-timeout", "10s").set("store-circuit-failures", "0")
}

/// The keys, once the nodes know the secret of the fleet, from which the places of counters follow.
async fn keys(needs: &Needs, nodes: &[Node]) -> Vec<Key> {
    // Without replicas nothing can be kept on them.
    let rules = &Rule::ALL[..if needs.replicas > 0 { 6 } else { 5 }];
    let mut keys = Vec::new();
    for number in 0..KEYS {
        let rule = rules[number % rules.len()];
        let used_before = if rule == Rule::Quota { number as u64 * needs.used_before } else { 0 };
        keys.push(Key { rule, value: format!("k{number}"), place: 0, cost: 1, used_before });
    }
    let mut https = Vec::new();
    for node in nodes {
        https.push(Http::connect(node.http).await);
    }
    // All nodes have the same names for counters, and so the same secret.
    until("nodes count in the store", async || {
        let mut names = Vec::new();
        for http in &mut https {
            let told = http.post("/v1/check", &keys[0].body()).await.json();
            let counter = http.post("/v1/inspect", &keys[0].body()).await;
            if told["mode"] != "exact" || counter.status != 200 || !counter.body.contains("\"tag\"") {
                return None;
            }
            names.push(counter.json()["counters"][0]["key"].clone());
        }
        names.iter().all(|name| *name == names[0]).then_some(())
    })
    .await;
    for key in &mut keys {
        // A busy machine may make the store late, so a charge may have been carried out though nobody was told so.
        let charged = asks("faults", [cost(descriptor(&[(key.rule.name(), &key.value)]), key.used_before)]);
        let counter = until("the store tells of a counter", async || {
            let told = https[0].post("/v1/inspect", &key.body()).await;
            let counter = (told.status == 200).then(|| told.json()["counters"][0].clone())?;
            if counter["used"].as_u64()? >= key.used_before {
                return Some(counter);
            }
            nodes[0].rls().await.ask(&charged).await;
            None
        })
        .await;
        if key.used_before > 0 {
            key.used_before = counter["used"].as_u64().unwrap_or(0);
        }
        let tag = counter["tag"].as_str().and_then(|tag| u32::from_str_radix(tag, 16).ok());
        key.place = place_of(slot_of(tag_digits(tag.unwrap_or_else(|| panic!("no tag in {counter}")))));
    }
    keys
}

fn cost(
    mut descriptor: crate::support::messages::Descriptor,
    units: u64,
) -> crate::support::messages::Descriptor {
    descriptor.hits_addend = Some(units);
    descriptor
}

/// A tag as it stands in the name of a counter: six bits for each digit, the lowest first.
fn tag_digits(mut tag: u32) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for _ in 0..6 {
        text.push(char::from(digits[(tag & 63) as usize]));
        tag >>= 6;
    }
    text
}

/// Which primary has a slot, as slots are shared out at the start.
fn place_of(slot: u16) -> usize {
    let bound = |place: usize| usize::from(SLOTS) * place / PRIMARIES;
    (0..PRIMARIES).rev().find(|place| usize::from(slot) >= bound(*place)).unwrap_or(0)
}
