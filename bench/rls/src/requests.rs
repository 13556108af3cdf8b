//! The same calls for everybody: encoded before anything is measured, in an order that no cache can guess.

use prost::Message as _;

use crate::messages::{Entry, RateLimitDescriptor, RateLimitRequest};
use crate::rules;

/// Before a message of gRPC stand a byte that says whether it is compressed, and four for its length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// Encoded requests, one for each key.
pub(crate) struct Requests {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<u32>,
}

impl Requests {
    /// One for each of so many users, in the order of a shuffled pack, so that they are read from memory in a row.
    pub(crate) fn draw(keys: u32) -> Self {
        let mut users: Vec<u32> = (0..keys).collect();
        let mut lot = 0x9e37_79b9_7f4a_7c15_u64;
        for at in (1..users.len()).rev() {
            users.swap(at, (splitmix(&mut lot) % (at as u64 + 1)) as usize);
        }
        let mut requests = Self { bytes: Vec::new(), ends: Vec::new() };
        for user in users {
            requests.push(user % rules::DOMAINS, user / rules::DOMAINS % rules::ROUTES, user);
        }
        requests
    }

    /// One user on a route with a limit that is soon reached.
    pub(crate) fn tight() -> Self {
        let mut requests = Self { bytes: Vec::new(), ends: Vec::new() };
        requests.push(0, rules::TIGHT, u32::MAX);
        requests
    }

    fn push(&mut self, domain: u32, route: u32, user: u32) {
        let entry = |key: &str, value| Entry { key: key.into(), value };
        let entries = vec![entry("route", rules::route(route)), entry("user", format!("user-{user:08}"))];
        let descriptors = vec![RateLimitDescriptor { entries }];
        let message =
            RateLimitRequest { domain: rules::domain(domain), descriptors, hits_addend: 0 }.encode_to_vec();
        self.bytes.push(0);
        self.bytes.extend((message.len() as u32).to_be_bytes());
        self.bytes.extend(message);
        self.ends.push(self.bytes.len() as u32);
    }

    /// The call of this number, with its prefix; after the last comes the first.
    pub(crate) fn get(&self, number: usize) -> &[u8] {
        let at = number % self.ends.len();
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.bytes[start..self.ends[at] as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_is_asked_for_once_before_one_is_again() {
        let requests = Requests::draw(3_000);
        let mut seen = BTreeSet::new();
        for number in 0..requests.len() {
            let bytes = requests.get(number);
            let message = RateLimitRequest::decode(&bytes[PREFIX_BYTES..]).expect("a request");
            assert_eq!(bytes[1..PREFIX_BYTES], (message.encoded_len() as u32).to_be_bytes());
            let entries = &message.descriptors[0].entries;
            assert!(seen.insert((message.domain, entries[0].value.clone(), entries[1].value.clone())));
        }
        assert_eq!(seen.len(), 3_000);
        let rules: BTreeSet<_> = seen.iter().map(|(domain, route, _)| (domain, route)).collect();
        assert_eq!(rules.len() as u32, rules::DOMAINS * rules::ROUTES, "every rule is asked for");
        assert_eq!(requests.get(3_000), requests.get(0));
    }
}
