//! What must hold, and what came out.
//!
//! What is asserted of times, on machines that others use too (criterion D):
//!
//! - No call is missing: each is answered within the second for which a client notes answers. A call whose node is killed (row 37) is
//!   sent once more, to the other node.
//! - 99 of 100 answers came within 20 ms and all within 250 ms on the client's clock, each less what the longest call to the *control*
//!   took at the same time. The control is the same program with a store of its own that nothing happens to, called from the same
//!   thread five times less often: what holds it up is the machine. Where it was held up for more than 5 ms, the machine was
//!   *disturbed*: calls of these moments are judged by the 250 ms alone. Of all calls more than half have to be left, or nothing was
//!   measured. Figures without these allowances are told beside those with them.
//! - A circuit is open 100 ms after the first failure, or as soon as five calls have failed one after the other, where that takes
//!   longer. It is seen on a page that is read every 10 ms, so the time between two readings is allowed on top.
//! - A circuit that opens while the machine is disturbed is not blamed on the fault, nor are answers by policy while it is open.
//! - On healthy shards not more than one answer in a hundred more is by policy than before, or than the control gives by policy, and
//!   99 of 100 come within twice the time of before and 10 ms, in moments without disturbance.
//! - What is found out of time while the control was held up during more than 3 of 100 calls may be the machine's fault: the row is
//!   played again, at most twice. If it still was held up during more than 30 of 100, nothing was measured, and the row is undecided.
//!   What has nothing to do with times (admitted, charged, whose answer, by which policy) is found once and for all. So are units that
//!   were lost with a primary and admitted again, unless the machine was held up as much as that: how many they may be depends on when
//!   another server took over. What has to be on a replica is never lost.
//! - Servers that were held up for a second are taken for dead by the others, and their replicas take over. A row in which that befell a
//!   shard that was to stay well is played again; what was lost there is not counted.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use tidegate_testbed::Kind;

use crate::audit::{Answer, Event, Times, by_key, most_in_any};
use crate::rig::{Key, Rule, Run};
use crate::switch::{Protection, Way, is_long, is_unprotected};
use crate::watch::{Circuit, Seen};

const P99_US: u64 = 20_000;
const MAX_US: u64 = 250_000;

/// A circuit is open so long after the first failure.
const OPEN_US: u64 = 100_000;
/// So many failures in a row open it,
const FAILURES: usize = 5;
/// and it is seen so long after them.
const READ_US: u64 = 30_000;
/// A pause of the machine so long before may be why a circuit opens.
const PAUSE_US: u64 = 150_000;
/// And all is well so long after the store is.
const RECOVER_US: u64 = 1_000_000;

/// More answers by policy than this, of those on healthy shards, are too many.
const HEALTHY_EXTRA: f64 = 0.01;
const HEALTHY_SLACK_US: u64 = 10_000;

/// If what was found may be the machine's fault, a row is played again, so often in all.
const ATTEMPTS: usize = 3;
/// If it did so during more than this of all calls, every time, nothing was measured: times are not judged.
const MEASURED: f64 = 0.7;
/// The machine does something else if the control is held up during more calls than this.
const DISTURBED: f64 = 0.03;

/// What a row found.
pub(crate) struct Report {
    row: u32,
    name: &'static str,
    kind: Kind,
    way: Way,
    violations: Vec<String>,
    /// Is one of them about something else than times?
    is_plain: bool,
    /// Was the machine busy with something else, for more than a moment?
    is_disturbed: bool,
    /// The part of the calls during which it was not.
    undisturbed: f64,
    /// Was it so busy that times mean nothing?
    is_undecided: bool,
    /// Places that were to stay well and whose replica took over.
    moved: Vec<usize>,
    /// How many of the violations are about the machine alone.
    excuses: usize,
    figures: BTreeMap<&'static str, Value>,
    checks: usize,
    errors: usize,
    /// Nodes that were started again, and have forgotten what they spent alone.
    pub(crate) restarts: u64,
    /// What helps to find out why: not for the table.
    notes: String,
}

/// Units that were charged and may be lost with a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    /// On a machine that does nothing else,
    pub(crate) usual: u64,
    /// and whatever it does.
    pub(crate) most: u64,
}

impl Lost {
    pub(crate) const NONE: Self = Self { usual: 0, most: 0 };
}

impl From<u64> for Lost {
    fn from(units: u64) -> Self {
        Self { usual: units, most: units }
    }
}

