//! A rehearsal says what would become of a request, and nobody can tell afterwards that there was one.

#[allow(dead_code, reason = "each test uses a part of it")]
mod common;

use common::{DAY, Dice, HOUR, MINUTE, START, every_limit, inspect, key, memory};
use tidegate_core::{Ask, Charge, Key, Limit, LimitError, Micros, Policy, Role, Tag};
use tidegate_counters::{Batch, Inspection, Memory, Rehearsed, Stats, Take};

/// Some limits of each kind, penalties too.
fn limits() -> Result<Vec<Limit>, LimitError> {
    let mut limits = every_limit(5, MINUTE)?;
    limits.push(Limit::fixed_window(3, MINUTE)?.charging(Charge::Always)?);
    limits.push(Limit::sliding_window(3, MINUTE)?.charging(Charge::Always)?);
    Ok(limits)
}

/// A request of one to five takes, often of the same counter twice, and of each role.
fn request<'l>(dice: &mut Dice, limits: &'l [Limit], keys: u64) -> Vec<Take<'l>> {
    let takes = 1 + dice.roll(5);
    let take = |_| {
        let at = dice.roll(limits.len() as u64);
        let cost = dice.roll(4);
        let id = 1 + dice.roll(3);
        Take {
            key: key(at + limits.len() as u64 * dice.roll(keys)),
            tag: Tag::default(),
            name: None,
            limit: &limits[at as usize],
            ask: match dice.roll(6) {
                0 => Ask::Peek,
                1 => Ask::Refund { units: cost, receipt: None },
                2 => Ask::Acquire { id, cost },
                3 => Ask::Release { id },
                _ => Ask::Charge { cost: if dice.roll(20) == 0 { 1_000 } else { cost } },
            },
            role: [Role::Enforce, Role::Enforce, Role::Shadow, Role::Quota][dice.roll(4) as usize],
            policy: Policy::default(),
        }
    };
    (0..takes).map(take).collect()
}

fn batch<'l>(takes: &[Take<'l>]) -> Batch<'l> {
    let mut batch = Batch::new();
    batch.push(takes.iter().copied());
    batch
}

/// All that can be seen of counters: every bit of them, and what was counted about them.
fn all_of(memory: &Memory, now: Micros) -> (Vec<u8>, Stats) {
    let mut bytes = Vec::new();
    memory.write_snapshot(&mut bytes, &[0; 16], now).expect("bytes in memory");
    (bytes, memory.stats())
}

#[test]
fn what_is_told_of_before_and_after_is_so() -> Result<(), LimitError> {
    let (limits, memory) = (limits()?, memory(1 << 20, 1 << 20));
    let (mut dice, mut now, mut differs) = (Dice::new(1), START, 0);
    for round in 0..20_000_u64 {
        now = now.plus(Micros::from_millis(dice.roll(3_000)));
        let takes = request(&mut dice, &limits, 4);
        let look = |take: &Take<'_>| inspect(&memory, take.key, take.limit, now);
        let (mut rehearsed, mut taken) = (batch(&takes), batch(&takes));
        let before: Vec<Inspection> = takes.iter().map(look).collect();
        let seen = memory.rehearse_now(&mut rehearsed, now);
        memory.take_now(&mut taken, now);
        let after: Vec<Inspection> = takes.iter().map(look).collect();
        assert_eq!(rehearsed.admitted(0), taken.admitted(0), "{round}: {takes:?}");
        assert_eq!(rehearsed.answers(0), taken.answers(0), "{round}: {takes:?}");
        let expected = before.into_iter().zip(after).map(|(before, after)| Rehearsed { before, after });
        assert_eq!(seen, expected.collect::<Vec<_>>(), "{round}: {takes:?}");
        differs += seen.iter().filter(|seen| seen.before.used != seen.after.used).count();
    }
    assert!(differs > 5_000, "hardly anything was charged: {differs}");
    Ok(())
}

/// In a table that is full: whoever came would have to evict somebody.
#[test]
fn it_leaves_no_trace_even_where_there_is_no_room() -> Result<(), LimitError> {
    let (limits, memory) = (limits()?, memory(1 << 10, 8 << 10));
    let mut dice = Dice::new(2);
    for _ in 0..2_000 {
        memory.take_now(&mut batch(&request(&mut dice, &limits, 100)), START);
    }
    assert!(memory.stats().evicted_live > 0, "the table is full");
    // Later and earlier: a clock that was set back repairs, one that went far ahead sweeps, and neither may a rehearsal.
    for now in [START, START.plus(HOUR), START.minus(DAY), START.plus(Micros::from_secs(400 * 86_400))] {
        let before = all_of(&memory, START);
        for _ in 0..500 {
            memory.rehearse_now(&mut batch(&request(&mut dice, &limits, 1_000)), now);
        }
        let after = all_of(&memory, START);
        assert!(before.0 == after.0, "a counter is not what it was");
        assert_eq!(before.1, after.1);
    }
    Ok(())
}

#[test]
fn each_request_of_a_batch_is_rehearsed_as_if_it_were_alone() -> Result<(), LimitError> {
    let (limit, memory) = (Limit::fixed_window(1, MINUTE)?, memory(1 << 20, 1 << 20));
    let take = Take {
        key: Key::of_bits(7),
        tag: Tag::default(),
        name: None,
        limit: &limit,
        ask: Ask::Charge { cost: 1 },
        role: Role::Enforce,
        policy: Policy::default(),
    };
    let mut both = Batch::new();
    both.push([take]);
    both.push([take]);
    let seen = memory.rehearse_now(&mut both, START);
    assert_eq!((both.admitted(0), both.admitted(1), seen.len()), (true, true, 2));
    memory.take_now(&mut both, START);
    assert_eq!((both.admitted(0), both.admitted(1)), (true, false));
    Ok(())
}
