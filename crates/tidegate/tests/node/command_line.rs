//! The verbs that ask a running node, and what is said to whoever starts one that cannot run.

use std::fs;

use crate::support::process::parse;
use crate::support::{Node, Setup};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { limit: 2/1h, name: per-user }
";

#[tokio::test]
async fn check_and_inspect_ask_the_node() {
    let node = Node::start(RULES);
    for (words, code, out) in [
        (
            &["check", "user=alice"][..],
            0,
            "admitted by shop|user#per-user\n  remaining  1 of 2\n  bound      +0/-0 (local)\n",
        ),
        (
            &["check", "user=alice", "--cost", "0"],
            0,
            "admitted by shop|user#per-user\n  remaining  1 of 2\n  bound      +0/-0 (local)\n",
        ),
        (
            &["check", "user=bob", "--cost", "3"],
            3,
            "refused by shop|user#per-user\n  remaining  2 of 2\n  passes in  no wait cures it \
             (COST_EXCEEDS_LIMIT)\n  bound      +0/-0 (local)\n",
        ),
        (&["check", "nobody=knows"], 0, "admitted; no limit was counted for it\n"),
        (
            &["check", "user=carol", "+", "user=dave", "--domain", "shop", "--cost", "2"],
            0,
            "admitted by shop|user#per-user\n  remaining  0 of 2\n  bound      +0/-0 (local)\n",
        ),
        (&["inspect", "nobody=knows"], 3, "no limit is counted for this request\n"),
    ] {
        let answer = node.ask(words);
        assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (code, out, ""), "{words:?}");
    }
    let refused = node.ask(&["check", "user=alice", "--cost", "2"]);
    assert_eq!(refused.code, 3);
    assert!(
        refused.out.contains("passes in  35") || refused.out.contains("passes in  3600"),
        "{}",
        refused.out
    );

    let held = node.ask(&["inspect", "user=carol"]);
    let row: Vec<&str> = held.out.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!((held.code, &row[..4]), (0, &["shop|user#per-user", "2", "0", "2"][..]), "{}", held.out);
    assert!(held.out.starts_with("RULE "));
    let held = parse(&node.ask(&["inspect", "user=carol", "--output", "json"]).out);
    assert_eq!(
        (&held["counters"][0]["used"], &held["counters"][0]["label"]),
        (&2.into(), &"sliding_window/1h".into())
    );
    let checked = parse(&node.ask(&["check", "user=erin", "--output", "json"]).out);
    assert_eq!((&checked["allowed"], &checked["remaining"]), (&true.into(), &1.into()));

    for (words, code, told) in [
        (&["check", "alice"][..], 1, "tidegate: `alice` is no entry: write key=value\n"),
        (&["check", "=alice"], 1, "tidegate: `=alice` is no entry: write key=value\n"),
        (&["check", "user=a", "+"], 0, ""),
    ] {
        let answer = node.ask(words);
        assert_eq!((answer.code, answer.err.as_str()), (code, told), "{words:?}");
    }
    assert_eq!(node.ask(&["check"]).code, 2, "wrong usage");
}

#[tokio::test]
async fn counters_are_reset_by_whoever_means_it() {
    let node = Node::start(RULES);
    assert_eq!(node.ask(&["check", "user=alice", "--cost", "2"]).code, 0);
    assert_eq!(node.ask(&["check", "user=alice"]).code, 3);
    let unasked = node.ask(&["inspect", "--reset", "user=alice"]);
    assert_eq!((unasked.code, unasked.out.as_str()), (1, ""), "nobody is at a terminal");
    assert!(unasked.err.contains("add --yes"), "{}", unasked.err);
    assert_eq!(node.ask(&["check", "user=alice"]).code, 3, "nothing was reset");
    assert_eq!(node.ask(&["inspect", "--yes", "user=alice"]).code, 2, "yes to what?");
    for was_there in ["yes", "no"] {
        let reset = node.ask(&["inspect", "--reset", "--yes", "user=alice"]);
        let row: Vec<&str> = reset.out.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!((reset.code, &row[..2]), (0, &["shop|user#per-user", was_there][..]), "{}", reset.out);
    }
    let none = node.ask(&["inspect", "--reset", "--yes", "nobody=knows"]);
    assert_eq!((none.code, none.out.as_str()), (3, "no limit is counted for this request\n"));
    assert_eq!(node.ask(&["check", "user=alice"]).code, 0);
}

