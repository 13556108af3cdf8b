//! The audit trail in a file and on standard output, verified by `tidegate audit verify`; all that is kept, moved by `tidegate backup` and
//! `tidegate restore`: by the real binary, on both databases.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_control::{AuditEntry, AuditFilter, AuditLine, AuditOrder, ControlStore, Quota};

use crate::control::{Admin, Kept, grant, has_limit, limit, tier, who};
use crate::support::{Http, Node, Setup, until};

/// Every row that the database has.
async fn rows(store: &ControlStore) -> Vec<AuditEntry> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page =
            store.audit(&AuditFilter::default(), AuditOrder::OldestFirst, after, 1000).await.expect("rows");
        rows.extend(page.items);
        match page.next {
            Some(next) => after = next.parse().ok(),
            None => return rows,
        }
    }
}

/// Are these all of the rows, each after the one before it, some perhaps again?
fn are_all(lines: impl IntoIterator<Item = String>, rows: &[AuditEntry]) -> bool {
    let mut known = 0;
    for line in lines.into_iter().filter(|line| !line.is_empty()) {
        let entry = AuditLine::read(line.as_bytes()).and_then(AuditLine::entry).expect("a row");
        let at = usize::try_from(entry.seq).expect("a number");
        assert!(at <= known + 1, "after row {known} comes {at}");
        assert_eq!(rows.get(at - 1), Some(&entry));
        known = known.max(at);
    }
    known == rows.len()
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    text[..whole].lines().map(String::from).collect()
}

async fn has_all(file: &Path, store: &ControlStore) {
    let rows = rows(store).await;
    until("the sink has every row", async || are_all(lines(file), &rows).then_some(())).await;
}

