//! `tidegate config` through the real binary: what an operator types, and what comes back.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

/// What is promised is a second; the machine may be busy.
const SOON: Duration = Duration::from_secs(10);

const GOOD: &str = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { limit: 5/1m }\n";
const ODD: &str = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { limit: 0/1m }\n";
const BAD: &str =
    "domain: shop\ndescriptors:\n  - key: user\n    rate_limt: { limit: 5/1m }\n    value: [1]\n";

struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in\n{}", self.out))
    }
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(words).current_dir(folder);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDEGATE_")) {
        command.env_remove(name);
    }
    command
}

fn run(folder: &Path, words: &[&str]) -> Answer {
    finish(command(folder, words))
}

fn finish(mut command: Command) -> Answer {
    let output = command.output().expect("the binary");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Answer { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("written");
    }
    folder
}

#[test]
fn check_ends_with_what_it_found() {
    let rules = folder(&[("good.yaml", GOOD), ("odd.yaml", ODD), ("bad.yaml", BAD)]);
    for (words, code) in [
        (&["config", "check", "good.yaml"][..], 0),
        (&["config", "check", "good.yaml", "--strict"], 0),
        (&["config", "check", "odd.yaml"], 0),
        (&["config", "check", "odd.yaml", "--strict"], 3),
        (&["config", "check", "bad.yaml"], 78),
        (&["config", "check", "nowhere.yaml"], 78),
        (&["config", "check", "--rules-watch", "maybe", "good.yaml"], 78),
        (&["config", "chekc"], 2),
        (&["config", "check", "--frobnicate"], 2),
    ] {
        let answer = run(rules.path(), words);
        assert_eq!(answer.code, code, "{words:?}: {}{}", answer.out, answer.err);
    }
    let answer = run(rules.path(), &["config", "check", "good.yaml"]);
    assert_eq!((answer.out.as_str(), answer.err.as_str()), ("valid: 1 domain, 1 rule\n", ""));
}

#[test]
fn all_mistakes_come_at_once_without_colours_where_nobody_sees_them() {
    let rules = folder(&[("bad.yaml", BAD)]);
    let answer = run(rules.path(), &["config", "check", "bad.yaml"]);
    for words in [
        "bad.yaml:4:5",
        "did you mean `rate_limit`?",
        "bad.yaml:5:12",
        "2 errors",
        "docs/diagnostics.md#unknown-key",
    ] {
        assert!(answer.err.contains(words), "no `{words}` in\n{}", answer.err);
    }
    assert!(!answer.err.contains('\u{1b}'), "{}", answer.err);
    let mut coloured = command(rules.path(), &["config", "check", "bad.yaml"]);
    coloured.env("CLICOLOR_FORCE", "1");
    assert!(finish(coloured).err.contains("\u{1b}["));
}

#[test]
fn machines_are_told_the_same() {
    let rules = folder(&[("bad.yaml", BAD)]);
    let answer = run(rules.path(), &["config", "check", "bad.yaml", "--output", "json"]);
    let json = answer.json();
    assert_eq!((answer.code, &json["valid"], &json["errors"]), (78, &Value::Bool(false), &2.into()));
    let first = &json["diagnostics"][0];
    assert_eq!(
        (&first["code"], &first["line"], &first["column"]),
        (&"unknown-key".into(), &4.into(), &5.into())
    );
}

#[test]
fn show_tells_every_rule_as_it_is_understood() {
    let text = "domain: shop\ndescriptors:\n  - key: user\n    rate_limit: { limit: 5/1m, name: per-user }\n    \
                tiers: { pro: { requests_per_unit: 50 } }\n    metadata: { a: [1, true, x] }\n";
    let rules = folder(&[("rules/shop.yaml", text)]);
    let answer = run(rules.path(), &["config", "show"]);
    let lines: Vec<Vec<&str>> = answer.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["RULE", "TIER", "LIMIT", "BOUND", "FROM"]);
    assert_eq!(lines[1], ["shop|user#per-user", "sliding_window", "5/1m", "+0/-0", "rules/shop.yaml:4"]);
    assert_eq!(
        lines[2],
        ["shop|user#per-user", "pro", "sliding_window", "50/1m", "+1/-1", "rules/shop.yaml:5"]
    );
    let json = run(rules.path(), &["config", "show", "--output", "json"]).json();
    assert_eq!(json[1]["limit"]["amount"], 50);
    assert_eq!(json[0]["metadata"].to_string(), r#"{"a":[1,true,"x"]}"#);
}

