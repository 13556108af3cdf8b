//! Markdown from the raw numbers. Pure, so that a test can make the published page again.

use tidegate_bench_common::figures::{Spread, median, thousands};
use tidegate_bench_common::results::{Counts, Latency};

use super::plan::{FIRST_RATE, Growing};
use super::results::{Results, Row, Waits};

/// The whole page.
pub(crate) fn markdown(results: &Results) -> String {
    let mut page = head(results);
    page += &format!("\n## Goals\n\n{}", goals(results));
    for growing in Growing::ALL {
        page += &format!("\n## {}\n\n{}", title(growing), table(results, growing));
    }
    page += &waits(results);
    page + NOTES
}

const NOTES: &str = "
## What was measured, and how

- Each node is the program itself, built for release, with one thread that decides. All nodes of a run are there at once and take
  turns, every other round backwards: 2 connections × 128 calls in a closed loop. Processor times are what Linux counted.
- **Rules**: `route` with a fixed value, below it `user`; a request has both and finds one rule. As many callers for every size but the
  smallest of a smoke run.
- **Takes**: several limits on one descriptor, with different windows; a request has to fit into all. 10 000 callers.
- **Keys**: one limit for each `user`, all asked once before anything is timed, in an order that no cache can guess. Memory is
  what is resident then: a node takes all that its counters may use when it starts (256 MiB; 1 GiB for ten million keys). What single keys
  need of it is in `bench/core.md`.
- **Start** is from the start of the process until it listens, rules read and compiled.
";

fn head(results: &Results) -> String {
    let machine = &results.machine;
    let flag = results.extent.flag().map(|flag| format!("{flag} ")).unwrap_or_default();
    let pinned = if machine.pinned {
        "the nodes on one, the generator and Redis on another"
    } else {
        "nobody had one of their own, so the numbers mean nothing"
    };
    format!(
        "# What a decision costs as things grow\n\n\
         Made by `cargo xtask bench growth {flag}--write` from the raw numbers in `growth.json`.{}\n\n\
         {} cores of {}, {pinned}; {}, rustc {}, Redis {}, commit {}.\n\n\
         A figure is the median of the rounds; a ratio is the median of the ratios to the smallest of its kind within a round, with the\n\
         least and the most beside it. Only ratios travel to other machines.{}\n",
        results.extent.remark(),
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.rustc,
        machine.redis,
        machine.commit,
        disturbed(results),
    )
}

/// A closed loop in memory fills the node's core; where it did not, others did.
fn disturbed(results: &Results) -> String {
    const FULL: f64 = 0.85;
    let in_memory = results.rows.iter().filter(|row| row.case.growing != Growing::TakesInRedis);
    let busy = median(in_memory.flat_map(|row| &row.rounds).map(Counts::server_busy));
    if busy >= FULL {
        return String::new();
    }
    format!(
        "\n\n**The machine was busy with other work**: the nodes got {:.0} % of their core.",
        busy * 100.0
    )
}

fn title(growing: Growing) -> &'static str {
    match growing {
        Growing::Rules => "Rules",
        Growing::Takes => "Takes per request, counters in memory",
        Growing::TakesInRedis => "Takes per request, counters in Redis",
        Growing::Keys => "Keys of `sliding_window`, the default",
        Growing::BucketKeys => "Keys of `token_bucket`",
    }
}

fn rows(results: &Results, growing: Growing) -> impl Iterator<Item = &Row> {
    results.rows.iter().filter(move |row| row.case.growing == growing)
}

/// What a call costs the node, by what it costs the smallest in the same round.
fn cost(results: &Results, row: &Row) -> Option<Spread> {
    let first = rows(results, row.case.growing).next()?;
    Spread::of(row.rounds.iter().zip(&first.rounds).map(|(this, first)| first.per_cpu_s() / this.per_cpu_s()))
}

fn table(results: &Results, growing: Growing) -> String {
    let in_redis = growing == Growing::TakesInRedis;
    let has_keys = growing.is_keys();
    let mut text = String::from("| | cost × the first | processor per decision | per second of it |");
    text += if in_redis { " of Redis's | scripts per decision |" } else { "" };
    text += if has_keys { " memory |" } else { "" };
    text += " start |\n|--:|--:|--:|--:|";
    text += if in_redis { "--:|--:|" } else { "" };
    text += if has_keys { "--:|" } else { "" };
    text += "--:|\n";
    for row in rows(results, growing) {
        let of = |figure: fn(&Counts) -> f64| median(row.rounds.iter().map(figure));
        let per_cpu_s = of(Counts::per_cpu_s);
        let cost = cost(results, row).map_or("-".into(), Spread::spoken);
        text += &format!("| {} | **{cost}** ", thousands(row.case.size));
        text += &format!("| {:.1} µs | {:.1} k ", 1e6 / per_cpu_s.max(1.0), per_cpu_s / 1e3);
        if in_redis {
            text += &format!("| {:.1} k ", of(Counts::per_store_cpu_s) / 1e3);
            text += &format!("| {:.3} ", of(Counts::store_calls_per_call));
        }
        if has_keys {
            text += &format!("| {:.0} MiB ", row.rss_bytes as f64 / f64::from(1 << 20));
        }
        text += &format!("| {:.0} ms |\n", row.start_ns as f64 / 1e6);
    }
    text
}

