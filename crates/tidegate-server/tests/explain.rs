//! What somebody on call is told: situations, each beside its text in `tests/golden/explain/NAME.txt`.
//!
//! `TIDEGATE_BLESS=1 cargo test -p tidegate-server --test explain` writes the texts again; read the difference before it is committed.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_config::{RuleFiles, Style, load_texts};
use tidegate_core::{Book, Descriptor, Entry, Micros, OwnLimit, Query, Secret};
use tidegate_counters::{Memory, MemorySize};
use tidegate_server::{Explanation, LimitFate, Room, decide, explain};

/// 2027-01-15, eight in the morning in London.
const START: Micros = Micros::from_secs(1_800_000_000);

const SHOP: &str = "\
domain: shop
match: path
exempt: { callers: [monitor] }
descriptors:
  - key: api_key
    rate_limit: { limit: 100/1m, name: per-key }
    descriptors:
      - key: endpoint
        value: POST /orders
        rate_limit: { limit: 5/1s, algorithm: token_bucket, burst: 10, name: orders }
      - key: endpoint
        value: GET /orders
      - key: endpoint
        value: GET /images/*
        rate_limit: { limit: 1000/1m, name: images }
  - key: remote_address
    shadow_mode: true
    rate_limit: { limit: 3/1m, name: by-address }
  - key: export
    rate_limit: { limit: 2, algorithm: concurrency, ttl: 60s, name: exports }
";

const TIERS: &str = "\
domain: api
match: path
trust_tier: true
descriptors:
  - key: api_key
    rate_limit: { limit: 10/1m, name: per-key }
    tiers:
      pro: { requests_per_unit: 1000 }
    descriptors:
      - key: path
        value: /static/*
      - key: path
        value: /images/*
        exempt: { callers: [carol] }
        rate_limits:
          - { limit: 4, algorithm: concurrency, ttl: 30s, lease_id: place, name: downloads }
          - { limit: 0/1s, name: closed, enforce: 0% }
  - key: all
    value: requests
    always: true
    rate_limit: { limit: 5000/1s, name: everything }
  - key: login
    rate_limit: { limit: 3/15m, algorithm: sliding_log, charge: always, name: logins }
";

const QUOTA: &str = "\
domain: llm
quota_key: team
descriptors:
  - key: team
    quota_mode: true
    rate_limit: { requests_per_unit: 1000, unit: month, algorithm: calendar, time_zone: Europe/Berlin, name: monthly }
  - key: bonus
    quota_mode: true
    rate_limit: { limit: 50/1h, name: bonus }
";

/// One descriptor: its entries as `key=value`, its cost, and the limit that it brings.
type Asked = (&'static [&'static str], i64, Option<(u64, u64)>);

/// A request, how often it is decided, the milliseconds since the start, and those between one and the next.
type Happened = (&'static [Asked], u64, u64, u64);

struct Situation {
    name: &'static str,
    rules: &'static str,
    domain: &'static str,
    /// What was decided before.
    before: &'static [Happened],
    /// What is explained, and the milliseconds since the start.
    asks: &'static [Asked],
    at_ms: u64,
}

const ALICE: Asked = (&["api_key=alice"], 1, None);
const ORDER: Asked = (&["api_key=alice", "endpoint=POST /orders"], 1, None);

const SITUATIONS: &[Situation] = &[
    Situation {
        name: "admitted",
        rules: SHOP,
        domain: "shop",
        before: &[(&[ORDER], 2, 0, 0)],
        asks: &[ORDER],
        at_ms: 100,
    },
    Situation {
        name: "refused",
        rules: SHOP,
        domain: "shop",
        before: &[(&[ALICE], 20, 0, 700), (&[ALICE], 80, 45_000, 10)],
        asks: &[(&["api_key=alice", "endpoint=GET /images/cat.png"], 30, None)],
        at_ms: 65_000,
    },
    Situation {
        name: "no-rule",
        rules: "domain: shop\ndescriptors:\n  - key: api_key\n    rate_limit: { limit: 100/1m, name: per-key }\n    \
                descriptors:\n      - { key: endpoint, value: POST /orders, rate_limit: { limit: 5/1s, name: orders } }\n      \
                - { key: endpoint, value: GET /orders, rate_limit: { limit: 50/1s } }\n",
        domain: "shop",
        before: &[],
        asks: &[(&["api_key=alice", "endpoint=post /orders/"], 1, None)],
        at_ms: 0,
    },
    Situation {
        name: "wrong-order",
        rules: SHOP,
        domain: "shop",
        before: &[],
        asks: &[(&["endpoint=POST /orders", "api_key=alice"], 1, None)],
        at_ms: 0,
    },
    Situation { name: "unknown-domain", rules: SHOP, domain: "shpo", before: &[], asks: &[ORDER], at_ms: 0 },
    Situation {
        name: "exempt",
        rules: SHOP,
        domain: "shop",
        before: &[],
        asks: &[(&["api_key=monitor", "endpoint=POST /orders"], 1, None)],
        at_ms: 0,
    },
    Situation {
        name: "shadow",
        rules: SHOP,
        domain: "shop",
        before: &[(&[(&["remote_address=198.51.100.7"], 1, None)], 3, 0, 0)],
        asks: &[ALICE, (&["remote_address=198.51.100.7"], 1, None)],
        at_ms: 1_000,
    },
    Situation {
        name: "replaced",
        rules: "domain: shop\nquota_key: user\ndescriptors:\n  - { key: user, rate_limit: { limit: 10/1m, name: per-user } }\n  \
                - { key: user, value: vip, rate_limit: { limit: 500/1m, name: vip, replaces: [{ name: per-ip }] } }\n  \
                - { key: ip, rate_limit: { limit: 20/1m, name: per-ip } }\n  \
                - { key: ip, value: 192.0.2.1, rate_limit: { limit: 1/1m, name: old, disabled: true } }\n",
        domain: "shop",
        before: &[],
        asks: &[(&["user=vip"], 1, None), (&["ip=198.51.100.7"], 1, None), (&["ip=192.0.2.1"], 1, None)],
        at_ms: 0,
    },
    Situation {
        name: "quota",
        rules: QUOTA,
        domain: "llm",
        before: &[(&[(&["team=red"], 1_000, None)], 1, 0, 0), (&[(&["bonus=red"], 50, None)], 1, 0, 0)],
        asks: &[(&["team=red"], 20, None), (&["bonus=red"], 20, None)],
        at_ms: 60_000,
    },
    Situation {
        name: "cost-too-high",
        rules: SHOP,
        domain: "shop",
        before: &[(&[ALICE], 3, 0, 0)],
        asks: &[(&["api_key=alice"], 200, None)],
        at_ms: 1_000,
    },
    Situation {
        name: "concurrency",
        rules: SHOP,
        domain: "shop",
        before: &[(&[(&["export=all"], 1, None)], 2, 0, 9_000)],
        asks: &[(&["export=all"], 1, None)],
        at_ms: 29_000,
    },
    Situation {
        name: "several",
        rules: SHOP,
        domain: "shop",
        before: &[(&[ALICE], 100, 0, 10), (&[(&["export=all"], 1, None)], 2, 40_000, 9_000)],
        asks: &[ALICE, (&["export=all"], 1, None)],
        at_ms: 58_000,
    },
    Situation {
        name: "own-limit",
        rules: SHOP,
        domain: "shop",
        before: &[(&[(&["api_key=alice"], 1, Some((5, 60)))], 5, 0, 0)],
        asks: &[(&["api_key=alice"], 1, Some((5, 60)))],
        at_ms: 1_000,
    },
    Situation {
        name: "own-limit-impossible",
        rules: SHOP,
        domain: "shop",
        before: &[],
        asks: &[(&["api_key=alice"], 1, Some((5, 0)))],
        at_ms: 0,
    },
    Situation {
        name: "tier",
        rules: TIERS,
        domain: "api",
        before: &[],
        asks: &[(&["api_key=bob", "tier=gold", "path=/images/7", "place=one"], 1, None)],
        at_ms: 0,
    },
    Situation {
        name: "penalty",
        rules: TIERS,
        domain: "api",
        before: &[(&[(&["login=bob"], 1, None)], 4, 0, 1_000)],
        asks: &[(&["login=bob"], 1, None), (&["api_key=carol", "tier=pro", "path=/images/7"], 1, None)],
        at_ms: 5_000,
    },
    Situation {
        name: "refund-ignored",
        rules: TIERS,
        domain: "api",
        before: &[],
        asks: &[(&["login=bob"], -2, None)],
        at_ms: 0,
    },
    // A value may be anything that somebody out there cares to send.
    Situation {
        name: "hostile",
        rules: SHOP,
        domain: "shop",
        before: &[],
        asks: &[(
            &["api_key=\u{1b}[2J\u{202e}ecila\r\nREFUSED: no", "endpoint=GET /images/\u{9b}31m", "x\t=\0"],
            0,
            None,
        )],
        at_ms: 0,
    },
];

impl Situation {
    fn explained(&self) -> Explanation {
        let at = |ms: u64| START.plus(Micros::from_millis(ms));
        explained(self.rules, |book, counters| {
            for (asked, times, from_ms, every_ms) in self.before {
                for time in 0..*times {
                    with_query(self.domain, asked, |query| {
                        let now = at(from_ms + time * every_ms);
                        decide(book, counters, query, now, &mut Room::default(), |_| ());
                    });
                }
            }
            with_query(self.domain, self.asks, |query| explain(book, counters, query, at(self.at_ms)))
        })
    }
}

fn explained(rules: &str, ask: impl FnOnce(&Book, &Memory) -> Explanation) -> Explanation {
    let loaded = load_texts([("shop.yaml".to_owned(), rules.into())], &RuleFiles::default());
    assert!(loaded.is_valid(), "{}", loaded.report.render(&loaded.sources, Style::Plain));
    let book = Book::new(loaded.domains, Secret::new([0; 16]));
    let counters = Memory::new(MemorySize::of_bytes(1 << 20), START).expect("memory");
    ask(&book, &counters)
}

fn with_query<R>(domain: &str, asked: &[Asked], ask: impl FnOnce(&Query<'_>) -> R) -> R {
    let (mut entries, mut descriptors) = (Vec::new(), Vec::new());
    for (said, cost, own) in asked {
        let from = entries.len();
        let pairs = said.iter().map(|entry| entry.split_once('=').expect("key=value"));
        entries.extend(pairs.map(|(key, value)| Entry { key, value }));
        let limit = own.map(|(amount, secs)| OwnLimit { amount, window: Micros::from_secs(secs) });
        descriptors.push(Descriptor { entries: from..entries.len(), cost: *cost, limit, own_cost: false });
    }
    ask(&Query { domain, entries: &entries, descriptors: &descriptors, lease: None })
}

#[test]
fn every_situation_is_told_as_written_down() {
    let mut stale = Vec::new();
    for situation in SITUATIONS {
        let explained = situation.explained();
        let text = explained.render();
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{}: {line}", situation.name);
            assert!(!line.contains(is_obeyed), "{}: {line:?}", situation.name);
        }
        stale.extend(differs(&format!("{}.txt", situation.name), &text));
        let json = serde_json::to_string_pretty(&explained).expect("JSON");
        assert!(!json.replace('\n', "").contains(is_obeyed), "{}: {json:?}", situation.name);
        if situation.name == "refused" {
            stale.extend(differs("refused.json", &format!("{json}\n")));
        }
        let read: Explanation = serde_json::from_str(&json).expect("the same");
        assert_eq!(read.render(), text, "{}: whoever has the JSON can show it", situation.name);
    }
    assert!(stale.is_empty(), "{}\n{BLESS}", stale.join("\n"));
}

#[test]
fn the_examples_of_the_document_are_what_is_said() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explain.md");
    let page = fs::read_to_string(page).expect("docs/explain.md");
    for situation in SITUATIONS.iter().filter(|situation| ["refused", "no-rule"].contains(&situation.name)) {
        let text = situation.explained().render();
        assert!(page.contains(&format!("```text\n{text}```")), "docs/explain.md should show\n{text}");
    }
}

#[test]
fn who_asks_too_much_is_told_so_and_not_everything() {
    let rules = "domain: d\ndescriptors: [{ key: a, rate_limit: { limit: 5/1m } }]";
    let names: Vec<String> = (0..300).map(|number| format!("a={number}")).collect();
    let explained = explained(rules, |book, counters| {
        let entries: Vec<Entry<'_>> =
            names.iter().map(|name| Entry { key: "a", value: name.trim_start_matches("a=") }).collect();
        let descriptors: Vec<Descriptor> = (0..300)
            .map(|at| Descriptor { entries: at..at + 1, cost: 1, limit: None, own_cost: false })
            .collect();
        let query = Query { domain: "d", entries: &entries, descriptors: &descriptors, lease: None };
        explain(book, counters, &query, START)
    });
    assert_eq!(explained.why, "no wait cures it: it asks 300 counters, and a request may ask 256");
    assert!(!explained.admitted && explained.decided_by.is_none() && explained.passes_in_ms.is_none());
    assert!(explained.limits.iter().all(|limit| limit.fate == LimitFate::NotAsked));
    let text = explained.render();
    assert!(text.contains("and 268 more, told as JSON") && text.lines().count() < 250, "{text}");
}

/// However many rules there are beside the one that was meant, it is found and few are told.
#[test]
fn of_many_values_the_one_that_was_meant_is_told_first() {
    let values: String =
        (0..100).map(|at| format!("    - {{ key: path, value: /{at}/{at}/{at} }}\n")).collect();
    let rules = format!(
        "domain: d\ndescriptors:\n{values}    - {{ key: path, value: /Checkout, rate_limit: {{ limit: 5/1m }} }}\n"
    );
    let explained = explained(&rules, |book, counters| {
        with_query("d", &[(&["path=/chekout"], 1, None)], |query| explain(book, counters, query, START))
    });
    let step = &explained.descriptors[0].steps[0];
    assert_eq!(
        (step.meant.as_deref(), step.candidates.len(), step.candidates_more),
        (Some("/Checkout"), 8, 93)
    );
    assert_eq!(step.candidates[0], "/Checkout");
    assert!(
        explained
            .why
            .ends_with("no `path` at the top of the domain is `/chekout`; did you mean `/Checkout`?")
    );
}

const BLESS: &str = "if that is right: TIDEGATE_BLESS=1 cargo test -p tidegate-server --test explain";

/// Says so if a text is not what is written down; or writes it down.
fn differs(name: &str, text: &str) -> Option<String> {
    let path = folder().join(name);
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&path, text).expect("a text that can be written");
    }
    let is_same = fs::read_to_string(&path).is_ok_and(|written| written == text);
    (!is_same).then(|| format!("{} is not what is said now:\n{text}", path.display()))
}

/// Would a terminal do something at it, or show what stands around it otherwise?
fn is_obeyed(letter: char) -> bool {
    letter.is_control() || ('\u{2028}'..='\u{202e}').contains(&letter)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/explain")
}
