//! Results as JUnit XML, which continuous integration shows.

use std::io;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use tidegate_config::{Sources, Style};

use super::Ran;

/// A suite for each file, a case for each test. No times: the tests take none that would say anything.
pub(crate) fn junit(results: &[Ran<'_>], sources: &Sources) -> io::Result<String> {
    let mut report = Report::new("tidegate test");
    for results in results.chunk_by(|one, other| one.file == other.file) {
        let mut suite = TestSuite::new(results[0].file);
        suite.add_test_cases(results.iter().map(|ran| case(ran, sources)));
        report.add_test_suite(suite);
    }
    report.to_string().map_err(io::Error::other)
}

fn case(ran: &Ran<'_>, sources: &Sources) -> TestCase {
    let status = match ran.failures.first() {
        None => TestCaseStatus::success(),
        Some(first) => {
            let all: Vec<String> =
                ran.failures.iter().map(|failure| failure.render(sources, Style::Plain)).collect();
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_type(first.code.id()).set_message(&first.message).set_description(all.join("\n\n"));
            status
        }
    };
    let mut case = TestCase::new(ran.test.name.value.as_str(), status);
    case.set_classname(ran.file);
    case
}
