//! What is agreed with callers besides their names: a tier, limits of their own, other names.

use crate::own::Own;
use crate::quota::{Below, Grant, Override, QuotaMore};
use crate::{Domain, Entry, Micros, TierName};

/// What is kept about a caller besides its name. Most have a tier and nothing else, or one limit of their own besides that holds always; of
/// these all share this who differ in no more than how much that limit is, as long as there is room (`shared.rs`).
#[derive(Debug)]
pub struct Terms {
    /// Its tier.
    pub tier: Option<TierName>,
    pub(crate) overrides: Overrides,
    pub(crate) whitelisted: bool,
    pub(crate) more: Option<Box<QuotaMore>>,
}

/// The limits that callers have for themselves.
#[derive(Debug)]
pub(crate) enum Overrides {
    /// None.
    None,
    /// Each caller one, at this address, always. How much is kept beside who they are.
    Each(Below),
    /// One. It stands where its caller's terms do, and not one wait further.
    One(Override),
    /// Several.
    Several(Box<[Override]>),
}

impl From<Box<[Override]>> for Overrides {
    fn from(all: Box<[Override]>) -> Self {
        match <[Override; 1]>::try_from(Vec::from(all)) {
            Ok([one]) => Self::One(one),
            Err(none) if none.is_empty() => Self::None,
            Err(several) => Self::Several(several.into()),
        }
    }
}

impl Overrides {
    /// Those that stand here.
    pub(crate) fn here(&self) -> &[Override] {
        match self {
            Self::None | Self::Each(_) => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Several(several) => several,
        }
    }
}

/// What is agreed with a caller: its terms, and how much the one limit is that is its own, if that is all that it has for itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed<'t> {
    pub(crate) terms: &'t Terms,
    pub(crate) grant: Option<Grant>,
}

impl<'t> Agreed<'t> {
    /// Terms in which all is said.
    pub(crate) fn by(terms: &'t Terms) -> Self {
        Self { terms, grant: None }
    }

    /// Has it any limit of its own?
    #[inline]
    pub(crate) fn has_overrides(self) -> bool {
        !matches!(self.terms.overrides, Overrides::None)
    }

    /// What it has for itself where the entries end with its own, if that is all that it has.
    #[inline]
    pub(crate) fn granted_itself(self) -> Option<Grant> {
        match &self.terms.overrides {
            Overrides::Each(below) if below.is_empty() => self.grant,
            _ => None,
        }
    }

    /// What it has for itself at the end of these entries, which follow its own.
    #[inline(never)] // Nearly all was asked by the one above.
    pub(crate) fn granted<'q>(
        self,
        walked: impl Iterator<Item = &'q Entry<'q>> + Clone,
        now: Micros,
    ) -> Option<Grant> {
        match &self.terms.overrides {
            Overrides::Each(below) => self.grant.filter(|_| is_at(below, walked)),
            overrides => granted(overrides.here(), walked, now),
        }
    }
}

impl Terms {
    /// What it takes in memory, as far as can be told: what allocators add is rounded. The name of the tier is shared.
    pub(crate) fn bytes(&self) -> usize {
        let text = |text: &str| allocated(text.len());
        let overrides = self.overrides.here().iter().map(|one| bytes_of_address(&one.below));
        let more = self.more.as_deref().map_or(0, |more| {
            let texts = [&more.domain, &more.user, &more.client].into_iter().flatten().map(|one| text(one));
            allocated(size_of::<QuotaMore>()) + texts.sum::<usize>()
        });
        let own = allocated(COUNTS_BYTES + size_of::<Own>()) + more;
        let apart = match &self.overrides {
            Overrides::None | Overrides::Each(_) | Overrides::One(_) => 0,
            Overrides::Several(several) => allocated(size_of_val(&**several)),
        };
        own + apart + overrides.sum::<usize>()
    }

