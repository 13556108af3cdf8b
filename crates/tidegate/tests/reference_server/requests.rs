//! Random requests, as both doors are sent them.

use serde_json::{Value, json};

use crate::dice::Dice;
use crate::rules::{Domain, UNITS, Unit, VALUES};
use crate::support::messages::{Descriptor, Entry, Override, Request};

/// An entry that no rule has: limits that requests bring are counted on their own, so that no two units share a counter by chance.
const OVERRIDDEN: &str = "own";
const DESCRIPTORS_MAX: usize = 4;

pub(crate) fn draw(domains: &[Domain], dice: &mut Dice) -> Request {
    let domain = &domains[dice.roll(domains.len())];
    let name = match dice.roll(40) {
        0 => "",
        1 | 2 => "nowhere",
        _ => &domain.name,
    };
    let count = if dice.once_in(40) { 0 } else { 1 + dice.roll(DESCRIPTORS_MAX) };
    let mut descriptors: Vec<Descriptor> = Vec::new();
    for _ in 0..count {
        let descriptor = draw_descriptor(domain, dice);
        // Two of one request on one counter are left to `corners.rs`.
        let stored = stored_entries(domain, &descriptor);
        if descriptors.iter().all(|other| stored_entries(domain, other) != stored) {
            descriptors.push(descriptor);
        }
    }
    let hits_addend = if dice.once_in(3) { dice.roll(6) as u32 } else { 0 };
    Request { domain: name.into(), descriptors, hits_addend }
}

fn draw_descriptor(domain: &Domain, dice: &mut Dice) -> Descriptor {
    let mut descriptor = Descriptor { entries: domain.draw_entries(dice), ..Descriptor::default() };
    if dice.once_in(10) {
        let value = (*dice.pick(&VALUES)).into();
        // A value has the same limit for ever: the unit is no part of a counter's name.
        let unit = UNITS[1 + VALUES.iter().position(|known| *known == value).unwrap_or(0) % 6];
        let amount = if dice.once_in(6) { 0 } else { 4 };
        descriptor.entries = vec![Entry { key: OVERRIDDEN.into(), value }];
        descriptor.limit =
            Some(Override { requests_per_unit: amount, unit: unit.number, unit_multiplier: None });
    }
    if dice.once_in(5) {
        descriptor.hits_addend = Some(dice.roll(5) as u64);
    }
    descriptor
}

fn stored_entries(domain: &Domain, descriptor: &Descriptor) -> Vec<(String, String)> {
    let keys = descriptor.entries.iter().map(|entry| entry.key.clone());
    let values: Vec<String> = match domain.find(&descriptor.entries) {
        Some(found) => found.values,
        None => descriptor.entries.iter().map(|entry| entry.value.clone()).collect(),
    };
    keys.zip(values).collect()
}

/// The name of a counter before its prefix and its window.
pub(crate) fn store_name(domains: &[Domain], request: &Request, descriptor: &Descriptor) -> String {
    let domain = domains.iter().find(|domain| domain.name == request.domain);
    let entries = domain.map(|domain| stored_entries(domain, descriptor)).unwrap_or_default();
    let entries: String = entries.iter().map(|(key, value)| format!("{key}_{value}_")).collect();
    format!("{}_{entries}", request.domain)
}

/// How many units a descriptor takes there.
pub(crate) fn hits(request: &Request, descriptor: &Descriptor) -> u64 {
    descriptor.hits_addend.unwrap_or(u64::from(request.hits_addend.max(1)))
}

/// The same request for `/json`.
pub(crate) fn json(request: &Request) -> Value {
    let descriptors = request.descriptors.iter().map(|descriptor| {
        let entries = descriptor.entries.iter();
        let entries: Value = entries.map(|entry| json!({"key": entry.key, "value": entry.value})).collect();
        let mut all = json!({"entries": entries});
        if let Some(limit) = &descriptor.limit {
            let unit = Unit::of_number(limit.unit).map_or("UNKNOWN", |unit| unit.name);
            all["limit"] = json!({"requestsPerUnit": limit.requests_per_unit, "unit": unit});
        }
        if let Some(hits) = descriptor.hits_addend {
            all["hitsAddend"] = hits.to_string().into(); // 64 bits are a text in proto3's JSON.
        }
        all
    });
    let descriptors: Value = descriptors.collect();
    json!({"domain": request.domain, "descriptors": descriptors, "hitsAddend": request.hits_addend})
}
