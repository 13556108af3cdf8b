//! Markdown from the raw numbers. Pure, so that a test can make the published page again.

use crate::flood::{HEAVY, Kind};
use crate::keys::Distribution;
use crate::plan::{BATCH, Scale};
use crate::results::{LatencyRow, MemoryRow, Results, SpeedRow, Workload};
use crate::subject::Name;

/// The whole page.
pub(crate) fn markdown(results: &Results) -> String {
    let mut page = head(results);
    page += "\n## Goals\n\n";
    page += &goals(results);
    for keys in sizes(results) {
        page += &format!("\n## Takes, {} live keys\n\n", spoken(keys));
        page += &speed(results, keys);
    }
    page += &speed_notes(results);
    page += &latency(results);
    page += "\n## Memory\n\n";
    page += &memory(results);
    page += &limitador(results);
    page += "\n## Heavy callers in a flood of new keys\n\n";
    page += &flood(results);
    page
}

fn head(results: &Results) -> String {
    let machine = &results.machine;
    let short = match results.scale {
        Scale::Full => "",
        Scale::Quick => " A quick run: small, and not for publishing.",
        Scale::Smoke => " A smoke run: its numbers mean nothing.",
    };
    format!(
        "# The table of counters, beside others\n\n\
         Made by `{}` from the raw numbers in `core.json`.{short}\n\n\
         {} cores of {}, {}, transparent huge pages: {}, rustc {}, mimalloc {} for everybody.\n\
         governor {} (keyed limiter on dashmap, its own clock), throttlecrab {} (library, periodic store with room for all\n\
         keys and no cleanup; one thread alone, two under a lock as it documents).\n\n\
         Every subject is a process of its own with all keys live; they take turns, on the same keys in the same order. A\n\
         figure is the median of the ratios within each round; only ratios travel to other machines. In brackets: millions of\n\
         takes per second, of the thread's own processor time with one thread, of the wall clock with two. Keys are strings\n\
         such as `user:00012345`: hashing, the clock and every verdict are included. Ours is one table with some sixty limits\n\
         of all algorithms, made at run time, evictions on; one reading of the clock per batch.\n",
        results.scale.command(),
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.huge_pages,
        machine.rustc,
        machine.mimalloc,
        machine.governor,
        machine.throttlecrab,
    )
}

/// A median, and the least and the most beside it.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Spread {
    median: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { median, least, most })
    }

    fn spoken(self) -> String {
        format!("{:.2} ({:.2}–{:.2})", self.median, self.least, self.most)
    }
}

fn row(results: &Results, subject: Name, keys: u32, workload: Workload) -> Option<&SpeedRow> {
    let batch = if subject.is_ours() { workload.batch } else { 1 };
    let workload = Workload { batch, ..workload };
    results.speed.iter().find(|row| row.subject == subject && row.keys == keys && row.workload == workload)
}

fn ns_per_take(row: &SpeedRow) -> impl Iterator<Item = f64> {
    row.rounds.iter().map(|timing| timing.ns_per_take(row.workload.threads))
}

/// How many times as fast one subject is as another on the same workload.
fn times(results: &Results, fast: Name, slow: Name, keys: u32, workload: Workload) -> Option<Spread> {
    let (fast, slow) = (row(results, fast, keys, workload)?, row(results, slow, keys, workload)?);
    Spread::of(ns_per_take(fast).zip(ns_per_take(slow)).map(|(fast, slow)| slow / fast).collect())
}

/// Millions of takes per second.
fn rate(results: &Results, subject: Name, keys: u32, workload: Workload) -> Option<f64> {
    let ns = Spread::of(ns_per_take(row(results, subject, keys, workload)?).collect())?;
    Some(1e3 / ns.median)
}

fn memory_of(results: &Results, subject: Name, keys: u32) -> Option<&MemoryRow> {
    results.memory.iter().find(|row| row.subject == subject && row.keys == keys)
}

/// The sizes of tables, smallest first.
fn sizes(results: &Results) -> Vec<u32> {
    let mut keys: Vec<u32> = results.memory.iter().map(|row| row.keys).collect();
    keys.sort();
    keys.dedup();
    keys
}

