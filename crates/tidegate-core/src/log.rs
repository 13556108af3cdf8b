//! The exact sliding log: every charge with its time, for as long as it counts.

use crate::step::Law;
use crate::time::patience;
use crate::{Bound, Micros};

/// Units charged at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    /// When, in µs.
    pub(crate) at_us: u64,
    /// How much; never 0.
    pub(crate) units: u32,
}

/// What a log knows besides its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LogHead {
    /// Time of the last write, in µs.
    pub(crate) last_us: u64,
    /// Units of all entries.
    pub(crate) total: u64,
    /// Entries in use.
    pub(crate) len: u32,
}

/// A log: its head, and entries oldest first, of which the first `head.len` are in use.
#[derive(Debug)]
pub(crate) struct Log<'a> {
    /// What it knows besides its entries.
    pub(crate) head: &'a mut LogHead,
    /// Room for as many entries as the limit can need.
    pub(crate) entries: &'a mut [Entry],
}

impl Log<'_> {
    fn entries(&self) -> &[Entry] {
        &self.entries[..self.head.len as usize]
    }

    /// How many of the oldest entries have left the window at `at`, and their units.
    fn dead(&self, window_us: u64, at_us: u64) -> (usize, u64) {
        let dead = self.entries().partition_point(|entry| entry.at_us + window_us <= at_us);
        (dead, self.entries()[..dead].iter().map(|entry| u64::from(entry.units)).sum())
    }

    /// Drops the oldest entries, which have left the window.
    fn forget(&mut self, dead: usize, used: u64) {
        if dead > 0 {
            self.entries.copy_within(dead..self.head.len as usize, 0);
            self.head.len -= dead as u32;
            self.head.total = used;
        }
    }
}

/// At most L in any W, exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlidingLog {
    pub(crate) amount: u32,
    pub(crate) window_us: u64,
}

/// A log at an instant.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    now_us: u64,
    /// Now, or the last write if that is later.
    at_us: u64,
    /// How many of the oldest entries have left the window.
    dead: usize,
    used: u64,
}

impl Law for SlidingLog {
    type State<'a> = Log<'a>;
    type Seen = Read;

    fn amount(&self) -> u32 {
        self.amount
    }

    fn window_us(&self) -> u64 {
        self.window_us
    }

    fn repair(&self, log: &mut Log<'_>, now: Micros) {
        let ahead = log.head.last_us.saturating_sub(now.get());
        if ahead > patience(self.window_us) {
            let len = log.head.len as usize;
            log.entries[..len].iter_mut().for_each(|entry| entry.at_us = entry.at_us.saturating_sub(ahead));
            log.head.last_us = now.get();
        }
    }

    fn see(&self, log: &Log<'_>, now: Micros) -> Read {
        let at_us = now.get().max(log.head.last_us);
        let (dead, units) = log.dead(self.window_us, at_us);
        Read { now_us: now.get(), at_us, dead, used: log.head.total - units }
    }

    fn at(&self, seen: Read) -> Micros {
        Micros::new(seen.at_us)
    }

    fn used(&self, seen: Read) -> u64 {
        seen.used
    }

    fn wait(&self, log: &Log<'_>, seen: Read, cost: u64) -> Micros {
        let room = u64::from(self.amount) - cost;
        let (mut used, mut ready_us) = (seen.used, seen.now_us);
        for entry in &log.entries()[seen.dead..] {
            if used <= room {
                break;
            }
            used -= u64::from(entry.units);
            ready_us = entry.at_us + self.window_us;
        }
        Micros::new(ready_us - seen.now_us)
    }

    fn reset_after(&self, log: &Log<'_>, seen: Read) -> Micros {
        let newest = log.entries()[seen.dead..].last();
        newest.map_or(Micros::ZERO, |newest| Micros::new(newest.at_us + self.window_us - seen.now_us))
    }

    fn bound(&self, _log: &Log<'_>, _seen: Read) -> Bound {
        Bound::EXACT
    }

    fn charge(&self, log: &mut Log<'_>, seen: Read, units: u32) -> Read {
        log.forget(seen.dead, seen.used);
        let len = log.head.len as usize;
        match log.entries[..len].last_mut() {
            Some(newest) if newest.at_us == seen.at_us => newest.units += units,
            _ => {
                debug_assert!(
                    len < log.entries.len(),
                    "each entry holds a unit, and there is room for every unit"
                );
                if let Some(free) = log.entries.get_mut(len) {
                    *free = Entry { at_us: seen.at_us, units };
                    log.head.len += 1;
                }
            }
        }
        log.head.total += u64::from(units);
        log.head.last_us = seen.at_us;
        Read { dead: 0, used: log.head.total, ..seen }
    }

    fn refund(&self, log: &mut Log<'_>, seen: Read, units: u64, of: Option<Micros>) -> u64 {
        let len = log.head.len as usize;
        let mut given = 0;
        for entry in log.entries[seen.dead..len].iter_mut().rev() {
            if of.is_some_and(|of| entry.at_us != of.get()) {
                continue;
            }
            let part = (units - given).min(u64::from(entry.units));
            entry.units -= part as u32;
            given += part;
            if given == units {
                break;
            }
        }
        if given > 0 {
            log.forget(seen.dead, seen.used);
            log.head.total -= given;
            log.head.last_us = seen.at_us;
            drop_empty(log.head, log.entries);
        }
        given
    }
}

/// Closes the gaps that a refund left.
fn drop_empty(head: &mut LogHead, entries: &mut [Entry]) {
    let mut kept = 0;
    for i in 0..head.len as usize {
        if entries[i].units > 0 {
            entries[kept] = entries[i];
            kept += 1;
        }
    }
    head.len = kept as u32;
}
