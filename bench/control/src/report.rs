//! Markdown from the raw numbers. Pure, so that a test can make the published page again.

use tidegate_bench_common::figures::{Spread, median, thousands};
use tidegate_bench_common::plan::{FEW, Load};
use tidegate_bench_common::results::Counts;

use crate::plan::{Asking, LOADS};
use crate::results::{Results, Row, Weight};

/// The whole page.
pub(crate) fn markdown(results: &Results) -> String {
    let mut page = head(results);
    page += "\n## Goals\n\n";
    page += &goals(results);
    page += "\n## Decisions, by how many callers a node knows\n\n";
    page += &known(results);
    page += "\n## Memory\n\n";
    page += &memory(results);
    page += "\n## From edit to effect\n\n";
    page += &edits(results);
    page += "\n## What was measured, and how\n\n";
    page += &how(results);
    page
}

fn head(results: &Results) -> String {
    let machine = &results.machine;
    let pinned = if machine.pinned {
        "the nodes on one, the generator on another"
    } else {
        "nobody had one of their own, so the numbers mean nothing"
    };
    format!(
        "# The control plane: what quotas cost, and how soon an edit holds\n\n\
         Made by `{}` from the raw numbers in `control.json`.{}\n\n\
         {} cores of {}, {pinned}; {}, rustc {}, commit {}.\n\n\
         A share is the median of the ratios within each round, with the least and the most beside it; only ratios travel to other\n\
         machines. In brackets: thousands of calls per second of the node's own processor time.\n{}",
        results.scale.command("control"),
        results.scale.remark(),
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.rustc,
        machine.commit,
        disturbed(results),
    )
}

/// A closed loop fills its core; where it did not, others did.
fn disturbed(results: &Results) -> String {
    const UNDISTURBED: f64 = 0.9;
    let busy = Spread::of(results.rows.iter().flat_map(|row| &row.rounds).map(Counts::server_busy));
    match busy.filter(|busy| busy.median < UNDISTURBED) {
        Some(busy) => format!(
            "\n**The machine was busy with other work**: in the median the node got {:.0} % of its core. Shares are of processor time\n\
             and hold all the same; times from edit to effect are partly waits for the others' work.\n",
            busy.median * 100.0
        ),
        None => String::new(),
    }
}

fn row(results: &Results, load: Load, asking: Asking, known: u32) -> Option<&Row> {
    results.rows.iter().find(|row| row.load == load && row.asking == asking && row.known == known)
}

/// A node's share of the calls that one makes that knows nobody.
fn share(results: &Results, load: Load, asking: Asking, known: u32) -> Option<Spread> {
    let (ours, none) = (row(results, load, asking, known)?, row(results, load, asking, 0)?);
    Spread::of(ours.rounds.iter().zip(&none.rounds).map(|(ours, none)| ours.per_cpu_s() / none.per_cpu_s()))
}

fn shape(Load { connections, streams }: Load) -> String {
    format!("{connections} × {streams}")
}

fn asked(results: &Results, asking: Asking) -> String {
    thousands(results.asked[asking as usize])
}

fn goals(results: &Results) -> String {
    let mut text = String::from("| goal | measured | |\n|---|--:|---|\n");
    let word = |is_met: bool| if is_met { "met" } else { "**missed**" };
    for load in LOADS {
        for asking in Asking::ALL {
            for known in results.asked {
                // A node that knows fewer than ask is asked about callers that it has no record of.
                if known < results.asked[asking as usize] {
                    continue;
                }
                // The goal is about few connections; the others are told beside it.
                let is_goal = load == FEW;
                let (measured, word) = match share(results, load, asking, known) {
                    Some(share) if is_goal => (share.spoken(), word(share.median >= 0.95)),
                    Some(share) => (share.spoken(), ""),
                    None => ("-".into(), "not measured"),
                };
                let (before, behind) =
                    if is_goal { ("", ": share ≥ 0.95") } else { ("beside it: ", ": share") };
                text += &format!(
                    "| {before}{}, {} callers ask, {} are known{behind} | {measured} | {word} |\n",
                    shape(load),
                    asked(results, asking),
                    thousands(known)
                );
            }
        }
    }
    let mut on_all = results.edits.on_all_us.clone();
    on_all.sort_unstable();
    let p99_ms = quantile(&on_all, 99) / 1e3;
    text += &format!(
        "| an edit holds on every node within 1 s (p99) | {p99_ms:.0} ms | {} |\n",
        word(p99_ms <= 1e3)
    );
    text
}

