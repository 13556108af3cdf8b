//! `cargo xtask faults`: what a node does while its store is in trouble. The rows are tests, `crates/tidegate/tests/faults`; each leaves
//! a line of JSON, and this makes a table of them. Those of the control plane's databases are among its tests, and only run here.

use serde_json::Value;

use crate::{Failure, Outcome, shell, unknown};

const LONG: &str = "--long";
const UNPROTECTED: &str = "--unprotected";
const CONTROL: &str = "control";

/// Of all checks, this share has to be answered without an error.
const ANSWERED_GOAL: f64 = 0.9999;

/// How the rows are run.
#[derive(PartialEq, Debug)]
struct Run {
    flag: Option<&'static str>,
    /// The beginnings of the names of tests; all rows if there are none.
    rows: Vec<String>,
}

pub(crate) fn details() -> String {
    format!(
        "\nBreaks real servers of Redis and Valkey while a node answers 1000 checks a second, row by row, and prints a table as Markdown:\n\
         whether what was promised held, how long answers took, how soon the circuit opened and all was well again, and how much was\n\
         admitted beside the limits. Under the table stands the share of checks that were answered without an error. Four minutes.\n  \
         {LONG}         faults at their full length, twice the load, and every row on both stores\n  \
         {UNPROTECTED}  each row without what protects it: passes only if that is noticed\n\
         Numbers of rows may follow: cargo xtask faults 1 16\n\n\
         {CONTROL}: the control plane's instead, in tests that say what they saw: SQLite and PostgreSQL are killed while edits are\n\
         acknowledged, disks are full, databases hang and are away.\n  \
         {LONG}         1000 kills of SQLite and 50 of PostgreSQL, and five minutes without a database"
    )
}

/// The rows of the control plane's databases.
fn control(is_long: bool) -> Outcome {
    const OUTAGE: &str = "300";
    shell::need_redis()?;
    shell::need_postgres()?;
    for (package, tests, rows) in
        [("tidegate-control", "stores", "faults::"), ("tidegate", "node", "control_faults::")]
    {
        let mut command =
            shell::cargo(&["test", "--package", package, "--test", tests, "--", rows, "--nocapture"]);
        if is_long {
            command.env("TIDEGATE_FAULTS_LONG", "1").env("TIDEGATE_FAULT_SECONDS", OUTAGE);
        }
        shell::run(&mut command)?;
    }
    Ok(())
}

pub(crate) fn run(arguments: &[String]) -> Outcome {
    if let Some((CONTROL, flags)) = arguments.split_first().map(|(first, rest)| (&**first, rest)) {
        return match flags {
            [] => control(false),
            [flag] if flag == LONG => control(true),
            _ => Err(Failure::Usage(format!("`{CONTROL}` may be followed by {LONG}, and by nothing else"))),
        };
    }
    let run = parse(arguments)?;
    shell::need_redis()?;
    shell::need_valkey()?;
    let figures = shell::target_folder()?.join("faults.jsonl");
    let _ = std::fs::remove_file(&figures); // Of the last run, if there was one.
    let mut command =
        shell::cargo(&["test", "--package=tidegate", "--test=faults", "--", "--test-threads=1"]);
    command.args(&run.rows).env("TIDEGATE_FAULTS_FIGURES", &figures);
    match run.flag {
        Some(LONG) => command.env("TIDEGATE_FAULTS_LONG", "1"),
        Some(_) => command.env("TIDEGATE_UNPROTECTED", "1"),
        None => &mut command,
    };
    let outcome = shell::run(&mut command);
    let text = std::fs::read_to_string(&figures).unwrap_or_default();
    let mut lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    lines.sort_by_key(|line| line["row"].as_u64());
    println!("\n{}", table(&lines));
    let answered = answered(&lines);
    if let Some(share) = answered {
        println!(
            "{:.4} % of all checks were answered without an error (goal: {} %)",
            share * 100.0,
            ANSWERED_GOAL * 100.0
        );
    }
    outcome?;
    match answered {
        Some(share) if share < ANSWERED_GOAL => {
            Err(Failure::Failed("too many checks were not answered".into()))
        }
        _ => Ok(()),
    }
}

