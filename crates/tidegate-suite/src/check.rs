//! One script, on a store and on the model side by side. Start at [`check_async`].

use std::collections::HashSet;
use std::fmt;

use tidegate_core::{Bound, Key, Micros, Verdict};
use tidegate_counters::{Counters, Inspection};

use crate::model::Model;
use crate::play::{Decided, Player, Said};
use crate::script::{Line, Request, Script};
use crate::wait::block_on;
use crate::words::tell;

/// Where a store first said something else than the model.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Disagreement {
    /// The line of the script, counted from 1 as it is printed.
    pub line: usize,
    /// What they disagree about: the take or request, and the fields.
    pub about: String,
    /// What the store said.
    pub store: String,
    /// What the model said.
    pub model: String,
    /// The script up to that line.
    pub script: Script,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "the store disagrees with the model in line {}: {}", self.line, self.about)?;
        writeln!(out, "  store: {}", self.store)?;
        writeln!(out, "  model: {}", self.model)?;
        writeln!(out, "the script so far:")?;
        for (at, line) in self.script.lines().iter().enumerate() {
            let mark = if at + 1 == self.line { '>' } else { ' ' };
            writeln!(out, "{mark} {line}")?;
        }
        Ok(())
    }
}

/// What two stores said to the same.
struct Difference {
    about: String,
    store: String,
    model: String,
}

/// Plays a script on a store that is on no runtime, or on another thread's.
pub fn check(store: &impl Counters, script: &Script, prefix: &str) -> Result<(), Disagreement> {
    block_on(check_async(store, script, prefix))
}

/// Plays a script on a store and on a model of its own, and compares all that they say: admitted or not, and every number of every
/// verdict; not the mode, which is the store's own affair. The prefix keeps the counters apart from those of other plays.
///
/// Every batch is rehearsed before it is played: that has to leave no trace, and to say what is then decided.
pub async fn check_async(store: &impl Counters, script: &Script, prefix: &str) -> Result<(), Disagreement> {
    let judge = Model::new();
    let (mut tested, mut model) = (Player::new(store, prefix), Player::new(&judge, prefix));
    let mut presence = Presence::default();
    for (at, line) in script.lines().iter().enumerate() {
        let played = play(line, &mut tested, &mut model, &mut presence).await;
        if let Err(Difference { about, store, model }) = played {
            let so_far = script.lines()[..=at].to_vec();
            let script = Script::new(so_far).unwrap_or_else(|_| script.clone());
            return Err(Disagreement { line: at + 1, about, store, model, script });
        }
    }
    Ok(())
}

/// Plays one line on both.
async fn play(
    line: &Line,
    tested: &mut Player<'_, impl Counters>,
    model: &mut Player<'_, Model>,
    presence: &mut Presence,
) -> Result<(), Difference> {
    let rehearsed = rehearse(line, tested, model).await?;
    let (said, expected) = (tested.play(line).await, model.play(line).await);
    let difference = compare(line, &said, &expected)
        .or_else(|| presence.compare(line, |name| model.key(name), &said, &expected))
        .or_else(|| compare_rehearsed(line, &rehearsed, &said));
    difference.map_or(Ok(()), Err)
}

/// Rehearses the requests of a line, twice; gives what the store said.
async fn rehearse(
    line: &Line,
    tested: &Player<'_, impl Counters>,
    model: &Player<'_, Model>,
) -> Result<Vec<Decided>, Difference> {
    let Line::At { us, requests } = line else { return Ok(Vec::new()) };
    let now = Micros::new(*us);
    let before = tested.inspect_all(requests, now).await;
    let said = tested.rehearse(requests, now).await;
    let expected = model.rehearse(requests, now).await;
    for (at, request) in requests.iter().enumerate() {
        if let Some(difference) = compare_request(at, request, &said[at], &expected[at]) {
            return Err(Difference { about: format!("rehearsed: {}", difference.about), ..difference });
        }
    }
    let (again, after) = (tested.rehearse(requests, now).await, tested.inspect_all(requests, now).await);
    if again != said || after != before {
        return Err(Difference {
            about: "a rehearsal has left something behind".to_owned(),
            store: format!("{again:?} {after:?}"),
            model: format!("{said:?} {before:?}"),
        });
    }
    Ok(said)
}

/// The first request of a batch finds what its rehearsal found; those after it find what it left.
fn compare_rehearsed(line: &Line, rehearsed: &[Decided], said: &Said) -> Option<Difference> {
    let (Line::At { requests, .. }, Said::Decided(said)) = (line, said) else { return None };
    let difference = compare_request(0, requests.first()?, rehearsed.first()?, said.first()?)?;
    Some(Difference {
        about: format!("rehearsed otherwise than decided: {}", difference.about),
        ..difference
    })
}

/// What the model says to each line of a script, for people.
pub fn replay(script: &Script) -> String {
    let model = Model::new();
    let mut player = Player::new(&model, "");
    let mut told = String::new();
    for line in script.lines() {
        told += &format!("{line}\n");
        match block_on(player.play(line)) {
            Said::Nothing => {}
            Said::Decided(decided) => {
                for Decided { admitted, verdicts } in decided {
                    told += if admitted { "  admitted\n" } else { "  refused\n" };
                    told.extend(verdicts.iter().map(|verdict| format!("    {}\n", tell(verdict))));
                }
            }
            Said::Inspected(Ok(seen)) => told += &format!("  used={} {}\n", seen.used, tell(&seen.verdict)),
            said => told += &format!("  {said:?}\n"),
        }
    }
    told
}

