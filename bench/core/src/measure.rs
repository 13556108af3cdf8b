//! The processes take turns: every workload of every subject once in each round, every other round backwards.

use crate::child::Child;
use crate::machine;
use crate::plan::{Plan, Stage};
use crate::results::{LatencyRow, Results, SpeedRow};

/// Fills the tables of all subjects and times them, stage by stage.
pub(crate) fn speed_and_memory(plan: &Plan) -> Result<Results, String> {
    let (mut memory, mut speed, mut latency) = (Vec::new(), Vec::new(), Vec::new());
    for stage in &plan.stages {
        let mut children = start(plan, stage)?;
        speed.extend(rounds(plan, stage, &mut children)?);
        latency.extend(singly(plan, stage, &mut children)?);
        memory.extend(children.iter().map(|child| child.memory));
    }
    Ok(Results { scale: plan.scale, machine: machine::here(), memory, speed, flood: Vec::new(), latency })
}

/// As many as tell of a thousandth.
const SINGLY: usize = 100_000;

fn singly(plan: &Plan, stage: &Stage, children: &mut [Child]) -> Result<Vec<LatencyRow>, String> {
    eprintln!("{} keys: takes one by one", stage.keys);
    let takes = SINGLY.min(plan.takes);
    let row = |child: &mut Child| {
        Ok(LatencyRow { subject: child.subject, keys: stage.keys, took: child.latency(takes)? })
    };
    children.iter_mut().map(row).collect()
}

fn start(plan: &Plan, stage: &Stage) -> Result<Vec<Child>, String> {
    let mut children = Vec::new();
    for subject in &stage.subjects {
        // As many draws as make two rounds differ.
        let child = Child::start(*subject, stage.keys, 3 * plan.takes)?;
        eprintln!(
            "{}: {} keys in {:.1} s, {:.1} bytes per key, {} evicted live",
            subject.word(),
            stage.keys,
            child.memory.fill_ms as f64 / 1e3,
            child.memory.bytes_per_key(),
            child.memory.evicted_live
        );
        children.push(child);
    }
    Ok(children)
}

fn rounds(plan: &Plan, stage: &Stage, children: &mut [Child]) -> Result<Vec<SpeedRow>, String> {
    let mut rows = Vec::new();
    let mut turns = Vec::new();
    for case in &stage.cases {
        for (at, subject) in stage.subjects.iter().enumerate() {
            for workload in case.workloads(*subject) {
                turns.push(at);
                rows.push(SpeedRow { subject: *subject, keys: stage.keys, workload, rounds: Vec::new() });
            }
        }
    }
    for round in 0..plan.rounds {
        eprintln!("{} keys: round {} of {}", stage.keys, round + 1, plan.rounds);
        for turn in 0..turns.len() {
            // Whatever warms up or grows tired in a round weighs on both ends of the list alike.
            let turn = if round % 2 == 0 { turn } else { turns.len() - 1 - turn };
            let row = &mut rows[turn];
            let start = round * plan.takes / 2;
            row.rounds.push(children[turns[turn]].time(row.workload, plan.takes, start)?);
        }
    }
    Ok(rows)
}
