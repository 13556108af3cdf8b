//! The shaper: requests leave one after the other at the limit's rate, and nobody waits longer than was said.

use proptest::prelude::*;
use tidegate_core::{Level, Micros, Shaped, Shaper};

const START: Micros = Micros::from_secs(1_800_000_000);

fn delay(shaped: &Shaped) -> Option<Micros> {
    if let Shaped::Go { delay, .. } = shaped { Some(*delay) } else { None }
}

#[test]
fn ten_at_once_leave_one_after_the_other() {
    let shaper = Shaper::new(10, Micros::from_secs(1), Micros::from_millis(500)).expect("a shaper");
    let mut level = Level::default();
    let delays: Vec<_> = (0..8).map(|_| delay(&shaper.reserve(&mut level, 1, START))).collect();
    let ms = |ms| Some(Micros::from_millis(ms));
    assert_eq!(delays, [ms(0), ms(100), ms(200), ms(300), ms(400), ms(500), None, None]);
    // Refused: the queue is 600 ms long, and may be 500.
    let refused = shaper.reserve(&mut level, 1, START);
    assert!(matches!(refused, Shaped::Refused { retry_after, .. } if retry_after == ms(100)));
    assert_eq!(delay(&shaper.reserve(&mut level, 1, START.plus(Micros::from_millis(100)))), ms(500));
}

#[test]
fn only_the_last_in_the_queue_can_leave_it() {
    let shaper = Shaper::new(10, Micros::from_secs(1), Micros::from_secs(5)).expect("a shaper");
    let mut level = Level::default();
    let reserve = |level: &mut Level, at: Micros| match shaper.reserve(level, 1, at) {
        Shaped::Go { delay, reservation, .. } => (delay, reservation),
        Shaped::Refused { .. } => panic!("the queue is short"),
    };
    let (_, first) = reserve(&mut level, START);
    let (_, second) = reserve(&mut level, START);
    let (_, third) = reserve(&mut level, START.plus(Micros::from_millis(30)));
    let now = START.plus(Micros::from_millis(60));
    let first = shaper.cancel(&mut level, first, now).expect_err("two have queued behind it");
    shaper.cancel(&mut level, third, now).expect("nobody has queued behind it");
    shaper.cancel(&mut level, second, now).expect("nobody is left behind it");
    assert_eq!(reserve(&mut level, now).0, Micros::from_millis(40), "the first is still on its way");
    shaper.cancel(&mut level, first, now).expect_err("somebody has queued behind it again");
}

#[test]
fn what_can_never_leave_is_refused_for_good() {
    let shaper = Shaper::new(10, Micros::from_secs(1), Micros::from_secs(5)).expect("a shaper");
    let never = |shaped| matches!(shaped, Shaped::Refused { retry_after: None, .. });
    assert!(never(shaper.reserve(&mut Level::default(), 11, START)));
    let closed = Shaper::new(0, Micros::from_secs(1), Micros::from_secs(5)).expect("a shaper");
    assert!(never(closed.reserve(&mut Level::default(), 1, START)));
}

proptest! {
    #![proptest_config(crate::traces::proof(5_000))]

    #[test]
    fn departures_keep_the_rate_and_their_order(
        amount in prop::sample::select(vec![1_u64, 2, 3, 7, 10, 100, 1_000]),
        window in prop::sample::select(vec![1_000_u64, 7_001, 1_000_000, 60_000_000]),
        delay_parts in 0..40_u64,
        arrivals in prop::collection::vec((0..100_u64, 1..5_u64, 0..20_u8), 1..120),
    ) {
        let delay_max = Micros::new(window * delay_parts / 10);
        let shaper = Shaper::new(amount, Micros::new(window), delay_max).expect("a shaper");
        let mut level = Level::default();
        let mut departures: Vec<(u64, u64)> = Vec::new();
        let (mut now, mut clock) = (START, START);
        for (gap, cost, jump) in arrivals {
            now = now.plus(Micros::new(gap * window / 200));
            // Sometimes the clock goes back a little: the queue does not get shorter by that.
            clock = if jump == 0 { now.minus(Micros::new(window / 7)) } else { now };
            let cost = cost.min(amount);
            match shaper.reserve(&mut level, cost, clock) {
                Shaped::Go { delay, bound, .. } => {
                    prop_assert!(delay <= delay_max);
                    let departure = clock.plus(delay).get();
                    prop_assert!(departures.last().is_none_or(|(last, _)| *last <= departure), "overtaken");
                    departures.push((departure, cost));
                    let inside: u64 = departures.iter().filter(|(at, _)| at + window > departure).map(|(_, cost)| cost).sum();
                    prop_assert!(inside <= amount + u64::from(bound.over), "{} left within a window, {} over", inside, bound.over);
                }
                Shaped::Refused { retry_after, .. } => {
                    let wait = retry_after.expect("every cost fits some time");
                    let passes_in = |wait| delay(&shaper.reserve(&mut level.clone(), cost, clock.plus(wait))).is_some();
                    prop_assert!(passes_in(wait), "refused after {wait}");
                    prop_assert!(!passes_in(wait.minus(Micros::new(1))), "passes before {wait}");
                }
            }
        }
        prop_assert!(clock >= START.minus(Micros::new(window)));
    }
}
