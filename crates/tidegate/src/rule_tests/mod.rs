//! Rule tests, run: requests on counters of their own, at a time that only the test moves. Start at [`Subject::run`].

mod compare; // what came out beside what was expected
mod junit; // results for continuous integration
mod story; // a failure, told

use tidegate_config::{
    AskStep, Code, Diagnostic, Loaded, LoadedTests, RuleFiles, RuleTest, RuleTests, Spanned, Step, load,
    nearest, quoted,
};
use tidegate_core::{Book, Descriptor, Entry, Query, Secret};
use tidegate_counters::{Memory, MemoryError, MemorySize};
use tidegate_server::{Room, decide};

pub(crate) use junit::junit;

/// Room for the counters of one test: 260 000 of the small ones.
const COUNTERS_BYTES: usize = 16 << 20;
/// All tests draw the same lots, so that `enforce: 10%` means the same callers each time.
const SECRET: [u8; 16] = [0; 16];

/// Rules, and the tests that they have to pass.
pub(crate) struct Subject<'t> {
    tests: &'t RuleTests,
    book: Book,
    /// The domain of requests that do not say another.
    domain: String,
}

/// What came of one test.
pub(crate) struct Ran<'t> {
    pub(crate) file: &'t str,
    pub(crate) test: &'t RuleTest,
    /// The first of each step.
    pub(crate) failures: Vec<Diagnostic>,
}

impl<'t> Subject<'t> {
    /// The rules of a document of tests. What is wrong with the document is pushed to `wrong`; what is wrong with the rules is in
    /// what was loaded.
    pub(crate) fn load(
        tests: &'t RuleTests,
        files: &RuleFiles,
        wrong: &mut Vec<Diagnostic>,
    ) -> Result<Self, Box<Loaded>> {
        let loaded = load(&RuleFiles { paths: tests.rules.clone(), ..files.clone() });
        if !loaded.is_valid() {
            return Err(Box::new(loaded));
        }
        let names: Vec<&str> = loaded.domains.iter().map(|domain| domain.name.as_str()).collect();
        let asks = || tests.tests.iter().flat_map(|test| &test.steps).filter_map(ask);
        let said = asks().filter_map(|ask| ask.domain.as_ref()).chain(&tests.domain);
        wrong.extend(
            said.filter(|said| !names.contains(&said.value.as_str())).map(|said| unknown(said, &names)),
        );
        let domain = match (&tests.domain, &names[..]) {
            (Some(said), _) => said.value.clone(),
            (None, [only]) => (*only).to_string(),
            (None, _) => {
                if asks().any(|ask| ask.domain.is_none()) {
                    wrong.push(which_domain(tests, names.len()));
                }
                String::new()
            }
        };
        Ok(Self { tests, book: Book::new(loaded.domains, Secret::new(SECRET)), domain })
    }

    /// Runs the tests that have `filter` in their names.
    pub(crate) fn run(&self, all: &'t LoadedTests, filter: &str) -> Result<Vec<Ran<'t>>, MemoryError> {
        let file = all.sources.name(self.tests.at.source);
        let tests = self.tests.tests.iter().filter(|test| test.name.value.contains(filter));
        tests.map(|test| Ok(Ran { file, test, failures: self.run_one(test)? })).collect()
    }

    fn run_one(&self, test: &RuleTest) -> Result<Vec<Diagnostic>, MemoryError> {
        let counters = Memory::new(MemorySize::of_bytes(COUNTERS_BYTES), self.tests.start)?;
        let mut now = self.tests.start;
        let (mut failures, mut room) = (Vec::new(), Room::default());
        for (at, step) in test.steps.iter().enumerate() {
            let ask = match step {
                Step::Wait(wait) => {
                    now = now.plus(*wait);
                    continue;
                }
                Step::Ask(ask) => ask,
            };
            let (entries, descriptors) = query(ask);
            let domain = ask.domain.as_ref().map_or(self.domain.as_str(), |domain| &domain.value);
            let query = Query { domain, entries: &entries, descriptors: &descriptors, lease: None };
            let mut failed = false;
            for time in 1..=ask.times {
                if time > 1 {
                    now = now.plus(ask.every);
                }
                decide(&self.book, &counters, &query, now, &mut room, |decision| {
                    let Some(expect) = ask.expect.as_ref().filter(|_| !failed) else { return };
                    let wrong = compare::compare(expect, decision);
                    if !wrong.is_empty() {
                        failed = true;
                        let since_start = now.minus(self.tests.start);
                        let scene = story::Scene { test, step: at + 1, ask, time, since_start };
                        failures.push(scene.tell(expect, &wrong, decision, &self.book));
                    }
                });
            }
        }
        let stats = counters.stats();
        if stats.evicted_live + stats.unremembered > 0 {
            let message = format!("the counters of the test need more than {COUNTERS_BYTES} bytes");
            failures.push(
                Diagnostic::new(Code::TestFailed, test.name.span, message)
                    .label("some were forgotten")
                    .help("split the test into several"),
            );
        }
        Ok(failures)
    }
}

fn ask(step: &Step) -> Option<&AskStep> {
    if let Step::Ask(ask) = step { Some(ask) } else { None }
}

/// A request in the form that is decided on.
fn query(ask: &AskStep) -> (Vec<Entry<'_>>, Vec<Descriptor>) {
    let mut entries = Vec::new();
    let mut descriptors = Vec::new();
    for (descriptor, &cost) in ask.descriptors.iter().zip(&ask.costs) {
        let from = entries.len();
        entries.extend(descriptor.iter().map(|(key, value)| Entry { key, value }));
        descriptors.push(Descriptor {
            entries: from..entries.len(),
            cost,
            limit: ask.limit,
            own_cost: false,
        });
    }
    (entries, descriptors)
}

fn unknown(said: &Spanned<String>, names: &[&str]) -> Diagnostic {
    let message = format!("the rules have no domain {}", quoted(&said.value));
    let trouble = Diagnostic::new(Code::UnknownDomain, said.span, message).label("not in the rules");
    match nearest(&said.value, names.iter().copied()) {
        Some(near) => trouble.help(format!("did you mean `{near}`?")),
        None => trouble.help("check the spelling, and which files `rules` names"),
    }
}

fn which_domain(tests: &RuleTests, domains: usize) -> Diagnostic {
    let message = format!("the rules have {domains} domains, and the requests do not say which they mean");
    Diagnostic::new(Code::MissingKey, tests.at, message)
        .label("no `domain` in here")
        .help("add `domain` beside `rules`, or to each step")
}
