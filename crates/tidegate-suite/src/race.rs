//! Requests from several threads at once: what holds in whatever order they come. Start at [`check_threads`].

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate_counters::Counters;

use crate::play::{Player, Said};
use crate::script::{Line, Script};
use crate::wait::block_on;

const THREADS: usize = 4;
/// Requests that each thread makes of each kind.
const ROUNDS: usize = 250;

/// What the threads do at once, and what has to be so afterwards.
struct Race {
    /// The limits, and what is done before.
    before: &'static str,
    /// What a thread asks, in turn by its number: those of different threads name the same counters in another order.
    asks: &'static [&'static str],
    /// What an admitted request is followed by at once.
    then: Option<&'static str>,
    /// How many requests are admitted in all, where that does not depend on their order.
    admitted: Option<u64>,
    /// What each counter has in use afterwards.
    used: &'static [(&'static str, u64)],
}

const RACES: &[Race] = &[
    // All or nothing, to the last unit: the smaller limit decides, and the larger one has charged no more.
    Race {
        before: "limit a sliding_log 700/1h
                 limit b fixed_window 300/1h
                 limit c sliding_window 500/1h
                 limit d token_bucket 400/1h",
        asks: &[
            "a charge 1, b charge 1, c charge 1, d charge 1",
            "d charge 1, c charge 1, b charge 1, a charge 1",
            "b charge 1, d charge 1, a charge 1, c charge 1",
        ],
        then: None,
        admitted: Some(300),
        used: &[("a", 300), ("b", 300), ("c", 300), ("d", 300)],
    },
    // What is refused charges nothing, but what is charged always and what is given back is never lost.
    Race {
        before: "limit p fixed_window 100000/1h charge=always
                 limit q sliding_window_counter 100000/1h
                 limit z gcra 0/1h
                 at 1h: q charge 2000",
        asks: &[
            "p charge 1, q refund 1, q charge 1, z charge 1",
            "z charge 1, q charge 1, q refund 1, p charge 1",
        ],
        then: None,
        admitted: Some(0),
        used: &[("p", (THREADS * ROUNDS) as u64), ("q", 2_000 - (THREADS * ROUNDS) as u64)],
    },
    // Of a quota one has to pass: two of 200 admit until both are full, and shadow takes never decide.
    Race {
        before: "limit a sub_window 200/1h k=6
                 limit b calendar 200/month zone=UTC
                 limit s sliding_log 10/1h",
        asks: &[
            "quota a charge 2, quota b charge 2, shadow s charge 1",
            "shadow s charge 1, quota b charge 2, quota a charge 2",
        ],
        then: None,
        admitted: Some(100),
        used: &[("a", 200), ("b", 200), ("s", 10)],
    },
    // Charged and given back at once: nothing is left, and nothing was charged for a refused request.
    Race {
        before: "limit a sliding_window 3/1h
                 limit b leaky_bucket 3/1h
                 limit p concurrency 3 ttl=1h",
        asks: &["a charge 1, b charge 1, p charge 0", "b charge 1, p charge 0, a charge 1"],
        then: Some("a refund 1, b refund 1"),
        admitted: None,
        used: &[("a", 0), ("b", 0), ("p", 0)],
    },
];

/// Plays requests on a store from several threads at once and looks at what came out; the message tells what should have.
pub fn check_threads(store: &(impl Counters + Sync), prefix: &str) -> Result<(), String> {
    RACES.iter().enumerate().try_for_each(|(at, race)| race.check(store, &format!("{prefix}/race-{at}")))
}

impl Race {
    fn check(&self, store: &(impl Counters + Sync), prefix: &str) -> Result<(), String> {
        let (admitted, start) = (AtomicU64::new(0), Barrier::new(THREADS));
        let setup = self.script("");
        play(store, prefix, setup.lines());
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (admitted, start) = (&admitted, &start);
                scope.spawn(move || {
                    start.wait();
                    admitted.fetch_add(self.run(store, prefix, number), Ordering::Relaxed);
                });
            }
        });
        let admitted = admitted.into_inner();
        if let Some(expected) = self.admitted.filter(|expected| *expected != admitted) {
            return Err(format!("{admitted} requests were admitted instead of {expected}: {self}"));
        }
        for (name, expected) in self.used {
            let look = self.script(&format!("inspect {name} at 1h"));
            let lines: Vec<Line> =
                look.lines().iter().filter(|line| !matches!(line, Line::At { .. })).cloned().collect();
            match play(store, prefix, &lines) {
                Said::Inspected(Ok(seen)) if seen.used == *expected => {}
                said => return Err(format!("`{name}` should have {expected} in use, not {said:?}: {self}")),
            }
        }
        Ok(())
    }

    /// One thread's requests; says how many were admitted.
    fn run(&self, store: &impl Counters, prefix: &str, number: usize) -> u64 {
        let ask = self.asks[number % self.asks.len()];
        let script = self.script(&format!("at 1h: {ask}\nat 1h: {}", self.then.unwrap_or("-")));
        let [before @ .., ask, then] = script.lines() else { unreachable!("two lines were added") };
        let mut player = Player::new(store, prefix);
        let limits = before.iter().filter(|line| matches!(line, Line::Limit { .. }));
        limits.for_each(|line| {
            block_on(player.play(line));
        });
        let mut admitted = 0;
        for _ in 0..ROUNDS {
            let said = block_on(player.play(ask));
            if matches!(said, Said::Decided(decided) if decided.iter().all(|decided| decided.admitted)) {
                admitted += 1;
                if self.then.is_some() {
                    block_on(player.play(then));
                }
            }
        }
        admitted
    }

    fn script(&self, more: &str) -> Script {
        let text = format!("{}\n{more}", self.before);
        text.parse().unwrap_or_else(|error| panic!("a race is a script: {error}\n{text}"))
    }
}

impl std::fmt::Display for Race {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (limits, asks) = (self.script(""), self.asks.join("\n"));
        write!(out, "{THREADS} threads, {ROUNDS} times each, asked\n{limits}{asks}")
    }
}

/// Plays lines and says what was said to the last.
fn play(store: &impl Counters, prefix: &str, lines: &[Line]) -> Said {
    let mut player = Player::new(store, prefix);
    lines.iter().fold(Said::Nothing, |_, line| block_on(player.play(line)))
}
