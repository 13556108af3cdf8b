//! Quotas: what is kept about single callers beside the rules. A map of its own, which is changed entry by entry while requests are
//! decided; the book holds rules only.
//!
//! A request asks it once for a caller that its descriptors name one after the other, and it is asked by nothing else: a probe of a hash
//! table that is read without a lock ([`Roll`]). Among a million callers each step from one place in memory to the next waits for it, so
//! there is one: it says how much the caller's own limit is, if it has one that holds always, and leads to what callers share who differ in
//! no more than that and their names, which is near. What single callers have for themselves besides is two places further ([`Owns`]);
//! whoever plans several requests together has all of it fetched before it is needed.
//!
//! 64 bits of a hash stand for a name. That any of a million unknown names is taken for one of a million known ones has a probability of
//! one in eighteen million, and nobody outside can look for it: the hash is keyed, anew by each process.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, Hasher as _};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};

use crate::own::{Numbers, Own, Owns};
use crate::roll::{self, AskForLargePages, Roll};
use crate::shared::{Alike, Shared};
use crate::terms::{Agreed, Overrides, Terms, granted};
use crate::{DEPTH_MAX, Entry, Micros, Unit};

/// What a caller may have, and in which time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Grant {
    /// How much.
    pub amount: u32,
    /// In which time.
    pub unit: QuotaUnit,
}

/// The times in which quotas are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "they name themselves")]
pub enum QuotaUnit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl QuotaUnit {
    /// All, the shortest first.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The word used in rule files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The unit of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// How long it is. A month is 30 days and a year 365.
    pub const fn window(self) -> Micros {
        const DAY: u64 = 86_400;
        Micros::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }

    /// The same for a calendar, which counts by days, weeks and months only.
    pub const fn of_calendar(self) -> Option<Unit> {
        match self {
            Self::Day => Some(Unit::Day),
            Self::Week => Some(Unit::Week),
            Self::Month => Some(Unit::Month),
            _ => None,
        }
    }
}

/// Keys and values below the entry that names a caller.
pub type Below = Box<[(Box<str>, Box<str>)]>;

/// One caller's own limit for a descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    /// Where: keys and values below the entry that names the caller. None is the caller's own rule.
    pub below: Below,
    /// What holds there.
    pub grant: Grant,
    /// The first instant at which it holds.
    pub from: Micros,
    /// The first at which it does not any more.
    pub until: Micros,
}

impl Override {
    /// One that holds always.
    pub fn new(below: Below, grant: Grant) -> Self {
        Self { below, grant, from: Micros::new(0), until: Micros::MAX }
    }

    /// Does it hold whenever it is asked about?
    fn holds_always(&self) -> bool {
        self.from == Micros::new(0) && self.until == Micros::MAX
    }
}

/// The address of an override, from its text: `default`, or `key:value` for each entry below the caller's, joined by `|` and split at the
/// first colon. A `\` takes the meaning from the character behind it.
pub fn override_address(text: &str) -> Result<Below, AddressError> {
    if text == ADDRESS_OF_CALLER {
        return Ok(Box::new([]));
    }
    let (mut levels, mut key, mut part) = (Vec::new(), None, String::new());
    let mut letters = text.chars();
    loop {
        match letters.next() {
            Some('\\') => part.push(letters.next().ok_or(AddressError::Unfinished)?),
            Some(':') if key.is_none() => key = Some(std::mem::take(&mut part)),
            end @ (Some('|') | None) => {
                let key = key.take().filter(|key| !key.is_empty()).ok_or(AddressError::NoKey)?;
                levels.push((key.into(), std::mem::take(&mut part).into()));
                if end.is_none() {
                    break;
                }
            }
            Some(letter) => part.push(letter),
        }
    }
    if levels.len() > DEPTH_MAX { Err(AddressError::TooLong) } else { Ok(levels.into()) }
}

/// The address of the caller's own rule.
pub const ADDRESS_OF_CALLER: &str = "default";

/// Why a text is no address of an override.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// A part is no entry.
    #[error(
        "write `key:value` for each entry below the caller's, joined by `|`, or `default` for the caller's own rule"
    )]
    NoKey,
    /// There is nothing behind the last `\`.
    #[error("there is nothing behind the last `\\`: write `\\\\` for a backslash")]
    Unfinished,
    /// No rule has such a path.
    #[error("it has more than {DEPTH_MAX} entries")]
    TooLong,
}

