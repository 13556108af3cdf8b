//! Two servers on one store, one stream of requests, and everything that differs.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use prost::Message as _;
use tidegate_clock::{Clock, Stopwatch};
use tidegate_testbed::{Kind, Options, Reply, Server};

use crate::answers::{Answer, Between, Limit};
use crate::dice::Dice;
use crate::differences::{Counters, Difference, Outcome, Step, Take};
use crate::requests::{self, hits, store_name};
use crate::rules::{DOMAINS, Domain, MARKER, MINUTE, SECOND, marker_text};
use crate::servers::{Files, Program, Running, Variables};
use crate::statsd::Totals;
use crate::support::Failed;
use crate::support::grpc::SHOULD_RATE_LIMIT;
use crate::support::messages::Request;

/// More would only repeat the first.
const FOUND_MAX: usize = 5;
/// What is found takes this long at most, on a machine that is busy; the rest of the stream is left out then.
const PLAY_MAX: std::time::Duration = std::time::Duration::from_secs(60);

/// Which servers are compared, and how they are set up.
pub(crate) struct Game<'a> {
    pub(crate) theirs: &'a Program,
    pub(crate) ours: &'a Program,
    pub(crate) seed: u64,
    pub(crate) steps: usize,
    /// For both.
    pub(crate) variables: Variables<'a>,
    /// For the second alone.
    pub(crate) own_variables: Variables<'a>,
    pub(crate) differences: &'static [Difference],
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Differences that are not in the list.
    pub(crate) found: Vec<String>,
    pub(crate) compared: usize,
    /// Steps in which a window ended.
    pub(crate) skipped: usize,
    /// How often each row of the list was needed.
    pub(crate) applied: BTreeMap<&'static str, usize>,
}

struct Table<'a> {
    game: &'a Game<'a>,
    domains: Vec<Domain>,
    redis: Server,
    clock: Clock,
    theirs: Running,
    ours: Running,
    dice: Dice,
    /// How much further ours may have counted, because of steps that were not compared.
    ahead: BTreeMap<String, i64>,
    report: Report,
}

const THEIR_PREFIX: &str = "theirs:";
const OUR_PREFIX: &str = "ours:";

/// Plays it.
pub(crate) async fn play(game: &Game<'_>) -> Report {
    let mut dice = Dice::new(game.seed);
    let domains: Vec<Domain> = DOMAINS.map(|name| Domain::draw(name, &mut dice)).into();
    let mut files: Vec<(&str, String)> =
        DOMAINS.iter().zip(&domains).map(|(name, domain)| (*name, domain.text())).collect();
    files.push((MARKER, marker_text()));
    let files = Files::write(&files);
    let redis = Server::start(Kind::Redis, &Options::new()).unwrap_or_else(|error| panic!("{error}"));
    let address: SocketAddr = redis.address();
    let theirs = Running::start(game.theirs, &files, address, THEIR_PREFIX, game.variables).await;
    let variables = [game.variables, game.own_variables].concat();
    let ours = Running::start(game.ours, &files, address, OUR_PREFIX, &variables).await;
    let (clock, ahead, report) = (Clock::real(), BTreeMap::new(), Report::default());
    let mut table = Table { game, domains, redis, clock, theirs, ours, dice, ahead, report };
    table.compare_pages().await;
    let watch = Stopwatch::start();
    for number in 0..game.steps {
        if table.report.found.len() >= FOUND_MAX || watch.elapsed() > PLAY_MAX {
            break;
        }
        let request = requests::draw(&table.domains, &mut table.dice);
        table.step(number, &request).await;
    }
    table.report
}

