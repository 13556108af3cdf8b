//! The project's own tools: `cargo xtask <verb>`. Start at [`VERBS`]; `main` finds the verb and runs it.

mod accuracy; // every algorithm against an exact log
mod bench; // instructions of each step; the table of counters and calls beside others
mod envoy; // a node behind the real Envoy
mod faults; // a node whose store is in trouble
mod fuzz; // rule files that nobody would write
mod image; // a static binary, and a root with nothing else
mod run; // a node, to try it
mod shell; // runs other programs and fetches the missing ones
mod test; // every check there is, cheapest first
mod tidy; // tests on the text of the repository

use std::process::ExitCode;

/// One verb of `cargo xtask`. Help, dispatch and error messages are all made from [`VERBS`].
struct Verb {
    name: &'static str,
    /// What may follow the name.
    arguments: &'static str,
    about: &'static str,
    /// More words for `cargo xtask help <verb>`.
    details: fn() -> String,
    run: fn(&[String]) -> Outcome,
}

/// All verbs, in the order of the help page. A new one is a module and a row.
const VERBS: &[Verb] = &[
    Verb {
        name: "run",
        arguments: "[FLAG...]",
        about: "run a node on embedded defaults, with demo rules",
        details: run::details,
        run: run::run,
    },
    Verb {
        name: "test",
        arguments: "[--fail-fast] [GROUP...]",
        about: "run every check, or only the named groups",
        details: test::details,
        run: test::run,
    },
    Verb {
        name: "accuracy",
        arguments: "[--quick] [--seed N] [--write | --plots]",
        about: "measure every algorithm against an exact log and print it as Markdown",
        details: accuracy::details,
        run: accuracy::run,
    },
    Verb {
        name: "bench",
        arguments: "[--quick | --full | --smoke] [--write] | steps [--save] | \
                    (field | growth) [--quick | --full | --smoke] [--write] | \
                    (accuracy | strangers | core | rls | redis | control) [--quick | --smoke] [--write]",
        about: "compare a node with others of its kind, count the instructions of each step, or time one thing alone",
        details: bench::details,
        run: bench::run,
    },
    Verb {
        name: "envoy",
        arguments: "[TEST...]",
        about: "put the real Envoy in front of a node, and print what its users rely on as Markdown",
        details: envoy::details,
        run: envoy::run,
    },
    Verb {
        name: "faults",
        arguments: "[--long | --unprotected] [ROW...]",
        about: "break real stores under load, and print what a node answers meanwhile as Markdown",
        details: faults::details,
        run: faults::run,
    },
    Verb {
        name: "fuzz",
        arguments: "[--seconds N] [TARGET [INPUT]]",
        about: "look for rule files that break the loader, or check one that was found",
        details: fuzz::details,
        run: fuzz::run,
    },
    Verb {
        name: "image",
        arguments: "[--quick]",
        about: "build a static binary and the root folder of its image",
        details: image::details,
        run: image::run,
    },
    Verb {
        name: "help",
        arguments: "[VERB]",
        about: "show this page, or more about one verb",
        details: String::new,
        run: help,
    },
];

/// What a verb ends with.
type Outcome = Result<(), Failure>;

/// Why a verb did not end well.
#[derive(Debug)]
enum Failure {
    /// The command line makes no sense: exit code 2.
    Usage(String),
    /// Something that was checked is wrong, or a tool could not be run: exit code 1.
    Failed(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(message)) => {
            eprintln!("\n{message}");
            ExitCode::from(1)
        }
        Err(Failure::Usage(message)) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(arguments: &[String]) -> Outcome {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::Usage(help_page()));
    };
    if matches!(name.as_str(), "--help" | "-h") {
        return help(&[]);
    }
    let verb = find_verb(name)?;
    if rest.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        return help(&arguments[..1]);
    }
    (verb.run)(rest).map_err(|failure| match failure {
        Failure::Usage(message) => Failure::Usage(format!("{message}\n\nusage: {}", usage(verb))),
        failed => failed,
    })
}

fn find_verb(name: &str) -> Result<&'static Verb, Failure> {
    VERBS.iter().find(|verb| verb.name == name).ok_or_else(|| {
        let names: Vec<&str> = VERBS.iter().map(|verb| verb.name).collect();
        Failure::Usage(unknown("verb", name, &names))
    })
}

/// The message for a word that is not in the list it should come from, with the likeliest one.
fn unknown(kind: &str, word: &str, known: &[&str]) -> String {
    let nearest =
        known.iter().min_by_key(|name| distance(word, name)).filter(|name| distance(word, name) <= 2);
    let hint = nearest.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
    format!("unknown {kind} `{word}`{hint}\nthere are: {}", known.join(", "))
}

/// How many letters must be added, dropped or changed to make one word of the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (above, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (at, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}

fn help(arguments: &[String]) -> Outcome {
    match arguments {
        [] => println!("{}", help_page()),
        [name] => {
            let verb = find_verb(name)?;
            println!("{}\n\n{}.\n{}", usage(verb), capitalised(verb.about), (verb.details)());
        }
        [_, more, ..] => {
            return Err(Failure::Usage(format!("`help` takes one verb, so `{more}` is one too many")));
        }
    }
    Ok(())
}

fn help_page() -> String {
    let width = VERBS.iter().map(|verb| verb.name.len() + verb.arguments.len()).max().unwrap_or(0) + 1;
    let mut page = String::from("usage: cargo xtask <verb>\n\n");
    for verb in VERBS {
        let call = format!("{} {}", verb.name, verb.arguments);
        page += &format!("  {call:width$}  {}\n", verb.about);
    }
    page + "\nMore about one: cargo xtask help <verb>"
}

fn usage(verb: &Verb) -> String {
    format!("cargo xtask {} {}", verb.name, verb.arguments)
}

fn capitalised(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage_error(line: &str) -> String {
        let arguments: Vec<String> = line.split_whitespace().map(String::from).collect();
        match dispatch(&arguments) {
            Err(Failure::Usage(message)) => message,
            other => panic!("`{line}` ended with {other:?}"),
        }
    }

    #[test]
    fn a_wrong_word_gets_the_nearest_right_one() {
        assert!(usage_error("tset").contains("did you mean `test`?"));
        assert!(usage_error("test lnt").contains("did you mean `lint`?"));
        assert!(usage_error("bench step").contains("did you mean `steps`?"));
        assert!(usage_error("fuzz load_rule").contains("did you mean `load_rules`?"));
        assert!(usage_error("test --fail-last").contains("did you mean `--fail-fast`?"));
        assert!(!usage_error("deploy").contains("did you mean"));
    }

    #[test]
    fn a_wrong_word_is_told_the_usage() {
        assert!(usage_error("").contains("usage: cargo xtask <verb>"));
        assert!(usage_error("test --wat").contains("usage: cargo xtask test [--fail-fast] [GROUP...]"));
        assert!(usage_error("bench --wat").contains("usage: cargo xtask bench [--quick | --full"));
        assert!(usage_error("help test lint").contains("one too many"));
    }

    #[test]
    fn every_verb_is_on_the_help_page() {
        let page = help_page();
        for verb in VERBS {
            assert!(page.contains(&format!("  {} ", verb.name)), "{page}");
        }
    }

    #[test]
    fn distance_counts_letters() {
        for (from, to, letters) in
            [("", "abc", 3), ("lint", "lint", 0), ("lnt", "lint", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(from, to), letters, "{from} {to}");
        }
    }
}