fn speed(results: &Results, keys: u32) -> String {
    let has_full = memory_of(results, Name::DefaultFull, keys).is_some();
    let mut text = String::from(
        "| keys asked | threads | takes per request | batch | simple limits | × governor | × throttlecrab \
         | `sliding_window`, idle | × governor | × simple |",
    );
    text += if has_full { " full | × simple |" } else { "" };
    text += " governor | throttlecrab |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|";
    text += if has_full { "--:|--:|" } else { "" };
    text += "--:|--:|\n";
    for row in results.speed.iter().filter(|row| row.subject == Name::Slot && row.keys == keys) {
        let workload = row.workload;
        let number = |number: Option<f64>| number.map_or("-".into(), |number| format!("{number:.2}"));
        let rate = |subject| format!("[{}]", number(rate(results, subject, keys, workload)));
        let times =
            |fast, slow| number(times(results, fast, slow, keys, workload).map(|spread| spread.median));
        let Workload { distribution, threads, takes, batch } = workload;
        text += &format!("| {} | {threads} | {takes} | {batch} ", distribution.name());
        text += &format!("| {} | **{}** ", rate(Name::Slot), times(Name::Slot, Name::Governor));
        text += &format!("| **{}** ", times(Name::Slot, Name::Throttlecrab));
        text += &format!("| {} | {} ", rate(Name::DefaultIdle), times(Name::DefaultIdle, Name::Governor));
        text += &format!("| {} ", times(Name::DefaultIdle, Name::Slot));
        if has_full {
            text += &format!("| {} | {} ", rate(Name::DefaultFull), times(Name::DefaultFull, Name::Slot));
        }
        text += &format!("| {} | {} |\n", rate(Name::Governor), rate(Name::Throttlecrab));
    }
    text
}

/// What one has to know to read the tables of takes.
fn speed_notes(results: &Results) -> String {
    let copied = results.speed.iter().filter(|row| row.subject == Name::Nothing && row.workload.threads == 1);
    let copied = Spread::of(copied.flat_map(ns_per_take).collect()).map_or(0.0, |spread| spread.median);
    let refused = |subject: Name| {
        let rounds = results.speed.iter().filter(|row| row.subject == subject).flat_map(|row| &row.rounds);
        rounds.map(|round| round.refused as f64 * 100.0 / round.takes as f64).fold(0.0, f64::max)
    };
    format!(
        "\nCopying a key takes {copied:.1} ns of everybody's time. All get the same number of takes, so that the same callers reach\n\
         their limits; refused in a round at most: simple {:.0} %, `sliding_window` {:.0} %, governor {:.0} %, throttlecrab {:.0} %.\n\
         Peers know no batches, and nothing about all-or-nothing: three takes are three calls. Limits: 100 per minute (simple: gcra,\n\
         token_bucket, leaky_bucket, fixed_window in eight variants; the peers: the same in their own words), `sliding_window` 1000\n\
         per hour to 10 000 per day.\n",
        refused(Name::Slot),
        refused(Name::DefaultIdle).max(refused(Name::DefaultFull)),
        refused(Name::Governor),
        refused(Name::Throttlecrab),
    )
}

/// What was asked for of p99 when the project began. Printed beside what was measured, never asserted.
const P99_US: f64 = 100.0;

/// Single takes. Nothing where they were not measured.
fn latency(results: &Results) -> String {
    if results.latency.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n## One take at a time\n\n\
         Each by itself, keys that no cache can guess, with a look at the clock before and after, which is what copying the key alone\n\
         shows. The target for p99 was {P99_US:.0} µs; it is for ours.\n\n\
         | | keys | p50 | p99 | p99.9 | most | target |\n|---|--:|--:|--:|--:|--:|---|\n"
    );
    for LatencyRow { subject, keys, took } in &results.latency {
        let us = |ns: u64| format!("{:.2} µs", ns as f64 / 1e3);
        let target = match subject.is_ours() {
            true if took.p99_ns as f64 / 1e3 <= P99_US => "kept",
            true => "**not kept**",
            false => "",
        };
        text += &format!(
            "| {} | {} | {} | **{}** | {} | {} | {target} |\n",
            subject.title(),
            spoken(*keys),
            us(took.p50_ns),
            us(took.p99_ns),
            us(took.p999_ns),
            us(took.most_ns),
        );
    }
    text
}

