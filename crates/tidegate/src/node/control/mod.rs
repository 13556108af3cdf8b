//! The control plane of a node: what is kept in SQL is followed and put in force, and the API that changes it is served. On a thread of
//! its own: whatever happens here, decisions go on.

mod apply; // what is kept, put in force
mod calendars; // what they used, in SQL
mod plane; // what the API asks of the node
mod usage; // what the counters of one caller hold
mod news; // edits, told over Redis as well

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use hyper::body::Incoming;
use tidegate_clock::Clock;
use tidegate_config::{
    AuditSinkSettings, ControlSettings, ListenAt, ListenerSettings, Settings, without_password,
};
use tidegate_control::api::auth::bootstrap;
use tidegate_control::api::{self, Api, ApiOptions};
use tidegate_control::{AuditSink, ControlStore, Follow, LastGood, Options, SinkProgress, SinkTo};
use tidegate_core::Quotas;
use tidegate_counters::Store;
use tidegate_server::rls::Beside;
use tidegate_server::{ControlStatus, Cores, Ledger, Nobody, Node, Protocol, Reset, Serve};
use tidegate_telemetry::Metrics;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tower_service::Service as _;

use super::data::Data;
use super::{Door, StartError};
use apply::Apply;
use calendars::Calendars;
use plane::NodePlane;

/// What the origin of rules by API begins with.
pub(super) const API: &str = "api:";
/// How long to wait before a database that cannot be opened is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long the database may take for anything. Whoever asks the API is told within three seconds that it does not answer.
const DATABASE_MAX: Duration = Duration::from_millis(2_500);
/// The API is for people and their tools.
const CONNECTIONS_MAX: usize = 256;
const CONNECTIONS_PER_PEER_MAX: usize = 64;
/// The file of SQLite in the folder for data.
const SQLITE: &str = "control.sqlite";
/// The file that says how far the audit trail was written to standard output.
const POSITION: &str = "audit-sink.position";
/// The file with what a database said last.
const LAST_GOOD: &str = "control-last-good.jsonl";

/// What a node has of it before it serves.
pub(super) struct Plan {
    options: Options,
    last_good: Option<LastGood>,
    pub(super) status: Arc<ControlStatus>,
    /// Until the node has it.
    pub(super) ledger: Option<Ledger>,
    resets: mpsc::Receiver<Reset>,
    door: Option<Door>,
    publishes: bool,
    pub(super) address: Option<SocketAddr>,
    sink: Option<AuditSink>,
    /// Is the log for machines?
    json: bool,
}

/// Makes ready what is needed; none where there is to be no control plane.
pub(super) fn plan(
    settings: &Settings,
    data: &Data,
    metrics: &Arc<Metrics>,
    threads: usize,
    clock: &Clock,
) -> Result<Option<Plan>, StartError> {
    let control = &settings.control;
    let is_all_there_is = !settings.role.decides();
    if !control.enabled {
        return match is_all_there_is {
            true => Err(StartError::Control("enabled: node.role is `control`, and there is none".into())),
            false => Ok(None),
        };
    }
    let Some((options, place)) = database(control, data.folder())? else {
        if is_all_there_is {
            let why = "database: node.role is `control`, and there is no folder for data (node.data) for one";
            return Err(StartError::Control(why.into()));
        }
        tracing::warn!(
            "no folder for data, so there is no control plane: set node.data, or control.database"
        );
        return Ok(None);
    };
    // Of SQLite too: a file beside it, that is only added to, is whole where a database may not be.
    let last_good = data.folder().map(|folder| LastGood::new(folder.join(LAST_GOOD), place.clone()));
    let door = match settings.role.controls() {
        true => open(settings, control, metrics)?,
        false => None,
    };
    let address = door.as_ref().map(|door| door.listener.address()).transpose()?;
    let address = address.as_ref().and_then(ListenAt::address);
    let has_api = door.is_some();
    let status = Arc::new(ControlStatus::new(place, clock.wall_now_us()));
    if has_api {
        status.has_api();
    }
    if control.database.is_none() {
        status.serves_one_node();
        if !settings.role.decides() {
            status.serves_nobody();
        }
        if let Some(why) = status.misplaced() {
            tracing::warn!(why, "the control plane's database does not fit the role of this process");
        }
    }
    let (ledger, resets) = Ledger::new(threads);
    let (ledger, publishes) = (Some(ledger), control.publish);
    let sink = sink(settings, data.folder());
    let json = settings.log_format != "text";
    Ok(Some(Plan { options, last_good, status, ledger, resets, door, publishes, address, sink, json }))
}

