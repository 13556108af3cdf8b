//! The verbs that ask the admin API, played on real nodes over both databases: what they print, how they end, and what they say when
//! something cannot be done.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tidegate_clock::Stopwatch;
use tidegate_control::api::routes;
use tidegate_testbed::{Postgres, PostgresOptions};

use crate::support::certificates::Authority;
use crate::support::process::{Answer, parse};
use crate::support::{Node, Setup, asks, descriptor, until};

const RULES: &str = "\
domain: api
match: path
descriptors:
  - key: api_key
    rate_limit: { limit: 3/1h, name: per-key }
    tiers:
      pro: { limit: 6/1h }
    descriptors:
      - key: endpoint
        value: POST /orders
        rate_limit: { limit: 2/1h, name: writes }
";

/// A node, and somebody who has its first token.
pub(crate) struct Desk {
    pub(crate) node: Node,
    /// With the token and the address in the environment.
    pub(crate) setup: Setup,
    pub(crate) token: String,
    /// What was asked, and what was said to it.
    transcript: String,
    _postgres: Option<Postgres>,
}

impl Desk {
    async fn over(postgres: Option<Postgres>) -> Self {
        let setup = Setup::new(RULES)
            .controlled()
            .set("log-level", "debug")
            .set("node-deadline", "20s")
            .set("store-timeout", "10s");
        let setup = match &postgres {
            Some(postgres) => setup.set("control-database", &postgres.url("postgres")),
            None => setup,
        };
        let node = setup.start();
        let token = until("a first token", async || {
            node.log().split_whitespace().find(|word| word.starts_with("tg_")).map(String::from)
        })
        .await;
        let admin = format!("http://{}", node.admin.expect("an API"));
        let setup = setup.variable("TIDEGATE_ADMIN", &admin).variable("TIDEGATE_TOKEN", &token);
        let desk = Self { node, setup, token, transcript: String::new(), _postgres: postgres };
        until("the API is there", async || (desk.run(&["token", "list"]).code == 0).then_some(())).await;
        desk
    }

    pub(crate) async fn both() -> [Self; 2] {
        let postgres = Postgres::start(&PostgresOptions::new()).expect("PostgreSQL");
        [Self::over(None).await, Self::over(Some(postgres)).await]
    }

    pub(crate) fn run(&self, words: &[&str]) -> Answer {
        self.setup.run(words)
    }

    /// Plays a verb. What it says stands in the transcript, with times and ids that are the same in every run.
    #[track_caller]
    fn play(&mut self, words: &[&str]) {
        let answer = self.run(words);
        self.note(words, &answer);
    }

    fn note(&mut self, words: &[&str], answer: &Answer) {
        let word = |word: &&str| match word
            .chars()
            .all(|letter| letter.is_ascii_alphanumeric() || "-_./:%".contains(letter))
        {
            true if !word.is_empty() => (*word).to_owned(),
            _ => format!("'{word}'"),
        };
        let words: Vec<String> = words.iter().map(word).collect();
        let code = if answer.code == 0 { String::new() } else { format!("({})\n", answer.code) };
        self.transcript +=
            &masked(&format!("$ tidegate {}\n{}{}{code}\n", words.join(" "), answer.out, answer.err));
    }

    /// Is all that was said as written down? `TIDEGATE_BLESS=1` writes it down.
    #[track_caller]
    fn is_as_written(&self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/verbs").join(name);
        let address = self.node.admin.expect("an API").to_string();
        let said = self
            .transcript
            .replace(&address, "127.0.0.1:8082")
            .replace(&self.node.http.to_string(), "127.0.0.1:8080");
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            std::fs::write(&path, &said).expect("written");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        for (at, (said, written)) in said.lines().zip(written.lines()).enumerate() {
            assert_eq!(said, written, "{name}:{}", at + 1);
        }
        assert_eq!(said.lines().count(), written.lines().count(), "{name}");
    }

