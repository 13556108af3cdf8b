//! A language of rules for the tests: small, but with every kind of value in it.

#![allow(dead_code, reason = "each test uses some of it")]

use std::fs;
use std::path::Path;

use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use tidegate_config::{
    Caps, Code, Diagnostic, Field, Kind, Place, Reader, Report, Sources, Span, Tree, Word, parse,
};
use tidegate_core::Micros;

pub(crate) static FILE: Place = Place {
    name: "the file",
    doc: "A file of rules.",
    fields: &[
        Field::new("domain", Kind::Text, "The namespace of the rules.").required().example("shop"),
        Field::new("descriptors", Kind::List(&Kind::Map(&DESCRIPTOR)), "The rules."),
        Field::new("tiers", Kind::MapOf(&TIER), "Named sets of limits.").ours(),
        Field::new("labels", Kind::Names(&Kind::Text), "Whatever you like.").ours(),
        Field::new("trusted", Kind::OneOrMore(&Kind::Cidr), "Who is believed.").ours().example("10.0.0.0/8"),
    ],
};

pub(crate) static DESCRIPTOR: Place = Place {
    name: "descriptor",
    doc: "A step of the tree of rules.",
    fields: &[
        Field::new("key", Kind::Text, "The key of the entry.").required().example("user"),
        Field::new("value", Kind::Text, "The value; any if there is none."),
        Field::new("rate_limit", Kind::Map(&RATE_LIMIT), "What is allowed."),
        Field::new("descriptors", Kind::List(&Kind::Map(&DESCRIPTOR)), "Steps below this one."),
        Field::new("shadow_mode", Kind::Flag, "Count, but refuse nothing.").default("false"),
        Field::new("limit", Kind::Either(&[Kind::Rate, Kind::Map(&RATE_LIMIT)]), "A limit in short.")
            .ours()
            .example("100/min"),
    ],
};

pub(crate) static RATE_LIMIT: Place = Place {
    name: "rate_limit",
    doc: "How much is allowed.",
    fields: &[
        Field::new("unit", Kind::Word(UNITS), "The window.").required().example("minute"),
        Field::new("requests_per_unit", Kind::Whole { min: 0, max: 4_294_967_295 }, "The amount.")
            .required()
            .example("100")
            .aliases(&["amount"]),
        Field::new(
            "burst_for",
            Kind::Duration { min: Micros::from_millis(1), max: Micros::from_secs(86_400) },
            "How long.",
        )
        .ours()
        .example("1h30m"),
        Field::new("share", Kind::Percent, "How much of it.")
            .ours()
            .example("25%")
            .later("takes all until shares are there"),
        Field::new("consistency", Kind::Word(CONSISTENCY), "How exact.").ours(),
        Field::new("extra", Kind::Free, "Anything.").ours(),
    ],
};

pub(crate) static TIER: Place = Place {
    name: "tier",
    doc: "A named set of limits.",
    fields: &[Field::new("limit", Kind::Rate, "What it allows.").required().ours().example("1000/day")],
};

pub(crate) static UNITS: &[Word] = &[
    Word::new("second", "A second.").aliases(&["s"]),
    Word::new("minute", "A minute."),
    Word::new("hour", "An hour."),
    Word::new("day", "A day."),
];

pub(crate) static CONSISTENCY: &[Word] = &[
    Word::new("exact", "Always asked."),
    Word::new("leased", "Taken in advance.").later("works as `exact` until leases are there"),
];

/// The same cases every time, or `TIDEGATE_PROOF` times as many, drawn anew.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    let times = std::env::var("TIDEGATE_PROOF").ok().and_then(|times| times.parse().ok()).unwrap_or(0);
    let rng_seed = if times == 0 { RngSeed::Fixed(0x71DE_6A7E) } else { RngSeed::Random };
    ProptestConfig {
        cases: cases * times.max(1),
        failure_persistence: None,
        rng_seed,
        ..ProptestConfig::default()
    }
}

/// Reads a text as one file of rules and says all that is wrong with it.
pub(crate) fn check(name: &str, bytes: Vec<u8>, caps: &Caps) -> (Sources, Report) {
    let mut sources = Sources::new();
    let reader = Reader::new(&[&FILE]);
    match sources.add(name, bytes).and_then(|source| parse(source, &sources, caps)) {
        Ok(tree) => read(&tree, &reader),
        Err(trouble) => reader.say(trouble),
    }
    (sources, reader.finish())
}

fn read(tree: &Tree, reader: &Reader) {
    if tree.written() == 0 {
        reader.say(Diagnostic::new(Code::EmptyFile, Span::default(), "the file is empty"));
    }
    for document in tree.documents() {
        reader.check("the file", document, Kind::Map(&FILE));
    }
}

/// What to say if the file is not as expected. Writes it when asked to.
pub(crate) fn differs(path: &Path, expected: &str) -> std::io::Result<Option<String>> {
    let found = fs::read_to_string(path).unwrap_or_default();
    if found == expected {
        return Ok(None);
    }
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(path, expected)?;
        return Ok(None);
    }
    let end = "(the end)";
    let lines = |text: &str| text.lines().chain([end]).map(String::from).collect::<Vec<_>>();
    let (found, expected) = (lines(&found), lines(expected));
    let at = found.iter().zip(&expected).take_while(|(found, expected)| found == expected).count();
    let line = |lines: &[String]| lines.get(at).map_or(end, String::as_str).to_string();
    let (found, expected) = (line(&found), line(&expected));
    Ok(Some(format!("{}:{} is stale\n  found    {found}\n  expected {expected}", path.display(), at + 1)))
}
