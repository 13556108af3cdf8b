//! What a page is made from: ours beside a peer within one round, and medians over the rounds.

use tidegate_bench_common::figures::{Spread, median};
use tidegate_bench_common::results::Counts;

use crate::plan::{Pace, Press};
use crate::results::{ClosedTurn, OpenTurn, Place, Results};

/// A figure of a turn.
pub(crate) type Figure<T> = fn(&T) -> f64;

/// By how much ours is above a peer: in each round, the mean of ours just before it and just after it, by the peer's.
pub(crate) fn closed_ratio(
    results: &Results,
    ours: &str,
    peer: &str,
    press: Press,
    figure: Figure<Counts>,
) -> Option<Spread> {
    let of = |word: &str| -> Vec<(Place, f64)> {
        let turns = results.closed.iter().filter(|turn| turn.peer == word && turn.press == press);
        turns.map(|turn| (turn.place, figure(&turn.counts))).collect()
    };
    ratio(&of(ours), &of(peer))
}

/// The same of open loops.
pub(crate) fn open_ratio(
    results: &Results,
    ours: &str,
    peer: &str,
    pace: Pace,
    figure: Figure<OpenTurn>,
) -> Option<Spread> {
    let of = |word: &str| -> Vec<(Place, f64)> {
        let turns = results.open.iter().filter(|turn| turn.peer == word && turn.pace == pace);
        turns.map(|turn| (turn.place, figure(turn))).collect()
    };
    ratio(&of(ours), &of(peer))
}

fn ratio(ours: &[(Place, f64)], theirs: &[(Place, f64)]) -> Option<Spread> {
    let beside = |place: Place| {
        let same = || ours.iter().filter(move |(at, _)| at.round == place.round);
        let before = same().filter(|(at, _)| at.turn < place.turn).max_by_key(|(at, _)| at.turn);
        let after = same().filter(|(at, _)| at.turn > place.turn).min_by_key(|(at, _)| at.turn);
        let both: Vec<f64> = before.into_iter().chain(after).map(|(_, value)| *value).collect();
        (!both.is_empty()).then(|| both.iter().sum::<f64>() / both.len() as f64)
    };
    let known = theirs.iter().filter(|(_, value)| *value > 0.0);
    Spread::of(known.filter_map(|(place, theirs)| Some(beside(*place)? / theirs)))
}

/// The median of a figure over all turns of somebody; none if there was none.
pub(crate) fn closed_median(
    results: &Results,
    peer: &str,
    press: Press,
    figure: Figure<Counts>,
) -> Option<f64> {
    let turns: Vec<&ClosedTurn> =
        results.closed.iter().filter(|turn| turn.peer == peer && turn.press == press).collect();
    (!turns.is_empty()).then(|| median(turns.iter().map(|turn| figure(&turn.counts))))
}

/// The same of open loops.
pub(crate) fn open_median(
    results: &Results,
    peer: &str,
    pace: Pace,
    figure: Figure<OpenTurn>,
) -> Option<f64> {
    let turns: Vec<&OpenTurn> =
        results.open.iter().filter(|turn| turn.peer == peer && turn.pace == pace).collect();
    (!turns.is_empty()).then(|| median(turns.iter().map(|turn| figure(turn))))
}

pub(crate) fn p99(turn: &OpenTurn) -> f64 {
    turn.latency.p99_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(round: usize, turn: usize, value: f64) -> (Place, f64) {
        (Place { round, turn }, value)
    }

    #[test]
    fn ours_is_the_mean_of_the_turns_just_before_and_after() {
        // A machine that grows slower within the round: 10, then 8; and far away, 100.
        let ours = [at(0, 0, 100.0), at(0, 2, 10.0), at(0, 4, 8.0), at(0, 6, 100.0), at(1, 3, 100.0)];
        let spread = ratio(&ours, &[at(0, 3, 3.0)]).expect("both");
        assert_eq!(spread.median, 3.0);
        // At the end of a round there is only one neighbour.
        assert_eq!(ratio(&ours, &[at(0, 7, 50.0)]).expect("both").median, 2.0);
        assert!(ratio(&ours, &[at(2, 0, 1.0)]).is_none(), "no turn of ours in that round");
        assert!(ratio(&ours, &[at(0, 3, 0.0)]).is_none(), "nothing was counted");
    }

    #[test]
    fn a_ratio_is_the_median_over_the_rounds() {
        let ours: Vec<_> = (0..3).map(|round| at(round, 0, 10.0)).collect();
        let spread = ratio(&ours, &[at(0, 1, 1.0), at(1, 1, 5.0), at(2, 1, 2.0)]).expect("three");
        assert_eq!((spread.median, spread.least, spread.most), (5.0, 2.0, 10.0));
    }
}