    #[track_caller]
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let answer = self.run(&[words, &["--output", "json"]].concat());
        assert_eq!((answer.code, answer.err.as_str()), (0, ""), "{words:?} {answer:?}");
        parse(&answer.out)
    }

    /// With something at stdin.
    fn run_with(&self, words: &[&str], input: &str) -> i32 {
        self.setup.write("input", input);
        let file = File::open(self.setup.path().join("input")).expect("a file");
        let mut command = self.setup.command(words);
        let status = command.stdin(file).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.expect("the binary").code().unwrap_or(-1)
    }

    async fn limit(&self, key: &str) -> Option<u32> {
        let peek =
            crate::support::messages::Descriptor { hits_addend: Some(0), ..descriptor(&[("api_key", key)]) };
        let answer = self.node.rls().await.ask(&asks("api", [peek])).await;
        answer.statuses.first().and_then(|status| Some(status.current_limit.as_ref()?.requests_per_unit))
    }

    async fn has_limit(&self, key: &str, expected: Option<u32>) {
        let what = format!("{key} has {expected:?}");
        until(&what, async || (self.limit(key).await == expected).then_some(())).await;
    }
}

/// The same text with every instant, id and secret that a run makes up written alike, in the same width.
fn masked(text: &str) -> String {
    let is_time = |word: &[char]| {
        word.iter().zip("0000-00-00T00:00:00Z".chars()).all(|(letter, shape)| match shape {
            '0' => letter.is_ascii_digit(),
            shape => *letter == shape,
        })
    };
    let is_hex =
        |word: &[char]| word.iter().all(char::is_ascii_hexdigit) && word.iter().any(char::is_ascii_digit);
    let letters: Vec<char> = text.chars().collect();
    let (mut shown, mut at) = (String::new(), 0);
    while at < letters.len() {
        let rest = &letters[at..];
        if rest.len() >= 20 && is_time(&rest[..20]) {
            shown += "YYYY-MM-DDThh:mm:ssZ";
            at += 20;
        } else if rest.len() >= 11 && rest[..3] == ['t', 'g', '_'] && is_hex(&rest[3..11]) {
            shown += "tg_00000000";
            at += 11;
        } else if rest.len() >= 16 && is_hex(&rest[..16]) {
            shown += "0123456789abcdef";
            at += 16;
        } else {
            shown.push(letters[at]);
            at += 1;
        }
    }
    shown
}

