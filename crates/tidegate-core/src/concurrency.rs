//! Concurrency: places held under a lease that expires unless it is renewed.

use crate::step::{self, Law};
use crate::time::patience;
use crate::{Ask, Bound, Charge, Micros, Outcome, Verdict};

/// Places held under one id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Place {
    /// The holder's id, or [`Ask::ANONYMOUS`].
    pub(crate) id: u64,
    /// Until when, in µs.
    pub(crate) expires_us: u64,
    /// How many; never 0.
    pub(crate) units: u32,
}

/// What a concurrency counter knows besides its places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PlaceHead {
    /// Time of the last write, in µs.
    pub(crate) last_us: u64,
    /// Units of all places.
    pub(crate) total: u64,
    /// Places in use.
    pub(crate) len: u32,
    /// Units that have expired and were forgotten since the state was read. It is told once and kept nowhere.
    pub(crate) lapsed: u32,
}

/// Held places, those that expire first first, of which the first `head.len` are in use.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    /// What it knows besides its places.
    pub(crate) head: &'a mut PlaceHead,
    /// Room for as many places as the limit has.
    pub(crate) places: &'a mut [Place],
}

impl Places<'_> {
    fn held(&self) -> &[Place] {
        &self.places[..self.head.len as usize]
    }

    fn expired(&self, at_us: u64) -> (usize, u64) {
        let expired = self.held().partition_point(|place| place.expires_us <= at_us);
        (expired, self.held()[..expired].iter().map(|place| u64::from(place.units)).sum())
    }

    fn find(&self, id: u64, at_us: u64) -> Option<usize> {
        let live = |place: &Place| place.id == id && place.expires_us > at_us;
        if id == Ask::ANONYMOUS { None } else { self.held().iter().position(live) }
    }

    fn forget(&mut self, at_us: u64) {
        let (expired, units) = self.expired(at_us);
        self.places.copy_within(expired..self.head.len as usize, 0);
        self.head.len -= expired as u32;
        self.head.total -= units;
        self.head.lapsed = self.head.lapsed.saturating_add(units as u32); // At most the limit, which is 32 bits wide.
        self.head.last_us = at_us;
    }

    fn remove(&mut self, index: usize) -> Place {
        let place = self.places[index];
        self.places.copy_within(index + 1..self.head.len as usize, index);
        self.head.len -= 1;
        self.head.total -= u64::from(place.units);
        place
    }

    /// Puts a place where its expiry belongs; times to live differ only where the limit's was changed.
    fn insert(&mut self, place: Place) {
        let len = self.head.len as usize;
        debug_assert!(len < self.places.len(), "each place holds a unit, and there is room for every unit");
        if len < self.places.len() {
            let index = self.held().partition_point(|other| other.expires_us <= place.expires_us);
            self.places.copy_within(index..len, index + 1);
            self.places[index] = place;
            self.head.len += 1;
            self.head.total += u64::from(place.units);
        }
    }
}

/// At most L places held at once, each for a time to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Concurrency {
    pub(crate) amount: u32,
    pub(crate) ttl_us: u64,
}

/// The places at an instant.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    now_us: u64,
    /// Now, or the last write if that is later.
    at_us: u64,
    /// How many of the first to expire have expired.
    expired: usize,
    used: u64,
}

/// A concurrency limit, asked on behalf of one id.
struct Holder {
    limit: Concurrency,
    id: u64,
}

impl Concurrency {
    /// Judges `ask` and carries it out.
    pub(crate) fn step(self, state: &mut Places<'_>, ask: Ask, now: Micros) -> Verdict {
        let holder = Holder { limit: self, id: ask.id() };
        holder.repair(state, now);
        match ask {
            Ask::Acquire { .. } | Ask::Renew { .. } if holder.renew(state, now) => {
                step::look(&holder, state, Outcome::Admitted, 0, now)
            }
            Ask::Peek | Ask::Charge { .. } | Ask::Acquire { .. } => {
                step::step(&holder, Charge::Admitted, state, ask, now)
            }
            Ask::Renew { .. } => step::look(&holder, state, Outcome::NotHeld, 0, now),
            Ask::Release { .. } => {
                let released = holder.release(state, now);
                step::look(&holder, state, Outcome::Admitted, -i64::from(released), now)
            }
            Ask::Refund { .. } | Ask::Settle { .. } => step::look(&holder, state, Outcome::Admitted, 0, now),
        }
    }

