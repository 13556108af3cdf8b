//! Rows 1 to 4: primaries that die, hang and come back.

use std::time::Duration;

use tidegate_testbed::{Kind, until};

use crate::report::{Lost, Report, row, without};
use crate::rig::{Needs, Rig, Rule, Run, primary};
use crate::switch::{Protection, Way};

/// The primary in trouble, and its replica.
const SICK: usize = 0;
const REPLICA: usize = 3;

/// Until a replica has taken over; servers on a busy machine need seconds.
const PROMOTED_MAX: Duration = Duration::from_secs(20);

/// Charges that a primary answered and had not sent to its replica when it died or stopped. They are on their way for well under a
/// millisecond; where the machine stops it just then, they are those of one turn of its loop, which nobody waits for longer than 12 ms.
const LOST_MAX: u64 = 20;

/// A hung primary that goes on may answer some more before it hears that it is none.
const ZOMBIE_MAX: u64 = 10;

const BEFORE: Duration = Duration::from_millis(1_200);
const AFTER: Duration = Duration::from_millis(1_800);

#[test]
fn row_01_primary_dies() {
    row(1, "primary dies", &Kind::ALL, Protection::Time, primary_dies);
}

#[test]
fn row_02_primary_hangs() {
    row(2, "primary hangs", &Kind::ALL, Protection::Time, primary_hangs);
}

#[test]
fn row_03_zombie_primary() {
    row(3, "zombie primary", &Kind::ALL, Protection::Policy, zombie_primary);
}

#[test]
fn row_04_failover_with_lag() {
    row(4, "failover with lag", &Kind::ALL, Protection::Replicas, failover_with_lag);
}

#[test]
fn row_02_is_red_without_its_protection() {
    without(2, "primary hangs", Protection::Time, "all answers within", primary_hangs);
}

fn primary_dies(kind: Kind, way: Way, report: &mut Report) {
    let rig = Rig::start(Needs { nodes: 2, ..Needs::new(kind, way).failing_over() });
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    rig.server(SICK).kill();
    let well_us = promoted(&rig, report);
    rig.pass(AFTER);
    let run = rig.finish();
    judge(&run, report, fault_us, well_us, LOST_MAX.into());
    // The new primary does not know the scripts. That is mended on the way, and nobody is answered by policy for it.
    let known = run.rig.metric("ratelimit_redis_errors_total", "noscript");
    report.figure("scripts_loaded", known);
    let errors = run.rig.metric("ratelimit_redis_errors_total", "kind=\"script\"");
    report.must(errors == 0, || format!("{errors} scripts failed"));
}

fn primary_hangs(kind: Kind, way: Way, report: &mut Report) {
    let rig = Rig::start(Needs::new(kind, way).failing_over());
    rig.pass(BEFORE);
    let (rss, threads) = (rig.nodes[0].rss_bytes(), rig.nodes[0].threads());
    let fault_us = rig.now_us();
    rig.server(SICK).stop();
    let well_us = promoted(&rig, report);
    rig.pass(way.lasts(1_800, 8_000));
    let (rss_after, threads_after) = (rig.nodes[0].rss_bytes(), rig.nodes[0].threads());
    rig.server(SICK).cont();
    let run = rig.finish();
    judge(&run, report, fault_us, well_us, LOST_MAX.into());
    // A tenth, or what an allocator keeps for itself.
    let grown = rss_after.saturating_sub(rss);
    report
        .must(grown <= (rss / 10).max(8 << 20), || format!("{} KiB of memory more than before", grown >> 10));
    report.must(threads_after <= threads, || format!("{threads_after} threads, {threads} before"));
    report.figure("rss_grown_kib", grown >> 10);
}

fn zombie_primary(kind: Kind, way: Way, report: &mut Report) {
    let rig = Rig::start(Needs { limit: 20, window_s: 10, ..Needs::new(kind, way).failing_over() });
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    rig.server(SICK).stop();
    let role = until("the replica takes over", PROMOTED_MAX, || primary(rig.server(REPLICA)));
    // It goes on at the worst moment: it has not heard of the new one yet.
    let two_us = rig.now_us();
    rig.server(SICK).cont();
    report.must(role.is_ok(), || format!("{role:?}"));
    let well_us = promoted(&rig, report);
    rig.pass(AFTER);
    let run = rig.finish();
    // On a machine that does something else it hears late. It cannot have answered more than all that was answered until then.
    let most = acknowledged(&run, two_us, well_us) + LOST_MAX;
    judge(&run, report, fault_us, well_us, Lost { usual: ZOMBIE_MAX, most: most.max(ZOMBIE_MAX) });
}

/// What is charged while the replica lags is gone with the primary, and admitted again. Not so where charges have to be on the replica.
fn failover_with_lag(kind: Kind, way: Way, report: &mut Report) {
    let rig = Rig::start(Needs { limit: 20, window_s: 10, ..Needs::new(kind, way).failing_over() });
    rig.pass(BEFORE);
    // What is on its way to a server that hangs is kept by the kernel. Once that is full, nothing more gets through: that is so somewhere
    // in the filling, which takes as long as the machine likes. So all that was charged since the replica hangs may be lost.
    let lag_us = rig.now_us();
    rig.server(REPLICA).stop();
    rig.fill(SICK, 160, 100_000);
    rig.pass(way.lasts(600, 1_000));
    let fault_us = rig.now_us();
    rig.server(SICK).kill();
    let dead_us = rig.now_us();
    rig.server(REPLICA).cont();
    let well_us = promoted(&rig, report);
    rig.pass(Duration::from_millis(2_500));
    let run = rig.finish();
    let lost = acknowledged(&run, lag_us, dead_us);
    report.figure("acknowledged_in_lag", lost);
    judge(&run, report, fault_us, well_us, (lost + LOST_MAX).into());
    let kept = report.over(&run, &[Rule::Kept]);
    report.must(kept == 0, || {
        format!("{kept} units more than the limits, though charges had to be on the replica")
    });
    report.figure("over_kept", kept);
}

/// Units of the primary in trouble that clients were told are charged, between these times or nearly, and that need not be on its replica.
fn acknowledged(run: &Run, from_us: u64, to_us: u64) -> u64 {
    let told = run.record.events.iter().filter(|event| {
        let key = &run.rig.keys[event.key];
        event.is_exact()
            && event.is_admitted()
            && event.received_us >= from_us
            && event.sent_us <= to_us
            && key.place == SICK
            && key.rule != Rule::Kept
    });
    told.map(|event| event.cost).sum()
}

/// What all four have to fulfil, with so many units that may be lost with the primary.
fn judge(run: &Run, report: &mut Report, fault_us: u64, well_us: u64, lost: Lost) {
    report.answers(run, fault_us);
    report.opens(run, &[SICK], fault_us);
    report.healthy(run, &[SICK], fault_us);
    report.recovers(run, &[SICK], well_us);
    report.exact(run, lost);
    report.charged(run, lost);
}

/// Waits until the replica has taken over and all know it; says when.
fn promoted(rig: &Rig, report: &mut Report) -> u64 {
    let well = rig.cluster.wait_promoted(REPLICA);
    report.must(well.is_ok(), || format!("{well:?}"));
    rig.now_us()
}