/// What is kept about one caller.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Quota {
    /// Its name: the value of the entry that names callers.
    pub caller: Box<str>,
    /// Its tier.
    pub tier: Option<Arc<str>>,
    /// Its own limits, each at an address of its own.
    pub overrides: Box<[Override]>,
    /// It is not limited at all.
    pub whitelisted: bool,
    /// What few have.
    pub more: Option<Box<QuotaMore>>,
}

/// What is kept about few callers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaMore {
    /// The domain that it is about; none is the default domain.
    pub domain: Option<Box<str>>,
    /// Whose rules are to judge it too: what is called `user_id` in descriptors.
    pub user: Option<Box<str>>,
    /// The same, called `client_id`.
    pub client: Option<Box<str>>,
}

/// What is kept about a caller besides its name, in the hand of somebody who looks at it.
#[derive(Clone, Debug)]
pub enum Kept<'q> {
    /// What others have too, and how much the one limit is that is its own, if it has one.
    Shared(&'q Terms, Option<Grant>),
    /// What nobody else has.
    Own(Arc<Own>),
}

impl Kept<'_> {
    /// The caller's own limits.
    pub fn overrides(&self) -> Cow<'_, [Override]> {
        match (self, &self.overrides) {
            (Self::Shared(_, Some(grant)), Overrides::Each(below)) => {
                vec![Override::new(below.clone(), *grant)].into()
            }
            (_, overrides) => overrides.here().into(),
        }
    }
}

impl Deref for Kept<'_> {
    type Target = Terms;

    #[inline]
    fn deref(&self) -> &Terms {
        match self {
            Self::Shared(terms, _) => terms,
            Self::Own(own) => &own.terms,
        }
    }
}

/// Everything that is kept about callers and tiers.
#[derive(Debug)]
pub struct Quotas {
    /// What names are hashed by. It is seeded anew by each process, and nobody is told a hash: that is all that is asked of it here, and
    /// a hash that withstands more takes four times as long.
    hasher: foldhash::quality::RandomState,
    /// Who is known, and by which number or where what is kept about them is found.
    roll: ArcSwap<Roll>,
    changing: Mutex<Changing>,
    pages: AskForLargePages,
    shared: Shared,
    /// What callers have for themselves.
    owns: Owns,
    /// The tiers that the control plane knows. There are few.
    tiers: ArcSwap<Vec<Tier>>,
    /// How many callers are kept.
    callers: AtomicUsize,
    /// What is kept about those who share nothing.
    bytes: AtomicUsize,
    /// How many tiers say anything about limits.
    granting_tiers: AtomicUsize,
}

/// In the hand of whoever changes anything about a caller.
#[derive(Debug, Default)]
struct Changing {
    /// How many places of the roll are taken.
    taken: usize,
    numbers: Numbers,
}

/// A tier, as the control plane knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tier {
    /// Its name.
    pub name: Arc<str>,
    /// What all its callers have.
    pub overrides: Box<[Override]>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self::new(|_| ())
    }
}

impl Quotas {
    /// Nothing yet, in a table that `pages` is shown before it is used.
    pub fn new(pages: AskForLargePages) -> Self {
        Self {
            hasher: foldhash::quality::RandomState::default(),
            roll: ArcSwap::from_pointee(Roll::with_room(0, pages)),
            changing: Mutex::default(),
            pages,
            shared: Shared::default(),
            owns: Owns::default(),
            tiers: ArcSwap::default(),
            callers: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            granting_tiers: AtomicUsize::new(0),
        }
    }

