//! The hard claims and the goals, checked on what was measured. A hard claim that fails makes the run fail.

use crate::judge::{GROSS_PERCENT, Tally};
use crate::limiter::{ALGORITHMS, Promise};
use crate::study::Study;
use crate::trace::{TRACES, Trace, thousands};

/// The part of legitimate requests that may be refused wrongly.
const FALSE_REFUSALS_MAX_PERCENT: f64 = 1.0;

/// The largest limit at which every cell holds one unit.
const EXACT_UP_TO: u64 = 20;

pub(crate) struct Claim {
    pub(crate) text: String,
    /// The worst case that was seen, and where.
    pub(crate) worst: String,
    pub(crate) holds: bool,
}

pub(crate) fn claims(study: &Study) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (index, algorithm) in ALGORITHMS.iter().enumerate() {
        claims.push(stated_bound(study, index));
        match algorithm.promise {
            Promise::None => {}
            Promise::Near => {
                claims.push(near(study, index));
                claims.push(peak(study, index, 100 + GROSS_PERCENT));
                claims.push(never_gross(study, index));
            }
            Promise::NeverOver => {
                claims.push(never_below(study, index));
                claims.push(peak(study, index, 100));
            }
            Promise::NearAndNeverOver => {
                claims.push(near(study, index));
                claims.push(never_below(study, index));
                claims.push(peak(study, index, 100));
                claims.push(never_gross(study, index));
            }
            Promise::Exact => claims.push(exact(study, index)),
        }
    }
    claims.push(the_attacks_bite(study));
    claims
}

/// What we aim at for the default, by three ways of counting a wrong refusal. Missing one is told, and fails nothing: it
/// depends on the traffic, where a hard claim does not.
pub(crate) fn goals(study: &Study) -> Vec<Claim> {
    type Refusals = fn(&Tally) -> u64;
    let ways: [(&str, Refusals); 3] = [
        ("refused although the exact log of its own admissions had room, by however little", |tally| {
            tally.false_refusals
        }),
        ("refused although that log had room for more than 5 % of L", |tally| tally.gross_refusals),
        ("refused although the caller kept to the limit (at most L attempts within the window)", |tally| {
            tally.innocent_refusals
        }),
    ];
    let Some(index) = ALGORITHMS.iter().position(|algorithm| algorithm.promise == Promise::Near) else {
        return Vec::new();
    };
    let goal = |(way, refusals): (&str, Refusals)| {
        let below = all(study, index).filter(|seen| seen.trace.below_limit);
        let worst = worst(below, |seen| seen.tally.percent(refusals(seen.tally)));
        Claim {
            text: format!("fewer than {FALSE_REFUSALS_MAX_PERCENT} % of requests {way}"),
            worst: worst
                .as_ref()
                .map_or_else(String::new, |(seen, percent)| format!("{percent:.3} % ({})", seen.place())),
            holds: worst.is_some_and(|(_, percent)| percent < FALSE_REFUSALS_MAX_PERCENT),
        }
    };
    ways.into_iter().map(goal).collect()
}

/// One measured cell of the study, with where it is from.
struct Seen<'a> {
    limit: u64,
    trace: &'static Trace,
    tally: &'a Tally,
}

impl Seen<'_> {
    fn place(&self) -> String {
        format!("{}, L = {}", self.trace.name, thousands(self.limit))
    }
}

fn all(study: &Study, algorithm: usize) -> impl Iterator<Item = Seen<'_>> {
    study.parts.iter().flat_map(move |part| {
        TRACES.iter().zip(&part.columns).map(move |(trace, column)| Seen {
            limit: part.limit,
            trace,
            tally: &column.tallies[algorithm],
        })
    })
}

