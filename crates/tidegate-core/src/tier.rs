//! Names of tiers. Every decision about a caller who has a tier looks for it among those that a descriptor has limits for, so they are
//! compared as numbers: nearly all names are short enough to be one.

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

/// How many bytes of a name are compared as a number.
const HEAD: usize = size_of::<u128>();

/// The name of a tier, kept.
#[derive(Clone, Debug)]
pub struct TierName {
    head: u128,
    name: Arc<str>,
}

/// The name of a tier, looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierRef<'t> {
    head: u128,
    pub(crate) name: &'t str,
}

impl TierName {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self { head: head(&name), name }
    }

    #[inline]
    pub(crate) fn look(&self) -> TierRef<'_> {
        TierRef { head: self.head, name: &self.name }
    }
}

impl Deref for TierName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.name
    }
}

impl<'t> TierRef<'t> {
    pub(crate) fn new(name: &'t str) -> Self {
        Self { head: head(name), name }
    }

    /// An order of their own: shorter names first, which is what most differ in.
    pub(crate) fn order(self, other: Self) -> Ordering {
        let heads = self.name.len().cmp(&other.name.len()).then_with(|| self.head.cmp(&other.head));
        if heads.is_eq() && self.name.len() > HEAD { self.name.cmp(other.name) } else { heads }
    }

    #[inline]
    pub(crate) fn is(self, other: Self) -> bool {
        let (len, is_same) = (self.name.len(), self.head == other.head);
        len == other.name.len() && is_same && (len <= HEAD || self.name == other.name)
    }
}

/// The first bytes of a name.
fn head(name: &str) -> u128 {
    let mut bytes = [0; HEAD];
    bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Names that have much in common, also beyond what is compared as a number.
        #[test]
        fn names_are_ordered_by_length_and_then_by_their_letters(
            one in "[ab\\x00]{0,3}(free|enterprise-customer)?[ab\\x00]{0,2}",
            other in "[ab\\x00]{0,3}(free|enterprise-customer)?[ab\\x00]{0,2}",
        ) {
            let expected = (one.len(), &one).cmp(&(other.len(), &other));
            let (one, other) = (TierRef::new(&one), TierName::new(other.into()));
            prop_assert_eq!(one.order(other.look()), expected);
            prop_assert_eq!(one.is(other.look()), expected.is_eq());
        }
    }
}
