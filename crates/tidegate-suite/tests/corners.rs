//! Scripts, random and committed ones, are worth something only if they reach the corners that the rules speak of.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tidegate_core::{Algorithm, Charge, Limit, Micros, Outcome, Role, Verdict};
use tidegate_oracle::Op;
use tidegate_suite::script::{Line, Request, Script, Take};
use tidegate_suite::{Decided, Model, Player, Said, crowded_script, proof, random_script};

proptest! {
    #![proptest_config(proof(500))]

    #[test]
    fn what_is_printed_reads_back_the_same(script in random_script()) {
        prop_assert_eq!(script.to_string().parse::<Script>(), Ok(script));
    }
}

#[test]
fn random_scripts_reach_every_corner() {
    let mut runner = TestRunner::deterministic();
    let mut seen = Corners::default();
    for _ in 0..1_000 {
        let script = random_script().new_tree(&mut runner).expect("a script").current();
        seen.look_at(&script);
    }
    let missed: Vec<_> = seen.times.iter().filter(|(_, times)| **times < 20).collect();
    assert!(missed.is_empty(), "hardly reached: {missed:?} of {:#?}", seen.times);
}

#[test]
fn crowded_scripts_fill_lists() {
    let mut runner = TestRunner::deterministic();
    let mut longest = 0;
    for _ in 0..20 {
        let script = crowded_script().new_tree(&mut runner).expect("a script").current();
        let model = Model::new();
        let mut player = Player::new(&model, "");
        for line in script.lines() {
            if let (Line::At { .. }, Said::Decided(decided)) = (line, now(player.play(line))) {
                // The log and the places, of which nearly every entry holds one unit.
                let used = |verdict: &Verdict| u64::from(verdict.limit) - u64::from(verdict.remaining);
                longest = longest.max(decided[0].verdicts[1..].iter().map(used).min().unwrap_or(0));
            }
        }
    }
    assert!(longest >= 150, "no list of more than {longest}");
}

#[test]
fn committed_scripts_reach_every_corner() {
    let mut seen = Corners::default();
    for (_, script) in tidegate_suite::scripts() {
        seen.look_at(&script);
    }
    let missed: Vec<_> = seen.times.iter().filter(|(_, times)| **times == 0).collect();
    assert!(missed.is_empty(), "never reached: {missed:?}");
}

/// How many requests or takes were of which kind.
#[derive(Default)]
struct Corners {
    times: BTreeMap<String, u32>,
}

/// A take as it was answered.
struct Answered<'a> {
    take: &'a Take,
    limit: &'a Limit,
    verdict: &'a Verdict,
}

impl Answered<'_> {
    fn passes(&self) -> bool {
        self.verdict.admitted()
    }
}

impl Corners {
    fn see(&mut self, what: impl Into<String>, is: bool) {
        *self.times.entry(what.into()).or_default() += u32::from(is);
    }

    fn look_at(&mut self, script: &Script) {
        let model = Model::new();
        let mut player = Player::new(&model, "");
        let mut clock_us = 0;
        let mut before = HashMap::new();
        for line in script.lines() {
            let said = now(player.play(line));
            match (line, said) {
                (Line::At { us, requests }, Said::Decided(decided)) => {
                    self.see("several requests in a batch", requests.len() > 1);
                    self.see(
                        "a request without takes",
                        requests.iter().any(|request| request.takes.is_empty()),
                    );
                    self.see("the same time again", *us == clock_us);
                    self.see("a clock set back", *us < clock_us);
                    self.see("a clock set back by years", us + 366 * 86_400_000_000 < clock_us);
                    self.see(
                        "a clock years on",
                        clock_us > 0 && us - clock_us.min(*us) > 366 * 86_400_000_000,
                    );
                    clock_us = *us;
                    for (request, decided) in requests.iter().zip(&decided) {
                        self.look_at_request(request, decided, &player, *us);
                        self.look_back(request, decided, &player, &mut before);
                    }
                }
                (_, Said::Inspected(Ok(inspection))) => {
                    self.see("inspected in use", inspection.used > 0);
                    self.see("inspected unused", inspection.used == 0);
                }
                (_, Said::Reset(Ok(was_there))) => {
                    self.see("reset of a counter", was_there);
                    self.see("reset of nothing", !was_there);
                }
                _ => {}
            }
        }
    }