fn parse(arguments: &[String]) -> Result<Run, Failure> {
    let mut run = Run { flag: None, rows: Vec::new() };
    for argument in arguments {
        if let Ok(number) = argument.parse::<u32>() {
            run.rows.push(format!("row_{number:02}"));
        } else if let Some(flag) = [LONG, UNPROTECTED].into_iter().find(|flag| flag == argument) {
            if run.flag.is_some_and(|other| other != flag) {
                return Err(Failure::Usage(format!("{LONG} or {UNPROTECTED}, not both")));
            }
            run.flag = Some(flag);
        } else if argument.starts_with('-') {
            return Err(Failure::Usage(unknown("flag", argument, &[LONG, UNPROTECTED])));
        } else {
            return Err(Failure::Usage(format!("`{argument}` is no number of a row")));
        }
    }
    Ok(run)
}

/// The share of checks without an error, of runs in which nothing was switched off.
fn answered(lines: &[Value]) -> Option<f64> {
    let protected = lines.iter().filter(|line| line["off"].is_null());
    let sum = |name: &str| protected.clone().filter_map(|line| line[name].as_u64()).sum::<u64>();
    let (checks, errors) = (sum("checks"), sum("errors"));
    (checks > 0).then(|| 1.0 - errors as f64 / checks as f64)
}

/// What has a column of its own; all other figures stand in the last one.
const COLUMNS: [&str; 5] = ["p99_ms", "max_ms", "open_ms", "close_ms", "admitted_by_limit"];

fn table(lines: &[Value]) -> String {
    let mut text = String::from(
        "| row | store | result | p99, max (ms) | open, close (ms) | admitted ÷ limit | more |\n|---|---|---|---|---|---|---|\n",
    );
    for line in lines {
        let figures = &line["figures"];
        let pair = |first: &str, second: &str| match (&figures[first], &figures[second]) {
            (Value::Null, Value::Null) => String::new(),
            (one, other) => format!("{}, {}", shown(one), shown(other)),
        };
        let violations = line["violations"].as_array().map_or(0, Vec::len);
        let result = match (violations, line["off"].as_str()) {
            (0, None) => "passed".to_string(),
            _ if line["undecided"] == true => "undecided: the machine was busy".to_string(),
            (_, None) => "FAILED".to_string(),
            (0, Some(off)) => format!("NOT NOTICED without {off}"),
            (_, Some(off)) => format!("red without {off}, as it should be"),
        };
        let rest = figures.as_object().into_iter().flatten();
        let rest = rest.filter(|(name, _)| !COLUMNS.contains(&name.as_str()));
        let rest: Vec<String> = rest.map(|(name, value)| format!("{name} {}", shown(value))).collect();
        text += &format!(
            "| {} {} | {} | {result} | {} | {} | {} | {} |\n",
            line["row"],
            shown(&line["name"]),
            shown(&line["store"]),
            pair("p99_ms", "max_ms"),
            pair("open_ms", "close_ms"),
            shown(&figures["admitted_by_limit"]),
            rest.join(", ")
        );
    }
    text
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "–".into(),
        Value::String(text) => text.clone(),
        Value::Object(all) => {
            all.iter().map(|(name, value)| format!("{name} {}", shown(value))).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(String::from).collect()
    }

    #[test]
    fn rows_are_named_by_their_numbers() {
        let run = parse(&words("--long 1 16")).expect("a line that can be read");
        assert_eq!(run, Run { flag: Some(LONG), rows: vec!["row_01".into(), "row_16".into()] });
        for wrong in ["--short", "--long --unprotected", "one"] {
            assert!(matches!(parse(&words(wrong)), Err(Failure::Usage(_))), "{wrong}");
        }
        for wrong in ["control 31", "control --long --long", "control --unprotected"] {
            assert!(matches!(super::run(&words(wrong)), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn a_line_of_json_becomes_a_row() {
        let good = json!({
            "row": 1, "name": "primary dies", "store": "Redis", "off": null, "violations": [], "checks": 9_999, "errors": 0,
            "figures": {"p99_ms": 13.1, "max_ms": 15.0, "admitted_by_limit": {"deny": 1.0}, "lost": 0},
        });
        let red = json!({"row": 2, "name": "n", "store": "Redis", "off": "Time", "violations": ["late"], "checks": 5, "errors": 5});
        let bad = json!({"row": 3, "name": "n", "store": "Redis", "off": null, "violations": ["late"], "checks": 1, "errors": 1});
        let lines = [good, red, bad];
        let table = table(&lines);
        assert!(
            table.contains("| 1 primary dies | Redis | passed | 13.1, 15.0 |  | deny 1.0 | lost 0 |"),
            "{table}"
        );
        assert!(table.contains("red without Time, as it should be") && table.contains("FAILED"), "{table}");
        assert_eq!(answered(&lines), Some(0.9999), "what was switched off does not count");
    }
}
