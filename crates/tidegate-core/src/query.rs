//! What is asked of a book: the domain and descriptors of one request, borrowed from wherever they came.

use std::ops::Range;

use crate::Micros;

/// One entry of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'q> {
    /// What it is, such as `api_key`.
    pub key: &'q str,
    /// Which one.
    pub value: &'q str,
}

/// One descriptor of a query: where its entries are among those of the query, and what it asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// Its entries.
    pub entries: Range<usize>,
    /// The units that it takes: 0 is a peek, negative a refund.
    pub cost: i64,
    /// The limit that it brings, used instead of the rules.
    pub limit: Option<OwnLimit>,
    /// Is the cost its own, and not that of the whole request? Only a node that stands in for envoyproxy/ratelimit asks.
    pub own_cost: bool,
}

/// A limit that comes with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnLimit {
    /// How much.
    pub amount: u64,
    /// In which time.
    pub window: Micros,
}

/// One request. Whoever makes it bounds how many descriptors and entries it has.
#[derive(Clone, Copy, Debug)]
pub struct Query<'q> {
    /// The namespace of the rules.
    pub domain: &'q str,
    /// The entries of all descriptors.
    pub entries: &'q [Entry<'q>],
    /// The descriptors.
    pub descriptors: &'q [Descriptor],
    /// The id under which places of concurrency limits are taken that no entry names. Without one they are taken by nobody, and expire.
    pub lease: Option<&'q str>,
}

impl<'q> Query<'q> {
    /// The entries of one of its descriptors.
    pub fn entries_of(&self, descriptor: &Descriptor) -> &'q [Entry<'q>] {
        self.entries.get(descriptor.entries.clone()).unwrap_or_default()
    }
}
