//! Room: under a flood of new keys the table stays within its bound and forgets what matters least; idle keys leave by themselves; and
//! whatever happens to packed times, states that grow, or class numbers that run out, no answer changes.

#[allow(dead_code, reason = "each test uses a part of it")]
mod common;

use common::*;
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use tidegate_core::{
    Algorithm, Ask, Calendar, Era, Key, Limit, LimitError, Micros, Policy, State, Tag, Unit, Weekday,
};
use tidegate_counters::{Batch, Memory, Stats, Take};

/// A caller that is refused, and that asks again and again.
fn offend(memory: &Memory, key: Key, limit: &Limit, now: Micros) -> bool {
    charge(memory, key, limit, u64::from(limit.amount()), now);
    !charge(memory, key, limit, 1, now).admitted()
}

/// The limits that a flood is tried on: short and long windows, in slots and in the arena.
fn flooded() -> Result<Vec<Limit>, LimitError> {
    Ok(vec![
        Limit::fixed_window(20, MINUTE)?,
        Limit::fixed_window(20, DAY)?,
        Limit::gcra(20, MINUTE, None)?,
        Limit::gcra(20, HOUR, None)?,
        Limit::token_bucket(20, Micros::from_secs(30 * 86_400), None)?,
        Limit::sliding_window(20, MINUTE)?,
        Limit::sliding_window(20, DAY)?,
        Limit::calendar(20, Calendar::new(Unit::Month, "UTC", Weekday::Monday)?)?,
    ])
}

#[test]
fn a_flood_of_new_keys_does_not_free_those_that_are_refused() -> Result<(), LimitError> {
    const SLOTS: u64 = 4_096;
    for limit in flooded()? {
        // Enough room in the arena for what the slots can name, so that slots are what is short.
        let memory = memory(16 * SLOTS as usize, 64 * SLOTS as usize);
        let offenders: Vec<Key> = (0..SLOTS / 4).map(key).collect();
        assert!(offenders.iter().all(|key| offend(&memory, *key, &limit, START)), "{limit}");
        for flooder in 0..100_000 {
            let now = Micros::new(START.get() + flooder * 50);
            assert!(charge(&memory, key(1_000_000 + flooder), &limit, 1, now).admitted());
        }
        let now = Micros::new(START.get() + 5_000_000);
        let freed = offenders.iter().filter(|key| !inspect(&memory, **key, &limit, now).stored).count();
        let stats = memory.stats();
        assert_eq!((freed, stats.evicted_refused), (0, 0), "{limit}: {stats:?}");
        assert!(stats.evicted_live >= 100_000 - SLOTS, "{limit}: {stats:?}");
        assert!(stats.keys <= stats.slots && stats.arena_used <= stats.arena_bytes, "{limit}: {stats:?}");
    }
    Ok(())
}

#[test]
fn a_flood_of_large_states_does_not_free_those_that_are_refused() -> Result<(), LimitError> {
    for window in [MINUTE, DAY] {
        let limit = Limit::sliding_window(20, window)?;
        // Slots enough; the arena is what is short.
        let memory = memory(1 << 20, 1 << 17);
        let offenders: Vec<Key> = (0..1_000).map(key).collect();
        assert!(offenders.iter().all(|key| offend(&memory, *key, &limit, START)));
        for flooder in 0..20_000 {
            let now = Micros::new(START.get() + flooder * 50);
            assert!(charge(&memory, key(1_000_000 + flooder), &limit, 1, now).admitted());
        }
        let stats = memory.stats();
        let freed = offenders.iter().filter(|key| !inspect(&memory, **key, &limit, START).stored).count();
        assert_eq!((freed, stats.evicted_refused), (0, 0), "{limit}: {stats:?}");
        assert!(stats.evicted_live > 10_000 && stats.arena_used <= stats.arena_bytes, "{limit}: {stats:?}");
    }
    Ok(())
}

