//! The tree of a domain: descriptors, their limits and tiers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use tidegate_core::{DEPTH_MAX, DescriptorDraft, Exempt, Origin, RuleDraft};

use super::limit::{Defaults, LimitText};
use super::lint::{self, Remembered};
use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::fields::Kind;
use crate::json::json;
use crate::reader::{Map, Reader, Spanned, Value, Values};
use crate::source::{Sources, Span};
use crate::theirs;
use crate::yaml::{Node, NodeKind};

/// Longer names make headers that nobody reads.
const NAME_CHARS_MAX: usize = 100;

/// How many limits a descriptor, or a tier of it, may have: a request that finds it has to ask them all. And how many tiers.
const LIMITS_MAX: usize = 100;
const TIERS_MAX: usize = 1_000;

/// How much the paths of all descriptors may have together: some ten times what a large set of rules has.
const PATH_BYTES_MAX: u64 = 256 << 20;

/// What is the same for all descriptors of a domain.
pub(super) struct Trees<'a> {
    pub(super) reader: &'a Reader,
    pub(super) sources: &'a Sources,
    pub(super) file: Arc<str>,
    pub(super) defaults: Defaults,
    pub(super) shadow: bool,
    /// Are the drafts wanted, or only what is wrong?
    pub(super) keep: bool,
    pub(super) path_bytes: &'a Cell<u64>,
    pub(super) remembered: RefCell<Remembered<'a>>,
}

/// What is above a list of siblings.
pub(super) struct Above<'u> {
    /// What is above that; nothing above the domain.
    above: Option<&'u Above<'u>>,
    /// What it is called: a descriptor, or the domain.
    named: Named<'u>,
    /// Are all values fixed?
    fixed: bool,
    /// How many levels.
    levels: usize,
    /// Bytes of the path.
    bytes: usize,
}

impl<'u> Above<'u> {
    /// Nothing but the domain.
    pub(super) fn top(domain: &'u str) -> Self {
        let named = Named { key: domain, value: None };
        Self { above: None, named, fixed: true, levels: 0, bytes: domain.len() }
    }

    /// The whole way to something below it, as envoyproxy/ratelimit writes it.
    fn composite(&self, last: Named<'_>) -> String {
        let mut parts = vec![theirs::composite(last.key, last.value)];
        let mut next = Some(self);
        while let Some(Above { above, named, .. }) = next {
            parts.push(theirs::composite(named.key, named.value));
            next = *above;
        }
        parts.reverse();
        parts.join(".")
    }
}

/// What siblings are told apart by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Named<'a> {
    pub(super) key: &'a str,
    pub(super) value: Option<&'a str>,
}

/// What a descriptor says about all of its limits.
struct Flags {
    shadow: bool,
    quota: bool,
    disabled: bool,
    detailed_metric: bool,
    metadata: Option<Arc<str>>,
}

impl<'a> Trees<'a> {
    /// Reads a list of siblings.
    pub(super) fn descriptors(&self, list: Option<Values<'a>>, above: &Above<'_>) -> Vec<DescriptorDraft> {
        let level = above.levels + 1;
        let mut list = list.into_iter().flatten().peekable();
        if let (true, Some(first)) = (level > DEPTH_MAX, list.peek()) {
            self.reader.say(
                Diagnostic::new(
                    Code::TooManyLevels,
                    first.span(),
                    format!("a path of more than {DEPTH_MAX} levels"),
                )
                .label(format!("level {level}"))
                .help("no request has that many entries; check the indentation"),
            );
            return Vec::new();
        }
        let mut seen: HashMap<Named<'a>, Span> = HashMap::new();
        let mut wild = Vec::new();
        let mut drafts = Vec::new();
        for value in list {
            let Some(map) = value.map() else { continue };
            let named = self.named(&map);
            let at = map.get("key").map_or(map.span(), Value::span);
            self.remembered.borrow_mut().descriptor(named.key, at);
            match seen.entry(named) {
                Entry::Occupied(first) => self.duplicate(named, above, at, *first.get()),
                Entry::Vacant(vacant) => drop(vacant.insert(at)),
            }
            if named.value.is_none_or(|value| value.contains('*')) {
                wild.push((named, at));
            }
            let draft = self.descriptor(&map, named, above);
            if self.keep {
                drafts.push(draft);
            }
        }
        lint::unreachable(self.reader, &wild);
        drafts
    }

