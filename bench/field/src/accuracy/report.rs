//! Markdown from the raw numbers. Pure, so that a test can make the published page again.

use super::results::{Admitted, FAILED_PERCENT_MAX, Results, Row};

/// Some admit the call that fills their burst beside it; nobody is accused of one in a thousand.
const ROUNDING: f64 = 0.002;

/// The whole page.
pub(crate) fn markdown(results: &Results) -> String {
    let (amount, window_s) = (results.amount, results.window_s);
    let flag = results.extent.flag().map(|flag| format!("{flag} ")).unwrap_or_default();
    let mut page = format!(
        "# Admitted against the limit, under concurrency\n\n\
         Made by `cargo xtask bench accuracy {flag}--write` from the raw numbers in `accuracy.json`.{}\n\n\
         {}. The limit is {amount} in {window_s} s for each key, for everybody in the same run.\n\n\
         | | counts by | such may admit | worst window, asked without a pause | worst window, burst at the edge | \
         admitted ÷ limit × time | asked ÷ limit |\n\
         |---|---|--:|--:|--:|--:|--:|\n",
        results.extent.remark(),
        results.machine,
    );
    for row in &results.rows {
        page += &line(results, row);
    }
    for missing in &results.missing {
        let reason = missing.reason.lines().next().unwrap_or_default();
        page += &format!("\n**Missing: {}** ({reason}).\n", missing.title);
    }
    page + &how(results) + &commands(results)
}

fn line(results: &Results, row: &Row) -> String {
    let limit = f64::from(results.amount);
    let worst = |all: &[Admitted]| {
        let of = |figure: fn(&Admitted) -> u64| all.iter().map(figure).max().map(|most| most as f64 / limit);
        match (of(|it| it.at_least), of(|it| it.at_most)) {
            (Some(least), Some(most)) => {
                let broken = row.promised.is_some_and(|promised| least > promised + ROUNDING);
                format!("**{least:.3}**{} (≤ {most:.3})", if broken { " **more than such may**" } else { "" })
            }
            _ => "-".into(),
        }
    };
    let seconds: f64 = row.steady.iter().map(|it| it.wall_ns as f64 / 1e9).sum();
    let allowed = limit * seconds / f64::from(results.window_s);
    let of = |figure: fn(&Admitted) -> u64| row.steady.iter().map(figure).sum::<u64>() as f64 / allowed;
    let title = if row.is_ours { format!("**{}**", row.title) } else { row.title.clone() };
    format!(
        "| {title} {} | {} | {} | {} | {} | {:.3} | {:.1} |\n",
        row.version,
        row.algorithm,
        row.promised.map_or("-".into(), |promised| format!("{promised:.3}")),
        worst(&row.steady),
        worst(&row.edges),
        of(|it| it.admitted),
        of(|it| it.asked),
    )
}

fn how(results: &Results) -> String {
    let keys = results.rows.first().map_or(0, |row| row.steady.len());
    let edges = results.rows.first().map_or(0, |row| row.edges.len());
    let seconds =
        results.rows.first().and_then(|row| row.steady.first()).map_or(0.0, |it| it.wall_ns as f64 / 1e9);
    format!(
        "\n## What was measured, and how\n\n\
         - The generator notes of every call when it was sent and when its answer was here. An admission was \
         decided somewhere between the\n  \
         two, so it lies in a window for certain only if both do. The figure in bold is the most that were \
         *certainly* admitted within some\n  \
         window of {} s, divided by the limit; in brackets what it can have been at most, with all that was under way at its ends.\n\
         - *Asked without a pause*: {keys} keys, all at the same time, for {seconds:.1} s, in a closed loop of 2 connections × 128 calls \
         (HTTP, RESP: 64 × 1).\n\
         - *Burst at the edge*: one call at the beginning of a second of the clock, nothing for 0.8 s, then calls \
         without a pause until 0.3 s\n  \
         into the next second: {edges} times, each with a new key, the worst of them. The one call is for those \
         whose windows begin with the\n  \
         first call instead of with the clock's second.\n\
         - *Such may admit* is what we take from the name of what somebody counts by, not a word of theirs: a \
         fixed window admits its limit\n  \
         before the edge and again after it; a bucket or GCRA with a burst of the limit admits that burst, and \
         what flows back meanwhile:\n  \
         both up to twice the limit. The node's sliding window says itself, with every answer, how far it may be off{}\n  \
         (`docs/algorithms.md`).\n\
         - These are counts and no speeds, but a machine that is busy with other work makes fewer calls (*asked ÷ \
         limit*) and leaves more of\n  \
         them under way, so that what is certain and what is possible lie further apart.\n\
         - *Admitted ÷ limit × time* says whether somebody refuses what the limit allows: 1 is exact, a first \
         window or a burst adds to it.\n\
         - *Failed calls*: up to {FAILED_PERCENT_MAX} % of somebody's calls may fail, since a busy machine may be too slow for \
         somebody's deadline; they\n  \
         are asked and not admitted{}.\n",
        results.window_s,
        bound(results),
        failed(results),
    )
}

