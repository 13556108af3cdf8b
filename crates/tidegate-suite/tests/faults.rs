//! A suite that cannot fail proves nothing: stores with a fault each, and each is caught, by the committed scripts and by random ones.

use std::collections::HashMap;
use std::future::{Future, ready};
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use tidegate_core::{Ask, Charge, Key, Limit, Micros, Policy, Role, Tag};
use tidegate_counters::{Answer, Batch, Counters, Inspection, Take, Unavailable};
use tidegate_suite::{Model, check, check_scripts, check_threads, random_script};

/// What is wrong with a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    RefusedRequestsAreCharged,
    ShadowDecides,
    ShadowIsNotCharged,
    QuotaIsEnforced,
    QuotaNeverDecides,
    RefusedTakesLoseWhatIsGivenBack,
    RefusedTakesAreNeverChargedAlways,
    RefusedTakesLoseRepairs,
    PassedTakesShowTheirCharge,
    JudgingStopsAtTheFirstRefusal,
    TakesOnOneKeyDoNotSeeEachOther,
    TheEighthTakeIsForgotten,
    BatchIsOneRequest,
    AnswersAreReversed,
    RemainingIsOffByOne,
    BoundIsLeftOut,
    RefundsAreBlind,
    LimitsNeverChange,
    ClockNeverGoesBack,
    ResetForgetsNothing,
    ResetForgetsEverything,
    InspectionCharges,
    NothingIsStored,
    EverythingIsStored,
    RehearsalCharges,
    RehearsalLeavesACounter,
    RehearsalTakesEachForItself,
    RehearsalPeeks,
}

/// Each with whether random scripts can catch it too.
const FAULTS: &[(Fault, bool)] = &[
    (Fault::RefusedRequestsAreCharged, true),
    (Fault::ShadowDecides, true),
    (Fault::ShadowIsNotCharged, true),
    (Fault::QuotaIsEnforced, true),
    (Fault::QuotaNeverDecides, true),
    (Fault::RefusedTakesLoseWhatIsGivenBack, true),
    (Fault::RefusedTakesAreNeverChargedAlways, true),
    (Fault::RefusedTakesLoseRepairs, true),
    (Fault::PassedTakesShowTheirCharge, true),
    (Fault::JudgingStopsAtTheFirstRefusal, true),
    (Fault::TakesOnOneKeyDoNotSeeEachOther, true),
    (Fault::TheEighthTakeIsForgotten, false), // They have five takes at most.
    (Fault::BatchIsOneRequest, true),
    (Fault::AnswersAreReversed, true),
    (Fault::RemainingIsOffByOne, true),
    (Fault::BoundIsLeftOut, true),
    (Fault::RefundsAreBlind, true),
    (Fault::LimitsNeverChange, true),
    (Fault::ClockNeverGoesBack, true),
    (Fault::ResetForgetsNothing, true),
    (Fault::ResetForgetsEverything, true),
    (Fault::InspectionCharges, true),
    (Fault::NothingIsStored, true),
    (Fault::EverythingIsStored, true),
    (Fault::RehearsalCharges, true),
    (Fault::RehearsalLeavesACounter, true),
    (Fault::RehearsalTakesEachForItself, true),
    (Fault::RehearsalPeeks, true),
];

#[test]
fn committed_scripts_catch_every_fault() {
    let missed: Vec<Fault> = FAULTS
        .iter()
        .map(|(fault, _)| *fault)
        .filter(|fault| check_scripts(&Faulty::new(*fault), "").is_ok())
        .collect();
    assert!(missed.is_empty(), "no script tells of {missed:?}");
}

#[test]
fn random_scripts_catch_every_fault() {
    let mut missed = Vec::new();
    for (fault, _) in FAULTS.iter().filter(|(_, by_chance)| *by_chance) {
        let mut runner = TestRunner::deterministic();
        let is_caught = (0..500).any(|_| {
            let script = random_script().new_tree(&mut runner).expect("a script").current();
            check(&Faulty::new(*fault), &script, "").is_err()
        });
        if !is_caught {
            missed.push(fault);
        }
    }
    assert!(missed.is_empty(), "no random script tells of {missed:?}");
}