#[test]
fn role_is_short_for_node_role() {
    let node = folder(&[("rules/a.yaml", GOOD)]);
    let help = run(node.path(), &["run", "--help"]).out;
    let told = help.split("--node-role <VALUE>").nth(1).and_then(|rest| rest.split("\n\n").next());
    assert!(told.is_some_and(|told| told.contains("--role]")), "{help}");
    for flag in ["--role", "--node-role"] {
        let answer = run(node.path(), &["config", "settings", flag, "decide", "--output", "json"]);
        let settings = answer.json();
        let role = settings.as_array().and_then(|all| all.iter().find(|one| one["name"] == "node.role"));
        assert_eq!(role.map(|role| &role["value"]), Some(&"decide".into()), "{flag}: {}", answer.err);
    }
    let wrong = run(node.path(), &["config", "check", "--role", "decides"]);
    assert!(wrong.code == 78 && wrong.err.contains("`decide`"), "{}", wrong.err);
}

#[test]
fn settings_come_from_where_they_are_said() {
    let node =
        folder(&[("tidegate.yaml", "rules: { path: here }\n"), ("here/a.yaml", GOOD), ("there/a.yaml", BAD)]);
    assert_eq!(run(node.path(), &["config", "check"]).code, 0, "the path of the file");
    assert_eq!(
        run(node.path(), &["config", "check", "--rules-path", "there"]).code,
        78,
        "the path of the flag"
    );
    let mut by_variable = command(node.path(), &["config", "settings", "--output", "json"]);
    by_variable.env("TIDEGATE_RULES_PATH", "there").env("TIDEGATE_RULES_WATCH", "no");
    let settings = finish(by_variable).json();
    assert_eq!(
        (&settings[0]["value"], &settings[0]["from"]),
        (&"there".into(), &"TIDEGATE_RULES_PATH".into())
    );
    assert_eq!((&settings[1]["value"], &settings[1]["flag"]), (&"no".into(), &"--rules-watch".into()));
    let elsewhere = run(
        Path::new("."),
        &["config", "check", "--settings", &node.path().join("tidegate.yaml").display().to_string()],
    );
    assert_eq!(elsewhere.code, 0, "paths of a file are meant from where it is: {}", elsewhere.err);
}

#[test]
fn the_schemas_are_those_of_the_repository() {
    for (name, file) in [("rules", "rules"), ("settings", "settings"), ("tests", "rule-tests")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../schema/{file}.schema.json"));
        let answer = run(Path::new("."), &["config", "schema", name]);
        assert_eq!(answer.out, fs::read_to_string(path).expect("the schema"), "{name}");
    }
}

#[test]
fn diff_says_what_starts_afresh() {
    let rules = |limits: &str| format!("domain: shop\ndescriptors:\n{limits}");
    let old = rules(
        "  - { key: number, rate_limit: { limit: 5/1m } }\n  - { key: window, rate_limit: { limit: 5/1m } }\n  \
         - { key: named, rate_limit: { limit: 5/1m, name: n } }\n  - { key: gone, rate_limit: { limit: 5/1m } }\n",
    );
    let new = rules(
        "  - { key: came, rate_limit: { limit: 5/1m } }\n  - { key: named, rate_limit: { limit: 5/2m, name: n } }\n  \
         - { key: window, rate_limit: { limit: 5/1h } }\n  - { key: number, rate_limit: { limit: 6/1m } }\n",
    );
    let files = folder(&[("old.yaml", &old), ("new.yaml", &new)]);
    let answer = run(files.path(), &["config", "diff", "old.yaml", "new.yaml", "--output", "json"]);
    let json = answer.json();
    let list = json.as_array().expect("a list").iter();
    let changes: Vec<String> = list
        .map(|change| {
            let rule = change["rule"].as_str().unwrap_or_default();
            format!("{} {}", change["change"].as_str().unwrap_or_default(), rule.trim_start_matches("shop|"))
        })
        .collect();
    let expected = ["added came#sliding_window/1m", "removed gone#sliding_window/1m", "fresh named#n"];
    let expected =
        expected.into_iter().chain(["changed number#sliding_window/1m", "fresh window#sliding_window/1h"]);
    assert_eq!(changes, expected.collect::<Vec<_>>());
    assert_eq!(answer.code, 3);
    assert!(
        run(files.path(), &["config", "diff", "old.yaml", "new.yaml"])
            .out
            .contains("starts with a full budget")
    );
    let same = run(files.path(), &["config", "diff", "old.yaml", "old.yaml"]);
    assert_eq!((same.code, same.out.as_str()), (0, "the same\n"));
}

