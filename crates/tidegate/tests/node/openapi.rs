//! The OpenAPI document, held against real nodes over both databases by somebody else's tool: schemathesis draws calls from it, good
//! ones and bad ones, and looks whether each answer is one that the document knows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_control::api::routes;
use tidegate_testbed::find_schemathesis;

use crate::verbs::Desk;

/// Calls that are drawn for each operation, besides those that go through its schema value by value: a minute for each database.
const DRAWN: &str = "8";
/// The machine may be busy.
const TIME_MAX: Duration = Duration::from_secs(600);
/// What it looks at. Not whether all that the schemas allow is taken: what rules mean is no matter of a schema.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,unsupported_method,allow_header_conformance";

/// How often each call was answered by which status.
type Statuses = BTreeMap<String, BTreeMap<String, u64>>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/openapi")
}

/// Plays it on a node, and gives the statuses.
fn play(desk: &Desk, program: &Path) -> Statuses {
    desk.setup.write("search.json", r#"{"endpoint": "/s", "maxRequests": 1, "windowSeconds": 60}"#);
    // What there is, for calls that are about something.
    for words in [
        &["quota", "set", "known", "--tier", "pro"][..],
        &["tier", "set", "gold", "--override", "5/h"],
        &["rule", "set", "search", "search.json"],
    ] {
        assert_eq!(desk.run(words).code, 0, "{words:?}");
    }
    let tokens = desk.json(&["token", "list"]);
    let own = tokens["items"][0]["id"].as_str().expect("an id");
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let url = format!("http://{}", desk.node.admin.expect("an API"));
    let (log, statuses) =
        (desk.setup.path().join("schemathesis.log"), desk.setup.path().join("statuses.json"));
    let output = std::fs::File::create(&log).expect("a file");
    let mut command = Command::new(program);
    command.arg("run").arg(document);
    command.args(["--url", &url, "--seed", "1", "--max-examples", DRAWN, "--checks", CHECKS]);
    command.args(["--continue-on-failure", "--no-color", "--request-timeout", "30"]);
    command
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", folder())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
        .env("TIDEGATE_TOKEN", &desk.token)
        .env("TIDEGATE_TOKEN_ID", own)
        .env("TIDEGATE_STATUSES", &statuses);
    command.current_dir(desk.setup.path()).stdin(Stdio::null());
    command.stdout(output.try_clone().expect("a handle")).stderr(output);
    let mut child = command.spawn().expect("schemathesis");
    let watch = Stopwatch::start();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break status,
            None if watch.elapsed() > TIME_MAX => {
                let _ = child.kill();
                panic!("it does not end:\n{}", said());
            }
            None => std::thread::park_timeout(Duration::from_millis(50)),
        }
    };
    assert!(status.success(), "{}", said());
    // A worker of it that breaks is no failure to it: then it looked at less.
    assert!(!said().contains("Traceback"), "{}", said());
    let text = std::fs::read_to_string(&statuses).expect("statuses");
    serde_json::from_str(&text).expect("statuses")
}

#[tokio::test]
async fn every_answer_is_one_that_the_document_knows() {
    let program = find_schemathesis().expect("schemathesis");
    let desks = Desk::both().await;
    let played = desks.map(|desk| {
        let program = program.clone();
        // The desk is kept by its thread: it can be moved, not shared.
        std::thread::spawn(move || play(&desk, &program))
    });
    for played in played {
        let statuses = played.join().expect("played");
        for route in routes() {
            let label = format!("{} {}", route.method, route.path);
            let of_call =
                statuses.get(&label).unwrap_or_else(|| panic!("{label} was not called: {statuses:?}"));
            // Who is let in, and answered by more than a refusal of what was sent, was really asked.
            let good: u64 =
                of_call.iter().filter(|(status, _)| status.starts_with('2')).map(|(_, count)| count).sum();
            let strangers =
                ["401", "403", "429"].iter().filter_map(|status| of_call.get(*status)).sum::<u64>();
            assert!(strangers == 0, "{label}: {of_call:?}");
            assert!(good > 0, "{label}: {of_call:?}");
        }
    }
}
