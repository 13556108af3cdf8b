//! A node, put together from its settings: [`Running::start`], then [`Running::wait`] until it is told to end.

pub(crate) mod control; // tiers, quotas, rules by API
pub(crate) mod data; // what outlives the process
mod end; // signals, and how a node ends
pub(crate) mod fleet; // counters that nodes share
mod internal; // secrets of calls from inside
mod stand_in; // in the place of envoyproxy/ratelimit
mod rules; // which rules, and what is told when they change
pub(crate) mod xds; // rules that come from a server

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use arc_swap::ArcSwap;
use tidegate_clock::Clock;
use tidegate_config::{DropIn, Following, ListenAt, ListenerSettings, Loaded, Settings, Watch};
use tidegate_core::{Micros, Quotas};
use tidegate_counters::{Memory, MemoryError, MemorySize, RedisStore, Store, UrlError};
use tidegate_server::reply::body::BodyStyle;
use tidegate_server::reply::headers::Dialect;
use tidegate_server::rls::Beside;
use tidegate_server::{
    Core, Cores, Entrance, Entrances, Lifetime, Listener, Node, PlaceLimits, Places, Protocol, Receipts,
    ReplyStyle, StoreFailures, Tls, TlsError, TlsFiles, XdsStatus, listen,
};
use tidegate_telemetry::reference::statsd::Statsd;
use tidegate_telemetry::{Build, Metrics, RefusalLog, TopKeys};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use data::{Data, DataError};
use end::Signals;
use rules::Source;