fn compare(line: &Line, said: &Said, expected: &Said) -> Option<Difference> {
    match (line, said, expected) {
        (Line::At { requests, .. }, Said::Decided(said), Said::Decided(expected)) => {
            let mut differences =
                requests.iter().enumerate().zip(said.iter().zip(expected)).filter_map(
                    |((at, request), (said, expected))| compare_request(at, request, said, expected),
                );
            differences.next()
        }
        (_, Said::Inspected(Ok(said)), Said::Inspected(Ok(expected))) => {
            let fields = [("used", said.used != expected.used)]
                .into_iter()
                .chain([("verdict", said.verdict != expected.verdict)]);
            let tell = |seen: &Inspection| format!("used={} {}", seen.used, tell(&seen.verdict));
            differ(fields).map(|fields| Difference {
                about: fields,
                store: tell(said),
                model: tell(expected),
            })
        }
        (_, Said::Nothing, Said::Nothing) | (_, Said::Reset(Ok(_)), Said::Reset(Ok(_))) => None,
        _ => Some(Difference {
            about: "it could not answer".to_owned(),
            store: format!("{said:?}"),
            model: format!("{expected:?}"),
        }),
    }
}

fn compare_request(at: usize, request: &Request, said: &Decided, expected: &Decided) -> Option<Difference> {
    let whole = |about: String, tell: &dyn Fn(&Decided) -> String| {
        Some(Difference {
            about: format!("{about} of request {} ({request})", at + 1),
            store: tell(said),
            model: tell(expected),
        })
    };
    if said.verdicts.len() != expected.verdicts.len() {
        return whole("the number of verdicts".to_owned(), &|said| said.verdicts.len().to_string());
    }
    let pairs = said.verdicts.iter().zip(&expected.verdicts);
    for (number, (take, (said, expected))) in request.takes.iter().zip(pairs).enumerate() {
        if let Some(fields) = differ(fields_of(said, expected)) {
            return Some(Difference {
                about: format!("{fields} of take {} ({take}) of request {} ({request})", number + 1, at + 1),
                store: tell(said),
                model: tell(expected),
            });
        }
    }
    if said.admitted != expected.admitted {
        let tell = |said: &Decided| if said.admitted { "admitted" } else { "refused" }.to_owned();
        return whole("the decision".to_owned(), &tell);
    }
    None
}

/// Every field of a verdict, and whether the two differ in it.
fn fields_of(said: &Verdict, expected: &Verdict) -> impl Iterator<Item = (&'static str, bool)> {
    // Taken apart without a rest, so that a new field is not forgotten here.
    let Verdict {
        outcome,
        limit,
        remaining,
        debt,
        reset_after,
        retry_after,
        reset,
        bound: Bound { over, under },
        applied,
        forgiven,
        at,
    } = *expected;
    [
        ("outcome", said.outcome != outcome),
        ("limit", said.limit != limit),
        ("remaining", said.remaining != remaining),
        ("debt", said.debt != debt),
        ("reset_after", said.reset_after != reset_after),
        ("retry_after", said.retry_after != retry_after),
        ("reset", said.reset != reset),
        ("bound over", said.bound.over != over),
        ("bound under", said.bound.under != under),
        ("applied", said.applied != applied),
        ("forgiven", said.forgiven != forgiven),
        ("at", said.at != at),
    ]
    .into_iter()
}

/// The names of what differs, if anything does.
fn differ(fields: impl Iterator<Item = (&'static str, bool)>) -> Option<String> {
    let names: Vec<&str> = fields.filter(|(_, differs)| *differs).map(|(name, _)| name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Which counters have to be there. A store may keep what another would not, but not what was never touched or was reset, and
/// it has to keep what is in use.
#[derive(Default)]
struct Presence {
    /// Those asked about since the start or their last reset.
    touched: HashSet<Key>,
    /// Those that the last batch charged.
    charged: HashSet<Key>,
}

impl Presence {
    fn compare(
        &mut self,
        line: &Line,
        key_of: impl Fn(&str) -> Key,
        said: &Said,
        expected: &Said,
    ) -> Option<Difference> {
        let (is_stored, is_there, is_gone) = match (line, said, expected) {
            (Line::At { requests, .. }, _, Said::Decided(decided)) => {
                self.decided(requests, key_of, decided);
                return None;
            }
            (Line::Inspect { name, .. }, Said::Inspected(Ok(said)), Said::Inspected(Ok(expected))) => {
                (said.stored, expected.used > 0, !self.touched.contains(&key_of(name)))
            }
            (Line::Reset { name }, Said::Reset(Ok(said)), _) => {
                let key = key_of(name);
                (*said, self.charged.remove(&key), !self.touched.remove(&key))
            }
            _ => return None,
        };
        let tell = |stored: bool| if stored { "stored" } else { "not stored" }.to_owned();
        let is_wrong = if is_stored { is_gone } else { is_there };
        is_wrong.then(|| Difference {
            about: "whether there is a counter".to_owned(),
            store: tell(is_stored),
            model: tell(!is_stored),
        })
    }

    fn decided(&mut self, requests: &[Request], key_of: impl Fn(&str) -> Key, decided: &[Decided]) {
        self.charged.clear();
        for (request, decided) in requests.iter().zip(decided) {
            for (take, verdict) in request.takes.iter().zip(&decided.verdicts) {
                let key = key_of(&take.name);
                self.touched.insert(key);
                if verdict.applied > 0 {
                    self.charged.insert(key);
                } else {
                    self.charged.remove(&key);
                }
            }
        }
    }
}
