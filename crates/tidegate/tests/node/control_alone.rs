//! A process that has the control plane's API and decides nothing, by its sockets and by what it answers.

use crate::control::{Admin, Kept};
use crate::support::until;

const CHECK: &str =
    r#"{"domain": "api", "descriptors": [{"entries": [{"key": "api_key", "value": "alice"}]}]}"#;

#[tokio::test]
async fn it_has_the_api_and_its_health_and_nothing_else() {
    for kept in Kept::both() {
        let node = kept.setup.clone().set("node-role", "control").start();
        let admin_address = node.admin.expect("an API");
        let mut expected = vec![node.http.port(), admin_address.port()];
        expected.sort_unstable();
        assert_eq!(node.listens_on(), expected, "the API, and health and metrics");
        assert!(
            !node.greeting.contains("RLS") && node.greeting.contains("decides nothing"),
            "{}",
            node.greeting
        );

        let admin = Admin::of(&node).await;
        let put = admin.call("PUT", "/admin/v1/quotas/alice", r#"{"tier": "pro"}"#).await;
        assert_eq!(put.status, 200, "{}", put.body);
        let ready = async || (node.http().await.get("/readyz").await.status == 200).then_some(());
        until("it is ready", ready).await;
        let told = node.http().await.get("/readyz?verbose").await.body;
        let follows_nobody = "SQLite serves no other: what is changed here holds nowhere";
        assert_eq!(told.contains(follows_nobody), kept.postgres.is_none(), "{told}");
        for path in ["/livez", "/healthz", "/healthcheck", "/metrics"] {
            assert_eq!(node.http().await.get(path).await.status, 200, "{path}");
        }
        for path in ["/v1/check", "/v1/acquire", "/v1/refund", "/v1/inspect", "/v1/counters/reset"] {
            let reply = node.http().await.post(path, CHECK).await;
            assert_eq!(reply.status, 404, "{path}: {}", reply.body);
            assert!(reply.body.contains("decides nothing"), "{path}: {}", reply.body);
        }
        assert_eq!(node.http().await.get("/v1/top").await.status, 404);
        let (code, log) = node.stop().await;
        assert_eq!(code, 0, "{log}");
        assert!(!log.contains("this node limits alone"), "{log}");
        assert_eq!(log.contains(follows_nobody), kept.postgres.is_none(), "{log}");
    }
}

/// The counters are in the memory of the nodes that decide: what it could tell, and reset, are its own, which nobody ever charges.
#[tokio::test]
async fn it_neither_tells_nor_resets_usage_that_others_have_in_memory() {
    for kept in Kept::both() {
        let node = kept.setup.clone().set("node-role", "control").start();
        let admin = Admin::of(&node).await;
        for method in ["GET", "DELETE"] {
            let refused = admin.call(method, "/admin/v1/usage/alice", "").await;
            assert_eq!(refused.status, 409, "{method}: {}", refused.body);
            let problem = refused.json();
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert_eq!(problem["type"], "urn:tidegate:problem:counted-elsewhere", "{problem}");
            for part in ["decides nothing", "in the memory of the nodes that decide", "store.url"] {
                assert!(detail.contains(part), "{method}: {problem}");
            }
        }
        let audit = admin.call("GET", "/admin/v1/audit?kind=usage", "").await;
        assert_eq!(audit.json()["items"], serde_json::json!([]), "nothing was reset: {}", audit.body);
    }
}

#[tokio::test]
async fn it_does_not_start_without_what_it_is_for() {
    let kept = &Kept::both()[0];
    let alone = kept.setup.clone().set("node-role", "control");
    let answer = alone.clone().set("control-enabled", "false").run_node();
    assert!(answer.code != 0 && answer.err.contains("control.enabled"), "{answer:?}");
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("its address").to_string();
    let answer = alone.clone().set("control-listen", &taken).run_node();
    assert!(answer.code != 0 && answer.err.contains("control.listen"), "{answer:?}");
    // An address that nobody asked for may be taken; here there would be nothing left. If we do not get it, somebody else has it.
    let usual = std::net::TcpListener::bind("127.0.0.1:8082");
    let answer = alone.without("control-listen").run_node();
    assert!(answer.code != 0 && answer.err.contains("control.listen"), "{answer:?} {usual:?}");
}
