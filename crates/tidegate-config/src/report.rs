//! All that was found, bounded.

use crate::codes::{Code, Severity};
use crate::diagnostic::{Diagnostic, tame};

/// How many errors are kept, and how many warnings. The rest is counted: a million messages help nobody.
pub const KEPT_MAX: usize = 100;

/// Everything that was found wrong in one load.
#[derive(Clone, Debug, Default)]
pub struct Report {
    errors: Kept,
    warnings: Kept,
    /// How often an error was found, those included that were found before.
    errors_met: usize,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    diagnostics: Vec<Diagnostic>,
    count: usize,
}

impl Report {
    /// Nothing found yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.push_with(diagnostic.code, || diagnostic);
    }

    /// Adds one that is only made if it is kept, for loops that hostile files can make long.
    pub fn push_with(&mut self, code: Code, make: impl FnOnce() -> Diagnostic) {
        let kept = match code.severity() {
            Severity::Error => {
                self.errors_met += 1;
                &mut self.errors
            }
            Severity::Warning => &mut self.warnings,
        };
        if kept.diagnostics.len() < KEPT_MAX {
            let diagnostic = make();
            // What an alias stands for is read wherever the alias stands, and is wrong only once.
            if kept.diagnostics.contains(&diagnostic) {
                return;
            }
            kept.diagnostics.push(diagnostic);
        }
        kept.count += 1;
    }

    /// Takes in all of another.
    pub fn append(&mut self, other: Self) {
        self.errors_met += other.errors_met;
        for (mine, theirs) in [(&mut self.errors, other.errors), (&mut self.warnings, other.warnings)] {
            mine.count += theirs.count;
            let room = KEPT_MAX.saturating_sub(mine.diagnostics.len());
            mine.diagnostics.extend(theirs.diagnostics.into_iter().take(room));
        }
    }

    /// Puts the names of files, as envoyproxy/ratelimit has them, before what it says.
    pub(crate) fn name_theirs(&mut self, name: impl Fn(u32) -> String) {
        for trouble in self.errors.diagnostics.iter_mut().chain(&mut self.warnings.diagnostics) {
            if let (Some(at), Some(text)) = (trouble.at, &mut trouble.reference) {
                *text = format!("{}: {text}", tame(&name(at.source))).into();
            }
        }
    }

    /// How many errors, those not kept included.
    pub fn errors(&self) -> usize {
        self.errors.count
    }

    /// How often an error was found, each time an alias led to it included.
    pub(crate) fn errors_met(&self) -> usize {
        self.errors_met
    }

    /// How many warnings, those not kept included.
    pub fn warnings(&self) -> usize {
        self.warnings.count
    }

    /// Is there nothing to say?
    pub fn is_empty(&self) -> bool {
        self.errors() + self.warnings() == 0
    }

    /// What was kept, by place; what has none comes first.
    pub fn diagnostics(&self) -> Vec<&Diagnostic> {
        let mut all: Vec<&Diagnostic> =
            self.errors.diagnostics.iter().chain(&self.warnings.diagnostics).collect();
        all.sort_by_key(|diagnostic| (diagnostic.at, diagnostic.code));
        all
    }

    /// Errors and warnings that were counted but not kept.
    pub fn left_out(&self) -> (usize, usize) {
        let left_out = |kept: &Kept| kept.count - kept.diagnostics.len();
        (left_out(&self.errors), left_out(&self.warnings))
    }
}
