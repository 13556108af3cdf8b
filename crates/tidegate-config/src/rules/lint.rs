//! What is allowed, and hardly meant: warnings.

use std::collections::{HashMap, HashSet};

use super::tree::Named;
use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::reader::{Reader, Spanned};
use crate::source::Span;
use crate::yaml::Node;

/// What is remembered of a domain while it is read.
#[derive(Default)]
pub(super) struct Remembered<'a> {
    /// The names that limits have.
    names: HashSet<&'a str>,
    /// Who replaces whom: the name of the one, if it has any, and the name of the other.
    replaced: Vec<(Option<&'a str>, Spanned<&'a str>)>,
    /// A descriptor with the key `tier`.
    tier: Option<Span>,
    /// The keys of entries that are taken out before anything is looked for, and who says so.
    reserved: HashMap<&'a str, Span>,
}

impl<'a> Remembered<'a> {
    pub(super) fn limit(&mut self, name: Option<&'a str>, replaces: &[Spanned<&'a str>]) {
        self.names.extend(name);
        self.replaced.extend(replaces.iter().map(|other| (name, *other)));
    }

    pub(super) fn descriptor(&mut self, key: &str, at: Span) {
        if key == "tier" {
            self.tier.get_or_insert(at);
        }
    }

    pub(super) fn reserved(&mut self, id: Spanned<&'a str>) {
        self.reserved.entry(id.value).or_insert(id.span);
    }

    /// Says which descriptors below a list are never found, because their entry is taken out. As deep as the tree, which is bounded.
    pub(super) fn lint_reserved(&self, reader: &Reader, list: Node<'_>) {
        if self.reserved.is_empty() {
            return;
        }
        for (key, value) in list.items().flat_map(Node::entries) {
            match key.text() {
                Some("descriptors") => self.lint_reserved(reader, value),
                Some("key") => {
                    let Some(by) = value.text().and_then(|key| self.reserved.get(key)) else { continue };
                    reader.say_with(Code::Unreachable, || {
                        Diagnostic::new(Code::Unreachable, value.span(), "this descriptor is never found")
                            .label("never reached")
                            .note(*by, "the entry is taken out of all descriptors of the domain, for its id")
                            .help("let the id have an entry of its own, e.g. `request_id`")
                    });
                }
                _ => {}
            }
        }
    }

    /// Says what is odd about the whole. `all_names` says whether all names of the domain are known.
    pub(super) fn lint(&self, reader: &Reader, trust_tier: Option<Span>, all_names: bool) {
        let pairs: HashSet<(&str, &str)> =
            self.replaced.iter().filter_map(|(who, whom)| Some(((*who)?, whom.value))).collect();
        for (who, Spanned { value: whom, span: at }) in
            self.replaced.iter().filter(|(_, whom)| !whom.value.is_empty())
        {
            if all_names && !self.names.contains(whom) {
                reader.say(
                    Diagnostic::new(
                        Code::ReplacesNobody,
                        *at,
                        format!("no limit of the domain is called {}", quoted(whom)),
                    )
                    .label("replaces nobody")
                    .help("check the spelling: `replaces` takes the `name` of a limit of the same domain"),
                );
            }
            let mutual = who.filter(|who| who < whom && pairs.contains(&(*whom, *who)));
            if let Some(who) = mutual {
                let message = format!("{} and {} replace each other", quoted(who), quoted(whom));
                reader.say(
                    Diagnostic::new(Code::ReplaceEachOther, *at, message)
                        .label("both stay")
                        .help("remove one of the two `replaces`"),
                );
            }
        }
        self.refuse_circles(reader, &pairs);
        if let (Some(trust), Some(tier)) = (trust_tier, self.tier) {
            reader.say(
                Diagnostic::new(Code::TierIsAKey, trust, "`trust_tier` in a domain with a descriptor `tier`")
                    .label("has no effect")
                    .note(tier, "the entry `tier` is matched here, and says nothing about the caller")
                    .help("give the descriptor another key, or remove `trust_tier`"),
            );
        }
    }

    /// A limit that replaces another which, over others, replaces it: a request that finds all would lose all of them. (Two that replace
    /// each other both stay.)
    fn refuse_circles(&self, reader: &Reader, pairs: &HashSet<(&str, &str)>) {
        let mutual = |who: &str, whom: &str| pairs.contains(&(whom, who));
        let edges = pairs.iter().copied().filter(|(who, whom)| !mutual(who, whom)).collect();
        let turned = |edges: Vec<(_, _)>| edges.into_iter().map(|(who, whom)| (whom, who)).collect();
        let left: HashSet<(&str, &str)> =
            turned(behind_circles(turned(behind_circles(edges)))).into_iter().collect();
        for (who, whom) in &self.replaced {
            let Some(who) = who.filter(|who| left.contains(&(*who, whom.value))) else { continue };
            let message = format!("{} replaces {} in a circle", quoted(who), quoted(whom.value));
            reader.say(
                Diagnostic::new(Code::ReplacesInACircle, whom.span, message)
                    .label("which, over others, replaces it")
                    .help("remove one `replaces` of the circle: a request that finds all of them would not be limited at all"),
            );
        }
    }
}

/// The edges that a circle leads to, those of the circle included. Whoever no edge leads to is on no circle; without it, the same may be
/// true of others.
fn behind_circles<'a>(edges: Vec<(&'a str, &'a str)>) -> Vec<(&'a str, &'a str)> {
    let mut from: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut leading: HashMap<&str, usize> = HashMap::new();
    for (who, whom) in edges {
        from.entry(who).or_default().push(whom);
        *leading.entry(whom).or_default() += 1;
    }
    let mut free: Vec<&str> = from.keys().copied().filter(|name| !leading.contains_key(name)).collect();
    while let Some(name) = free.pop() {
        for whom in from.remove(name).unwrap_or_default() {
            let count = leading.entry(whom).or_default();
            *count -= 1;
            if *count == 0 {
                free.push(whom);
            }
        }
    }
    from.into_iter().flat_map(|(who, whoms)| whoms.into_iter().map(move |whom| (who, whom))).collect()
}

/// Siblings that are never found, because a `*` that fits everything comes first. Those with a fixed value need not be among them: they
/// come before all others.
pub(super) fn unreachable(reader: &Reader, siblings: &[(Named<'_>, Span)]) {
    let mut taken: HashMap<&str, (usize, Span)> = HashMap::new();
    for (at, (named, span)) in siblings.iter().enumerate() {
        if named.value == Some("*") {
            taken.entry(named.key).or_insert((at, *span));
        }
    }
    for (at, (named, span)) in siblings.iter().enumerate() {
        let Some((by, by_span)) = taken.get(named.key).filter(|(by, _)| *by != at) else { continue };
        if named.value.is_none() || *by < at {
            reader.say_with(Code::Unreachable, || {
                Diagnostic::new(Code::Unreachable, *span, "this descriptor is never found")
                    .label("never reached")
                    .note(*by_span, "fits every value, and is tried first")
                    .help("move it before the `*`, or remove one of them")
            });
        }
    }
}