/// The worst that ours can say, by the numbers.
fn bound(results: &Results) -> String {
    match results.rows.iter().find_map(|row| row.bound) {
        Some(bound) => format!(", for this limit by {bound} units at worst"),
        None => String::new(),
    }
}

/// Whose calls failed, where that was counted.
fn failed(results: &Results) -> String {
    let counted: Vec<(&Row, u64)> = results.rows.iter().filter_map(|row| Some((row, row.failed?))).collect();
    let told = counted.iter().filter(|(_, failed)| *failed > 0).map(|(row, failed)| {
        let asked: u64 = row.steady.iter().chain(&row.edges).map(|it| it.asked).sum();
        format!("{failed} of {asked} ({})", row.title)
    });
    match (counted.is_empty(), told.collect::<Vec<_>>().join(", ")) {
        (true, _) => String::new(),
        (false, told) if told.is_empty() => ". In this run none did".into(),
        (false, told) => format!(". In this run: {told}"),
    }
}

fn commands(results: &Results) -> String {
    let rows = results.rows.iter().filter_map(|row| Some((row, row.command.as_ref()?)));
    let rows = rows.map(|(row, command)| format!("| {} | {} | `{command}` |\n", row.title, row.version));
    let rows: String = rows.collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n## How each was started\n\n| | version | command |\n|---|---|---|\n{rows}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Extent;

    /// The page cannot say what the numbers do not.
    #[test]
    fn the_published_page_is_made_from_the_published_numbers() {
        let [json, page] = crate::pages::read(["accuracy.json", "accuracy.md"]);
        let results: Results = serde_json::from_str(&json).expect("raw numbers");
        let again = "make it again: cargo xtask bench accuracy --write";
        assert_eq!(markdown(&results), page, "{again}");
        assert_eq!(results.json().expect("JSON"), json, "{again}");
    }

    #[test]
    fn the_worst_window_of_all_keys_counts_and_a_broken_promise_stands_out() {
        let admitted = |at_least, at_most| Admitted {
            asked: 20_000,
            admitted: 2_000,
            wall_ns: 2_000_000_000,
            at_least,
            at_most,
        };
        let mut row = Row {
            word: "some".into(),
            title: "Somebody".into(),
            version: "1.0".into(),
            algorithm: "fixed window".into(),
            is_ours: false,
            promised: Some(2.0),
            bound: None,
            command: None,
            failed: None,
            steady: vec![admitted(1_000, 1_010), admitted(1_500, 1_600)],
            edges: vec![],
        };
        let machine = "a machine".into();
        let (amount, window_s) = (1_000, 1);
        let mut results = Results {
            extent: Extent::Smoke,
            machine,
            amount,
            window_s,
            rows: vec![row.clone()],
            missing: vec![],
        };
        let text = markdown(&results);
        let line = "| Somebody 1.0 | fixed window | 2.000 | **1.500** (≤ 1.600) | - | 1.000 | 10.0 |";
        assert!(text.contains(line), "{text}");
        assert!(text.ends_with("they\n  are asked and not admitted.\n"), "older numbers: {text}");
        row.promised = Some(1.048);
        (row.bound, row.failed, row.command) = (Some(48), Some(0), Some("some --word".into()));
        results.rows = vec![row.clone()];
        let page = markdown(&results);
        for told in [
            "**1.500** **more than such may** (≤ 1.600)",
            "how far it may be off, for this limit by 48 units at worst\n",
            "up to 1 % of somebody's calls may fail",
            ". In this run none did.",
            "| Somebody | 1.0 | `some --word` |",
        ] {
            assert!(page.contains(told), "{told} in {page}");
        }
        results.rows[0].failed = Some(7);
        assert!(markdown(&results).contains(". In this run: 7 of 40000 (Somebody)."));
        let again: Results = serde_json::from_str(&results.json().expect("JSON")).expect("numbers");
        assert_eq!(markdown(&again), markdown(&results));
    }
}
