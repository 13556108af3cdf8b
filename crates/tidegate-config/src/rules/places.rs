//! What may stand in a rule file: the one table that reader, schema and documents are made from.

use tidegate_core::{AMOUNT_MAX, Micros, SUB_WINDOWS_MAX};

use crate::fields::{Field, Kind, Place, Word};

/// The top of a document.
pub static DOMAIN: Place = Place {
    name: "top-level",
    doc: "One namespace of rules. Each document of a rule file is one.",
    fields: &[
        Field::new("domain", Kind::Text, "The name, which requests come with.").required().example("api_platform"),
        Field::new("descriptors", Kind::List(&Kind::Map(&DESCRIPTOR)), "The tree of rules."),
        Field::new("match", Kind::Word(MATCH), "Which limits on a descriptor's path count.").ours().default("leaf"),
        Field::new("quota_key", Kind::Text, "The key of the entry that names the caller.").ours().default("api_key"),
        Field::new("allow_refunds", Kind::Flag, "Are negative costs applied? Elsewhere they are answered OK and counted in a metric.")
            .ours()
            .default("false"),
        Field::new(
            "trust_tier",
            Kind::Flag,
            "May an entry `tier` say which tier the caller has? Only where callers cannot write it themselves.",
        )
        .ours()
        .default("false"),
        Field::new("shadow_mode", Kind::Flag, "All rules of the domain count and never refuse.").ours().default("false"),
        Field::new("disabled", Kind::Flag, "As if the domain were unknown.").ours().default("false"),
        Field::new("exempt", Kind::Map(&EXEMPT), "Whose requests are neither limited nor counted.").ours(),
        Field::new("defaults", Kind::Map(&DEFAULTS), "What holds for limits that do not say otherwise.").ours(),
    ],
};

/// A node of the tree.
pub static DESCRIPTOR: Place = Place {
    name: "descriptor",
    doc: "A node of the tree: an entry of a request's descriptor, its limits, and what may follow it.",
    fields: &[
        Field::new("key", Kind::Text, "The key of the entry. `*` stands for any characters.")
            .required()
            .example("api_key"),
        Field::new(
            "value",
            Kind::Text,
            "The value of the entry. `*` stands for any characters. Without it every value fits.",
        )
        .example("\"/api/*\""),
        Field::new("rate_limit", Kind::Map(&RATE_LIMIT), "Its limit."),
        Field::new(
            "rate_limits",
            Kind::List(&Kind::Map(&RATE_LIMIT)),
            "Its limits; a request has to fit into all.",
        )
        .ours(),
        Field::new(
            "tiers",
            Kind::Names(&Kind::Either(&[Kind::Map(&TIER), Kind::List(&Kind::Map(&RATE_LIMIT))])),
            "Other limits for callers of a tier: what changes, or a list of whole limits.",
        )
        .ours()
        .example("{ pro: { requests_per_unit: 1000 } }"),
        Field::new("descriptors", Kind::List(&Kind::Map(&DESCRIPTOR)), "What may follow it."),
        Field::new("always", Kind::Flag, "Its limits count for every request of the domain.")
            .ours()
            .default("false"),
        Field::new("shadow_mode", Kind::Flag, "Its limits count and never refuse.").default("false"),
        Field::new(
            "quota_mode",
            Kind::Flag,
            "Of all limits in quota mode that a request finds, one has to have room.",
        )
        .default("false"),
        Field::new("disabled", Kind::Flag, "As if it had no limits.").ours().default("false"),
        Field::new("exempt", Kind::Map(&EXEMPT), "Who is not limited by it, nor by what follows it.").ours(),
        Field::new("share_threshold", Kind::Flag, "All values that fit its wildcard share one counter.")
            .default("false"),
        Field::new("detailed_metric", Kind::Flag, "The name of its metrics has all values of the request.")
            .default("false"),
        Field::new(
            "value_to_metric",
            Kind::Flag,
            "The name of metrics has the request's value at this level.",
        )
        .default("false"),
        Field::new(
            "metadata",
            Kind::Names(&Kind::Free),
            "Handed on to the proxy with an answer that passes it.",
        ),
    ],
};

