//! Calls that come from inside: known by a signed header over HTTP and the same metadata over gRPC.

use tidegate_clock::Clock;
use tidegate_server::{INTERNAL_CALL, sign};

use crate::support::{Node, Setup, asks, descriptor, until};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { limit: 1/1h }
---
domain: inside
descriptors:
  - key: user
    rate_limit: { limit: 3/1h }
";

const OLD: &str = "the secret that was used until now";
const NEW: &[u8] = b"the secret that is used from now on";
const BODY: &str = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}"#;

fn setup() -> Setup {
    let setup = Setup::new(RULES).set("internal-secrets-file", "secrets");
    let digits: String = NEW.iter().map(|byte| format!("{byte:02x}")).collect();
    setup.write("secrets", &format!("# rotated\n{OLD}\nhex:{digits}\n"));
    setup
}

fn now_s() -> u64 {
    Clock::real().wall_now_us() / 1_000_000
}

/// Is such a call admitted, over RLS and over HTTP?
async fn admitted(node: &Node, header: &str) -> [bool; 2] {
    let rls = node.rls().await;
    let request = asks("shop", [descriptor(&[("user", "a")])]);
    let rls = rls.try_ask(&request, &[(INTERNAL_CALL, header)]).await.expect("an answer");
    let http = node.http().await.request("POST", "/v1/check", &[(INTERNAL_CALL, header)], BODY).await;
    [rls.overall_code == 1, http.json()["allowed"] == true]
}

#[tokio::test]
async fn who_shows_that_it_is_from_inside_is_not_limited() {
    let node = setup().start();
    for _ in 0..3 {
        for secret in [OLD.as_bytes(), NEW] {
            assert_eq!(admitted(&node, &sign(secret, Some("billing"), now_s())).await, [true, true]);
        }
    }
    assert_eq!(node.used(BODY).await, [0], "nor counted");
    assert_eq!(node.metric("tidegate_internal_calls_total", "result=\"verified\"").await, 12);
}

#[tokio::test]
async fn who_only_says_so_is_limited_as_everybody_and_counted() {
    let node = setup().start();
    let good = sign(NEW, Some("billing"), now_s());
    let forged = good.replace("n=billing", "n=admin");
    let cases = [
        (forged, "wrong"),
        (sign(b"another secret of some length", None, now_s()), "wrong"),
        (sign(NEW, None, now_s() - 120), "stale"),
        (sign(NEW, None, now_s() + 120), "stale"),
        ("yes".to_string(), "malformed"),
        (String::new(), "malformed"),
        (good.to_uppercase(), "malformed"),
    ];
    for (at, (header, result)) in cases.iter().enumerate() {
        let before = node.metric("tidegate_internal_calls_total", &format!("result=\"{result}\"")).await;
        assert_eq!(admitted(&node, header).await, [at == 0, false], "{header}");
        let after = node.metric("tidegate_internal_calls_total", &format!("result=\"{result}\"")).await;
        assert_eq!(after, before + 2, "{header}");
    }
    assert_eq!(node.used(BODY).await, [1]);
    assert_eq!(node.metric("tidegate_internal_calls_total", "result=\"verified\"").await, 0);
    // Where no secret is set, nobody is from inside, and the header is nothing.
    let open = Node::start(RULES);
    assert_eq!(admitted(&open, &good).await, [true, false]);
    assert_eq!(open.metric("tidegate_internal_calls_total", "").await, 0);
}

#[tokio::test]
async fn calls_from_inside_can_have_limits_of_their_own() {
    let node = setup().set("internal-domain", "inside").set("internal-max-age", "5m").start();
    let header = sign(NEW, None, now_s() - 200);
    assert_eq!(admitted(&node, &header).await, [true, true]);
    assert_eq!(admitted(&node, &header).await, [true, false], "the fourth of three");
    assert_eq!(node.used(BODY).await, [0], "the limits of others are not touched");
    assert_eq!(admitted(&node, "").await, [true, false]);
}

#[tokio::test]
async fn secrets_rotate_while_the_node_runs() {
    let setup = setup();
    let node = setup.start();
    let third = b"the secret of the day after tomorrow";
    assert_eq!(
        admitted(&node, &sign(third, None, now_s())).await,
        [true, false],
        "the first call is not refused"
    );
    setup.write("secrets", std::str::from_utf8(third).expect("text"));
    until("the new secret holds", async || {
        let header = sign(third, None, now_s());
        let answer = node.http().await.request("POST", "/v1/check", &[(INTERNAL_CALL, &header)], BODY).await;
        (answer.json()["allowed"] == true).then_some(())
    })
    .await;
    setup.write("secrets", "short\n");
    until("the mistake is told", async || {
        node.log().contains("secrets of internal calls not loaded").then_some(())
    })
    .await;
    assert_eq!(admitted(&node, &sign(third, None, now_s())).await, [true, true], "the old ones stay");
}

const PLACES: &str = "domain: shop\ndescriptors:\n  - { key: conc, rate_limit: { limit: 2, algorithm: concurrency, ttl: 1h } }\n";

#[tokio::test]
async fn places_that_were_taken_inside_are_given_back_there() {
    let rules = format!("{PLACES}---\n{}", PLACES.replace("shop", "inside"));
    let setup = Setup::new(&rules).set("internal-secrets-file", "secrets").set("internal-domain", "inside");
    setup.write("secrets", OLD);
    let node = setup.start();
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"conc","value":"a"}]}],"id":"one"}"#;
    let look = r#"{"domain":"inside","descriptors":[{"entries":[{"key":"conc","value":"a"}]}]}"#;
    let mut http = node.http().await;
    for (path, used) in [("/v1/acquire", 1), ("/v1/renew", 1), ("/v1/release", 0)] {
        let header = sign(OLD.as_bytes(), None, now_s());
        let answer = http.request("POST", path, &[(INTERNAL_CALL, &header)], body).await;
        assert_eq!(answer.json()["allowed"], true, "{path}: {}", answer.body);
        assert_eq!(node.used(look).await, [used], "{path}");
    }
}

#[tokio::test]
async fn who_calls_from_inside_gives_back_what_was_taken_outside() {
    let setup = Setup::new(PLACES).set("internal-secrets-file", "secrets");
    setup.write("secrets", OLD);
    let node = setup.start();
    let body = r#"{"descriptors":[{"entries":[{"key":"conc","value":"a"}]}],"id":"one"}"#;
    let look = r#"{"descriptors":[{"entries":[{"key":"conc","value":"a"}]}]}"#;
    let mut http = node.http().await;
    assert_eq!(http.post("/v1/acquire", body).await.json()["allowed"], true);
    assert_eq!(node.used(look).await, [1]);
    let header = sign(OLD.as_bytes(), None, now_s());
    let answer = http.request("POST", "/v1/release", &[(INTERNAL_CALL, &header)], body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(node.used(look).await, [0]);
}