#[test]
fn where_all_are_refused_some_go_and_are_counted() -> Result<(), LimitError> {
    let memory = memory(16 * 1_024, 0);
    let limit = Limit::fixed_window(1, MINUTE)?;
    assert!((0..50_000).all(|number| offend(&memory, key(number), &limit, START)));
    let stats = memory.stats();
    assert_eq!(stats.evicted_refused, stats.evicted_live);
    assert_eq!(stats.evicted_live, 50_000 - stats.keys);
    let stored = (0..50_000).filter(|number| inspect(&memory, key(*number), &limit, START).stored).count();
    assert_eq!(stats.keys, stored as u64);
    Ok(())
}

#[test]
fn busy_keys_that_are_new_among_live_ones_push_each_other_out_once() -> Result<(), LimitError> {
    for limit in flooded()? {
        for busy in 2..=4 {
            // Two sets: everybody meets everybody. All slots are of keys that have used more than the new ones have at first.
            let memory = memory(16 * 8, 1 << 14);
            assert!((0..16).all(|number| charge(&memory, key(number), &limit, 10, START).admitted()));
            let mut admitted = vec![0; busy];
            for turn in 0..60 * busy {
                let caller = turn % busy;
                admitted[caller] +=
                    u64::from(charge(&memory, key(100 + caller as u64), &limit, 1, START).admitted());
            }
            assert!(admitted.iter().all(|admitted| (20..=22).contains(admitted)), "{limit}: {admitted:?}");
        }
    }
    Ok(())
}

#[test]
fn who_comes_back_again_and_again_pushes_nobody_out_who_is_busy_and_has_used_more() -> Result<(), LimitError>
{
    let limit = Limit::fixed_window(20, MINUTE)?;
    let memory = memory(16 * 8, 0);
    assert!((0..8).all(|number| charge(&memory, key(number), &limit, 10, START).admitted()));
    for turn in 0..100 {
        (0..8).for_each(|number| assert!(peek(&memory, key(number), &limit, START).admitted()));
        assert!(charge(&memory, key(100 + turn % 2), &limit, 1, START).admitted());
        // The first who is new takes the place of one of them, and the second that of the first.
        let left = (0..8).filter(|number| inspect(&memory, key(*number), &limit, START).stored).count();
        assert_eq!(left, 7, "turn {turn}");
    }
    Ok(())
}

#[test]
fn a_flood_allocates_nothing() -> Result<(), LimitError> {
    const SLOTS: u64 = 1_024;
    for limit in flooded()? {
        let memory = memory(16 * SLOTS as usize, 64 * SLOTS as usize);
        let mut batch = Batch::new();
        let mut flood = |numbers: std::ops::Range<u64>| {
            for number in numbers {
                batch.clear();
                let ask = Ask::Charge { cost: 1 };
                batch.push([Take {
                    key: key(number),
                    tag: Tag::default(),
                    name: None,
                    limit: &limit,
                    ask,
                    role: tidegate_core::Role::Enforce,
                    policy: Policy::default(),
                }]);
                memory.take_now(&mut batch, Micros::new(START.get() + number));
            }
        };
        flood(0..2 * SLOTS);
        let counted = allocation_counter::measure(|| flood(2 * SLOTS..2 * SLOTS + 100_000));
        assert_eq!(counted.count_total, 0, "{limit} allocates");
        assert!(memory.stats().evicted_live >= 100_000, "{limit}");
    }
    Ok(())
}

#[test]
fn room_in_the_arena_is_made_within_a_bound() -> Result<(), LimitError> {
    let limit = Limit::sliding_window(20, MINUTE)?;
    let memory = memory(1 << 18, 1 << 16);
    let flood = |numbers: std::ops::Range<u64>| {
        assert!(numbers.into_iter().all(|number| charge(&memory, key(number), &limit, 1, START).admitted()));
    };
    flood(0..5_000);
    let counted = allocation_counter::measure(|| flood(5_000..10_000));
    // Whoever makes room lists the blocks of a region, and forgets the list.
    assert_eq!(counted.bytes_current, 0);
    assert!(counted.bytes_max < 16_384, "{counted:?}");
    assert_eq!(memory.stats().unremembered, 0);
    Ok(())
}