    /// Is it about a caller in this domain?
    #[inline]
    pub(crate) fn is_of(&self, domain: &Domain) -> bool {
        match self.more.as_ref().and_then(|more| more.domain.as_deref()) {
            Some(name) => *name == *domain.name,
            None => domain.is_default,
        }
    }

    /// Is the caller called anything besides its own name?
    #[inline]
    pub(crate) fn has_names(&self) -> bool {
        self.more.is_some()
    }

    /// What the caller is called besides its own name, as the entry that says so.
    pub(crate) fn name(&self, by: OtherName) -> Option<Entry<'_>> {
        let more = self.more.as_deref()?;
        let (key, value) = match by {
            OtherName::User => ("user_id", &more.user),
            OtherName::Client => ("client_id", &more.client),
        };
        Some(Entry { key, value: value.as_deref()? })
    }
}

/// What an address takes.
pub(crate) fn bytes_of_address(below: &Below) -> usize {
    let levels = below.iter().map(|(key, value)| allocated(key.len()) + allocated(value.len()));
    allocated(size_of_val(&**below)) + levels.sum::<usize>()
}

/// What a name takes that is shared.
pub(crate) fn bytes_of_name(name: &str) -> usize {
    allocated(COUNTS_BYTES + name.len())
}

/// What an `Arc` counts by.
const COUNTS_BYTES: usize = 2 * size_of::<usize>();

/// What so many bytes take of an allocator, whose smallest steps are of sixteen.
fn allocated(bytes: usize) -> usize {
    bytes.next_multiple_of(16)
}

/// How a caller may be called besides its own name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum OtherName {
    User,
    Client,
}

impl OtherName {
    pub(crate) const ALL: [Self; 2] = [Self::User, Self::Client];
}

/// What holds at the end of these entries, which follow the caller's.
pub(crate) fn granted<'q>(
    overrides: &[Override],
    walked: impl Iterator<Item = &'q Entry<'q>> + Clone,
    now: Micros,
) -> Option<Grant> {
    let holds = |one: &&Override| one.from <= now && now < one.until && is_at(&one.below, walked.clone());
    overrides.iter().find(holds).map(|one| one.grant)
}

/// Is an address that of what these entries lead to below the caller's?
#[inline]
fn is_at<'q>(below: &Below, walked: impl Iterator<Item = &'q Entry<'q>>) -> bool {
    below.iter().map(|(key, value)| (&**key, &**value)).eq(walked.map(|entry| (entry.key, entry.value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuotaUnit;

    #[test]
    fn an_override_is_at_its_address_and_nowhere_else() {
        let below = |levels: &[(&str, &str)]| -> Below {
            levels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect()
        };
        let one = |levels: &[(&str, &str)], amount| {
            Override::new(below(levels), Grant { amount, unit: QuotaUnit::Minute })
        };
        let overrides = [one(&[], 1), one(&[("a", "b")], 2), one(&[("a", "b"), ("c", "d")], 3)];
        let ask = |entries: &[Entry<'_>]| {
            granted(&overrides, entries.iter(), Micros::new(5)).map(|grant| grant.amount)
        };
        let entry = |key: &'static str, value: &'static str| Entry { key, value };
        assert_eq!(ask(&[]), Some(1));
        assert_eq!(ask(&[entry("a", "b")]), Some(2));
        assert_eq!(ask(&[entry("a", "b"), entry("c", "d")]), Some(3));
        for other in
            [&[entry("a", "c")][..], &[entry("c", "d")], &[entry("a", "b"), entry("c", "d"), entry("a", "b")]]
        {
            assert_eq!(ask(other), None, "{other:?}");
        }
    }

    #[test]
    fn an_override_holds_from_its_first_instant_to_before_its_last() {
        let mut one = Override::new(Box::new([]), Grant { amount: 1, unit: QuotaUnit::Day });
        (one.from, one.until) = (Micros::new(10), Micros::new(20));
        let holds = |now| granted(std::slice::from_ref(&one), [].iter(), Micros::new(now)).is_some();
        assert_eq!([9, 10, 19, 20].map(holds), [false, true, true, false]);
    }
}
