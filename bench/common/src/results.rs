//! The raw numbers of a run, as its JSON keeps them.

use serde::{Deserialize, Serialize};

use crate::tally::Tally;

/// What was counted while a load was measured.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Default, Debug)]
pub struct Counts {
    /// Calls that ended.
    pub calls: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// How long it took.
    pub wall_ns: u64,
    /// Time of the processor: of all threads of the server,
    pub server_cpu_ns: u64,
    /// and of the generator.
    pub generator_cpu_ns: u64,
    /// The same of the store that the server counts in, if it has one,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub store_cpu_ns: u64,
    /// and how many scripts it was asked to run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub store_calls: u64,
    /// What became of every call that was made, also before it was measured and after.
    #[serde(skip)]
    pub all: Tally,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Counts {
    /// Both, one after the other.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            refused: self.refused + other.refused,
            wall_ns: self.wall_ns + other.wall_ns,
            server_cpu_ns: self.server_cpu_ns + other.server_cpu_ns,
            generator_cpu_ns: self.generator_cpu_ns + other.generator_cpu_ns,
            store_cpu_ns: self.store_cpu_ns + other.store_cpu_ns,
            store_calls: self.store_calls + other.store_calls,
            all: self.all.plus(&other.all),
        }
    }

    /// Calls in a second of the server's processor. Nobody else's work adds to that.
    pub fn per_cpu_s(&self) -> f64 {
        self.calls as f64 * 1e9 / self.server_cpu_ns.max(1) as f64
    }

    /// Calls in a second of the store's processor.
    pub fn per_store_cpu_s(&self) -> f64 {
        self.calls as f64 * 1e9 / self.store_cpu_ns.max(1) as f64
    }

    /// Scripts that the store ran for a call.
    pub fn store_calls_per_call(&self) -> f64 {
        self.store_calls as f64 / self.calls.max(1) as f64
    }

    /// Calls in a second.
    pub fn per_s(&self) -> f64 {
        self.calls as f64 * 1e9 / self.wall_ns.max(1) as f64
    }

    /// How much of its core the server used.
    pub fn server_busy(&self) -> f64 {
        self.server_cpu_ns as f64 / self.wall_ns.max(1) as f64
    }

    /// How much of its core the store used.
    pub fn store_busy(&self) -> f64 {
        self.store_cpu_ns as f64 / self.wall_ns.max(1) as f64
    }

    /// How much of its core the generator used.
    pub fn generator_busy(&self) -> f64 {
        self.generator_cpu_ns as f64 / self.wall_ns.max(1) as f64
    }
}

/// One round of an open loop.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct OpenRound {
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// How long calls took.
    #[serde(flatten)]
    pub latency: Latency,
}

/// How long calls took, from when they were due.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Latency {
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// 999 of 1000.
    pub p999_ns: u64,
    /// All of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub most_ns: u64,
    /// How late those began that began latest, but for a hundredth: nobody ran on the generator's core, or too many were in flight.
    pub late_p99_ns: u64,
}

impl Latency {
    /// From how long each took, and how late each was begun.
    pub fn of(took_ns: &mut [u64], late_ns: &mut [u64]) -> Self {
        took_ns.sort_unstable();
        late_ns.sort_unstable();
        Self {
            p50_ns: quantile(took_ns, 500),
            p99_ns: quantile(took_ns, 990),
            p999_ns: quantile(took_ns, 999),
            most_ns: quantile(took_ns, 1_000),
            late_p99_ns: quantile(late_ns, 990),
        }
    }
}

/// The smallest that so many thousandths are not above; of none it is 0.
fn quantile(sorted: &[u64], thousandths: usize) -> u64 {
    let at = (sorted.len() * thousandths).div_ceil(1_000).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0)
}

/// Of all calls of all rounds.
pub fn refused<'a>(rounds: impl Iterator<Item = &'a Counts> + Clone) -> f64 {
    let calls: u64 = rounds.clone().map(|counts| counts.calls).sum();
    rounds.map(|counts| counts.refused).sum::<u64>() as f64 / calls.max(1) as f64
}

/// JSON with a row on a line, so that a change of one shows as one.
pub fn rows(rows: &[impl Serialize]) -> serde_json::Result<String> {
    let rows: Vec<String> = rows.iter().map(serde_json::to_string).collect::<serde_json::Result<_>>()?;
    Ok(format!("[\n{}\n]", rows.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let mut took: Vec<u64> = (1..=1_000).rev().collect();
        let latency = Latency::of(&mut took, &mut [7]);
        assert_eq!((latency.p50_ns, latency.p99_ns, latency.p999_ns), (500, 990, 999));
        assert_eq!((latency.most_ns, latency.late_p99_ns), (1_000, 7));
        assert_eq!(Latency::of(&mut [], &mut []).p99_ns, 0);
    }

    #[test]
    fn figures_are_calls_for_what_they_cost() {
        let counts = Counts {
            calls: 1_000,
            wall_ns: 2_000_000,
            server_cpu_ns: 1_000_000,
            store_cpu_ns: 500_000,
            store_calls: 250,
            ..Counts::default()
        };
        assert_eq!((counts.per_s(), counts.per_cpu_s()), (500_000.0, 1_000_000.0));
        assert_eq!((counts.per_store_cpu_s(), counts.store_calls_per_call()), (2_000_000.0, 0.25));
        assert_eq!((counts.server_busy(), counts.store_busy()), (0.5, 0.25));
    }
}
