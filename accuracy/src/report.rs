//! The study as Markdown. Start at [`markdown`].

use std::fmt::Write as _;

use crate::attempts::ESTIMATORS;
use crate::claims::Claim;
use crate::judge::Tally;
use crate::limiter::{ALGORITHMS, Algorithm, Promise};
use crate::plots::Figure;
use crate::study::{Part, Study};
use crate::trace::{TRACES, Trace, thousands};

/// The limit whose tables are open; the others fold.
const MAIN_LIMIT: u64 = 100;

pub(crate) fn markdown(study: &Study, claims: &[Claim], goals: &[Claim], figures: &[Figure]) -> String {
    let mut text = String::new();
    text += &opening(study);
    text += &in_short(study);
    text += &claims_table(claims);
    text += &goals_table(goals);
    text += &pictures(figures);
    text += &gross_wrong(study);
    text += &other_figures(study);
    text += &cloudflare(study);
    text += &traces(study);
    text
}

fn opening(study: &Study) -> String {
    let again = match (study.quick, study.seed) {
        (false, crate::SEED) => "cargo xtask accuracy --write".to_owned(),
        (false, seed) => format!("cargo xtask accuracy --seed {seed} --write"),
        (true, seed) => format!("cargo xtask accuracy --quick --seed {seed}"),
    };
    format!(
        "# How accurate the limits are\n\n\
         Made by `{again}` from the code that we ship; the same seed gives the same bytes. Do not edit by hand.\n\n\
         Every algorithm meets the same requests: {} decisions each, W = 60 s, L = 10, 100 and 1{NARROW}000 per window. After \
         every single decision it is held against an exact log of *its own* admissions, which the judge keeps and which \
         shares no code with what is judged. A window is (t − W, t]: an admission counts for W and not a microsecond longer.\n\n",
        thousands(study.decisions_each())
    )
}

const NARROW: char = '\u{202f}';

/// The worst of one algorithm, over all traces and limits.
struct Worst {
    peak: f64,
    off_percent: f64,
    gross_percent: f64,
    false_refusals_percent: f64,
    against_exact: f64,
}

fn worst(study: &Study, algorithm: usize) -> Worst {
    let mut worst = Worst {
        peak: 0.0,
        off_percent: 0.0,
        gross_percent: 0.0,
        false_refusals_percent: 0.0,
        against_exact: f64::MAX,
    };
    for part in &study.parts {
        for (trace, column) in TRACES.iter().zip(&part.columns) {
            let tally = &column.tallies[algorithm];
            let of_limit = |units: u64| units as f64 / part.limit as f64;
            worst.peak = worst.peak.max(of_limit(tally.peak));
            worst.off_percent = worst.off_percent.max(100.0 * of_limit(tally.above_max.max(tally.below_max)));
            worst.gross_percent = worst.gross_percent.max(tally.gross_percent());
            worst.against_exact = worst.against_exact.min(tally.against_exact());
            if trace.below_limit {
                worst.false_refusals_percent =
                    worst.false_refusals_percent.max(tally.percent(tally.false_refusals));
            }
        }
    }
    worst
}

/// What to remember, one line each.
fn in_short(study: &Study) -> String {
    let mut text = String::from(
        "## In short\n\n\
         The worst over all traces and limits below. *Grossly* means by more than 5 % of L; *false refusals* are those although \
         the exact log had room, by however little, on traces offered below the limit.\n\n\
         | | worst window ÷ limit | estimate off by at most | grossly wrong | false refusals | least admitted ÷ exact |\n\
         |---|---:|---:|---:|---:|---:|\n",
    );
    for (index, algorithm) in ALGORITHMS.iter().enumerate() {
        let worst = worst(study, index);
        let off = match algorithm.estimates_window {
            true => format!("{:.1} % of L", worst.off_percent),
            false => "–".into(),
        };
        let title = match algorithm.promise {
            Promise::Near => format!("**{}**", algorithm.title()),
            _ => algorithm.title(),
        };
        let _ = writeln!(
            text,
            "| {title} | {:.3} | {off} | {} % | {} % | {:.3} |",
            worst.peak,
            percent(worst.gross_percent),
            percent(worst.false_refusals_percent),
            worst.against_exact
        );
    }
    text.push('\n');
    text
}

