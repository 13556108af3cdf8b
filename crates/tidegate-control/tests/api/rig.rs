//! An API over a store, the process that it asks, and somebody who calls it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tidegate_clock::{Clock, ManualClock};
use tidegate_control::api::auth::{self, Wish};
use tidegate_control::api::{Api, ApiOptions, Peer, routes};
use tidegate_control::plane::{
    CallerUsage, CountsFor, Judged, LimitInForce, NotListed, Pending, Plane, PlaneError, RuleChange,
    RuleInForce, Used,
};
use tidegate_control::{ControlStore, Quota, Scope, Unit};
use tower_service::Service as _;

use crate::support::{Bed, alice};

/// 2025-01-15T10:30:00Z, the seeds' time.
pub(crate) const NOW_US: u64 = 1_736_937_000_000_000;

pub(crate) struct Rig {
    pub(crate) store: ControlStore,
    pub(crate) process: Arc<Process>,
    pub(crate) hand: ManualClock,
    pub(crate) router: Router,
    pub(crate) admin: String,
}

pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) json: Value,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a text"))
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        if status >= 400 {
            assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
            assert_eq!(self.json["status"], status);
            assert!(self.json["type"].is_string() && self.json["title"].is_string(), "{}", self.text);
        }
        self
    }
}

impl Rig {
    pub(crate) async fn new(bed: &Bed) -> Self {
        Self::with(bed, ApiOptions { deadline: Duration::from_secs(30), ..ApiOptions::default() }).await
    }

    pub(crate) async fn with(bed: &Bed, options: ApiOptions) -> Self {
        let hand = ManualClock::at(NOW_US);
        let store = ControlStore::open(&bed.options().clock(Clock::from(&hand))).await.expect("a store");
        let process = Arc::new(Process::default());
        let plane: Arc<dyn Plane> = Arc::clone(&process) as _;
        let router = Api::new(store.clone(), plane, Clock::from(&hand), options).expect("an API").router();
        let mut rig = Self { store, process, hand, router, admin: String::new() };
        rig.admin = rig.token(Scope::Admin, None, None).await.1;
        rig
    }

    /// A new token: its id and its text.
    pub(crate) async fn token(
        &self,
        scope: Scope,
        tenant: Option<&str>,
        expires_at: Option<i64>,
    ) -> (String, String) {
        let tenant = tenant.map(str::to_owned);
        let wish = Wish { name: format!("{} of tests", scope.as_str()), scope, tenant, expires_at };
        let (token, secret) = auth::create(&self.store, &alice(), wish).await.expect("a token");
        (token.id, secret.reveal().to_owned())
    }

    /// As the admin, in JSON.
    pub(crate) async fn ask(&self, call: &str, body: Value) -> Got {
        self.ask_if(call, body, &[]).await
    }

