//! `cargo xtask envoy`: what users of Envoy rely on. The rows are tests, `crates/tidegate/tests/envoy`; this makes a table of how they
//! ended and of the figures that they leave as lines of JSON.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{Failure, Outcome, shell};

pub(crate) fn details() -> String {
    "\nStarts the real Envoy, an upstream, nodes and Redis, and prints a table as Markdown: each behaviour, whether it holds, a figure.\n\
     The last row is what the filter takes: requests through Envoy with it less the same without, p50 and p99 of one run. Two minutes.\n\
     Parts of the names of tests may follow: cargo xtask envoy in_flight settled"
        .into()
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    if let Some(flag) = arguments.iter().find(|argument| argument.starts_with('-')) {
        return Err(Failure::Usage(format!("unknown flag `{flag}`; there are none")));
    }
    shell::need_redis()?;
    shell::need_envoy()?;
    let figures = shell::target_folder()?.join("envoy.jsonl");
    let _ = std::fs::remove_file(&figures); // Of the last run, if there was one.
    // One after the other: one of them measures times.
    let words = ["test", "--package=tidegate", "--test=envoy", "--", "--test-threads=1"];
    let mut command = shell::cargo(&words);
    let (outcome, written) = shell::echo(command.args(arguments).env("TIDEGATE_ENVOY_FIGURES", &figures));
    let text = std::fs::read_to_string(&figures).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let told =
        lines.filter_map(|line| Some((line["test"].as_str()?.into(), line["figure"].as_str()?.into())));
    println!("\n{}", table(&written, &told.collect()));
    outcome
}

/// A row for each test that ran, in their order.
fn table(written: &str, figures: &BTreeMap<String, String>) -> String {
    let mut text = String::from("| behaviour | result | figure |\n|---|---|---|\n");
    let tests = written.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    for (test, ended) in tests {
        let name = test.rsplit("::").next().unwrap_or(test);
        let result = if ended.ends_with("ok") { "holds" } else { "FAILED" };
        let figure = figures.get(name).map_or("", String::as_str).replace('|', "\\|");
        text += &format!("| {} | {result} | {figure} |\n", name.replace('_', " "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_becomes_a_row() {
        let written =
            "\nrunning 2 tests\ntest places::none_left ... ok\ntest costs::settled ... FAILED\n\nfailures:\n";
        let figures = BTreeMap::from([("none_left".to_string(), "a|b".to_string())]);
        let table = table(written, &figures);
        assert!(table.ends_with("| none left | holds | a\\|b |\n| settled | FAILED |  |\n"), "{table}");
    }
}
