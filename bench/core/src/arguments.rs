//! What can be asked for on the command line.

use crate::child::One;
use crate::keys::{Distribution, KEYS_MAX};
use crate::plan::Scale;
use crate::subject::Name;

pub(crate) const USAGE: &str = "\
usage: tidegate-bench-core [--quick | --smoke] [--write]
       tidegate-bench-core flood
       tidegate-bench-core one --subject NAME [--keys N] [--dist uniform|zipf] [--threads N] [--takes N] [--batch N] [--seconds N]
subjects: slot, default_idle, default_full, governor, throttlecrab, limitador, nothing";

/// What was asked for.
#[derive(PartialEq, Debug)]
pub(crate) enum Request {
    Run(Run),
    /// The floods alone.
    Flood,
    /// One workload, for a profiler to look at.
    One(One),
    /// What a run starts for each subject.
    Child {
        subject: Name,
        keys: u32,
        draws: usize,
    },
}

/// A run of the whole bench.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Run {
    pub(crate) scale: Scale,
    /// To `bench/core.md` and `bench/core.json` instead of the terminal.
    pub(crate) write: bool,
}

pub(crate) fn parse(words: &[String]) -> Result<Request, String> {
    let request = match words.first().map(String::as_str) {
        Some("flood") if words.len() == 1 => Ok(Request::Flood),
        Some("one") => one(&words[1..]).map(Request::One),
        Some("child") => child(&words[1..]),
        _ => run(words).map(Request::Run),
    };
    request.map_err(|message| format!("{message}\n\n{USAGE}"))
}

fn run(words: &[String]) -> Result<Run, String> {
    let mut run = Run { scale: Scale::Full, write: false };
    for word in words {
        match word.as_str() {
            "--quick" | "--smoke" if run.scale != Scale::Full => {
                return Err("--quick or --smoke, not both".into());
            }
            "--quick" => run.scale = Scale::Quick,
            "--smoke" => run.scale = Scale::Smoke,
            "--write" => run.write = true,
            other => return Err(format!("unknown argument `{other}`")),
        }
    }
    Ok(run)
}

fn one(words: &[String]) -> Result<One, String> {
    let mut one = One {
        subject: None,
        keys: 10_000_000,
        distribution: Distribution::Uniform,
        threads: 1,
        takes: 1,
        batch: 16,
        seconds: 10,
    };
    for pair in words.chunks(2) {
        let [flag, value] = pair else { return Err(format!("`{}` needs a value", pair[0])) };
        match flag.as_str() {
            "--subject" => one.subject = Some(subject(value)?),
            "--dist" => one.distribution = distribution(value)?,
            "--keys" => one.keys = number(flag, value, KEYS_MAX)?,
            "--threads" => one.threads = number(flag, value, 64)? as usize,
            "--takes" => one.takes = number(flag, value, 16)? as usize,
            "--batch" => one.batch = number(flag, value, 4_096)? as usize,
            "--seconds" => one.seconds = number(flag, value, 3_600)?.into(),
            other => return Err(format!("unknown flag `{other}`")),
        }
    }
    if one.subject.is_none() { Err("which subject?".into()) } else { Ok(one) }
}

fn child(words: &[String]) -> Result<Request, String> {
    let [name, keys, draws] = words else { return Err("a child is told its subject, keys and draws".into()) };
    let draws = draws.parse().map_err(|_| format!("`{draws}` is no number of draws"))?;
    Ok(Request::Child { subject: subject(name)?, keys: number("keys", keys, KEYS_MAX)?, draws })
}

fn subject(word: &str) -> Result<Name, String> {
    Name::ALL.into_iter().find(|name| name.word() == word).ok_or_else(|| format!("unknown subject `{word}`"))
}

fn distribution(word: &str) -> Result<Distribution, String> {
    let known = Distribution::ALL.into_iter().find(|distribution| distribution.name() == word);
    known.ok_or_else(|| format!("unknown distribution `{word}`"))
}

fn number(what: &str, word: &str, most: u32) -> Result<u32, String> {
    let number = word.replace('_', "").parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("{what} is a number from 1 to {most}, not `{word}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_run_is_full_unless_it_is_told_otherwise() {
        for (line, scale, write) in [
            ("", Scale::Full, false),
            ("--quick --write", Scale::Quick, true),
            ("--smoke", Scale::Smoke, false),
        ] {
            assert_eq!(parsed(line), Ok(Request::Run(Run { scale, write })), "{line}");
        }
    }

    #[test]
    fn one_workload_can_be_named_for_a_profiler() {
        let line =
            "one --subject slot --keys 1_000_000 --dist zipf --threads 2 --takes 3 --batch 64 --seconds 5";
        let (subject, distribution) = (Some(Name::Slot), Distribution::Zipf);
        let one = One { subject, keys: 1_000_000, distribution, threads: 2, takes: 3, batch: 64, seconds: 5 };
        assert_eq!(parsed(line), Ok(Request::One(one)));
    }

    #[test]
    fn nonsense_is_refused_with_the_usage() {
        for (line, reason) in [
            ("--quik", "unknown argument `--quik`"),
            ("--quick --smoke", "not both"),
            ("one", "which subject?"),
            ("one --subject redis", "unknown subject `redis`"),
            ("one --subject slot --keys", "`--keys` needs a value"),
            ("one --subject slot --keys 0", "from 1 to 100000000, not `0`"),
            ("one --subject slot --dist normal", "unknown distribution `normal`"),
            ("one --subject slot --wat 1", "unknown flag `--wat`"),
            ("child slot", "a child is told"),
        ] {
            let message = parsed(line).expect_err(line);
            assert!(message.contains(reason) && message.contains("usage:"), "{line}: {message}");
        }
    }
}