/// A limit.
pub static RATE_LIMIT: Place = Place {
    name: "rate_limit",
    doc: "How much: amount, window, algorithm, and what is done with the verdict.",
    fields: &[
        AMOUNT,
        UNIT,
        UNLIMITED,
        Field::new("name", Kind::Text, "What headers and metrics call it, and `replaces` knows it by.")
            .example("per-key"),
        Field::new(
            "replaces",
            Kind::List(&Kind::Map(&REPLACES)),
            "Limits that it drops from the request, by their names.",
        ),
        LIMIT,
        ALGORITHM,
        BURST,
        SUB_WINDOWS,
        STRICT,
        TTL,
        LEASE_ID,
        TIME_ZONE,
        WEEK_START,
        CHARGE,
        ENFORCE,
        RULE_DISABLED,
        CONSISTENCY,
        ON_STORE_FAILURE,
        LOCAL_SHARE,
        REPLICATE,
        RESERVATION_ID,
    ],
};

/// What a tier changes.
pub static TIER: Place = Place {
    name: "tier",
    doc: "What is different for callers of a tier; the rest stays as the descriptor's limit says.",
    fields: &[
        AMOUNT,
        UNIT,
        UNLIMITED,
        LIMIT,
        ALGORITHM,
        BURST,
        SUB_WINDOWS,
        STRICT,
        TTL,
        TIME_ZONE,
        WEEK_START,
        CHARGE,
        ENFORCE,
        RULE_DISABLED,
        CONSISTENCY,
        ON_STORE_FAILURE,
        LOCAL_SHARE,
        REPLICATE,
    ],
};

/// What holds where a limit does not say.
pub static DEFAULTS: Place = Place {
    name: "defaults",
    doc: "What holds for limits that do not say otherwise.",
    fields: &[ALGORITHM, CONSISTENCY, ON_STORE_FAILURE, LOCAL_SHARE, REPLICATE],
};

/// Who is not limited.
pub static EXEMPT: Place = Place {
    name: "exempt",
    doc: "Who is not limited.",
    fields: &[
        Field::new(
            "callers",
            Kind::List(&Kind::Text),
            "Callers, by the value of the entry that `quota_key` names.",
        )
        .ours(),
        Field::new("cidrs", Kind::List(&Kind::Cidr), "Networks, compared with the entry `remote_address`.")
            .ours()
            .example("[10.0.0.0/8, \"2001:db8::/32\"]"),
    ],
};

/// A name that is replaced.
pub static REPLACES: Place = Place {
    name: "replaces",
    doc: "A limit that is dropped.",
    fields: &[Field::new("name", Kind::Text, "Its name.").required().example("per-key")],
};

const AMOUNT: Field = Field::new(
    "requests_per_unit",
    Kind::Whole { min: 0, max: AMOUNT_MAX },
    "How much in each unit. 0 refuses everything.",
)
.example("100");
const UNIT: Field = Field::new(
    "unit",
    Kind::Word(UNITS),
    "How long the window is. A month is 30 days and a year 365, but with `algorithm: calendar`.",
);
const UNLIMITED: Field =
    Field::new("unlimited", Kind::Flag, "There is no limit. Stands without amount and unit.")
        .default("false");
const LIMIT: Field =
    Field::new("limit", Kind::Rate, "Amount and window in one word, for any window.").ours().example("5/15m");
const ALGORITHM: Field =
    Field::new("algorithm", Kind::Word(ALGORITHMS), "How it is counted.").ours().default("sliding_window");
const BURST: Field = Field::new(
    "burst",
    Kind::Whole { min: 1, max: AMOUNT_MAX },
    "How much a bucket holds: what may come at once.",
)
.ours()
.default("the amount");
const SUB_WINDOWS: Field = Field::new(
    "sub_windows",
    Kind::Whole { min: 1, max: SUB_WINDOWS_MAX as u64 },
    "Into how many parts `sub_window` cuts its window.",
)
.ours()
.default("the largest number up to 60 that divides the window");
const STRICT: Field = Field::new(
    "strict",
    Kind::Flag,
    "Never more than the limit in any window; budget comes back a little later.",
)
.ours()
.default("false");
const TTL: Field = Field::new(
    "ttl",
    Kind::Duration { min: Micros::from_millis(1), max: Micros::from_secs(366 * 86_400) },
    "How long a place is held unless it is released or renewed. Longer than the longest request.",
)
.ours()
.default("60s");
const LEASE_ID: Field =
    Field::new("lease_id", Kind::Text, "The key of the entry with the caller's id for a place.")
        .ours()
        .example("request_id");
const RESERVATION_ID: Field = Field::new(
    "reservation_id",
    Kind::Text,
    "The key of the entry with the id of a reservation: over RLS what is charged has one, under which it is settled.",
)
.ours()
.example("reservation");
const TIME_ZONE: Field =
    Field::new("time_zone", Kind::Text, "Whose days and months a calendar has: an IANA name.")
        .ours()
        .default("UTC")
        .example("Europe/Berlin");
