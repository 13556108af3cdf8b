//! The oracle against examples worked out by hand, and against its own definitions.

mod bucket;
mod calendar;
mod cells;
mod clock;
mod concurrency;
mod decisions;
mod definitions;
mod log;
mod shown;
mod text;
mod windows;

use tidegate_oracle::{Answer, Script, run};

/// Runs a script and compares each answer with the words expected of it; words not named may be anything.
#[track_caller]
fn check(script: &str, expected: &[&str]) {
    let script: Script = script.parse().expect("a script");
    let answers = run(&script);
    let shown: Vec<String> = answers.iter().map(Answer::to_string).collect();
    assert_eq!(shown.len(), expected.len(), "answers to\n{script}{shown:#?}");
    for (index, (shown, expected)) in shown.iter().zip(expected).enumerate() {
        let words: Vec<&str> = shown.split(' ').collect();
        for word in expected.split(' ') {
            assert!(words.contains(&word), "#{index} of\n{script}has no {word} in\n{shown}");
        }
    }
}