fn claims_table(claims: &[Claim]) -> String {
    let failed = claims.iter().filter(|claim| !claim.holds).count();
    let mut text = String::from("## Hard claims\n\n");
    text += &match failed {
        0 => format!("All {} hold. The run ends with exit code 1 if one does not.\n\n", claims.len()),
        _ => format!("**{failed} of {} do not hold.**\n\n", claims.len()),
    };
    text += "| | Claim | Worst case seen |\n|---|---|---|\n";
    for claim in claims {
        let word = if claim.holds { "PASS" } else { "**FAIL**" };
        let _ = writeln!(text, "| {word} | {} | {} |", claim.text, claim.worst);
    }
    text.push('\n');
    text
}

fn goals_table(goals: &[Claim]) -> String {
    let mut text = String::from(
        "## Goals\n\nFor the default, on the traces offered below the limit on average (Poisson 0.95 L, on/off 0.5 L and 0.9 L). Even \
         there many windows hold more than L attempts, so it matters what one counts as a wrong refusal.\n\n\
         | | Goal | Worst case seen |\n|---|---|---|\n",
    );
    for goal in goals {
        let word = if goal.holds { "met" } else { "**missed**" };
        let _ = writeln!(text, "| {word} | {} | {} |", goal.text, goal.worst);
    }
    text.push('\n');
    text
}

fn pictures(figures: &[Figure]) -> String {
    let mut text = String::from("## Attacks, drawn\n\n");
    for figure in figures.iter().filter(|figure| figure.in_report) {
        let _ = writeln!(text, "![{}](plots/{}.svg)\n", figure.title, figure.name);
    }
    text
}

fn gross_wrong(study: &Study) -> String {
    let mut text = String::from(
        "## Grossly wrong decisions\n\n\
         Percent of all requests that were decided wrongly by more than 5 % of L: admitted while the exact count, this request \
         included, was above 1.05 L, or refused while the exact count and this request together were at most 0.95 L. *Peak* is \
         the highest exact count of any window ÷ L, over all traces. *Bytes* is the largest state seen here, as a store keeps it, \
         and the largest that any traffic with refunds and debts can make. GCRA and \
         the leaky bucket make the token bucket's decisions, one for one. Token bucket and fixed window are contracts of their \
         own; they are here because they are often taken for a sliding window.\n\n",
    );
    text += &per_limit(study, |part| {
        table(part, |_, tally, _| percent(tally.gross_percent()), Some(("peak", peak)))
    });
    text
}

fn other_figures(study: &Study) -> String {
    let sections: [(&str, &str, Measure); 7] = [
        (
            "Callers that kept to the limit",
            "Percent of all requests that were refused although this was at most the caller's L-th attempt, admitted or not, within \
             the window: the refusals that a well-behaved caller can complain about.",
            |_, tally, _| percent(tally.percent(tally.innocent_refusals)),
        ),
        (
            "False refusals",
            "Percent of all requests that were refused although the exact log of the limiter's own admissions had room, by \
             however little. Under saturation one unit of slack makes every hammering retry \"wrong\".",
            |_, tally, _| percent(tally.percent(tally.false_refusals)),
        ),
        (
            "False refusals by more than 5 % of L",
            "The same, only where the exact count and this request together were at most 0.95 L.",
            |_, tally, _| percent(tally.percent(tally.gross_refusals)),
        ),
        (
            "Wrong admissions",
            "Percent of all requests that were admitted although the exact count, this request included, was then above L, by \
             however little.",
            |_, tally, _| percent(tally.percent(tally.wrong_admissions)),
        ),
        (
            "Peak",
            "The highest exact count of admissions in any window ÷ L. 1.000 is a limit that was kept.",
            peak,
        ),
        (
            "Admitted ÷ exact",
            "Everything admitted ÷ what a limiter with perfect memory admits of the same trace.",
            |_, tally, _| format!("{:.3}", tally.against_exact()),
        ),
        (
            "Mean rate error",
            "Mean of |estimate − truth| ÷ truth in percent, over all decisions, where the estimate is the algorithm's (whole units, \
             rounded up) and the truth counts its own admissions. A token bucket has no estimate of a window.",
            |algorithm, tally, _| match algorithm.estimates_window {
                true => percent(tally.mean_error_percent()),
                false => "–".into(),
            },
        ),
    ];
    let mut text = String::new();
    for (title, about, measure) in sections {
        let _ = write!(text, "## {title}\n\n{about}\n\n");
        text += &per_limit(study, |part| table(part, measure, None));
    }
    text
}

