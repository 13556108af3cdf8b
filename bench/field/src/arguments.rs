//! What can be asked for on the command line.

use crate::plan::Extent;

pub(crate) const USAGE: &str = "usage: tidegate-bench-field [accuracy | growth | memory | strangers] \
                                [--quick | --full | --smoke] [--write]";

/// What was asked for.
#[derive(PartialEq, Debug)]
pub(crate) enum Request {
    Run(Run),
    /// How many are admitted, and not how fast.
    Accuracy(Run),
    /// Generators that we did not write.
    Strangers(Run),
    /// What a decision costs as things grow.
    Growth(Run),
    /// What a caller takes of memory.
    Memory(Run),
    /// What a run starts as the server with a fixed answer.
    Bare,
}

/// A run of everything.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Run {
    pub(crate) extent: Extent,
    /// To the files that are published, too.
    pub(crate) write: bool,
}

pub(crate) fn parse(words: &[String]) -> Result<Request, String> {
    let (request, words): (fn(Run) -> Request, _) = match words.split_first() {
        Some((first, rest)) if first == "accuracy" => (Request::Accuracy, rest),
        Some((first, rest)) if first == "strangers" => (Request::Strangers, rest),
        Some((first, rest)) if first == "growth" => (Request::Growth, rest),
        Some((first, rest)) if first == "memory" => (Request::Memory, rest),
        _ => (Request::Run, words),
    };
    let mut run = Run { extent: Extent::Usual, write: false };
    for word in words {
        let extent = Extent::ALL.into_iter().find(|extent| extent.flag() == Some(word));
        match (extent, word.as_str()) {
            (Some(_), _) if run.extent != Extent::Usual => {
                return Err(format!("one of --quick, --full and --smoke, not two\n\n{USAGE}"));
            }
            (Some(extent), _) => run.extent = extent,
            (None, "--write") => run.write = true,
            (None, "bare") if words.len() == 1 => return Ok(Request::Bare),
            (None, other) => return Err(format!("unknown argument `{other}`\n\n{USAGE}")),
        }
    }
    Ok(request(run))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_run_is_the_usual_one_unless_it_is_told_otherwise() {
        for (line, extent, write) in [
            ("", Extent::Usual, false),
            ("--quick --write", Extent::Quick, true),
            ("--full", Extent::Full, false),
            ("--smoke", Extent::Smoke, false),
        ] {
            assert_eq!(parsed(line), Ok(Request::Run(Run { extent, write })), "{line}");
        }
        assert_eq!(parsed("bare"), Ok(Request::Bare));
        let run = Run { extent: Extent::Quick, write: true };
        assert_eq!(parsed("accuracy --quick --write"), Ok(Request::Accuracy(run)));
        assert_eq!(parsed("strangers --quick --write"), Ok(Request::Strangers(run)));
        assert_eq!(parsed("growth --quick --write"), Ok(Request::Growth(run)));
        assert_eq!(parsed("memory --quick --write"), Ok(Request::Memory(run)));
    }

    #[test]
    fn nonsense_is_refused_with_the_usage() {
        for (line, reason) in [
            ("--quick --smoke", "not two"),
            ("--quik", "unknown argument `--quik`"),
            ("bare --write", "unknown argument `bare`"),
        ] {
            let message = parsed(line).expect_err(line);
            assert!(message.contains(reason) && message.contains("usage:"), "{line}: {message}");
        }
    }
}