#[test]
fn threads_catch_a_store_that_looks_before_it_charges() {
    let error = check_threads(&TwoSteps::default(), "").expect_err("a request in two steps");
    assert!(error.contains("requests were admitted instead of 300"), "{error}");
}

#[test]
fn a_disagreement_tells_where_and_what() {
    let script = "limit a fixed_window 10/1m\nlimit b gcra 5/1s\nat 0s: b peek | a charge 2, shadow b charge 1\nreset a"
        .parse()
        .expect("a script");
    let error = check(&Faulty::new(Fault::RemainingIsOffByOne), &script, "").expect_err("a fault");
    let expected = "\
the store disagrees with the model in line 3: remaining of take 1 (b peek) of request 1 (b peek)
  store: Admitted limit=5 remaining=4 retry=- reset=0s reset_after=0s applied=0 forgiven=0 debt=0 at=0s over=5 under=0
  model: Admitted limit=5 remaining=5 retry=- reset=0s reset_after=0s applied=0 forgiven=0 debt=0 at=0s over=5 under=0
the script so far:
  limit a fixed_window 10/1m
  limit b gcra 5/1s
> at 0s: b peek | a charge 2, shadow b charge 1
";
    assert_eq!(error.to_string(), expected);
}

/// A model with a fault.
struct Faulty {
    fault: Fault,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    model: Model,
    /// The first limit of each counter.
    limits: HashMap<Key, Limit>,
    latest: Micros,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        Self { fault, inner: Mutex::default() }
    }
}

impl Inner {
    fn request(&mut self, fault: Fault, takes: &[Take<'_>], now: Micros) -> (bool, Vec<Answer>) {
        let before = self.model.clone();
        let with_role = |from: Role, to: Role| {
            takes
                .iter()
                .map(move |take| Take { role: if take.role == from { to } else { take.role }, ..*take })
        };
        let changed: Vec<Take<'_>> = match fault {
            Fault::ShadowDecides => with_role(Role::Shadow, Role::Enforce).collect(),
            Fault::QuotaIsEnforced => with_role(Role::Quota, Role::Enforce).collect(),
            Fault::QuotaNeverDecides => with_role(Role::Quota, Role::Shadow).collect(),
            Fault::RefundsAreBlind => {
                takes.iter().map(|take| Take { ask: blind(take.ask), ..*take }).collect()
            }
            Fault::LimitsNeverChange => {
                for take in takes {
                    self.limits.entry(take.key).or_insert_with(|| take.limit.clone());
                }
                takes.iter().map(|take| Take { limit: &self.limits[&take.key], ..*take }).collect()
            }
            _ => takes.to_vec(),
        };
        let (admitted, mut answers) = ask(&self.model, &changed, now);
        let passes: Vec<bool> = answers.iter().map(|answer| answer.verdict.admitted()).collect();
        let gives_back = |take: &Take<'_>| {
            matches!(take.ask, Ask::Refund { .. } | Ask::Settle { .. } | Ask::Release { .. })
        };
        let always = |take: &Take<'_>| take.limit.charge() == Charge::Always;
        // Goes back and carries some takes out, each for itself; of others only the repair, if at all.
        let mut only = |applies: &dyn Fn(&Take<'_>) -> bool, repairs: bool| {
            self.model = before.clone();
            for take in takes {
                let alone = Take { role: Role::Shadow, ..*take };
                if applies(take) {
                    ask(&self.model, &[alone], now);
                } else if repairs {
                    ask(&self.model, &[Take { ask: Ask::Peek, ..alone }], now);
                }
            }
        };
        match fault {
            Fault::RefusedTakesLoseWhatIsGivenBack if !admitted => only(&|take| always(take), true),
            Fault::RefusedTakesAreNeverChargedAlways if !admitted => only(&|take| gives_back(take), true),
            Fault::RefusedTakesLoseRepairs if !admitted => {
                only(&|take| gives_back(take) || always(take), false)
            }
            Fault::ShadowIsNotCharged if admitted => only(&|take| take.role != Role::Shadow, true),
            Fault::RefusedRequestsAreCharged if !admitted => {
                for take in takes {
                    ask(&self.model, &[Take { role: Role::Shadow, ..*take }], now);
                }
            }
            Fault::TheEighthTakeIsForgotten if admitted && takes.len() > 7 => {
                self.model = before;
                ask(&self.model, &takes[..7], now);
            }
            Fault::PassedTakesShowTheirCharge if !admitted => {
                let judged: Vec<Take<'_>> =
                    takes.iter().map(|take| Take { role: Role::Shadow, ..*take }).collect();
                answers = ask(&before, &judged, now).1;
            }
            Fault::JudgingStopsAtTheFirstRefusal if !admitted => {
                let first = passes.iter().position(|passes| !passes).unwrap_or(0);
                for (take, answer) in takes.iter().zip(&mut answers).skip(first + 1) {
                    *answer = ask(&before.clone(), &[Take { ask: Ask::Peek, ..*take }], now).1[0];
                }
            }
            Fault::TakesOnOneKeyDoNotSeeEachOther => {
                answers = takes.iter().map(|take| ask(&before.clone(), &[*take], now).1[0]).collect();
            }
            Fault::AnswersAreReversed => answers.reverse(),
            Fault::RemainingIsOffByOne => {
                let fewer = |answer: &mut Answer| {
                    answer.verdict.remaining = answer.verdict.remaining.saturating_sub(1)
                };
                answers.iter_mut().for_each(fewer);
            }
            Fault::BoundIsLeftOut => {
                answers.iter_mut().for_each(|answer| answer.verdict.bound = tidegate_core::Bound::EXACT);
            }
            _ => {}
        }
        (admitted, answers)
    }
}