    pub(crate) async fn ask_if(&self, call: &str, body: Value, headers: &[(&str, &str)]) -> Got {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let mut all = vec![("authorization", format!("Bearer {}", self.admin))];
        all.push(("content-type", "application/json".into()));
        all.extend(headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
        self.send(call, &text, &all, Ipv4Addr::LOCALHOST.into()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Got {
        self.ask(&format!("GET {path}"), Value::Null).await
    }

    /// With this token, or none.
    pub(crate) async fn ask_as(&self, token: Option<&str>, call: &str, body: &str) -> Got {
        let mut headers = vec![("content-type", content_type(call).to_owned())];
        headers.extend(token.map(|token| ("authorization", format!("Bearer {token}"))));
        self.send(call, body, &headers, Ipv4Addr::LOCALHOST.into()).await
    }

    pub(crate) async fn send(&self, call: &str, body: &str, headers: &[(&str, String)], from: IpAddr) -> Got {
        let (method, path) = call.split_once(' ').expect("a method and a path");
        let mut request = Request::builder().method(method).uri(path).extension(Peer(from));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Body::from(body.to_owned())).expect("a request");
        let response = self.router.clone().call(request).await.expect("it never fails");
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let text = String::from_utf8(bytes.to_vec()).expect("a text");
        assert!(parts.headers.get("access-control-allow-origin").is_none());
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        assert_ne!(parts.status, StatusCode::INTERNAL_SERVER_ERROR, "{text}");
        assert_documented(method, path, &parts, &json);
        Got { status: parts.status.as_u16(), headers: parts.headers, text, json }
    }

    pub(crate) async fn revision(&self) -> u64 {
        self.store.revision().await.expect("a revision")
    }
}

pub(crate) fn content_type(call: &str) -> &'static str {
    if call.contains(":import") { "application/x-ndjson" } else { "application/json" }
}

/// Whatever is answered is in the OpenAPI document: its status, its form, and what is in it.
fn assert_documented(method: &str, path: &str, parts: &http::response::Parts, json: &Value) {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(tidegate_control::api::openapi);
    let path = path.split('?').next().unwrap_or_default();
    let fits = |template: &str| {
        let (mut said, mut asked) = (template.split('/'), path.split('/'));
        let is_same =
            said.by_ref().zip(asked.by_ref()).all(|(said, asked)| said == asked || said.starts_with('{'));
        is_same && template.split('/').count() == path.split('/').count()
    };
    let Some(route) = routes().iter().find(|route| route.method == method && fits(route.path)) else {
        return;
    };
    let operation = &DOCUMENT["paths"][route.path][method.to_ascii_lowercase()];
    let status = parts.status.as_str();
    let response = operation["responses"].get(status);
    let response =
        response.unwrap_or_else(|| panic!("{method} {} does not say that it answers {status}", route.path));
    let content_type = parts.headers.get("content-type").and_then(|value| value.to_str().ok());
    let content_type = content_type.and_then(|said| said.split(';').next());
    match (content_type, response.get("content")) {
        (None, None) => {}
        (Some(content_type), Some(content)) => {
            let content = content.get(content_type);
            let content =
                content.unwrap_or_else(|| panic!("{method} {}: {content_type} is not said", route.path));
            if let Some(schema) = content.get("schema") {
                let mut schema = schema.clone();
                schema["components"] = DOCUMENT["components"].clone();
                let validator = jsonschema::validator_for(&schema).expect("a schema");
                let wrong: Vec<String> = validator.iter_errors(json).map(|error| error.to_string()).collect();
                assert!(wrong.is_empty(), "{method} {} {status}: {wrong:?}\n{json:#}", route.path);
            }
        }
        (said, documented) => panic!("{method} {} {status}: {said:?} {documented:?}", route.path),
    }
}

/// Is all that is expected there? More may be.
#[track_caller]
pub(crate) fn assert_has(got: &Value, expected: &Value) {
    match (got, expected) {
        (Value::Object(got), Value::Object(expected)) => {
            for (name, expected) in expected {
                let got = got.get(name).unwrap_or_else(|| panic!("`{name}` is missing: {got:?}"));
                assert_has(got, expected);
            }
        }
        (Value::Array(got), Value::Array(expected)) => {
            assert_eq!(got.len(), expected.len(), "{got:?}");
            got.iter().zip(expected).for_each(|(got, expected)| assert_has(got, expected));
        }
        _ => assert_eq!(got, expected),
    }
}

type ResetAsked = (Option<String>, String, Option<String>);

/// The process that an API asks: two domains, three rules of files, and what a test puts there. What rules mean it knows as far as tests
/// need.
pub(crate) struct Process {
    pub(crate) rules: Mutex<Vec<RuleInForce>>,
    pub(crate) used: Mutex<Vec<Used>>,
    /// What it cannot list of every caller, and how much more there is.
    pub(crate) not_listed: Mutex<(Vec<NotListed>, u64)>,
    /// Domain, caller and address of each.
    pub(crate) resets: Mutex<Vec<ResetAsked>>,
    /// What it was last asked to judge.
    pub(crate) judged: Mutex<Vec<(String, Value)>>,
    /// What an edit would take from quotas.
    pub(crate) lost_default: Mutex<Option<String>>,
}

pub(crate) fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn limit(amount: u32, source: &'static str) -> LimitInForce {
    LimitInForce {
        amount,
        window_us: Some(60_000_000),
        calendar: None,
        algorithm: "sliding_window",
        text: format!("sliding_window {amount}/1m"),
        source,
    }
}

pub(crate) fn used(rule: &str, address: &str, used: u64, limit_of: LimitInForce) -> Used {
    Used {
        rule: Some(rule.into()),
        counts_for: CountsFor::Caller,
        address: address.into(),
        remaining: u64::from(limit_of.amount) - used,
        limit: limit_of,
        used,
        window: (NOW_US as i64, NOW_US as i64 + 60_000_000),
        stored: true,
        key: "00".into(),
    }
}

impl Default for Process {
    fn default() -> Self {
        let of_file = |id: &str, domain: &str, tier: Option<&str>, amount| RuleInForce {
            id: id.into(),
            domain: domain.into(),
            tier: tier.map(str::to_owned),
            name: Some("per-key".into()),
            limit: Some(limit(amount, "rule")),
            origin: "rules/api.yaml:4".into(),
            api_id: None,
            written_state: "enforce".into(),
            state: "enforce".into(),
        };
        let rules = vec![
            of_file("api_platform|api_key#per-key", "api_platform", None, 100),
            of_file("api_platform|api_key#per-key", "api_platform", Some("platinum"), 9000),
            of_file("shop|api_key#per-key", "shop", None, 50),
        ];
        Self {
            rules: Mutex::new(rules),
            used: Mutex::default(),
            not_listed: Mutex::default(),
            resets: Mutex::default(),
            judged: Mutex::default(),
            lost_default: Mutex::default(),
        }
    }
}

impl Plane for Process {
    fn default_domain(&self) -> Option<String> {
        Some("api_platform".into())
    }

