//! RLS at a socket of the file system.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;

use rustix::process::Signal;

use crate::support::{Node, Setup, asks, descriptor, until};

const RULES: &str = "domain: shop
descriptors:
  - key: few
    rate_limit: { unit: day, requests_per_unit: 2 }
";

fn setup() -> Setup {
    Setup::new(RULES).set("rls-listen", "unix:rls.sock")
}

/// The codes of so many requests, over one connection.
async fn codes(node: &Node, count: usize) -> Vec<i32> {
    let (rls, mut codes) = (node.rls().await, Vec::new());
    for _ in 0..count {
        codes.push(rls.ask(&asks("shop", [descriptor(&[("few", "a")])])).await.overall_code);
    }
    codes
}

#[tokio::test]
async fn a_node_answers_at_a_socket_and_takes_it_away_at_its_end() {
    let setup = setup(); // Its folder outlives the node.
    let node = setup.start();
    let path = node.rls_socket.clone().expect("a socket");
    assert!(fs::metadata(&path).expect("a file").file_type().is_socket());
    assert_eq!(codes(&node, 3).await, [1, 1, 2]);
    let rls = node.rls().await; // It is still connected when the node ends.
    let (code, log) = node.stop().await;
    assert_eq!(code, 0, "{log}");
    assert!(!path.exists() && setup.path().exists(), "{log}");
    assert!(!log.contains("spend everybody's limits"), "{log}");
    drop(rls);
}

#[tokio::test]
async fn places_of_one_address_do_not_hold_for_a_socket() {
    let node = setup().set("rls-connections-per-peer-max", "1").set("rls-connections-max", "2").start();
    let (one, _two) = (node.rls().await, node.rls().await);
    assert_eq!(one.ask(&asks("shop", [descriptor(&[("few", "a")])])).await.overall_code, 1);
    assert_eq!(node.metric("tidegate_connections", "server=\"rls\"").await, 2);
}

#[tokio::test]
async fn a_socket_that_was_left_behind_is_replaced() {
    let mut killed = setup().start();
    let (setup, path) = (killed.setup.clone(), killed.rls_socket.clone().expect("a socket"));
    killed.kill();
    assert!(path.exists(), "nobody was there to remove it");
    let node = setup.start();
    assert_eq!(codes(&node, 1).await, [1]);
    assert!(node.log().contains("left behind"), "{}", node.log());
    // Told to end twice, it removes it too.
    drop(node);
    let setup = setup.set("node-drain-delay", "1m").set("rls-listen", "unix:slow.sock");
    let slow = setup.start();
    let path = slow.rls_socket.clone().expect("a socket");
    slow.signal(Signal::TERM);
    until("its end begins", async || slow.log().contains("ending").then_some(())).await;
    slow.signal(Signal::TERM);
    slow.ended().await;
    assert!(!path.exists() && setup.path().exists());
}

#[tokio::test]
async fn what_is_in_use_and_what_is_no_socket_stays() {
    let setup = setup();
    let node = setup.start();
    let path = node.rls_socket.clone().expect("a socket");
    let second = setup.clone().set("node-data", "other").run_node();
    assert_ne!(second.code, 0);
    assert!(
        second.err.contains("unix:rls.sock cannot be listened on: another process listens there"),
        "{}",
        second.err
    );
    assert_eq!(codes(&node, 1).await, [1], "it was not disturbed");
    // Somebody puts another into its place: that one is not this node's to remove.
    fs::remove_file(&path).and_then(|()| fs::write(&path, "mine")).expect("written");
    let again = setup.clone().set("node-data", "other").run_node();
    assert!(again.err.contains("there is a file that is no socket"), "{}", again.err);
    assert_eq!(node.stop().await.0, 0);
    assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("mine"));
}

#[test]
fn a_path_that_is_too_long_is_told_at_once() {
    let long = format!("unix:/run/{}", "a".repeat(200));
    let answer = Setup::new(RULES).set("rls-listen", &long).run_node();
    assert_eq!(answer.code, 78, "{}", answer.err);
    assert!(
        answer.err.contains("the path of a socket has at most 107 bytes, and this one 205"),
        "{}",
        answer.err
    );
    assert_eq!(answer.err.matches("error[bad-socket]").count(), 1, "{}", answer.err);
}
