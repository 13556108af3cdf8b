//! Snapshots: what is written comes back, in tables of other sizes too; and what is foreign, cut, damaged or old is refused with a
//! reason, and has changed nothing.

#[allow(dead_code, reason = "each test uses a part of it")]
mod common;

use std::hash::Hasher;
use std::io::Cursor;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use siphasher::sip::SipHasher13;
use tidegate_core::{Ask, Charge, Limit, LimitError, Micros, PORTABLE_VERSION, State, Verdict};
use tidegate_counters::{Loaded, Memory, SnapshotError};

const LABEL: [u8; 16] = [9; 16];
/// Bytes before the first record: magic, version, size, label, time.
const HEAD: usize = 8 + 1 + 1 + 16 + 7;
/// Bytes after the last: its end, how many there were, checksum.
const TAIL: usize = 1 + 8 + 8;
const SLOTS: usize = 16 * 1_024;
const ARENA: usize = 1 << 20;

fn write(memory: &Memory, now: Micros) -> Vec<u8> {
    let mut file = Vec::new();
    memory.write_snapshot(&mut file, &LABEL, now).expect("a list takes everything");
    file
}

fn load(memory: &Memory, file: &[u8], now: Micros) -> Result<Loaded, SnapshotError> {
    memory.load_snapshot(Cursor::new(file), &LABEL, now)
}

/// Limits of every kind, with short and long windows, in and out of slots, with debts and without.
fn limits() -> Result<Vec<Limit>, LimitError> {
    let mut limits = every_limit(20, MINUTE)?;
    limits.extend(every_limit(1_000, DAY)?);
    limits.push(Limit::sliding_log(3_000, HOUR)?);
    limits.push(Limit::concurrency(3_000, HOUR)?);
    limits.push(Limit::gcra(4_000_000_000, HOUR, None)?);
    limits.push(Limit::fixed_window(4_000_000_000, MINUTE)?);
    limits.push(Limit::sub_window(20, DAY, Some(100), true)?);
    limits.push(Limit::fixed_window(10, HOUR)?.charging(Charge::Always)?);
    limits.push(Limit::gcra(10, HOUR, None)?.charging(Charge::Always)?);
    limits.push(Limit::sliding_window(10, HOUR)?.charging(Charge::Always)?);
    Ok(limits)
}

/// A table in which things have happened to so many keys of each limit until `now`, and the states that the law alone makes of it.
fn lived_in(memory: &Memory, limits: &[Limit], keys: u64, seed: u64) -> (Micros, Vec<State>) {
    let mut dice = Dice::new(seed);
    let mut states: Vec<State> = (0..keys).flat_map(|_| limits.iter().map(Limit::state)).collect();
    let mut now = START;
    for _ in 0..20 * states.len() {
        now = Micros::new(now.get() + dice.roll(20_000));
        let at = dice.roll(states.len() as u64) as usize;
        let (units, limit) = (1 + dice.roll(7), &limits[at % limits.len()]);
        let ask = match dice.roll(10) {
            0 => Ask::Refund { units, receipt: None },
            1 => Ask::Acquire { id: units, cost: units },
            2 => Ask::Charge { cost: u64::from(limit.amount()) / 3 },
            _ => Ask::Charge { cost: units },
        };
        let expected = limit.step(&mut states[at], ask, now);
        assert_eq!(common::ask(memory, key(at as u64), limit, ask, now), expected);
    }
    assert_eq!(memory.stats().evicted_live, 0, "everything is still there");
    (now, states)
}

/// What a peek is told at some times after `now`, by a table and by the law.
fn told_later(limit: &Limit, now: Micros, mut peek: impl FnMut(Micros) -> Verdict) -> Vec<Verdict> {
    let window_us = limit.window().unwrap_or(DAY).get();
    let waits = [0, 1, window_us / 20, window_us / 3, window_us - 1, 2 * window_us];
    waits.iter().map(|wait| peek(Micros::new(now.get() + wait))).collect()
}