/// The cell for which `measure` is largest, the first of them if several are.
fn worst<'a>(
    seen: impl Iterator<Item = Seen<'a>>,
    measure: impl Fn(&Seen<'_>) -> f64,
) -> Option<(Seen<'a>, f64)> {
    let mut worst: Option<(Seen<'a>, f64)> = None;
    for candidate in seen {
        let value = measure(&candidate);
        if worst.as_ref().is_none_or(|(_, largest)| value > *largest) {
            worst = Some((candidate, value));
        }
    }
    worst
}

fn of_limit(units: u64, limit: u64) -> f64 {
    units as f64 / limit as f64
}

fn stated_bound(study: &Study, index: usize) -> Claim {
    let algorithm = &ALGORITHMS[index];
    let broken: u64 = all(study, index).map(|seen| seen.tally.bounds_broken).sum();
    let side = |units: fn(&Tally) -> u64| match worst(all(study, index), |seen| {
        of_limit(units(seen.tally), seen.limit)
    }) {
        Some((seen, part)) if part > 0.0 => {
            format!("{} units = {:.1} % ({})", units(seen.tally), part * 100.0, seen.place())
        }
        _ => "0".into(),
    };
    let worst = if algorithm.estimates_window {
        format!(
            "estimate above the truth by {}, below it by {}",
            side(|t| t.above_max),
            side(|t| t.below_max)
        )
    } else {
        format!("its peak is {} of the limit", side(|t| t.peak))
    };
    let what = if algorithm.estimates_window { "estimate and decision" } else { "decision" };
    Claim {
        text: format!(
            "{}: the bound that each verdict states holds for its {what}, on all {} decisions",
            algorithm.title(),
            thousands(study.decisions_each())
        ),
        worst: if broken == 0 { worst } else { format!("{} decisions broke it; {worst}", thousands(broken)) },
        holds: broken == 0,
    }
}

fn near(study: &Study, index: usize) -> Claim {
    let off = |tally: &Tally| tally.above_max.max(tally.below_max);
    let worst = worst(all(study, index), |seen| of_limit(off(seen.tally), seen.limit));
    let holds = all(study, index).all(|seen| match seen.limit {
        ..=EXACT_UP_TO => off(seen.tally) == 0,
        limit => off(seen.tally) * 100 <= limit * GROSS_PERCENT,
    });
    Claim {
        text: format!(
            "{}: the estimate is never off by more than {GROSS_PERCENT} % of the limit, and exact up to a limit of {EXACT_UP_TO}",
            ALGORITHMS[index].title()
        ),
        worst: worst.map_or_else(String::new, |(seen, part)| {
            format!("{} units = {:.1} % ({})", off(seen.tally), part * 100.0, seen.place())
        }),
        holds,
    }
}

fn never_below(study: &Study, index: usize) -> Claim {
    let below: u64 = all(study, index).map(|seen| seen.tally.below_max).max().unwrap_or(0);
    Claim {
        text: format!("{}: the estimate is never below the truth", ALGORITHMS[index].title()),
        worst: format!("{below} units"),
        holds: below == 0,
    }
}

fn peak(study: &Study, index: usize, percent_max: u64) -> Claim {
    let worst = worst(all(study, index), |seen| of_limit(seen.tally.peak, seen.limit));
    Claim {
        text: format!(
            "{}: no window of any trace holds more than {:.2} × the limit",
            ALGORITHMS[index].title(),
            percent_max as f64 / 100.0
        ),
        worst: worst.map_or_else(String::new, |(seen, part)| format!("{part:.3} ({})", seen.place())),
        holds: all(study, index).all(|seen| seen.tally.peak * 100 <= seen.limit * percent_max),
    }
}

fn never_gross(study: &Study, index: usize) -> Claim {
    let gross: u64 =
        all(study, index).map(|seen| seen.tally.gross_admissions + seen.tally.gross_refusals).sum();
    Claim {
        text: format!(
            "{}: no decision is wrong by more than {GROSS_PERCENT} % of the limit",
            ALGORITHMS[index].title()
        ),
        worst: format!("{} of {} decisions", thousands(gross), thousands(study.decisions_each())),
        holds: gross == 0,
    }
}

fn exact(study: &Study, index: usize) -> Claim {
    let wrong = |tally: &Tally| {
        tally.wrong_admissions
            + tally.false_refusals
            + tally.above_max
            + tally.below_max
            + tally.admitted.abs_diff(tally.exact_admitted)
    };
    let total: u64 = all(study, index).map(|seen| wrong(seen.tally)).sum();
    Claim {
        text: format!(
            "{}: every decision and every count is that of the exact log",
            ALGORITHMS[index].title()
        ),
        worst: format!("{} differences", thousands(total)),
        holds: total == 0,
    }
}

/// Without this a harmless trace would let everything pass.
fn the_attacks_bite(study: &Study) -> Claim {
    let peak_of = |name: &str| {
        let index = ALGORITHMS.iter().position(|algorithm| algorithm.name == name);
        index
            .and_then(|index| worst(all(study, index), |seen| of_limit(seen.tally.peak, seen.limit)))
            .map_or(0.0, |(_, part)| part)
    };
    let peaks = [peak_of("fixed_window"), peak_of("token_bucket"), peak_of("sliding_window_counter")];
    Claim {
        text: "the attacks are real: fixed window, token bucket and two-window counter let more than 1.9 × the limit through".into(),
        worst: format!("{:.2}, {:.2}, {:.2}", peaks[0], peaks[1], peaks[2]),
        holds: peaks.iter().all(|&peak| peak > 1.9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::{Column, Part};

    /// A study in which everybody is exact and the naive ones peak at twice the limit.
    fn spotless() -> Study {
        let part = |limit: u64| Part {
            limit,
            bytes_max: vec![0; ALGORITHMS.len()],
            columns: TRACES
                .iter()
                .map(|_| Column {
                    tallies: ALGORITHMS.iter().map(|algorithm| tally(limit, algorithm.promise)).collect(),
                    attempts: vec![],
                })
                .collect(),
        };
        Study { seed: 0, quick: true, parts: vec![part(10), part(1_000)] }
    }

    fn tally(limit: u64, promise: Promise) -> Tally {
        let peak = if promise == Promise::None { 2 * limit } else { limit };
        Tally { requests: 1_000, admitted: 500, exact_admitted: 500, peak, ..Tally::default() }
    }

    fn failing(spoil: impl Fn(&mut Tally), name: &str, note: &str, part: usize) -> Vec<String> {
        let mut study = spotless();
        let index =
            ALGORITHMS.iter().position(|algorithm| algorithm.name == name && algorithm.note == note).unwrap();
        spoil(&mut study.parts[part].columns[0].tallies[index]);
        claims(&study).into_iter().filter(|claim| !claim.holds).map(|claim| claim.text).collect()
    }

    const DEFAULT: (&str, &str) = ("sliding_window", "cell log, m = 20: the default");

    #[test]
    fn a_spotless_study_passes() {
        let failed: Vec<String> =
            claims(&spotless()).into_iter().filter(|claim| !claim.holds).map(|c| c.text).collect();
        assert!(failed.is_empty(), "{failed:?}");
    }

    #[test]
    fn one_broken_bound_fails_whoever_stated_it() {
        for algorithm in &ALGORITHMS {
            let failed = failing(|tally| tally.bounds_broken = 1, algorithm.name, algorithm.note, 1);
            assert_eq!(failed.len(), 1, "{failed:?}");
            assert!(failed[0].contains("bound"));
        }
    }

    #[test]
    fn five_percent_of_a_thousand_is_fifty() {
        let (name, note) = DEFAULT;
        assert!(failing(|tally| tally.above_max = 50, name, note, 1).is_empty());
        assert!(failing(|tally| tally.below_max = 50, name, note, 1).is_empty());
        assert_eq!(failing(|tally| tally.above_max = 51, name, note, 1).len(), 1);
        assert_eq!(failing(|tally| tally.below_max = 51, name, note, 1).len(), 1);
        assert_eq!(failing(|tally| tally.below_max = 1, name, note, 0).len(), 1, "a limit of 10 is exact");
    }

    #[test]
    fn peaks_are_held_to_the_promise() {
        let (name, note) = DEFAULT;
        assert!(failing(|tally| tally.peak = 1_050, name, note, 1).is_empty());
        assert_eq!(failing(|tally| tally.peak = 1_051, name, note, 1).len(), 1);
        assert_eq!(failing(|tally| tally.peak = 1_001, name, "strict", 1).len(), 1);
        assert_eq!(failing(|tally| tally.peak = 1_001, "sub_window", "k = 10, strict", 1).len(), 1);
    }

    #[test]
    fn wrong_decisions_are_held_to_the_promise() {
        let (name, note) = DEFAULT;
        assert_eq!(failing(|tally| tally.gross_admissions = 1, name, note, 1).len(), 1);
        assert_eq!(failing(|tally| tally.gross_refusals = 1, name, "strict", 1).len(), 1);
        assert_eq!(failing(|tally| tally.below_max = 1, name, "strict", 1).len(), 1);
        assert_eq!(failing(|tally| tally.admitted = 499, "sliding_log", "", 1).len(), 1);
        assert!(failing(|tally| tally.gross_admissions = 1, "fixed_window", "", 1).is_empty());
    }

    #[test]
    fn goals_are_for_traces_below_the_limit_and_below_one_percent() {
        let index = ALGORITHMS.iter().position(|algorithm| algorithm.promise == Promise::Near).unwrap();
        let missed = |trace: usize, refusals: u64| {
            let mut study = spotless();
            study.parts[1].columns[trace].tallies[index].innocent_refusals = refusals;
            goals(&study).iter().filter(|goal| !goal.holds).count()
        };
        assert!(TRACES[0].below_limit && !TRACES[1].below_limit);
        assert_eq!((missed(0, 9), missed(0, 10), missed(1, 10)), (0, 1, 0));
    }

    #[test]
    fn harmless_traces_do_not_count_as_proof() {
        let mut study = spotless();
        for column in study.parts.iter_mut().flat_map(|part| &mut part.columns) {
            column.tallies[0].peak = 10;
        }
        assert!(claims(&study).iter().any(|claim| !claim.holds && claim.text.contains("attacks are real")));
    }
}
