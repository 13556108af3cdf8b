//! Rows 14 and 15: nobody answers.

use std::time::Duration;

use tidegate_testbed::{Kind, Way as Direction, until};

use crate::report::{Lost, Report, row};
use crate::rig::{Needs, PRIMARIES, Rig};
use crate::switch::{Protection, Way};

const BEFORE: Duration = Duration::from_millis(1_200);
const AFTER: Duration = Duration::from_millis(1_800);

/// Until servers that came back agree that all is well.
const WELL_MAX: Duration = Duration::from_secs(30);

#[test]
fn row_14_majority_lost() {
    row(14, "majority lost", &[Kind::Redis], Protection::Time, majority_lost);
}

#[test]
fn row_15_half_open_tcp() {
    row(15, "half-open TCP", &[Kind::Redis], Protection::Time, half_open_tcp);
}

/// Two of three primaries are gone with their replicas, so the third refuses too. When they are back, all goes on by itself.
fn majority_lost(kind: Kind, way: Way, report: &mut Report) {
    const GONE: [usize; 4] = [1, 2, 4, 5];
    let rig = Rig::start(Needs { full_coverage: true, ..Needs::new(kind, way).failing_over() });
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    GONE.iter().for_each(|place| rig.server(*place).kill());
    let refuses = until("the last primary refuses", WELL_MAX, || {
        let info = rig.server(0).try_command(&["CLUSTER", "INFO"])?.text().unwrap_or_default();
        if info.contains("cluster_state:fail") { Ok(()) } else { Err(info) }
    });
    report.must(refuses.is_ok(), || format!("{refuses:?}"));
    let down_us = rig.now_us();
    rig.pass(way.lasts(1_500, 10_000));
    let up_us = rig.now_us();
    for place in GONE {
        let restarted = rig.server(place).restart();
        report.must(restarted.is_ok(), || format!("{restarted:?}"));
    }
    let well = until("the cluster is well", WELL_MAX, || {
        for place in 0..PRIMARIES {
            let info = rig.server(place).try_command(&["CLUSTER", "INFO"])?.text().unwrap_or_default();
            if !info.contains("cluster_state:ok") {
                return Err(info);
            }
        }
        Ok(())
    });
    report.must(well.is_ok(), || format!("{well:?}"));
    let well_us = rig.now_us();
    rig.pass(AFTER);
    let run = rig.finish();
    let all: Vec<usize> = (0..PRIMARIES).collect();
    report.answers(&run, fault_us);
    report.opens(&run, &[1, 2], fault_us);
    report.recovers(&run, &all, well_us);
    // Three hundred milliseconds, for what was asked just before, and refusals that are remembered for a second.
    let exact = run.record.events.iter().filter(|event| {
        event.is_exact() && event.is_admitted() && (down_us + 300_000..up_us).contains(&event.sent_us)
    });
    let exact = exact.count();
    report.must(exact == 0, || format!("{exact} answers were said to be the store's, which was down"));
    // The windows of the servers that came back empty begin anew.
    report.figure("down_ms", (well_us - fault_us) / 1_000);
}

/// A connection over which nothing comes, and which nobody closed. Without rights on the machine a link cannot be taken down, so the proxy
/// holds all bytes of both directions, also those of new connections; unlike a dead link it still accepts these.
fn half_open_tcp(kind: Kind, way: Way, report: &mut Report) {
    const SICK: usize = 0;
    let rig = Rig::start(Needs { proxies: true, ..Needs::new(kind, way) });
    rig.pass(BEFORE);
    let fault_us = rig.now_us();
    for direction in [Direction::ToServer, Direction::ToClient] {
        rig.proxy(SICK).black_hole(direction, true);
    }
    rig.pass(way.lasts(3_000, 60_000));
    for direction in [Direction::ToServer, Direction::ToClient] {
        rig.proxy(SICK).black_hole(direction, false);
    }
    let well_us = rig.now_us();
    rig.pass(AFTER);
    let run = rig.finish();
    report.answers(&run, fault_us);
    report.opens(&run, &[SICK], fault_us);
    report.healthy(&run, &[SICK], fault_us);
    report.recovers(&run, &[SICK], well_us);
    report.exact(&run, Lost::NONE);
    report.charged(&run, Lost::NONE);
}
