//! A node in this process, with a clock that stands still until it is moved.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use prost::Message as _;
use tidegate_clock::{Clock, ManualClock};
use tidegate_config::{ListenAt, LiveRules, RuleFiles, Style};
use tidegate_core::{Micros, OnStoreFailure, Query, Quotas, Secret};
use tidegate_counters::{Memory, MemorySize, Store};
use tidegate_server::reply::body::BodyStyle;
use tidegate_server::rls::{Beside, CallError};
use tidegate_server::{
    Asker, Core, Cores, Entrance, Entrances, InForce, Lifetime, Node, PlaceLimits, Places, Protocol,
    Receipts, ReplyStyle, Standing, StoreFailures, listen,
};
use tidegate_telemetry::{Build, Metrics, RefusalLog, TopKeys};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

#[path = "../messages/mod.rs"]
mod messages;
pub(crate) use messages::{Descriptor, Entry, Request, Response};

/// The node, and the hand on its clock.
pub(crate) struct Inside {
    core: Core,
    pub(crate) clock: ManualClock,
    runtime: Runtime,
    tasks: LocalSet,
}

pub(crate) const START: Micros = Micros::from_secs(1_800_000_000);

impl Inside {
    /// A node with these rules. `fault` is shown each request before it is decided.
    pub(crate) fn new(rules: &'static str, fault: Option<fn(&Query<'_>)>) -> Self {
        let memory = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("a megabyte");
        Self::on(Store::Memory(Arc::new(memory)), rules, fault)
    }

    /// The same, on this store.
    pub(crate) fn on(store: Store, rules: &'static str, fault: Option<fn(&Query<'_>)>) -> Self {
        Self::knowing(Arc::default(), store, rules, fault)
    }

    /// The same, that knows these callers.
    pub(crate) fn knowing(
        quotas: Arc<Quotas>,
        store: Store,
        rules: &'static str,
        fault: Option<fn(&Query<'_>)>,
    ) -> Self {
        Self::changed(quotas, store, rules, |node| node.fault = fault)
    }

    /// The same, that differs in whatever `change` does to it.
    pub(crate) fn changed(
        quotas: Arc<Quotas>,
        store: Store,
        rules: &'static str,
        change: impl FnOnce(&mut Node),
    ) -> Self {
        let clock = ManualClock::at(START.get());
        let files = RuleFiles { texts: vec![("rules.yaml".into(), rules.into())], ..RuleFiles::default() };
        let secret = Secret::new([7; 16]);
        let tags = store.wants_tags();
        let live = LiveRules::start_with(files, secret, move |book, before| {
            let book = if tags { book.with_tags() } else { book };
            InForce::new(book.with_default_domain(Some("shop")), 1, before).with_quotas(&quotas)
        });
        let (rules, _) =
            live.unwrap_or_else(|loaded| panic!("{}", loaded.report.render(&loaded.sources, Style::Plain)));
        let places = || Places::new(PlaceLimits { all: 100, of_peer: 100 });
        let mut node = Node {
            decides: true,
            rules,
            xds: None,
            control: None,
            ledger: None,
            store,
            failures: StoreFailures::default(),
            clock: Clock::from(&clock),
            metrics: Metrics::new(1),
            refusals: RefusalLog::new(0, 1),
            top: TopKeys::new(1),
            receipts: Receipts::default(),
            internal_calls: None,
            internal_domain: None,
            default_domain: None,
            on_failure: OnStoreFailure::default(),
            deadline: Duration::from_millis(15),
            rls: ReplyStyle::default(),
            http: ReplyStyle { body: BodyStyle::named("error"), ..ReplyStyle::default() },
            draining: AtomicBool::new(false),
            places: [places(), places()],
            started_us: START.get(),
            reloaded_us: AtomicU64::new(START.get()),
            build: Build { version: "0", commit: "none", profile: "test" },
            stand_in: None,
            aside: tokio::sync::Semaphore::new(1),
            fault: None,
        };
        change(&mut node);
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let tasks = LocalSet::new();
        let core = tasks.block_on(&runtime, async { Core::new(0, Arc::new(node)) });
        Self { core, clock, runtime, tasks }
    }

    /// Asks over Envoy's protocol for one unit, or none, of these entries of the domain `shop`.
    pub(crate) fn ask(&self, entries: &[(&str, &str)], hits: u64) -> Result<Response, CallError> {
        self.ask_within(entries, hits, None)
    }

    /// The same, by a caller who waits so long.
    pub(crate) fn ask_within(
        &self,
        entries: &[(&str, &str)],
        hits: u64,
        patience: Option<Duration>,
    ) -> Result<Response, CallError> {
        let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
        let entries = entries.iter().map(entry).collect();
        let descriptor = Descriptor { entries, hits_addend: Some(hits), ..Descriptor::default() };
        let request = Request { domain: "shop".into(), descriptors: vec![descriptor], hits_addend: 0 };
        let mut out = Vec::new();
        let (message, now) = (request.encode_to_vec(), self.core.node.now());
        let asker = Asker { patience, ..Asker::at(now) };
        let asked = self.core.should_rate_limit(&message, Standing::Outside, &asker, &mut out);
        self.tasks.block_on(&self.runtime, asked)?;
        Ok(Response::decode(out.as_slice()).expect("a response"))
    }

    /// The node itself.
    pub(crate) fn node(&self) -> &Node {
        &self.core.node
    }

    /// Lets the same node serve HTTP, on a thread of its own; gives where.
    pub(crate) fn serve(&self) -> SocketAddr {
        self.serve_as(Protocol::Http)
    }

    /// The same by another protocol.
    pub(crate) fn serve_as(&self, protocol: Protocol) -> SocketAddr {
        let node = self.core.node.clone();
        let listener = listen(&ListenAt::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))).expect("a socket");
        let address = listener.address().expect("a socket").address().expect("an address");
        let lifetime = Lifetime { age: None, grace: Duration::ZERO, idle: Duration::from_secs(30) };
        let entrance = Arc::new(Entrance {
            protocol,
            tls: None,
            lifetime,
            places: node.places[1].clone(),
            metrics: node.metrics.clone(),
        });
        let beside = Beside::new().expect("services");
        let cores = Cores::start(1, move |at| Entrances::new(Core::new(at, node.clone()), beside.clone()));
        let cores = Arc::new(cores.expect("a thread"));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(listener.accept(entrance, cores.clone(), cores.phases()))
        });
        address
    }
}

/// What is answered to a request over HTTP.
pub(crate) fn http(address: SocketAddr, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: n\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}