fn cloudflare(study: &Study) -> String {
    let mut text = String::from(
        "## Beside Cloudflare's figures\n\n\
         Cloudflare published for its two-window counter, over 400 million requests of 270\u{202f}000 sources: 0.003 % of requests \
         wrongly allowed or limited, and a mean difference of 6 % between the true and the estimated rate. The same question asked \
         of our code: every attempt is counted, nothing is refused, and a request is wrong if estimate and truth are on different \
         sides of L.\n\n\
         How every attempt is counted: under a limit high enough never to refuse. The counters' estimates do not depend on the \
         limit; they are charged a thousand units per request, so that rounding up does not show. The size of a cell depends on the \
         limit, so the cell log keeps L for a source whose busiest window stays below 0.9 L, and else gets a limit a tenth above \
         that window: for busy sources its cells are larger here than in service.\n\n\
         | Algorithm | Trace | L | wrong % | mean rate error % |\n|---|---|---:|---:|---:|\n\
         | *Cloudflare, published* | *their traffic* | | *0.003* | *6* |\n",
    );
    for (row, estimator) in ESTIMATORS.iter().enumerate() {
        for (column, trace) in TRACES.iter().enumerate().filter(|(_, trace)| trace.is_population()) {
            for part in &study.parts {
                let attempts = &part.columns[column].attempts[row];
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} | {} |",
                    estimator.algorithm.title(),
                    trace.name,
                    thousands(part.limit),
                    percent(attempts.wrong_percent()),
                    percent(attempts.mean_error_percent()),
                );
            }
        }
    }
    text += "\nThe share of wrong decisions says more about the traffic than about the algorithm: it is small where few sources come near \
             their limit, and an attacker chooses to be near. So we promise a bound, not a rate.\n\n";
    text
}

fn traces(study: &Study) -> String {
    let mut text = String::from("## Traces\n\nUnit cost, W = 60 s, windows aligned to the Unix epoch; ");
    let _ = writeln!(text, "seed {}.\n", study.seed);
    for trace in &TRACES {
        let _ = writeln!(text, "- **{}**: {}.", trace.name, trace.about(study.scale()));
    }
    text
}

/// The main limit's table, and the others folded away.
fn per_limit(study: &Study, table: impl Fn(&Part) -> String) -> String {
    let mut text = String::new();
    let (open, folded): (Vec<&Part>, Vec<&Part>) =
        study.parts.iter().partition(|part| part.limit == MAIN_LIMIT);
    for part in open {
        let _ = write!(text, "L = {}:\n\n{}\n", thousands(part.limit), table(part));
    }
    for part in folded {
        let _ = write!(
            text,
            "<details><summary>L = {}</summary>\n\n{}\n</details>\n\n",
            thousands(part.limit),
            table(part)
        );
    }
    text
}

/// What a table shows of one algorithm, its tally and the limit.
type Measure = fn(&Algorithm, &Tally, u64) -> String;

fn peak(_: &Algorithm, tally: &Tally, limit: u64) -> String {
    format!("{:.3}", tally.peak as f64 / limit as f64)
}

/// Rows are algorithms, columns are traces, and perhaps a last one, named, for all of them together.
fn table(part: &Part, measure: Measure, total: Option<(&str, Measure)>) -> String {
    let mut text = String::from("| Algorithm | bytes |");
    let mut rule = String::from("|---|---:|");
    let mut head = |name: &str| {
        let _ = write!(text, " {name} |");
        rule += "---:|";
    };
    for Trace { name, .. } in &TRACES {
        head(name);
    }
    if let Some((name, _)) = total {
        head(name);
    }
    text = format!("{text}\n{rule}\n");
    for (index, algorithm) in ALGORITHMS.iter().enumerate() {
        let sum = part.sum(index);
        let bytes = match (sum.bytes_max, part.bytes_max[index]) {
            (seen, most) if seen == most => thousands(most),
            (seen, most) => format!("{} of {}", thousands(seen), thousands(most)),
        };
        let _ = write!(text, "| {} | {bytes} |", algorithm.title());
        for column in &part.columns {
            let _ = write!(text, " {} |", measure(algorithm, &column.tallies[index], part.limit));
        }
        if let Some((_, measure)) = total {
            let _ = write!(text, " {} |", measure(algorithm, &sum, part.limit));
        }
        text.push('\n');
    }
    text
}

/// Three digits that mean something; a plain 0 only for none at all.
fn percent(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        ..0.001 => "< 0.001".into(),
        ..1.0 => format!("{value:.3}"),
        ..10.0 => format!("{value:.2}"),
        _ => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_never_round_something_to_nothing() {
        let shown = [0.0, 0.000_4, 0.012_34, 1.234, 45.67].map(percent);
        assert_eq!(shown, ["0", "< 0.001", "0.012", "1.23", "45.7"]);
    }
}