impl Table<'_> {
    /// What does not depend on requests.
    async fn compare_pages(&mut self) {
        let (theirs, ours) = (self.theirs.debug("/rlconfig").await, self.ours.debug("/rlconfig").await);
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(String::from).collect();
            lines.sort();
            lines
        };
        let (theirs, ours) = (lines(&theirs.body), lines(&ours.body));
        let only = |of: &[String], not: &[String]| {
            of.iter().filter(|line| !not.contains(line)).cloned().collect::<Vec<_>>()
        };
        if theirs != ours {
            let (theirs, ours) = (only(&theirs, &ours), only(&ours, &theirs));
            self.found(format!("/rlconfig: only theirs {theirs:#?}, only ours {ours:#?}"));
        }
        let health = [
            self.theirs.http("GET", "/healthcheck", "").await,
            self.ours.http("GET", "/healthcheck", "").await,
        ];
        if health[0] != health[1] {
            self.found(format!("/healthcheck: {health:#?}"));
        }
    }

    fn found(&mut self, text: String) {
        self.report.found.push(format!("seed {}: {text}", self.game.seed));
    }

    async fn step(&mut self, number: usize, request: &Request) {
        let by_json = self.dice.once_in(3);
        let (before, _) = self.counters(THEIR_PREFIX);
        let (our_before, _) = self.counters(OUR_PREFIX);
        let known: Vec<String> = before.keys().chain(our_before.keys()).cloned().collect();
        let began = self.now_s();
        let theirs = ask(&self.theirs, request, by_json, &self.clock).await;
        let ours = ask(&self.ours, request, by_json, &self.clock).await;
        let (their_counters, _) = self.counters(THEIR_PREFIX);
        let (our_counters, our_lives) = self.counters(OUR_PREFIX);
        let ended = self.now_s();
        self.settle(1).await;
        let mut theirs = Outcome::new(theirs, their_counters);
        let mut ours = Outcome::new(ours, our_counters);
        if began / MINUTE.secs != ended / MINUTE.secs || began != ended && has_seconds(&theirs.answer) {
            // In one of them a window may have ended: nothing can be said, and what was counted since is another's.
            self.report.skipped += 1;
            self.settle(3).await;
            self.ahead = ahead(&self.theirs.stats.totals(), &self.ours.stats.totals());
        } else {
            self.report.compared += 1;
            let step = self.known(request, &theirs.answer, before, began);
            forget_expired(&step, &known, &mut theirs.counters, &mut ours.counters);
            let (expected, applied) = step.expected(&theirs, self.game.differences);
            applied.iter().for_each(|name| *self.report.applied.entry(name).or_default() += 1);
            let mut wrong = Vec::new();
            if expected.answer != ours.answer {
                wrong.push(format!(
                    "answer\n  theirs   {:?}\n  expected {:?}\n  ours     {:?}",
                    theirs.answer, expected.answer, ours.answer
                ));
            }
            if expected.counters != ours.counters {
                wrong.push(format!(
                    "counters\n  theirs, expected, ours: {:?}",
                    differing(&theirs.counters, &expected.counters, &ours.counters)
                ));
            }
            wrong.extend(self.wrong_lives(&step, &our_lives, ended));
            for (name, by) in &expected.ahead {
                *self.ahead.entry((*name).into()).or_default() += by;
            }
            self.ahead.retain(|_, by| *by != 0);
            let told = self.wrong_stats().await;
            wrong.extend(told);
            if !wrong.is_empty() {
                let door = if by_json { "/json" } else { "gRPC" };
                let asked = requests::json(request);
                self.found(format!(
                    "step {number} by {door}: {asked}\n{}\n{}",
                    wrong.join("\n"),
                    step.told()
                ));
            }
        }
        self.level(&theirs.counters, &ours.counters);
    }

    async fn settle(&mut self, rounds: usize) {
        self.theirs.settle(rounds).await;
        self.ours.settle(rounds).await;
    }

    fn now_s(&self) -> u64 {
        self.clock.wall_now_us() / 1_000_000
    }

    /// The limits that count, by what the reference server told.
    fn known(&self, request: &Request, theirs: &Answer, before: Counters, now_s: u64) -> Step {
        let domain = self.domains.iter().find(|domain| domain.name == request.domain);
        let has = |name: &str| self.game.variables.contains(&(name, "true"));
        let mut takes = Vec::new();
        if let Answer::Decided { statuses, .. } = theirs {
            for (descriptor, status) in request.descriptors.iter().zip(statuses) {
                let rule =
                    domain.filter(|_| descriptor.limit.is_none()).and_then(|it| it.find(&descriptor.entries));
                let flag = |flag: &str| rule.as_ref().is_some_and(|found| found.level.flags.contains(flag));
                takes.push(status.limit.as_ref().map(|Limit { amount, unit, .. }| {
                    let start = now_s / unit.secs * unit.secs;
                    Take {
                        counter: format!("{}{start}", store_name(&self.domains, request, descriptor)),
                        hits: hits(request, descriptor),
                        is_own: descriptor.hits_addend.is_some(),
                        amount: u64::from(*amount),
                        end: start + unit.secs,
                        is_shadow: flag("shadow_mode"),
                        // What is in shadow never decides, not even as a quota.
                        is_quota: !flag("shadow_mode") && (flag("quota_mode") || has("QUOTA_MODE")),
                    }
                }));
            }
        }
        Step { takes, before, is_shadow: has("SHADOW_MODE") }
    }

    /// Every counter that was touched is kept until its window ends, and not much longer.
    fn wrong_lives(&self, step: &Step, lives: &BTreeMap<String, i64>, ended: u64) -> Vec<String> {
        let touched = step.takes.iter().flatten().filter_map(|take| Some((take, *lives.get(&take.counter)?)));
        let wrong = touched.filter(|(take, life)| {
            let start: u64 =
                take.counter.rsplit('_').next().and_then(|start| start.parse().ok()).unwrap_or(0);
            // A second for what passed meanwhile, and one because stores round.
            let at_least = take.end.saturating_sub(ended).saturating_sub(2) as i64;
            let at_most = (take.end - start + JITTER_MAX_S) as i64;
            !(at_least..=at_most).contains(life)
        });
        wrong.map(|(take, life)| format!("{} is kept for {life} s", take.counter)).collect()
    }

    async fn wrong_stats(&mut self) -> Option<String> {
        let wrong = |table: &Self| {
            let ahead = ahead(&table.theirs.stats.totals(), &table.ours.stats.totals());
            (ahead != table.ahead).then_some(ahead)
        };
        if wrong(self).is_some() {
            // A marker may overtake what it stands for, by a round.
            self.settle(3).await;
        }
        let now = wrong(self)?;
        let mut text = String::from("stats, by how much ours is ahead:");
        for (name, by) in &now {
            let was = self.ahead.get(name).copied().unwrap_or(0);
            if was != *by {
                text += &format!("\n  {name} {:+}", by - was);
            }
        }
        for (name, was) in self.ahead.iter().filter(|(name, _)| !now.contains_key(*name)) {
            text += &format!("\n  {name} {:+}", -was);
        }
        self.ahead = now; // Told once.
        Some(text)
    }

    /// All counters with a prefix, and how many seconds each is kept.
    fn counters(&self, prefix: &str) -> (Counters, BTreeMap<String, i64>) {
        let mut client = self.redis.client().expect("the store");
        let (mut counters, mut lives) = (Counters::new(), BTreeMap::new());
        for key in self.redis.keys() {
            let Some(name) =
                String::from_utf8(key).ok().and_then(|key| key.strip_prefix(prefix).map(String::from))
            else {
                continue;
            };
            if name.starts_with(MARKER) {
                continue;
            }
            let full = format!("{prefix}{name}");
            let asked = [vec!["GET", &full], vec!["TTL", &full]];
            let replies = client.pipeline(&asked).expect("the store");
            if let [Reply::Bytes(value), Reply::Integer(life)] = &replies[..] {
                let count = String::from_utf8_lossy(value).parse().unwrap_or(u64::MAX);
                counters.insert(name.clone(), count);
                lives.insert(name, *life);
            }
        }
        (counters, lives)
    }

    /// Gives both the same counters again, mostly those of ours; else, as in a fleet of both, those of theirs.
    fn level(&mut self, theirs: &Counters, ours: &Counters) {
        let (from, of, to, old) = if self.dice.once_in(4) {
            (THEIR_PREFIX, theirs, OUR_PREFIX, ours)
        } else {
            (OUR_PREFIX, ours, THEIR_PREFIX, theirs)
        };
        for (name, count) in of.iter().filter(|(name, count)| old.get(*name) != Some(count)) {
            let life = self.redis.command(&["TTL", &format!("{from}{name}")]).integer().unwrap_or(1).max(1);
            self.redis.command(&["SET", &format!("{to}{name}"), &count.to_string(), "EX", &life.to_string()]);
        }
        for name in old.keys().filter(|name| !of.contains_key(*name)) {
            self.redis.command(&["DEL", &format!("{to}{name}")]);
        }
    }
}

