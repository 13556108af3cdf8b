//! From edit to effect: a quota is changed by the API of one of three nodes on a PostgreSQL, and all are asked until it holds.

use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_control::api::auth::{self, Wish};
use tidegate_control::{ControlStore, Options, Scope, Who};
use tidegate_testbed::{Postgres, PostgresOptions};

use crate::node::{DOMAIN, Http, Node, pause};
use crate::plan::Plan;
use crate::results::Edits;

const NODES: usize = 3;
/// Between two edits, so that each stands for itself: nodes look twenty times a second at most.
const PAUSE: Duration = Duration::from_millis(75);
/// Between two looks at a node.
const LOOK: Duration = Duration::from_micros(200);
/// An edit that does not hold by then is none.
const HOLDS_MAX: Duration = Duration::from_secs(30);

pub(crate) fn measure(plan: &Plan) -> Result<Edits, String> {
    eprintln!("{} edits over {NODES} nodes", plan.edits);
    let postgres = Postgres::start(&PostgresOptions::new().syncs())?;
    let url = postgres.url("postgres");
    let flags = [("control-database", url.as_str())];
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(Node::start("tidegate", None, &flags, |_| Ok(()))?);
    }
    let token = token(&url)?;
    let (mut answered_us, mut on_all_us) = (Vec::new(), Vec::new());
    let mut admin = Http::connect(nodes[0].admin)?;
    let mut looks = nodes.iter().map(|node| Http::connect(node.http)).collect::<Result<Vec<_>, _>>()?;
    for edit in 1..=plan.edits {
        pause(PAUSE);
        let body = format!(
            r#"{{"overrides": [{{"descriptor": "default", "requests_per_unit": {edit}, "unit": "hour"}}]}}"#
        );
        let watch = Stopwatch::start();
        let (status, said) = admin.ask("PUT", "/admin/v1/quotas/caller", Some(&token), &body)?;
        if status >= 300 {
            return Err(format!("the API answers {status}: {said}"));
        }
        answered_us.push(micros(watch.elapsed()));
        for look in &mut looks {
            while limit(look)? != Some(u64::from(edit)) {
                if watch.elapsed() > HOLDS_MAX {
                    return Err(format!("edit {edit} does not hold"));
                }
                pause(LOOK);
            }
        }
        on_all_us.push(micros(watch.elapsed()));
    }
    Ok(Edits { nodes: NODES, answered_us, on_all_us })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The limit that holds, without charging.
fn limit(http: &mut Http) -> Result<Option<u64>, String> {
    let body = format!(
        r#"{{"domain": "{DOMAIN}", "descriptors": [{{"entries": [{{"key": "api_key", "value": "caller"}}], "hitsAddend": 0}}]}}"#
    );
    let (_, said) = http.ask("POST", "/v1/check", None, &body)?;
    let told: serde_json::Value = serde_json::from_str(&said).map_err(|error| format!("{error}: {said}"))?;
    Ok(told["limit"].as_u64())
}

fn token(url: &str) -> Result<String, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let of = |error: tidegate_control::Error| format!("no token: {error}");
        let store = ControlStore::open(&Options::postgres(url)).await.map_err(of)?;
        let wish = Wish { name: "bench".into(), scope: Scope::Write, tenant: None, expires_at: None };
        let (_, secret) = auth::create(&store, &Who::new("bench", ""), wish).await.map_err(of)?;
        Ok(secret.reveal().to_owned())
    })
}