    fn named(&self, map: &Map<'a>) -> Named<'a> {
        let key = map.text("key");
        if let Some(key) = key.filter(|key| key.value.is_empty()) {
            self.reader.say(
                Diagnostic::new(Code::EmptyText, key.span, "a descriptor with an empty key")
                    .label("empty")
                    .help("write the key of the entry, e.g. `api_key`")
                    .theirs(theirs::EMPTY_KEY),
            );
        }
        // An empty value is none, as in the format that ours extends.
        let value = map.text("value").map(|value| value.value).filter(|value| !value.is_empty());
        Named { key: key.map_or("", |key| key.value), value }
    }

    fn duplicate(&self, named: Named<'_>, above: &Above<'_>, at: Span, first: Span) {
        let Named { key, value } = named;
        self.reader.say_with(Code::DuplicateDescriptor, || {
            let what = match value {
                Some(value) => format!("{} with the value {}", quoted(key), quoted(value)),
                None => format!("{} without a value", quoted(key)),
            };
            Diagnostic::new(Code::DuplicateDescriptor, at, format!("the descriptor {what} stands twice"))
                .label("once more")
                .note(first, "first here")
                .help("put several limits of one descriptor into `rate_limits`, and its children into one `descriptors`")
                .theirs(theirs::duplicate_descriptor(&above.composite(named)))
        });
    }

    fn descriptor(&self, map: &Map<'a>, named: Named<'a>, above: &Above<'_>) -> DescriptorDraft {
        let Named { key, value } = named;
        let wild = key.contains('*') || value.is_some_and(|value| value.contains('*'));
        let fixed = above.fixed && !wild && value.is_some();
        let flag = |name| map.flag(name).is_some_and(|flag| flag.value);
        let flags = Flags {
            shadow: flag("shadow_mode") || self.shadow,
            quota: flag("quota_mode"),
            disabled: flag("disabled"),
            detailed_metric: flag("detailed_metric"),
            metadata: map.get("metadata").map(|metadata| {
                self.check_names(metadata);
                json(metadata.node()).to_string().into()
            }),
        };
        if let Some(share) = map.flag("share_threshold").filter(|share| share.value && !wild) {
            self.reader.say(
                Diagnostic::new(
                    Code::ShareWithoutWildcard,
                    share.span,
                    "`share_threshold` without a wildcard",
                )
                .label("there is nothing to share")
                .help("write a value with `*`, e.g. `value: \"files/*\"`, or remove it")
                .theirs(theirs::share_without_wildcard(&theirs::composite(key, value))),
            );
        }
        let texts = self.limit_texts(map);
        let limits = self.limits(&texts, &flags);
        let tiers = self.tiers(map, &texts, &flags);
        let bytes = above.bytes + key.len() + value.map_or(0, str::len);
        let rules = limits.len() + tiers.iter().map(|(_, limits)| limits.len()).sum::<usize>();
        self.spend(bytes.saturating_mul(rules + 1) as u64, map.span());
        let always = map.flag("always").filter(|always| always.value);
        if let Some(always) = always {
            self.check_always(map, always.span, fixed, texts.is_empty());
        }
        DescriptorDraft {
            key: key.into(),
            value: value.map(String::from),
            share_threshold: flag("share_threshold"),
            value_to_metric: flag("value_to_metric"),
            always: always.is_some(),
            exempt: exempt(map),
            limits,
            tiers,
            descriptors: self.descriptors(
                map.list("descriptors"),
                &Above { above: Some(above), named, fixed, levels: above.levels + 1, bytes },
            ),
        }
    }

    /// Finds keys that stand twice in what is only handed on. As deep as the tree, which is bounded.
    fn check_names(&self, map: Value<'a>) {
        for (name, value) in map.names().into_iter().flatten() {
            self.check_free(name.value, value.node());
        }
    }

    fn check_free(&self, name: &'a str, node: Node<'a>) {
        match node.kind() {
            NodeKind::Map => self.check_names(self.reader.value(name, node, Kind::Names(&Kind::Free))),
            NodeKind::List => node.items().for_each(|item| self.check_free(name, item)),
            NodeKind::Scalar | NodeKind::Null => {}
        }
    }

    /// Counts the bytes of a path, once for each rule on it.
    fn spend(&self, bytes: u64, at: Span) {
        let before = self.path_bytes.get();
        if self.keep || before > PATH_BYTES_MAX {
            return; // Counted, or told.
        }
        self.path_bytes.set(before.saturating_add(bytes));
        if self.path_bytes.get() > PATH_BYTES_MAX {
            let message = format!("the paths of all rules up to here have more than {PATH_BYTES_MAX} bytes");
            self.reader.say(
                Diagnostic::new(Code::TooLarge, at, message)
                    .label("the bound is reached here")
                    .help("shorten the keys and values at the top: each rule is known by its whole path"),
            );
        }
    }

    fn limit_texts(&self, map: &Map<'a>) -> Vec<LimitText<'a>> {
        let several = map.list("rate_limits");
        if let (Some(one), Some(_)) = (map.key("rate_limit"), &several) {
            let more = map.key("rate_limits").unwrap_or(one);
            self.reader.say(
                Diagnostic::new(Code::SaidTwice, more, "`rate_limit` and `rate_limits` on one descriptor")
                    .label("more limits")
                    .note(one, "a limit")
                    .help("put all into `rate_limits`"),
            );
        }
        self.all_limit_texts(map.get("rate_limit").into_iter().chain(several.into_iter().flatten()))
    }

    fn all_limit_texts(&self, mut values: impl Iterator<Item = Value<'a>>) -> Vec<LimitText<'a>> {
        let read = |value| LimitText::read(self.reader, value);
        let texts = values.by_ref().take(LIMITS_MAX).filter_map(read).collect();
        if let Some(more) = values.next() {
            self.too_many(more.span(), &format!("more than {LIMITS_MAX} limits on one descriptor"));
        }
        texts
    }

    fn too_many(&self, at: Span, message: &str) {
        self.reader.say(
            Diagnostic::new(Code::TooManyLimits, at, message)
                .label("the bound is reached here")
                .help("give callers of their own a descriptor of their own, e.g. by `value`"),
        );
    }

    fn limits(&self, texts: &[LimitText<'a>], flags: &Flags) -> Vec<RuleDraft> {
        let mut labels: Vec<(String, Span)> = Vec::new();
        let mut rules = Vec::with_capacity(texts.len());
        for text in texts {
            self.check_name(text.name);
            self.remembered.borrow_mut().limit(text.name.map(|name| name.value), &text.replaces);
            for id in text.ids() {
                self.check_id(id);
            }
            if let (true, Some(enforce)) = (flags.shadow, text.enforce) {
                self.reader.say(
                    Diagnostic::new(
                        Code::EnforceInShadow,
                        enforce.span,
                        "`enforce` on a limit in shadow mode",
                    )
                    .label("nobody is enforced")
                    .help("remove `shadow_mode` to enforce it for a part of the callers"),
                );
            }
            let Some(rule) = text.rule(self.reader, &self.defaults) else { continue };
            let label = rule.name.as_deref().map_or_else(
                || rule.limit.as_ref().map_or_else(|| "unlimited".into(), |limit| limit.label()),
                String::from,
            );
            match labels.iter().find(|(other, _)| *other == label) {
                Some((_, first)) => self.reader.say(
                    Diagnostic::new(Code::DuplicateRule, text.span, format!("two limits of one descriptor are called {}", quoted(&label)))
                        .label("once more")
                        .note(*first, "first here")
                        .help("give each a `name` of its own: a limit without one is known by its algorithm and window"),
                ),
                None => labels.push((label, text.span)),
            }
            rules.push(RuleDraft {
                shadow: flags.shadow,
                quota: flags.quota,
                disabled: flags.disabled || rule.disabled,
                detailed_metric: flags.detailed_metric,
                metadata: flags.metadata.clone(),
                origin: self.origin(text.span),
                ..rule
            });
        }
        rules
    }

    fn tiers(&self, map: &Map<'a>, base: &[LimitText<'a>], flags: &Flags) -> Vec<(String, Vec<RuleDraft>)> {
        let mut tiers = Vec::new();
        for (name, value) in map.names("tiers").into_iter().flatten() {
            if tiers.len() == TIERS_MAX {
                self.too_many(name.span, &format!("more than {TIERS_MAX} tiers on one descriptor"));
                break;
            }
            if name.value.is_empty() {
                self.reader.say(
                    Diagnostic::new(Code::EmptyText, name.span, "a tier without a name")
                        .label("empty")
                        .help("write its name, e.g. `pro`"),
                );
            }
            let texts = match (value.kind(), base) {
                (Kind::List(_), _) => self.all_limit_texts(value.list().into_iter().flatten()),
                (_, [_, _, ..]) => {
                    self.reader.say(
                        Diagnostic::new(
                            Code::TierOfSeveral,
                            value.span(),
                            format!("which of {} limits does the tier change?", base.len()),
                        )
                        .label("the descriptor has several limits")
                        .help("write the limits of the tier as a list: `- { limit: … }`"),
                    );
                    continue;
                }
                (_, base) => {
                    let Some(text) = LimitText::read(self.reader, value) else { continue };
                    vec![if let [base] = base { text.over(base, &self.defaults) } else { text }]
                }
            };
            tiers.push((name.value.into(), self.limits(&texts, flags)));
        }
        tiers
    }

    fn check_always(&self, map: &Map<'_>, at: Span, fixed: bool, limitless: bool) {
        if !fixed {
            self.reader.say(
                Diagnostic::new(Code::AlwaysOpen, at, "`always` on a path whose values are not all fixed")
                    .label("which counter should a request count on?")
                    .help("give every descriptor on the path a `value` without `*`"),
            );
        }
        if limitless {
            self.reader.say(
                Diagnostic::new(Code::NoLimit, at, "`always` on a descriptor without a limit")
                    .label("there is nothing to count")
                    .help("add a `rate_limit`"),
            );
        }
        if let Some(tiers) = map.key("tiers") {
            self.reader.say(
                Diagnostic::new(Code::AlwaysOpen, tiers, "`tiers` on a descriptor that always counts")
                    .label("whose tier?")
                    .help("one counter serves everybody, so it has one limit; remove `tiers`"),
            );
        }
    }

    fn check_name(&self, name: Option<Spanned<&str>>) {
        let Some(name) = name else { return };
        let printable = name.value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !printable || name.value.len() > NAME_CHARS_MAX {
            self.reader.say(
                Diagnostic::new(
                    Code::OddName,
                    name.span,
                    format!("the name {} cannot stand in a header", quoted(name.value)),
                )
                .label("shown to callers without what does not fit")
                .help(format!("use up to {NAME_CHARS_MAX} printable ASCII characters")),
            );
        }
    }

    /// An entry that is taken out before anything is looked for.
    fn check_id(&self, id: Spanned<&'a str>) {
        if id.value.is_empty() {
            self.reader.say(
                Diagnostic::new(Code::EmptyText, id.span, "an id without the key of its entry")
                    .label("empty")
                    .help("write the key of the entry that has the id, e.g. `request_id`"),
            );
        }
        self.remembered.borrow_mut().reserved(id);
    }

    fn origin(&self, span: Span) -> Origin {
        let line = self.sources.place(span.source, span.start).line;
        Origin { file: self.file.clone(), line: u32::try_from(line).unwrap_or(u32::MAX) }
    }
}

/// Who is not limited.
pub(super) fn exempt(map: &Map<'_>) -> Option<Exempt> {
    let map = map.map("exempt")?;
    let callers = map.list("callers").into_iter().flatten().filter_map(Value::text);
    let networks = map.list("cidrs").into_iter().flatten().filter_map(Value::cidr);
    Some(Exempt {
        callers: callers.map(|caller| Box::from(caller.value)).collect(),
        networks: networks.filter_map(|cidr| cidr.value.network()).collect(),
    })
}