/// What the first keys after a start wait for, if anything. Nothing where it was not measured.
fn waits(results: &Results) -> String {
    let rows: Vec<(&Row, Waits)> =
        results.rows.iter().filter_map(|row| row.waits.map(|waits| (row, waits))).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n## The first keys after a start\n\n\
         {} a second in an open loop, from when each was due: the first of the keys just after the start, each for the first time; and\n\
         the same once more when every key was there. What one has and the other has not is the node's; the rest is the machine's.\n\n\
         | | keys | first: p50 | p99 | p99.9 | most | later: p50 | p99 | p99.9 | most |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        thousands(FIRST_RATE)
    );
    for (row, waits) in rows {
        text += &format!("| {} | {} |", title(row.case.growing), thousands(row.case.size));
        for Latency { p50_ns, p99_ns, p999_ns, most_ns, .. } in [waits.first, waits.later] {
            let us = |ns: u64| format!("{:.0} µs", ns as f64 / 1e3);
            text += &format!(" {} | **{}** | {} | {} |", us(p50_ns), us(p99_ns), us(p999_ns), us(most_ns));
        }
        text.push('\n');
    }
    text
}

fn goals(results: &Results) -> String {
    let mut text = String::from("| goal | measured | |\n|---|--:|---|\n");
    for (growing, size, wish, most) in [
        (Growing::Rules, 100_000, "a decision among 100 000 rules, by one among 10: ≤ 1.2", 1.2),
        (Growing::Takes, 3, "3 takes, by 1, in memory: ≤ 1.3", 1.3),
    ] {
        let row = rows(results, growing).find(|row| row.case.size == size);
        let Some(cost) = row.and_then(|row| cost(results, row)) else { continue };
        let met = if cost.median <= most { "met" } else { "**missed**" };
        text += &format!("| {wish} | {} | {met} |\n", cost.spoken());
    }
    let scripts = |row: &Row| median(row.rounds.iter().map(Counts::store_calls_per_call));
    if let Some(most) = rows(results, Growing::TakesInRedis).map(scripts).max_by(f64::total_cmp) {
        let met = if most <= 1.0 { "met" } else { "**missed**" };
        text += &format!(
            "| scripts per decision in Redis, whatever the takes: ≤ 1 (one round trip) | {most:.3} | {met} |\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::plan::Case;
    use crate::machine::Machine;
    use crate::plan::Extent;

    #[test]
    fn the_published_page_is_made_from_the_published_numbers() {
        let [json, page] = crate::pages::read(["growth.json", "growth.md"]);
        let results: Results = serde_json::from_str(&json).expect("raw numbers");
        let again = "make it again: cargo xtask bench growth --write";
        assert_eq!(markdown(&results), page, "{again}");
        assert_eq!(results.json().expect("JSON"), json, "{again}");
    }

    fn row(growing: Growing, size: u32, cpu_ns: &[u64]) -> Row {
        let counts = |server_cpu_ns: &u64| Counts {
            calls: 1_000,
            wall_ns: *server_cpu_ns,
            server_cpu_ns: *server_cpu_ns,
            ..Counts::default()
        };
        Row {
            case: Case { growing, size },
            start_ns: 5_000_000,
            rss_start_bytes: 1 << 20,
            rss_bytes: 3 << 20,
            waits: None,
            rounds: cpu_ns.iter().map(counts).collect(),
        }
    }

    #[test]
    fn a_ratio_is_within_a_round_and_to_the_smallest() {
        let machine = Machine { cores: 2, pinned: true, ..Machine::default() };
        let results = Results {
            extent: Extent::Smoke,
            machine,
            rows: vec![
                row(Growing::Rules, 10, &[1_000_000, 4_000_000]),
                row(Growing::Rules, 100_000, &[1_100_000, 4_400_000]),
                row(Growing::Takes, 1, &[1_000_000]),
                row(Growing::Takes, 3, &[1_400_000]),
            ],
        };
        let page = markdown(&results);
        assert!(!page.contains("The first keys"), "{page}");
        assert!(page.contains("| 100 000 | **1.10 (1.10–1.10)** |"), "{page}");
        assert!(page.contains("rules, by one among 10: ≤ 1.2 | 1.10 (1.10–1.10) | met |"), "{page}");
        assert!(
            page.contains("| 3 takes, by 1, in memory: ≤ 1.3 | 1.40 (1.40–1.40) | **missed** |"),
            "{page}"
        );
    }

    #[test]
    fn what_the_first_keys_wait_stands_beside_what_they_wait_later() {
        let of = |ns: u64| Latency {
            p50_ns: ns,
            p99_ns: 2 * ns,
            p999_ns: 3 * ns,
            most_ns: 4 * ns,
            ..Latency::default()
        };
        let waits = Some(Waits { first: of(100_000), later: of(50_000) });
        let results = Results {
            extent: Extent::Smoke,
            machine: Machine::default(),
            rows: vec![Row { waits, ..row(Growing::Keys, 1_000, &[1_000_000]) }],
        };
        let page = markdown(&results);
        let line = "| Keys of `sliding_window`, the default | 1 000 | 100 µs | **200 µs** | 300 µs | 400 µs \
                    | 50 µs | **100 µs** | 150 µs | 200 µs |\n";
        assert!(page.contains(line), "{page}");
        let json = results.json().expect("JSON");
        let again: Results = serde_json::from_str(&json).expect("raw numbers");
        assert_eq!(again.json().expect("JSON"), json);
    }
}
