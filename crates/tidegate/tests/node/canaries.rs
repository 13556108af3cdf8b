//! Secrets and names of customers that can be told from everything else, wherever one can stand: they must not be found where anybody but
//! the operator's database may look.

use std::fs;
use std::path::Path;

use tidegate_control::{ControlStore, Options as StoreOptions};
use tidegate_testbed::{Kind, Options, Postgres, PostgresOptions, Server};

use crate::control::Admin;
use crate::support::certificates::Authority;
use crate::support::{Http, Node, Setup, until};

const RULES: &str = "\
domain: api
match: path
descriptors:
  - key: api_key
    rate_limit: { limit: 2/1h, name: per-key }
    descriptors:
      - key: endpoint
        rate_limit: { limit: 1/1h, name: per-endpoint }
  - key: trial
    shadow_mode: true
    rate_limit: { limit: 1/1h }
";

const KEY: &str = "canary-key-7f3a";
const KEPT_KEY: &str = "canary-kept-51bc";
const VALUE: &str = "canary-value-99d0";
const HEADER: &str = "canary-header-42aa";
const BAD: &str = "canary-bad-body-6c1e";
const BAD_TOKEN: &str = "tg_0badf00d_canary0000000000000000000000000000000000000000000000000000cafe";
const REDIS_PASSWORD: &str = "canary-redis-password-3d";
const SQL_PASSWORD: &str = "canary-sql-password-8e";

struct Bed {
    setup: Setup,
    redis: Option<Server>,
    postgres: Option<Postgres>,
    /// Lines of the key of a certificate.
    tls_key: Vec<String>,
}

fn bed(redis: bool, postgres: bool) -> Bed {
    let mut setup = Setup::new(RULES)
        .controlled()
        .set("log-level", "trace")
        .set("log-refusals-per-second", "1000")
        .set("log-refusals-file", "refusals.jsonl")
        .set("store-timeout", "10s")
        .set("node-deadline", "20s");
    let certificate = Authority::new().sign("localhost");
    setup.write("cert.pem", &certificate.chain);
    setup.write("key.pem", &certificate.key);
    setup = setup.set("rls-tls-certificate", "cert.pem").set("rls-tls-key", "key.pem");
    let tls_key = certificate.key.lines().filter(|line| !line.starts_with('-')).map(String::from).collect();
    let redis = redis.then(|| {
        let options = Options::new().password(REDIS_PASSWORD);
        Server::start(Kind::Redis, &options).unwrap_or_else(|error| panic!("{error}"))
    });
    if let Some(redis) = &redis {
        setup.write("redis-password", REDIS_PASSWORD);
        let url = format!("redis://{}", redis.address());
        setup = setup.set("store-url", &url).set("store-password-file", "redis-password");
    }
    let postgres = postgres.then(|| Postgres::start(&PostgresOptions::new()).expect("PostgreSQL"));
    if let Some(postgres) = &postgres {
        // In both ways in which a URL can have one. (This server trusts everybody.)
        let url = postgres.url("postgres").replacen('@', &format!(":{SQL_PASSWORD}@"), 1);
        let url = format!("{url}{}password={SQL_PASSWORD}", if url.contains('?') { '&' } else { '?' });
        assert_eq!(url.matches(SQL_PASSWORD).count(), 2, "{url}");
        setup = setup.set("control-database", &url);
    }
    Bed { setup, redis, postgres, tls_key }
}

/// Whatever makes a node say something.
async fn exercise(node: &Node) -> Vec<String> {
    let admin = Admin::of(node).await;
    let mut secrets = vec![admin.token.clone()];
    for (method, path, body) in [
        (
            "PUT",
            format!("/admin/v1/quotas/{KEPT_KEY}"),
            r#"{"tier": "pro", "userId": "canary-user"}"#.to_owned(),
        ),
        ("PUT", format!("/admin/v1/quotas/{KEPT_KEY}"), format!(r#"{{"tier": 5, "x": "{BAD}"}}"#)),
        ("PUT", format!("/admin/v1/quotas/{KEPT_KEY}"), format!("{{{BAD}")),
        ("GET", format!("/admin/v1/quotas/{KEPT_KEY}"), String::new()),
        ("GET", format!("/admin/v1/usage/{KEPT_KEY}"), String::new()),
        ("DELETE", format!("/admin/v1/usage/{KEPT_KEY}"), String::new()),
        ("GET", format!("/admin/v1/quotas?prefix={KEPT_KEY}"), String::new()),
        ("GET", format!("/admin/v1/nothing/{KEPT_KEY}"), String::new()),
    ] {
        admin.call(method, &path, &body).await;
    }
    let made = admin.call("POST", "/admin/v1/tokens", r#"{"name": "ci", "scope": "read"}"#).await;
    let made = made.json();
    let text = made["token"].as_str().or_else(|| made["secret"].as_str());
    secrets.push(text.unwrap_or_else(|| panic!("a token: {made}")).to_owned());
    let nobody = Admin { node, token: BAD_TOKEN.into() };
    nobody.call("GET", &format!("/admin/v1/quotas/{KEPT_KEY}"), "").await;

    let headers = [("authorization", HEADER), ("cookie", HEADER), ("x-api-key", HEADER)];
    let entries = |key: &str| {
        format!(
            r#"{{"domain": "api", "descriptors": [{{"entries": [{{"key": "api_key", "value": "{key}"}},
                {{"key": "endpoint", "value": "{VALUE}"}}]}}, {{"entries": [{{"key": "trial", "value": "{VALUE}"}}]}}]}}"#
        )
    };
    for key in [KEY, KEPT_KEY] {
        for path in
            ["/v1/check", "/v1/check?enforce", "/v1/check?explain", "/v1/inspect", "/v1/check?enforce"]
        {
            let reply = node.http().await.request("POST", path, &headers, &entries(key)).await;
            assert!(reply.status < 500, "{path}: {}", reply.body);
        }
    }
    for body in [
        BAD.to_owned(),
        format!(r#"{{"domain": 5, "x": "{BAD}"}}"#),
        entries(KEY).replace("\"api\"", "\"none\""),
    ] {
        node.http().await.request("POST", "/v1/check", &headers, &body).await;
    }
    node.http().await.request("GET", &format!("/{BAD}?{BAD}"), &headers, "").await;
    node.http().await.request("POST", "/v1/counters/reset", &headers, &entries(KEY)).await;
    secrets
}