/// Times to live are random there: what nobody asked for may be gone from one and not from the other, also before the step.
fn forget_expired(step: &Step, known: &[String], theirs: &mut Counters, ours: &mut Counters) {
    let is_touched = |name: &String| step.takes.iter().flatten().any(|take| take.counter == *name);
    for name in known.iter().filter(|name| !is_touched(name)) {
        if !theirs.contains_key(name) || !ours.contains_key(name) {
            theirs.remove(name);
            ours.remove(name);
        }
    }
}

/// `EXPIRATION_JITTER_MAX_SECONDS`, by default.
const JITTER_MAX_S: u64 = 300;

async fn ask(server: &Running, request: &Request, by_json: bool, clock: &Clock) -> Answer {
    let now_s = || clock.wall_now_us() / 1_000_000;
    let began = now_s();
    if by_json {
        let page = server.http("POST", "/json", &requests::json(request).to_string()).await;
        return Answer::of_http(&page, Between(began, now_s()));
    }
    match server.grpc.call(SHOULD_RATE_LIMIT, &request.encode_to_vec(), &[]).await {
        Ok(bytes) => Answer::of_grpc(&bytes, Between(began, now_s())),
        Err(Failed::Status(code, text)) => Answer::Failed(code, text),
        Err(broken) => panic!("{}: {broken:?}", server.name),
    }
}

