//! What many callers have in common: all who have nothing but a tier, or are free, or have one limit of their own at the same address
//! besides.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hashbrown::HashMap;

use crate::TierName;
use crate::quota::Below;
use crate::terms::{Overrides, Terms, bytes_of_address, bytes_of_name};

/// What callers share, each by a number that it keeps for ever: whoever has the number needs no lock. So there is a bound on how many there
/// may be, far above what anybody sells; who comes later has it for itself.
#[derive(Debug)]
pub(crate) struct Shared {
    numbers: Mutex<HashMap<Alike, u16>>,
    /// In parts that are made when they are needed.
    parts: [OnceLock<Box<[OnceLock<Terms>]>>; PARTS],
    bytes: AtomicUsize,
}

const PARTS: usize = 256;
const PART: usize = 256;
/// How many there may be.
pub(crate) const SHARED_MAX: usize = PARTS * PART;
/// From so many on what comes new has no address: addresses are as many as somebody likes to write, and tiers are to have room.
pub(crate) const WITH_ADDRESSES_MAX: usize = SHARED_MAX / 4;

/// What callers have in common who share their terms.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Alike {
    pub(crate) tier: Option<Arc<str>>,
    pub(crate) whitelisted: bool,
    /// Where each has a limit of its own.
    pub(crate) own_at: Option<Below>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            numbers: Mutex::default(),
            parts: [const { OnceLock::new() }; PARTS],
            bytes: AtomicUsize::new(0),
        }
    }
}

impl Shared {
    /// The number of what callers share who have this in common; none if there are too many.
    pub(crate) fn number(&self, alike: Alike) -> Option<u16> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = numbers.get(&alike) {
            return Some(*number);
        }
        // Without entries it is the caller's own place, of which there is one.
        let (next, has_address) =
            (numbers.len(), alike.own_at.as_ref().is_some_and(|below| !below.is_empty()));
        if has_address && next >= WITH_ADDRESSES_MAX {
            return None;
        }
        let number = u16::try_from(next).ok()?;
        let part = self.parts[next / PART].get_or_init(|| (0..PART).map(|_| OnceLock::new()).collect());
        let Alike { tier, whitelisted, own_at } = alike.clone();
        let address = own_at.as_ref().map_or(0, bytes_of_address);
        let name = tier.as_deref().map_or(0, bytes_of_name);
        let overrides = own_at.map_or(Overrides::None, Overrides::Each);
        let terms = Terms { tier: tier.map(TierName::new), overrides, whitelisted, more: None };
        part[next % PART].get_or_init(|| terms);
        // The address is here twice.
        let bytes = size_of::<Terms>() + size_of::<(Alike, u16)>() + 2 * address + name;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        numbers.insert(alike, number);
        Some(number)
    }

    /// The name of a tier, which all who have it share.
    pub(crate) fn tier(&self, name: Arc<str>) -> TierName {
        let alike = Alike { tier: Some(name.clone()), whitelisted: false, own_at: None };
        let shared =
            self.number(alike).and_then(|number| self.get(number)).and_then(|terms| terms.tier.clone());
        shared.unwrap_or_else(|| TierName::new(name))
    }

    #[inline]
    pub(crate) fn get(&self, number: u16) -> Option<&Terms> {
        self.parts[usize::from(number) / PART].get()?[usize::from(number) % PART].get()
    }

    /// What all of it takes in memory. What a part has room for is not in it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}
