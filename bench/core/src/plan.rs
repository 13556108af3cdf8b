//! What is measured, and at which size.

use serde::{Deserialize, Serialize};

use crate::flood::FloodPlan;
use crate::keys::Distribution;
use crate::results::Workload;
use crate::subject::Name;

/// How thorough a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scale {
    /// Does it run at all?
    Smoke,
    /// Under a minute: a million keys.
    Quick,
    /// What is published: from a hundred thousand keys to ten million.
    Full,
}

/// A run: tables of some sizes, one after the other.
pub(crate) struct Plan {
    pub(crate) scale: Scale,
    pub(crate) stages: Vec<Stage>,
    /// How many times each workload is timed, in turns.
    pub(crate) rounds: usize,
    /// Takes of one workload in one round, alike for everybody.
    pub(crate) takes: usize,
    pub(crate) flood: FloodPlan,
}

/// Subjects with so many keys each, and what is asked of all of them.
pub(crate) struct Stage {
    pub(crate) keys: u32,
    pub(crate) subjects: Vec<Name>,
    pub(crate) cases: Vec<Case>,
}

/// A workload with the sizes of batches that ours are asked in; the others know no batches.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) distribution: Distribution,
    pub(crate) threads: usize,
    pub(crate) takes: usize,
    pub(crate) batches: &'static [usize],
}

impl Case {
    /// What this subject is timed on.
    pub(crate) fn workloads(self, subject: Name) -> impl Iterator<Item = Workload> {
        let batches: &[usize] = match subject {
            _ if subject.is_ours() => self.batches,
            // A take of it takes as long as twenty of the others: the plain cases say enough.
            Name::Limitador if self.threads > 1 || self.takes > 1 => &[],
            _ => &[1],
        };
        batches.iter().map(move |&batch| Workload {
            distribution: self.distribution,
            threads: self.threads,
            takes: self.takes,
            batch,
        })
    }
}

/// The size of batch that the goals are judged by, besides none: what a busy connection has in one read.
pub(crate) const BATCH: usize = 16;

const CASES: &[Case] = &[
    Case { distribution: Distribution::Uniform, threads: 1, takes: 1, batches: &[1, BATCH, 64] },
    Case { distribution: Distribution::Uniform, threads: 2, takes: 1, batches: &[1, BATCH] },
    Case { distribution: Distribution::Uniform, threads: 1, takes: 3, batches: &[1, BATCH] },
    Case { distribution: Distribution::Zipf, threads: 1, takes: 1, batches: &[1, BATCH, 64] },
    Case { distribution: Distribution::Zipf, threads: 2, takes: 1, batches: &[1, BATCH] },
    Case { distribution: Distribution::Zipf, threads: 1, takes: 3, batches: &[1, BATCH] },
];

impl Scale {
    pub(crate) fn plan(self) -> Plan {
        let small = |keys| Stage { keys, subjects: Name::ALL.to_vec(), cases: CASES.to_vec() };
        // For its memory above all: in time, a table of so few keys tells little that one of a million does not.
        let is_plain = |case: &Case| case.threads == 1 && case.takes == 1;
        let smallest = Stage { cases: CASES.iter().copied().filter(is_plain).collect(), ..small(100_000) };
        // Ten million full keys would be 3.6 GB: nobody's load, and a question of memory alone. Limitador needs more for each.
        let is_small = |name: &Name| !matches!(name, Name::DefaultFull | Name::Limitador);
        let subjects = Name::ALL.into_iter().filter(is_small).collect();
        let large = Stage { keys: 10_000_000, subjects, cases: CASES.to_vec() };
        let (stages, rounds, takes) = match self {
            Self::Smoke => (vec![small(10_000)], 2, 3_000),
            Self::Quick => (vec![small(1_000_000)], 3, 300_000),
            Self::Full => (vec![smallest, small(1_000_000), large], 7, 1_500_000),
        };
        Plan { scale: self, stages, rounds, takes, flood: FloodPlan::of(self) }
    }

    /// How to make such a run again.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Self::Smoke => "cargo xtask bench core --smoke --write",
            Self::Quick => "cargo xtask bench core --quick --write",
            Self::Full => "cargo xtask bench core --write",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_of_a_hundred_thousand_keys_to_ten_million_and_of_the_default_everywhere() {
        let stages = Scale::Full.plan().stages;
        assert_eq!(
            stages.iter().map(|stage| stage.keys).collect::<Vec<_>>(),
            [100_000, 1_000_000, 10_000_000]
        );
        let has = |stage: &Stage, name| stage.subjects.contains(&name);
        for name in [Name::Slot, Name::DefaultIdle, Name::Governor, Name::Throttlecrab] {
            assert!(stages.iter().all(|stage| has(stage, name)), "{name:?}");
        }
        assert!(has(&stages[0], Name::Limitador) && has(&stages[1], Name::Limitador));
    }
}
