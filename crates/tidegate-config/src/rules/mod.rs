//! Rule files: from the documents of a file to the drafts that a book is made of. Start at [`read`].

mod limit; // one limit
mod lint; // what is allowed and hardly meant
mod places; // what may stand where
mod tree; // descriptors

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use tidegate_core::{DomainDraft, Matching};

use crate::codes::Code;
use crate::diagnostic::Diagnostic;
use crate::reader::Reader;
use crate::source::{Sources, Span};
use crate::theirs;
use crate::yaml::{Node, NodeKind, Tree};
use tree::Above;

pub use limit::Defaults;
pub use places::{DEFAULTS, DESCRIPTOR, DOMAIN, EXEMPT, RATE_LIMIT, REPLACES, TIER};

/// A domain that was read, and where its name stands.
#[derive(Debug)]
pub(crate) struct DomainText {
    /// What it says.
    pub draft: DomainDraft,
    /// Where its name stands.
    pub at: Span,
    /// Where something is said about the domain besides its descriptors.
    pub settings: Option<Span>,
}

/// What holds for all documents of a domain, wherever they stand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    defaults: Defaults,
    shadow: bool,
}

/// What the documents of one load have in common.
#[derive(Debug)]
pub(crate) struct Common {
    /// What the first document of each domain said, where a domain may have several.
    heads: Option<HashMap<Box<str>, Head>>,
    /// Bytes of the paths of all descriptors so far. Each is kept with what is above it: a thousand below a key of a megabyte are a
    /// gigabyte.
    path_bytes: Cell<u64>,
    /// Are refunds applied where a domain does not say so?
    allow_refunds: bool,
}

impl Common {
    /// Of documents of which several may be about one domain, or not, and whose domains take refunds by themselves, or not.
    pub(crate) fn new(merge: bool, allow_refunds: bool) -> Self {
        Self { heads: merge.then(HashMap::new), path_bytes: Cell::default(), allow_refunds }
    }
}

/// Reads all domains of a file. What is wrong is told to the reader. Descriptors are kept only if asked for: those of a large file take
/// several times its size, and nobody needs those of a bad one.
pub(crate) fn read<'a>(
    reader: &'a Reader,
    sources: &'a Sources,
    tree: &'a Tree,
    file: &Arc<str>,
    defaults: Defaults,
    common: &mut Common,
    keep: bool,
) -> Vec<DomainText> {
    let said = |node: &Node<'_>| node.kind() != NodeKind::Null;
    let documents: Vec<Node<'_>> = tree.documents().filter(said).collect();
    if documents.is_empty() {
        let at = tree.documents().next().map_or_else(|| tree.start(), |node| node.span());
        reader.say(
            Diagnostic::new(Code::EmptyFile, at, format!("{file} says nothing"))
                .help("write the rules, or remove the file")
                .theirs(theirs::EMPTY_DOMAIN),
        );
    }
    let read = |node| domain(reader, sources, node, file, defaults, common, keep);
    documents.into_iter().filter_map(read).collect()
}

fn domain<'a>(
    reader: &'a Reader,
    sources: &'a Sources,
    node: Node<'a>,
    file: &Arc<str>,
    defaults: Defaults,
    common: &mut Common,
    keep: bool,
) -> Option<DomainText> {
    let map = reader.map(node, &DOMAIN)?;
    let name = map.text("domain");
    if let Some(name) = name.filter(|name| name.value.is_empty()) {
        reader.say(
            Diagnostic::new(Code::EmptyText, name.span, "a domain with an empty name")
                .label("empty")
                .help("write the name that requests come with, e.g. `domain: api`")
                .theirs(theirs::EMPTY_DOMAIN),
        );
    }
    let at = name.map_or(map.span(), |name| name.span);
    let flag = |name| map.flag(name).is_some_and(|flag| flag.value);
    let defaults = map.map("defaults").map_or(defaults, |map| Defaults::of(|name| map.get(name), defaults));
    let own = Head { defaults, shadow: flag("shadow_mode") };
    let Head { defaults, shadow } = match (common.heads.as_mut(), name) {
        (Some(heads), Some(name)) => *heads.entry(name.value.into()).or_insert(own),
        _ => own,
    };
    let trees = tree::Trees {
        reader,
        sources,
        file: file.clone(),
        defaults,
        shadow,
        keep,
        path_bytes: &common.path_bytes,
        remembered: RefCell::default(),
    };
    let quota_key = map.text("quota_key");
    if let Some(key) = quota_key.filter(|key| key.value.is_empty()) {
        reader.say(
            Diagnostic::new(Code::EmptyText, key.span, "a `quota_key` that is empty")
                .label("empty")
                .help("write the key of the entry that names the caller, or leave it out for `api_key`"),
        );
    }
    let quota_key = quota_key.map_or("api_key", |key| key.value);
    let draft = DomainDraft {
        name: name.map_or("", |name| name.value).into(),
        matching: map.word("match").map_or(Matching::Leaf, |word| matching(word.value)),
        quota_key: quota_key.into(),
        allow_refunds: map.flag("allow_refunds").map_or(common.allow_refunds, |flag| flag.value),
        trust_tier: flag("trust_tier"),
        disabled: flag("disabled"),
        exempt: tree::exempt(&map),
        algorithm: defaults.algorithm,
        descriptors: trees
            .descriptors(map.list("descriptors"), &Above::top(name.map_or("", |name| name.value))),
    };
    let trust_tier = map.flag("trust_tier").filter(|flag| flag.value).map(|flag| flag.span);
    if let Some(list) = map.get("descriptors") {
        trees.remembered.borrow().lint_reserved(reader, list.node());
    }
    // Other documents may have the names.
    trees.remembered.borrow().lint(reader, trust_tier, common.heads.is_none());
    let settings = map.given().find(|field| !matches!(field.name, "domain" | "descriptors"));
    Some(DomainText { draft, at, settings: settings.and_then(|field| map.key(field.name)) })
}

fn matching(word: &str) -> Matching {
    if word == "path" { Matching::Path } else { Matching::Leaf }
}