#[test]
fn all_states_come_back_in_tables_of_other_sizes() -> Result<(), LimitError> {
    let limits = limits()?;
    for seed in 1..=3 {
        let from = memory(SLOTS, ARENA);
        let (now, states) = lived_in(&from, &limits, 2, seed);
        let file = write(&from, now);
        for slots in [SLOTS, SLOTS / 2, SLOTS / 8, 2 * SLOTS, 8 * SLOTS] {
            let to = memory(slots, 8 * ARENA);
            let loaded = load(&to, &file, now).expect("a snapshot");
            assert_eq!((loaded.keys, loaded.dead, loaded.left_out), (from.stats().keys, 0, 0), "{slots}");
            for (at, state) in states.iter().enumerate() {
                let (limit, key) = (&limits[at % limits.len()], key(at as u64));
                let here = told_later(limit, now, |now| inspect(&to, key, limit, now).verdict);
                let law = told_later(limit, now, |now| limit.show(&mut state.clone(), Ask::Peek, now));
                assert_eq!(here, law, "{limit} in {slots} bytes");
                assert_eq!(
                    inspect(&to, key, limit, now).used,
                    limit.used(&mut state.clone(), now),
                    "{limit}"
                );
            }
            assert_eq!(to.stats().evicted_live, 0, "{slots}");
        }
    }
    Ok(())
}

#[test]
fn what_was_loaded_goes_on_as_if_nothing_had_happened() -> Result<(), LimitError> {
    let limits = limits()?;
    let from = memory(SLOTS, ARENA);
    let (now, mut states) = lived_in(&from, &limits, 2, 7);
    let to = memory(SLOTS, ARENA);
    load(&to, &write(&from, now), now).expect("a snapshot");
    let mut dice = Dice::new(8);
    for step in 0..2_000 {
        let now = Micros::new(now.get() + step * 50_000);
        let at = dice.roll(states.len() as u64) as usize;
        let (limit, ask) = (&limits[at % limits.len()], Ask::Charge { cost: 1 + dice.roll(5) });
        assert_eq!(ask_of(&to, at, limit, ask, now), limit.step(&mut states[at], ask, now), "{limit}");
    }
    Ok(())
}

fn ask_of(memory: &Memory, at: usize, limit: &Limit, ask: Ask, now: Micros) -> Verdict {
    common::ask(memory, key(at as u64), limit, ask, now)
}

#[test]
fn what_is_refused_before_is_refused_after_and_stays_under_a_flood() -> Result<(), LimitError> {
    let limit = Limit::gcra(5, HOUR, None)?;
    let from = memory(SLOTS, ARENA);
    for number in 0..200 {
        charge(&from, key(number), &limit, 5, START);
        assert!(!charge(&from, key(number), &limit, 1, START).admitted());
    }
    let to = memory(SLOTS, ARENA);
    load(&to, &write(&from, START), START).expect("a snapshot");
    // What they charge lives longer: only that the others were refused tells whom to keep.
    let longer = Limit::gcra(5, Micros::from_secs(8 * 3_600), None)?;
    assert!((1_000..20_000).all(|number| charge(&to, key(number), &longer, 1, START).admitted()));
    assert!((0..200).all(|number| !peek(&to, key(number), &limit, START).admitted()));
    Ok(())
}

#[test]
fn the_dead_are_not_written_and_not_loaded() -> Result<(), LimitError> {
    let (short, long) = (Limit::sliding_window(5, SECOND)?, Limit::gcra(5, HOUR, None)?);
    let from = memory(SLOTS, ARENA);
    assert!((0..10).all(|number| charge(&from, key(number), &short, 1, START).admitted()));
    assert!((10..20).all(|number| charge(&from, key(number), &long, 5, START).admitted()));
    let file = write(&from, START);
    // Loaded a minute later, half of them mean nothing any more; written a minute later, they are left out.
    let later = START.plus(MINUTE);
    let to = memory(SLOTS, ARENA);
    assert_eq!(load(&to, &file, later).expect("a snapshot"), Loaded { keys: 10, dead: 10, left_out: 0 });
    let file = write(&from, later);
    let to = memory(SLOTS, ARENA);
    assert_eq!(load(&to, &file, later).expect("a snapshot"), Loaded { keys: 10, dead: 0, left_out: 0 });
    assert_eq!(to.stats().keys, 10);
    Ok(())
}

#[test]
fn a_counter_that_was_touched_stays_as_it_is() -> Result<(), LimitError> {
    let limits = [Limit::fixed_window(9, HOUR)?, Limit::sliding_window(9, HOUR)?];
    for limit in &limits {
        let from = memory(SLOTS, ARENA);
        assert!((0..2).all(|number| charge(&from, key(number), limit, 7, START).admitted()));
        for slots in [SLOTS, SLOTS / 4, 2 * SLOTS] {
            let to = memory(slots, ARENA);
            assert!(charge(&to, key(0), limit, 2, START).admitted());
            let loaded = load(&to, &write(&from, START), START).expect("a snapshot");
            assert_eq!((loaded.keys, loaded.left_out), (1, 1), "{slots}");
            let used = |number| inspect(&to, key(number), limit, START).used;
            assert_eq!((used(0), used(1)), (2, 7), "{limit}");
        }
    }
    Ok(())
}

