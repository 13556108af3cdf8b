//! Markdown from the raw numbers. Pure, so that a test can make the published page again.

use tidegate_bench_common::figures::{Spread, median, thousands};
use tidegate_bench_common::plain::DEPTH;
use tidegate_bench_common::plan::{FEW, Load, MANY};
use tidegate_bench_common::results::{Counts, OpenRound, refused};

use crate::plan::{Case, Subject};
use crate::results::{Reference, Results};
use crate::servers::{REFERENCE, REFERENCE_BUILD};

/// The whole page.
pub(crate) fn markdown(results: &Results) -> String {
    let mut page = head(results);
    page += "\n## Goals\n\n";
    page += &goals(results);
    for load in [FEW, MANY] {
        page += &format!("\n## Closed loop, {}\n\n", load.spoken());
        page += &closed(results, load);
    }
    page += "\n## The script alone\n\n";
    page += &plain(results);
    page += &format!("\n## Open loop, 2 connections, {} calls per second\n\n", thousands(results.rate));
    page += &open(results);
    page += "\n## Memory of the store\n\n";
    page += &weights(results);
    page += "\n## What was measured, and how\n\n";
    page += &how(results);
    page
}

fn head(results: &Results) -> String {
    let machine = &results.machine;
    let pinned = if machine.pinned {
        "the node on one, Redis and the generator on another"
    } else {
        "nobody had one of their own, so the numbers mean little"
    };
    let reference =
        machine.reference.as_ref().map_or(String::new(), |it| format!(", envoyproxy/ratelimit {it}"));
    format!(
        "# A node on Redis\n\n\
         Made by `{}` from the raw numbers in `redis.json`, at commit {}.{}\n\n\
         {} cores of {}, {pinned}; {}, rustc {}, Redis {},\n\
         redis-rs {}{reference}.\n\n\
         A figure is the median of the ratios within each round, with the least and the most beside it; only ratios travel to\n\
         other machines. In brackets: thousands of decisions per second of a process's own processor time, all its threads together.\n{}",
        results.scale.command("redis"),
        machine.commit,
        results.scale.remark(),
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.rustc,
        machine.redis,
        machine.redis_crate,
        disturbed(results),
    )
}

/// In a closed loop node and store together have two cores' work; where they got less, others had it.
fn disturbed(results: &Results) -> String {
    const UNDISTURBED: f64 = 0.9;
    let Some(row) = results.closed_row(Subject::Node, Case::SlidingWindow, Some(FEW)) else {
        return String::new();
    };
    let busiest = |counts: &Counts| counts.server_busy().max(counts.store_busy() + counts.generator_busy());
    let busy = median(row.rounds.iter().map(busiest));
    if busy >= UNDISTURBED {
        return String::new();
    }
    format!(
        "\n**The machine was busy with other work**: in closed loops the busier of the two cores worked {:.0} % of the time for the \
         bench. Times\n\
         of the processor are compared all the same; latencies are mostly waits for the others' work.\n",
        busy * 100.0
    )
}

fn how(results: &Results) -> String {
    let rounds = results.closed.first().map_or(0, |row| row.rounds.len());
    let reference = reference(results);
    format!(
        "- **Tidegate** is the program itself, built for release: `tidegate run --node-threads 1 --store-url …` with one Redis without\n  \
         persistence on the loopback, both for themselves, {rounds} rounds, every other round backwards. `store.timeout` is 5 s and\n  \
         `on_store_failure` is `error`, and a run with a single call that fails is no run: on this machine pauses are longer than 12 ms.\n\
         - **Callers**: {}, each with counters that are there before, in an order that no cache can guess. One take is one limit of the\n  \
         caller, three are three on its path (`match: path`), which share a slot and so a script call. Limits are so high that nobody\n  \
         is refused; *used up* are limits of which nothing is left, so that a node asks the store about each caller once a second: how\n  \
         many calls that spares depends on how often each caller comes.\n\
         - **Plain `EVALSHA`** is what the node asks the store, written down while it was asked one call \
         after the other, and sent again\n  \
         by a client that does nothing else: the same script and arguments, one request each, {DEPTH} in flight on one connection. The\n  \
         node may do better: what arrives in one turn of its loop shares a script call.\n\
         - **Scripts per decision** are what Redis counted (`INFO commandstats`), processor times what Linux did (`schedstat`).\n\
         - **In the open loop** a call is due at a fixed time, half as often as the node on Redis answered in \
         the closed loop, and what it\n  \
         takes is counted from then on. Two cores are one too few for this: Redis is on the node's core (the goal's figure), or on the\n  \
         generator's, which then begins calls late. *Late* is how much of that was over before a call began.\n\
         - **Memory** is the difference of `used_memory` by the number of keys: name, value, time to live and \
         the store's own tables. After\n  \
         one charge: {} keys; full: {} keys, charged evenly over a window.\n{reference}",
        thousands(results.callers),
        thousands(results.weighed[0]),
        thousands(results.weighed[1]),
    )
}