fn blind(ask: Ask) -> Ask {
    match ask {
        Ask::Refund { units, receipt: Some(receipt) } => {
            Ask::Refund { units: units.min(receipt.units), receipt: None }
        }
        _ => ask,
    }
}

/// Asks a model about one request.
fn ask(model: &Model, takes: &[Take<'_>], now: Micros) -> (bool, Vec<Answer>) {
    let mut batch = Batch::new();
    batch.push(takes.iter().copied());
    at_once(model.take(&mut batch, now));
    (batch.admitted(0), batch.answers(0).to_vec())
}

impl Counters for Faulty {
    fn take(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> {
        let mut inner = self.inner.lock().expect("no panic before");
        inner.latest = inner.latest.max(now);
        let now = if self.fault == Fault::ClockNeverGoesBack { inner.latest } else { now };
        if self.fault == Fault::BatchIsOneRequest {
            let all: Vec<Take<'_>> = (0..batch.len()).flat_map(|at| batch.takes(at).to_vec()).collect();
            let (admitted, mut rest) = ask(&inner.model, &all, now);
            batch.judge(|takes, _, answers| {
                answers.copy_from_slice(&rest.drain(..takes.len()).collect::<Vec<_>>());
                admitted
            });
        } else {
            batch.judge(|takes, _, answers| {
                let (admitted, said) = inner.request(self.fault, takes, now);
                answers.copy_from_slice(&said);
                admitted
            });
        }
        ready(())
    }

    fn rehearse(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> {
        let inner = self.inner.lock().expect("no panic before");
        batch.judge(|takes, _, answers| {
            let (admitted, said) = match self.fault {
                Fault::RehearsalCharges => ask(&inner.model, takes, now),
                Fault::RehearsalLeavesACounter => {
                    for take in takes {
                        ask(&inner.model, &[Take { ask: Ask::Peek, role: Role::Shadow, ..*take }], now);
                    }
                    ask(&inner.model.clone(), takes, now)
                }
                Fault::RehearsalTakesEachForItself => {
                    let alone = |take: &Take<'_>| ask(&inner.model.clone(), &[*take], now).1[0];
                    (ask(&inner.model.clone(), takes, now).0, takes.iter().map(alone).collect())
                }
                Fault::RehearsalPeeks => {
                    let peeks: Vec<Take<'_>> =
                        takes.iter().map(|take| Take { ask: Ask::Peek, ..*take }).collect();
                    ask(&inner.model.clone(), &peeks, now)
                }
                _ => ask(&inner.model.clone(), takes, now),
            };
            answers.copy_from_slice(&said);
            admitted
        });
        ready(())
    }

    fn inspect(
        &self,
        key: Key,
        tag: Tag,
        limit: &Limit,
        now: Micros,
    ) -> impl Future<Output = Result<Inspection, Unavailable>> {
        let inner = self.inner.lock().expect("no panic before");
        let seen = at_once(inner.model.inspect(key, tag, limit, now));
        if self.fault == Fault::InspectionCharges {
            ask(
                &inner.model,
                &[Take {
                    key,
                    tag,
                    name: None,
                    limit,
                    ask: Ask::Charge { cost: 1 },
                    role: Role::Shadow,
                    policy: Policy::default(),
                }],
                now,
            );
        }
        ready(seen.map(|seen| match self.fault {
            Fault::NothingIsStored => Inspection { stored: false, ..seen },
            Fault::EverythingIsStored => Inspection { stored: true, ..seen },
            _ => seen,
        }))
    }

    fn reset(&self, key: Key, tag: Tag) -> impl Future<Output = Result<bool, Unavailable>> {
        let mut inner = self.inner.lock().expect("no panic before");
        ready(match self.fault {
            Fault::ResetForgetsNothing => at_once(inner.model.clone().reset(key, tag)),
            Fault::ResetForgetsEverything => {
                let was_there = at_once(inner.model.reset(key, tag));
                inner.model = Model::new();
                was_there
            }
            _ => at_once(inner.model.reset(key, tag)),
        })
    }
}

/// A model that is asked twice about a request: first whether it would be admitted, then to charge it.
#[derive(Default)]
struct TwoSteps {
    model: Model,
    /// How many requests were judged.
    judged: AtomicU64,
}

impl TwoSteps {
    /// Waits until another request was judged, so that no luck with threads can hide the fault; not for ever: the last has no other.
    fn let_others_judge(&self) {
        let judged = self.judged.fetch_add(1, Ordering::SeqCst) + 1;
        for _ in 0..10_000 {
            if self.judged.load(Ordering::SeqCst) != judged {
                return;
            }
            std::thread::yield_now();
        }
    }
}

impl Counters for TwoSteps {
    fn take(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> {
        batch.judge(|takes, _, answers| {
            let (admitted, said) = ask(&self.model.clone(), takes, now);
            self.let_others_judge();
            let charge_all: Vec<Take<'_>> =
                takes.iter().map(|take| Take { role: Role::Shadow, ..*take }).collect();
            if admitted {
                ask(&self.model, &charge_all, now);
            }
            answers.copy_from_slice(&said);
            admitted
        });
        ready(())
    }

    fn rehearse(&self, batch: &mut Batch<'_>, now: Micros) -> impl Future<Output = ()> {
        self.model.rehearse(batch, now)
    }

    fn inspect(
        &self,
        key: Key,
        tag: Tag,
        limit: &Limit,
        now: Micros,
    ) -> impl Future<Output = Result<Inspection, Unavailable>> {
        self.model.inspect(key, tag, limit, now)
    }

    fn reset(&self, key: Key, tag: Tag) -> impl Future<Output = Result<bool, Unavailable>> {
        self.model.reset(key, tag)
    }
}

/// The answer of a future that has it at once, as the model's do.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the model answers at once"),
    }
}
