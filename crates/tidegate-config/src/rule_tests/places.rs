//! What may stand in a file of rule tests: the one table that reader, schema and documents are made from.

use tidegate_core::{AMOUNT_MAX, Micros};

use crate::fields::{Field, Kind, Place, Word};

/// How often one step may ask.
pub(super) const TIMES_MAX: u64 = 1_000_000;
/// How long the virtual time of one test may be: enough for every window, and for leap years.
pub(super) const TEST_TIME_MAX: Micros = Micros::from_secs(3_660 * 86_400);
const COST_MAX: i64 = AMOUNT_MAX as i64;
const ANY_DURATION: Kind = Kind::Duration { min: Micros::ZERO, max: TEST_TIME_MAX };

/// envoyproxy/ratelimit knows nothing of all this.
const fn field(name: &'static str, kind: Kind, doc: &'static str) -> Field {
    Field::new(name, kind, doc).ours()
}

/// The top of a document.
pub static RULE_TESTS: Place = Place {
    name: "rule tests",
    doc: "Which rules are tested, and the tests. A file may hold several such documents.",
    fields: &[
        field(
            "rules",
            Kind::OneOrMore(&Kind::Text),
            "Rule files, or folders of them, as seen from the folder of this file.",
        )
        .required()
        .example("../rules/tiers.yaml"),
        field("domain", Kind::Text, "The domain of requests that do not say another.")
            .default("the one that the rules have"),
        field("start", Kind::Instant, "When the time of each test starts.").default("2026-01-01T00:00:00Z"),
        field("tests", Kind::List(&Kind::Map(&TEST)), "The tests.").required(),
    ],
};

/// One test.
pub static TEST: Place = Place {
    name: "test",
    doc: "A story, told in steps. It has counters and a time of its own.",
    fields: &[
        field("name", Kind::Text, "What somebody wants, in a sentence.")
            .required()
            .example("a free caller has 100 a minute"),
        field("steps", Kind::List(&Kind::Map(&STEP)), "What happens, in order.").required(),
    ],
};

/// One step of a test.
pub static STEP: Place = Place {
    name: "step",
    doc: "A request, or time that passes.",
    fields: &[
        field(
            "ask",
            Kind::OneOrMore(&Kind::Names(&Kind::Text)),
            "The request: a descriptor, its entries in order; or a list of descriptors.",
        )
        .example("{ api_key: alice }"),
        field("times", Kind::Whole { min: 1, max: TIMES_MAX }, "How often it is asked.").default("1"),
        field("every", ANY_DURATION, "How much time passes between one time and the next.").default("0s"),
        field(
            "cost",
            Kind::OneOrMore(&Kind::Signed { min: -COST_MAX, max: COST_MAX }),
            "The units that each descriptor takes, or a list of them. 0 peeks, a negative cost refunds.",
        )
        .default("1"),
        field("limit", Kind::Rate, "A limit that the request brings, used instead of the rules.")
            .example("10/1m"),
        field("domain", Kind::Text, "Its domain.").default("that of the tests"),
        field(
            "expect",
            Kind::Either(&[Kind::Word(ANSWERS), Kind::Map(&EXPECT)]),
            "What has to come out, each time. Without it the step only happens.",
        )
        .example("allowed"),
        field("wait", ANY_DURATION, "Time that passes. Stands alone.").example("60s"),
    ],
};

/// What has to come out.
pub static EXPECT: Place = Place {
    name: "expect",
    doc: "What has to come out; what is not named may be anything. Where several limits count, numbers are those \
          of the limit that is told: \
          the one that refuses with the longest wait, else the one with the least remaining.",
    fields: &[
        field("allowed", Kind::Flag, "May the request go on?"),
        field("code", Kind::Word(CODES), "Why it may not."),
        field("rule", Kind::Text, "The limit that is told, or `none`.").example("per-key"),
        field("remaining", Kind::Whole { min: 0, max: AMOUNT_MAX }, "What is left of it afterwards."),
        field("limit", Kind::Whole { min: 0, max: AMOUNT_MAX }, "How much it allows."),
        field(
            "retry_after",
            Kind::Either(&[ANY_DURATION, Kind::Word(NONE)]),
            "How long to wait until the same request passes, exactly; or `none`.",
        )
        .example("60s"),
        field("reset", ANY_DURATION, "What callers are shown as reset, exactly."),
        field(
            "counted",
            Kind::OneOrMore(&Kind::Text),
            "All limits that were asked, in any order, those in shadow included.",
        )
        .example("[per-key, by-address]"),
        field(
            "shadow_refused",
            Kind::OneOrMore(&Kind::Text),
            "All limits in shadow that would have refused it, in any order.",
        )
        .example("[new]"),
    ],
};

const ANSWERS: &[Word] =
    &[Word::new("allowed", "The request may go on."), Word::new("refused", "The request may not go on.")];

const CODES: &[Word] = &[
    Word::new("RATE_LIMITED", "It does not fit now."),
    Word::new("COST_EXCEEDS_LIMIT", "It can never fit."),
];

const NONE: &[Word] = &[Word::new("none", "It is allowed, or waiting does not help.")];