    /// Is nothing kept that a decision could ask about?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.callers.load(Ordering::Relaxed) == 0 && !self.has_tiers()
    }

    /// Does any tier have limits of its own?
    #[inline]
    pub(crate) fn has_tiers(&self) -> bool {
        self.granting_tiers.load(Ordering::Relaxed) > 0
    }

    /// How many callers are kept.
    pub fn len(&self) -> usize {
        self.callers.load(Ordering::Relaxed)
    }

    /// What all of them take in memory, the tables included.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
            + self.shared.bytes()
            + self.roll.load().bytes()
            + self.owns.bytes()
    }

    /// What requests are planned by at a time; none if nothing is kept.
    #[inline]
    pub fn at(&self, now: Micros) -> Option<Callers<'_>> {
        if self.is_empty() { None } else { Some(Callers { quotas: self, roll: self.roll.load(), now }) }
    }

    /// What is kept about a caller.
    pub fn of(&self, caller: &str) -> Option<Kept<'_>> {
        let hash = self.hash(caller);
        self.at_entry(hash, self.roll.load().get(hash)?)
    }

    /// The hash that stands for a caller.
    #[inline]
    fn hash(&self, caller: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(caller.as_bytes());
        hasher.finish().max(NOBODY + 1)
    }

    /// What an entry of a caller leads to; if that was taken away meanwhile, what its entry of now leads to.
    #[inline]
    fn at_entry(&self, hash: u64, mut entry: roll::Entry) -> Option<Kept<'_>> {
        loop {
            match entry {
                roll::Entry::Shared(number, grant) => {
                    return self.shared.get(number).map(|terms| Kept::Shared(terms, grant));
                }
                roll::Entry::Own(number) => {
                    if let Some(own) = self.owns.get(number, hash) {
                        return Some(Kept::Own(own));
                    }
                }
            }
            // Whoever took it away has said so in the roll before.
            entry = self.roll.load().get(hash)?;
        }
    }

    /// Keeps this about a caller, in place of what was kept before.
    pub fn put(&self, quota: Quota) {
        let Quota { caller, tier, overrides, whitelisted, more } = quota;
        let hash = self.hash(&caller);
        let alike = |own_at| Alike { tier: tier.clone(), whitelisted, own_at };
        let shared = match (&*overrides, &more) {
            ([], None) => self.shared.number(alike(None)).map(|number| (number, None)),
            ([one], None) if one.holds_always() => {
                self.shared.number(alike(Some(one.below.clone()))).map(|number| (number, Some(one.grant)))
            }
            _ => None,
        };
        let mut changing = self.change();
        let before = self.roll.load().get(hash);
        let entry = match (shared, before) {
            (Some((number, grant)), _) => roll::Entry::Shared(number, grant),
            (None, Some(own @ roll::Entry::Own(_))) => own,
            (None, _) => roll::Entry::Own(changing.numbers.take()),
        };
        if let roll::Entry::Own(number) = entry {
            let tier = tier.map(|name| self.shared.tier(name));
            let own = Own { hash, terms: Terms { tier, overrides: overrides.into(), whitelisted, more } };
            self.bytes.fetch_add(own.terms.bytes(), Ordering::Relaxed);
            self.set_own(number, Some(Arc::new(own))); // Before the roll leads there.
        }
        self.enter(hash, entry, &mut changing.taken);
        match before {
            Some(before) if before != entry => self.let_go(before, &mut changing),
            Some(_) => {}
            None => _ = self.callers.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn change(&self) -> MutexGuard<'_, Changing> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_own(&self, number: u32, own: Option<Arc<Own>>) {
        if let Some(before) = self.owns.put(number, own) {
            self.bytes.fetch_sub(before.terms.bytes(), Ordering::Relaxed);
        }
    }

    /// Enters a caller in the roll, in a larger one if need be.
    fn enter(&self, hash: u64, entry: roll::Entry, taken: &mut usize) {
        let mut roll = self.roll.load_full();
        if !roll.has_room(*taken) {
            let callers = self.len();
            roll = Arc::new(roll.moved(callers + callers / 2 + 1, self.pages));
            *taken = callers;
            self.roll.store(roll.clone());
        }
        let (_, is_new) = roll.put(hash, entry);
        *taken += usize::from(is_new);
    }

    /// Forgets what an entry led to that is in the roll no more.
    fn let_go(&self, entry: roll::Entry, changing: &mut Changing) {
        if let roll::Entry::Own(number) = entry {
            self.set_own(number, None);
            changing.numbers.give_back(number);
        }
    }

    /// Forgets a caller; says whether anything was kept.
    pub fn remove(&self, caller: &str) -> bool {
        let mut changing = self.change();
        let gone = self.roll.load().remove(self.hash(caller));
        if let Some(entry) = gone {
            self.callers.fetch_sub(1, Ordering::Relaxed);
            self.let_go(entry, &mut changing);
        }
        gone.is_some()
    }

    /// All that is kept will be put now, whether it changed or not.
    pub fn begin(&self) {
        let _changing = self.change();
        self.roll.load().doubt_all();
    }

    /// All that is kept has been put: forgets every caller for whom nothing was since the beginning.
    pub fn end(&self) {
        let mut changing = self.change();
        self.roll.load().drop_doubtful(|entry| {
            self.callers.fetch_sub(1, Ordering::Relaxed);
            self.let_go(entry, &mut changing);
        });
    }

    /// Puts these tiers in the place of all before.
    pub fn set_tiers(&self, tiers: impl IntoIterator<Item = Tier>) {
        let tiers: Vec<Tier> = tiers.into_iter().collect();
        let granting = tiers.iter().filter(|tier| !tier.overrides.is_empty()).count();
        let _changing = self.change(); // One after the other, so that the count is that of the tiers.
        self.tiers.store(Arc::new(tiers));
        self.granting_tiers.store(granting, Ordering::Relaxed);
    }

    /// The tiers.
    pub fn tiers(&self) -> Arc<Vec<Tier>> {
        self.tiers.load_full()
    }

    /// What a tier says about the end of these entries.
    pub(crate) fn of_tier<'q>(
        &self,
        tier: &str,
        walked: impl Iterator<Item = &'q Entry<'q>> + Clone,
        now: Micros,
    ) -> Option<Grant> {
        if !self.has_tiers() {
            return None;
        }
        let tiers = self.tiers.load();
        let tier = tiers.iter().find(|one| *one.name == *tier)?;
        granted(&tier.overrides, walked, now)
    }
}

