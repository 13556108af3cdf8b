//! Markdown from the raw numbers. Pure, so that a test can make the published page again.

use tidegate_bench_common::figures::{Spread, thousands};
use tidegate_bench_common::plan::{FEW, Load, MANY};
use tidegate_bench_common::results::{Counts, OpenRound, refused};

use crate::plan::{CLOSED, Pace};
use crate::results::{ClosedRow, OpenRow, Results};
use crate::server::Subject;

/// The whole page.
pub(crate) fn markdown(results: &Results) -> String {
    let mut page = head(results);
    page += "\n## Goals\n\n";
    page += &goals(results);
    for load in CLOSED {
        page += &format!("\n## Closed loop, {}\n\n", load.spoken());
        page += &closed(results, load);
    }
    page += "\n## Open loop, 2 connections\n\n";
    page += &open(results);
    page += "\n## What was measured, and how\n\n";
    page += &how(results);
    page
}

fn head(results: &Results) -> String {
    let machine = &results.machine;
    let short = results.scale.remark();
    let pinned = if machine.pinned {
        "the subjects on one, the generator on another"
    } else {
        "nobody had one of their own, so the numbers mean nothing"
    };
    format!(
        "# Calls of `ShouldRateLimit`, beside a bare server\n\n\
         Made by `{}` from the raw numbers in `rls.json`.{short}\n\n\
         {} cores of {}, {pinned}; {}, rustc {}, tonic {}, hyper {}, h2 {}, tokio {},\n\
         mimalloc {} for everybody.\n\n\
         A figure is the median of the ratios within each round, with the least and the most beside it; only ratios travel to\n\
         other machines. In brackets: thousands of calls per second of the server's own processor time, all its threads together.\n{}",
        results.scale.command("rls"),
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.rustc,
        machine.tonic,
        machine.hyper,
        machine.h2,
        machine.tokio,
        machine.mimalloc,
        disturbed(results),
    )
}

/// A closed loop fills its core; where it did not, others did.
fn disturbed(results: &Results) -> String {
    const UNDISTURBED: f64 = 0.9;
    let bare = closed_row(results, Subject::Bare, FEW);
    let busy = bare.and_then(|row| Spread::of(row.rounds.iter().map(Counts::server_busy)));
    match busy.filter(|busy| busy.median < UNDISTURBED) {
        Some(busy) => format!(
            "\n**The machine was busy with other work**: in closed loops the bare server got {:.0} % of its core. \
             Times of the processor are\n\
             compared all the same; latencies are mostly waits for the others' work, and half the load is half of what was left.\n",
            busy.median * 100.0
        ),
        None => String::new(),
    }
}

fn how(results: &Results) -> String {
    let rounds = results.closed.first().map_or(0, |row| row.rounds.len());
    format!(
        "- **Tidegate** is the program itself, built for release: `tidegate run --node-threads 1` with its default settings, a thousand\n  \
         rules in ten domains (`sliding_window` and `token_bucket` in turn, every fiftieth so low that callers reach it), counters in\n  \
         memory, every key asked for once before. **Bare tonic** decodes the request by prost, answers always the same in as many\n  \
         bytes, and decides nothing.\n\
         - Each is a process of its own; they take turns in {rounds} rounds, every other round backwards. Connections are made anew for\n  \
         each turn.\n\
         - A call has one descriptor with two entries; {} users, each on one of the rules, in an order that no cache can guess. No\n  \
         deadline is sent: tonic would set a timer for it, which is no part of the ceiling.\n\
         - The generator speaks HTTP/2 by hand on one thread. A run with a single call that fails is no run; the node is asked\n  \
         before whether it refuses one call too many.\n\
         - In the open loop a call is due at a fixed time, and what it takes is counted from then on, \
         also if it had to wait for others.\n  \
         *Late* is how much of that was over before a call began.\n",
        thousands(results.keys),
    )
}

fn closed_row(results: &Results, subject: Subject, load: Load) -> Option<&ClosedRow> {
    results.closed.iter().find(|row| row.subject == subject && row.load == load)
}