/// What has to be done every so often: idle keys leave.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// For how long nobody is let in because memory is not there yet.
const PAGES_WAIT_MAX: Duration = Duration::from_secs(1);

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The rules have errors.
    #[error("the rules are not valid")]
    Rules(Box<Loaded>),
    /// An address cannot be had.
    #[error("{setting}: {address} cannot be listened on: {why}")]
    Listen {
        /// Which setting.
        setting: &'static str,
        /// Which address.
        address: ListenAt,
        /// Why.
        why: io::Error,
    },
    /// Certificates cannot be used.
    #[error("{setting}: {why}")]
    Tls {
        /// Which setting.
        setting: &'static str,
        /// Why.
        why: TlsError,
    },
    /// The folder for data cannot be used.
    #[error("node.data: {0}")]
    Data(DataError),
    /// The secrets of internal calls cannot be used.
    #[error("internal.secrets_file: {}: {why}", path.display())]
    Secrets {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The store cannot be used.
    #[error("store.url: {0}")]
    Store(#[from] UrlError),
    /// The server that rules come from cannot be asked.
    #[error("xds.server: {0}")]
    Xds(String),
    /// The control plane cannot be set up.
    #[error("control.{0}")]
    Control(String),
    /// There is not that much memory.
    #[error("counters.memory: {0}")]
    Memory(#[from] MemoryError),
    /// The system has not enough of something.
    #[error("the node cannot start: {0}")]
    System(#[from] io::Error),
}

/// A node that serves.
pub(crate) struct Running {
    pub(crate) serving: Serving,
    /// For what is no decision. It runs while somebody waits on it.
    runtime: Runtime,
    signals: Signals,
}

/// What a node is made of.
pub(crate) struct Serving {
    node: Arc<Node>,
    cores: Arc<Cores>,
    beside: Beside,
    data: Data,
    pub(crate) settings: Settings,
    /// Where it listens for RLS, if it decides.
    pub(crate) rls: Option<ListenAt>,
    /// Where it listens for HTTP: for checks if it decides, in any case for health and metrics.
    pub(crate) http: ListenAt,
    /// Where it serves the pages of the reference server, if it stands in for it.
    pub(crate) debug: Option<ListenAt>,
    /// Where the control plane's API is, if it is here.
    pub(crate) control_address: Option<SocketAddr>,
    _control: Option<Arc<Cores>>,
    /// Does it run on the demo rules?
    pub(crate) demo: bool,
    /// Files that are followed while it runs.
    _following: Option<Following>,
    _certificates: Vec<Watch>,
    _statsd: Option<Statsd>,
    _secrets: Option<Watch>,
}

impl Running {
    /// Puts a node together, and lets requests in.
    ///
    /// With `drop_in` it stands in for envoyproxy/ratelimit.
    pub(crate) fn start(settings: Settings, drop_in: Option<DropIn>) -> Result<Self, StartError> {
        let clock = Clock::real();
        let now = Micros::new(clock.now_us());
        // Addresses first: whoever starts a second node by mistake is told so before anything is touched.
        let threads =
            settings.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let metrics = Metrics::new(threads);
        let client_name = drop_in.as_ref().and_then(|drop_in| drop_in.client_name.clone());
        let decides = settings.role.decides();
        let rls = decides.then(|| {
            Door::open("rls.listen", Protocol::Rls, &settings.rls, client_name, &settings, &metrics)
        });
        let rls = rls.transpose()?;
        let http = Door::open("http.listen", Protocol::Http, &settings.http, None, &settings, &metrics)?;
        let rls_address = rls.as_ref().map(|rls| rls.listener.address()).transpose()?;
        let http_address = http.listener.address()?;
        let debug = stand_in::doors(drop_in.as_ref(), &settings, &metrics)?;
        let debug_address = debug.first().map(|door| door.listener.address()).transpose()?;

        // Before anything is read that would be lost: whoever ends the node while it starts, ends it well.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = Signals::install(&runtime)?;
        let internal_calls = internal::load(&settings)?;
        tell_public(&settings);

        let data = Data::open(&settings)?;
        let store = Self::store(&settings, drop_in.as_ref(), &data, now)?;
        let pages = touch_pages(&store, decides);
        let mut fleet_secret = data.fleet_secret();
        let (secret, agreed) = match &store {
            Store::Memory(_) => (data.secret(), true),
            Store::Redis(redis) => match fleet::agree(redis, fleet_secret.get())? {
                Ok(secret) => {
                    fleet_secret.keep(secret);
                    (secret, true)
                }
                Err(why) => {
                    tracing::error!(%why, store = redis.place(), "the store does not answer: started without it, and \
                        on_store_failure answers until it does");
                    redis.knows_secret(false);
                    (fleet_secret.get(), false)
                }
            },
        };
        let xds = xds::settings(&settings.xds).map_err(StartError::Xds)?;
        let stand_in = drop_in.as_ref().map(|drop_in| stand_in::of(drop_in, threads));
        let kept = drop_in.as_ref().zip(stand_in.as_ref()).map(|(drop_in, stand_in)| rules::Kept {
            all_quota: drop_in.quota,
            stats: stand_in.stats.clone(),
        });
        let quotas = Arc::new(Quotas::new(tidegate_counters::ask_for_large_pages));
        let (source, rules) = rules::start(&settings, secret, threads, &store, &quotas, kept)?;
        let mut control = control::plan(&settings, &data, &metrics, threads, &clock)?;
        let xds_status = xds.as_ref().map(|xds| Arc::new(XdsStatus::new(xds.server.to_string())));
        let rls_places = rls.as_ref().map(|rls| rls.entrance.places.clone());
        let rls_places = rls_places.unwrap_or_else(|| Places::new(PlaceLimits { all: 0, of_peer: 0 }));
        let node = Arc::new(Node {
            decides,
            rules,
            xds: xds_status.clone(),
            control: control.as_ref().map(|control| control.status.clone()),
            ledger: control.as_mut().and_then(|control| control.ledger.take()),
            store,
            failures: StoreFailures::default(),
            metrics,
            refusals: refusals(&settings, threads)?,
            top: TopKeys::new(threads),
            receipts: Receipts::default(),
            internal_calls: internal_calls.map(ArcSwap::from_pointee),
            internal_domain: settings.internal.domain.clone(),
            default_domain: settings.http_default_domain.clone(),
            on_failure: settings.rules.defaults.on_store_failure.unwrap_or_default(),
            deadline: settings.deadline,
            rls: ReplyStyle { metadata: settings.rls_metadata, ..style(&settings.rls) },
            http: style(&settings.http),
            draining: AtomicBool::new(false),
            places: [rls_places, http.entrance.places.clone()],
            started_us: clock.wall_now_us(),
            reloaded_us: AtomicU64::new(clock.wall_now_us()),
            build: BUILD,
            stand_in,
            aside: Semaphore::new(1),
            fault: None,
            clock,
        });
        let beside = Beside::new().map_err(io::Error::other)?;
        let cores = {
            let (node, beside) = (node.clone(), beside.clone());
            Cores::start(threads, move |number| {
                Entrances::new(Core::new(number, node.clone()), beside.clone())
            })?
        };
        let cores = Arc::new(cores);
        runtime.block_on(beside.tell_health(node.is_well()));
        if drop_in.as_ref().is_some_and(|drop_in| drop_in.health_needs_store) {
            stand_in::follow_health(&runtime, &node, beside.clone());
        }
        let certificates =
            rls.iter().chain([&http]).filter_map(Door::follow_certificates).collect::<io::Result<_>>()?;
        let _ = pages.recv_timeout(PAGES_WAIT_MAX); // If that is not enough, the first callers wait for the rest.
        for door in rls.into_iter().chain([http]).chain(debug) {
            runtime.spawn(door.listener.accept(door.entrance, cores.clone(), cores.phases()));
        }
        match &node.store {
            Store::Memory(memory) => sweep(&runtime, &node, memory),
            Store::Redis(redis) => fleet::follow(&node, redis, agreed, fleet_secret)?,
        }
        let following = rules::follow(&node, &settings, source, beside.clone(), &runtime)?;
        if let Some((xds, status)) = xds.zip(xds_status) {
            xds::follow(&node, xds, status, beside.clone(), data.folder().map(xds::kept_in))?;
        }
        let control_address = control.as_ref().and_then(|control| control.address);
        let control = control.map(|control| control.start(&node, &quotas, beside.clone(), runtime.handle()));
        let control = control.transpose()?;
        let secrets = internal::follow(&node, &settings).transpose()?;
        if source != Source::Xds {
            rules::tell_missing_domains(&node);
        }
        data.forget_counters(); // They are this node's now, and nothing can keep it from serving any more.
        let statsd = stand_in::send(drop_in.as_ref(), &node)?;
        let serving = Serving {
            debug: debug_address,
            control_address,
            _control: control,
            _statsd: statsd,
            node,
            cores,
            beside,
            data,
            settings,
            rls: rls_address,
            http: http_address,
            demo: source == Source::Demo,
            _following: following,
            _certificates: certificates,
            _secrets: secrets,
        };
        Ok(Self { serving, runtime, signals })
    }

    /// Where is counted, and that it is told.
    fn store(
        settings: &Settings,
        drop_in: Option<&DropIn>,
        data: &Data,
        now: Micros,
    ) -> Result<Store, StartError> {
        if let Some(redis) = fleet::settings(&settings.store)? {
            let (redis, per_second) = match drop_in {
                None => (redis, None),
                Some(drop_in) => fleet::drop_in_settings(redis, &settings.store, drop_in)?,
            };
            // What the node may spend alone while the store does not answer: no memory is touched before.
            let own = Memory::new(MemorySize::of_bytes(settings.counters_memory), now)?;
            let store = RedisStore::with_per_second(redis, per_second, Arc::new(own));
            tracing::info!("counters are in Redis at {}: the fleet shares them", store.place());
            return Ok(Store::Redis(store));
        }
        let counters = Arc::new(Memory::new(MemorySize::of_bytes(settings.counters_memory), now)?);
        data.load_counters(&counters, now);
        if settings.role.decides() {
            tracing::warn!(
                "counters are in memory: this node limits alone, and every other node grants the same limits again"
            );
        }
        Ok(Store::Memory(counters))
    }
}

impl Serving {
    /// Where it counts, for whoever starts it.
    pub(crate) fn counts_in(&self) -> String {
        match &self.node.store {
            _ if !self.node.decides => "It has the control plane's API, and decides nothing.".into(),
            Store::Memory(_) => "It limits alone: counters are in its memory.".into(),
            Store::Redis(redis) => {
                format!("Its counters are in Redis at {}: the fleet shares them.", redis.place())
            }
        }
    }
}

/// Has the system hand out the memory of counters, beside what else is done for the start. What comes back is closed when it is there.
fn touch_pages(store: &Store, decides: bool) -> mpsc::Receiver<()> {
    let (done, wait) = mpsc::channel();
    // Beside Redis, it is for what the node may spend alone while the store does not answer: none of it may ever be needed.
    if let Store::Memory(counters) = store
        && decides
    {
        let counters = counters.clone();
        let touch = move || {
            counters.touch_pages();
            drop(done);
        };
        if let Err(error) = std::thread::Builder::new().name("pages".into()).spawn(touch) {
            tracing::debug!("pages are handed out as they are needed: {error}");
        }
    }
    wait
}

/// The log of refusals, and the file of them if there is to be one.
fn refusals(settings: &Settings, threads: usize) -> io::Result<RefusalLog> {
    let log = RefusalLog::new(settings.log_refusals_per_second, threads);
    match &settings.refusals_file {
        None => Ok(log),
        Some(file) => {
            let bytes = settings.refusals_file_bytes as u64;
            log.with_file(file.clone(), settings.refusals_file_per_second, bytes, threads)
        }
    }
}

/// What is running.
const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    commit: env!("TIDEGATE_COMMIT"),
    profile: if cfg!(debug_assertions) { "debug" } else { "release" },
};

/// A way in that is bound already.
struct Door {
    listener: Listener,
    entrance: Arc<Entrance>,
}

impl Door {
    fn open(
        setting: &'static str,
        protocol: Protocol,
        said: &ListenerSettings,
        client_name: Option<String>,
        settings: &Settings,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, StartError> {
        let address = said.listen.clone().ok_or_else(|| io::Error::other(format!("{setting} is not set")))?;
        let listener = listen(&address).map_err(|why| StartError::Listen { setting, address, why })?;
        let files = said.tls.as_ref().map(|tls| TlsFiles {
            certificate: tls.certificate.clone(),
            key: tls.key.clone(),
            client_roots: tls.client_roots.clone(),
            client_name,
        });
        let tls = files.map(|files| Tls::load(files, protocol)).transpose();
        let entrance = Entrance {
            protocol,
            tls: tls.map_err(|why| StartError::Tls { setting, why })?,
            lifetime: Lifetime {
                age: (protocol == Protocol::Rls).then_some(settings.rls_connection_age),
                grace: settings.drain_timeout,
                idle: settings.http_idle_timeout,
            },
            places: Places::new(PlaceLimits {
                all: said.connections_max,
                of_peer: said.connections_per_peer_max,
            }),
            metrics: metrics.clone(),
        };
        Ok(Self { listener, entrance: Arc::new(entrance) })
    }

    /// Reads certificates again when they change.
    fn follow_certificates(&self) -> Option<io::Result<Watch>> {
        let tls = self.entrance.tls.clone()?;
        Some(Watch::start(tls.files().paths(), move || match tls.reload() {
            Ok(()) => tracing::info!(file = %tls.files().certificate.display(), "certificates loaded"),
            Err(error) => tracing::error!(%error, "certificates not loaded; the old ones stay"),
        }))
    }
}

fn style(said: &ListenerSettings) -> ReplyStyle {
    ReplyStyle {
        headers: said.headers.iter().filter_map(|name| Dialect::named(name)).collect(),
        body: BodyStyle::named(said.body),
        metadata: false,
    }
}

/// Whoever can reach a rate limit service can spend everybody's limits.
fn tell_public(settings: &Settings) {
    if !settings.role.decides() {
        return; // Nothing is spent there.
    }
    for (setting, said) in [("rls.listen", &settings.rls), ("http.listen", &settings.http)] {
        let public =
            said.listen.as_ref().and_then(ListenAt::address).filter(|address| !address.ip().is_loopback());
        let asks_clients = said.tls.as_ref().is_some_and(|tls| tls.client_roots.is_some());
        if let Some(address) = public.filter(|_| !asks_clients) {
            tracing::warn!(setting, %address, "anybody who can reach this address can spend everybody's limits; \
                let only your proxies reach it, or ask clients for certificates (tls_client_roots)");
        }
    }
}

/// Idle keys leave, a few at a time, on a thread where nobody waits.
fn sweep(runtime: &Runtime, node: &Arc<Node>, counters: &Arc<Memory>) {
    let (node, counters) = (Arc::downgrade(node), counters.clone());
    runtime.spawn(async move {
        let mut every = tokio::time::interval(SWEEP_EVERY);
        while let Some(node) = node.upgrade() {
            let counters = counters.clone();
            let swept = tokio::task::spawn_blocking(move || counters.sweep(node.now()));
            let _ = swept.await; // Its panic has been told already.
            every.tick().await;
        }
    });
}