/// Limitador's library, which is far from the others and was asked the plain cases only. Nothing where it was not measured.
fn limitador(results: &Results) -> String {
    let rows = || results.speed.iter().filter(|row| row.subject == Name::Limitador);
    if rows().next().is_none() {
        return String::new();
    }
    let mut text = format!(
        "\n## Limitador\n\nThe library, {}, with its storage in memory and room for all keys: fixed windows, 100 per minute. A\n\
         limit finds whom it is about by an expression, as in its own server.\n\n\
         | keys asked | live keys | Limitador | simple limits × | `sliding_window`, idle × |\n\
         |---|--:|--:|--:|--:|\n",
        results.machine.limitador
    );
    for SpeedRow { keys, workload, .. } in rows() {
        let of = |number: Option<f64>| number.map_or("-".into(), |number| format!("{number:.2}"));
        let times =
            |fast| of(times(results, fast, Name::Limitador, *keys, *workload).map(|spread| spread.median));
        text += &format!(
            "| {} | {} | [{}] | **{}** | {} |\n",
            workload.distribution.name(),
            spoken(*keys),
            of(rate(results, Name::Limitador, *keys, *workload)),
            times(Name::Slot),
            times(Name::DefaultIdle),
        );
    }
    text
}

/// How long a simple key stays live after it was made.
const LIVE_MS: u64 = 30_000;

fn memory(results: &Results) -> String {
    let mut text = String::from(
        "Resident memory of the whole process with all keys live, the bench's own lists among it; by the key, less what it was\n\
         before there was a table. Nobody else keeps the keys.\n\n\
         | | keys | resident | bytes per key | allowed | evicted live |\n|---|--:|--:|--:|--:|--:|\n",
    );
    for row in results.memory.iter().filter(|row| row.subject != Name::Nothing) {
        let allowed = row.bytes_max.map(|bytes| format!("{:.1}", bytes as f64 / f64::from(row.keys)));
        let mut evicted = if row.subject.is_ours() { percent(row.evicted_share()) } else { "never".into() };
        if row.subject == Name::Slot && row.fill_ms >= LIVE_MS {
            evicted += ", but filled so slowly that the first keys were not live any more";
        }
        text += &format!(
            "| {} | {} | {:.0} MB | **{:.1}** | {} | {evicted} |\n",
            row.subject.title(),
            spoken(row.keys),
            row.bytes_after as f64 / 1e6,
            row.bytes_per_key(),
            allowed.unwrap_or_else(|| "no bound".into())
        );
    }
    text += &too_large(results);
    text
}

/// Those who were measured with fewer keys only, and what they would need.
fn too_large(results: &Results) -> String {
    let Some(&large) = sizes(results).last() else { return String::new() };
    let left_out = |subject: &Name| {
        let most = results.memory.iter().filter(|row| row.subject == *subject).max_by_key(|row| row.keys)?;
        let gb = most.bytes_per_key() * f64::from(large) / 1e9;
        (most.keys < large).then(|| format!("{} ({gb:.1} GB)", subject.title()))
    };
    let left_out: Vec<String> = Name::ALL.iter().filter_map(left_out).collect();
    if left_out.is_empty() {
        return String::new();
    }
    format!(
        "\nNot measured with {} keys, for what it would need by the figure above: {}.\n",
        spoken(large),
        left_out.join(", ")
    )
}