const WEEK_START: Field =
    Field::new("week_start", Kind::Word(WEEKDAYS), "On which day a calendar's weeks start.")
        .ours()
        .default("monday");
const CHARGE: Field =
    Field::new("charge", Kind::Word(CHARGES), "When it is charged.").ours().default("admitted");
const ENFORCE: Field = Field::new(
    "enforce",
    Kind::Percent,
    "The part of the callers for whom it is enforced; for the others it is in shadow.",
)
.ours()
.default("100%");
const RULE_DISABLED: Field =
    Field::new("disabled", Kind::Flag, "As if the limit were not there.").ours().default("false");
const CONSISTENCY: Field =
    Field::new("consistency", Kind::Word(CONSISTENCIES), "How exactly it is kept across a fleet.")
        .ours()
        .default("exact");
const ON_STORE_FAILURE: Field =
    Field::new("on_store_failure", Kind::Word(STORE_FAILURES), "What is answered when the store cannot.")
        .ours()
        .default("allow");
const LOCAL_SHARE: Field = Field::new(
    "local_share",
    Kind::Percent,
    "The part of the limit that a node may spend alone, with `on_store_failure: local`.",
)
.ours()
.default("one over the number of nodes");
const REPLICATE: Field = Field::new(
    "replicate",
    Kind::Whole { min: 0, max: 5 },
    "With 1 or more, a charge counts only once the replicas of its server have it too: then a primary that dies takes none along.",
)
.ours()
.default("0");

const MATCH: &[Word] = &[
    Word::new("leaf", "Those at the descriptor's last entry."),
    Word::new("path", "All from the top down."),
];

/// With their length in seconds in the order of `UNIT_SECONDS`.
pub(super) const UNITS: &[Word] = &[
    Word::new("second", "1 s"),
    Word::new("minute", "60 s"),
    Word::new("hour", "3 600 s"),
    Word::new("day", "86 400 s"),
    Word::new("week", "604 800 s"),
    Word::new("month", "30 days"),
    Word::new("year", "365 days"),
];

/// How long the units are when they are windows.
pub(super) fn unit_window(unit: &str) -> Micros {
    let seconds = match unit {
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        "week" => 604_800,
        "month" => 30 * 86_400,
        _ => 365 * 86_400,
    };
    Micros::from_secs(seconds)
}

const ALGORITHMS: &[Word] = &[
    Word::new("sliding_window", "Any window of this length, off by less than 5 % of the limit."),
    Word::new("sliding_log", "Any window of this length, exactly; up to 10 000 units.")
        .aliases(&["sliding_window_log"]),
    Word::new(
        "sliding_window_counter",
        "This window and a part of the one before: a small state, which may be off by the limit.",
    ),
    Word::new("sub_window", "The window in parts; off by what one part holds."),
    Word::new("fixed_window", "Each aligned window; up to twice the limit around its edge."),
    Word::new("token_bucket", "Tokens that refill steadily, up to a burst."),
    Word::new("gcra", "The same decisions as a token bucket."),
    Word::new("leaky_bucket", "The same decisions as a token bucket."),
    Word::new("concurrency", "So many at once."),
    Word::new("calendar", "So many each day, week or month of a time zone."),
];

const WEEKDAYS: &[Word] = &[
    Word::new("monday", ""),
    Word::new("tuesday", ""),
    Word::new("wednesday", ""),
    Word::new("thursday", ""),
    Word::new("friday", ""),
    Word::new("saturday", ""),
    Word::new("sunday", ""),
];

const CHARGES: &[Word] = &[
    Word::new("admitted", "When the request is admitted."),
    Word::new("always", "Also when it does not fit, up to a debt of one limit."),
];

const CONSISTENCIES: &[Word] = &[
    Word::new("exact", "Every decision is one atomic step in the store."),
    Word::new("leased", "From units that a node takes in advance; never over the limit.")
        .later("works as `exact`, which is stricter, until leases are there"),
    Word::new("capped", "Counted here and written back within a bound.")
        .later("works as `exact`, which is stricter, until write-behind is there"),
    Word::new("local", "Every node counts for itself."),
];

const STORE_FAILURES: &[Word] = &[
    Word::new("allow", "Go on.").aliases(&["open"]),
    Word::new("deny", "Stop.").aliases(&["closed"]),
    Word::new("local", "By this node's own count of its share of the limit."),
    Word::new("error", "An error, so that the proxy decides."),
];