fn open_row(results: &Results, subject: Subject, pace: Pace) -> Option<&OpenRow> {
    results.open.iter().find(|row| row.subject == subject && row.pace == pace)
}

/// A subject's share of the bare server's calls, for the same time of the processor.
fn share(results: &Results, subject: Subject, load: Load) -> Option<Spread> {
    let (ours, bare) = (closed_row(results, subject, load)?, closed_row(results, Subject::Bare, load)?);
    Spread::of(ours.rounds.iter().zip(&bare.rounds).map(|(ours, bare)| ours.per_cpu_s() / bare.per_cpu_s()))
}

/// A figure of a subject's open loop, as a multiple of the bare server's.
fn times(results: &Results, subject: Subject, pace: Pace, figure: fn(&OpenRound) -> f64) -> Option<Spread> {
    let (ours, bare) = (open_row(results, subject, pace)?, open_row(results, Subject::Bare, pace)?);
    Spread::of(ours.rounds.iter().zip(&bare.rounds).map(|(ours, bare)| figure(ours) / figure(bare)))
}

fn p99(round: &OpenRound) -> f64 {
    round.latency.p99_ns as f64
}

fn cpu_per_call(round: &OpenRound) -> f64 {
    round.counts.server_cpu_ns as f64 / round.counts.calls as f64
}

fn goals(results: &Results) -> String {
    let mut text = String::from("| goal | measured | |\n|---|--:|---|\n");
    let (share_few, p99_half) =
        (share(results, Subject::Tidegate, FEW), times(results, Subject::Tidegate, Pace::Half, p99));
    for (wish, measured, is_met) in [
        (
            "share of bare tonic's calls, 2 × 128: ≥ 0.85",
            share_few,
            share_few.is_some_and(|spread| spread.median >= 0.85),
        ),
        (
            "p99 at half of what bare tonic can do: ≤ bare tonic × 1.3",
            p99_half,
            p99_half.is_some_and(|spread| spread.median <= 1.3),
        ),
    ] {
        let (measured, word) = match measured {
            Some(spread) => (spread.spoken(), if is_met { "met" } else { "**missed**" }),
            None => ("-".into(), "not measured"),
        };
        text += &format!("| {wish} | {measured} | {word} |\n");
    }
    let many = share(results, Subject::Tidegate, MANY);
    text += &format!("| beside it: share, 64 × 1 | {} | |\n", many.map_or("-".into(), Spread::spoken));
    text
}

fn closed(results: &Results, load: Load) -> String {
    let mut text = String::from(
        "| | × bare tonic | calls per second of its processor | per second | server busy | generator busy | refused |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for subject in Subject::ALL {
        let Some(row) = closed_row(results, subject, load) else { continue };
        let median = |figure: fn(&Counts) -> f64| {
            Spread::of(row.rounds.iter().map(figure)).map_or(0.0, |spread| spread.median)
        };
        text += &format!(
            "| {} | **{}** | [{:.1}] | {:.1} k | {:.0} % | {:.0} % | {:.1} % |\n",
            subject.title(),
            share(results, subject, load).map_or("-".into(), Spread::spoken),
            median(Counts::per_cpu_s) / 1e3,
            median(Counts::per_s) / 1e3,
            median(Counts::server_busy) * 100.0,
            median(Counts::generator_busy) * 100.0,
            refused(row.rounds.iter()) * 100.0,
        );
    }
    text
}

