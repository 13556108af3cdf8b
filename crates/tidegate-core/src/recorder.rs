//! What a walk through the book tells about itself: which way each descriptor took, how it was led, and where it ended.
//!
//! A decision records nothing. Its recorder is `()`, for which every event is dead code; so what is explained is what is decided.

use std::fmt;

use ipnet::IpNet;

use crate::{Book, Entry, Found, Grant, GrantedBy, PathEntry, Rule};

/// Somebody who is told what happens while [`Book::plan_recorded`] looks for rules.
pub trait Recorder {
    /// Takes note of what just happened. What it is shown is only lent.
    fn record(&mut self, event: Event<'_>);
}

/// Records nothing.
impl Recorder for () {
    #[inline(always)]
    fn record(&mut self, _event: Event<'_>) {}
}

/// What happens on the way to the rules of a request, in this order.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// The book has no domain of that name: nothing is looked for.
    DomainUnknown,
    /// The domain is switched off: nothing is looked for.
    DomainDisabled,
    /// Whoever asks is exempt from the whole domain: nothing is looked for.
    DomainExempts(ExemptBy<'e>),
    /// A descriptor brought its own limit: no rules are looked for.
    Brought {
        /// The number of the descriptor.
        descriptor: usize,
    },
    /// A descriptor starts at the top of its domain. What follows is about it.
    Starts {
        /// Its number.
        descriptor: usize,
        /// The caller's tier: that of its quota, else the one that the entries say where they are trusted.
        tier: Option<&'e str>,
        /// Is it that of its quota?
        of_quota: bool,
        /// Another name of the caller, in the place of its own: the descriptor is walked once more.
        name: Option<Entry<'e>>,
        /// The top.
        top: Waypoint<'e>,
    },
    /// An entry is no part of the way, nor of the key: it says the tier, or the id of a lease or reservation.
    Reserved(Entry<'e>),
    /// An entry led to a child.
    Led {
        /// The entry.
        entry: Entry<'e>,
        /// How the child fitted.
        how: How,
        /// The child.
        to: Waypoint<'e>,
        /// Are the limits there those for the tier, not those for everybody?
        of_tier: bool,
        /// Why whoever asks is exempt from what is there and below.
        exempt: Option<ExemptBy<'e>>,
    },
    /// No child fitted an entry: the way ends.
    Lost {
        /// The entry.
        entry: Entry<'e>,
        /// Where no child fitted.
        at: Waypoint<'e>,
    },
    /// What holds for the caller alone, in the place of the limits there.
    Granted {
        /// Where; none is where no rule stands.
        at: Option<Waypoint<'e>>,
        /// How much.
        grant: Grant,
        /// By what.
        by: GrantedBy,
    },
    /// What was found so far does not count: under `match: leaf` only the last entry's limits do.
    Passed(&'e [Found<'e>]),
    /// Rules that count for every request of the domain.
    Always {
        /// Where they stand.
        at: Waypoint<'e>,
        /// Why whoever asks is exempt from them.
        exempt: Option<ExemptBy<'e>>,
    },
}

/// How a child fitted an entry. A value of its own goes before wildcards, and those before an open value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It has this very value.
    Exact,
    /// Its wildcards fit, and it is the first of those that do.
    Wildcard {
        /// Its place among its siblings, from 0.
        order: usize,
    },
    /// It leaves the value open.
    Open,
}

/// What makes somebody exempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExemptBy<'e> {
    /// The caller's name is on the list.
    Caller(&'e str),
    /// What is kept about the caller says so.
    Whitelist(&'e str),
    /// The address is in a network of the list.
    Network {
        /// The address, as the request has it.
        address: &'e str,
        /// The network.
        network: &'e IpNet,
    },
}

/// A node of the tree, to look around from.
#[derive(Clone, Copy)]
pub struct Waypoint<'b> {
    pub(crate) book: &'b Book,
    pub(crate) node: usize,
}

impl<'b> Waypoint<'b> {
    /// The way to it from the top of its domain.
    pub fn path(self) -> &'b [PathEntry] {
        self.book.path_of(self.node)
    }

    /// What is below it, in the order of the file. Takes as long as there are many.
    pub fn children(self) -> impl Iterator<Item = Self> {
        self.book.children_of(self.node).into_iter().map(move |node| Self { node, ..self })
    }

    /// Its limits for everybody.
    pub fn limits(self) -> impl Iterator<Item = &'b Rule> {
        self.book.limits_of(self.node)
    }

    /// Its limits for the callers of a tier, if it has such.
    pub fn limits_for(self, tier: &str) -> Option<impl Iterator<Item = &'b Rule> + use<'b>> {
        self.book.limits_of_tier(self.node, tier)
    }

    /// The tiers that it has limits for, by name.
    pub fn tiers(self) -> Vec<&'b str> {
        self.book.tiers_of(self.node)
    }
}

impl fmt::Debug for Waypoint<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(self.path()).finish()
    }
}
