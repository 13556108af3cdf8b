//! What each rule said. A rule that nobody asked takes next to nothing and is not shown.
//!
//! Numbers belong to a rule's id and tier, so they go on when the rules are loaded again. Old and new share them: whoever still decides by
//! the old book when the new one is there is counted too.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use tidegate_core::{Book, Outcome, Role, Rule, Verdict};

use crate::count::{APART_BYTES, Count};
use crate::label::{Labels, hash};
use crate::words::Reason;

/// How many rules have numbers of their own: each is some twenty lines of the page that is scraped. The rules that are first asked
/// after so many others share one row.
pub const RULES_SHOWN_MAX: usize = 10_000;

/// Limits that requests bring themselves: one row, since nothing that a request says is a label.
const REQUEST: &str = "request";
/// Rules beyond [`RULES_SHOWN_MAX`].
const OTHERS: &str = "others";

/// The upper bounds of what remains, in twentieths of the limit.
pub(crate) const REMAINING_BOUNDS: [u64; 8] = [0, 1, 2, 5, 10, 15, 18, 20];
/// What remains is told in parts of a twentieth, so fine that a sum of them is a sum of ratios for all purposes.
const PARTS_BITS: u32 = 16;
/// All parts of a limit.
pub(crate) const PARTS: u64 = 20 << PARTS_BITS;

/// The numbers of all rules of a book.
#[derive(Debug)]
pub struct RuleMetrics {
    /// By the rule's number in the book.
    slots: Box<[Arc<Slot>]>,
    shared: Arc<Shared>,
    shown: AtomicUsize,
    cores: usize,
}

/// Which rule, whatever its number in the book of the day.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RuleMark(u64);

/// The place of one rule, empty until it is asked.
#[derive(Debug)]
struct Slot {
    mark: RuleMark,
    /// Its numbers; none if it shares those of the others.
    series: OnceLock<Option<Series>>,
}

/// Rows that belong to no single rule.
#[derive(Default, Debug)]
struct Shared {
    request: OnceLock<Series>,
    others: OnceLock<Series>,
}

#[derive(Debug)]
struct Series {
    /// One for each core.
    shards: Box<[Shard]>,
    labels: Box<Labels>,
}

/// What one core counted of one rule.
#[derive(Default, Debug)]
#[repr(align(128))]
struct Shard {
    /// By [`Outcome`], then [`SHADOW_REFUSED`] and [`DEGRADED`].
    said: [Count; 6],
    forgiven: Count,
    remaining: [Count; REMAINING_BOUNDS.len()],
    remaining_parts: Count,
}

const SHADOW_REFUSED: usize = 4;
const DEGRADED: usize = 5;

// An outcome is where its count is, and a reason is behind the one that is none.
const _: () = {
    assert!(Outcome::Admitted as usize == 0 && Outcome::NotHeld as usize == SHADOW_REFUSED - 1);
    let mut at = 0;
    while at < Reason::ALL.len() {
        let reason = Reason::ALL[at];
        assert!(at == reason as usize && at + 1 == reason.outcome() as usize);
        at += 1;
    }
};

// Two lines, and no core shares one with another.
const _: () = assert!(size_of::<Shard>() == APART_BYTES && align_of::<Shard>() == APART_BYTES);

impl RuleMetrics {
    /// Numbers for the rules of `book`, which `cores` threads count. Rules that were in `before` with the same id and tier keep theirs.
    pub fn of(book: &Book, cores: usize, before: Option<&Self>) -> Self {
        let before = before.filter(|before| before.cores == cores);
        let kept = before.map_or(&[][..], |before| &before.slots[..]);
        let mut slots: HashMap<RuleMark, Arc<Slot>> =
            kept.iter().map(|slot| (slot.mark, slot.clone())).collect();
        let slot = |rule: &Rule| {
            let mark = RuleMark::of(rule);
            let fresh = || Arc::new(Slot { mark, series: OnceLock::new() });
            slots.entry(mark).or_insert_with(fresh).clone()
        };
        let slots: Box<[Arc<Slot>]> = book.rules().iter().map(slot).collect();
        let shown = slots.iter().filter(|slot| matches!(slot.series.get(), Some(Some(_)))).count();
        let shared = before.map(|before| before.shared.clone()).unwrap_or_default();
        Self { slots, shared, shown: AtomicUsize::new(shown), cores }
    }