#[tokio::test]
async fn a_sink_has_every_row_however_often_the_node_is_killed() {
    for mut kept in Kept::both() {
        kept.setup = kept.setup.set("control-audit-sink", "audit.jsonl");
        let file = kept.setup.path().join("audit.jsonl");
        let mut token = None;
        for round in 0..6 {
            let mut node = kept.setup.start();
            let admin = match &token {
                None => Admin::of(&node).await,
                Some(token) => Admin { node: &node, token: String::clone(token) },
            };
            for edit in 0..7 + 3 * round {
                let path = format!("/admin/v1/quotas/key-{round}-{edit}");
                let put = admin.call("PUT", &path, r#"{"tier": "pro"}"#).await;
                assert!(put.status < 300, "{}", put.body);
            }
            token = Some(admin.token.clone());
            node.kill();
        }
        let node = kept.setup.start();
        let store = kept.store().await;
        has_all(&file, &store).await;
        until("it says so", async || {
            let ready = node.http().await.get("/readyz?verbose").await.body;
            ready.contains("audit     the sink has every row").then_some(())
        })
        .await;
        assert_eq!(node.metric("tidegate_audit_sink_behind_rows", "").await, 0);

        // In three ways, the same answer.
        let head = rows(&store).await.last().expect("a row").head();
        let hash: String = head.hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let said = format!("intact  {0} rows, 1 to {0}\nhead    {0}:{hash}\n", head.seq);
        let by_file = kept.setup.run(&["audit", "verify", "--file", "audit.jsonl"]);
        assert_eq!((by_file.code, by_file.out.as_str()), (0, said.as_str()), "{}", by_file.err);
        let database = verify(&kept, &["--expect", &format!("{}:{hash}", head.seq)]);
        assert_eq!((database.code, database.out.as_str()), (0, said.as_str()), "{}", database.err);
        let admin = format!("http://{}", node.admin.expect("an API"));
        let asking = kept.setup.clone().variable("TIDEGATE_TOKEN", token.as_deref().unwrap_or_default());
        let by_api = asking.run(&["audit", "verify", "--api", "--admin", &admin]);
        assert_eq!((by_api.code, by_api.out.as_str()), (0, said.as_str()), "{}", by_api.err);

        // Whoever changes a row is found out, and so is whoever writes them all anew.
        let text = fs::read_to_string(&file).expect("text");
        let changed = text.replacen("key-0-3", "key-0-X", 1);
        let line = text.lines().find(|line| line.contains("key-0-3")).expect("a line");
        let seq = AuditLine::read(line.as_bytes()).and_then(AuditLine::entry).expect("a row").seq;
        fs::write(kept.setup.path().join("changed.jsonl"), changed).expect("written");
        let broken = kept.setup.run(&["audit", "verify", "--file", "changed.jsonl"]);
        let expected = format!(
            "broken  row {seq} of the audit trail was changed; {} rows before it are intact\n",
            seq - 1
        );
        assert_eq!((broken.code, broken.out.as_str()), (3, expected.as_str()), "{}", broken.err);
        // Whoever makes its hash anew too is found out by the row after it.
        let mut forged = AuditLine::read(line.as_bytes()).and_then(AuditLine::entry).expect("a row");
        forged.subject = "key-0-X".into();
        forged.hash = forged.computed_hash();
        let forged = AuditLine::of(forged).text().expect("a line");
        let rehashed = text.replacen(&format!("{line}\n"), &forged, 1);
        fs::write(kept.setup.path().join("rehashed.jsonl"), rehashed).expect("written");
        let broken = kept.setup.run(&["audit", "verify", "--file", "rehashed.jsonl"]);
        let expected = format!(
            "broken  row {} of the audit trail does not follow the one before it, or that one was changed; \
             {seq} rows before it are intact\n",
            seq + 1
        );
        assert_eq!((broken.code, broken.out.as_str()), (3, expected.as_str()), "{}", broken.err);
        let without: String =
            text.lines().filter(|other| *other != line).map(|line| format!("{line}\n")).collect();
        fs::write(kept.setup.path().join("without.jsonl"), without).expect("written");
        let missing = kept.setup.run(&["audit", "verify", "--file", "without.jsonl", "--output", "json"]);
        let told: serde_json::Value = serde_json::from_str(&missing.out).expect("JSON");
        assert_eq!((missing.code, &told["seq"], &told["intact"]), (3, &seq.into(), &false.into()), "{told}");
        let other = verify(&kept, &["--expect", &format!("2:{}", "0".repeat(64))]);
        assert_eq!(other.code, 3, "{}", other.out);
        assert!(
            other.out.contains("row 2 of the audit trail is not the one that is expected"),
            "{}",
            other.out
        );
        let later = verify(&kept, &["--expect", &format!("9999:{hash}")]);
        assert!(later.code == 3 && later.out.contains("is expected, and not here"), "{}", later.out);
        let nowhere = kept.setup.run(&["audit", "verify", "--file", "nowhere.jsonl"]);
        assert_eq!(nowhere.code, 1, "{}", nowhere.err);
    }
}

fn verify(kept: &Kept, words: &[&str]) -> crate::support::process::Answer {
    let place = database(kept);
    let words = [&["audit", "verify"], words, &place.iter().map(String::as_str).collect::<Vec<_>>()].concat();
    kept.setup.run(&words)
}

/// The flags that name a database.
fn database(kept: &Kept) -> Vec<String> {
    match &kept.postgres {
        Some(postgres) => vec!["--control-database".into(), postgres.url("postgres")],
        None => vec!["--node-data".into(), "data".into()],
    }
}

#[tokio::test]
async fn a_sink_that_cannot_be_written_is_told_and_keeps_nobody_from_anything() {
    let kept = Kept::sqlite();
    let setup = kept.setup.clone().set("control-audit-sink", "not/there/audit.jsonl");
    let node = setup.start();
    let admin = Admin::of(&node).await;
    let put = admin.call("PUT", "/admin/v1/quotas/alice", r#"{"tier": "pro"}"#).await;
    assert!(put.status < 300, "{}", put.body);
    has_limit(&node, &[("api_key", "alice")], Some(6)).await;
    let told = until("it is told", async || {
        let ready = node.http().await.get("/readyz?verbose").await;
        (ready.status == 200 && ready.body.contains("audit     the sink lacks 2 rows")).then_some(ready.body)
    });
    assert!(told.await.contains("not/there/audit.jsonl"));
    assert_eq!(node.metric("tidegate_audit_sink_behind_rows", "").await, 2);
    assert!(node.metric("tidegate_audit_sink_failures_total", "").await > 0);
    fs::create_dir_all(setup.path().join("not/there")).expect("a folder");
    has_all(&setup.path().join("not/there/audit.jsonl"), &kept.store().await).await;
}

/// Reads standard output until this row was seen, and kills the process as soon as it has noted that row: what it wrote is read to its end,
/// since that does not come again.
fn read_until(mut child: Child, mut seen: Vec<String>, enough: u64, position: &Path) -> Vec<String> {
    let mut out = BufReader::new(child.stdout.take().expect("stdout")).lines().map_while(Result::ok);
    for line in out.by_ref() {
        seen.push(line);
        let last = seen.last().and_then(|line| AuditLine::read(line.as_bytes()).ok()?.head());
        if last.is_some_and(|last| last.seq >= enough) {
            break;
        }
    }
    let noted = || -> Option<u64> {
        let text = fs::read(position).ok()?;
        serde_json::from_slice::<serde_json::Value>(&text).ok()?["seq"].as_u64()
    };
    let watch = Stopwatch::start();
    while noted().is_none_or(|noted| noted < enough) && watch.elapsed() < Duration::from_secs(10) {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    child.kill().and_then(|()| child.wait()).expect("it runs");
    seen.extend(out);
    seen
}

#[tokio::test]
async fn standard_output_has_every_row_and_nothing_else() {
    for kept in Kept::both() {
        let setup = kept.setup.clone().set("control-audit-sink", "stdout");
        let store = kept.store().await;
        let mut seen = Vec::new();
        for round in 0..3 {
            for edit in 0..5 {
                store
                    .put_quota(&who(), Quota::of(format!("key-{round}-{edit}")), None)
                    .await
                    .expect("written");
            }
            let enough = store.revision().await.expect("a revision");
            let (node, position) = (setup.spawn(), setup.path().join("data/audit-sink.position"));
            let read = tokio::task::spawn_blocking(move || read_until(node, seen, enough, &position));
            seen = crate::support::soon("rows", read).await.expect("read");
        }
        // The first token of the node is a row too.
        let rows = rows(&store).await;
        assert_eq!(rows.len(), 16);
        let written = seen.iter().filter(|line| !line.is_empty()).count();
        assert!(are_all(seen, &rows));
        assert_eq!(written, rows.len(), "some came again");
    }
}

/// The rules as YAML, which come in pieces.
async fn exported(admin: &Admin<'_>) -> String {
    let mut http = Http::connect(admin.node.admin.expect("an API")).await;
    let request = format!(
        "GET /admin/v1/export?of=rules HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer {}\r\n\r\n",
        admin.token
    );
    http.send(request.as_bytes()).await;
    let answer = String::from_utf8(http.closed().await).expect("text");
    let (_, mut rest) = answer.split_once("\r\n\r\n").expect("a body");
    let mut text = String::new();
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        text += &after[..length];
        rest = after[length..].trim_start_matches("\r\n");
    }
    text
}

#[tokio::test]
async fn rules_that_are_exported_decide_the_same_from_files() {
    for kept in Kept::both() {
        // No descriptor stands here and there: files refuse that.
        let rules = "domain: api\nmatch: path\ndescriptors:\n  - key: user_id\n    rate_limit: { limit: 4/1h, name: per-user }\n";
        kept.setup.write("rules/rules.yaml", rules);
        let node = kept.setup.start();
        let admin = Admin::of(&node).await;
        for (id, rule) in [
            (
                "search",
                r#"{"endpoint": "/api/search", "maxRequests": 4, "windowSeconds": 3600, "algorithm": "fixed_window"}"#,
            ),
            (
                "search-daily",
                r#"{"endpoint": "/api/search", "maxRequests": 3, "windowSeconds": 86400, "algorithm": "fixed_window"}"#,
            ),
            (
                "orders",
                r#"{"policy_id": "orders", "key_type": "IP", "limit": 17, "window_seconds": 86400, "algorithm": "sliding_log"}"#,
            ),
            (
                "odd",
                r#"{"domain": "other \"name\"", "descriptors":
                    [{"key": "a:b", "value": "no", "rate_limit": {"limit": "5/1m", "name": "one"}}]}"#,
            ),
        ] {
            let put = admin.call("PUT", &format!("/admin/v1/rules/{id}"), rule).await;
            assert!(put.status < 300, "{id}: {}", put.body);
        }
        let put = admin.call("PUT", "/admin/v1/rules/search/state", r#"{"state": "enforce"}"#).await;
        assert!(put.status < 300, "{}", put.body);
        let export = exported(&admin).await;
        assert!(export.contains("\n# state of \"search\": enforce\n"), "{export}");
        let alone = Setup::new(rules).set("rules-merge-domains", "true");
        alone.write("rules/zz-exported.yaml", &export);
        let other = alone.start();
        for entries in [
            &[("api_key", "k"), ("endpoint", "/api/search")][..],
            &[("api_key", "k"), ("endpoint", "POST /orders")],
            &[("api_key", "k")],
            &[("remote_address", "10.0.0.1")],
            &[("api_key", "k"), ("remote_address", "10.0.0.1")],
        ] {
            assert_eq!(limit(&node, entries).await, limit(&other, entries).await, "{entries:?}");
        }
        assert_eq!(
            limit(&other, &[("api_key", "k"), ("endpoint", "/api/search")]).await,
            Some(3),
            "by the rules that were exported, the smaller of two at one place"
        );
        let shown = |node: &Node| {
            let rules = node.setup.run(&[
                "config",
                "show",
                "rules",
                "--rules-merge-domains",
                "true",
                "--output",
                "json",
            ]);
            rules.code
        };
        assert_eq!(shown(&other), 0);
        // To the last unit, and in a domain whose name needs quoting.
        let odd =
            r#"{"domain": "other \"name\"", "descriptors": [{"entries": [{"key": "a:b", "value": "no"}]}]}"#;
        let search = r#"{"domain": "api", "descriptors": [{"entries": [{"key": "api_key", "value": "k"},
            {"key": "endpoint", "value": "/api/search"}]}]}"#;
        for request in [odd, search] {
            for _ in 0..7 {
                let ask = async |node: &Node| {
                    let told = node.http().await.post("/v1/check", request).await.json();
                    (
                        told["allowed"].clone(),
                        told["remaining"].clone(),
                        told["limit"].clone(),
                        told["rule"].clone(),
                    )
                };
                assert_eq!(ask(&node).await, ask(&other).await, "{request}");
            }
        }
    }
}

