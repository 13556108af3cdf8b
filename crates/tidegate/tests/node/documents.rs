//! What README and documents show is what a node with the demo rules answers.

use std::path::Path;

use crate::control::Admin;
use crate::support::{Setup, at_once, until};

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name))
        .expect("a document")
}

/// The blocks of a document: what stands behind the fence, and the text.
fn blocks(text: &str) -> Vec<(String, String)> {
    let (mut blocks, mut lines) = (Vec::new(), text.lines());
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let body: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
            blocks.push((kind.to_string(), body.join("\n")));
        }
    }
    blocks
}

#[tokio::test]
async fn the_first_thirty_seconds_are_as_the_readme_says() {
    let readme = read("README.md");
    let curl = readme.lines().find(|line| line.starts_with("curl ")).expect("a curl to try");
    let shown =
        blocks(&readme).into_iter().find(|(_, text)| text.starts_with("HTTP/1.1 429")).expect("a refusal").1;
    let part = |start: &str| {
        curl.split(start).nth(1).and_then(|rest| rest.split('\'').next()).expect("a part of it")
    };
    let (path, body) = (part("'http://127.0.0.1:8080"), part("-d '"));
    let (node, refused) = at_once(async |_| {
        let node = Setup::demo().start();
        let mut http = node.http().await;
        for _ in 0..5 {
            assert_eq!(http.post(path, body).await.status, 200);
        }
        let refused = http.post(path, body).await;
        (node, refused)
    })
    .await;
    assert_eq!(refused.status, 429);
    let (head, shown_body) = shown.split_once("\n\n").expect("a body");
    assert_eq!(refused.body, shown_body);
    for line in head.lines().skip(1) {
        let (name, value) = line.split_once(": ").expect("a header");
        // It is a time of the day on which it was written.
        if name != "x-ratelimit-reset" {
            assert_eq!(refused.header(name), value, "{name}");
        }
    }
    let explained =
        blocks(&readme).into_iter().find(|(_, text)| text.starts_with("$ tidegate explain")).expect("it").1;
    let (command, told) = explained.split_once('\n').expect("its answer");
    let words: Vec<&str> = command.split_whitespace().skip(2).collect();
    let answer = node.ask(&words);
    // How long it still takes depends on how long it took to ask.
    let (said, wait) = told.split_once("; it passes in ").expect("a wait");
    assert_eq!(wait, "10 s");
    let seconds = answer.out.strip_prefix(said).and_then(|rest| rest.strip_prefix("; it passes in "));
    let seconds = seconds.and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
    assert!(seconds.is_some_and(|seconds| seconds <= 10.0), "{}", answer.out);
}

#[tokio::test]
async fn the_examples_of_the_http_interface_are_true() {
    let all = blocks(&read("docs/http.md"));
    let node = Setup::demo().start();
    let mut http = node.http().await;
    let mut asked = 0;
    for (at, (_, text)) in all.iter().enumerate().filter(|(_, (kind, _))| kind == "http") {
        let (line, body) = text.split_once('\n').expect("a body");
        let answer = http.post(line.strip_prefix("POST ").expect("a path"), body).await;
        assert_eq!(answer.status, 200, "{text}\n{}", answer.body);
        if let Some((kind, expected)) = all.get(at + 1)
            && kind == "json"
        {
            assert_eq!(&answer.body, expected, "{text}");
        }
        asked += 1;
    }
    assert_eq!(asked, 3);
    let wrong = http.post("/v1/check", "{}").await;
    let shown = all.iter().rfind(|(kind, _)| kind == "json").expect("an error");
    assert_eq!((wrong.status, &wrong.body), (400, &shown.1));
}

#[tokio::test]
async fn what_there_is_to_try_of_quotas_does_what_it_says() {
    let shown = read("docs/quotas.md");
    let shown = shown.split("## To try it").nth(1).expect("something to try");
    let (_, text) = blocks(shown).into_iter().next().expect("commands");
    let node = Setup::demo().controlled().start();
    let admin = Admin::of(&node).await;
    admin.call("GET", "/admin/v1/quotas", "").await; // The API is there.
    let address = format!("http://{}", node.admin.expect("an API"));
    let setup =
        node.setup.clone().variable("TIDEGATE_ADMIN", &address).variable("TIDEGATE_TOKEN", &admin.token);
    let limit = |node: &crate::support::Node| {
        let node = node.http;
        async move {
            let call = r#"{"clientId": "alice", "endpoint": "GET /orders", "cost": 0}"#;
            let mut http = crate::support::Http::connect(node).await;
            http.post("/v1/check", call).await.json()["limit"].clone()
        }
    };
    assert_eq!(limit(&node).await, 5);
    let mut tried = 0;
    for line in text.lines() {
        let command = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = command.split_whitespace().collect();
        let expected: i64 = match words[..] {
            ["export", "TIDEGATE_TOKEN=tg_…"] => continue,
            ["tidegate", "explain", "api_key=alice"] => {
                let amount = line.split("# ").nth(1).and_then(|said| said.split(' ').next());
                let explained = node.ask(&words[1..]);
                let amount = amount.expect("what it says");
                assert!(explained.out.contains(&format!("of {amount}")), "{line}\n{}", explained.out);
                tried += 1;
                continue;
            }
            ["tidegate", "quota", "set", "alice", "--tier", "pro"] => 1000,
            ["tidegate", "quota", "set", "alice", "--override", "20/second"] => 20,
            ["tidegate", "quota", "delete", "alice"] => 5,
            _ => panic!("{line}"),
        };
        let done = setup.run(&words[1..]);
        assert_eq!(done.code, 0, "{line}: {done:?}");
        until(line, async || (limit(&node).await == expected).then_some(())).await;
        tried += 1;
    }
    assert_eq!(tried, 5);
    let told = admin.call("PUT", "/admin/v1/quotas/bob", r#"{"tier": "enterprise"}"#).await.json();
    assert_eq!(told["quotas"]["default"]["requests_per_unit"], 10_000, "{told}");
    let told = admin.call("PUT", "/admin/v1/quotas/carol", r#"{"tier": "free"}"#).await.json();
    assert_eq!(told["quotas"]["default"]["requests_per_unit"], 100, "{told}");
}