    /// Counts what a limit said to a take: one of a rule of the same book, or one that the request brought itself. Only the thread of
    /// `core` may say so.
    ///
    /// # Panics
    /// If there are not so many cores.
    #[inline]
    pub fn count(&self, core: usize, rule: Option<&Rule>, role: Role, verdict: &Verdict, degraded: bool) {
        let series = match rule.map(|rule| (rule, self.slots.get(rule.number))) {
            Some((rule, Some(slot))) => match slot.series.get() {
                Some(Some(series)) => series,
                _ => self.first(rule, slot),
            },
            Some((_, None)) => self.others(),
            None => self.request(),
        };
        series.shards[core].count(role, verdict, degraded);
    }

    /// What the rule of a take is known by after the next reload; that of all limits which requests bring, if there is no rule.
    #[inline]
    pub fn mark(&self, rule: Option<&Rule>) -> RuleMark {
        let slot = rule.and_then(|rule| self.slots.get(rule.number));
        slot.map_or(RuleMark::REQUEST, |slot| slot.mark)
    }

    /// What a rule is called on the page that is scraped, if it is in the book and was counted.
    pub fn labels(&self, mark: RuleMark) -> Option<&Labels> {
        if mark == RuleMark::REQUEST {
            return self.shared.request.get().map(|series| &*series.labels);
        }
        let slot = self.slots.iter().find(|slot| slot.mark == mark)?;
        let series = slot.series.get()?.as_ref().or(self.shared.others.get())?;
        Some(&series.labels)
    }

    #[cold]
    fn first<'s>(&'s self, rule: &Rule, slot: &'s Slot) -> &'s Series {
        debug_assert_eq!(slot.mark, RuleMark::of(rule), "a rule of another book");
        let own = slot.series.get_or_init(|| {
            let room = self.shown.fetch_add(1, Relaxed) < RULES_SHOWN_MAX;
            room.then(|| Series::new(Labels::of(rule), self.cores))
        });
        own.as_ref().unwrap_or_else(|| self.others())
    }

    fn others(&self) -> &Series {
        self.shared.others.get_or_init(|| Series::new(Labels::word(OTHERS), self.cores))
    }

    fn request(&self) -> &Series {
        self.shared.request.get_or_init(|| Series::new(Labels::word(REQUEST), self.cores))
    }
}

impl RuleMark {
    /// No rule has an empty id.
    const REQUEST: Self = Self(0);

    fn of(rule: &Rule) -> Self {
        // An empty tier is not the same as none.
        let tier = rule.tier.as_deref();
        let parts = [&*rule.id, if tier.is_some() { "tier" } else { "" }, tier.unwrap_or_default()];
        Self((hash(&parts).bits() as u64).max(1))
    }
}

impl Series {
    fn new(labels: Labels, cores: usize) -> Self {
        let shards = (0..cores).map(|_| Shard::default()).collect();
        Self { shards, labels: Box::new(labels) }
    }
}

impl Shard {
    #[inline]
    fn count(&self, role: Role, verdict: &Verdict, degraded: bool) {
        if degraded {
            return self.said[DEGRADED].add(1); // Nothing was counted: what remains is not known.
        }
        let in_shadow = role == Role::Shadow && !verdict.admitted();
        let said = if in_shadow { SHADOW_REFUSED } else { verdict.outcome as usize };
        self.said[said].add(1);
        self.forgiven.add(verdict.forgiven);
        let parts = remaining_parts(verdict);
        self.remaining[bucket(parts)].add(1);
        self.remaining_parts.add(parts);
    }
}

/// What remains of a limit, rounded up. A burst may hold more than the limit; it counts as all of it.
#[inline]
fn remaining_parts(verdict: &Verdict) -> u64 {
    let limit = u64::from(verdict.limit.max(1));
    let remaining = u64::from(verdict.remaining).min(limit);
    (remaining * PARTS).div_ceil(limit) // Far below 2^64: there are 2^32 of them, and 2^21 parts.
}

