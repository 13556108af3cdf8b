//! Who grows, and how far.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_bench_common::plan::Span;
use tidegate_bench_common::requests::{Requests, shuffled};

use crate::plan::Extent;

const DOMAIN: &str = "growth";
/// A limit that nobody reaches while anything is timed.
const WIDE: &str = "1000000/1h";
/// How many callers ask where their number is not what grows.
const CALLERS: u32 = 10_000;
/// So that every rule is asked for.
const CALLERS_OF_RULES: u32 = 100_000;

/// What grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Growing {
    /// Rules, of which a request finds one.
    Rules,
    /// Limits that a request has to fit into, counters in memory.
    Takes,
    /// The same, counters in Redis.
    TakesInRedis,
    /// Keys of the default algorithm.
    Keys,
    /// Keys of a bucket.
    BucketKeys,
}

impl Growing {
    pub(crate) const ALL: [Self; 5] =
        [Self::Rules, Self::Takes, Self::TakesInRedis, Self::Keys, Self::BucketKeys];

    /// Is it the keys?
    pub(crate) fn is_keys(self) -> bool {
        matches!(self, Self::Keys | Self::BucketKeys)
    }

    /// The sizes, smallest first.
    fn sizes(self, extent: Extent) -> &'static [u32] {
        match (self, extent) {
            (Self::Rules, Extent::Smoke) => &[10, 100],
            (Self::Rules, _) => &[10, 1_000, 100_000],
            (Self::Takes, _) => &[1, 2, 3, 5, 10],
            (Self::TakesInRedis, _) => &[1, 3, 10],
            (Self::Keys | Self::BucketKeys, Extent::Smoke) => &[1_000, 10_000],
            (Self::Keys | Self::BucketKeys, Extent::Full) => &[100_000, 1_000_000, 10_000_000],
            (Self::Keys | Self::BucketKeys, _) => &[100_000, 1_000_000],
        }
    }
}

/// A node of the run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) growing: Growing,
    /// How many there are of what grows.
    pub(crate) size: u32,
}

impl Case {
    /// All of a run, by what grows and then by size.
    pub(crate) fn all(extent: Extent) -> Vec<Self> {
        let cases = |growing: Growing| growing.sizes(extent).iter().map(move |&size| Self { growing, size });
        Growing::ALL.into_iter().flat_map(cases).collect()
    }

    /// How many callers ask.
    pub(crate) fn callers(self) -> u32 {
        match self.growing {
            Growing::Rules => CALLERS_OF_RULES.min(self.size * CALLERS),
            Growing::Takes | Growing::TakesInRedis => CALLERS,
            Growing::Keys | Growing::BucketKeys => self.size,
        }
    }

    pub(crate) fn rules(self) -> String {
        let limits = match self.growing {
            Growing::Rules => return self.many_rules(),
            Growing::Takes | Growing::TakesInRedis => {
                let limit = |hours: u32| format!("{{ limit: 1000000/{hours}h }}");
                let limits: Vec<String> = (1..=self.size).map(limit).collect();
                format!("rate_limits: [{}]", limits.join(", "))
            }
            Growing::Keys => format!("rate_limit: {{ limit: {WIDE} }}"),
            Growing::BucketKeys => format!("rate_limit: {{ limit: {WIDE}, algorithm: token_bucket }}"),
        };
        format!("domain: {DOMAIN}\ndescriptors:\n  - {{ key: user, {limits} }}\n")
    }

    fn many_rules(self) -> String {
        let mut text = format!("domain: {DOMAIN}\ndescriptors:\n");
        for number in 0..self.size {
            let route = route(number);
            text += &format!(
                "  - key: route\n    value: \"{route}\"\n    descriptors: [{{ key: user, rate_limit: {{ limit: {WIDE} }} }}]\n"
            );
        }
        text
    }

    /// One request of each caller, in an order that no cache can guess.
    pub(crate) fn requests(self) -> Requests {
        let mut requests = Requests::default();
        for caller in shuffled(self.callers()) {
            let user = format!("user-{caller:08}");
            match self.growing {
                Growing::Rules => {
                    requests.push(DOMAIN, &[("route", &route(caller % self.size)), ("user", &user)]);
                }
                _ => requests.push(DOMAIN, &[("user", &user)]),
            }
        }
        requests
    }
}

fn route(number: u32) -> String {
    format!("GET /items/{number:06}")
}

/// How often each is timed, and for how long.
pub(crate) fn rounds(extent: Extent) -> (usize, Span) {
    let (rounds, warm_ms, measured_ms) = match extent {
        Extent::Smoke => (1, 20, 80),
        Extent::Quick => (2, 100, 400),
        Extent::Usual => (7, 100, 600),
        Extent::Full => (9, 200, 1_000),
    };
    (rounds, Span { warm: Duration::from_millis(warm_ms), measured: Duration::from_millis(measured_ms) })
}

/// How many keys a second a node is asked for just after its start, in an open loop: few, so that a wait is nobody's queue.
pub(crate) const FIRST_RATE: u32 = 10_000;

/// And for how long: ten thousand of them, and all that there are in a smoke run.
pub(crate) fn first(extent: Extent) -> Span {
    let measured_ms = if extent == Extent::Smoke { 100 } else { 1_000 };
    Span { warm: Duration::ZERO, measured: Duration::from_millis(measured_ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_and_every_rule_is_asked_for() {
        for extent in Extent::ALL {
            let cases = Case::all(extent);
            for pair in cases.windows(2).filter(|pair| pair[0].growing == pair[1].growing) {
                assert!(pair[0].size < pair[1].size);
            }
            let rules = cases.iter().filter(|case| case.growing == Growing::Rules);
            assert!(rules.clone().all(|case| case.callers() >= case.size) && rules.count() > 1);
        }
    }

    #[test]
    fn no_key_is_among_the_first_twice() {
        for extent in Extent::ALL {
            let first = u128::from(FIRST_RATE) * first(extent).measured.as_millis() / 1_000;
            let mut keys = Case::all(extent).into_iter().filter(|case| case.growing.is_keys());
            assert!(keys.all(|case| u128::from(case.callers()) >= first));
        }
    }

    #[test]
    fn there_are_as_many_limits_as_takes() {
        for size in [1, 10] {
            let rules = Case { growing: Growing::Takes, size }.rules();
            assert_eq!(rules.matches("limit: ").count(), size as usize, "{rules}");
        }
        let rules = Case { growing: Growing::Rules, size: 7 }.rules();
        assert_eq!(rules.matches("value:").count(), 7);
    }
}