    fn quota_key(&self, domain: &str) -> Option<String> {
        ["api_platform", "shop"].contains(&domain).then(|| "api_key".into())
    }

    fn answered(&self, _: u16) {}

    fn rules(&self) -> Vec<RuleInForce> {
        locked(&self.rules).clone()
    }

    fn tiers(&self) -> Vec<String> {
        vec!["platinum".into(), "enterprise".into()]
    }

    fn judge(&self, rules: Vec<(String, String)>) -> Judged {
        let rules: Vec<(String, Value)> = rules
            .into_iter()
            .map(|(id, text)| (id, serde_json::from_str(&text).expect("documents are JSON")))
            .collect();
        let mut judged = Judged { lost_default: locked(&self.lost_default).clone(), ..Judged::default() };
        let mut ids: Vec<String> = Vec::new();
        for (id, document) in &rules {
            assert!(document["domain"].is_string() && document["descriptors"].is_array(), "{document}");
            if document.to_string().contains("/0s") {
                judged.errors.push(json!({
                    "code": "bad_window", "message": "a window of 0 s", "file": format!("api:{id}"), "line": 1, "column": 9,
                }));
            }
            ids.push(format!("{}|…#{id}", document["domain"].as_str().unwrap_or_default()));
        }
        let there: Vec<String> = self.rules().into_iter().map(|rule| rule.id).collect();
        let change = |id: &String, before: bool| RuleChange {
            id: id.clone(),
            tier: None,
            before: before.then(|| "x".into()),
            after: (!before).then(|| "x".into()),
            counters_start_afresh: true,
        };
        judged.changes.extend(ids.iter().filter(|id| !there.contains(id)).map(|id| change(id, false)));
        let gone = there.iter().filter(|id| id.contains('…') && !ids.contains(id));
        judged.changes.extend(gone.map(|id| change(id, true)));
        *locked(&self.judged) = rules;
        judged
    }

    fn default_limit(&self, quota: &Quota) -> Option<LimitInForce> {
        let own = quota.overrides.iter().find(|one| one.descriptor == "default" && one.unit == Unit::Minute);
        let of_tier = match quota.tier.as_deref() {
            Some("enterprise") => Some(limit(5000, "tier")),
            Some("platinum") => Some(limit(9000, "tier")),
            _ => None,
        };
        own.map(|one| limit(one.requests_per_unit, "override")).or(of_tier).or(Some(limit(100, "rule")))
    }

    fn usage<'a>(
        &'a self,
        domain: Option<&'a str>,
        api_key: &'a str,
        address: Option<&'a str>,
    ) -> Pending<'a, CallerUsage> {
        Box::pin(async move {
            match (domain, api_key) {
                (Some("down"), _) => Err(PlaneError::Unavailable { why: "no answer within 12 ms".into() }),
                (Some(domain), _) if self.quota_key(domain).is_none() => {
                    Err(PlaneError::Unknown { why: format!("there is no domain `{domain}`") })
                }
                _ => {
                    let (not_listed, left_out) = locked(&self.not_listed).clone();
                    let mut counters = locked(&self.used).clone();
                    counters.retain(|used| address.is_none_or(|address| used.address == address));
                    Ok(CallerUsage { counters, not_listed, left_out })
                }
            }
        })
    }

    fn reset<'a>(
        &'a self,
        domain: Option<&'a str>,
        api_key: &'a str,
        address: Option<&'a str>,
    ) -> Pending<'a, CallerUsage> {
        Box::pin(async move {
            let asked = (domain.map(str::to_owned), api_key.to_owned(), address.map(str::to_owned));
            locked(&self.resets).push(asked);
            let all = locked(&self.used).clone();
            let is_asked = |used: &Used| {
                address.is_none_or(|address| used.address == address) && used.counts_for != CountsFor::All
            };
            let left_out = locked(&self.not_listed).1;
            let counters = all.into_iter().filter(is_asked).collect();
            Ok(CallerUsage { counters, not_listed: Vec::new(), left_out })
        })
    }
}