#[test]
fn idle_keys_leave_by_themselves() -> Result<(), LimitError> {
    const KEYS: u64 = 500;
    let limits = every_limit(10, MINUTE)?;
    let memory = memory(16 * 4_096, 1 << 20);
    let limit_of = |number: u64| &limits[number as usize % limits.len()];
    for number in 0..KEYS {
        assert!(charge(&memory, key(number), limit_of(number), 1 + number % 10, START).admitted());
    }
    assert_eq!(memory.stats().keys, KEYS);
    sweep_round(&memory, START.plus(SECOND));
    assert_eq!(memory.stats().keys, KEYS, "nobody is idle yet");
    // All but the day's quota are over after two windows, 5 s and a rounding to 4 s.
    let later = START.plus(Micros::from_secs(60 + 60 + 5 + 4 + 1));
    let per_call = (memory.stats().slots / 64).max(4);
    for _ in 0..65 {
        let before = memory.stats();
        memory.sweep(later);
        let left = before.keys - memory.stats().keys;
        assert!(left <= per_call, "a call looks at a 64th of the table");
    }
    let quotas =
        (0..KEYS).filter(|number| limit_of(*number).algorithm() == Algorithm::Calendar).count() as u64;
    let Stats { keys, arena_used, expired, evicted_live, .. } = memory.stats();
    assert_eq!((keys, arena_used, expired, evicted_live), (quotas, 0, KEYS - quotas, 0));
    sweep_round(&memory, START.plus(DAY).plus(HOUR).plus(HOUR));
    assert_eq!(memory.stats().keys, 0);
    Ok(())
}

#[test]
fn new_keys_alone_make_idle_ones_leave() -> Result<(), LimitError> {
    let limit = Limit::sliding_window(10, MINUTE)?;
    let memory = memory(16 * 1_024, 1 << 18);
    assert!((0..500).all(|number| charge(&memory, key(number), &limit, 1, START).admitted()));
    let later = START.plus(HOUR);
    // Two sets with each: one round of 256 sets, and the rest of the one before.
    assert!((1_000..1_256).all(|number| charge(&memory, key(number), &limit, 1, later).admitted()));
    let stats = memory.stats();
    assert_eq!((stats.keys, stats.expired, stats.evicted_live), (256, 500, 0), "{stats:?}");
    Ok(())
}

/// What happens to some counters, one after the other.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// The clock goes on or back.
    Jump {
        us: i64,
    },
    /// Nobody asks for a while, and the sweeper goes round.
    Sweeps {
        calls: u8,
    },
    Ask {
        counter: usize,
        ask: u8,
        units: u64,
    },
}

fn happens() -> impl Strategy<Value = Happens> {
    let hour = HOUR.get() as i64;
    let jump = prop_oneof![
        4 => 0..2 * SECOND.get() as i64,
        3 => 0..2 * hour,
        3 => hour..30 * hour,
        1 => 24 * hour..1_000 * hour,
        1 => Just(20 * 365 * 24 * hour),
        1 => -4_000_000..0_i64,
        2 => -40 * hour..0,
        1 => -10 * 365 * 24 * hour..-24 * hour,
    ];
    prop_oneof![
        2 => jump.prop_map(|us| Happens::Jump { us }),
        1 => (0..40_u8).prop_map(|calls| Happens::Sweeps { calls }),
        6 => (0..24_usize, 0..6_u8, 1..12_u64).prop_map(|(counter, ask, units)| Happens::Ask { counter, ask, units }),
    ]
}

/// A counter in the table and its twin, which only the law has stepped on.
struct Twin {
    key: Key,
    limit: Limit,
    state: State,
    is_touched: bool,
}

