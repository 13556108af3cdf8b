//! The admin API: what people and their programs ask of the control plane, over HTTP.
//!
//! [`routes()`] is the table of all calls. The router, the OpenAPI document and the test of who may do what are made from it.

mod problem; // what is answered when something cannot be done
pub(crate) mod when; // instants in texts
mod call; // one call: what is asked, how it is answered
pub mod auth; // who may do what
mod routes; // all calls there are
mod quotas; // what is agreed with single callers
mod bulk; // the same, many at a time
mod tiers; // sets of limits with a name
mod rules; // rules by API
mod shapes; // the forms in which these are written
mod states; // the kill switch
mod usage; // what counters hold
mod tokens; // who may do what, by API
mod trail; // what was done
mod export; // everything as YAML
mod join; // rules about one domain as one document
mod openapi; // all of this, for programs

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, FromRequestParts as _, RawPathParams, Request};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, MethodRouter};
use http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method};
use tidegate_clock::Clock;
use tidegate_core::{Limit, LimitError, Micros};

use crate::model::Scope;
use crate::plane::Plane;
use crate::store::ControlStore;
use auth::{Caller, Doorman};
use call::{Answer, Call};
use problem::Problem;
use routes::Needs;

pub use openapi::{before, document as openapi};
pub use routes::{Route, routes};
pub use shapes::rule_file;

/// What may be set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiOptions {
    /// How long a call may take; imports and looks over the whole audit trail sixty times as long.
    pub deadline: Duration,
    /// So many tokens that are worth nothing may come from one address in a minute.
    pub failed_tries_per_minute: u32,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(10), failed_tries_per_minute: 10 }
    }
}

/// The address of who asks. Whoever serves the API puts it, or axum's `ConnectInfo<SocketAddr>`, among the request's extensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(pub IpAddr);

/// The admin API.
#[derive(Clone)]
pub struct Api(Arc<Desk>);

/// What all handlers share.
pub(crate) struct Desk {
    store: ControlStore,
    plane: Arc<dyn Plane>,
    clock: Clock,
    options: ApiOptions,
    doorman: Doorman,
    /// Rules are judged together and then written: one at a time.
    rules: tokio::sync::Mutex<()>,
}

impl Desk {
    fn now_us(&self) -> i64 {
        i64::try_from(self.clock.wall_now_us()).unwrap_or(i64::MAX)
    }

    /// The domain that something is about, said or not.
    fn domain(&self, said: Option<&str>) -> Option<String> {
        said.map(str::to_owned).or_else(|| self.plane.default_domain())
    }
}

impl Api {
    /// Over this store and this process.
    pub fn new(
        store: ControlStore,
        plane: Arc<dyn Plane>,
        clock: Clock,
        options: ApiOptions,
    ) -> Result<Self, LimitError> {
        let failed = Limit::sliding_window(options.failed_tries_per_minute.into(), Micros::from_secs(60))?;
        let doorman = Doorman::new(store.clone(), clock.clone(), failed);
        Ok(Self(Arc::new(Desk { store, plane, clock, options, doorman, rules: tokio::sync::Mutex::new(()) })))
    }

    /// What answers all calls.
    pub fn router(&self) -> Router {
        let mut paths: Vec<&'static str> = routes().iter().map(|route| route.path).collect();
        paths.dedup();
        let mut router = Router::new();
        for path in paths {
            let of_path = || routes().iter().filter(move |route| route.path == path);
            let mut methods = MethodRouter::new();
            let mut allow = Vec::new();
            for route in of_path() {
                let desk = Arc::clone(&self.0);
                let handler = move |request: Request| serve(desk, route, request);
                methods = match MethodFilter::try_from(route.method.clone()) {
                    Ok(filter) => methods.on(filter, handler),
                    Err(_) => methods,
                };
                allow.push(route.method.as_str());
                if route.method == Method::GET {
                    allow.push("HEAD");
                }
            }
            let allow = allow.join(", ");
            let refuse = move || async move { safe(Problem::method_not_allowed(&allow).into_response()) };
            router = router.route(path, methods.fallback(refuse));
        }
        router.fallback(|| async {
            safe(Problem::not_found("there is no such path; /openapi.json lists all").into_response())
        })
    }
}

async fn serve(desk: Arc<Desk>, route: &'static Route, request: Request) -> Response {
    let mut noted = Noted::default();
    let answer = answer(&desk, route, request, &mut noted).await;
    let response = answer.unwrap_or_else(Problem::into_response);
    let status = response.status().as_u16();
    desk.plane.answered(status);
    let (method, path) = (route.method.as_str(), route.path);
    let subject = noted.name.as_deref().map(|name| desk.doorman.alias(name)).unwrap_or_default();
    let actor = noted.actor.as_deref().unwrap_or_default();
    if status >= 500 {
        tracing::warn!(method, path, status, actor, subject, "an admin call failed");
    } else {
        tracing::debug!(method, path, status, actor, subject, "an admin call");
    }
    safe(response)
}

/// For the log, where what a path names stands only as a keyed hash.
#[derive(Default)]
struct Noted {
    actor: Option<String>,
    name: Option<String>,
}

async fn answer(desk: &Arc<Desk>, route: &'static Route, request: Request, noted: &mut Noted) -> Answer {
    let (mut parts, body) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().map(|Peer(address)| *address);
    let peer = peer.or_else(|| parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()));
    let late = || Problem::unavailable("it was not done in time");
    let caller = match route.needs {
        Needs::Nothing => Caller { id: String::new(), name: String::new(), scope: Scope::Read, tenant: None },
        Needs::Token { scope, tenants } => {
            let admitted = desk.doorman.admit(&parts.headers, peer);
            let caller =
                tokio::time::timeout(desk.options.deadline, admitted).await.map_err(|_| late())??;
            noted.actor = Some(caller.name.clone());
            may(&caller, scope, tenants)?;
            caller
        }
    };
    let params = RawPathParams::from_request_parts(&mut parts, &()).await;
    let params = params.map_err(|_| Problem::bad_request("path", "it is no text"))?;
    let name = params.iter().next().map(|(_, value)| value.to_owned()).unwrap_or_default();
    if name.contains('\0') {
        return Err(Problem::bad_request("path", "it has a NUL character"));
    }
    noted.name = Some(name.clone()).filter(|name| !name.is_empty());
    let origin = peer.map(|peer| peer.to_string()).unwrap_or_default();
    let call = Call::new(parts, body, name, caller, origin, route.query)?;
    let deadline = if route.is_long { desk.options.deadline * 60 } else { desk.options.deadline };
    let handled = (route.handler)(Arc::clone(desk), call);
    tokio::time::timeout(deadline, handled).await.map_err(|_| late())?
}

fn may(caller: &Caller, scope: Scope, tenants: bool) -> Result<(), Problem> {
    if caller.scope < scope {
        let (has, needed) = (caller.scope.as_str(), scope.as_str());
        return Err(Problem::forbidden(format!("it has the scope `{has}`, and this needs `{needed}`")));
    }
    match &caller.tenant {
        Some(tenant) if !tenants => {
            Err(Problem::forbidden(format!("it is bound to the domain `{tenant}`, and this is about all")))
        }
        _ => Ok(()),
    }
}

/// Nothing here is for caches, nor for browsers to guess at.
fn safe(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