fn open(results: &Results) -> String {
    let mut text = String::from(
        "| calls per second | | p50 | p99 | p99.9 | late (p99) | p99 × bare | processor per call | × bare | refused |\n\
         |--:|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in &results.open {
        let median = |figure: fn(&OpenRound) -> f64| {
            Spread::of(row.rounds.iter().map(figure)).map_or(0.0, |spread| spread.median)
        };
        let times = |figure| times(results, row.subject, row.pace, figure).map_or("-".into(), Spread::spoken);
        text += &format!(
            "| {} | {} | {:.0} µs | {:.0} µs | {:.0} µs | {:.0} µs | **{}** | {:.1} µs | {} | {:.1} % |\n",
            thousands(row.rate),
            row.subject.title(),
            median(|round| round.latency.p50_ns as f64) / 1e3,
            median(p99) / 1e3,
            median(|round| round.latency.p999_ns as f64) / 1e3,
            median(|round| round.latency.late_p99_ns as f64) / 1e3,
            times(p99),
            median(cpu_per_call) / 1e3,
            times(cpu_per_call),
            refused(row.rounds.iter().map(|round| &round.counts)) * 100.0,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use tidegate_bench_common::results::Latency;

    use super::*;

    fn published() -> Results {
        serde_json::from_str(include_str!("../../rls.json")).expect("raw numbers")
    }

    /// The page cannot say what the numbers do not.
    #[test]
    fn the_published_page_is_made_from_the_published_numbers() {
        let results = published();
        let again = results.scale.command("rls");
        assert_eq!(markdown(&results), include_str!("../../rls.md"), "make it again: {again}");
        assert_eq!(results.json().expect("JSON"), include_str!("../../rls.json"), "make it again: {again}");
    }

    /// Rounds of a thousand calls each, by what they took of the processor.
    fn closed(subject: Subject, cpu_ns: &[u64]) -> ClosedRow {
        let counts =
            |&server_cpu_ns| Counts { calls: 1_000, wall_ns: 1_000_000, server_cpu_ns, ..Counts::default() };
        ClosedRow { subject, load: FEW, rounds: cpu_ns.iter().map(counts).collect() }
    }

    fn open(subject: Subject, p99_ns: &[u64]) -> OpenRow {
        let counts = Counts { calls: 1, wall_ns: 1, server_cpu_ns: 1, ..Counts::default() };
        let latency = |&p99_ns| Latency { p50_ns: 1, p99_ns, p999_ns: 1, most_ns: 1, late_p99_ns: 1 };
        let rounds = p99_ns.iter().map(|p99_ns| OpenRound { counts, latency: latency(p99_ns) }).collect();
        OpenRow { subject, pace: Pace::Half, rate: 1, rounds }
    }

    #[test]
    fn a_figure_is_the_median_of_the_ratios_within_rounds() {
        let mut results = published();
        // The third round was disturbed, for both: the ratio is not.
        results.closed = vec![closed(Subject::Tidegate, &[10, 20, 100]), closed(Subject::Bare, &[8, 18, 90])];
        let share = share(&results, Subject::Tidegate, FEW).expect("both were measured");
        assert_eq!((share.median, share.least, share.most), (0.9, 0.8, 0.9));
    }

    #[test]
    fn goals_are_met_missed_or_not_measured() {
        let mut results = published();
        let line = |results: &Results, part: &str| {
            let text = goals(results);
            text.lines().find(|line| line.contains(part)).unwrap_or_default().to_string()
        };
        results.closed = vec![closed(Subject::Tidegate, &[100]), closed(Subject::Bare, &[85])];
        results.open = vec![open(Subject::Tidegate, &[140]), open(Subject::Bare, &[100])];
        assert!(line(&results, "2 × 128").ends_with("| 0.85 (0.85–0.85) | met |"));
        assert!(line(&results, "p99 at half").ends_with("| 1.40 (1.40–1.40) | **missed** |"));
        results.closed = vec![closed(Subject::Tidegate, &[100]), closed(Subject::Bare, &[84])];
        results.open = vec![open(Subject::Tidegate, &[130]), open(Subject::Bare, &[100])];
        assert!(line(&results, "2 × 128").ends_with("| **missed** |"));
        assert!(line(&results, "p99 at half").ends_with("| met |"));
        results.open.clear();
        assert!(line(&results, "p99 at half").ends_with("| - | not measured |"));
    }

    #[test]
    fn a_page_from_a_busy_machine_says_so() {
        let mut results = published();
        results.closed = vec![closed(Subject::Bare, &[950_000])];
        assert_eq!(disturbed(&results), "");
        results.closed = vec![closed(Subject::Bare, &[500_000])];
        assert!(disturbed(&results).contains("got 50 % of its core"));
    }
}