impl Twin {
    fn ask(&mut self, memory: &Memory, ask: Ask, now: Micros) -> Result<(), TestCaseError> {
        let expected = self.limit.step(&mut self.state, ask, now);
        let seen = common::ask(memory, self.key, &self.limit, ask, now);
        prop_assert_eq!(seen, expected, "{} was asked {:?} at {}", self.limit, ask, now);
        self.is_touched |= seen.applied != 0 || matches!(ask, Ask::Acquire { .. });
        Ok(())
    }

    /// What the table has forgotten has to be forgettable; then the twin forgets it too, since a clock that goes back would tell.
    fn forget_as(&mut self, memory: &Memory, now: Micros) -> Result<(), TestCaseError> {
        if self.is_touched && !inspect(memory, self.key, &self.limit, now).stored {
            let unneeded = self.limit.keep_for(&mut self.state, now) <= Micros::from_secs(5);
            prop_assert!(unneeded, "{} was forgotten too early at {}", self.limit, now);
            (self.state, self.is_touched) = (self.limit.state(), false);
        }
        Ok(())
    }
}

fn twins() -> Result<Vec<Twin>, LimitError> {
    let mut limits = every_limit(10, Micros::from_millis(1_500))?;
    limits.extend(every_limit(10, Micros::from_secs(5 * 3_600))?);
    limits.push(Limit::gcra(7, HOUR, Some(300))?); // Hours to leak, and packed all the same.
    limits.push(Limit::token_bucket(1_000, DAY, None)?);
    let twin = |(number, limit): (usize, Limit)| Twin {
        key: key(number as u64),
        state: limit.state(),
        limit,
        is_touched: false,
    };
    Ok(limits.into_iter().enumerate().map(twin).collect())
}

fn play(happened: &[Happens]) -> Result<(), TestCaseError> {
    // 16 sets: whoever is late sweeps all of them. Room for everybody, also where nothing can be packed.
    let memory = memory(16 * 64, 1 << 17);
    let mut twins = twins().expect("limits");
    let mut now = START;
    for what in happened {
        match *what {
            Happens::Jump { us } => {
                now = Micros::new(now.get().saturating_add_signed(us).clamp(1 << 50, 1 << 52));
                if us < 0 {
                    // A clock that was set back is repaired by whatever touches a counter: so they are touched at the same instant.
                    for twin in &mut twins {
                        twin.ask(&memory, Ask::Peek, now)?;
                    }
                }
            }
            Happens::Sweeps { calls } => (0..calls).for_each(|_| memory.sweep(now)),
            Happens::Ask { counter, ask, units } => {
                let counters = twins.len();
                let ask = match ask {
                    0 => Ask::Refund { units, receipt: None },
                    1 => Ask::Acquire { id: units, cost: units },
                    2 => Ask::Release { id: units },
                    3 => Ask::Peek,
                    _ => Ask::Charge { cost: units },
                };
                twins[counter % counters].ask(&memory, ask, now)?;
            }
        }
        for twin in &mut twins {
            twin.forget_as(&memory, now)?;
        }
    }
    let stats = memory.stats();
    prop_assert_eq!((stats.evicted_live, stats.unremembered), (0, 0), "{:?}", stats);
    Ok(())
}