/// A file of a few counters of every kind, and one that it must not touch.
fn small() -> Result<(Vec<u8>, Memory, Limit), LimitError> {
    let from = memory(SLOTS, ARENA);
    for (number, limit) in every_limit(20, HOUR)?.iter().enumerate() {
        let at = |step: u64| Micros::new(START.get() + step * 1_000_000);
        assert!((0..5).all(|step| charge(&from, key(number as u64), limit, 1, at(step)).admitted()));
    }
    let (to, limit) = (memory(SLOTS, ARENA), Limit::sliding_window(9, HOUR)?);
    assert!(charge(&to, key(99), &limit, 3, START).admitted());
    Ok((write(&from, START), to, limit))
}

/// A file that was refused has changed nothing.
fn check_untouched(to: &Memory, limit: &Limit, stats: &tidegate_counters::Stats) {
    assert_eq!(to.stats(), *stats);
    assert_eq!(inspect(to, key(99), limit, START).used, 3);
}

#[test]
fn every_part_of_a_file_is_refused_as_foreign_or_cut() -> Result<(), LimitError> {
    let (file, to, limit) = small()?;
    let stats = to.stats();
    for len in 0..file.len() {
        let refused = load(&to, &file[..len], START).expect_err("a part");
        match refused {
            SnapshotError::Foreign => assert!(len < 8, "{len}"),
            SnapshotError::Cut => assert!(len >= 8, "{len}"),
            other => panic!("{len}: {other}"),
        }
        check_untouched(&to, &limit, &stats);
    }
    assert!(load(&to, &file, START).is_ok());
    Ok(())
}

#[test]
fn every_flipped_bit_is_noticed() -> Result<(), LimitError> {
    let (file, to, limit) = small()?;
    let stats = to.stats();
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            assert!(load(&to, &damaged, START).is_err(), "byte {at}, bit {bit}");
        }
        check_untouched(&to, &limit, &stats);
    }
    Ok(())
}

/// Puts the right checksum under a file that was changed.
fn signed(mut file: Vec<u8>) -> Vec<u8> {
    let sum_at = file.len() - 8;
    let mut sum = SipHasher13::new_with_key(b"tidegate-counter");
    sum.write(&file[..sum_at]);
    file[sum_at..].copy_from_slice(&sum.finish().to_le_bytes());
    file
}

#[test]
fn whatever_a_signed_file_says_is_loaded_whole_or_not_at_all_and_never_breaks_the_table()
-> Result<(), LimitError> {
    let (file, to, limit) = small()?;
    assert_eq!(signed(file.clone()), file, "the tests know the checksum");
    let stats = to.stats();
    let limits = every_limit(20, HOUR)?;
    let (mut dice, mut accepted) = (Dice::new(3), 0);
    for _ in 0..10_000 {
        let mut changed = file.clone();
        for _ in 0..1 + dice.roll(3) {
            let at = HEAD + dice.roll((file.len() - HEAD - 8) as u64) as usize;
            changed[at] =
                if dice.roll(2) == 0 { changed[at] ^ 1 << dice.roll(8) } else { dice.roll(256) as u8 };
        }
        let changed = signed(changed);
        let other = memory(SLOTS / 8, ARENA / 8);
        if load(&other, &changed, START).is_err() {
            assert_eq!(other.stats().keys, 0);
            assert!(load(&to, &changed, START).is_err());
            check_untouched(&to, &limit, &stats);
            continue;
        }
        // It says something else, and that can be asked about at any time without harm.
        accepted += 1;
        for (number, limit) in limits.iter().enumerate() {
            let now = Micros::new(START.get() + dice.roll(2 * HOUR.get()));
            inspect(&other, key(number as u64), limit, now);
            charge(&other, key(number as u64), limit, 1, now);
        }
        sweep_round(&other, START.plus(HOUR));
        write(&other, START);
    }
    assert!(accepted > 1_000, "{accepted}");
    Ok(())
}