/// What is known about callers while requests are planned, a moment long.
#[derive(Debug)]
pub struct Callers<'k> {
    /// All of it.
    pub(crate) quotas: &'k Quotas,
    /// Who is known.
    roll: Guard<Arc<Roll>>,
    /// When: overrides begin and end.
    pub(crate) now: Micros,
}

impl<'k> Callers<'k> {
    /// The hash that a caller is found by.
    #[inline]
    pub(crate) fn hash(&self, caller: &str) -> u64 {
        self.quotas.hash(caller)
    }

    /// Asks for the memory that a caller is in, for whoever will look there soon.
    #[inline]
    pub(crate) fn bring_near(&self, hash: u64) {
        self.roll.bring_near(hash);
    }

    /// What is entered for a caller. If it has something for itself, the way there is asked for.
    #[inline]
    pub(crate) fn entered(&self, hash: u64) -> Option<Entered<'k>> {
        match self.roll.get(hash)? {
            roll::Entry::Shared(number, grant) => {
                let terms = self.quotas.shared.get(number)?;
                Some(Entered::Shared(Agreed { terms, grant }))
            }
            roll::Entry::Own(number) => {
                self.quotas.owns.bring_slot_near(number);
                Some(Entered::Own(number))
            }
        }
    }

    /// Asks for what a caller has for itself.
    #[inline]
    pub(crate) fn bring_own_near(&self, number: u32) {
        self.quotas.owns.bring_near(number);
    }

    /// What is kept about a caller for whom it was entered that it has something for itself, under this number.
    pub(crate) fn own(&self, hash: u64, number: u32) -> Option<Kept<'k>> {
        self.quotas.at_entry(hash, roll::Entry::Own(number))
    }
}

/// The hash that stands for no caller.
pub(crate) const NOBODY: u64 = 0;

