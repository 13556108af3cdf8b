//! What is switched off, and how long things take.

use std::time::Duration;

/// What protects a row. It can be switched off, and the row has to be red then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protection {
    /// Deadline, timeout of the store and circuit. Off: 10 s, 10 s and none, and clients tell no time of their own.
    Time,
    /// What rules say about a store that does not answer. Off: all say `allow`.
    Policy,
    /// Charges that are on the replica before they count. Off: `replicate` is 0.
    Replicas,
    /// That the store may be asked how it is set up. Off: the node's user may not.
    Sight,
    /// That a fault can be noticed at all: replies are lost with their connection. Off: one is missing, and all later ones move up.
    Order,
    /// That a node which starts does not wait for its store for long. Off: it waits for 3 s.
    Start,
}

/// How a row is played.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    /// What is switched off.
    pub(crate) off: Option<Protection>,
    /// Faults have their full length.
    pub(crate) is_long: bool,
}

impl Way {
    pub(crate) fn has(self, protection: Protection) -> bool {
        self.off != Some(protection)
    }

    /// How long something takes: short for every day, or as the table has it.
    pub(crate) fn lasts(self, short_ms: u64, long_ms: u64) -> Duration {
        Duration::from_millis(if self.is_long { long_ms } else { short_ms })
    }
}

pub(crate) fn is_long() -> bool {
    is_set("TIDEGATE_FAULTS_LONG")
}

pub(crate) fn is_unprotected() -> bool {
    is_set("TIDEGATE_UNPROTECTED")
}

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.is_empty() && value != "0")
}