fn known(results: &Results) -> String {
    let mut text = String::from(
        "| connections × calls | callers that ask | known | × a node that knows nobody | calls per second of its processor | \
         per second | busy |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in &results.rows {
        let middle = |figure: fn(&Counts) -> f64| median(row.rounds.iter().map(figure));
        text += &format!(
            "| {} | {} | {} | **{}** | [{:.1}] | {:.1} k | {:.0} % |\n",
            shape(row.load),
            asked(results, row.asking),
            thousands(row.known),
            share(results, row.load, row.asking, row.known).map_or("-".into(), Spread::spoken),
            middle(Counts::per_cpu_s) / 1e3,
            middle(Counts::per_s) / 1e3,
            middle(Counts::server_busy) * 100.0,
        );
    }
    text
}

fn memory(results: &Results) -> String {
    let mut text = String::from(
        "| known | resident | more than with none, per key | told by `tidegate_quota_bytes`, per key |\n|--:|--:|--:|--:|\n",
    );
    let none = results.weights.iter().find(|weight| weight.known == 0).map_or(0, |weight| weight.rss_bytes);
    for Weight { known, rss_bytes, told_bytes } in &results.weights {
        let per_key = |bytes: u64| match known {
            0 => "-".to_owned(),
            known => format!("{:.0} B", bytes as f64 / f64::from(*known)),
        };
        text += &format!(
            "| {} | {:.0} MiB | {} | {} |\n",
            thousands(*known),
            *rss_bytes as f64 / f64::from(1 << 20),
            per_key(rss_bytes.saturating_sub(none)),
            per_key(*told_bytes),
        );
    }
    text
}

/// The smallest that so many hundredths are not above, in microseconds.
fn quantile(sorted_us: &[u64], hundredths: usize) -> f64 {
    let at = (sorted_us.len() * hundredths).div_ceil(100).saturating_sub(1);
    sorted_us.get(at).copied().unwrap_or(0) as f64
}

fn edits(results: &Results) -> String {
    let edits = &results.edits;
    let mut text = format!(
        "{} edits of one quota, by the API of one of {} nodes.\n\n| | p50 | p99 | most |\n|---|--:|--:|--:|\n",
        edits.on_all_us.len(),
        edits.nodes
    );
    for (what, times_us) in [
        ("the API has answered: it is on PostgreSQL's disk", &edits.answered_us),
        ("every node decides by it", &edits.on_all_us),
    ] {
        let mut sorted = times_us.clone();
        sorted.sort_unstable();
        let ms = |hundredths| quantile(&sorted, hundredths) / 1e3;
        text += &format!("| {what} | {:.1} ms | {:.1} ms | {:.1} ms |\n", ms(50), ms(99), ms(100));
    }
    text
}