/// Everything below a folder, but what is documented to hold names or secrets.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    let documented = |name: &str| {
        // The database and what was last known of it have API keys as identifiers; the rest is what the operator wrote.
        ["control.sqlite", "control-last-good", "redis-password", "key.pem"]
            .iter()
            .any(|known| name.starts_with(known))
    };
    for entry in fs::read_dir(folder).expect("a folder").map_while(Result::ok) {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            files(&path, found);
        } else if !documented(&name) {
            found.push((path.display().to_string(), fs::read(&path).expect("bytes")));
        }
    }
}

#[tokio::test]
async fn secrets_and_names_are_found_nowhere_but_where_they_belong() {
    for (redis, postgres) in [(false, false), (true, true)] {
        let Bed { setup, redis, postgres, tls_key } = bed(redis, postgres);
        let node = setup.start();
        let secrets = exercise(&node).await;
        until("refusals are written", async || {
            (node.metric("tidegate_refusals_file_lines_total", "").await > 2).then_some(())
        })
        .await;
        let mut places: Vec<(String, Vec<u8>)> = Vec::new();
        for path in ["/metrics", "/readyz?verbose", "/v1/top", "/livez"] {
            places.push((path.into(), node.http().await.get(path).await.body.into_bytes()));
        }
        let openapi = Http::connect(node.admin.expect("an API")).await.get("/openapi.json").await;
        places.push(("openapi".into(), openapi.body.into_bytes()));
        if let Some(redis) = &redis {
            for key in redis.keys() {
                let value = format!("{:?}", redis.command(&[&b"DUMP"[..], &key]));
                places.push(("a key of Redis".into(), key));
                places.push(("a value of Redis".into(), value.into_bytes()));
            }
            assert!(places.iter().filter(|(place, _)| place == "a key of Redis").count() > 2);
            // Both stores fail, and that is told.
            redis.kill();
            exercise_failures(&node).await;
        }
        let options = match &postgres {
            Some(postgres) => StoreOptions::postgres(postgres.url("postgres")),
            None => StoreOptions::sqlite(setup.path().join("data/control.sqlite")),
        };
        let store = ControlStore::open(&options).await.expect("a store");
        // API keys are its identifiers; texts of tokens are not in there.
        let mut backup = store.backup().await.expect("a backup");
        let mut kept = String::new();
        while let Some(lines) = backup.next().await.expect("lines") {
            kept += &lines;
        }
        assert!(kept.contains(KEPT_KEY));
        for secret in secrets.iter().chain([&BAD_TOKEN.to_owned()]) {
            assert!(!kept.contains(secret), "the database has the text of a token");
        }
        if let Some(postgres) = &postgres {
            postgres.kill();
            let admin = Admin { node: &node, token: secrets[0].clone() };
            let address = node.admin.expect("an API");
            let bearer = format!("Bearer {}", admin.token);
            let path = format!("/admin/v1/quotas/{KEPT_KEY}");
            Http::connect(address).await.request("GET", &path, &[("authorization", &bearer)], "").await;
            until("it is told", async || node.log().contains("does not answer").then_some(())).await;
        }
        let shown = setup.run(&[
            "config",
            "settings",
            "--control-database",
            &format!("postgres://u:{SQL_PASSWORD}@h/d?x=y&password={SQL_PASSWORD}"),
        ]);
        places.push(("config settings".into(), (shown.out + &shown.err).into_bytes()));
        let (_, log) = node.stop().await;
        let bootstrap = &secrets[0];
        assert_eq!(log.matches(bootstrap.as_str()).count(), 1, "the first token is shown once");
        places.push(("the log".into(), log.replace(bootstrap.as_str(), "").into_bytes()));
        files(setup.path(), &mut places);
        assert!(places.iter().any(|(place, _)| place.ends_with("refusals.jsonl")));

        let fixed = [KEY, KEPT_KEY, VALUE, HEADER, BAD, BAD_TOKEN, REDIS_PASSWORD, SQL_PASSWORD, "canary"];
        let canaries =
            fixed.iter().map(|text| (*text).to_owned()).chain(secrets.iter().cloned()).chain(tls_key);
        let mut hits = Vec::new();
        for canary in canaries {
            for (place, bytes) in &places {
                if let Some(at) = bytes.windows(canary.len()).position(|window| window == canary.as_bytes()) {
                    let around = &bytes[at.saturating_sub(160)..(at + 60).min(bytes.len())];
                    hits.push(format!("{canary} in {place}: …{}…", String::from_utf8_lossy(around)));
                }
            }
        }
        assert!(hits.is_empty(), "{}", hits.join("\n\n"));
    }
}

async fn exercise_failures(node: &Node) {
    let body = format!(
        r#"{{"domain": "api", "descriptors": [{{"entries": [{{"key": "api_key", "value": "{KEY}"}}]}}]}}"#
    );
    for path in ["/v1/check", "/v1/inspect", "/v1/check?explain"] {
        node.http().await.request("POST", path, &[("authorization", HEADER)], &body).await;
    }
}