fn flood(results: &Results) -> String {
    let mut text = String::from(
        "Sixteen callers ask four times their limit of 100 per minute on simulated time, while new keys come to a table that is\n\
         full of live ones. What they got, as a multiple of what an exact counter of their own admits; in brackets the luckiest.\n\n\
         | the flood | new keys per minute, in tables |",
    );
    for heavy in HEAVY {
        text += &format!(" {heavy} |");
    }
    text += "\n|---|--:|";
    text += &"--:|".repeat(HEAVY.len());
    text += "\n";
    let mut fulls: Vec<u32> = results.flood.iter().map(|row| row.table_fulls).collect();
    fulls.sort();
    fulls.dedup();
    for kind in Kind::ALL {
        for table_fulls in &fulls {
            text += &format!("| {} | {table_fulls} |", kind.title());
            for heavy in HEAVY {
                let cell = results.flood.iter().find(|row| {
                    row.heavy == heavy.name() && row.kind == kind && row.table_fulls == *table_fulls
                });
                let cell = cell.map(|row| format!("{:.4} [{:.3}]", row.ratio(), row.worst_ratio()));
                text += &format!(" {} |", cell.unwrap_or_else(|| "-".into()));
            }
            text += "\n";
        }
    }
    text
}

/// One goal: what is wanted, what was measured, and whether that is enough.
struct Goal {
    wish: String,
    /// `None`: this run did not measure it.
    measured: Option<(String, bool)>,
}

impl Goal {
    fn at_least(wish: String, goal: f64, measured: Option<Spread>) -> Self {
        let measured = measured.map(|spread| (spread.spoken(), spread.median >= goal));
        Self { wish: format!("{wish} ≥ {goal}"), measured }
    }

    fn at_most(wish: String, goal: f64, measured: Option<Spread>) -> Self {
        let measured = measured.map(|spread| (spread.spoken(), spread.median <= goal));
        Self { wish: format!("{wish} ≤ {goal}"), measured }
    }
}

fn goals(results: &Results) -> String {
    let mut text = String::from("| goal | measured | |\n|---|--:|---|\n");
    let sizes = sizes(results);
    let has_full = |keys: &&u32| memory_of(results, Name::DefaultFull, **keys).is_some();
    let (Some(&full), Some(&large)) = (sizes.iter().rev().find(has_full), sizes.last()) else { return text };
    let all = [speed_goals(results, full, large), memory_goals(results, full, large), flood_goals(results)];
    for goal in all.into_iter().flatten() {
        let (measured, word) = match goal.measured {
            Some((measured, true)) => (measured, "met"),
            Some((measured, false)) => (measured, "**missed**"),
            None => ("-".into(), "not measured"),
        };
        text += &format!("| {} | {measured} | {word} |\n", goal.wish);
    }
    text
}

const ALONE: Workload = Workload { distribution: Distribution::Uniform, threads: 1, takes: 1, batch: 1 };

/// The same workload by both distributions, with and without batches.
fn variants() -> impl Iterator<Item = Workload> {
    Distribution::ALL
        .into_iter()
        .flat_map(|distribution| [1, BATCH].map(|batch| Workload { distribution, batch, ..ALONE }))
}

fn named(workload: Workload) -> String {
    format!("{}, batch {}", workload.distribution.name(), workload.batch)
}

/// With so many full keys, and so many of all others: the most that there were of each.
fn speed_goals(results: &Results, full: u32, large: u32) -> Vec<Goal> {
    let mut goals = Vec::new();
    for peer in [Name::Governor, Name::Throttlecrab] {
        for workload in variants() {
            let wish = format!("take, {} keys, {}: × {}", spoken(large), named(workload), peer.word());
            goals.push(Goal::at_least(wish, 5.0, times(results, Name::Slot, peer, large, workload)));
        }
    }
    for (subject, keys) in [(Name::DefaultIdle, large), (Name::DefaultFull, full)] {
        for workload in variants() {
            let wish = format!("{}, {} keys, {}: × simple", short(subject), spoken(keys), named(workload));
            goals.push(Goal::at_least(wish, 0.3, times(results, subject, Name::Slot, keys, workload)));
        }
    }
    for workload in variants() {
        let three = Workload { takes: 3, ..workload };
        let pair = (row(results, Name::Slot, large, workload), row(results, Name::Slot, large, three));
        let ratio = match pair {
            (Some(one), Some(three)) => {
                Spread::of(ns_per_take(one).zip(ns_per_take(three)).map(|(one, three)| three / one).collect())
            }
            _ => None,
        };
        let wish =
            format!("one of three takes against one alone, {} keys, {}: ×", spoken(large), named(workload));
        goals.push(Goal::at_most(wish, 1.3, ratio));
    }
    goals
}

