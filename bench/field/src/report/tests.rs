//! The page says what the numbers say.

use tidegate_bench_common::results::Latency;

use super::*;
use crate::machine::Machine;
use crate::plan::Extent;
use crate::results::{ClosedTurn, Missing, PeerRow, Place, Seen};
use crate::{pages, plot};

const PUBLISHED: [Extent; 1] = [Extent::Usual];

/// A page cannot say what the numbers do not.
#[test]
fn the_published_pages_and_plots_are_made_from_the_published_numbers() {
    for extent in PUBLISHED {
        let (name, again) = (extent.name(), extent.command());
        let [json, page] = pages::read([&*format!("{name}.json"), &format!("{name}.md")]);
        let results: Results = serde_json::from_str(&json).expect("raw numbers");
        assert_eq!(results.extent, extent, "{name}");
        assert_eq!(markdown(&results), page, "make it again: {again}");
        assert_eq!(results.json().expect("JSON"), json, "make it again: {again}");
        for (name, picture) in plot::all(&results) {
            assert_eq!(pages::read([&*name]), [picture], "{name}, make it again: {again}");
        }
    }
}

fn counts(calls: u64, server_cpu_ns: u64, store_cpu_ns: u64) -> Counts {
    Counts { calls, wall_ns: 1_000_000_000, server_cpu_ns, store_cpu_ns, ..Counts::default() }
}

fn results() -> Results {
    let row = |peer: &str, seen| PeerRow {
        peer: peer.into(),
        version: "1.2.3".into(),
        command: format!("{peer} --fast"),
        seen,
        seen_timed: seen.map(|_| Seen { asked: 51, admitted: 1, wall_ns: 1_000_000 }),
        start_ns: vec![5_000_000, 9_000_000, 7_000_000],
        rss_start_bytes: 10_000_000,
        rss_bytes: 11_000_000,
    };
    let seen = Some(Seen { asked: 3_000, admitted: 1_100, wall_ns: 100_000_000 });
    let closed = |peer: &str, turn, counts| ClosedTurn {
        peer: peer.into(),
        press: Press::Full,
        place: Place { round: 0, turn },
        counts,
    };
    let latency = Latency {
        p50_ns: 50_000,
        p99_ns: 900_000,
        p999_ns: 2_000_000,
        late_p99_ns: 1_000,
        most_ns: 3_000_000,
    };
    Results {
        extent: Extent::Quick,
        machine: Machine {
            cores: 2,
            pinned: true,
            cpu: "some processor".into(),
            kernel: "Linux".into(),
            rustc: "1".into(),
            go: "go1".into(),
            redis: "7".into(),
            commit: "abc".into(),
        },
        took_s: Some(61),
        keys: 1_000,
        rounds: 1,
        peers: vec![
            row("tidegate", seen),
            row("limitador", seen),
            row("bare", None),
            row("tidegate_redis", seen),
        ],
        missing: vec![Missing { peer: "gubernator".into(), reason: "the registry\nsays no".into() }],
        broken: vec!["nginx: it broke".into(), "nginx: it broke".into()],
        closed: vec![
            closed("tidegate", 0, counts(900, 950_000_000, 0)),
            closed("limitador", 1, counts(300, 950_000_000, 0)),
            closed("tidegate", 2, counts(900, 950_000_000, 0)),
            closed("tidegate_redis", 3, counts(500, 900_000_000, 500_000_000)),
            closed(PLAIN, 4, counts(800, 0, 800_000_000)),
        ],
        open: vec![OpenTurn {
            peer: "tidegate".into(),
            pace: Pace::Half,
            rate: 450,
            place: Place { round: 0, turn: 0 },
            counts: counts(450, 1, 0),
            latency,
        }],
    }
}

#[test]
fn a_row_has_the_ratio_and_the_absolute_figures_beside_it() {
    let page = markdown(&results());
    for part in [
        "| Limitador (library) | **3.00 (3.00–3.00)** | [0.3] | 0.3 k | 3166.7 µs | 95 % | - | - |",
        "| memory, per core, against Limitador: ≥ 2.5 | 3.00 (3.00–3.00) | reached |",
        "| memory, per core, against gubernator: ≥ 10 | - | not measured |",
        "| Redis, per Redis core, against the bare pipelined script: ≥ 0.8 | 1.00 (1.00–1.00) | reached |",
        "| plain `EVALSHA`, pipelined | **-** | - | 0.8 k | - | - | - | - | **1.00 (1.00–1.00)** | [1.0] |",
        "| 450 | 50 µs | **900 µs** | 2000 µs | 1 µs |",
        "1 ms at 50 %: kept |",
        "| Tidegate | 10.0 MB | 11.0 MB | - | 7 ms |",
        "| Limitador (library) | 10.0 MB | 11.0 MB | 1000 bytes | 7 ms |",
        "| Limitador (library) | fixed window | 3000 | 1100 | 1900 | 100 ms | 50 | 50 |",
        "- **gubernator**: the registry says no\n",
        "2 of them:\n\n- nginx: it broke\n",
        "| bare tonic, fixed answer | 1.2.3 | `bare --fast` |",
        "A quick run",
        "It took 2 min.",
    ] {
        assert!(page.contains(part), "{part}\n\n{page}");
    }
}

#[test]
fn a_page_from_a_busy_machine_says_so() {
    let mut results = results();
    assert_eq!(disturbed(&results), "");
    for turn in &mut results.closed {
        turn.counts.server_cpu_ns /= 2;
    }
    assert!(disturbed(&results).contains("got 48 % of its core"), "{}", disturbed(&results));
    // Where others filled theirs, it is not the machine.
    for turn in &mut results.closed {
        turn.counts.server_cpu_ns *= if turn.peer == Family::Memory.ours() { 1 } else { 2 };
    }
    assert!(disturbed(&results).contains("it worked 48 % of the time"), "{}", disturbed(&results));
}

#[test]
fn raw_numbers_read_back_as_they_were_written() {
    let json = results().json().expect("JSON");
    let again: Results = serde_json::from_str(&json).expect("raw numbers");
    assert_eq!(again.json().expect("JSON"), json);
}
