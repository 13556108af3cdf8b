//! Tests of rules: from the documents of a file to what is asked and what is expected. Start at [`load_tests`].

mod places; // what may stand where

use std::path::{Path, PathBuf};

use tidegate_core::{DEPTH_MAX, Micros, Outcome, OwnLimit};

use crate::codes::Code;
use crate::diagnostic::Diagnostic;
use crate::load::{Bytes, FileNames, read_files};
use crate::reader::{Map, Reader, Spanned, Value};
use crate::report::Report;
use crate::source::{Sources, Span};
use crate::yaml::{self, Caps, NodeKind};

use places::TEST_TIME_MAX;
pub use places::{EXPECT, RULE_TESTS, STEP, TEST};

/// How often the tests of one file may ask: a second or two of work, but for sliding logs of thousands.
const ASKS_MAX: u64 = 2_000_000;
/// As many as an entrance takes.
const DESCRIPTORS_MAX: usize = 16;
/// When time starts where nobody says: 2026-01-01T00:00:00Z, as the table has it.
const START_DEFAULT: Micros = Micros::from_secs(1_767_225_600);

/// What was found.
#[derive(Debug)]
pub struct LoadedTests {
    /// The tests, in the order of files and documents; to be used only if there are no errors.
    pub documents: Vec<RuleTests>,
    /// What is wrong.
    pub report: Report,
    /// The files, to show it.
    pub sources: Sources,
}

/// One document: rules and their tests.
#[derive(Debug)]
pub struct RuleTests {
    /// Where it stands.
    pub at: Span,
    /// The files and folders of its rules.
    pub rules: Vec<PathBuf>,
    /// The domain of requests that do not say another.
    pub domain: Option<Spanned<String>>,
    /// When the time of each test starts.
    pub start: Micros,
    /// The tests.
    pub tests: Vec<RuleTest>,
}

/// A story, told in steps.
#[derive(Debug)]
pub struct RuleTest {
    /// What it shows.
    pub name: Spanned<String>,
    /// What happens.
    pub steps: Vec<Step>,
}

/// What happens in a test.
#[derive(Debug)]
pub enum Step {
    /// Time passes.
    Wait(Micros),
    /// A request.
    Ask(Box<AskStep>),
}

/// A request of a test.
#[derive(Debug)]
pub struct AskStep {
    /// The keys and values of each descriptor.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// How often it is asked.
    pub times: u64,
    /// How much time passes between one time and the next.
    pub every: Micros,
    /// The units that each descriptor takes, in their order.
    pub costs: Vec<i64>,
    /// The limit that each descriptor brings.
    pub limit: Option<OwnLimit>,
    /// Its domain, if not that of the document.
    pub domain: Option<Spanned<String>>,
    /// What has to come out.
    pub expect: Option<Expect>,
}

/// What has to come out; what is absent may be anything. Limits are known by name, by the end of their id, or by all of it.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// May it go on?
    pub allowed: Option<Spanned<bool>>,
    /// Why it may not.
    pub code: Option<Spanned<Outcome>>,
    /// The limit that is told; inside, none where there should be none.
    pub rule: Option<Spanned<Option<String>>>,
    /// What is left of it.
    pub remaining: Option<Spanned<u64>>,
    /// How much it allows.
    pub limit: Option<Spanned<u64>>,
    /// The wait; inside, none where there should be none.
    pub retry_after: Option<Spanned<Option<Micros>>>,
    /// The reset that callers are shown.
    pub reset: Option<Spanned<Micros>>,
    /// All limits that were asked.
    pub counted: Option<Spanned<Vec<String>>>,
    /// All limits in shadow that would have refused.
    pub shadow_refused: Option<Spanned<Vec<String>>>,
}

/// Loads files, and folders of files, of tests.
pub fn load_tests(paths: &[PathBuf], caps: &Caps) -> LoadedTests {
    let reader = Reader::new(&[&RULE_TESTS]);
    let texts = read_files(paths, FileNames::Rules, caps, &reader, |folder| {
        Diagnostic::nowhere(Code::NoTests, format!("there is no file of tests in {}", folder.display()))
            .help("their names end in .yaml, .yml or .json; those that begin with a dot are left out")
    });
    read_all(texts, caps, reader)
}

/// Reads tests from a text that is here already.
pub fn load_tests_text(path: &Path, bytes: Vec<u8>, caps: &Caps) -> LoadedTests {
    read_all([(path.to_path_buf(), Ok(bytes))], caps, Reader::new(&[&RULE_TESTS]))
}

