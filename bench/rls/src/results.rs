//! The raw numbers of a run, as `bench/rls.json` keeps them.

use serde::{Deserialize, Serialize};

use crate::plan::{Load, Pace, Scale};
use crate::server::Subject;

/// A whole run.
#[derive(Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) scale: Scale,
    pub(crate) machine: Machine,
    pub(crate) keys: u32,
    pub(crate) closed: Vec<ClosedRow>,
    pub(crate) open: Vec<OpenRow>,
}

impl Results {
    /// As JSON with a row on a line, so that a change of one shows as one.
    pub(crate) fn json(&self) -> serde_json::Result<String> {
        let (scale, machine) = (serde_json::to_string(&self.scale)?, serde_json::to_string(&self.machine)?);
        let (keys, closed, open) = (self.keys, rows(&self.closed)?, rows(&self.open)?);
        Ok(format!(
            "{{\n\"scale\": {scale},\n\"machine\": {machine},\n\"keys\": {keys},\n\"closed\": {closed},\n\"open\": {open}\n}}\n"
        ))
    }
}

fn rows(rows: &[impl Serialize]) -> serde_json::Result<String> {
    let rows: Vec<String> = rows.iter().map(serde_json::to_string).collect::<serde_json::Result<_>>()?;
    Ok(format!("[\n{}\n]", rows.join(",\n")))
}

/// What it was measured on and with.
#[derive(Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    /// Had the subjects a core of their own?
    pub(crate) pinned: bool,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    pub(crate) rustc: String,
    pub(crate) tonic: String,
    pub(crate) hyper: String,
    pub(crate) h2: String,
    pub(crate) tokio: String,
    pub(crate) mimalloc: String,
}

/// What was counted while a load was measured.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) refused: u64,
    pub(crate) wall_ns: u64,
    /// Time of the processor: of all threads of the server, and of the generator.
    pub(crate) server_cpu_ns: u64,
    pub(crate) generator_cpu_ns: u64,
}

impl Counts {
    /// Calls in a second of the server's processor. Nobody else's work adds to that.
    pub(crate) fn per_cpu_s(&self) -> f64 {
        self.calls as f64 * 1e9 / self.server_cpu_ns.max(1) as f64
    }

    /// Calls in a second.
    pub(crate) fn per_s(&self) -> f64 {
        self.calls as f64 * 1e9 / self.wall_ns.max(1) as f64
    }

    /// How much of its core the server used.
    pub(crate) fn server_busy(&self) -> f64 {
        self.server_cpu_ns as f64 / self.wall_ns.max(1) as f64
    }

    /// How much of its core the generator used.
    pub(crate) fn generator_busy(&self) -> f64 {
        self.generator_cpu_ns as f64 / self.wall_ns.max(1) as f64
    }
}

/// A closed loop on one subject, in every round.
#[derive(Serialize, Deserialize)]
pub(crate) struct ClosedRow {
    pub(crate) subject: Subject,
    pub(crate) load: Load,
    pub(crate) rounds: Vec<Counts>,
}

/// An open loop on one subject, in every round.
#[derive(Serialize, Deserialize)]
pub(crate) struct OpenRow {
    pub(crate) subject: Subject,
    pub(crate) pace: Pace,
    /// Calls per second.
    pub(crate) rate: u32,
    pub(crate) rounds: Vec<OpenRound>,
}

/// One round of it.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub(crate) struct OpenRound {
    #[serde(flatten)]
    pub(crate) counts: Counts,
    #[serde(flatten)]
    pub(crate) latency: Latency,
}

/// How long calls took, from when they were due.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Latency {
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
    /// How late the generator was itself with the hundredth that it was latest with.
    pub(crate) late_p99_ns: u64,
}

impl Latency {
    pub(crate) fn of(took_ns: &mut [u64], late_ns: &mut [u64]) -> Self {
        took_ns.sort_unstable();
        late_ns.sort_unstable();
        Self {
            p50_ns: quantile(took_ns, 500),
            p99_ns: quantile(took_ns, 990),
            p999_ns: quantile(took_ns, 999),
            late_p99_ns: quantile(late_ns, 990),
        }
    }
}

/// The smallest that so many thousandths are not above; of none it is 0.
fn quantile(sorted: &[u64], thousandths: usize) -> u64 {
    let at = (sorted.len() * thousandths).div_ceil(1_000).saturating_sub(1);
    sorted.get(at).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let mut took: Vec<u64> = (1..=1_000).rev().collect();
        let latency = Latency::of(&mut took, &mut [7]);
        assert_eq!((latency.p50_ns, latency.p99_ns, latency.p999_ns), (500, 990, 999));
        assert_eq!(latency.late_p99_ns, 7);
        assert_eq!(Latency::of(&mut [], &mut []).p99_ns, 0);
    }
}
