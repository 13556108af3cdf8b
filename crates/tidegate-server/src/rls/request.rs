//! `RateLimitRequest`: read from its bytes, borrowing every text.

use smallvec::SmallVec;
use tidegate_core::{Descriptor, Entry, Micros, OwnLimit};

use super::wire::{Fields, Undecodable, Value};

/// How many descriptors a request may have.
pub const DESCRIPTORS_MAX: usize = 64;
/// How many entries a request may have, all descriptors together.
pub const ENTRIES_MAX: usize = 512;

/// A request as it came. Whatever is in it, its size is bounded; see [`RateLimitRequest::too_much`].
#[derive(Debug, Default)]
pub struct RateLimitRequest<'a> {
    /// The namespace of the rules.
    pub domain: &'a str,
    /// The entries of all descriptors.
    pub entries: SmallVec<[Entry<'a>; 8]>,
    /// The descriptors, with their costs.
    pub descriptors: SmallVec<[Descriptor; 4]>,
    /// What the request says about the cost of descriptors that say nothing.
    pub hits: u32,
    /// How many descriptors came, also those that are beyond the bound.
    pub descriptors_came: usize,
    /// There are more descriptors or entries than may be. They are not kept.
    pub too_much: bool,
}

impl<'a> RateLimitRequest<'a> {
    /// Reads a request.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Undecodable> {
        let mut request = Self::default();
        request.read(bytes)?;
        Ok(request)
    }

    /// The same where it is to stay: it is large, and moving it costs as much as reading it. Nothing was read into it before.
    pub(super) fn read(&mut self, bytes: &'a [u8]) -> Result<(), Undecodable> {
        // What each descriptor says about its hits. They are added up when those of the whole request are known, which may come last.
        let mut said: SmallVec<[Hits; 4]> = SmallVec::new();
        let mut fields = Fields(bytes);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => self.domain = value.text()?,
                2 => {
                    let (descriptor, hits) = self.descriptor(value.message()?)?;
                    self.descriptors_came += 1;
                    if self.descriptors.len() < DESCRIPTORS_MAX {
                        self.descriptors.push(descriptor);
                        said.push(hits);
                    } else {
                        self.too_much = true;
                    }
                }
                3 => self.hits = value.number()? as u32,
                _ => {}
            }
        }
        for (descriptor, said) in self.descriptors.iter_mut().zip(said) {
            descriptor.cost = said.cost(self.hits);
            descriptor.own_cost = said.own.is_some();
        }
        Ok(())
    }

    fn descriptor(&mut self, mut fields: Fields<'a>) -> Result<(Descriptor, Hits), Undecodable> {
        let from = self.entries.len();
        let (mut limit, mut hits) = (None, Hits::default());
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => {
                    let entry = entry(value.message()?)?;
                    if self.entries.len() < ENTRIES_MAX {
                        self.entries.push(entry);
                    } else {
                        self.too_much = true;
                    }
                }
                2 => limit = own_limit(value.message()?)?,
                3 => hits.own = Some(wrapped(value)?),
                4 => hits.negative = value.number()? != 0,
                _ => {}
            }
        }
        Ok((Descriptor { entries: from..self.entries.len(), cost: 1, limit, own_cost: false }, hits))
    }
}

/// What a descriptor says about its hits.
#[derive(Clone, Copy, Debug, Default)]
struct Hits {
    own: Option<u64>,
    negative: bool,
}

impl Hits {
    /// Its own number, where 0 is a peek; else that of the request, where 0 means 1.
    fn cost(self, of_request: u32) -> i64 {
        let hits = self.own.unwrap_or_else(|| u64::from(of_request.max(1)));
        let hits = i64::try_from(hits).unwrap_or(i64::MAX);
        if self.negative { -hits } else { hits }
    }
}

fn entry(mut fields: Fields<'_>) -> Result<Entry<'_>, Undecodable> {
    let mut entry = Entry { key: "", value: "" };
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => entry.key = value.text()?,
            2 => entry.value = value.text()?,
            _ => {}
        }
    }
    Ok(entry)
}

/// The limit that a descriptor brings; none if its unit is not known, and the rules hold.
fn own_limit(mut fields: Fields<'_>) -> Result<Option<OwnLimit>, Undecodable> {
    let (mut amount, mut unit, mut multiplier) = (0, 0, 1);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => amount = u64::from(value.number()? as u32),
            2 => unit = value.number()?,
            3 => multiplier = u64::from(wrapped(value)? as u32),
            _ => {}
        }
    }
    let seconds = match unit {
        1 => 1,
        2 => 60,
        3 => 3_600,
        4 => 86_400,
        5 => 30 * 86_400,
        6 => 365 * 86_400,
        7 => 7 * 86_400,
        _ => return Ok(None),
    };
    Ok(Some(OwnLimit { amount, window: Micros::from_secs(seconds * multiplier) }))
}

/// The number in one of protobuf's wrappers, which tell 0 from nothing.
fn wrapped(value: Value<'_>) -> Result<u64, Undecodable> {
    let (mut fields, mut number) = (value.message()?, 0);
    while let Some((field, value)) = fields.next()? {
        if field == 1 {
            number = value.number()?;
        }
    }
    Ok(number)
}