#[test]
fn a_variable_that_is_empty_or_no_text_is_not_ignored() {
    use std::os::unix::ffi::OsStrExt as _;
    let files = folder(&[("rules/a.yaml", GOOD)]);
    for (value, words) in [(&b""[..], "a setting that is empty"), (b"\xff", "cannot be read")] {
        let mut command = command(files.path(), &["config", "check"]);
        command.env("TIDEGATE_RULES_PATH", std::ffi::OsStr::from_bytes(value));
        let answer = finish(command);
        assert_eq!((answer.code, answer.err.contains(words)), (78, true), "{}", answer.err);
    }
}

/// Whatever changes a decision is a difference; the second word says what becomes of the counters.
#[test]
fn diff_misses_nothing_that_matters() {
    const LIMIT: &str = "rate_limit: { limit: 5/1m }";
    let rule = |text: &str| format!("domain: d\ndescriptors: [{{ {text} }}]\n");
    let limit =
        |text: &str| rule(&format!("key: k, rate_limit: {{ limit: 5, algorithm: concurrency{text} }}"));
    let base = rule(&format!("key: k, value: 'v', {LIMIT}"));
    let wild = rule(&format!("key: k, value: 'v*', {LIMIT}"));
    for (old, new, kind) in [
        (&wild, rule(&format!("key: k, value: 'v*', share_threshold: true, {LIMIT}")), "fresh"),
        (&wild, rule(&format!("key: k, value: 'v*', value_to_metric: true, {LIMIT}")), "changed"),
        (&base, rule(&format!("key: k, value: v, always: true, {LIMIT}")), "changed"),
        (&base, rule(&format!("key: k, value: v, detailed_metric: true, {LIMIT}")), "changed"),
        (&base, rule(&format!("key: k, value: v, metadata: {{ a: b }}, {LIMIT}")), "changed"),
        (&base, rule(&format!("key: k, value: v, exempt: {{ callers: [a] }}, {LIMIT}")), "added"),
        (&base, rule(&format!("key: k, value: v, {LIMIT} }}, {{ key: k, value: vip")), "added"),
        (&base, format!("quota_key: A\n{base}"), "changed"),
        (&base, format!("defaults: {{ algorithm: sliding_window }}\n{base}"), "changed"),
        (&limit(""), limit(", lease_id: r"), "changed"),
        (&limit(""), limit(", reservation_id: r"), "changed"),
        (&limit(""), limit(", replicate: 1"), "changed"),
        (&limit(""), limit(", local_share: 5%"), "changed"),
    ] {
        let files = folder(&[("old.yaml", old.as_str()), ("new.yaml", &new)]);
        let answer = run(files.path(), &["config", "diff", "old.yaml", "new.yaml", "--output", "json"]);
        let json = answer.json();
        assert_eq!((answer.code, json[0]["change"].as_str()), (3, Some(kind)), "{new}{}", answer.out);
    }
    let upper = format!("quota_key: a\n{base}");
    let files = folder(&[("old.yaml", upper.as_str()), ("new.yaml", &upper.replace(": a\n", ": A\n"))]);
    assert_eq!(run(files.path(), &["config", "diff", "old.yaml", "new.yaml"]).code, 3);
}

#[test]
fn names_of_any_length_and_bytes_are_shown_on_one_line() {
    let text = format!(
        "domain: \"a\\x1b[31m\\n{}\"\ndescriptors: [{{ key: k, rate_limit: {{ limit: 5/1m }} }}]\n",
        "x".repeat(70_000)
    );
    let files = folder(&[("a.yaml", &text)]);
    let answer = run(files.path(), &["config", "show", "a.yaml"]);
    assert_eq!((answer.code, answer.out.lines().count()), (0, 2), "{}", answer.err);
    assert!(answer.out.contains("a\\u{1b}[31m\\nxxx"), "{}", &answer.out[answer.out.len() - 400..]);
}

/// A process that is ended with the test.
struct Watching {
    child: Child,
    lines: Receiver<String>,
}

impl Watching {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn says(&self, words: &str) -> bool {
        std::iter::from_fn(|| self.lines.recv_timeout(SOON).ok()).any(|line| line == words)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn check_watches_files_and_hears_a_hangup() {
    let rules = folder(&[("rules/a.yaml", GOOD)]);
    let watching = Watching::start(command(rules.path(), &["config", "check", "--watch"]));
    assert!(watching.says("valid: 1 domain, 1 rule"), "at the start");
    fs::write(rules.path().join("rules/b.yaml"), GOOD.replace("shop", "other")).expect("written");
    assert!(watching.says("valid: 2 domains, 2 rules"), "after a change");
    while watching.lines.recv_timeout(Duration::from_millis(700)).is_ok() {}
    let pid = watching.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().expect("kill").success());
    assert!(watching.says("valid: 2 domains, 2 rules"), "after SIGHUP");
}
