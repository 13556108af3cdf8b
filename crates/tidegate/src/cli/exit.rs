//! What the numbers mean that Tidegate ends with.

use std::process::ExitCode;

/// How a verb ended. Wrong usage is told by the parser of the command line, with 2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exit {
    /// It did what it was asked, and the answer is yes.
    Yes,
    /// It could not do what it was asked.
    Failed,
    /// It did what it was asked, and the answer is no.
    No,
    /// A rule or settings file is not valid.
    Config,
}

/// For `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
   0  yes: admitted, valid, the same, passed
   1  could not be done
   2  wrong usage
   3  no: refused, warnings with --strict, differences, failed tests, there is none, changed meanwhile
  78  a file is not valid

Documents: docs/operating.md, docs/rules.md, docs/settings.md, docs/http.md, docs/diagnostics.md, docs/testing-rules.md,
docs/admin-api.md, docs/cli.md";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Yes => 0,
            Exit::Failed => 1,
            Exit::No => 3,
            Exit::Config => 78, // EX_CONFIG of sysexits.h.
        })
    }
}
