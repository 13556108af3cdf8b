//! Rules in the forms of the designs that people come with, written to the real binary, read back as they were sent, and followed by
//! decisions; and what a caller has used, as they tell it.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_clock::{Clock, Stopwatch};

use crate::control::{Admin, Kept};
use crate::support::{Http, Node, until};

const RULES: &str = "\
domain: api_platform
match: path
descriptors:
  - key: api_key
    rate_limit: { requests_per_unit: 700, unit: minute, name: per-key }
    tiers:
      free: { requests_per_unit: 600 }
      pro: { requests_per_unit: 1000 }
      enterprise: { requests_per_unit: 5000 }
";

/// A rule in one of the forms.
struct Form {
    path: &'static str,
    sent: Value,
    /// As it is in force: algorithm, amount, window in microseconds.
    in_force: (&'static str, u32, u64),
    /// So much is admitted at once, of the check with each number.
    capacity: u64,
    check: fn(u64) -> Value,
    /// Somebody whom it is not about.
    other: Value,
}

fn long(entries: &[(&str, &str)]) -> Value {
    let entries: Vec<Value> =
        entries.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
    json!({ "descriptors": [{ "entries": entries }] })
}

fn forms() -> [Form; 6] {
    const MINUTE: u64 = 60_000_000;
    fn policy(id: &str, key_type: &str, limit: u32, algorithm: &str) -> Value {
        json!({ "policy_id": id, "key_type": key_type, "limit": limit, "window_seconds": 60, "algorithm": algorithm })
    }
    [
        Form {
            path: "/api/admin/rate-limit-rules/search",
            sent: json!({ "endpoint": "/api/search", "clientTier": "free", "maxRequests": 100, "windowSeconds": 60,
                "algorithm": "sliding_window_counter" }),
            in_force: ("sliding_window_counter", 100, MINUTE),
            capacity: 100,
            check: |_| json!({ "clientId": "ak_free", "endpoint": "/api/search" }),
            other: json!({ "clientId": "ak_pro", "endpoint": "/api/search" }),
        },
        Form {
            path: "/admin/v1/rules/login",
            sent: json!({ "scope": "ip", "endpoint": "POST /v1/login", "capacity": 100, "refill_per_sec": 1.67 }),
            in_force: ("token_bucket", 167, 100_000_000),
            capacity: 100,
            check: |_| long(&[("remote_address", "192.0.2.1"), ("endpoint", "POST /v1/login")]),
            other: long(&[("remote_address", "192.0.2.2"), ("endpoint", "POST /v1/login")]),
        },
        Form {
            path: "/admin/v1/rules/any-key",
            sent: json!({ "scope": "api_key", "endpoint": "*", "capacity": 20, "refill_per_sec": 0.25 }),
            in_force: ("token_bucket", 1, 4_000_000),
            capacity: 20,
            check: |_| json!({ "clientId": "ak_any" }),
            other: json!({ "clientId": "ak_other" }),
        },
        Form {
            path: "/admin/v1/rules/per-user",
            sent: policy("per-user", "USER", 40, "TOKEN_BUCKET"),
            in_force: ("token_bucket", 40, MINUTE),
            capacity: 40,
            check: |_| long(&[("user_id", "123")]),
            other: long(&[("user_id", "124")]),
        },
        Form {
            path: "/admin/v1/rules/per-address",
            sent: policy("per-address", "IP", 30, "SLIDING_WINDOW_LOG"),
            in_force: ("sliding_log", 30, MINUTE),
            capacity: 30,
            check: |_| long(&[("remote_address", "1.2.3.4")]),
            other: long(&[("remote_address", "1.2.3.5")]),
        },
        Form {
            path: "/admin/v1/rules/ceiling",
            sent: policy("ceiling", "GLOBAL", 50, "TOKEN_BUCKET"),
            in_force: ("token_bucket", 50, MINUTE),
            capacity: 50,
            check: |number| json!({ "clientId": format!("ak_{number}") }),
            other: json!({ "domain": "elsewhere", "clientId": "ak_1" }),
        },
    ]
}

/// Which rules by API with this id are in force.
async fn in_force(admin: &Admin<'_>, id: &str) -> Vec<Value> {
    let rules = admin.call("GET", "/admin/v1/rules", "").await.json();
    let all = rules["items"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|rule| rule["api_id"] == id).collect()
}

async fn check(http: &mut Http, body: &Value) -> Value {
    http.post("/v1/check", &body.to_string()).await.json()
}

/// Checks so often that not all can pass: the answers, and how long it took.
async fn many(node: &Node, form: &Form) -> (Vec<Value>, Duration) {
    const BATCH: u64 = 100; // No more at once.
    let (mut http, watch, mut answers) = (node.http().await, Stopwatch::start(), Vec::new());
    for batch in 0..2 {
        let batch = Value::from_iter((0..BATCH).map(|number| (form.check)(batch * BATCH + number)));
        answers.extend(check(&mut http, &batch).await.as_array().cloned().unwrap_or_default());
    }
    (answers, watch.elapsed())
}

#[tokio::test]
async fn rules_in_the_forms_of_the_designs_are_followed() {
    for kept in Kept::both_with(RULES) {
        follows_rules_in_all_forms(kept).await;
    }
}

async fn follows_rules_in_all_forms(kept: Kept) {
    kept.setup.write("rules/elsewhere.yaml", "domain: elsewhere\n");
    let node = kept.setup.set("http-default-domain", "api_platform").start();
    let admin = Admin::of(&node).await;
    let mut http = node.http().await;
    for (key, tier) in [("ak_free", "free"), ("ak_pro", "pro")] {
        let path = format!("/admin/v1/quotas/{key}");
        let put = admin.call("PUT", &path, &json!({ "tier": tier }).to_string()).await;
        assert_eq!(put.status, 200, "{}", put.body);
    }
    for form in forms() {
        let id = form.path.rsplit('/').next().expect("an id");
        let put = admin.call("PUT", form.path, &form.sent.to_string()).await;
        assert!(put.status < 300, "{id}: {}", put.body);
        for path in
            [form.path, &format!("/admin/v1/rules/{id}"), &format!("/api/admin/rate-limit-rules/{id}")]
        {
            let got = admin.call("GET", path, "").await.json();
            for (name, value) in form.sent.as_object().expect("an object") {
                assert_eq!(got[name], *value, "{name} of {path}: {got}");
            }
        }
        let rules = async || Some(in_force(&admin, id).await).filter(|rules| !rules.is_empty());
        let [rule] = &*until("it is in force", rules).await else { panic!("several rules of {id}") };
        let (algorithm, amount, window_us) = form.in_force;
        assert_eq!(rule["algorithm"], algorithm, "{rule}");
        assert_eq!((&rule["amount"], &rule["window_us"]), (&amount.into(), &window_us.into()), "{rule}");

        let (answers, took) = many(&node, &form).await;
        let admitted = answers.iter().take_while(|answer| answer["allowed"] == true).count() as u64;
        let all = answers.iter().filter(|answer| answer["allowed"] == true).count() as u64;
        // Nothing but what has come back meanwhile, if the machine stood still.
        let back = u128::from(amount) * took.as_micros() / u128::from(window_us);
        assert!(admitted >= form.capacity, "{id}: {admitted}");
        assert!(u128::from(all) <= u128::from(form.capacity) + back, "{id}: {all} in {took:?}");
        let refused = &answers[admitted as usize];
        assert_eq!(refused["code"], "RATE_LIMITED", "{id}: {refused}");
        assert_eq!((&refused["rule"], &refused["limit"]), (&rule["id"], &amount.into()), "{id}: {refused}");
        let other = check(&mut http, &form.other).await;
        assert_eq!(other["allowed"], true, "{id}: {other}");

        let gone = admin.call("DELETE", form.path, "").await;
        assert_eq!(gone.status, 204, "{id}: {}", gone.body);
        let again = (form.check)(0);
        until(&format!("{id} is gone"), async || {
            (check(&mut node.http().await, &again).await["allowed"] == true).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_rate_of_the_designs_is_kept_exactly() {
    for kept in Kept::both_with(RULES) {
        keeps_rates_exactly(kept).await;
    }
}

/// A bucket that is empty is full again after `capacity / refill_per_sec`, to the millisecond.
async fn keeps_rates_exactly(kept: Kept) {
    let node = kept.setup.start();
    let admin = Admin::of(&node).await;
    let mut http = node.http().await;
    for (id, capacity, rate, full_ms) in [
        ("login", 100, json!(1.67), 59_881), // 100 in a minute would be 60 000, and 2 in a second 50 000.
        ("slow", 7, json!(0.3), 23_334),
        ("text", 1_000, json!("1.66667"), 599_999),
    ] {
        let rule = json!({ "scope": "user", "endpoint": id, "capacity": capacity, "refill_per_sec": rate });
        let put = admin.call("PUT", &format!("/admin/v1/rules/{id}"), &rule.to_string()).await;
        assert!(put.status < 300, "{id}: {}", put.body);
        let got = admin.call("GET", &format!("/admin/v1/rules/{id}"), "").await.json();
        assert_eq!(got["refill_per_sec"], rate, "{got}");
        until("it is in force", async || (!in_force(&admin, id).await.is_empty()).then_some(())).await;
        let mut all = long(&[("user_id", "123"), ("endpoint", id)]);
        all["descriptors"][0]["hitsAddend"] = capacity.into();
        let watch = Stopwatch::start();
        let first = check(&mut http, &all).await;
        assert_eq!(first["allowed"], true, "{first}");
        let wait_ms = check(&mut http, &all).await["retryAfterMs"].as_u64().expect("a wait");
        let took_ms = watch.elapsed().as_millis() as u64 + 1;
        assert!(wait_ms <= full_ms, "{id}: {wait_ms}");
        assert!(wait_ms + took_ms >= full_ms, "{id}: {wait_ms} after {took_ms}");
    }
}

#[tokio::test]
async fn usage_is_told_as_in_the_design() {
    for kept in Kept::both_with(RULES) {
        tells_usage(kept).await;
    }
}

async fn tells_usage(kept: Kept) {
    let node = kept.setup.start();
    let admin = Admin::of(&node).await;
    let quota = json!({
        "tier": "enterprise",
        "overrides": [{ "descriptor": "endpoint:POST /api/v1/orders", "requests_per_unit": 500, "unit": "minute" }],
        "effective_at": "2025-02-01T00:00:00Z",
        "expires_at": null,
    });
    let put = admin.call("PUT", "/admin/v1/quotas/abc123", &quota.to_string()).await;
    assert_eq!(put.status, 200, "{}", put.body);
    let got = admin.call("GET", "/admin/v1/quotas/abc123", "").await.json();
    assert_eq!(got, put.json());
    for (name, expected) in [
        ("api_key", json!("abc123")),
        ("tier", json!("enterprise")),
        (
            "quotas",
            json!({
                "default": { "requests_per_unit": 5000, "unit": "minute" },
                "overrides": [{ "descriptor": "endpoint:POST /api/v1/orders", "requests_per_unit": 500, "unit": "minute" }],
            }),
        ),
        ("effective_at", json!("2025-02-01T00:00:00Z")),
    ] {
        assert_eq!(got[name], expected, "{name} in {got:#}");
    }
    assert!(got["updated_at"].as_str().is_some_and(|at| at.parse::<Timestamp>().is_ok()), "{got:#}");
    for (id, algorithm) in [
        ("log", "sliding_window_log"),
        ("counter", "sliding_window_counter"),
        ("bucket", "token_bucket"),
        ("fixed", "fixed_window"),
    ] {
        let rule = json!({ "endpoint": format!("/{id}"), "maxRequests": 90, "windowSeconds": 30, "algorithm": algorithm });
        let put = admin.call("PUT", &format!("/admin/v1/rules/{id}"), &rule.to_string()).await;
        assert!(put.status < 300, "{id}: {}", put.body);
        until("it is in force", async || (!in_force(&admin, id).await.is_empty()).then_some(())).await;
    }
    let mut http = node.http().await;
    let clock = Clock::real();
    let watch = Stopwatch::start();
    let charges = [
        ("POST /api/v1/orders", 18),
        ("GET /", 5),
        ("/log", 9),
        ("/counter", 8),
        ("/bucket", 7),
        ("/fixed", 6),
    ];
    for (endpoint, times) in charges {
        let batch = vec![json!({ "clientId": "abc123", "endpoint": endpoint }); times];
        let answers = check(&mut http, &batch.into()).await;
        assert!(
            answers.as_array().is_some_and(|all| all.iter().all(|one| one["allowed"] == true)),
            "{answers}"
        );
    }
    let now = || i64::try_from(clock.now_us()).expect("a time");
    let before = now();
    let told = admin.call("GET", "/admin/v1/usage/abc123", "").await.json();
    let (after, took) = (now(), watch.elapsed());
    assert_eq!(told["api_key"], "abc123");
    let level = |used: u32, limit: u32| json!({ "used": used, "limit": limit, "remaining": limit - used });
    assert_eq!(told["usage"]["default"], level(53, 5000), "{told:#}");
    assert_eq!(told["usage"]["endpoint:POST /api/v1/orders"], level(18, 500), "{told:#}");
    assert_eq!(told["usage"]["endpoint:/log"], level(9, 90), "{told:#}");

    let at = |said: &Value| {
        let said = said.as_str().and_then(|said| said.parse::<Timestamp>().ok());
        said.unwrap_or_else(|| panic!("no time: {told:#}")).as_microsecond()
    };
    const APART: i64 = 50_000; // What the two clocks may differ by, for they began at different times.
    let slides = |window: &Value, seconds: i64| {
        let (start, end) = (at(&window["start"]), at(&window["end"]));
        assert_eq!(end - start, seconds * 1_000_000, "{window}");
        assert!((before - APART..=after + APART).contains(&end), "{window} is not until now, {before}");
    };
    slides(&told["current_window"], 60);
    let rules = told["rules"].as_array().expect("rules");
    let of = |descriptor: &str| {
        let found = rules.iter().find(|rule| rule["descriptor"] == descriptor);
        found.unwrap_or_else(|| panic!("no {descriptor} in {told:#}"))
    };
    slides(&of("default")["window"], 60);
    slides(&of("endpoint:POST /api/v1/orders")["window"], 60);
    for endpoint in ["endpoint:/log", "endpoint:/counter", "endpoint:/bucket"] {
        slides(&of(endpoint)["window"], 30);
    }
    assert_eq!(of("endpoint:/counter")["used"], 8, "{told:#}");
    // A bucket has less in it with time; a window that is aligned may have ended meanwhile.
    let leaked = 1 + took.as_secs() * 3;
    let in_bucket = of("endpoint:/bucket")["used"].as_u64().expect("a number");
    assert!((7_u64.saturating_sub(leaked)..=7).contains(&in_bucket), "{told:#}");
    let fixed = of("endpoint:/fixed");
    let (start, end) = (at(&fixed["window"]["start"]), at(&fixed["window"]["end"]));
    assert_eq!((start % 30_000_000, end - start), (0, 30_000_000), "{fixed}");
    assert!(start <= after && before <= end, "{fixed}");
    assert!(
        fixed["used"] == 6 || start > before - i64::try_from(took.as_micros()).expect("a time"),
        "{fixed}"
    );
    assert_eq!(
        (&of("default")["source"], &of("endpoint:POST /api/v1/orders")["source"]),
        (&json!("tier"), &json!("override"))
    );

    // Asking has charged nothing, and who is refused is charged nothing.
    let over = check(&mut http, &json!({ "clientId": "abc123", "endpoint": "/log", "cost": 82 })).await;
    assert_eq!(over["allowed"], false, "{over}");
    let again = admin.call("GET", "/admin/v1/usage/abc123", "").await.json();
    assert_eq!(again["usage"]["endpoint:/log"], level(9, 90), "{again:#}");
    assert_eq!(again["usage"]["default"], level(53, 5000), "{again:#}");
}
