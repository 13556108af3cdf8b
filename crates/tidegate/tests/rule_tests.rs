//! `tidegate test`, as somebody would run it. `TIDEGATE_BLESS=1 cargo test -p tidegate` writes the golden texts again.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use quick_junit::{Report, TestCaseStatus};
use serde_json::Value;

type Outcome = Result<(), Box<dyn Error>>;

/// What a run said, and how it ended.
struct Run {
    exit: Option<i32>,
    stdout: String,
    stderr: String,
}

/// `tidegate test`, in this folder, without the settings of whoever runs the tests.
fn test_in(folder: &Path, arguments: &[&str]) -> Result<Run, Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TIDEGATE_")) {
        command.env_remove(name);
    }
    let output = command.current_dir(folder).arg("test").args(arguments).output()?;
    Ok(Run {
        exit: output.status.code(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    })
}

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rule_tests")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_example_does_what_it_promises() -> Outcome {
    for entry in fs::read_dir(root().join("examples/rules"))? {
        let name = entry?.file_name();
        assert!(root().join("examples/tests").join(&name).exists(), "{} has no tests", name.display());
    }
    let run = test_in(&root(), &["examples/tests"])?;
    assert_eq!((run.exit, run.stderr.as_str()), (Some(0), ""), "{}", run.stdout);
    Ok(())
}

#[test]
fn failures_and_mistakes_are_told_as_written_down() -> Outcome {
    for (name, exit) in [("failing", 3), ("mistaken", 78)] {
        let run = test_in(&cases(), &[&format!("{name}.yaml")])?;
        assert_eq!(run.exit, Some(exit));
        let told = if exit == 3 { &run.stdout } else { &run.stderr };
        let golden = cases().join(format!("{name}.txt"));
        if std::env::var_os("TIDEGATE_BLESS").is_some() {
            fs::write(&golden, told)?;
        }
        assert_eq!(*told, fs::read_to_string(golden)?, "{name}");
    }
    Ok(())
}

#[test]
fn how_it_ends_says_how_it_went() -> Outcome {
    let folder = tempfile::tempdir()?;
    let two = "domain: one\n---\ndomain: two\n";
    let tests = |rules: &str, top: &str, step: &str| {
        format!(
            "rules: {rules}\n{top}\ntests:\n  - name: a test\n    steps: [{{ ask: {{ a: b }}, {step} }}]\n"
        )
    };
    for (name, text) in [
        ("shop.yaml", "domain: shop\ndescriptors: [{ key: a, rate_limit: { limit: 0/1m } }]\n".into()),
        ("two.yaml", two.into()),
        ("broken.yaml", "domain: shop\ndescriptors: [{ kee: a }]\n".into()),
        ("good.yaml", tests("shop.yaml", "", "expect: refused")),
        ("bad.yaml", tests("shop.yaml", "", "expect: allowed")),
        ("typo.yaml", tests("shop.yaml", "", "expct: refused")),
        ("of-broken.yaml", tests("broken.yaml", "", "expect: refused")),
        ("of-none.yaml", tests("nowhere.yaml", "", "expect: refused")),
        ("of-two.yaml", tests("two.yaml", "", "expect: allowed")),
        ("one-of-two.yaml", tests("two.yaml", "domain: two", "expect: allowed")),
        ("step-of-two.yaml", tests("two.yaml", "", "domain: one, expect: allowed")),
        ("other.yaml", tests("shop.yaml", "domain: shpo", "expect: allowed")),
        ("other-step.yaml", tests("shop.yaml", "", "domain: blog, expect: allowed")),
        ("list.yaml", tests("[shop.yaml, two.yaml]", "domain: shop", "expect: refused")),
        ("empty.yaml", String::new()),
    ] {
        fs::write(folder.path().join(name), text)?;
    }
    for (arguments, exit, said) in [
        (&["good.yaml"][..], 0, "1 passed"),
        (&["list.yaml"], 0, "1 passed"),
        (&["one-of-two.yaml", "step-of-two.yaml"], 0, "2 passed"),
        (&["good.yaml", "bad.yaml"], 3, "1 passed, 1 failed"),
        (&["good.yaml", "--filter", "test"], 0, "1 passed"),
        (&["good.yaml", "--filter", "tset"], 1, "no test has \"tset\" in its name"),
        (&["good.yaml", "--junit", "nowhere/junit.xml"], 1, "nowhere/junit.xml cannot be written"),
        (&[], 2, "<FILE>"),
        (&["good.yaml", "typo.yaml"], 78, "typo.yaml:5"),
        (&["of-broken.yaml"], 78, "broken.yaml:2"),
        (&["of-none.yaml"], 78, "nowhere.yaml cannot be read"),
        (&["of-two.yaml"], 78, "the rules have 2 domains"),
        (&["other.yaml"], 78, "did you mean `shop`?"),
        (&["other-step.yaml"], 78, "the rules have no domain `blog`"),
        (&["empty.yaml"], 78, "error[no-tests]"),
        (&["nowhere.yaml"], 78, "nowhere.yaml cannot be read"),
        (&["good.yaml", "--rules-watch", "perhaps"], 78, "error[not-a-flag]"),
    ] {
        let run = test_in(folder.path(), arguments)?;
        let all = run.stdout + &run.stderr;
        assert_eq!(run.exit, Some(exit), "{arguments:?}: {all}");
        assert!(all.contains(said), "{arguments:?}: {all}");
    }
    Ok(())
}