/// Where it is kept, and the same for people; none where there is nowhere to keep it.
pub(crate) fn database(
    control: &ControlSettings,
    folder: Option<&Path>,
) -> Result<Option<(Options, String)>, StartError> {
    Ok(match (&control.database, folder) {
        (Some(url), _) => {
            let url = with_password(url, control)?;
            let place = format!("PostgreSQL ({})", without_password(&url));
            Some((Options::postgres(url).deadline(DATABASE_MAX), place))
        }
        (None, Some(folder)) => {
            let file = folder.join(SQLITE);
            let place = format!("SQLite ({})", file.display());
            Some((Options::sqlite(file).deadline(DATABASE_MAX), place))
        }
        (None, None) => None,
    })
}

/// Where the audit trail is written to, if it is and by this node.
fn sink(settings: &Settings, folder: Option<&Path>) -> Option<AuditSink> {
    let said = settings.control.audit_sink.as_ref()?;
    if !settings.role.controls() {
        tracing::info!("control.audit_sink is written by nodes that have the API: not by this one");
        return None;
    }
    Some(match said {
        AuditSinkSettings::Stdout => {
            if folder.is_none() {
                tracing::warn!(
                    "no folder for data, so nobody knows how far the audit sink was: every start writes all rows"
                );
            }
            AuditSink::new(SinkTo::Stdout, folder.map(|folder| folder.join(POSITION)))
        }
        AuditSinkSettings::File(path) => {
            let mut position = path.clone().into_os_string();
            position.push(".position");
            AuditSink::new(SinkTo::File(path.clone()), Some(position.into()))
        }
    })
}

