//! Row 37: the node itself.

use std::time::Duration;

use tidegate_clock::Stopwatch;
use tidegate_testbed::Kind;

use crate::audit::Event;
use crate::report::{Lost, Report, row};
use crate::rig::{Needs, PRIMARIES, Rig};
use crate::support::{Http, Setup};
use crate::switch::{Protection, Way};

const BEFORE: Duration = Duration::from_millis(1_200);
const AFTER: Duration = Duration::from_millis(1_800);

/// A node is ready so soon after it was started.
const READY_MAX: Duration = Duration::from_secs(1);

/// A node without a store starts in less than this. What it takes longer, the machine takes, and is allowed to others too.
const START_USUAL: Duration = Duration::from_millis(150);

#[test]
fn row_37_our_process_dies() {
    row(37, "our process dies", &[Kind::Redis], Protection::Start, our_process_dies);
}

/// A node is killed, its callers go on with the other one, and it is started again twice: while the store answers, and while it hangs.
/// No time is promised for calls to a node before it says that it is ready; its port is open a little sooner.
fn our_process_dies(kind: Kind, way: Way, report: &mut Report) {
    let mut rig = Rig::start(Needs { nodes: 2, ..Needs::new(kind, way) });
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    let again = rig.nodes[0].setup.clone();
    let again = match way.has(Protection::Start) {
        true => again,
        false => again.variable("TIDEGATE_DEBUG_START_MAX_MS", "3000"),
    };
    let mut away = Vec::new();
    let killed_us = rig.now_us();
    rig.nodes[0].kill();
    rig.pass(Duration::from_millis(300));
    let took = start(&mut rig, &again, report);
    away.push(killed_us..rig.now_us());
    report.figure("ready_ms", took);
    rig.pass(AFTER);
    // Once more, while no server answers.
    let killed_us = rig.now_us();
    rig.nodes[0].kill();
    (0..PRIMARIES).for_each(|place| rig.server(place).stop());
    let took = start(&mut rig, &again, report);
    away.push(killed_us..rig.now_us());
    report.figure("ready_without_store_ms", took);
    rig.pass(Duration::from_millis(500));
    (0..PRIMARIES).for_each(|place| rig.server(place).cont());
    let store_us = rig.now_us();
    rig.pass(Duration::from_millis(2_500));
    let run = rig.finish();
    report.restarts = 2;
    let is_ready = |event: &&Event| event.node != 0 || !away.iter().any(|away| away.contains(&event.sent_us));
    let after = run.record.events.iter().filter(|event| event.sent_us >= fault_us);
    report.answers_of(&run, fault_us, &after.filter(is_ready).collect::<Vec<_>>());
    // Calls that were on their way to a node that was killed are sent to the other one.
    let retried = run.record.events.iter().filter(|event| event.is_retried).count();
    report.must(retried > 0, || "nobody was calling when the node was killed".into());
    report.figure("retried", retried);
    let all: Vec<usize> = (0..PRIMARIES).collect();
    report.recovers(&run, &all, store_us);
    report.exact(&run, Lost::NONE);
    report.charged(&run, Lost::NONE);
}

/// Starts the first node again; how many milliseconds later it says that it is ready.
fn start(rig: &mut Rig, again: &Setup, report: &mut Report) -> u64 {
    let control = Stopwatch::start();
    drop(Setup::demo().start());
    let allowed = READY_MAX + control.elapsed().saturating_sub(START_USUAL);
    let started = Stopwatch::start();
    rig.nodes[0] = again.start();
    let ready = rig.wait(async { Http::connect(rig.nodes[0].http).await.get("/readyz").await.status });
    let took = started.elapsed();
    report.must(ready == 200, || format!("it is not ready, but {ready}"));
    report.in_time(took <= allowed, || {
        format!("ready after {} ms, {} ms are allowed", took.as_millis(), allowed.as_millis())
    });
    took.as_millis() as u64
}