#[test]
fn clocks_that_jump_and_sweeps_change_no_answer() {
    let config = ProptestConfig {
        cases: 400,
        rng_seed: RngSeed::Fixed(0x71DE_6A7E),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let scripts = prop::collection::vec(happens(), 1..120);
    if let Err(error) = TestRunner::new(config).run(&scripts, |happened| play(&happened)) {
        panic!("{error}");
    }
}

#[test]
fn a_clock_that_is_wrong_in_the_middle_of_a_round_is_believed_or_not_but_nothing_is_made_up()
-> Result<(), LimitError> {
    let limit = Limit::gcra(60, MINUTE, None)?;
    for (days, sweeps_before) in [(1, 1), (3, 1), (3, 7), (100, 1), (100, 15)] {
        let memory = memory(16 * 64, 1 << 14);
        assert!((0..40).all(|number| charge(&memory, key(number), &limit, 60, START).admitted()));
        (0..sweeps_before).for_each(|_| memory.sweep(START));
        let wrong = Micros::new(START.get() - days * DAY.get());
        (0..20).for_each(|_| memory.sweep(wrong));
        // Right again: a second has passed; or days, for those that the sweeper has set back; or no time at all, for those that it has
        // set back further than packed times can be told apart: they are as full as they were, from now on.
        let later = START.plus(SECOND);
        for number in 0..40 {
            let remaining = peek(&memory, key(number), &limit, later).remaining;
            assert!([0, 1, 60].contains(&remaining), "{remaining} after {days} days");
        }
    }
    Ok(())
}

#[test]
fn packed_times_follow_the_clock() -> Result<(), LimitError> {
    // Whether somebody sweeps or only asks: soon after a jump states are in slots again, and none stays in the arena.
    let limit = Limit::gcra(60, MINUTE, None)?;
    for sweeps in [false, true] {
        let memory = memory(16 * 64, 1 << 14);
        let mut now = START;
        for (jump, days) in [1, 30, -3, 365, -100, 1].into_iter().enumerate() {
            now = Micros::new(now.get().saturating_add_signed(days * DAY.get() as i64));
            // Keys of before are left alone: the sweeper sees to them, or they would be in the way.
            let keys = || (0..20).map(|number| key(1_000 * jump as u64 + number));
            for _ in 0..3 {
                keys().for_each(|key| assert!(charge(&memory, key, &limit, 1, now).admitted()));
                if sweeps {
                    sweep_round(&memory, now);
                }
            }
            keys().for_each(|key| assert!(charge(&memory, key, &limit, 1, now).admitted()));
            assert_eq!(memory.stats().arena_used, 0, "after jump {jump}, of {days} days");
        }
    }
    Ok(())
}

#[test]
fn packed_times_follow_the_clock_where_nobody_sweeps_and_no_key_is_new() -> Result<(), LimitError> {
    let limit = Limit::gcra(60, MINUTE, None)?;
    let memory = memory(16 * 1_024, 1 << 14);
    for hour in 0..200 {
        let now = Micros::new(START.get() + hour * HOUR.get());
        for _ in 0..4 {
            assert!((0..10).all(|number| charge(&memory, key(number), &limit, 1, now).admitted()));
        }
        assert_eq!(memory.stats().arena_used, 0, "after {hour} hours");
    }
    Ok(())
}

#[test]
fn a_bucket_that_leaks_for_hours_and_days_is_read_right() -> Result<(), LimitError> {
    // As long as it leaks for a few hours it is packed; else it is in the arena. With and without somebody who sweeps.
    for (limit, packs) in
        [(Limit::gcra(10, HOUR, Some(40))?, true), (Limit::gcra(10, HOUR, Some(1_000))?, false)]
    {
        for sweeps in [false, true] {
            let memory = memory(16 * 64, 1 << 14);
            let mut state = limit.state();
            let full = Ask::Charge { cost: if packs { 40 } else { 1_000 } };
            assert_eq!(ask(&memory, key(0), &limit, full, START), limit.step(&mut state, full, START));
            assert_eq!(memory.stats().arena_used == 0, packs, "{limit}");
            for hour in 1..=110 {
                let now = Micros::new(START.get() + hour * HOUR.get());
                if sweeps {
                    sweep_round(&memory, now);
                }
                assert!(charge(&memory, key(hour), &limit, 1, now).admitted());
                let used = inspect(&memory, key(0), &limit, now).used;
                assert_eq!(used, limit.used(&mut state, now), "{limit} after {hour} hours");
            }
            assert_eq!(memory.stats().evicted_live, 0);
        }
    }
    Ok(())
}

#[test]
fn more_windows_than_class_numbers_are_counted_exactly() -> Result<(), LimitError> {
    let memory = memory(16 * 16_384, 1 << 20);
    let limits: Vec<Limit> = (0..2_000)
        .map(|ms| Limit::fixed_window(3, Micros::from_millis(60_000 + ms)))
        .collect::<Result<_, _>>()?;
    let gcras: Vec<Limit> = (0..2_000)
        .map(|ms| Limit::gcra(3, Micros::from_millis(60_000 + ms), None))
        .collect::<Result<_, _>>()?;
    let limits: Vec<Limit> = limits.into_iter().chain(gcras).collect();
    for (number, limit) in limits.iter().enumerate() {
        let key = key(number as u64);
        let admitted = (0..5).filter(|_| charge(&memory, key, limit, 1, START).admitted()).count();
        assert_eq!((admitted, inspect(&memory, key, limit, START).used), (3, 3), "{limit}");
    }
    assert_eq!(memory.stats().keys, limits.len() as u64);
    sweep_round(&memory, START.plus(HOUR));
    assert_eq!((memory.stats().keys, memory.stats().arena_used), (0, 0));
    Ok(())
}

#[test]
fn states_grow_and_shrink_and_leave_nothing_behind() -> Result<(), LimitError> {
    let memory = memory(16 * 64, 1 << 20);
    let (log, places) = (Limit::sliding_log(5_000, HOUR)?, Limit::concurrency(5_000, HOUR)?);
    let (mut log_alone, mut places_alone) = (log.state(), places.state());
    let mut dice = Dice::new(1);
    for step in 0..12_000_u64 {
        let now = Micros::new(START.get() + step * 1_000_000);
        let charge = Ask::Charge { cost: 1 };
        assert_eq!(ask(&memory, key(1), &log, charge, now), log.step(&mut log_alone, charge, now));
        // Waves: places are taken for a while, then given back.
        let id = 1 + dice.roll(4_000);
        let hold = if step / 3_000 % 2 == 0 { Ask::Acquire { id, cost: 1 } } else { Ask::Release { id } };
        assert_eq!(ask(&memory, key(2), &places, hold, now), places.step(&mut places_alone, hold, now));
    }
    sweep_round(&memory, START.plus(DAY));
    let stats = memory.stats();
    assert_eq!((stats.keys, stats.arena_used, stats.unremembered), (0, 0, 0), "{stats:?}");
    Ok(())
}

#[test]
fn a_state_that_cannot_grow_keeps_its_counts_and_is_told_of() -> Result<(), LimitError> {
    let limit = Limit::sliding_log(1_000, HOUR)?;
    // One region: 127 units of 32 bytes, and a log of so many entries that it may grow no further.
    let memory = memory(16 * 64, 4_096);
    let now = |entry: u64| Micros::new(START.get() + entry);
    let mut remembered = 0;
    for entry in 0..1_000 {
        assert!(charge(&memory, key(1), &limit, 1, now(entry)).admitted());
        let used = inspect(&memory, key(1), &limit, now(entry)).used;
        assert!(used == remembered + 1 || used == remembered, "never less than it had");
        remembered = used;
    }
    let stats = memory.stats();
    assert!(remembered > 100, "{remembered} {stats:?}");
    assert_eq!(stats.unremembered, 1_000 - remembered, "{stats:?}");
    assert_eq!((stats.keys, stats.evicted_live), (1, 0));
    Ok(())
}

#[test]
fn without_an_arena_what_needs_it_is_admitted_and_told_of() -> Result<(), LimitError> {
    let memory = memory(16 * 64, 0);
    let limit = Limit::sliding_window(1, MINUTE)?;
    assert!((0..5).all(|_| charge(&memory, key(1), &limit, 1, START).admitted()));
    let stats = memory.stats();
    assert_eq!((stats.keys, stats.unremembered, stats.evicted_live), (0, 5, 0));
    Ok(())
}

/// The distance at which packed times end is known here, so that the tests above are on both sides of it.
#[test]
fn packed_times_reach_for_hours() {
    assert!(Era::REACH > HOUR && Era::REACH < DAY);
}