#[test]
fn settings_hold_for_the_rules() -> Outcome {
    let folder = tempfile::tempdir()?;
    fs::write(
        folder.path().join("rules.yaml"),
        "domain: a\ndescriptors: [{ key: a, rate_limit: { limit: 5/1m } }]\n",
    )?;
    let tests = "rules: rules.yaml\nstart: 2026-01-01T00:00:50Z\ntests:\n  - name: a test\n    steps:\n      \
                 - { ask: { a: b }, cost: 5, expect: { reset: 10s } }\n";
    fs::write(folder.path().join("tests.yaml"), tests)?;
    for (arguments, exit) in
        [(&["tests.yaml"][..], 3), (&["tests.yaml", "--defaults-algorithm", "fixed_window"], 0)]
    {
        let run = test_in(folder.path(), arguments)?;
        assert_eq!(run.exit, Some(exit), "{arguments:?}: {}{}", run.stdout, run.stderr);
    }
    Ok(())
}

/// A counter that was forgotten allows what it should not.
#[test]
fn no_test_passes_on_counters_that_were_forgotten() -> Outcome {
    let folder = tempfile::tempdir()?;
    let rule = "{ key: a, rate_limit: { limit: 5/1024s, algorithm: sub_window, sub_windows: 1024 } }";
    fs::write(folder.path().join("rules.yaml"), format!("domain: a\ndescriptors: [{rule}]\n"))?;
    let steps =
        |keys: u32| (0..keys).map(|key| format!("      - {{ ask: {{ a: {key} }}, expect: allowed }}\n"));
    for (keys, exit, said) in [(300, 0, "1 passed"), (3_000, 3, "the counters of the test need more")] {
        let steps: String = steps(keys).collect();
        let tests = format!("rules: rules.yaml\ntests:\n  - name: a test\n    steps:\n{steps}");
        fs::write(folder.path().join("tests.yaml"), tests)?;
        let run = test_in(folder.path(), &["tests.yaml"])?;
        assert_eq!(run.exit, Some(exit), "{}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains(said), "{}", run.stdout);
    }
    Ok(())
}

#[test]
fn machines_are_told_the_same() -> Outcome {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("junit.xml");
    let file_text = file.to_str().ok_or("a strange folder")?;
    let run = test_in(&cases(), &["failing.yaml", "--output", "json", "--junit", file_text])?;
    assert_eq!(run.exit, Some(3), "{}", run.stderr);
    let json: Value = serde_json::from_str(&run.stdout)?;
    let junit = Report::deserialize_from_str(&fs::read_to_string(&file)?)?;

    assert_eq!((&json["passed"], &json["failed"]), (&2.into(), &4.into()));
    assert_eq!((junit.tests, junit.failures, junit.errors), (6, 4, 0));
    let [suite] = &junit.test_suites[..] else { return Err("not one suite".into()) };
    assert_eq!(suite.name.as_str(), "failing.yaml");
    let tests = json["tests"].as_array().ok_or("no tests")?;
    assert_eq!(tests.len(), suite.test_cases.len());
    for (test, case) in tests.iter().zip(&suite.test_cases) {
        assert_eq!(test["name"], case.name.as_str());
        let failed = matches!(case.status, TestCaseStatus::NonSuccess { .. });
        assert_eq!(test["passed"], !failed, "{test}");
        assert_eq!(
            test["failures"].as_array().is_some_and(|failures| !failures.is_empty()),
            failed,
            "{test}"
        );
    }
    let first = &tests[1]["failures"][0];
    assert_eq!((&first["code"], &first["line"]), (&"test-failed".into(), &10.into()));
    Ok(())
}

#[test]
fn a_file_that_is_not_valid_is_told_to_machines_too() -> Outcome {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("tests.yaml"), "rules: nowhere.yaml\ntests: []\n")?;
    let run = test_in(folder.path(), &["tests.yaml", "--output", "json"])?;
    let json: Value = serde_json::from_str(&run.stdout)?;
    let codes: Vec<&Value> =
        json["diagnostics"].as_array().ok_or("none")?.iter().map(|one| &one["code"]).collect();
    assert_eq!((run.exit, codes), (Some(78), vec![&"no-tests".into(), &"unreadable-file".into()]));
    Ok(())
}

#[test]
fn no_name_can_break_the_answer() -> Outcome {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("rules.yaml"), "domain: a\n")?;
    let tests = r#"{"rules": "rules.yaml", "tests": [{"name": "]]> \u001b[2J <&\"' \n\u202e", "steps":
                [{"ask": {"a": "]]>\u0007<b"}, "expect": {"rule": "</testcase>"}}]}]}"#;
    fs::write(folder.path().join("tests.yaml"), tests)?;
    let run = test_in(folder.path(), &["tests.yaml", "--junit", "junit.xml"])?;
    assert_eq!(run.exit, Some(3), "{}", run.stderr);
    assert!(!run.stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{}", run.stdout);
    let junit = Report::deserialize_from_str(&fs::read_to_string(folder.path().join("junit.xml"))?)?;
    assert_eq!((junit.tests, junit.failures), (1, 1));
    Ok(())
}

/// The page's files are written as it names them, and the command is run that it names.
#[test]
fn the_example_of_the_page_is_true() -> Outcome {
    let folder = tempfile::tempdir()?;
    let page = fs::read_to_string(root().join("docs/testing-rules.md"))?;
    for text in page.split("```yaml\n").skip(1) {
        let path = text.lines().next().and_then(|line| line.strip_prefix("# ")).ok_or("no name")?;
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        fs::write(path, text.split("```").next().unwrap_or(""))?;
    }
    let said = page.split("```text\n").nth(1).and_then(|text| text.split("```").next()).ok_or("no output")?;
    let run = test_in(folder.path(), &["tests/"])?;
    assert_eq!((run.exit, run.stderr.as_str()), (Some(3), ""));
    assert_eq!(run.stdout, said);
    Ok(())
}