#[test]
fn reasons_are_told() -> Result<(), LimitError> {
    let (file, to, _) = small()?;
    let version = 1 << 4 | PORTABLE_VERSION;
    let changed = |at: usize, to: u8| {
        let mut file = file.clone();
        file[at] = to;
        signed(file)
    };
    let mut other_length = file.clone();
    // The length of the first state is after its set, tag, heat, class and time.
    let length_at = HEAD + 1 + 4 + 5 + 1 + 8 + 7;
    other_length[length_at..length_at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    for (file, reason) in [
        (b"".to_vec(), "this is no snapshot of counters"),
        (b"tidegat".to_vec(), "this is no snapshot of counters"),
        (b"SQLite format 3\0 and so on".to_vec(), "this is no snapshot of counters"),
        (file[..100].to_vec(), "the snapshot is cut"),
        (changed(8, version + 1), "the snapshot has version 0x12, this release reads 0x11"),
        (changed(9, 0), "the snapshot is damaged (a table of no size)"),
        (changed(9, 31), "the snapshot is damaged (a table of no size)"),
        (changed(10, 1), "the snapshot was written under another secret, so its keys mean nothing here"),
        (changed(HEAD, 2), "the snapshot is damaged (something that is no record)"),
        (changed(HEAD + 4, 1), "the snapshot is damaged (a set that the table did not have)"),
        (changed(HEAD + 9, 0xff), "the snapshot is damaged (a tag that no key has)"),
        (changed(HEAD + 10, 16), "the snapshot is damaged (an unknown heat)"),
        (changed(HEAD + 18, 0xff), "the snapshot is damaged (a class that no limit has)"),
        (changed(length_at + 4, 0), "the snapshot is damaged (a state that no limit has)"),
        (other_length, "the snapshot is damaged (a state that is too long)"),
        (
            [&file[..file.len() - 1], &[!file[file.len() - 1]]].concat(),
            "the snapshot is damaged (its checksum is wrong)",
        ),
    ] {
        let told = load(&to, &file, START).expect_err(reason).to_string();
        assert_eq!(told, format!("{reason}: it was not loaded, counting starts at zero"));
    }
    let larger = memory(16 * SLOTS, ARENA);
    assert_eq!(
        load(&larger, &file, START).expect_err("a table so much larger").to_string(),
        "the snapshot was written by a table of 2^8 sets and cannot be spread over 2^12: it was not loaded, counting starts at zero; \
         grow the memory in smaller steps to keep counts"
    );
    assert_eq!(larger.stats().keys, 0);
    Ok(())
}

#[test]
fn lengths_that_lie_cost_no_memory() -> Result<(), LimitError> {
    let (file, to, _) = small()?;
    let length_at = HEAD + 1 + 4 + 5 + 1 + 8 + 7;
    for length in [1 << 20, (1 << 20) + 1, u32::MAX] {
        let mut lying = file.clone();
        lying[length_at..length_at + 4].copy_from_slice(&u32::to_le_bytes(length));
        let counted = allocation_counter::measure(|| assert!(load(&to, &lying, START).is_err()));
        assert!(counted.bytes_max < 2 << 20, "{length}: {counted:?}");
    }
    Ok(())
}

#[test]
fn a_snapshot_is_written_while_others_ask() -> Result<(), LimitError> {
    let limits = every_limit(1_000, HOUR)?;
    let from = memory(SLOTS, ARENA);
    // How much is asked for meanwhile, nobody knows. A full arena would not have room for the same states in another order.
    let roomy = || memory(SLOTS, 8 * ARENA);
    let is_done = AtomicBool::new(false);
    let limit_of = |number: u64| &limits[number as usize % limits.len()];
    race(4, |number| {
        if number == 0 {
            for _ in 0..20 {
                let file = write(&from, START);
                let loaded = load(&roomy(), &file, START).expect("a snapshot");
                assert_eq!(loaded.left_out, 0);
            }
            is_done.store(true, Ordering::Relaxed);
        } else {
            let mut dice = Dice::new(number as u64);
            while !is_done.load(Ordering::Relaxed) {
                let number = dice.roll(300);
                charge(&from, key(number), limit_of(number), 1, START);
            }
        }
    });
    // And now that it is quiet: what is written is what is there.
    let to = roomy();
    load(&to, &write(&from, START), START).expect("a snapshot");
    for number in 0..300 {
        let used = |memory| inspect(memory, key(number), limit_of(number), START);
        assert_eq!(used(&to), used(&from), "{}", limit_of(number));
    }
    Ok(())
}

#[test]
fn an_empty_table_is_a_file_too() {
    let file = write(&memory(SLOTS, ARENA), START);
    assert_eq!(file.len(), HEAD + TAIL);
    assert_eq!(load(&memory(SLOTS, ARENA), &file, START).expect("a snapshot"), Loaded::default());
}