/// Rows measure times, so only one runs at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Plays a row. Every day on the first of these stores, in its long form on all.
pub(crate) fn row(
    number: u32,
    name: &'static str,
    kinds: &[Kind],
    protection: Protection,
    act: impl Fn(Kind, Way, &mut Report),
) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if is_unprotected() {
        red(number, name, kinds[0], protection, &act);
        return;
    }
    let way = Way { off: None, is_long: is_long() };
    let kinds = if way.is_long { &Kind::ALL[..] } else { kinds };
    for kind in kinds {
        let mut report = Report::of(number, name, *kind, way, &act);
        for _ in 1..ATTEMPTS {
            if report.violations.is_empty() || report.is_plain || !report.is_disturbed {
                break;
            }
            println!("row {number} is played again: {}", report.violations.join("; "));
            report = Report::of(number, name, *kind, way, &act);
        }
        let is_measured = report.undisturbed >= MEASURED && report.moved.is_empty();
        report.is_undecided = !report.violations.is_empty() && !report.is_plain && !is_measured;
        report.write();
        if report.is_undecided {
            println!(
                "row {number} is undecided, the machine did something else:\n  {}",
                report.violations.join("\n  ")
            );
            continue;
        }
        assert!(
            report.violations.is_empty(),
            "{}\n{}\nrow {number} on {kind:?}:\n  {}",
            report.notes,
            report.line(),
            report.violations.join("\n  ")
        );
    }
}

