//! `tidegate test`

use std::io;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use tidegate_config::{
    Diagnostic, KEPT_MAX, LoadedTests, Report, Resolved, Sources, Style, escaped, load_tests,
};

use super::config::tell;
use super::exit::Exit;
use super::output::{self, Output};
use super::settings::SettingFlags;
use crate::rule_tests::{Ran, Subject, junit};

#[derive(Args, Debug)]
#[command(after_help = "\
Ends with 3 if a test fails, and with 78 if a file is not valid. How to write tests: docs/testing-rules.md

Examples:
  tidegate test tests/                              every file of tests in a folder
  tidegate test tests/tiers.yaml --filter free      only tests with \"free\" in their names
  tidegate test tests/ --junit results.xml          for continuous integration, too")]
pub(crate) struct Test {
    /// Files of tests, and folders of them
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Only tests with this in their names
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Write the results to a file too, as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// The form of the answer
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    settings: SettingFlags,
}

impl Test {
    pub(crate) fn run(&self) -> io::Result<Exit> {
        let resolved = self.settings.resolve();
        let tests = load_tests(&self.files, &resolved.settings.rules.caps);
        let subjects = match self.subjects(&resolved, &tests) {
            Ok(subjects) => subjects,
            Err(wrong) => return self.not_valid(&wrong),
        };
        let mut results = Vec::new();
        for subject in subjects {
            results.extend(subject.run(&tests, &self.filter).map_err(io::Error::other)?);
        }
        if results.is_empty() {
            return Err(io::Error::other(format!("no test has {:?} in its name", self.filter)));
        }
        if let Some(path) = &self.junit {
            let write = |text| std::fs::write(path, text);
            let told = |error| io::Error::other(format!("{} cannot be written: {error}", path.display()));
            junit(&results, &tests.sources).and_then(write).map_err(told)?;
        }
        match self.output {
            Output::Json => output::write_json(&as_json(&results, &tests.sources))?,
            Output::Table => output::write(&as_text(&results, &tests.sources))?,
        }
        let passed = results.iter().all(|ran| ran.failures.is_empty());
        Ok(if passed { Exit::Yes } else { Exit::No })
    }

    /// The rules of every document of tests, or all that is wrong with settings, tests and rules. Warnings about rules are left to
    /// `tidegate config check`.
    fn subjects<'t>(
        &self,
        resolved: &Resolved,
        tests: &'t LoadedTests,
    ) -> Result<Vec<Subject<'t>>, Vec<(Report, Sources)>> {
        let mut wrong = vec![(resolved.report.clone(), resolved.sources.clone())];
        let mut of_tests = tests.report.clone();
        let (mut of_domains, mut subjects) = (Vec::new(), Vec::new());
        for document in &tests.documents {
            match Subject::load(document, &resolved.settings.rules, &mut of_domains) {
                Ok(subject) => subjects.push(subject),
                Err(rules) => wrong.push((rules.report, rules.sources)),
            }
        }
        of_domains.into_iter().for_each(|trouble| of_tests.push(trouble));
        wrong.insert(1, (of_tests, tests.sources.clone()));
        if wrong.iter().any(|(report, _)| report.errors() > 0) {
            return Err(wrong);
        }
        for (report, sources) in &wrong {
            tell(report, sources);
        }
        Ok(subjects)
    }

    fn not_valid(&self, wrong: &[(Report, Sources)]) -> io::Result<Exit> {
        match self.output {
            Output::Json => {
                let all: Vec<Value> =
                    wrong.iter().flat_map(|(report, sources)| report.json(sources)).collect();
                output::write_json(&json!({ "passed": 0, "failed": 0, "tests": [], "diagnostics": all }))?;
            }
            Output::Table => wrong.iter().for_each(|(report, sources)| tell(report, sources)),
        }
        Ok(Exit::Config)
    }
}

fn count(results: &[Ran<'_>]) -> (usize, usize) {
    let failed = results.iter().filter(|ran| !ran.failures.is_empty()).count();
    (results.len() - failed, failed)
}

fn as_json(results: &[Ran<'_>], sources: &Sources) -> Value {
    let (passed, failed) = count(results);
    let test = |ran: &Ran<'_>| {
        json!({
            "file": ran.file,
            "line": sources.place(ran.test.name.span.source, ran.test.name.span.start).line,
            "name": ran.test.name.value,
            "passed": ran.failures.is_empty(),
            "failures": ran.failures.iter().map(|failure| failure.json(sources)).collect::<Vec<_>>(),
        })
    };
    let tests: Vec<Value> = results.iter().map(test).collect();
    json!({ "passed": passed, "failed": failed, "tests": tests, "diagnostics": [] })
}

/// A line for each test, then every failure, then how it went.
fn as_text(results: &[Ran<'_>], sources: &Sources) -> String {
    let mut text = String::new();
    for results in results.chunk_by(|one, other| one.file == other.file) {
        text += &format!("{}\n", results[0].file);
        for ran in results {
            let word = if ran.failures.is_empty() { "ok  " } else { "FAIL" };
            text += &format!("  {word}  {}\n", escaped(&ran.test.name.value));
        }
    }
    let failures: Vec<&Diagnostic> = results.iter().flat_map(|ran| &ran.failures).collect();
    for failure in failures.iter().take(KEPT_MAX) {
        text += &format!("\n{}\n", failure.render(sources, Style::Coloured));
    }
    if failures.len() > KEPT_MAX {
        text += &format!("\nand {} more failures\n", failures.len() - KEPT_MAX);
    }
    let (passed, failed) = count(results);
    let failed = if failed == 0 { String::new() } else { format!(", {failed} failed") };
    text + &format!("\n{passed} passed{failed}\n")
}