fn read_all(texts: impl IntoIterator<Item = (PathBuf, Bytes)>, caps: &Caps, reader: Reader) -> LoadedTests {
    let mut sources = Sources::new();
    let mut documents = Vec::new();
    for (path, bytes) in texts {
        let source = bytes.and_then(|bytes| sources.add(path.display().to_string(), bytes));
        let tree = match source.and_then(|source| yaml::parse(source, &sources, caps)) {
            Ok(tree) => tree,
            Err(trouble) => {
                reader.say(trouble);
                continue;
            }
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let said = tree.documents().filter(|node| node.kind() != NodeKind::Null);
        let read: Vec<RuleTests> = said
            .filter_map(|node| reader.map(node, &RULE_TESTS))
            .map(|map| document(&reader, &map, folder))
            .collect();
        if tree.documents().all(|node| node.kind() == NodeKind::Null) {
            reader.say(no_tests(tree.documents().next().map(|node| node.span()), &path));
        }
        check_work(&reader, &read);
        documents.extend(read);
    }
    LoadedTests { documents, report: reader.finish(), sources }
}

fn no_tests(at: Option<Span>, path: &Path) -> Diagnostic {
    let trouble = Diagnostic::nowhere(Code::NoTests, format!("there is no test in {}", path.display()))
        .help("add one: see docs/testing-rules.md");
    Diagnostic { at, ..trouble }
}

/// What single keys cannot bound.
fn check_work(reader: &Reader, documents: &[RuleTests]) {
    let mut asks = 0_u64;
    for test in documents.iter().flat_map(|document| &document.tests) {
        let mut time_us = 0_u64;
        for step in &test.steps {
            match step {
                Step::Wait(wait) => time_us = time_us.saturating_add(wait.get()),
                Step::Ask(ask) => {
                    asks = asks.saturating_add(ask.times);
                    time_us = time_us.saturating_add(ask.every.get().saturating_mul(ask.times));
                }
            }
        }
        if time_us > TEST_TIME_MAX.get() {
            let message = format!("the test takes more than {TEST_TIME_MAX}");
            reader.say(
                Diagnostic::new(Code::OutOfRange, test.name.span, message).label("all its waits together"),
            );
        }
        if asks > ASKS_MAX {
            let message = format!("the tests of this file ask more than {ASKS_MAX} times");
            reader.say(
                Diagnostic::new(Code::OutOfRange, test.name.span, message)
                    .label("beyond the bound from this one on")
                    .help("ask once with a larger `cost` instead, or split the file"),
            );
            return;
        }
    }
}

fn document(reader: &Reader, map: &Map<'_>, folder: &Path) -> RuleTests {
    let rules = map.list("rules").into_iter().flatten().filter_map(Value::text);
    let rules = rules.map(|text| folder.join(text.value)).collect();
    let tests: Vec<RuleTest> =
        map.list("tests").into_iter().flatten().filter_map(|value| test(reader, value)).collect();
    let empty =
        |list: &Value<'_>| list.node().kind() == NodeKind::List && list.node().items().next().is_none();
    if let Some(list) = map.get("tests").filter(empty) {
        reader.say(
            Diagnostic::new(Code::NoTests, list.span(), "there is no test in `tests`")
                .label("empty")
                .help("add one: see docs/testing-rules.md"),
        );
    }
    let start = map.instant("start").map_or(START_DEFAULT, |start| start.value);
    RuleTests { at: map.span(), rules, domain: owned(map.text("domain")), start, tests }
}

fn test(reader: &Reader, value: Value<'_>) -> Option<RuleTest> {
    let errors = reader.errors();
    let map = value.map()?;
    let steps = map.list("steps").into_iter().flatten().filter_map(|value| step(reader, value));
    let test = RuleTest { steps: steps.collect(), name: owned(map.text("name"))? };
    let expects = |step: &Step| matches!(step, Step::Ask(ask) if ask.expect.is_some());
    // What could not be read may have been what it expects.
    if reader.errors() == errors && !test.steps.iter().any(expects) {
        reader.say(
            Diagnostic::new(Code::NoTests, test.name.span, "the test expects nothing")
                .label("whatever the rules say, it passes")
                .help("add an `expect` to one of its steps"),
        );
    }
    Some(test)
}

fn step(reader: &Reader, value: Value<'_>) -> Option<Step> {
    let map = value.map()?;
    let bad = |at: Span, message: &str, label: &str| {
        reader.say(
            Diagnostic::new(Code::BadStep, at, message)
                .label(label)
                .help("write a step for each: `- ask: { api_key: alice }`, `- wait: 60s`"),
        );
    };
    if let Some(wait) = map.duration("wait") {
        if let Some(other) = map.given().find(|field| field.name != "wait") {
            let message = format!("`wait` stands alone, not beside `{}`", other.name);
            bad(map.key(other.name).unwrap_or(map.span()), &message, "belongs to another step");
        }
        return Some(Step::Wait(wait.value));
    }
    let Some(asked) = map.get("ask") else {
        if map.get("wait").is_none() {
            bad(map.span(), "the step neither asks nor waits", "no `ask` and no `wait`");
        }
        return None;
    };
    let descriptors = descriptors(reader, asked);
    let costs = costs(reader, &map, descriptors.len());
    let whole = |name, default| map.whole(name).map_or(default, |number| number.value);
    let expect = map.get("expect").and_then(|value| expect(reader, value));
    Some(Step::Ask(Box::new(AskStep {
        descriptors,
        times: whole("times", 1),
        every: map.duration("every").map_or(Micros::ZERO, |every| every.value),
        costs,
        limit: own_limit(reader, &map),
        domain: owned(map.text("domain")),
        expect,
    })))
}

fn descriptors(reader: &Reader, asked: Value<'_>) -> Vec<Vec<(String, String)>> {
    let mut descriptors = Vec::new();
    for value in asked.list().into_iter().flatten() {
        let entries = value.names().into_iter().flatten().filter_map(|(key, value)| {
            let value = value.text()?;
            Some((key.value.to_string(), value.value.to_string()))
        });
        let entries: Vec<(String, String)> = entries.collect();
        if value.node().kind() == NodeKind::Map
            && (value.node().entries().next().is_none() || entries.len() > DEPTH_MAX)
        {
            reader.say(Diagnostic::new(
                Code::BadStep,
                value.span(),
                format!("a descriptor has from 1 to {DEPTH_MAX} entries"),
            ));
        }
        descriptors.push(entries);
    }
    if !(1..=DESCRIPTORS_MAX).contains(&descriptors.len()) {
        let message = format!("a request has from 1 to {DESCRIPTORS_MAX} descriptors");
        reader.say(Diagnostic::new(Code::BadStep, asked.span(), message));
    }
    descriptors
}

/// A cost for each descriptor.
fn costs(reader: &Reader, map: &Map<'_>, descriptors: usize) -> Vec<i64> {
    let Some(said) = map.get("cost") else { return vec![1; descriptors] };
    let costs: Vec<Option<i64>> =
        said.list().into_iter().flatten().map(|cost| cost.signed().map(|cost| cost.value)).collect();
    if said.node().kind() != NodeKind::List {
        return vec![costs.first().copied().flatten().unwrap_or(1); descriptors];
    }
    if costs.len() != descriptors {
        reader.say(
            Diagnostic::new(Code::BadStep, said.span(), "not as many costs as descriptors")
                .label(format!("{} for {descriptors}", costs.len()))
                .help("write one for each, or a single one for all"),
        );
    }
    costs.into_iter().map(|cost| cost.unwrap_or(1)).collect()
}

fn own_limit(reader: &Reader, map: &Map<'_>) -> Option<OwnLimit> {
    let rate = map.rate("limit")?;
    let Some(window) = rate.value.window else {
        reader.say(
            Diagnostic::new(Code::NoWindow, rate.span, "a limit without a window")
                .label("in which time?")
                .help("write e.g. `limit: 100/1m`"),
        );
        return None;
    };
    Some(OwnLimit { amount: rate.value.amount, window: window.length })
}

fn expect(reader: &Reader, value: Value<'_>) -> Option<Expect> {
    if value.node().kind() == NodeKind::Scalar {
        let word = value.word()?;
        let allowed = Spanned { value: word.value == "allowed", span: word.span };
        return Some(Expect { allowed: Some(allowed), ..Expect::default() });
    }
    let map = value.map()?;
    if map.given().next().is_none() {
        reader.say(
            Diagnostic::new(Code::BadStep, map.span(), "nothing is expected")
                .label("empty")
                .help("write `allowed`, `refused`, or a map such as `{ allowed: true, remaining: 9 }`"),
        );
    }
    let list = |name| {
        let value = map.get(name)?;
        let texts = value.list().into_iter().flatten().filter_map(Value::text);
        Some(Spanned { value: texts.map(|text| text.value.to_string()).collect(), span: value.span() })
    };
    let rule = owned(map.text("rule"));
    Some(Expect {
        allowed: map.flag("allowed"),
        code: map.word("code").map(|word| word.map(outcome)),
        rule: rule.map(|rule| rule.map(|name| Some(name).filter(|name| name != "none"))),
        remaining: map.whole("remaining"),
        limit: map.whole("limit"),
        retry_after: map.get("retry_after").and_then(retry_after),
        reset: map.duration("reset"),
        counted: list("counted"),
        shadow_refused: list("shadow_refused"),
    })
}

fn retry_after(value: Value<'_>) -> Option<Spanned<Option<Micros>>> {
    if value.node().text().is_some_and(|text| text.eq_ignore_ascii_case("none")) {
        return Some(Spanned { value: None, span: value.span() });
    }
    value.duration().map(|wait| wait.map(Some))
}

fn outcome(word: &str) -> Outcome {
    if word == "COST_EXCEEDS_LIMIT" { Outcome::CostExceedsLimit } else { Outcome::RateLimited }
}

fn owned(text: Option<Spanned<&str>>) -> Option<Spanned<String>> {
    text.map(|text| text.map(str::to_string))
}