/// Takes the address of the API. One that nobody asked for may be taken already.
fn open(
    settings: &Settings,
    control: &ControlSettings,
    metrics: &Arc<Metrics>,
) -> Result<Option<Door>, StartError> {
    let said = ListenerSettings {
        listen: control.listen.map(ListenAt::Tcp),
        connections_max: CONNECTIONS_MAX,
        connections_per_peer_max: CONNECTIONS_PER_PEER_MAX,
        tls: control.tls.clone(),
        ..ListenerSettings::default()
    };
    match Door::open("control.listen", Protocol::Http, &said, None, settings, metrics) {
        Ok(door) => Ok(Some(door)),
        Err(StartError::Listen { address, why, .. }) if !control.listen_said && settings.role.decides() => {
            tracing::warn!(%address, %why, "the control plane's API has no address: set control.listen");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn with_password(url: &str, control: &ControlSettings) -> Result<String, StartError> {
    let Some(file) = &control.password_file else { return Ok(url.to_owned()) };
    let trouble = |why: String| StartError::Control(format!("password_file: {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| trouble(error.to_string()))?;
    let password = text.lines().next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let (user, place) =
        rest.split_once('@').ok_or_else(|| trouble("there is no user in control.database".into()))?;
    let user = user.split(':').next().unwrap_or_default();
    let escaped: String = password.bytes().map(|byte| format!("%{byte:02X}")).collect();
    Ok(format!("{scheme}://{user}:{escaped}@{place}"))
}

/// What serves the API: it is there as soon as the database is.
type Served = Arc<ArcSwapOption<Router>>;

impl Plan {
    /// Begins to follow what is kept, and to serve the API.
    pub(super) fn start(
        self,
        node: &Arc<Node>,
        quotas: &Arc<Quotas>,
        beside: Beside,
        runtime: &Handle,
    ) -> io::Result<Arc<Cores>> {
        let served: Served = Arc::default();
        let apply = Apply {
            node: Arc::downgrade(node),
            quotas: quotas.clone(),
            status: self.status.clone(),
            beside,
            runtime: runtime.clone(),
        };
        let mut follow = Follow::new(apply, node.clock.clone(), self.last_good);
        follow.load_last_good();
        let status = self.status;
        let work = Work {
            follow,
            options: self.options,
            node: node.clone(),
            status: status.clone(),
            has_api: self.door.is_some(),
            resets: self.resets,
            publishes: self.publishes,
            sink: self.sink,
            json: self.json,
        };
        let (work, router) = (Arc::new(std::sync::Mutex::new(Some(work))), served.clone());
        let cores = Arc::new(Cores::start(1, move |_| {
            let work = work.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
            if let Some(work) = work {
                spawn_local(work.run(router.clone()));
            }
            Serving { served: router.clone(), before: api::before(), status: status.clone() }
        })?);
        if let Some(door) = self.door {
            runtime.spawn(door.listener.accept(door.entrance, cores.clone(), cores.phases()));
        }
        Ok(cores)
    }
}

/// What the thread does besides serving.
struct Work {
    follow: Follow<Apply>,
    options: Options,
    node: Arc<Node>,
    status: Arc<ControlStatus>,
    has_api: bool,
    resets: mpsc::Receiver<Reset>,
    publishes: bool,
    sink: Option<AuditSink>,
    json: bool,
}

impl Work {
    async fn run(mut self, served: Served) {
        let plane = self.has_api.then(|| Arc::new(NodePlane::here(&self.node)));
        let calendars = Calendars::new(Arc::downgrade(&self.node), self.node.store.hand(), self.resets);
        let clock = self.node.clock.clone();
        let redis = match &self.node.store {
            Store::Redis(redis) if self.publishes => Some(redis.clone()),
            _ => None,
        };
        drop(self.node); // It may end.
        spawn_local(self.follow.end_states());
        let mut told = false;
        let store = loop {
            match ControlStore::open(&self.options).await {
                Ok(store) => break store,
                Err(error) => {
                    self.status.heard_nothing();
                    if !std::mem::replace(&mut told, true) {
                        tracing::error!(%error, "the control plane's database cannot be opened; it is tried again every second");
                    }
                    tokio::time::sleep(RETRY).await;
                }
            }
        };
        if let Some(plane) = plane {
            match bootstrap(&store).await {
                Ok(Some(token)) => show(token.reveal(), clock.wall_now_us(), self.json),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(%error, "the first token of the control plane could not be made")
                }
            }
            match Api::new(store.clone(), plane, clock, ApiOptions::default()) {
                Ok(api) => served.store(Some(Arc::new(api.router()))),
                Err(error) => tracing::error!(%error, "the control plane's API does not start"),
            }
        }
        spawn_local(calendars.run(store.clone()));
        if let Some(redis) = redis {
            spawn_local(news::run(redis, store.clone()));
        }
        if let Some(sink) = self.sink {
            let (store, status) = (store.clone(), self.status);
            spawn_local(async move {
                let told = |progress: &SinkProgress| {
                    status.sink_is_at(progress.behind(), progress.failures, progress.trouble.as_deref());
                };
                sink.run(&store, told).await;
            });
        }
        self.follow.run(&store).await;
    }
}

/// Shows the first token, once and past the log: that is kept longer, and read by more people, than a secret should be. Where the log is
/// for machines, this is a line for them too.
fn show(token: &str, at_us: u64, json: bool) {
    let message = "the first token of the control plane (scope admin), shown this once";
    match json {
        true => {
            let at = i64::try_from(at_us).ok().and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
            let at = at.map(|at| at.to_string());
            let line = serde_json::json!({ "time": at, "level": "INFO", "message": message, "token": token });
            anstream::eprintln!("{line}");
        }
        false => anstream::eprintln!(
            "The first token of the control plane (scope admin). It is shown this once:\n\n  {token}\n"
        ),
    }
}

/// The API, once it is there.
struct Serving {
    served: Served,
    /// What answers until then.
    before: Router,
    status: Arc<ControlStatus>,
}

impl Serve for Serving {
    type Body = Body;
    type Talk = Nobody;

    fn talk(self: Rc<Self>) -> Option<Nobody> {
        None
    }

    async fn answer(
        self: Rc<Self>,
        _protocol: Protocol,
        peer: Option<SocketAddr>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let served = self.served.load_full();
        let mut router = served.as_deref().unwrap_or(&self.before).clone();
        let mut request = request.map(Body::new);
        if let Some(peer) = peer {
            request.extensions_mut().insert(api::Peer(peer.ip()));
        }
        let answered: Result<_, Infallible> = router.call(request).await;
        let response = answered.unwrap_or_else(|never| match never {});
        if served.is_none() {
            self.status.answered(response.status().as_u16()); // The API tells its own.
        }
        response
    }
}
