//! Rules and counters to ask, and answers as the text of a whole HTTP response.

use tidegate_config::{RuleFiles, Style, load_texts};
use tidegate_core::{Book, Descriptor, DomainDraft, Entry, Micros, OwnLimit, Query, Secret};
use tidegate_counters::{Memory, MemorySize};
use tidegate_server::reply::{PolicyNames, Told, body, body::BodyStyle, check, headers, headers::Dialect};
use tidegate_server::{Decision, Room, decide};

pub(crate) const START_S: u64 = 1_700_000_000;

pub(crate) struct Node {
    pub(crate) book: Book,
    names: PolicyNames,
    counters: Memory,
    room: Room,
}

/// One descriptor of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked<'a> {
    pub(crate) entries: Vec<(&'a str, &'a str)>,
    pub(crate) cost: i64,
    pub(crate) limit: Option<OwnLimit>,
}

impl<'a> Asked<'a> {
    pub(crate) fn one(entries: &[(&'a str, &'a str)]) -> Self {
        Self { entries: entries.to_vec(), cost: 1, limit: None }
    }
}

impl Node {
    /// By the text of a rule file.
    pub(crate) fn new(rules: &str) -> Self {
        let loaded = load_texts([("rules.yaml".into(), rules.as_bytes().to_vec())], &RuleFiles::default());
        assert!(loaded.is_valid(), "{}", loaded.report.render(&loaded.sources, Style::Plain));
        Self::of(loaded.domains)
    }

    pub(crate) fn of(domains: impl IntoIterator<Item = DomainDraft>) -> Self {
        let book = Book::new(domains, Secret::new([1; 16]));
        let start = Micros::from_secs(START_S);
        let counters = Memory::new(MemorySize::of_bytes(1 << 20), start).expect("a megabyte");
        Self { names: PolicyNames::of(&book), book, counters, room: Room::default() }
    }

    /// Asks domain `api`.
    pub(crate) fn ask<R>(
        &mut self,
        asked: &[Asked<'_>],
        now: Micros,
        view: impl FnOnce(&Told<'_>) -> R,
    ) -> R {
        self.decide(asked, now, |told, _| view(told))
    }

    /// The same, with the decision that it is told of.
    pub(crate) fn decide<R>(
        &mut self,
        asked: &[Asked<'_>],
        now: Micros,
        view: impl FnOnce(&Told<'_>, &Decision<'_>) -> R,
    ) -> R {
        let (mut entries, mut descriptors) = (Vec::new(), Vec::new());
        for one in asked {
            let from = entries.len();
            entries.extend(one.entries.iter().map(|(key, value)| Entry { key, value }));
            descriptors.push(Descriptor {
                entries: from..entries.len(),
                cost: one.cost,
                limit: one.limit,
                own_cost: false,
            });
        }
        let query = Query { domain: "api", entries: &entries, descriptors: &descriptors, lease: None };
        self.query(&query, now, view)
    }

    pub(crate) fn query<R>(
        &mut self,
        query: &Query<'_>,
        now: Micros,
        view: impl FnOnce(&Told<'_>, &Decision<'_>) -> R,
    ) -> R {
        decide(&self.book, &self.counters, query, now, &mut self.room, |decision| {
            view(&Told::of(decision, &self.names, query), decision)
        })
    }

    /// Uses units up.
    pub(crate) fn spend(&mut self, entries: &[(&str, &str)], cost: i64, now: Micros) {
        let asked = Asked { cost, ..Asked::one(entries) };
        self.ask(&[asked], now, |told| assert!(told.admitted()));
    }

    /// What one request is answered, as text.
    pub(crate) fn answer(
        &mut self,
        entries: &[(&str, &str)],
        now: Micros,
        (dialects, style): (&[Dialect], BodyStyle),
    ) -> String {
        self.ask(&[Asked::one(entries)], now, |told| answer(told, now, dialects, style))
    }

    /// The result of a check.
    pub(crate) fn check(&mut self, entries: &[(&str, &str)], now: Micros) -> String {
        self.ask(&[Asked::one(entries)], now, check_text)
    }
}

/// A whole HTTP response. The wall is as right as the clock of the decisions.
pub(crate) fn answer(told: &Told<'_>, now: Micros, dialects: &[Dialect], style: BodyStyle) -> String {
    let reason = match told.status() {
        200 => "OK",
        429 => "Too Many Requests",
        _ => "Service Unavailable",
    };
    let mut text = format!("HTTP/1.1 {} {reason}\n", told.status());
    headers::write(dialects, told, now.get(), &mut |name, value| text += &format!("{name}: {value}\n"));
    if !told.admitted() {
        let mut bytes = Vec::new();
        text += &format!("content-type: {}\n", body::write(style, told, &mut bytes));
        text += &format!("\n{}\n", String::from_utf8(bytes).expect("a text"));
    }
    text
}

pub(crate) fn check_text(told: &Told<'_>) -> String {
    let mut bytes = Vec::new();
    check::write(told, &mut bytes);
    String::from_utf8(bytes).expect("a text")
}

/// Is this text as it always was? With `TIDEGATE_BLESS` it is from now on.
#[track_caller]
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/reply/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(text, golden, "if that is right: TIDEGATE_BLESS=1 cargo test -p tidegate-server");
}
