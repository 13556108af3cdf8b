//! Row 37: the node itself.

use std::time::Duration;

use rustix::process::Signal;
use tidegate_clock::Stopwatch;
use tidegate_testbed::Kind;

use crate::audit::Answer;
use crate::report::{Report, row};
use crate::rig::{Needs, PRIMARIES, Rig};
use crate::support::Http;
use crate::switch::{Protection, Way};

const BEFORE: Duration = Duration::from_millis(1_200);
const AFTER: Duration = Duration::from_millis(1_800);

/// A node is ready so soon after it was started.
const READY_MAX: Duration = Duration::from_secs(1);

#[test]
fn row_37_our_process_dies() {
    row(37, "our process dies", &[Kind::Redis], Protection::Start, our_process_dies);
}

/// A node is killed, its callers go on with the other one, and it is started again twice: while the store answers, and while it hangs.
fn our_process_dies(kind: Kind, way: Way, report: &mut Report) {
    let mut rig = Rig::start(Needs { nodes: 2, ..Needs::new(kind, way) });
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    // On the same ports: its callers know no others.
    let (rls, http) = (rig.nodes[0].rls.to_string(), rig.nodes[0].http.to_string());
    let again = rig.nodes[0].setup.clone().set("rls-listen", &rls).set("http-listen", &http);
    rig.nodes[0].signal(Signal::KILL);
    rig.pass(Duration::from_millis(300));
    let started = Stopwatch::start();
    rig.nodes[0] = again.start();
    let ready = rig.wait(async { Http::connect(rig.nodes[0].http).await.get("/readyz").await.status });
    let took = started.elapsed();
    report
        .must(ready == 200 && took <= READY_MAX, || format!("ready ({ready}) after {} ms", took.as_millis()));
    report.figure("ready_ms", took.as_millis() as u64);
    rig.pass(AFTER);
    // Once more, while no server answers.
    rig.nodes[0].signal(Signal::KILL);
    (0..PRIMARIES).for_each(|place| rig.server(place).stop());
    let started = Stopwatch::start();
    rig.nodes[0] = again.start();
    let ready = rig.wait(async { Http::connect(rig.nodes[0].http).await.get("/readyz").await.status });
    let took = started.elapsed();
    report.must(ready == 200 && took <= READY_MAX, || {
        format!("without a store ready ({ready}) after {} ms", took.as_millis())
    });
    report.figure("ready_without_store_ms", took.as_millis() as u64);
    rig.pass(Duration::from_millis(500));
    (0..PRIMARIES).for_each(|place| rig.server(place).cont());
    let store_us = rig.now_us();
    rig.pass(Duration::from_millis(2_500));
    let run = rig.finish();
    report.answers(&run, fault_us);
    // Calls that were on their way to a node that was killed have no answer; all others have.
    let broken = run.record.events.iter().filter(|event| event.answer == Answer::Broken).count();
    report.must(broken <= 200, || format!("{broken} calls broke with their node"));
    report.figure("broken", broken);
    let all: Vec<usize> = (0..PRIMARIES).collect();
    report.recovers(&run, &all, store_us);
    report.exact(&run, 0);
    report.charged(&run, 0);
}