#[tokio::test]
async fn who_asks_no_node_is_told_what_to_do() {
    let node = Node::start(RULES);
    let (rls, http) = (node.rls.to_string(), node.http.to_string());
    // The other listener does not speak HTTP/1.1.
    let wrong = node.setup.run(&["check", "user=a", "--node", &rls, "--timeout", "10"]);
    assert_eq!(wrong.code, 1);
    let advice = "is it running, and is this its HTTP listener? (--node, `tidegate run`)\n";
    assert!(
        wrong.err.starts_with(&format!("tidegate: the node at {rls} cannot be asked: ")),
        "{}",
        wrong.err
    );
    assert!(wrong.err.ends_with(advice), "{}", wrong.err);
    let setup = node.setup.clone();
    drop(node);
    for verb in ["check", "inspect", "explain"] {
        let gone = setup.run(&[verb, "user=a", "--node", &http]);
        assert_eq!((gone.code, gone.out.as_str()), (1, ""));
        let told = format!(
            "tidegate: the node at {http} cannot be asked: Connection refused (os error 111); {advice}"
        );
        assert_eq!(gone.err, told);
    }
}

#[tokio::test]
async fn a_second_node_is_told_what_it_collides_with() {
    let node = Node::start(RULES);
    let (rls, http) = (node.rls.to_string(), node.http.to_string());
    let same_data = node.setup.run_node();
    assert_eq!(same_data.code, 1);
    assert!(
        same_data.err.ends_with(
            "tidegate: node.data: data: another node uses this folder; give each its own by node.data\n"
        ),
        "{}",
        same_data.err
    );
    for (flag, setting, address) in
        [("rls-listen", "rls.listen", &rls), ("http-listen", "http.listen", &http)]
    {
        let answer = node.setup.clone().set(flag, address).set("node-data", "other").run_node();
        let told = format!(
            "tidegate: {setting}: {address} cannot be listened on: Address already in use (os error 98)\n"
        );
        assert_eq!((answer.code, answer.out.as_str()), (1, ""));
        assert!(answer.err.ends_with(&told), "{}", answer.err);
        assert!(!node.setup.path().join("other").exists(), "nothing was touched");
    }
    assert_eq!(node.http().await.get("/readyz").await.status, 200, "the first one goes on");
}

#[tokio::test]
async fn a_node_that_cannot_run_says_why() {
    let setup = Setup::new("domain: shop\ndescriptors:\n  - key: user\n    rate_limt: { limit: 2/1h }\n");
    let answer = setup.run_node();
    assert_eq!((answer.code, answer.out.as_str()), (78, ""));
    assert!(answer.err.contains("rate_limit") && answer.err.contains("rules.yaml"), "{}", answer.err);

    let setup = Setup::new(RULES);
    fs::create_dir(setup.path().join("data")).expect("a folder");
    fs::write(setup.path().join("data/secret"), "no secret\n").expect("written");
    let answer = setup.run_node();
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("data/secret: not a secret of 32 hexadecimal digits"), "{}", answer.err);

    let setup = Setup::new(RULES).set("internal-secrets-file", "secrets");
    assert!(setup.run_node().err.contains("internal.secrets_file: secrets: No such file"), "missing");
    setup.write("secrets", "short\n");
    let answer = setup.run_node();
    assert!(
        answer.err.contains("the secret in line 1 has 5 bytes, at least 16 are needed"),
        "{}",
        answer.err
    );
    assert_eq!(setup.set("rls-listen", "nowhere").run_node().code, 78);

    let setup = Setup::new(RULES).set("store-url", "ftp://tide:secret@here");
    let answer = setup.run_node();
    assert_eq!((answer.code, answer.out.as_str()), (78, ""));
    for words in ["error[bad-store-url]", "--> --store-url:1:1", "warning[password-in-url]"] {
        assert!(answer.err.contains(words), "no {words} in {}", answer.err);
    }
    assert!(!answer.err.contains("secret"), "{}", answer.err);
}

#[tokio::test]
async fn without_rules_it_runs_on_demo_rules_and_shows_how_to_try_them() {
    let setup = Setup::new(RULES);
    fs::remove_dir_all(setup.path().join("rules")).expect("removed");
    let node = setup.start();
    let mut http = node.http().await;
    let call = r#"{"clientId": "alice", "endpoint": "GET /orders"}"#;
    for _ in 0..5 {
        assert_eq!(http.post("/v1/check?enforce", call).await.status, 200);
    }
    let refused = http.post("/v1/check?enforce", call).await;
    assert_eq!((refused.status, &refused.json()["error"]["code"]), (429, &"RATE_LIMITED".into()));
}

#[test]
fn shells_can_complete_every_verb() {
    let setup = Setup::new(RULES);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let answer = setup.run(&["completions", shell]);
        assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{shell}");
        for verb in ["run", "check", "explain", "inspect", "config", "test", "completions"] {
            assert!(answer.out.contains(verb), "{shell}: {verb}");
        }
    }
    assert_eq!(setup.run(&["completions", "nushell"]).code, 2);
}