fn has_seconds(answer: &Answer) -> bool {
    let Answer::Decided { statuses, .. } = answer else { return false };
    statuses.iter().any(|status| status.limit.as_ref().is_some_and(|limit| limit.unit == SECOND))
}

/// Of the names that both have to have, how much further ours has counted.
fn ahead(theirs: &Totals, ours: &Totals) -> BTreeMap<String, i64> {
    let compared = |name: &&String| {
        let is_told = name.starts_with("ratelimit.service.") || name.starts_with("ratelimit_server.");
        is_told && !name.contains(&format!(".{MARKER}."))
    };
    let mut ahead: BTreeMap<String, i64> = BTreeMap::new();
    for (name, total) in ours.iter().filter(|(name, _)| compared(name)) {
        *ahead.entry(name.clone()).or_default() += *total as i64;
    }
    for (name, total) in theirs.iter().filter(|(name, _)| compared(name)) {
        *ahead.entry(name.clone()).or_default() -= *total as i64;
    }
    ahead.retain(|_, by| *by != 0);
    ahead
}

fn differing(theirs: &Counters, expected: &Counters, ours: &Counters) -> BTreeMap<String, [Option<u64>; 3]> {
    let names = theirs.keys().chain(expected.keys()).chain(ours.keys());
    let of = |name: &String| [theirs, expected, ours].map(|counters| counters.get(name).copied());
    names.map(|name| (name.clone(), of(name))).filter(|(_, [_, expected, ours])| expected != ours).collect()
}