fn how(results: &Results) -> String {
    let rounds = results.rows.first().map_or(0, |row| row.rounds.len());
    format!(
        "- A **node** is the program itself, built for release: `tidegate run --node-threads 1` with its default settings, counters in\n  \
         memory and one rule with a tier. What is known of callers is in SQLite: each has a tier, every tenth one limit of its own too,\n  \
         which holds always. Of a caller with several, or with one for a time, what it has is kept apart: that is not measured.\n\
         - Nodes are processes of their own on one core. They take turns of {} ms, {} in each of {rounds} rounds, in an order in\n  \
         which each comes after each of the others as often: what disturbs the machine for longer than that disturbs all alike.\n  \
         Processor time is read when the last call of a turn is answered, and the node sleeps. All are asked the same: over\n  \
         2 connections with 128 calls each in flight, as a proxy asks, and over 64 with one; callers in an order that no cache\n  \
         can guess. Of {} callers that ask, the node in the middle knows {}.\n\
         - **Memory** is what the system says is resident after every caller has asked; what was needed to read the records is in it.\n\
         - **Edits** are made by `PUT /admin/v1/quotas/…`; each node is asked by `POST /v1/check` until it says the new limit, so\n  \
         that a time has the looking in it. PostgreSQL waits for its disk. Nodes, database and bench share the machine.\n",
        results.turn_ms,
        results.turns,
        asked(results, Asking::All),
        asked(results, Asking::Few),
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tidegate_bench_common::plan::{MANY, Scale};

    use super::*;
    use crate::results::{Edits, Machine};

    /// What is published beside this folder; nothing until the first whole run on a quiet machine.
    fn published(name: &str) -> Option<String> {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).ok()
    }

    fn empty() -> Results {
        let machine = Machine {
            cores: 2,
            pinned: true,
            cpu: String::new(),
            kernel: String::new(),
            rustc: String::new(),
            commit: String::new(),
        };
        let edits = Edits { nodes: 3, answered_us: vec![1_000], on_all_us: vec![2_000] };
        Results {
            scale: Scale::Full,
            machine,
            asked: [10_000, 1_000_000],
            turns: 20,
            turn_ms: 15,
            weights: vec![],
            rows: vec![],
            edits,
        }
    }

    /// The page cannot say what the numbers do not.
    #[test]
    fn the_published_page_is_made_from_the_published_numbers() {
        let (json, page) = (published("control.json"), published("control.md"));
        assert_eq!(json.is_some(), page.is_some(), "one without the other");
        let (Some(json), Some(page)) = (json, page) else { return };
        let results: Results = serde_json::from_str(&json).expect("raw numbers");
        let again = results.scale.command("control");
        assert_eq!(markdown(&results), page, "make it again: {again}");
        assert_eq!(results.json().expect("JSON"), json, "make it again: {again}");
    }

    #[test]
    fn what_was_not_measured_is_said_so() {
        let text = goals(&empty());
        assert_eq!(text.matches("not measured").count(), 6, "{text}");
        assert!(text.contains("| 2 ms | met |"), "{text}");
    }

    #[test]
    fn a_share_is_the_median_of_the_ratios_within_rounds() {
        let mut results = empty();
        let row = |load, known, cpu_ns: &[u64]| Row {
            load,
            asking: Asking::All,
            known,
            rounds: cpu_ns
                .iter()
                .map(|&server_cpu_ns| Counts { calls: 1_000, server_cpu_ns, ..Counts::default() })
                .collect(),
        };
        // The third round was disturbed, for both: the ratio is not.
        let few = [row(FEW, 0, &[8, 18, 90]), row(FEW, 1_000_000, &[10, 20, 100])];
        let many = [row(MANY, 0, &[50]), row(MANY, 1_000_000, &[100])];
        results.rows = many.into_iter().chain(few).collect();
        let of = |load| share(&results, load, Asking::All, 1_000_000).expect("both were measured");
        let share = of(FEW);
        assert_eq!((share.median, share.least, share.most), (0.9, 0.8, 0.9));
        assert_eq!(of(MANY).median, 0.5, "loads are not mixed");
        // Only few connections have a goal.
        let (text, asked) = (goals(&results), "1 000 000 callers ask, 1 000 000 are known: share");
        let missed = format!("| 2 × 128, {asked} ≥ 0.95 | 0.90 (0.80–0.90) | **missed** |");
        let beside = format!("| beside it: 64 × 1, {asked} | 0.50 (0.50–0.50) |  |");
        assert!(text.contains(&missed) && text.contains(&beside), "{text}");
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let times: Vec<u64> = (1..=200).collect();
        assert_eq!(
            (quantile(&times, 50), quantile(&times, 99), quantile(&times, 100)),
            (100.0, 198.0, 200.0)
        );
        assert_eq!(quantile(&[], 99), 0.0);
    }
}