/// The first bucket whose bound is not exceeded: bounds are whole twentieths, so rounding up to those finds it.
#[inline]
fn bucket(parts: u64) -> usize {
    const BUCKETS: [u8; 32] = {
        let (mut buckets, mut twentieths, mut bucket) = ([0; 32], 0, 0);
        while twentieths <= 20 {
            if twentieths > REMAINING_BOUNDS[bucket] {
                bucket += 1;
            }
            buckets[twentieths as usize] = bucket as u8;
            twentieths += 1;
        }
        buckets
    };
    let twentieths = (parts + (1 << PARTS_BITS) - 1) >> PARTS_BITS;
    BUCKETS[twentieths as usize % BUCKETS.len()].into()
}

/// What all cores have counted of one rule so far.
#[derive(Debug)]
pub(crate) struct RuleSums {
    pub(crate) labels: Labels,
    pub(crate) allowed: u64,
    pub(crate) denied: [u64; Reason::ALL.len()],
    pub(crate) shadow_refused: u64,
    pub(crate) degraded: u64,
    pub(crate) forgiven: u64,
    pub(crate) remaining: [u64; REMAINING_BOUNDS.len()],
    pub(crate) remaining_parts: u64,
}

impl RuleMetrics {
    /// Adds up what the cores have counted, of each rule that was asked, in the order of the book.
    pub(crate) fn sums(&self) -> Vec<RuleSums> {
        let mut seen = HashSet::new(); // A book may have a rule twice.
        let used = self.slots.iter().filter_map(|slot| Some((slot.mark, slot.series.get()?.as_ref()?)));
        let used = used.filter(|(mark, _)| seen.insert(*mark)).map(|(_, series)| series);
        let shared = [&self.shared.request, &self.shared.others].into_iter().filter_map(OnceLock::get);
        used.chain(shared).map(Series::sums).collect()
    }
}

impl Series {
    fn sums(&self) -> RuleSums {
        use std::array::from_fn;
        let sum = |of: &dyn Fn(&Shard) -> &Count| {
            self.shards.iter().fold(0_u64, |sum, shard| sum.wrapping_add(of(shard).get()))
        };
        RuleSums {
            labels: (*self.labels).clone(),
            allowed: sum(&|shard| &shard.said[Outcome::Admitted as usize]),
            denied: from_fn(|reason| sum(&|shard| &shard.said[reason + 1])),
            shadow_refused: sum(&|shard| &shard.said[SHADOW_REFUSED]),
            degraded: sum(&|shard| &shard.said[DEGRADED]),
            forgiven: sum(&|shard| &shard.forgiven),
            remaining: from_fn(|bucket| sum(&|shard| &shard.remaining[bucket])),
            remaining_parts: sum(&|shard| &shard.remaining_parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Secret;

    use super::*;

    #[test]
    fn what_remains_counts_in_the_bucket_whose_bound_it_does_not_exceed() {
        for (remaining, limit, bound) in [
            (0, 100, 0.0),
            (0, 0, 0.0),
            (1, 100, 0.05),
            (5, 100, 0.05),
            (6, 100, 0.1),
            (1, u32::MAX, 0.05),
            (1, 3, 0.5),
            (90, 100, 0.9),
            (91, 100, 1.0),
            (u32::MAX, u32::MAX, 1.0),
            (150, 100, 1.0),
        ] {
            let verdict = Verdict { remaining, limit, ..Verdict::BLANK };
            let at = bucket(remaining_parts(&verdict));
            assert_eq!(REMAINING_BOUNDS[at] as f64 / 20.0, bound, "{remaining} of {limit}");
        }
    }

    /// Which is why none waits for another, and none loses a count to another.
    #[test]
    fn each_core_writes_what_is_its_own() {
        let rules = RuleMetrics::of(&Book::new([], Secret::new([1; 16])), 3, None);
        for core in [0, 1, 1, 2, 2, 2] {
            rules.count(core, None, Role::Enforce, &Verdict::BLANK, false);
        }
        let series = rules.request();
        let refused = |shard: &Shard| shard.said[Outcome::RateLimited as usize].get();
        assert_eq!(series.shards.iter().map(refused).collect::<Vec<u64>>(), [1, 2, 3]);
        assert_eq!(series.sums().denied, [6, 0, 0]);
    }
}