    fn look_at_request(&mut self, request: &Request, decided: &Decided, player: &Player<'_, Model>, us: u64) {
        let takes: Vec<Answered<'_>> = request
            .takes
            .iter()
            .zip(&decided.verdicts)
            .map(|(take, verdict)| Answered { take, limit: player.limit(take), verdict })
            .collect();
        let any = |is: &dyn Fn(&Answered<'_>) -> bool| takes.iter().any(is);
        let of = |role: Role, passes: bool| any(&|one| one.take.role == role && one.passes() == passes);
        let (admitted, refused) = (decided.admitted, !decided.admitted);
        let several = takes.len() > 1;
        self.see("several takes, admitted", several && admitted);
        self.see("several takes, refused", several && refused);
        self.see("five takes, admitted", takes.len() == 5 && admitted);
        let enforced = of(Role::Enforce, false);
        self.see(
            "refused by the first",
            several && refused && takes.first().is_some_and(|one| !one.passes()),
        );
        self.see(
            "refused by the last alone",
            several && enforced && takes[..takes.len() - 1].iter().all(Answered::passes),
        );
        self.see("refused by a quota alone", refused && !enforced);
        self.see(
            "admitted by a part of a quota",
            admitted && of(Role::Quota, true) && of(Role::Quota, false),
        );
        self.see(
            "refused in spite of its quota",
            refused && of(Role::Quota, true) && !of(Role::Quota, false),
        );
        self.see("admitted in spite of a shadow", admitted && of(Role::Shadow, false));
        self.see("shadow and quota differ", of(Role::Shadow, true) && of(Role::Quota, false));
        let names =
            |one: &Answered<'_>| takes.iter().filter(|other| other.take.name == one.take.name).count();
        self.see("the same counter twice, admitted", admitted && any(&|one| names(one) > 1));
        self.see("the same counter twice, refused", refused && any(&|one| names(one) > 1));
        for one in &takes {
            self.look_at_take(one, refused && several, us);
        }
    }

    /// Looks at takes beside the last charge on the same counter, of which `before` keeps the limit and the counter's time.
    fn look_back(
        &mut self,
        request: &Request,
        decided: &Decided,
        player: &Player<'_, Model>,
        before: &mut HashMap<String, (Limit, Micros)>,
    ) {
        for (take, verdict) in request.takes.iter().zip(&decided.verdicts) {
            let limit = player.limit(take);
            if let Some((then, at)) = before.get(&take.name) {
                self.see("another tick", then.tick() != limit.tick());
                self.see("lowered and refused", limit.amount() < then.amount() && !verdict.admitted());
                self.see("raised and charged", limit.amount() > then.amount() && verdict.applied > 0);
                // A counter's time goes back by that much only in a repair.
                let patience =
                    limit.window().unwrap_or(Micros::from_secs(62 * 86_400)).max(Micros::from_secs(5));
                let repaired = verdict.at.plus(patience) < *at;
                self.see(format!("{:?} repaired", limit.algorithm()), repaired);
                self.see("repaired by a refusal", repaired && !decided.admitted && !verdict.admitted());
                self.see("repaired by a peek", repaired && take.op == Op::Peek);
            }
            if verdict.applied > 0 {
                before.insert(take.name.clone(), (limit.clone(), verdict.at));
            }
        }
    }

    fn look_at_take(&mut self, one: &Answered<'_>, refused: bool, us: u64) {
        let Answered { take, limit, verdict } = one;
        let gives_back = verdict.applied < 0;
        let always = limit.charge() == Charge::Always;
        let is_charge = matches!(take.op, Op::Charge { .. } | Op::Acquire { .. });
        self.see(format!("{:?} charged", limit.algorithm()), verdict.applied > 0);
        self.see(format!("{:?} refused", limit.algorithm()), verdict.retry_after.is_some());
        self.see(
            format!("{:?} passes in a refused request", limit.algorithm()),
            refused && is_charge && one.passes() && !always,
        );
        let refunds = !matches!(limit.algorithm(), Algorithm::Concurrency);
        if refunds {
            self.see(
                format!("{:?} gives back in a refused request", limit.algorithm()),
                refused && gives_back,
            );
            self.see(
                format!("{:?} charges always in a refused request", limit.algorithm()),
                refused && always && verdict.applied > 0,
            );
        }
        let settles = matches!(take.op, Op::Settle { .. });
        self.see("settled above, in a refused request", refused && settles && verdict.applied > 0);
        self.see("settled below, in a refused request", refused && settles && gives_back);
        self.see(
            "released in a refused request",
            refused && matches!(take.op, Op::Release { .. }) && gives_back,
        );
        self.see(
            "renewed in a refused request",
            refused && matches!(take.op, Op::Renew { .. }) && one.passes(),
        );
        self.see("refunded by receipt", matches!(take.op, Op::Refund { of: Some(_), .. }) && gives_back);
        self.see("refunded blindly", matches!(take.op, Op::Refund { of: None, .. }) && gives_back);
        self.see("forgiven", verdict.forgiven > 0);
        self.see("cost above the limit", verdict.outcome == Outcome::CostExceedsLimit);
        self.see("not held", verdict.outcome == Outcome::NotHeld);
        self.see("closed", limit.amount() == 0);
        self.see("clock behind", verdict.at.get() > us);
        self.see("off by something", verdict.bound != tidegate_core::Bound::EXACT);
        self.see("a peek passes", take.op == Op::Peek && one.passes());
        self.see("a peek is refused", take.op == Op::Peek && !one.passes());
    }
}

/// The answer of a future that has it at once, as the model's do.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the model answers at once"),
    }
}