#[tokio::test]
async fn quotas_are_set_shown_and_forgotten() {
    for mut desk in Desk::both().await {
        desk.play(&["quota", "list"]);
        let order = "endpoint:POST /api/v1/orders=500/minute,until=2099-12-01T00:00:00Z";
        desk.play(&["quota", "set", "abc123", "--tier", "pro", "--override", order]);
        desk.has_limit("abc123", Some(6)).await;
        // What is not named stays, and what is added has no times of others.
        desk.play(&["quota", "set", "abc123", "--override", "50/h", "--user-id", "ursula"]);
        desk.has_limit("abc123", Some(50)).await;
        desk.play(&["quota", "get", "abc123"]);
        desk.play(&["quota", "set", "abc123", "--remove-override", "default", "--no-tier"]);
        desk.has_limit("abc123", Some(3)).await;
        desk.play(&["quota", "set", "very/odd key?", "--whitelisted", "true", "--domain", "api"]);
        desk.has_limit("very/odd key?", None).await;
        desk.play(&["quota", "list"]);
        desk.play(&["quota", "list", "--prefix", "abc", "--tier", "free"]);
        desk.play(&["quota", "set", "abc123", "--replace", "--tier", "free"]);
        desk.play(&["quota", "delete", "abc123"]);
        desk.setup.write(
            "quota.yaml",
            "tier: pro\noverrides:\n  - { descriptor: default, requests_per_unit: 9, unit: hour }\n",
        );
        desk.play(&["quota", "set", "filed", "--file", "quota.yaml", "--if-version", "0"]);
        desk.has_limit("filed", Some(9)).await;
        assert_eq!(desk.run_with(&["quota", "set", "filed", "--file", "-"], r#"{"tier": "pro"}"#), 0);
        desk.has_limit("filed", Some(6)).await;
        let told = desk.json(&["quota", "get", "filed"]);
        assert_eq!((&told["api_key"], &told["tier"]), (&"filed".into(), &"pro".into()));
        assert_eq!(told["quotas"]["overrides"], Value::Array(Vec::new()));
        let listed = desk.json(&["quota", "list"]);
        assert_eq!(listed["items"].as_array().map(Vec::len), Some(2), "{listed}");
        assert!(listed["next"].is_null());
        desk.is_as_written("quotas.txt");

        // By who is behind a key, and by when what was granted ends.
        for (key, override_, user) in [
            ("ends-soon", "5/minute,until=2d", "ursula"),
            ("ends-late", "5/minute,until=30d", "ursula"),
            ("ended", "5/minute,from=2020-01-01,until=2020-02-01", "ulla"),
        ] {
            let words =
                ["quota", "set", key, "--override", override_, "--user-id", user, "--client-id", "acme"];
            assert_eq!(desk.run(&words).code, 0);
        }
        for (words, expected) in [
            (&["--user-id", "ursula"][..], &["ends-late", "ends-soon"][..]),
            (&["--client-id", "acme"], &["ended", "ends-late", "ends-soon"]),
            (&["--expires-before", "7d"], &["ends-soon"]),
            (&["--expires-before", "7d", "--user-id", "ulla"], &[]),
            (&["--expires-after", "2000-01-01", "--expires-before", "2021-01-01"], &["ended"]),
            (&["--expires-after", "7d"], &["ends-late"]),
        ] {
            let listed = desk.json(&[&["quota", "list"], words].concat());
            let keys = listed["items"].as_array().cloned().unwrap_or_default();
            let keys: Vec<&str> = keys.iter().filter_map(|key| key["api_key"].as_str()).collect();
            assert_eq!(keys, expected, "{words:?}");
        }
    }
}

#[tokio::test]
async fn many_quotas_come_and_go_and_lists_follow_their_pages() {
    for mut desk in Desk::both().await {
        let lines: String = (0..1_203)
            .map(|number| format!("{{\"api_key\": \"k{number:04}\", \"tier\": \"pro\"}}\n"))
            .collect();
        desk.setup.write("quotas.jsonl", &lines);
        desk.play(&["quota", "import", "quotas.jsonl", "--dry-run"]);
        desk.play(&["quota", "import", "quotas.jsonl"]);
        desk.has_limit("k1202", Some(6)).await;
        // Over two pages, and no more than were asked for.
        let listed = desk.json(&["quota", "list", "--limit", "1100"]);
        let keys: Vec<&str> = listed["items"]
            .as_array()
            .expect("items")
            .iter()
            .filter_map(|item| item["api_key"].as_str())
            .collect();
        assert_eq!((keys.len(), keys[0], keys[1_099]), (1_100, "k0000", "k1099"));
        assert!(listed["next"].is_string());
        let listed = desk.json(&["quota", "list", "--limit", "5000"]);
        assert_eq!((listed["items"].as_array().map(Vec::len), &listed["next"]), (Some(1_203), &Value::Null));
        let some = desk.run(&["quota", "list", "--limit", "2"]);
        assert_eq!(some.out.lines().count(), 3, "{}", some.out);
        assert_eq!(some.err, "these are the first 2, and there are more: --limit says how many to show\n");

        let csv = desk.run(&["quota", "export", "--format", "csv", "--prefix", "k120"]);
        assert_eq!(csv.code, 0);
        assert_eq!(csv.out.lines().count(), 4, "{}", csv.out);
        assert!(csv.out.starts_with("api_key,tier,descriptor,"), "{}", csv.out);
        desk.setup.write("quotas.csv", &csv.out);
        desk.play(&["quota", "import", "quotas.csv"]);
        let all = desk.run(&["quota", "export"]);
        assert_eq!((all.code, all.out.lines().count()), (0, 1_203));
        assert_eq!(desk.run_with(&["quota", "import", "-", "--format", "jsonl"], &all.out), 0);
        let yaml = desk.run(&["quota", "export", "--format", "yaml"]);
        assert!(
            yaml.code == 0 && yaml.out.contains("\n---\nquotas:\n- api_key: \"k0000\"\n"),
            "{}",
            &yaml.out[..80]
        );

        desk.setup.write("bad.csv", "api_key,tier\ngood,pro\nbad,platnum\n");
        desk.play(&["quota", "import", "bad.csv"]);
        desk.play(&["quota", "import", "input"]);
        desk.has_limit("good", Some(6)).await;
        desk.is_as_written("many.txt");
    }
}

#[tokio::test]
async fn tiers_rules_and_switches_are_set_by_hand() {
    for mut desk in Desk::both().await {
        desk.play(&["tier", "set", "gold", "--override", "7/hour"]);
        desk.play(&["tier", "set", "gold", "--override", "endpoint:POST /orders=5/h"]);
        desk.play(&["tier", "list"]);
        desk.play(&["tier", "get", "pro"]);
        desk.run(&["quota", "set", "alice", "--tier", "gold"]);
        desk.has_limit("alice", Some(7)).await;
        desk.play(&["tier", "delete", "gold"]);
        desk.has_limit("alice", Some(3)).await;

        desk.play(&["rule", "list"]);
        desk.play(&["rule", "list", "--by-api"]);
        let rule = |limit: &str| {
            format!(
                "domain: api\ndescriptors:\n  - key: api_key\n    descriptors:\n      - key: endpoint\n        value: /search\n{}",
                format_args!("        rate_limit: {{ limit: {limit} }}\n")
            )
        };
        desk.setup.write("search.yaml", &rule("1/1h"));
        desk.play(&["rule", "set", "search", "search.yaml", "--dry-run"]);
        desk.play(&["rule", "set", "search", "search.yaml"]);
        until("the rule is in force", async || {
            desk.run(&["rule", "list"]).out.contains("api|api_key|endpoint:/search#search").then_some(())
        })
        .await;
        desk.setup.write("search.yaml", &rule("2/1h"));
        assert_eq!(desk.run(&["rule", "set", "search", "search.yaml", "--if-version", "1"]).code, 0);
        desk.play(&["rule", "history", "search"]);
        desk.play(&["rule", "list", "--by-api"]);
        desk.play(&["rule", "rollback", "search", "1", "--if-version", "2"]);
        desk.play(&["rule", "get", "search"]);
        desk.play(&["rule", "get", "api|api_key#per-key"]);
        let yaml = desk.run(&["rule", "export"]);
        assert!(
            yaml.code == 0 && yaml.out.contains("\n--- # rules: search version 3\ndomain: \"api\"\n"),
            "{yaml:?}"
        );
        assert!(!yaml.out.contains("quotas:"), "{yaml:?}");
        assert!(desk.run(&["rule", "export", "--all"]).out.contains("quotas:\n- api_key: \"alice\"\n"));
        until("version 3 is in force", async || {
            let dry = desk.run(&["rule", "delete", "search", "--dry-run"]);
            dry.out.contains("1/1h").then_some(())
        })
        .await;
        desk.play(&["rule", "delete", "search", "--dry-run"]);
        desk.play(&["rule", "delete", "search"]);

        let id = "api|api_key#per-key";
        desk.play(&["rule", "state", id, "shadow", "--for", "30m"]);
        until("the rule is in shadow", async || {
            desk.run(&["rule", "state", id]).out.contains("shadow  enforce").then_some(())
        })
        .await;
        desk.play(&["rule", "state", id]);
        desk.play(&["rule", "state", id, "25%"]);
        desk.play(&["rule", "state", id, "as-written"]);
        assert_eq!(desk.json(&["rule", "state", id])["is_set"], false);
        desk.is_as_written("rules.txt");
    }
}

#[tokio::test]
async fn usage_tokens_and_the_audit_trail_are_looked_at() {
    for mut desk in Desk::both().await {
        for _ in 0..2 {
            desk.node.rls().await.ask(&asks("api", [descriptor(&[("api_key", "alice")])])).await;
        }
        let used = desk.run(&["usage", "get", "alice"]);
        let row: Vec<&str> = used.out.lines().nth(1).expect("a row").split_whitespace().collect();
        assert!(used.out.starts_with("DESCRIPTOR "), "{}", used.out);
        assert_eq!(
            (&row[..2], &row[4..5], row[7]),
            (&["default", "2"][..], &["1"][..], "rule"),
            "{}",
            used.out
        );
        desk.play(&["usage", "reset", "alice"]);
        desk.play(&["usage", "reset", "alice", "--yes", "--descriptor", "default"]);
        assert_eq!(desk.json(&["usage", "get", "alice"])["usage"]["default"]["used"], 0);

        // While there is one: later they stand in the order of their ids, which nobody knows before.
        desk.play(&["token", "list"]);
        let made = desk.run(&["token", "create", "dashboard", "--scope", "read", "--until", "90d"]);
        assert_eq!(made.code, 0);
        let token = made.out.trim_end();
        assert!(token.starts_with("tg_") && !token.contains(char::is_whitespace), "{made:?}");
        let told = "token 0123456789abcdef (read, until YYYY-MM-DDThh:mm:ssZ); this is the only time that it is shown\n";
        assert_eq!(masked(&made.err), told);
        let listed = desk.json(&["token", "list"]);
        let of_dashboard =
            listed["items"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "dashboard"));
        let id = of_dashboard.and_then(|one| one["id"].as_str()).expect("an id").to_owned();

        // One who may only look, by a file.
        desk.setup.write("token", token);
        let by_file = ["--token-file", "token"];
        assert_eq!(desk.run(&[&["quota", "list"][..], &by_file].concat()).code, 0);
        desk.play(&[&["quota", "set", "alice", "--tier", "pro"][..], &by_file].concat());
        desk.play(&["token", "revoke", &id]);
        desk.play(&[&["quota", "list"][..], &by_file].concat());
        desk.play(&["audit", "list"]);
        desk.play(&["audit", "list", "--since", "1h", "--kind", "usage", "--subject", "alice"]);
        desk.play(&["audit", "list", "--until", "1h"]);
        desk.play(&["audit", "list", "--actor", "nobody", "--oldest"]);
        let rows = desk.json(&["audit", "list", "--oldest", "--limit", "1"]);
        assert_eq!(
            (&rows["items"][0]["seq"], &rows["items"][0]["after"]["scope"]),
            (&1.into(), &"admin".into())
        );
        desk.is_as_written("others.txt");
    }
}

#[tokio::test]
async fn what_cannot_be_done_is_told_as_a_sentence() {
    for mut desk in Desk::both().await {
        assert_eq!(desk.run(&["quota", "set", "abc", "--tier", "pro"]).code, 0);
        for words in [
            &["quota", "get", "nobody"][..],
            &["quota", "delete", "nobody"],
            &["quota", "set", "abc", "--tier", "platnum"],
            &["quota", "set", "abc", "--tier", "free", "--if-version", "1"],
            &["quota", "set", "new", "--replace", "--tier", "free", "--if-version", "7"],
            &["quota", "set", "abc", "--domain", "nowhere"],
            &["quota", "set", "abc"],
            &["quota", "set", "abc", "--remove-override", "a:b"],
            &["quota", "set", "abc", "--file", "missing"],
            &["quota", "export", "--format", "yaml", "--tier", "pro"],
            &["tier", "set", "gold", "--override", "5/m,until=1h"],
            &["tier", "set", "gold"],
            &["tier", "delete", "pro"],
            &["rule", "get", "nothing"],
            &["rule", "rollback", "nothing", "1"],
            &["rule", "state", "nothing", "shadow"],
            &["rule", "state", "api|api_key#per-key", "as-written"],
            &["rule", "state", "api|api_key#per-key", "as-written", "--for", "1h"],
            &["usage", "get", "abc", "--domain", "nowhere"],
            &["token", "create", "late", "--scope", "read", "--until", "2020-01-01"],
            &["token", "revoke", "0123456789abcdef"],
            &["quota", "list", "--token-file", "missing"],
            &["quota", "list", "--admin", "ftp://node"],
        ] {
            desk.play(words);
        }
        desk.setup.write(
            "bad.yaml",
            "domain: api\ndescriptors:\n  - key: api_key\n    rate_limit: { limit: 5/0s }\n",
        );
        desk.play(&["rule", "set", "bad", "bad.yaml"]);
        desk.setup.write("odd.yaml", "domain: [");
        let odd = desk.run(&["rule", "set", "bad", "odd.yaml"]);
        assert!(odd.code == 1 && odd.err.contains("odd.yaml:1"), "{odd:?}");
        desk.setup.write("file.yaml", RULES);
        desk.play(&["rule", "set", "api|api_key#per-key", "file.yaml"]);

        // Wrong usage ends with 2, and says how it is meant.
        for (words, told) in [
            (
                &["quota", "set", "abc", "--override", "endpoint:POST /orders"][..],
                "no limit such as 500/minute",
            ),
            (&["rule", "state", "x", "off"], "none of enforce, 25%, shadow, disabled, as-written"),
            (&["rule", "state", "x", "--for", "1h"], "<STATE>"),
            (&["quota", "get", ""], "a value is required"),
            (&["quota", "list", "--limit", "0"], "a number from 1 to 100000"),
            (&["token", "create", "x", "--scope", "root"], "read, write, admin"),
            (&["token", "revoke", "tg_01234567_89"], "this is no id but a token"),
            (&["audit", "list", "--kind", "x"], "rule_state"),
        ] {
            let answer = desk.run(words);
            assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{words:?} {answer:?}");
            assert!(answer.err.contains(told), "{words:?} {}", answer.err);
        }

        // Machines get the problem as the API told it.
        let problem = desk.run(&["quota", "get", "nobody", "--output", "json"]);
        assert_eq!((problem.code, &parse(&problem.out)["status"]), (3, &404.into()), "{problem:?}");

        // Nobody, the wrong token, the wrong listener, no server.
        let http = format!("http://{}", desk.node.http);
        for (name, value) in [
            ("TIDEGATE_TOKEN", ""),
            ("TIDEGATE_TOKEN", "tg_wrong"),
            ("TIDEGATE_TOKEN", "a\u{1}b"),
            ("TIDEGATE_ADMIN", &http),
            ("TIDEGATE_ADMIN", "http://127.0.0.1:1"),
        ] {
            let answer = desk.setup.clone().variable(name, value).run(&["quota", "list"]);
            desk.note(&["quota", "list"], &answer);
        }
        assert_eq!(desk.node.log().matches(&desk.token).count(), 1, "it is shown once");
        desk.is_as_written("refusals.txt");
    }
}

#[tokio::test]
async fn what_somebody_else_changed_meanwhile_is_not_lost() {
    for desk in Desk::both().await {
        // Each adds its own; all are there in the end.
        let added: Vec<String> = (0..4).map(|number| format!("endpoint:/{number}=5/h")).collect();
        let setup = &desk.setup;
        std::thread::scope(|scope| {
            for one in &added {
                scope.spawn(move || {
                    assert_eq!(setup.run(&["quota", "set", "shared", "--override", one]).code, 0)
                });
            }
        });
        let overrides =
            desk.json(&["quota", "get", "shared"])["quotas"]["overrides"].as_array().map(Vec::len);
        assert_eq!(overrides, Some(4));
    }
}

#[tokio::test]
async fn the_api_is_asked_over_tls() {
    let (ours, other) = (Authority::new(), Authority::new());
    let setup = Setup::new(RULES).controlled();
    let certificate = ours.sign("localhost");
    setup.write("tls/chain.pem", &certificate.chain);
    setup.write("tls/key.pem", &certificate.key);
    setup.write("tls/ours.pem", &ours.root());
    setup.write("tls/other.pem", &other.root());
    let setup = setup.set("control-tls-certificate", "tls/chain.pem").set("control-tls-key", "tls/key.pem");
    let node = setup.start();
    let token = until("a first token", async || {
        node.log().split_whitespace().find(|word| word.starts_with("tg_")).map(String::from)
    })
    .await;
    let port = node.admin.expect("an API").port();
    let setup = setup
        .variable("TIDEGATE_TOKEN", &token)
        .variable("TIDEGATE_ADMIN", &format!("https://localhost:{port}"))
        .variable("TIDEGATE_CA", "tls/ours.pem");
    until("the API is there", async || (setup.run(&["tier", "list"]).code == 0).then_some(())).await;
    for (words, told) in [
        (&["tier", "list", "--ca", "tls/other.pem"][..], "no encrypted connection: "),
        // The certificate is somebody else's.
        (&["tier", "list", "--admin", &format!("https://127.0.0.1:{port}")], "no encrypted connection: "),
        (
            &["tier", "list", "--ca", "tls/key.pem"],
            "tls/key.pem: there is no certificate in it (PEM is expected)",
        ),
        (&["tier", "list", "--ca", "tls/none.pem"], "tls/none.pem: no certificate can be read from it: "),
        (&["tier", "list", "--admin", &format!("http://localhost:{port}")], "cannot be asked: "),
    ] {
        let answer = setup.run(words);
        assert_eq!((answer.code, answer.out.as_str()), (1, ""), "{words:?} {answer:?}");
        assert!(answer.err.contains(told), "{words:?} {}", answer.err);
    }
}

/// What is played for each call of the API. A node that logs everything tells which call a verb made of it.
const TWINS: &[&[&str]] = &[
    &["quota", "list"],
    &["quota", "set", "abc", "--tier", "pro"],
    &["quota", "get", "abc"],
    &["quota", "import", "none.csv"],
    &["quota", "export"],
    &["quota", "export", "--format", "yaml"],
    &["quota", "delete", "abc"],
    &["tier", "list"],
    &["tier", "set", "gold", "--override", "5/h"],
    &["tier", "get", "gold"],
    &["tier", "delete", "gold"],
    &["rule", "list"],
    &["rule", "set", "search", "search.json"],
    &["rule", "get", "search"],
    &["rule", "history", "search"],
    &["rule", "rollback", "search", "1"],
    &["rule", "state", "api|api_key#per-key", "shadow"],
    &["rule", "state", "api|api_key#per-key"],
    &["rule", "state", "api|api_key#per-key", "as-written"],
    &["rule", "export"],
    &["rule", "delete", "search"],
    &["usage", "get", "abc"],
    &["usage", "reset", "abc", "--yes"],
    &["token", "create", "x", "--scope", "read"],
    &["token", "list"],
    &["token", "revoke", "TOKEN"],
    &["audit", "list"],
];

/// Calls without a verb of their own, and why.
const NO_TWIN: &[(&str, &str, &str)] = &[
    ("GET", "/livez", "for probes"),
    ("GET", "/openapi.json", "for programs"),
    ("GET", "/api/admin/rate-limit-rules/{ruleId}", "the same call as by the other path"),
    ("PUT", "/api/admin/rate-limit-rules/{ruleId}", "likewise"),
    ("DELETE", "/api/admin/rate-limit-rules/{ruleId}", "likewise"),
    (
        "GET",
        "/admin/v1/audit/verify",
        "`tidegate audit verify` looks at the rows themselves, and trusts no server",
    ),
];

#[tokio::test]
async fn every_call_of_the_api_has_a_verb() {
    for desk in Desk::both().await {
        desk.setup.write("none.csv", "api_key,tier\n");
        desk.setup.write("search.json", r#"{"endpoint": "/s", "maxRequests": 1, "windowSeconds": 60}"#);
        for words in TWINS {
            let listed = desk.json(&["token", "list"]);
            let last = listed["items"].as_array().and_then(|all| all.iter().find(|one| one["name"] == "x"));
            let id = last.and_then(|one| one["id"].as_str()).unwrap_or_default().to_owned();
            let words: Vec<&str> =
                words.iter().map(|word| if *word == "TOKEN" { &id } else { *word }).collect();
            let answer = desk.run(&words);
            assert_eq!(answer.code, 0, "{words:?} {answer:?}");
        }
        let known: BTreeSet<(&str, &str)> =
            NO_TWIN.iter().map(|(method, path, _)| (*method, *path)).collect();
        let without = |log: &str| -> Vec<String> {
            let was_made = |method: &str, path: &str| {
                log.lines().any(|line| {
                    line.contains("an admin call")
                        && line.contains(&format!("method={method} "))
                        && line.contains(&format!("path={path} "))
                })
            };
            routes()
                .iter()
                .filter(|route| !known.contains(&(route.method.as_str(), route.path)))
                .filter(|route| !was_made(route.method.as_str(), route.path))
                .map(|route| format!("{} {}", route.method, route.path))
                .collect()
        };
        // The log is written aside, a moment later.
        let watch = Stopwatch::start();
        while !without(&desk.node.log()).is_empty() && watch.elapsed() < Duration::from_secs(10) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let log = desk.node.log();
        assert!(without(&log).is_empty(), "no verb makes these calls: {:?}\n{log}", without(&log));
        for (method, path, _) in NO_TWIN {
            assert!(
                routes().iter().any(|route| route.method == *method && route.path == *path),
                "{method} {path} is gone"
            );
        }
    }
}