/// What is entered for a caller.
pub(crate) enum Entered<'k> {
    /// What others have too.
    Shared(Agreed<'k>),
    /// Something that nobody else has, under this number.
    Own(u32),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::{SHARED_MAX, WITH_ADDRESSES_MAX};

    /// A limit that callers have for themselves alone, because it does not hold always.
    fn for_a_time(amount: u32) -> Override {
        let own = Override::new(Box::new([]), Grant { amount, unit: QuotaUnit::Day });
        Override { until: Micros::new(Micros::MAX.get() - 1), ..own }
    }

    fn quota(caller: &str, tier: &str) -> Quota {
        Quota { caller: caller.into(), tier: Some(tier.into()), ..Quota::default() }
    }

    #[test]
    fn callers_are_kept_found_changed_and_forgotten() {
        let quotas = Quotas::default();
        assert!(quotas.is_empty() && quotas.of("a").is_none() && !quotas.remove("a"));
        for at in 0..2_000 {
            quotas.put(quota(&format!("key-{at}"), "free"));
        }
        quotas.put(quota("key-7", "pro"));
        assert_eq!(quotas.len(), 2_000);
        assert_eq!(quotas.of("key-7").and_then(|quota| quota.tier.clone()).as_deref(), Some("pro"));
        assert!(quotas.of("key-2000").is_none() && quotas.of("").is_none());
        assert!(quotas.remove("key-7") && quotas.of("key-7").is_none());
        quotas.begin();
        assert!(quotas.of("key-12").is_some(), "until the end they are who they were");
        (1..2_000).step_by(10).for_each(|at| quotas.put(quota(&format!("key-{at}"), "pro")));
        quotas.put(quota("new", "pro"));
        quotas.end();
        assert_eq!(quotas.len(), 201);
        assert!(quotas.of("key-11").is_some() && quotas.of("new").is_some() && quotas.of("key-12").is_none());
        quotas.begin();
        quotas.end();
        assert!(quotas.is_empty());
    }

    #[test]
    fn a_tier_that_grants_nothing_is_asked_about_nothing() {
        let quotas = Quotas::default();
        quotas.set_tiers([Tier { name: "pro".into(), overrides: Box::default() }]);
        assert!(quotas.is_empty() && quotas.tiers().len() == 1);
        let own = Override::new(Box::new([]), Grant { amount: 1, unit: QuotaUnit::Day });
        quotas.set_tiers([Tier { name: "pro".into(), overrides: [own].into() }]);
        assert!(!quotas.is_empty() && quotas.of_tier("pro", [].iter(), Micros::new(0)).is_some());
    }

    #[test]
    fn names_of_any_length_are_told_apart() {
        let quotas = Quotas::default();
        let names: Vec<String> = (0..=40).map(|len| "ß".repeat(len / 2) + &"x".repeat(len % 2)).collect();
        names.iter().for_each(|name| quotas.put(quota(name, name)));
        for name in &names {
            assert_eq!(quotas.of(name).and_then(|terms| terms.tier.clone()).as_deref(), Some(&**name));
        }
        assert_eq!(quotas.len(), names.len());
    }

    #[test]
    fn bytes_are_those_of_what_is_kept_now() {
        let quotas = Quotas::default();
        let own_bytes = |quotas: &Quotas| quotas.bytes.load(Ordering::Relaxed);
        let tables = quotas.bytes();
        for caller in 0..1_000 {
            quotas.put(quota(&caller.to_string(), "pro"));
        }
        assert_eq!(own_bytes(&quotas), 0, "all of it is shared");
        assert!(quotas.bytes() > tables + 16_000, "{} and {tables}", quotas.bytes());
        quotas.put(Quota { overrides: [for_a_time(1)].into(), ..quota("somebody", "pro") });
        let with_one = own_bytes(&quotas);
        assert!(with_one >= size_of::<Terms>(), "{with_one}");
        quotas.put(Quota { overrides: vec![for_a_time(1); 4].into(), ..quota("somebody", "pro") });
        let with_four = own_bytes(&quotas);
        assert!(with_four >= with_one + 4 * size_of::<Override>(), "{with_one} {with_four}");
        quotas.put(quota("somebody", "pro"));
        assert_eq!(own_bytes(&quotas), 0, "written again");
        quotas.put(Quota { overrides: [for_a_time(1)].into(), ..quota("third", "pro") });
        quotas.put(Quota { overrides: [for_a_time(1)].into(), ..quota("fourth", "pro") });
        quotas.remove("third");
        quotas.begin();
        quotas.end();
        assert_eq!((own_bytes(&quotas), quotas.len()), (0, 0), "gone");
    }

    #[test]
    fn callers_of_a_tier_share_what_is_kept() {
        let quotas = Quotas::default();
        quotas.put(quota("a", "pro"));
        quotas.put(quota("b", "pro"));
        quotas.put(Quota { whitelisted: true, ..quota("white", "pro") });
        quotas.put(Quota { overrides: [for_a_time(1)].into(), ..quota("own", "pro") });
        let of = |caller| quotas.of(caller).expect("a record");
        assert!(std::ptr::eq(&*of("a"), &*of("b")));
        assert!(of("white").whitelisted && !of("a").whitelisted);
        assert!(of("own").overrides().len() == 1 && of("a").overrides().is_empty());
    }

    #[test]
    fn callers_whose_own_limits_differ_in_how_much_share_the_rest() {
        let quotas = Quotas::default();
        let addresses = ["default", "endpoint:a", "endpoint:a|method:b"];
        let own = |number: usize| {
            let unit = QuotaUnit::ALL[number % QuotaUnit::ALL.len()];
            let below = override_address(addresses[number % addresses.len()]).expect("an address");
            Override::new(below, Grant { amount: u32::MAX - number as u32, unit })
        };
        let put = |number: usize| {
            quotas.put(Quota { overrides: [own(number)].into(), ..quota(&number.to_string(), "pro") });
        };
        (0..1_000).for_each(put);
        assert_eq!(quotas.bytes.load(Ordering::Relaxed), 0, "all of it is shared");
        let of = |number: usize| quotas.of(&number.to_string()).expect("a record");
        for number in 0..1_000 {
            assert_eq!(*of(number).overrides(), [own(number)], "{number}");
        }
        let is_same = |one, other| std::ptr::eq::<Terms>(&*of(one), &*of(other));
        assert!(is_same(0, addresses.len()) && !is_same(0, 1));
        for [from, until] in [[1, u64::MAX], [0, Micros::MAX.get() - 1]].map(|times| times.map(Micros::new)) {
            let timed = Override { from, until, ..own(7) };
            quotas.put(Quota { overrides: [timed.clone()].into(), ..quota("7", "pro") });
            assert_eq!(*of(7).overrides(), [timed], "it does not hold always");
        }
        quotas.put(Quota { overrides: [own(7), own(8)].into(), ..quota("7", "pro") });
        assert_eq!(*of(7).overrides(), [own(7), own(8)]);
        put(7);
        assert_eq!((*of(7).overrides()).len(), 1);
        assert_eq!(quotas.bytes.load(Ordering::Relaxed), 0, "it shares again");
    }

    #[test]
    fn more_tiers_than_can_be_shared_are_kept_all_the_same() {
        let quotas = Quotas::default();
        let tiers = SHARED_MAX + 2;
        for number in 0..tiers {
            quotas.put(quota(&number.to_string(), &number.to_string()));
        }
        for number in [0, 1, 256, tiers / 2, tiers - 3, tiers - 2, tiers - 1] {
            let kept = quotas.of(&number.to_string()).expect("a record");
            assert_eq!(kept.tier.as_deref(), Some(&*number.to_string()));
            let is_shared = number < SHARED_MAX;
            assert_eq!(matches!(kept, Kept::Shared(..)), is_shared, "{number}");
        }
    }

    #[test]
    fn however_many_addresses_there_are_tiers_have_room() {
        let quotas = Quotas::default();
        let put = |number: usize| {
            let below = override_address(&format!("user:{number}")).expect("an address");
            let own = Override::new(below, Grant { amount: 7, unit: QuotaUnit::Day });
            quotas.put(Quota { overrides: [own].into(), ..quota(&number.to_string(), "pro") });
        };
        let before = quotas.shared.bytes();
        (0..WITH_ADDRESSES_MAX).for_each(put);
        assert_eq!(quotas.bytes.load(Ordering::Relaxed), 0, "all of it is shared");
        assert!(quotas.shared.bytes() > before + WITH_ADDRESSES_MAX * 200, "and told");
        put(WITH_ADDRESSES_MAX);
        put(0);
        quotas.put(quota("late", "new"));
        let of = |number: usize| quotas.of(&number.to_string()).expect("a record");
        assert!(matches!(of(WITH_ADDRESSES_MAX), Kept::Own(_)) && matches!(of(0), Kept::Shared(..)));
        // There is one place that is the caller's own, whoever has a limit there.
        let own = Override::new(Box::new([]), Grant { amount: 7, unit: QuotaUnit::Day });
        quotas.put(Quota { overrides: [own].into(), ..quota("own", "newer") });
        assert!(matches!(quotas.of("own"), Some(Kept::Shared(_, Some(grant))) if grant.amount == 7));
        assert_eq!(
            *of(WITH_ADDRESSES_MAX).overrides()[0].below,
            *override_address("user:16384").expect("one")
        );
        assert!(matches!(quotas.of("late"), Some(Kept::Shared(..))));
    }

    #[test]
    fn who_is_overtaken_finds_nobody_else_s_limits() {
        let quotas = Quotas::default();
        let own = |amount| [for_a_time(amount)].into();
        quotas.put(Quota { overrides: own(1), ..quota("a", "free") });
        let callers = quotas.at(Micros::new(0)).expect("somebody is kept");
        let hash = callers.hash("a");
        let Some(Entered::Own(number)) = callers.entered(hash) else { panic!("it has something for itself") };
        quotas.put(quota("a", "pro"));
        quotas.put(Quota { overrides: own(2), ..quota("b", "enterprise") });
        let entry = Some(roll::Entry::Own(number));
        assert_eq!(quotas.roll.load().get(callers.hash("b")), entry, "it has the number now");
        let kept = callers.own(hash, number).expect("a record");
        assert!(kept.tier.as_deref() == Some("pro") && kept.overrides().is_empty(), "{kept:?}");
        quotas.remove("a");
        assert!(callers.own(hash, number).is_none());
    }

    /// Whoever is kept all the time is found all the time, whatever happens to others, and to what is kept about it.
    #[test]
    fn whoever_is_kept_is_found_while_everything_changes() {
        let (quotas, is_over) = (Quotas::default(), std::sync::atomic::AtomicBool::new(false));
        let put_own = |caller: &str, amount| {
            quotas.put(Quota { overrides: [for_a_time(amount)].into(), ..quota(caller, caller) });
        };
        let put_granted = |amount| {
            let own = Override::new(Box::new([]), Grant { amount, unit: QuotaUnit::Day });
            quotas.put(Quota { overrides: [own].into(), ..quota("granted", "granted") });
        };
        quotas.put(quota("shared", "shared"));
        put_granted(5);
        put_own("own", 1);
        put_own("both", 2);
        let (quotas, is_over) = (&quotas, &is_over);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut looks = 0;
                    while !is_over.load(Ordering::Relaxed) || looks == 0 {
                        // As a decision looks that has its roll for a while, and as one that has not.
                        let callers = quotas.at(Micros::new(0)).expect("somebody is kept");
                        for caller in ["shared", "granted", "own", "both"] {
                            let hash = callers.hash(caller);
                            let kept = match callers.entered(hash) {
                                None => panic!("{caller} is kept"),
                                Some(Entered::Shared(agreed)) => Kept::Shared(agreed.terms, agreed.grant),
                                Some(Entered::Own(number)) => callers.own(hash, number).expect("a record"),
                            };
                            let again = quotas.of(caller).expect("a record");
                            for kept in [kept, again] {
                                assert_eq!(kept.tier.as_deref(), Some(caller));
                                let amounts: Vec<u32> =
                                    kept.overrides().iter().map(|one| one.grant.amount).collect();
                                assert!(caller != "own" || amounts == [1], "{amounts:?}");
                                assert!(
                                    caller != "granted" || amounts == [5] || amounts == [6],
                                    "{amounts:?}"
                                );
                                assert!(amounts.iter().all(|amount| caller != "both" || *amount == 2));
                            }
                        }
                        looks += 1;
                    }
                });
            }
            for round in 0..if cfg!(miri) { 20 } else { 3_000 } {
                // Numbers go from hand to hand, places are used up, and the roll is made anew again and again.
                let other = format!("other-{round}");
                put_own(&other, 3);
                quotas.put(quota("both", "both"));
                put_own("last", 4);
                put_granted(5 + round % 2);
                quotas.remove(&other);
                put_own("both", 2);
                quotas.put(quota(&format!("stays-{}", round % 700), "pro"));
                quotas.remove("last");
            }
            is_over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let read = |text: &str| -> Result<Vec<(String, String)>, AddressError> {
            let levels = override_address(text)?;
            Ok(levels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
        };
        let pairs = |pairs: &[(&str, &str)]| -> Result<Vec<(String, String)>, AddressError> {
            Ok(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        };
        assert_eq!(read("default"), pairs(&[]));
        let orders = "endpoint:POST /api/v1/orders";
        assert_eq!(read(orders), pairs(&[("endpoint", "POST /api/v1/orders")]));
        assert_eq!(read("host:a:80|method:GET"), pairs(&[("host", "a:80"), ("method", "GET")]));
        assert_eq!(read("a:"), pairs(&[("a", "")]));
        assert_eq!(read("a\\:b:c\\|d\\\\|e:f"), pairs(&[("a:b", "c|d\\"), ("e", "f")]));
        for wrong in ["", "endpoint", "a:b|", "|a:b", ":b", "a:b||c:d"] {
            assert_eq!(read(wrong), Err(AddressError::NoKey), "{wrong}");
        }
        assert_eq!(read("a:b\\"), Err(AddressError::Unfinished));
        assert_eq!(read(&vec!["a:b"; DEPTH_MAX + 1].join("|")), Err(AddressError::TooLong));
    }
}