/// What was done with envoyproxy/ratelimit, if it was there.
fn reference(results: &Results) -> String {
    if results.machine.reference.is_none() {
        return format!(
            "- **envoyproxy/ratelimit** was not measured: name its program by `{REFERENCE}` (`{REFERENCE_BUILD}`).\n"
        );
    }
    let seen = match &results.reference {
        Some(Reference::NotTimed(reason)) => {
            return format!("- **envoyproxy/ratelimit** (`{REFERENCE_BUILD}`) was not timed: {reason}.\n");
        }
        Some(Reference::Seen(seen)) => format!(
            "\n  Before it was timed one of the callers took all of its limit by one call (`hits_addend`) and asked for more: {} of {}\n  \
             such calls were refused, as they are while it is timed.\n",
            seen.asked - seen.admitted,
            seen.asked - 1,
        ),
        None => " In this run nobody looked before whether it refuses at its limit.\n".into(),
    };
    format!(
        "- **envoyproxy/ratelimit** (`{REFERENCE_BUILD}`) has the same callers and limit in fixed windows, the only algorithm that it\n  \
         knows, on the same Redis, with `GOMAXPROCS=1` and its other settings by default. Its commands are no scripts, so none are\n  \
         counted.{seen}"
    )
}

/// A figure of one row by the same of another, within each round.
fn ratio<T>(ours: &[T], theirs: &[T], figure: fn(&T) -> f64) -> Option<Spread> {
    Spread::of(ours.iter().zip(theirs).map(|(ours, theirs)| figure(ours) / figure(theirs)))
}

/// The node's decisions for a second of Redis, by those of the plain client.
fn by_plain(results: &Results, case: Case, load: Load) -> Option<Spread> {
    let node = results.closed_row(Subject::Node, case, Some(load))?;
    let plain = results.closed_row(Subject::Plain, case, None)?;
    ratio(&node.rounds, &plain.rounds, Counts::per_store_cpu_s)
}

/// The node's decisions for a second of its own processor, by those of the reference server.
fn by_reference(results: &Results, load: Load) -> Option<Spread> {
    let node = results.closed_row(Subject::Node, Case::SlidingWindow, Some(load))?;
    let reference = results.closed_row(Subject::Reference, Case::SlidingWindow, Some(load))?;
    ratio(&node.rounds, &reference.rounds, Counts::per_cpu_s)
}

/// What three takes cost the node, by what one does.
fn three_by_one(results: &Results, figure: fn(&Counts) -> f64) -> Option<Spread> {
    let one = results.closed_row(Subject::Node, Case::SlidingWindow, Some(FEW))?;
    let three = results.closed_row(Subject::Node, Case::SlidingWindow3, Some(FEW))?;
    ratio(&one.rounds, &three.rounds, figure)
}

fn open_by(
    results: &Results,
    subject: Subject,
    by: Subject,
    figure: fn(&OpenRound) -> f64,
) -> Option<Spread> {
    ratio(&results.open_row(subject)?.rounds, &results.open_row(by)?.rounds, figure)
}

fn p99(round: &OpenRound) -> f64 {
    round.latency.p99_ns as f64
}