fn memory_goals(results: &Results, full: u32, large: u32) -> Vec<Goal> {
    let mut goals = Vec::new();
    for (subject, keys, bytes_max) in
        [(Name::Slot, large, 32.0), (Name::DefaultIdle, large, 64.0), (Name::DefaultFull, full, 360.0)]
    {
        let found = memory_of(results, subject, keys);
        let what = format!("{}, {} keys", short(subject), spoken(keys));
        goals.push(Goal {
            wish: format!("{what}: bytes per key ≤ {bytes_max}"),
            measured: found
                .map(|row| (format!("{:.1}", row.bytes_per_key()), row.bytes_per_key() <= bytes_max)),
        });
        goals.push(Goal {
            wish: format!("{what}: evicted live ≤ 0.01 %"),
            measured: found.map(|row| (percent(row.evicted_share()), row.evicted_share() <= 0.0001)),
        });
    }
    goals
}

fn flood_goals(results: &Results) -> Vec<Goal> {
    let goal = |heavy: tidegate_core::Algorithm| {
        let rows = results.flood.iter().filter(|row| row.heavy == heavy.name());
        let worst = rows.map(|row| row.ratio()).max_by(f64::total_cmp);
        Goal {
            wish: format!("heavy caller on {heavy}, in the worst of the floods: × exact ≤ 1.01"),
            measured: worst.map(|ratio| (format!("{ratio:.4}"), ratio <= 1.01)),
        }
    };
    HEAVY.map(goal).into()
}

/// Where only ours are spoken of.
fn short(subject: Name) -> &'static str {
    subject.title().trim_start_matches("Tidegate, ")
}

fn percent(share: f64) -> String {
    format!("{:.4} %", share * 100.0)
}

