//! What a node can be told: the one table that files, flags, environment, schema and documents are made from.

use crate::fields::{Field, Kind, Place};
use crate::rules::DEFAULTS;

/// `tidegate.yaml`.
pub static SETTINGS: Place = Place {
    name: "settings",
    doc: "How a node is set up.",
    fields: &[
        Field::new("rules", Kind::Map(&RULES), "Where the rules come from.").ours(),
        Field::new(
            "defaults",
            Kind::Map(&DEFAULTS),
            "What holds for limits of all domains that do not say otherwise.",
        )
        .ours(),
    ],
};

static RULES: Place = Place {
    name: "rules",
    doc: "Where the rules come from.",
    fields: &[
        Field::new("path", Kind::Text, "A rule file, or a folder of rule files.").ours().default("rules"),
        Field::new("watch", Kind::Flag, "Load them again when they change.").ours().default("true"),
        Field::new("merge_domains", Kind::Flag, "May a domain stand in several documents?")
            .ours()
            .default("false"),
        Field::new(
            "file_bytes_max",
            Kind::Bytes { min: 1_024, max: 1 << 30 },
            "Files larger than this are refused.",
        )
        .ours()
        .default("32MiB"),
    ],
};