fn goals(results: &Results) -> String {
    let mut text = String::from("| goal | measured | |\n|---|--:|---|\n");
    let at_least = |least: f64| move |spread: Spread| spread.median >= least;
    let at_most = |most: f64| move |spread: Spread| spread.median <= most;
    let met = |measured: Option<Spread>, is_met: &dyn Fn(Spread) -> bool| match measured {
        Some(spread) if is_met(spread) => (spread.spoken(), "met"),
        Some(spread) => (spread.spoken(), "**missed**"),
        None => ("-".into(), "not measured"),
    };
    for case in [Case::SlidingWindow, Case::SlidingWindow3, Case::TokenBucket, Case::TokenBucket3] {
        let (measured, word) = met(by_plain(results, case, FEW), &at_least(0.8));
        let title = case.title();
        text += &format!(
            "| decisions per Redis core, 2 × 128, {title}: ≥ 0.8 of the plain script | {measured} | {word} |\n"
        );
    }
    let bare = open_by(results, Subject::Node, Subject::Bare, p99);
    for (wish, (measured, word)) in [
        (
            "decisions per node core, 2 × 128, against envoyproxy/ratelimit: ≥ 6",
            met(by_reference(results, FEW), &at_least(6.0)),
        ),
        ("p99 at half load: ≤ bare tonic × 2", met(bare, &at_most(2.0))),
    ] {
        text += &format!("| {wish} | {measured} | {word} |\n");
    }
    let spoken = |spread: Option<Spread>| spread.map_or("-".into(), Spread::spoken);
    for (what, measured) in [
        ("decisions per node core, 64 × 1, against envoyproxy/ratelimit", by_reference(results, MANY)),
        (
            "p99 at half load with Redis on the generator's core, by bare tonic",
            open_by(results, Subject::NodeAside, Subject::Bare, p99),
        ),
        ("p99 at half load, by the node in memory", open_by(results, Subject::Node, Subject::Memory, p99)),
        ("3 takes cost the node, by 1 take, 2 × 128", three_by_one(results, Counts::per_cpu_s)),
        ("3 takes cost Redis, by 1 take, 2 × 128", three_by_one(results, Counts::per_store_cpu_s)),
    ] {
        text += &format!("| beside it: {what} | {} | |\n", spoken(measured));
    }
    text
}

fn closed(results: &Results, load: Load) -> String {
    let mut text = String::from(
        "| | per second of the node | per second of Redis | × plain script | scripts per decision | per \
        second | busy: node, Redis, generator | refused |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in results.closed.iter().filter(|row| row.load == Some(load)) {
        let median = |figure: fn(&Counts) -> f64| median(row.rounds.iter().map(figure));
        let (title, by_plain) = match row.subject {
            Subject::Node => (row.case.title(), by_plain(results, row.case, load)),
            other => (other.title(), None),
        };
        text += &format!(
            "| {title} | [{:.1}] | [{:.1}] | **{}** | {:.3} | {:.1} k | {:.0} %, {:.0} %, {:.0} % | {:.1} % |\n",
            median(Counts::per_cpu_s) / 1e3,
            median(Counts::per_store_cpu_s) / 1e3,
            by_plain.map_or("-".into(), Spread::spoken),
            median(Counts::store_calls_per_call),
            median(Counts::per_s) / 1e3,
            median(Counts::server_busy) * 100.0,
            median(Counts::store_busy) * 100.0,
            median(Counts::generator_busy) * 100.0,
            refused(row.rounds.iter()) * 100.0,
        );
    }
    text
}

fn plain(results: &Results) -> String {
    let mut text =
        String::from("| | decisions per second of Redis | per second | Redis busy |\n|---|--:|--:|--:|\n");
    for row in results.closed.iter().filter(|row| row.subject == Subject::Plain) {
        let median = |figure: fn(&Counts) -> f64| median(row.rounds.iter().map(figure));
        text += &format!(
            "| {} | [{:.1}] | {:.1} k | {:.0} % |\n",
            row.case.title(),
            median(Counts::per_store_cpu_s) / 1e3,
            median(Counts::per_s) / 1e3,
            median(Counts::store_busy) * 100.0,
        );
    }
    text
}

fn open(results: &Results) -> String {
    let mut text = String::from(
        "| | p50 | p99 | p99.9 | late (p99) | p99 × bare tonic | p99 × in memory |\n|---|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in &results.open {
        let us = |figure: fn(&OpenRound) -> f64| median(row.rounds.iter().map(figure)) / 1e3;
        let by = |other| open_by(results, row.subject, other, p99).map_or("-".into(), Spread::spoken);
        text += &format!(
            "| {} | {:.0} µs | {:.0} µs | {:.0} µs | {:.0} µs | **{}** | {} |\n",
            row.subject.title(),
            us(|round| round.latency.p50_ns as f64),
            us(p99),
            us(|round| round.latency.p999_ns as f64),
            us(|round| round.latency.late_p99_ns as f64),
            by(Subject::Bare),
            by(Subject::Memory),
        );
    }
    text
}