async fn answers(node: &Node) {
    has_limit(node, &[("api_key", "alice")], Some(50)).await;
    has_limit(node, &[("api_key", "alice"), ("endpoint", "POST /orders")], Some(9)).await;
    has_limit(node, &[("api_key", "bob")], Some(6)).await;
    has_limit(node, &[("api_key", "carol")], Some(3)).await;
    has_limit(node, &[("api_key", "bob"), ("endpoint", "/api/search")], Some(4)).await;
}

#[tokio::test]
async fn a_move_from_one_database_to_the_other_is_a_backup_and_a_restore() {
    for (from, to) in [(Kept::sqlite(), Kept::postgres()), (Kept::postgres(), Kept::sqlite())] {
        let node = from.setup.start();
        let admin = Admin::of(&node).await;
        let store = from.store().await;
        let alice = Quota {
            overrides: vec![grant("default", 50), grant("endpoint:POST /orders", 9)],
            ..tier("alice", "pro")
        };
        store.put_quota(&who(), alice, None).await.expect("written");
        store.put_quota(&who(), tier("bob", "pro"), None).await.expect("written");
        let rule = r#"{"endpoint": "/api/search", "clientTier": "pro", "maxRequests": 4, "windowSeconds": 3600,
            "algorithm": "sliding_window_counter"}"#;
        let put = admin.call("PUT", "/api/admin/rate-limit-rules/search-pro", rule).await;
        assert!(put.status < 300, "{}", put.body);
        answers(&node).await;

        // While the node runs.
        let place = database(&from);
        let words = |verb: &[&str], place: &[String]| -> Vec<String> {
            verb.iter().map(|word| (*word).to_owned()).chain(place.iter().cloned()).collect()
        };
        let run = |setup: &Setup, words: Vec<String>| {
            setup.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let backup = to.setup.path().join("control.backup").display().to_string();
        let made = run(&from.setup, words(&["backup", "--to", &backup], &place));
        assert_eq!(made.code, 0, "{}", made.err);
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(&backup).expect("a file").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "it is a secret");
        assert!(
            run(&from.setup, words(&["backup", "--to", &backup], &place)).err.contains("is there already")
        );
        let token = admin.token.clone();
        let text = fs::read_to_string(&backup).expect("text");
        assert!(!text.contains(&token), "no token is in it");
        drop(node);

        let there = database(&to);
        let restored = run(&to.setup, words(&["restore", "--from", &backup], &there));
        assert_eq!(restored.code, 0, "{}", restored.err);
        let again = run(&to.setup, words(&["restore", "--from", &backup], &there));
        assert!(again.code == 1 && again.err.contains("is not empty"), "{}", again.err);
        let (was, after) = (verify(&from, &[]), verify(&to, &[]));
        assert_eq!((was.code, after.code), (0, 0), "{}", after.err);
        let rows = |told: &str| told.split_whitespace().nth(1).and_then(|rows| rows.parse::<u64>().ok());
        assert_eq!(rows(&after.out), rows(&was.out).map(|rows| rows + 1), "{} {}", was.out, after.out);

        let node = to.setup.start();
        answers(&node).await;
        let admin = Admin { node: &node, token };
        assert_eq!(
            admin.call("GET", "/admin/v1/quotas/alice", "").await.status,
            200,
            "the token is worth the same"
        );
        let trail = admin.call("GET", "/admin/v1/audit?kind=database", "").await.json();
        let row = &trail["items"][0];
        assert_eq!((&row["action"], &row["actor"]), (&"restore".into(), &"cli".into()), "{trail}");
        let origin = row["origin"].as_str().unwrap_or_default();
        assert!(
            origin.split_once('@').is_some_and(|(who, host)| !who.is_empty() && !host.is_empty()),
            "{trail}"
        );
        let count =
            |kind: &str| text.lines().filter(|line| line.starts_with(&format!("{{\"{kind}\":"))).count();
        assert_eq!(row["after"]["rows"]["quota"], count("quota"), "{trail}");
        assert_eq!(row["after"]["rows"]["token"], count("token"), "{trail}");
        assert!(!trail.to_string().contains("control.backup"), "where the file was is nobody's business");
        if to.postgres.is_none() {
            let busy = run(&to.setup, words(&["restore", "--replace", "--yes", "--from", &backup], &there));
            assert!(busy.code == 1 && busy.err.contains("has to be stopped before"), "{}", busy.err);
        }
        drop(node);
        let unasked = run(&to.setup, words(&["restore", "--replace", "--from", &backup], &there));
        assert!(unasked.code == 1 && unasked.err.contains("add --yes"), "{}", unasked.err);
        let replaced = run(&to.setup, words(&["restore", "--replace", "--yes", "--from", &backup], &there));
        assert_eq!(replaced.code, 0, "{}", replaced.err);
        let before = verify(&to, &[]);
        assert_eq!((before.code, rows(&before.out)), (0, rows(&after.out)), "{}", before.out);
        let cut = &text[..text.len() - 3];
        fs::write(to.setup.path().join("cut.backup"), cut).expect("written");
        let refused =
            run(&to.setup, words(&["restore", "--replace", "--yes", "--from", "cut.backup"], &there));
        assert!(refused.code == 1 && refused.err.contains("it was cut short"), "{}", refused.err);
        assert_eq!(verify(&to, &[]).out, before.out, "nothing was changed");
    }
}
