//! The behaviour suite: what every store of counters has to do, whatever it is made of.
//!
//! A [`Script`] says what happens to several counters: limits, requests of several takes, batches, clocks that jump. [`check`] plays it
//! on a store and on a [`Model`] side by side and reports the first [`Disagreement`]: the line, the take, the fields, what each said. The
//! model keeps one oracle per key (`tidegate-oracle`) and has the rules of a request written out once more, from their wording.
//!
//! A store passes if it agrees on all committed scripts and on random ones, rehearsed and played, and if its requests are atomic:
//!
//! ```
//! use tidegate_suite::{Model, check_random, check_scripts, check_threads};
//!
//! let store = Model::new(); // The store under test.
//! check_scripts(&store, "run-1")?;
//! check_random(&store, "run-1", 10)?;
//! check_threads(&store, "run-1")?;
//! # Ok::<(), String>(())
//! ```
//!
//! The prefix is part of every key: runs on a store that keeps its counters need different ones. Stores that live on a runtime use
//! [`check_async`] with [`scripts`] and [`random_script`]. What they are told as `now` goes years back and forth: a store with a clock
//! of its own has to let the suite set it, and what it may forget (after a time to live, for want of room) it must not forget while
//! a script runs.
//!
//! A disagreement prints the script so far. Put it into `scripts/` with a sentence that says what it caught: it is played for good.

mod words; // limits, asks and verdicts in the core's words and in the oracle's
pub mod script; // what happens to several counters, as text

mod model; // counters that are slow and plainly right
mod play; // a script on one store
mod wait; // futures without a runtime

mod check; // a script on a store and on the model
mod race; // requests from several threads at once
mod random; // scripts drawn at random
mod edges; // those that go to the edges

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::strategy::Strategy;
use proptest::test_runner::{TestCaseError, TestRunner};
use tidegate_counters::Counters;

pub use check::{Disagreement, check, check_async, replay};
pub use edges::{cut_script, edge_script};
pub use model::Model;
pub use play::{Decided, Player, Said};
pub use race::check_threads;
pub use random::{crowded_script, proof, random_script};
pub use script::Script;

/// The committed scripts with their names, in the order of those.
///
/// Panics if one cannot be read: they are part of this crate.
pub fn scripts() -> Vec<(String, Script)> {
    let found = texts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")).into_iter();
    let read = |(name, text): (String, String)| {
        let script = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, script)
    };
    found.map(read).collect()
}

/// The files of a folder with their names, in the order of those.
fn texts(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        found.push((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), text));
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found
}

/// Plays all committed scripts on a store; the message names the first that fails and tells why.
pub fn check_scripts(store: &impl Counters, prefix: &str) -> Result<(), String> {
    for (name, script) in scripts() {
        check(store, &script, &format!("{prefix}/{name}")).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

/// Plays so many random scripts on a store, as many and such as [`proof`] says, and some crowded ones; the message tells of the
/// shortest that fails.
pub fn check_random(store: &impl Counters, prefix: &str, cases: u32) -> Result<(), String> {
    check_drawn(store, &format!("{prefix}/random"), cases, random_script())?;
    // They are ten times as long and of one kind.
    check_drawn(store, &format!("{prefix}/crowded"), cases.div_ceil(100), crowded_script())
}

/// Plays the scripts that were written for the law alone, on a store that compares what it keeps itself.
///
/// Panics if one cannot be read: they are part of the repository.
pub fn play_scripts_of_the_law(store: &impl Counters, prefix: &str) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tidegate-core/tests/scripts");
    let texts = texts(&folder);
    if texts.is_empty() {
        return Err(format!("{}: there are none", folder.display()));
    }
    for (name, text) in texts {
        let script: tidegate_oracle::Script = text.parse().map_err(|error| format!("{name}: {error}"))?;
        let script = Script::of_one(&script).map_err(|error| format!("{name}: {error}"))?;
        play(store, &script, &format!("{prefix}/{name}"));
    }
    Ok(())
}

/// Plays so many scripts that go to the edges, and some crowded ones, on a store that compares what it keeps itself: it panics where that
/// is not right, and the message tells of the shortest script that comes to it.
pub fn play_edges(store: &impl Counters, prefix: &str, cases: u32) -> Result<(), String> {
    play_drawn(store, &format!("{prefix}/edges"), cases, edge_script())?;
    play_drawn(store, &format!("{prefix}/cut"), cases / 2, cut_script())?;
    play_drawn(store, &format!("{prefix}/crowded"), cases.div_ceil(100), crowded_script())
}

fn play_drawn(
    store: &impl Counters,
    prefix: &str,
    cases: u32,
    scripts: impl Strategy<Value = Script>,
) -> Result<(), String> {
    let played = AtomicU64::new(0);
    let outcome = TestRunner::new(proof(cases)).run(&scripts, |script| {
        play(store, &script, &format!("{prefix}/{}", played.fetch_add(1, Ordering::Relaxed)));
        Ok(())
    });
    outcome.map_err(|error| error.to_string())
}

fn play(store: &impl Counters, script: &Script, prefix: &str) {
    let mut player = Player::new(store, prefix);
    for line in script.lines() {
        wait::block_on(player.play(line));
    }
}

fn check_drawn(
    store: &impl Counters,
    prefix: &str,
    cases: u32,
    scripts: impl Strategy<Value = Script>,
) -> Result<(), String> {
    // Each play has a prefix of its own, also while a failing script is made shorter.
    let played = AtomicU64::new(0);
    let outcome = TestRunner::new(proof(cases)).run(&scripts, |script| {
        let prefix = format!("{prefix}/{}", played.fetch_add(1, Ordering::Relaxed));
        check(store, &script, &prefix).map_err(|error| TestCaseError::fail(error.to_string()))
    });
    outcome.map_err(|error| error.to_string())
}
