//! What is to be reached: the first goals, each a ratio within one run.

use tidegate_bench_common::figures::Spread;
use tidegate_bench_common::results::Counts;

use crate::figures::{closed_ratio, open_ratio, p99};
use crate::measure::PLAIN;
use crate::plan::{Pace, Press};
use crate::results::Results;

/// One of them.
pub(crate) struct Goal {
    pub(crate) wish: &'static str,
    pub(crate) measured: Option<Spread>,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    pub(crate) fn word(&self) -> &'static str {
        let reached = |measured: Spread| match self.bound {
            Bound::AtLeast(least) => measured.median >= least,
            Bound::AtMost(most) => measured.median <= most,
        };
        match self.measured.map(reached) {
            Some(true) => "reached",
            Some(false) => "**not reached**",
            None => "not measured",
        }
    }
}

/// All of them, with what was measured.
pub(crate) fn all(results: &Results) -> Vec<Goal> {
    let (memory, redis) = ("tidegate", "tidegate_redis");
    let per_core = |ours, peer| closed_ratio(results, ours, peer, Press::Full, Counts::per_cpu_s);
    let least = |wish, measured, bound| Goal { wish, measured, bound: Bound::AtLeast(bound) };
    let most = |wish, measured, bound| Goal { wish, measured, bound: Bound::AtMost(bound) };
    vec![
        least("memory, per core, against envoyproxy/ratelimit: ≥ 10", per_core(memory, "reference"), 10.0),
        least("memory, per core, against gubernator: ≥ 10", per_core(memory, "gubernator"), 10.0),
        least("memory, per core, against Limitador: ≥ 2.5", per_core(memory, "limitador"), 2.5),
        least(
            "memory, per core, against throttlecrab-server, gRPC: ≥ 1.7",
            per_core(memory, "throttlecrab_grpc"),
            1.7,
        ),
        least("memory, share of bare tonic: ≥ 0.85", per_core(memory, "bare"), 0.85),
        least("Redis, per node core, against envoyproxy/ratelimit: ≥ 6", per_core(redis, "reference"), 6.0),
        least("Redis, per node core, against Limitador: ≥ 5", per_core(redis, "limitador_redis"), 5.0),
        least(
            "Redis, per Redis core, against the bare pipelined script: ≥ 0.8",
            closed_ratio(results, redis, PLAIN, Press::Full, Counts::per_store_cpu_s),
            0.8,
        ),
        most(
            "p99 at half load, memory, against bare tonic: ≤ 1.3",
            open_ratio(results, memory, "bare", Pace::Half, p99),
            1.3,
        ),
        most(
            "p99 at half load, Redis, against bare tonic: ≤ 2",
            open_ratio(results, redis, "bare", Pace::Half, p99),
            2.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_reached_or_not_or_not_measured() {
        let goal = |median, bound| Goal {
            wish: "",
            measured: Some(Spread { median, least: 0.0, most: 99.0 }),
            bound,
        };
        assert_eq!(goal(2.5, Bound::AtLeast(2.5)).word(), "reached");
        assert_eq!(goal(2.4, Bound::AtLeast(2.5)).word(), "**not reached**");
        assert_eq!(goal(1.3, Bound::AtMost(1.3)).word(), "reached");
        assert_eq!(goal(1.4, Bound::AtMost(1.3)).word(), "**not reached**");
        assert_eq!(Goal { wish: "", measured: None, bound: Bound::AtMost(1.0) }.word(), "not measured");
    }
}