    /// Judges `ask` and carries nothing out.
    pub(crate) fn show(self, state: &mut Places<'_>, ask: Ask, now: Micros) -> Verdict {
        let holder = Holder { limit: self, id: ask.id() };
        holder.repair(state, now);
        let held = state.find(holder.id, holder.see(state, now).at_us).is_some();
        match ask {
            Ask::Acquire { .. } if held => step::look(&holder, state, Outcome::Admitted, 0, now),
            Ask::Renew { .. } if !held => step::look(&holder, state, Outcome::NotHeld, 0, now),
            _ => step::show(&holder, state, ask, now),
        }
    }

    /// The law, for what needs no id.
    pub(crate) fn law(self) -> impl for<'a> Law<State<'a> = Places<'a>> {
        Holder { limit: self, id: Ask::ANONYMOUS }
    }
}

impl Holder {
    /// Extends what the id holds; says whether it holds anything.
    fn renew(&self, state: &mut Places<'_>, now: Micros) -> bool {
        let at_us = self.see(state, now).at_us;
        let Some(index) = state.find(self.id, at_us) else { return false };
        let place = state.remove(index);
        state.forget(at_us);
        state.insert(Place { expires_us: at_us + self.limit.ttl_us, ..place });
        true
    }

    /// Gives back what the id holds; says how much.
    fn release(&self, state: &mut Places<'_>, now: Micros) -> u32 {
        let at_us = self.see(state, now).at_us;
        let Some(index) = state.find(self.id, at_us) else { return 0 };
        let place = state.remove(index);
        state.forget(at_us);
        place.units
    }
}

impl Law for Holder {
    type State<'a> = Places<'a>;
    type Seen = Held;

    fn amount(&self) -> u32 {
        self.limit.amount
    }

    fn window_us(&self) -> u64 {
        self.limit.ttl_us
    }

    fn repair(&self, state: &mut Places<'_>, now: Micros) {
        let ahead = state.head.last_us.saturating_sub(now.get());
        if ahead > patience(self.limit.ttl_us) {
            let held = state.head.len as usize;
            let earlier = |place: &mut Place| place.expires_us = place.expires_us.saturating_sub(ahead);
            state.places[..held].iter_mut().for_each(earlier);
            state.head.last_us = now.get();
        }
    }

    fn see(&self, state: &Places<'_>, now: Micros) -> Held {
        let at_us = now.get().max(state.head.last_us);
        let (expired, units) = state.expired(at_us);
        Held { now_us: now.get(), at_us, expired, used: state.head.total - units }
    }

    fn at(&self, seen: Held) -> Micros {
        Micros::new(seen.at_us)
    }

    fn used(&self, seen: Held) -> u64 {
        seen.used
    }

    /// The expiry at which enough is free: an upper bound, since holders may release sooner.
    fn wait(&self, state: &Places<'_>, seen: Held, cost: u64) -> Micros {
        let room = u64::from(self.limit.amount) - cost;
        let (mut used, mut ready_us) = (seen.used, seen.now_us);
        for place in &state.held()[seen.expired..] {
            if used <= room {
                break;
            }
            used -= u64::from(place.units);
            ready_us = place.expires_us;
        }
        Micros::new(ready_us - seen.now_us)
    }

    fn reset_after(&self, state: &Places<'_>, seen: Held) -> Micros {
        let latest = state.held()[seen.expired..].last();
        latest.map_or(Micros::ZERO, |latest| Micros::new(latest.expires_us - seen.now_us))
    }

    fn bound(&self, _state: &Places<'_>, _seen: Held) -> Bound {
        Bound::EXACT
    }

    fn charge(&self, state: &mut Places<'_>, seen: Held, units: u32) -> Held {
        state.forget(seen.at_us);
        state.insert(Place { id: self.id, expires_us: seen.at_us + self.limit.ttl_us, units });
        Held { expired: 0, used: state.head.total, ..seen }
    }

    /// Places are given back by release, not by refund.
    fn refund(&self, _state: &mut Places<'_>, _seen: Held, _units: u64, _of: Option<Micros>) -> u64 {
        0
    }
}