/// `10 M`, `10 k`.
fn spoken(keys: u32) -> String {
    match keys {
        _ if keys.is_multiple_of(1_000_000) => format!("{} M", keys / 1_000_000),
        _ if keys.is_multiple_of(1_000) => format!("{} k", keys / 1_000),
        _ => keys.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_bench_common::results::Latency;

    use super::*;
    use crate::results::Timing;

    fn published() -> Results {
        serde_json::from_str(include_str!("../../core.json")).expect("raw numbers")
    }

    /// The page cannot say what the numbers do not.
    #[test]
    fn the_published_page_is_made_from_the_published_numbers() {
        let results = published();
        let again = results.scale.command();
        assert_eq!(markdown(&results), include_str!("../../core.md"), "make it again: {again}");
        assert_eq!(results.json().expect("JSON"), include_str!("../../core.json"), "make it again: {again}");
    }

    /// Rounds of one take each, in nanoseconds.
    fn timed(subject: Name, workload: Workload, keys: u32, rounds_ns: &[u64]) -> SpeedRow {
        let rounds = rounds_ns.iter().map(|&ns| Timing { takes: 1, refused: 0, wall_ns: 2 * ns, cpu_ns: ns });
        SpeedRow { subject, keys, workload, rounds: rounds.collect() }
    }

    #[test]
    fn a_figure_is_the_median_of_the_ratios_within_rounds() {
        let mut results = published();
        // The third round was disturbed, for both: the ratio is not.
        results.speed = vec![
            timed(Name::Slot, ALONE, 1, &[10, 20, 100]),
            timed(Name::Governor, ALONE, 1, &[50, 120, 550]),
        ];
        let ratio = times(&results, Name::Slot, Name::Governor, 1, ALONE).expect("both were timed");
        assert_eq!((ratio.median, ratio.least, ratio.most), (5.5, 5.0, 6.0));
        // Peers know no batches: theirs without stands beside ours with.
        let batched = Workload { batch: 16, ..ALONE };
        results.speed.push(timed(Name::Slot, batched, 1, &[5, 5, 5]));
        assert!(times(&results, Name::Slot, Name::Governor, 1, batched).is_some());
        assert!(times(&results, Name::Slot, Name::DefaultIdle, 1, batched).is_none());
    }

    #[test]
    fn two_threads_are_timed_by_the_wall() {
        let mut results = published();
        let two = Workload { threads: 2, ..ALONE };
        results.speed = vec![timed(Name::Slot, ALONE, 1, &[100]), timed(Name::Slot, two, 1, &[100])];
        assert_eq!(rate(&results, Name::Slot, 1, ALONE), Some(10.0));
        assert_eq!(rate(&results, Name::Slot, 1, two), Some(5.0));
    }

    #[test]
    fn goals_are_met_missed_or_not_measured() {
        let mut results = published();
        let large = sizes(&results).last().copied().expect("a size");
        results.speed = vec![
            timed(Name::Slot, ALONE, large, &[10]),
            timed(Name::Governor, ALONE, large, &[50]),
            timed(Name::Throttlecrab, ALONE, large, &[49]),
        ];
        let text = goals(&results);
        let line = |peer: &str| {
            let wanted = format!("uniform, batch 1: × {peer}");
            text.lines().find(|line| line.contains(&wanted)).unwrap_or_default().to_string()
        };
        assert!(line("governor").ends_with("≥ 5 | 5.00 (5.00–5.00) | met |"), "{text}");
        assert!(line("throttlecrab").ends_with("≥ 5 | 4.90 (4.90–4.90) | **missed** |"), "{text}");
        assert!(text.contains("not measured"), "{text}");
    }

    #[test]
    fn memory_is_told_of_everybody_and_of_who_was_left_out_at_the_largest_size() {
        let mut results = published();
        let row = |subject, keys, bytes_after| MemoryRow {
            subject,
            keys,
            bytes_before: 1_000_000,
            bytes_after,
            bytes_max: None,
            evicted_live: 0,
            fill_ms: 1,
        };
        results.memory = vec![
            row(Name::DefaultFull, 100_000, 36_000_000),
            row(Name::Limitador, 100_000, 71_000_000),
            row(Name::DefaultFull, 1_000_000, 351_000_000),
            row(Name::Slot, 10_000_000, 281_000_000),
        ];
        let text = memory(&results);
        for part in [
            "| Limitador | 100 k | 71 MB | **700.0** | no bound | never |\n",
            "| Tidegate, simple limits | 10 M | 281 MB | **28.0** | no bound | 0.0000 % |\n",
            "Not measured with 10 M keys, for what it would need by the figure above: \
             Tidegate, `sliding_window`, full keys (3.5 GB), Limitador (7.0 GB).\n",
        ] {
            assert!(text.contains(part), "{part}\n\n{text}");
        }
        let goals = goals(&results);
        assert!(goals.contains("full keys, 1 M keys: bytes per key ≤ 360 | 350.0 | met |"), "{goals}");
    }

    #[test]
    fn single_takes_are_told_beside_their_target_and_kept_in_the_numbers() {
        let mut results = published();
        results.latency.clear();
        assert_eq!(latency(&results), "", "not measured");
        let row = |subject, p99_ns| LatencyRow {
            subject,
            keys: 1_000_000,
            took: Latency { p50_ns: 400, p99_ns, p999_ns: 200_000, most_ns: 300_000, late_p99_ns: 0 },
        };
        results.latency =
            vec![row(Name::Slot, 100_000), row(Name::DefaultIdle, 100_001), row(Name::Governor, 900_000)];
        let text = latency(&results);
        for part in [
            "| Tidegate, simple limits | 1 M | 0.40 µs | **100.00 µs** | 200.00 µs | 300.00 µs | kept |\n",
            "**100.00 µs** | 200.00 µs | 300.00 µs | **not kept** |\n",
            "| governor | 1 M | 0.40 µs | **900.00 µs** | 200.00 µs | 300.00 µs |  |\n",
        ] {
            assert!(text.contains(part), "{part}\n\n{text}");
        }
        let json = results.json().expect("JSON");
        let again: Results = serde_json::from_str(&json).expect("raw numbers");
        assert_eq!((again.latency.len(), again.json().expect("JSON")), (3, json));
    }

    #[test]
    fn an_even_number_of_rounds_has_its_median_between_two() {
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).map(|spread| spread.median), Some(2.5));
        assert_eq!(Spread::of(vec![]), None);
    }
}
