//! The same calls for everybody, in an order that no cache can guess.

use tidegate_bench_common::requests::{Requests, shuffled};

use crate::rules;

/// One for each of so many users, in the order of a shuffled pack, so that they are read from memory in a row.
pub(crate) fn draw(keys: u32) -> Requests {
    let mut requests = Requests::default();
    for user in shuffled(keys) {
        push(&mut requests, user % rules::DOMAINS, user / rules::DOMAINS % rules::ROUTES, user);
    }
    requests
}

/// One user on a route with a limit that is soon reached.
pub(crate) fn tight() -> Requests {
    let mut requests = Requests::default();
    push(&mut requests, 0, rules::TIGHT, u32::MAX);
    requests
}

fn push(requests: &mut Requests, domain: u32, route: u32, user: u32) {
    let entries = [("route", &*rules::route(route)), ("user", &*format!("user-{user:08}"))];
    requests.push(&rules::domain(domain), &entries);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;
    use tidegate_bench_common::messages::RateLimitRequest;
    use tidegate_bench_common::requests::PREFIX_BYTES;

    use super::*;

    #[test]
    fn every_key_is_asked_for_once_before_one_is_again() {
        let requests = draw(3_000);
        let mut seen = BTreeSet::new();
        for number in 0..requests.len() {
            let bytes = requests.get(number);
            let message = RateLimitRequest::decode(&bytes[PREFIX_BYTES..]).expect("a request");
            let entries = &message.descriptors[0].entries;
            assert!(seen.insert((message.domain, entries[0].value.clone(), entries[1].value.clone())));
        }
        assert_eq!(seen.len(), 3_000);
        let rules: BTreeSet<_> = seen.iter().map(|(domain, route, _)| (domain, route)).collect();
        assert_eq!(rules.len() as u32, rules::DOMAINS * rules::ROUTES, "every rule is asked for");
        assert_eq!(requests.get(3_000), requests.get(0));
    }
}
