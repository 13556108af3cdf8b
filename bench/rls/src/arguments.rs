//! What can be asked for on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate_bench_common::plan::{FEW, Load, Run};

use crate::server::Subject;

pub(crate) const USAGE: &str = "\
usage: tidegate-bench-rls [--quick | --smoke] [--write]
       tidegate-bench-rls one (--subject NAME | --address ADDRESS) [--load CONNECTIONSxSTREAMS] [--rate N]
           [--keys N] [--seconds N | --calls N]
       tidegate-bench-rls rules FOLDER
subjects: tidegate, bare, bare_multi";

/// What was asked for.
#[derive(PartialEq, Debug)]
pub(crate) enum Request {
    Run(Run),
    /// One load on one subject, for a profiler to look at.
    One(One),
    /// The rules alone, for a node that is started by hand.
    Rules(PathBuf),
    /// What a run starts for each subject that is not the node.
    Child(Subject),
}

/// One load that goes on for a while.
#[derive(PartialEq, Debug)]
pub(crate) struct One {
    pub(crate) on: Target,
    pub(crate) load: Load,
    /// Calls per second; closed loop without.
    pub(crate) rate: Option<u32>,
    pub(crate) keys: u32,
    pub(crate) seconds: u32,
    /// Ends after so many calls, for those who count instructions.
    pub(crate) calls: Option<u32>,
}

/// Who is called.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Target {
    /// A subject that is started for it.
    Started(Subject),
    /// Somebody who serves there already.
    At(SocketAddr),
}

pub(crate) fn parse(words: &[String]) -> Result<Request, String> {
    let request = match words.first().map(String::as_str) {
        Some("one") => one(&words[1..]).map(Request::One),
        Some("rules") => match &words[1..] {
            [folder] => Ok(Request::Rules(folder.into())),
            _ => Err("rules: into which folder?".into()),
        },
        Some("child") => match &words[1..] {
            [name] => subject(name).map(Request::Child),
            _ => Err("a child is told its subject".into()),
        },
        _ => Run::parse(words).map(Request::Run),
    };
    request.map_err(|message| format!("{message}\n\n{USAGE}"))
}

fn one(words: &[String]) -> Result<One, String> {
    let (mut on, mut load, mut rate) = (None, FEW, None);
    let (mut keys, mut seconds, mut calls) = (1_000_000, 10, None);
    for pair in words.chunks(2) {
        let [flag, value] = pair else { return Err(format!("`{}` needs a value", pair[0])) };
        match flag.as_str() {
            "--subject" => on = Some(Target::Started(subject(value)?)),
            "--address" => {
                let address = value.parse().map_err(|_| format!("`{value}` is no address with a port"))?;
                on = Some(Target::At(address));
            }
            "--load" => {
                let (connections, streams) =
                    value.split_once('x').ok_or_else(|| format!("a load is `2x128`, not `{value}`"))?;
                load = Load {
                    connections: number("connections", connections, 4_096)? as usize,
                    streams: number("streams", streams, 1_000)? as usize,
                };
            }
            "--rate" => rate = Some(number(flag, value, 10_000_000)?),
            "--keys" => keys = number(flag, value, 10_000_000)?,
            "--seconds" => seconds = number(flag, value, 3_600)?,
            "--calls" => calls = Some(number(flag, value, u32::MAX)?),
            other => return Err(format!("unknown flag `{other}`")),
        }
    }
    if rate.is_some() && calls.is_some() {
        return Err("an open loop ends after --seconds, not after --calls".into());
    }
    let on = on.ok_or("which subject, or which address?")?;
    Ok(One { on, load, rate, keys, seconds, calls })
}

fn subject(word: &str) -> Result<Subject, String> {
    let known = Subject::ALL.into_iter().find(|subject| subject.word() == word);
    known.ok_or_else(|| format!("unknown subject `{word}`"))
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
    fn one_load_can_be_named_for_a_profiler() {
        let line = "one --subject bare --load 64x1 --rate 4_000 --keys 1000 --seconds 5";
        let load = Load { connections: 64, streams: 1 };
        let (on, rate) = (Target::Started(Subject::Bare), Some(4_000));
        let one = One { on, load, rate, keys: 1_000, seconds: 5, calls: None };
        assert_eq!(parsed(line), Ok(Request::One(one)));
    }

    #[test]
    fn nonsense_is_refused_with_the_usage() {
        for (line, reason) in [
            ("--quik", "unknown argument `--quik`"),
            ("--quick --smoke", "not both"),
            ("one", "which subject, or which address?"),
            ("one --subject redis", "unknown subject `redis`"),
            ("one --address here", "`here` is no address"),
            ("one --subject bare --load 2", "a load is `2x128`, not `2`"),
            ("one --subject bare --load 2x0", "streams is a number from 1 to 1000, not `0`"),
            ("one --subject bare --rate 10 --calls 10", "not after --calls"),
            ("one --subject bare --keys", "`--keys` needs a value"),
            ("one --subject bare --wat 1", "unknown flag `--wat`"),
            ("rules", "into which folder?"),
            ("child", "is told its subject"),
        ] {
            let message = parsed(line).expect_err(line);
            assert!(message.contains(reason) && message.contains("usage:"), "{line}: {message}");
        }
    }
}
