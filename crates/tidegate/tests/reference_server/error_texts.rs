//! Bad rules, given to both servers while they run: what each writes to its log.

#[path = "../../../tidegate-config/tests/support/error_texts.rs"]
mod table;

use serde_json::Value;
use tidegate_testbed::{Kind, Options, Server};

use crate::rules::{MARKER, marker_text};
use crate::servers::{Files, Program, Running};
use crate::support::until;
use table::{ERROR_TEXTS, ErrorText, Ours};

/// What a line begins with that tells of rules which cannot be loaded, on both.
const NOT_LOADED: &str = "Error loading new configuration: ";
/// What each says of those that can.
const LOADED: [&str; 2] = ["Successfully loaded new configuration", "rules in force"];

/// A file that is replaced by a bad one, and put back.
const GOOD: (&str, &str) = ("r.yaml", "domain: d\n");

#[tokio::test]
async fn ours_tells_of_bad_rules_in_the_words_of_the_reference_server() {
    let Some(theirs) = Program::reference() else { return };
    let redis = Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"));
    for merge in [false, true] {
        let flag = merge.to_string();
        let variables =
            [("MERGE_DOMAIN_CONFIG", flag.as_str()), ("LOG_LEVEL", "info"), ("LOG_FORMAT", "json")];
        for program in [&theirs, &Program::ours()] {
            let files = Files::write(&[(GOOD.0, GOOD.1.into()), (MARKER, marker_text())]);
            let server = Running::start(program, &files, redis.address(), "texts:", &variables).await;
            for row in ERROR_TEXTS.iter().filter(|row| row.merge == merge) {
                told(&server, &files, row).await;
            }
        }
    }
}

/// Puts the row's files in place, waits until the server has said what it should, and puts the good one back.
async fn told(server: &Running, files: &Files, row: &ErrorText) {
    let is_ours = server.name == "ours";
    let expected = match row.ours {
        Ours::SameAsNewest(older) if !is_ours => Some(older),
        Ours::Takes(_) if is_ours => None,
        _ => Some(row.text),
    };
    let fits = |line: &str| match (expected, line.strip_prefix(NOT_LOADED)) {
        (None, _) => LOADED.contains(&line),
        // There files come in any order, so that either of two may be the second.
        (Some(expected), Some(text)) if row.files.len() > 1 => message(text) == message(expected),
        (Some(expected), Some(text)) => text == expected,
        _ => false,
    };
    let before = lines(server).len();
    for (name, text) in row.files {
        files.replace(name, text);
    }
    let what = format!("{}: {:?} of {:?}", server.name, expected, row.files);
    until(&what, async || lines(server)[before..].iter().any(|line| fits(line)).then_some(())).await;
    let before = lines(server).len();
    for (name, _) in row.files.iter().filter(|(name, _)| *name != GOOD.0) {
        files.remove(name);
    }
    files.replace(GOOD.0, GOOD.1);
    let loaded = |line: &String| LOADED.contains(&line.as_str());
    until("good rules", async || lines(server)[before..].iter().any(loaded).then_some(())).await;
}

/// A text without the name of its file.
fn message(text: &str) -> Option<&str> {
    text.split_once(": ").map(|(_, message)| message)
}

/// The messages of all lines of its log that are whole.
fn lines(server: &Running) -> Vec<String> {
    let told = |line: &str| Some(serde_json::from_str::<Value>(line).ok()?["@message"].as_str()?.to_owned());
    server.whole_log().lines().filter_map(told).collect()
}