/// Plays a row without its protection, and wants it red for this reason.
pub(crate) fn without(
    number: u32,
    name: &'static str,
    protection: Protection,
    reason: &str,
    act: impl Fn(Kind, Way, &mut Report),
) {
    if is_unprotected() {
        return; // The row itself does the same.
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = red(number, name, Kind::Redis, protection, &act);
    assert!(found.iter().any(|found| found.contains(reason)), "it is not red because {reason}");
}

fn red(
    number: u32,
    name: &'static str,
    kind: Kind,
    protection: Protection,
    act: &impl Fn(Kind, Way, &mut Report),
) -> Vec<String> {
    let way = Way { off: Some(protection), is_long: false };
    let report = Report::of(number, name, kind, way, act);
    report.write();
    println!("row {number} without {protection:?} is red:\n  {}", report.violations.join("\n  "));
    assert!(
        report.violations.len() > report.excuses,
        "row {number} does not notice that {protection:?} is switched off\n{}",
        report.line()
    );
    report.violations
}

impl Report {
    fn of(row: u32, name: &'static str, kind: Kind, way: Way, act: &impl Fn(Kind, Way, &mut Report)) -> Self {
        let (violations, figures) = (Vec::new(), BTreeMap::new());
        let mut report = Self {
            row,
            name,
            kind,
            way,
            violations,
            is_plain: false,
            is_disturbed: false,
            undisturbed: 1.0,
            is_undecided: false,
            moved: Vec::new(),
            excuses: 0,
            figures,
            checks: 0,
            errors: 0,
            restarts: 0,
            notes: String::new(),
        };
        act(kind, way, &mut report);
        report
    }

    /// Something that has to be so, whatever the machine does.
    pub(crate) fn must(&mut self, is_so: bool, what: impl FnOnce() -> String) {
        self.in_time(is_so, what);
        self.is_plain |= !is_so;
    }

    /// Something that has to be so where the machine does nothing else.
    pub(crate) fn in_time(&mut self, is_so: bool, what: impl FnOnce() -> String) {
        if !is_so {
            self.violations.push(what());
        }
    }

    /// Something that the machine did, so that the row has to be played again.
    fn excuse(&mut self, is_so: bool, what: impl FnOnce() -> String) {
        self.in_time(is_so, what);
        self.excuses += usize::from(!is_so);
    }

    /// So many units were lost. Where a server was to take over, that is no matter of times as long as times can be judged.
    fn lost(&mut self, run: &Run, units: u64, lost: Lost, what: impl Fn(u64) -> String) {
        let depends = run.rig.needs.replicas > 0 && self.undisturbed < MEASURED;
        let allowed = if units > lost.most { lost.most } else { lost.usual };
        self.in_time(units <= allowed, || what(allowed));
        self.is_plain |= units > lost.most && !depends;
    }

    /// A number for the table.
    pub(crate) fn figure(&mut self, name: &'static str, value: impl Into<Value>) {
        self.figures.insert(name, value.into());
    }

    /// D: every call is answered, and from the fault on in time.
    pub(crate) fn answers(&mut self, run: &Run, from_us: u64) {
        let after: Vec<&Event> = run.record.events.iter().filter(|event| event.sent_us >= from_us).collect();
        self.answers_of(run, from_us, &after);
    }

    /// The same, where only these have to be in time.
    pub(crate) fn answers_of(&mut self, run: &Run, from_us: u64, timed: &[&Event]) {
        let record = &run.record;
        self.notes = format!("{}\nthe fault began at {from_us}; circuits:\n", run.rig.logs());
        for change in &run.seen.changes {
            self.notes += &format!("  {change:?}\n");
        }
        self.checks += record.events.len();
        self.errors += record.events.iter().filter(|event| event.is_error()).count();
        let count = |answer: &Answer| record.events.iter().filter(|event| event.answer == *answer).count();
        let missing = record.events.iter().filter(|event| event.answer == Answer::Missing);
        let (missing, broken) =
            (missing.filter(|event| !record.is_disturbed(event)).count(), count(&Answer::Broken));
        self.in_time(missing == 0, || format!("{missing} calls were not answered"));
        self.must(broken == 0, || format!("{broken} calls broke"));
        let failed: Vec<i32> = record.events.iter().filter_map(status).collect();
        self.must(failed.is_empty(), || {
            format!("{} calls failed, the first with status {}", failed.len(), failed[0])
        });
        let before = record.events.iter().filter(|event| event.sent_us < from_us);
        let timed = || timed.iter().copied().filter(|event| !event.is_retried);
        let (seen, blamed) = (record.times(timed()), record.blamed(timed()));
        self.in_time(blamed.p99_us <= P99_US, || {
            format!("99 of 100 answers within {}", told(&blamed, &seen))
        });
        let left = blamed.count as f64 / seen.count.max(1) as f64;
        self.is_disturbed = left < 1.0 - DISTURBED;
        self.undisturbed = left;
        self.excuse(left > 0.5, || {
            format!("the machine was disturbed during {:.0} % of all calls", 100.0 - left * 100.0)
        });
        self.figure("undisturbed_percent", (left * 100.0).round());
        self.in_time(blamed.max_us <= MAX_US, || format!("all answers within {}", told(&blamed, &seen)));
        let control = Times::of(record.control.iter().map(|call| call.received_us - call.sent_us).collect());
        self.figure("p99_before_ms", ms(record.times(before).p99_us));
        self.figure("p99_ms", ms(seen.p99_us));
        self.figure("max_ms", ms(seen.max_us));
        self.figure("p99_blamed_ms", ms(blamed.p99_us));
        self.figure("max_blamed_ms", ms(blamed.max_us));
        self.figure("p99_control_ms", ms(control.p99_us));
        self.figure("max_control_ms", ms(control.max_us));
        self.admitted(run);
        self.modes(run);
    }

    /// Shards that nothing happened to answer as before.
    pub(crate) fn healthy(&mut self, run: &Run, sick: &[usize], from_us: u64) {
        let record = &run.record;
        self.moved = run.moved.iter().copied().filter(|place| !sick.contains(place)).collect();
        self.is_disturbed |= !self.moved.is_empty();
        let moved = self.moved.clone();
        self.excuse(moved.is_empty(), || format!("servers that were well were taken for dead: {moved:?}"));
        let sick = &[sick, &moved].concat()[..];
        // Whether a circuit may be open is another question, and asked first.
        self.stays_closed(run, sick, from_us);
        let healthy = |event: &&Event| {
            let place = run.rig.keys[event.key].place;
            !sick.contains(&place) && !is_open(run, place, event)
        };
        let before = || record.events.iter().filter(healthy).filter(|event| event.sent_us < from_us);
        let after = || record.events.iter().filter(healthy).filter(|event| event.sent_us >= from_us);
        let share = |events: &mut dyn Iterator<Item = &Event>| {
            let (mut all, mut other) = (0, 0);
            for event in events.filter(|event| !record.is_disturbed(event)) {
                all += 1;
                other += usize::from(!event.is_exact());
            }
            other as f64 / f64::from(all.max(1))
        };
        let (other_before, other_after) = (share(&mut before()), share(&mut after()));
        let control = record.control.iter().filter(|call| call.sent_us >= from_us);
        let control_other = control.clone().filter(|call| !call.is_exact).count();
        let control_other = control_other as f64 / control.count().max(1) as f64;
        self.in_time(other_after <= other_before.max(control_other) + HEALTHY_EXTRA, || {
            format!(
                "on healthy shards {:.2} % of all answers were not by the store, {:.2} % before",
                other_after * 100.0,
                other_before * 100.0
            )
        });
        let (then, now) = (record.blamed(before()), record.blamed(after()));
        self.in_time(now.p99_us <= 2 * then.p99_us + HEALTHY_SLACK_US, || {
            format!("on healthy shards 99 of 100 within {} ms, {} ms before", ms(now.p99_us), ms(then.p99_us))
        });
        // Like with like: both without what the machine took.
        let ratio = now.p99_us as f64 / then.p99_us.max(1) as f64;
        self.figure("healthy_p99_ratio", (ratio * 100.0).round() / 100.0);
        self.figure("healthy_by_policy", after().filter(|event| !event.is_exact()).count());
    }

    /// The circuit of a shard opens soon after the first failure.
    pub(crate) fn opens(&mut self, run: &Run, sick: &[usize], from_us: u64) {
        let mut slowest = None;
        for (place, node) in
            sick.iter().flat_map(|place| (0..run.rig.nodes.len()).map(move |node| (*place, node)))
        {
            let failures = failures(run, place, node, from_us);
            let (Some(first_us), shard) = (failures.first(), run.rig.shard(place)) else {
                self.in_time(false, || {
                    format!("nobody was answered by policy for place {place} on node {node}")
                });
                continue;
            };
            let there =
                || run.seen.changes.iter().filter(|change| change.node == node && change.shard == shard);
            let at_first = there().rfind(|change| change.seen_us <= *first_us);
            if at_first.is_some_and(|change| change.seen_us < *first_us && change.state != Circuit::Closed) {
                continue; // A pause of the machine has opened it before the fault could.
            }
            let opened = there().find(|change| change.seen_us >= from_us && change.state != Circuit::Closed);
            let Some(opened) = opened else {
                self.in_time(false, || format!("the circuit of {shard} never opened on node {node}"));
                continue;
            };
            // Where calls are few, the failures that it takes may need longer than that.
            let enough_us = failures.get(FAILURES - 1).map_or(0, |last_us| last_us + READ_US);
            let latest_us = (first_us + OPEN_US).max(enough_us);
            // It opened between two readings of the page; the earlier is what can be proved.
            self.in_time(opened.after_us <= latest_us, || {
                let late = ms(opened.after_us.saturating_sub(*first_us));
                format!(
                    "the circuit of {shard} opened {late} ms after the first of {} failures",
                    failures.len()
                )
            });
            slowest = slowest.max(Some(opened.seen_us.saturating_sub(*first_us)));
        }
        self.figure("open_ms", slowest.map(ms));
    }

    /// Circuits of shards that are well stay closed.
    fn stays_closed(&mut self, run: &Run, sick: &[usize], from_us: u64) {
        let healthy = (0..crate::rig::PRIMARIES).filter(|place| !sick.contains(place));
        for place in healthy {
            let shard = run.rig.shard(place);
            let opened = run.seen.changes.iter().any(|change| {
                let is_there = change.shard == shard && change.state == Circuit::Open;
                let is_calm = !run
                    .record
                    .is_disturbed_between(change.after_us.saturating_sub(PAUSE_US), change.seen_us);
                is_there && change.seen_us >= from_us && is_calm
            });
            self.in_time(!opened, || format!("the circuit of {shard} opened, which is well"));
        }
    }

    /// From a second after the store was well again, it answers for all.
    pub(crate) fn recovers(&mut self, run: &Run, sick: &[usize], well_us: u64) {
        // What has to be on a replica is refused for as long as there is none.
        let of_sick = |event: &&Event| {
            let key = &run.rig.keys[event.key];
            sick.contains(&key.place) && key.rule != Rule::Kept
        };
        let after = || run.record.events.iter().filter(of_sick).filter(|event| event.sent_us >= well_us);
        let late =
            after().filter(|event| event.sent_us > well_us + RECOVER_US && !run.record.is_disturbed(event));
        let (mut all, mut other) = (0_usize, 0_usize);
        for event in late {
            all += 1;
            other += usize::from(!event.is_exact());
        }
        self.in_time(all > 0, || "nobody called a second after the store was well".into());
        self.in_time(other as f64 <= all as f64 * HEALTHY_EXTRA, || {
            format!("from a second after the store was well, {other} of {all} answers were not by it")
        });
        // The same few are left out here.
        let mut others: Vec<u64> =
            after().filter(|event| !event.is_exact()).map(|event| event.sent_us).collect();
        others.sort_unstable();
        let kept = others.len().saturating_sub((all as f64 * HEALTHY_EXTRA) as usize);
        let settled_us = others[..kept].last().copied().unwrap_or(well_us);
        self.figure("close_ms", ms(settled_us - well_us));
    }

    /// C: what the counters hold is what clients were told, but for so many units that were lost with a server.
    pub(crate) fn charged(&mut self, run: &Run, may_be: Lost) {
        let events = by_key(run.record.events.iter());
        let (mut lost, mut more) = (0, 0);
        for (number, key) in run.rig.keys.iter().enumerate().filter(|(_, key)| key.rule.has_quota()) {
            let all = events.get(&number).map(Vec::as_slice).unwrap_or_default();
            let sum = |chosen: &dyn Fn(&&&Event) -> bool| -> u64 {
                all.iter().filter(chosen).map(|event| event.cost).sum()
            };
            let admitted = sum(&|event| event.is_exact() && event.is_admitted());
            // Whoever was answered by policy may have been charged: only the reply was lost.
            let unknown = sum(&|event| !event.is_exact() || event.is_retried);
            let Some(used) = run.rig.used(key) else {
                return self.must(false, || "the store does not tell what counters hold".into());
            };
            let used = used.first().copied().unwrap_or(0).saturating_sub(key.used_before);
            if !self.moved.contains(&key.place) {
                lost += admitted.saturating_sub(used);
            }
            more += used.saturating_sub(admitted + unknown);
        }
        self.lost(run, lost, may_be, |allowed| {
            format!("counters hold {lost} units less than were admitted; {allowed} may be lost")
        });
        self.must(more == 0, || format!("counters hold {more} units more than anybody asked for"));
        let immortal = run.rig.cluster.immortal_keys(&["tg:secret"]).len();
        self.must(immortal == 0, || format!("{immortal} keys have no time to live"));
        self.figure("lost", lost);
    }

    /// More was admitted than the limits allow, by so many units in all.
    pub(crate) fn over(&self, run: &Run, rules: &[Rule]) -> u64 {
        let needs = &run.rig.needs;
        let mut over = 0;
        for (number, events) in by_key(run.record.events.iter().filter(|event| event.is_admitted())) {
            let exact: Vec<&Event> = events.into_iter().filter(|event| event.is_exact()).collect();
            let Key { rule, place, .. } = run.rig.keys[number];
            // What has to be on the replica is not lost if that takes over, be it for good reasons or not.
            let may_lose = self.moved.contains(&place) && rule != Rule::Kept;
            if rules.contains(&rule) && !may_lose {
                over += most_in_any(needs.window_us(), &exact).saturating_sub(needs.limit);
            }
        }
        over
    }

    /// What was admitted beside the limits, for each rule; and what a policy admits is within what it may.
    fn admitted(&mut self, run: &Run) {
        let needs = &run.rig.needs;
        let mut most: BTreeMap<&'static str, f64> = BTreeMap::new();
        let mut complaints = Vec::new();
        for (number, events) in by_key(run.record.events.iter().filter(|event| event.is_admitted())) {
            let Key { rule, value, .. } = &run.rig.keys[number];
            if !rule.is_met() {
                continue;
            }
            let all = most_in_any(needs.window_us(), &events);
            let ratio = most.entry(rule.name()).or_default();
            *ratio = ratio.max(all as f64 / needs.limit as f64);
            let by_policy: Vec<&Event> = events.iter().copied().filter(|event| !event.is_exact()).collect();
            let allowed = match rule {
                Rule::Allow => u64::MAX,
                Rule::Local => needs.share() * (needs.nodes as u64 + self.restarts),
                _ => 0,
            };
            let admitted = most_in_any(needs.window_us(), &by_policy);
            if admitted > allowed {
                complaints.push(format!("{}={value}: {admitted} by policy, not {allowed}", rule.name()));
            }
        }
        let count = complaints.len();
        self.must(count == 0, || {
            format!("policies admitted more than they may for {count} keys, first {}", complaints[0])
        });
        for (rule, ratio) in &most {
            let ratio = *ratio;
            self.must(*rule == "allow" || ratio < 10.0, || format!("{rule}: {ratio} times the limit"));
        }
        let rounded = |ratio: f64| (ratio * 100.0).round() / 100.0;
        let told: BTreeMap<_, _> = most.into_iter().map(|(rule, ratio)| (rule, rounded(ratio))).collect();
        self.figure("admitted_by_limit", json!(told));
    }

    /// No more than the limit was admitted by the store itself, but for so many units that were lost with a server.
    pub(crate) fn exact(&mut self, run: &Run, lost: Lost) {
        let met: Vec<Rule> =
            [Rule::Local, Rule::Deny, Rule::Allow, Rule::Pair, Rule::Kept].into_iter().collect();
        let over = self.over(run, &met);
        self.lost(run, over, lost, |allowed| {
            format!("the store admitted {over} units more than the limits; {allowed} may be lost")
        });
        self.figure("over", over);
    }

    /// An answer that is not the store's names the policy of its rule.
    fn modes(&mut self, run: &Run) {
        let wrong = run.record.events.iter().filter(|event| {
            let rule = run.rig.keys[event.key].rule;
            let said = match rule {
                Rule::Local => "local",
                Rule::Allow => "allow",
                _ => "deny",
            };
            let said = if self.way.has(Protection::Policy) { said } else { "allow" };
            event.policy().is_some_and(|policy| policy != said)
        });
        let (count, first) = (wrong.clone().count(), wrong.clone().next().cloned());
        self.must(count == 0, || {
            format!("{count} answers do not name the policy of their rule, first {first:?}")
        });
    }

    pub(crate) fn changes_per_s(&mut self, seen: &Seen, shard: &str, from_us: u64, to_us: u64) -> f64 {
        let changes = seen.changes.iter().filter(|change| {
            // Each opening and each closing; a probe is a part of the way.
            change.shard == shard
                && change.state != Circuit::HalfOpen
                && (from_us..to_us).contains(&change.seen_us)
        });
        changes.count() as f64 / ((to_us - from_us) as f64 / 1e6)
    }

    fn line(&self) -> String {
        json!({
            "row": self.row,
            "name": self.name,
            "store": format!("{:?}", self.kind),
            "off": self.way.off.map(|off| format!("{off:?}")),
            "violations": self.violations,
            "undecided": self.is_undecided,
            "figures": self.figures,
            "checks": self.checks,
            "errors": self.errors,
        })
        .to_string()
    }

    /// Adds a line to the file of figures, if there is to be one.
    fn write(&self) {
        println!("{}", self.line());
        let Some(path) = std::env::var_os("TIDEGATE_FAULTS_FIGURES") else { return };
        let file = std::fs::File::options().create(true).append(true).open(path);
        let written = file.and_then(|mut file| writeln!(file, "{}", self.line()));
        written.expect("the file of figures");
    }
}

/// May the circuit of a shard have been open when a call was sent?
fn is_open(run: &Run, place: usize, event: &Event) -> bool {
    let shard = run.rig.shard(place);
    let there = run.seen.changes.iter().filter(|change| change.node == event.node && change.shard == shard);
    let mut is_open = false;
    for change in there {
        // Between two readings of the page it may have been either.
        match change.state {
            Circuit::Closed if change.seen_us < event.sent_us => is_open = false,
            Circuit::Closed => {}
            _ if change.after_us <= event.received_us => is_open = true,
            _ => {}
        }
    }
    is_open
}

/// When calls to a shard failed, as far as clients can tell: of calls that were on their way together only one counts.
fn failures(run: &Run, place: usize, node: usize, from_us: u64) -> Vec<u64> {
    let failed = run.record.events.iter().filter(|event| {
        let is_there = run.rig.keys[event.key].place == place && event.node == node;
        is_there && event.sent_us >= from_us && !event.is_exact()
    });
    let mut times = Vec::new();
    for event in failed {
        if times.last().is_none_or(|last| event.sent_us >= *last) {
            times.push(event.received_us);
        }
    }
    times
}

fn status(event: &Event) -> Option<i32> {
    match event.answer {
        Answer::Failed(code) => Some(code),
        _ => None,
    }
}

fn ms(time_us: u64) -> f64 {
    (time_us as f64 / 100.0).round() / 10.0
}

fn told(blamed: &Times, seen: &Times) -> String {
    let (seen_p99, seen_max) = (ms(seen.p99_us), ms(seen.max_us));
    let (p99, max) = (ms(blamed.p99_us), ms(blamed.max_us));
    format!("{p99} ms (p99) and {max} ms (max); on the client's clock {seen_p99} and {seen_max} ms")
}