fn weights(results: &Results) -> String {
    let mut text = String::from(
        "| | bytes per key after one charge | of these its value | bytes per key, full | of these its value |\n|---|--:|--:|--:|--:|\n",
    );
    for weight in &results.weights {
        text += &format!(
            "| {} | {:.0} | {} | {} | {} |\n",
            weight.algorithm,
            weight.bytes,
            weight.value_bytes,
            weight.full_bytes.map_or("the same".into(), |bytes| format!("{bytes:.0}")),
            weight.full_value_bytes.map_or("the same".into(), |bytes| bytes.to_string()),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use tidegate_bench_common::results::Latency;

    use super::*;
    use crate::results::{ClosedRow, OpenRow, Seen};

    fn published() -> Results {
        serde_json::from_str(include_str!("../../redis.json")).expect("raw numbers")
    }

    /// The page cannot say what the numbers do not.
    #[test]
    fn the_published_page_is_made_from_the_published_numbers() {
        let results = published();
        let again = results.scale.command("redis");
        assert_eq!(markdown(&results), include_str!("../../redis.md"), "make it again: {again}");
        assert_eq!(results.json().expect("JSON"), include_str!("../../redis.json"), "make it again: {again}");
    }

    /// Rounds of a thousand decisions each, by what they took of the server's and the store's processor.
    fn closed(subject: Subject, case: Case, cpu_ns: &[(u64, u64)]) -> ClosedRow {
        let counts = |&(server_cpu_ns, store_cpu_ns)| Counts {
            calls: 1_000,
            wall_ns: 1_000_000,
            server_cpu_ns,
            store_cpu_ns,
            ..Counts::default()
        };
        let load = (subject != Subject::Plain).then_some(FEW);
        ClosedRow { subject, case, load, rounds: cpu_ns.iter().map(counts).collect() }
    }

    fn open(subject: Subject, p99_ns: u64) -> OpenRow {
        let latency = Latency { p50_ns: 1, p99_ns, p999_ns: 1, most_ns: 1, late_p99_ns: 1 };
        OpenRow { subject, rounds: vec![OpenRound { counts: Counts::default(), latency }] }
    }

    #[test]
    fn a_figure_is_the_median_of_the_ratios_within_rounds() {
        let mut results = published();
        let case = Case::TokenBucket;
        // The third round was disturbed, for both: the ratio is not.
        results.closed = vec![
            closed(Subject::Node, case, &[(1, 10), (1, 20), (1, 100)]),
            closed(Subject::Plain, case, &[(1, 8), (1, 18), (1, 90)]),
        ];
        let share = by_plain(&results, case, FEW).expect("both were measured");
        assert_eq!((share.median, share.least, share.most), (0.9, 0.8, 0.9));
        assert!(by_plain(&results, case, MANY).is_none() && by_plain(&results, Case::Refused, FEW).is_none());
    }

    #[test]
    fn goals_are_met_missed_or_not_measured() {
        let mut results = published();
        let line = |results: &Results, part: &str| {
            let text = goals(results);
            text.lines().find(|line| line.contains(part)).unwrap_or_default().to_string()
        };
        results.closed = vec![
            closed(Subject::Node, Case::SlidingWindow, &[(10, 100)]),
            closed(Subject::Plain, Case::SlidingWindow, &[(1, 80)]),
            closed(Subject::Reference, Case::SlidingWindow, &[(59, 1)]),
        ];
        results.open = vec![open(Subject::Node, 210), open(Subject::Bare, 100)];
        assert!(line(&results, "`sliding_window`, 1 take:").ends_with("| 0.80 (0.80–0.80) | met |"));
        assert!(line(&results, "`token_bucket`, 1 take:").ends_with("| - | not measured |"));
        assert!(line(&results, "2 × 128, against").ends_with("| 5.90 (5.90–5.90) | **missed** |"));
        assert!(line(&results, "bare tonic × 2").ends_with("| 2.10 (2.10–2.10) | **missed** |"));
    }

    #[test]
    fn the_reference_server_is_timed_if_it_was_seen_refusing_and_named_if_it_was_not() {
        let mut results = published();
        let seen = |admitted| Seen { asked: 51, admitted };
        assert!(seen(1).refuses() && !seen(0).refuses() && !seen(2).refuses() && !seen(51).refuses());
        for (reference, told) in [
            (Some(Reference::Seen(seen(1))), "asked for more: 50 of 50\n"),
            (Some(Reference::NotTimed("it admits all".into())), "was not timed: it admits all."),
            (None, "looked before whether it refuses"),
        ] {
            results.reference = reference.clone();
            assert!(markdown(&results).contains(told), "{told}");
            let json = results.json().expect("JSON");
            let again: Results = serde_json::from_str(&json).expect("numbers");
            assert_eq!(again.reference, reference);
        }
        results.machine.reference = None;
        assert!(markdown(&results).contains("was not measured"));
    }

    #[test]
    fn a_page_from_a_busy_machine_says_so() {
        let mut results = published();
        results.closed = vec![closed(Subject::Node, Case::SlidingWindow, &[(950_000, 1)])];
        assert_eq!(disturbed(&results), "");
        results.closed = vec![closed(Subject::Node, Case::SlidingWindow, &[(500_000, 400_000)])];
        assert!(disturbed(&results).contains("worked 50 % of the time"));
    }
}
