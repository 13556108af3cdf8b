//! What the rules of a book are called. Made with every book: a rule whose name no request changes, as nearly all, has it from then on, and
//! counting costs neither a lock nor an allocation.

use std::sync::{Arc, OnceLock};

use tidegate_core::{Book, Entry, Rule};

use super::registry::Series;
use super::stats::ReferenceStats;
use super::table::{COUNTS, OfRule};
use super::{Judged, spelling};

/// Rules that are told from the start, with zeros, so that what they first count is seen as growth. Of a book with more, those beyond are
/// told when they are first asked.
const FROM_START_MAX: usize = 1_000;

/// The names of the rules of one book.
#[derive(Debug)]
pub struct ReferenceNames {
    stats: Arc<ReferenceStats>,
    /// By the rule's number in the book.
    slots: Box<[Slot]>,
}

/// How one rule is called.
#[derive(Debug)]
enum Slot {
    /// Always the same. Empty until it is asked; none within if there was no room.
    Fixed(OnceLock<Option<Arc<Series>>>),
    /// As the request says.
    Asked,
}

impl ReferenceNames {
    /// The names of the rules of `book`. Those that had the same name in a book before go on with their numbers.
    pub fn of(stats: &Arc<ReferenceStats>, book: &Book) -> Self {
        if stats.rules.is_full() {
            // Rules of books that are gone. What they counted since the last flush of statsd goes with them.
            stats.rules.forget_unused();
        }
        let slot = |rule: &Rule| match spelling::is_fixed(rule) {
            true => Slot::Fixed(OnceLock::new()),
            false => Slot::Asked,
        };
        let names = Self { stats: stats.clone(), slots: book.rules().iter().map(slot).collect() };
        for rule in book.rules().iter().filter(|rule| rule.said.limit.is_some()).take(FROM_START_MAX) {
            if let Some(Slot::Fixed(series)) = names.slots.get(rule.number) {
                names.series(rule, series);
            }
        }
        names
    }

    /// Counts what was said to one descriptor: by a rule of the same book, or by the limit that the request brought. `entries` are those of
    /// the descriptor, without those that are no part of its way ([`tidegate_core::Domain::walked`]). A descriptor that found an unlimited
    /// rule is not counted, as there.
    #[inline]
    pub fn judged<'e>(
        &self,
        core: usize,
        domain: &str,
        rule: Option<&Rule>,
        entries: impl IntoIterator<Item = &'e Entry<'e>>,
        judged: &Judged,
    ) {
        let adds = judged.adds(self.stats.settings.near_limit_ratio);
        self.count(core, domain, rule, entries, &adds);
    }

    /// Counts hits that were given back.
    pub fn given_back<'e>(
        &self,
        core: usize,
        domain: &str,
        rule: Option<&Rule>,
        entries: impl IntoIterator<Item = &'e Entry<'e>>,
        hits: u64,
    ) {
        let mut adds = [0; COUNTS];
        adds[OfRule::TotalNegativeHits as usize] = hits;
        self.count(core, domain, rule, entries, &adds);
    }

    #[inline]
    fn count<'e>(
        &self,
        core: usize,
        domain: &str,
        rule: Option<&Rule>,
        entries: impl IntoIterator<Item = &'e Entry<'e>>,
        adds: &[u64; COUNTS],
    ) {
        let slot = rule.and_then(|rule| Some((rule, self.slots.get(rule.number)?)));
        match (slot, rule) {
            (Some((rule, Slot::Fixed(series))), _) => match self.series(rule, series) {
                Some(series) => series.add(core, adds),
                None => self.stats.count_others(core, &rule.domain, adds),
            },
            (_, Some(rule)) => self.stats.count_asked(core, &rule.domain, adds, |name| {
                spelling::write_asked(name, rule, entries.into_iter());
            }),
            (_, None) => self.stats.count_asked(core, domain, adds, |name| {
                spelling::write_own(name, domain, entries.into_iter());
            }),
        }
    }

    #[inline]
    fn series<'s>(&self, rule: &Rule, slot: &'s OnceLock<Option<Arc<Series>>>) -> Option<&'s Series> {
        let first = || self.stats.series_of(|name| spelling::write_fixed(name, rule));
        slot.get_or_init(first).as_deref()
    }
}
