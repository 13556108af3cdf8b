//! Random scripts against the definitions of the numbers themselves.

use std::fmt;

use tidegate_oracle::{Answer, Ask, Line, Op, Oracle, Outcome, Script, Spec, resolve};

const SCRIPTS: u64 = 60;
const OPERATIONS: usize = 60;

const LIMITS: [&str; 21] = [
    "fixed_window 7/10s",
    "fixed_window 7/10s charge=always",
    "sliding_log 7/10s",
    "sliding_log 40/10s charge=always",
    "sliding_window_counter 7/10s",
    "sliding_window_counter 40/10s charge=always",
    "sub_window 30/10s k=5",
    "sub_window 30/10s k=10 strict charge=always",
    "token_bucket 7/10s",
    "gcra 7/10s burst=3 charge=always",
    "leaky_bucket 3/10s burst=20 charge=always",
    "sliding_window 7/10s",
    "sliding_window 100/10s",
    "sliding_window 200/10s charge=always",
    "sliding_window 100/10s strict",
    "concurrency 5 ttl=10s",
    "calendar 9/day zone=America/New_York",
    "token_bucket 4294967295/10s burst=4294967290",
    "sliding_window 60/1h",
    // These two have another tick when their amount is doubled.
    "gcra 400000000/1m",
    "sliding_window 900000000/20000s",
];

/// A small generator, so that every failure comes back.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What a script gives back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refunds {
    Nothing,
    Blindly,
    /// By settlements, each reservation settled once.
    BySettlement,
    Anyhow,
}

/// What may happen in a script besides charges and peeks.
#[derive(Clone, Copy)]
struct Mix {
    refunds: Refunds,
    jumps: bool,
    changes: bool,
}

fn spec(text: &str) -> Spec {
    let script: Script = format!("limit {text}").parse().expect("a limit");
    match &script.lines[0] {
        Line::Limit(spec) => spec.clone(),
        Line::At { .. } => unreachable!("a limit was written"),
    }
}

fn random_script(limit: &str, seed: u64, mix: Mix) -> Script {
    let mut dice = Dice(seed);
    let spec = spec(limit);
    let mut lines = vec![Line::Limit(spec.clone())];
    let reach = if spec.window_us == 0 { 40_000_000_000 } else { spec.window_us };
    let mut now_us = dice.below(5) * reach + dice.below(reach);
    let largest = (spec.amount / 3).clamp(2, 1 << 30);
    // Beginning with one that never is, so that there is always one to settle.
    let mut unsettled = vec![OPERATIONS];
    for index in 0..OPERATIONS {
        now_us += match dice.below(8) {
            0 => reach / 2 + dice.below(reach),
            1..4 => dice.below(reach / 8),
            4 => dice.below(3),
            _ => 0,
        };
        if mix.jumps && dice.below(12) == 0 {
            now_us = now_us.saturating_sub(dice.below(3 * reach));
        }
        if mix.changes && dice.below(12) == 0 {
            let amount = [0, spec.amount / 3, spec.amount, spec.amount * 2][dice.below(4) as usize];
            lines.push(Line::Limit(Spec { amount: amount.min(u64::from(u32::MAX)), ..spec.clone() }));
        }
        let cost = 1 + dice.below(largest);
        let op = match dice.below(if mix.refunds == Refunds::Nothing { 10 } else { 16 }) {
            0 => Op::Peek,
            1..7 => Op::Charge { cost },
            7 => Op::Acquire { id: dice.below(3), cost: 1 + dice.below(2) },
            8 => Op::Renew { id: dice.below(3) },
            9 => Op::Charge { cost: 1 + dice.below(spec.amount + 2) },
            10 => Op::Release { id: dice.below(3) },
            _ => match mix.refunds {
                Refunds::Nothing | Refunds::Blindly => Op::Refund { units: cost, of: None },
                Refunds::BySettlement => {
                    let of = unsettled.remove(dice.below(unsettled.len() as u64) as usize);
                    Op::Settle { of, actual: dice.below(largest) }
                }
                Refunds::Anyhow => {
                    let of = dice.below(index as u64 + 1) as usize;
                    let any = [
                        Op::Refund { units: cost, of: None },
                        Op::Refund { units: cost, of: Some(of) },
                        Op::Settle { of, actual: cost - 1 },
                    ];
                    any[dice.below(3) as usize]
                }
            },
        };
        unsettled.push(index);
        lines.push(Line::At { us: now_us, op });
    }
    Script { lines }
}

/// One step of a random script.
struct Step<'a> {
    script: &'a Script,
    index: usize,
    before: &'a Oracle,
    ask: &'a Ask,
    now_us: u64,
    after: &'a Oracle,
    answer: &'a Answer,
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after #{} ({}) of\n{}", self.index, self.answer, self.script)
    }
}

impl Step<'_> {
    /// The limit that the script begins with.
    fn spec(&self) -> &Spec {
        match &self.script.lines[0] {
            Line::Limit(spec) => spec,
            Line::At { .. } => unreachable!("a script begins with a limit"),
        }
    }

    /// The tick that holds the clock, from which waits count.
    fn floored_us(&self) -> u64 {
        self.now_us - self.now_us % self.after.tick_us()
    }

    /// How the state after this step would answer at another time.
    fn then(&self, ask: &Ask, now_us: u64) -> Answer {
        self.after.clone().ask(ask, now_us)
    }

    fn then_admits(&self, ask: &Ask, now_us: u64) -> bool {
        self.then(ask, now_us).outcome == Outcome::Admitted
    }
}

/// Plays random scripts of every limit and shows each step.
fn sweep(mix: Mix, mut look: impl FnMut(&Step<'_>)) {
    for limit in LIMITS {
        for seed in 0..SCRIPTS {
            let script = &random_script(limit, seed, mix);
            let mut answers = Vec::new();
            let mut oracle = Oracle::new(&spec(limit));
            for line in &script.lines {
                match line {
                    Line::Limit(spec) => oracle.change(spec),
                    Line::At { us, op } => {
                        let (before, ask) = (&oracle.clone(), &resolve(op, &answers));
                        let answer = oracle.ask(ask, *us);
                        let (index, now_us, after) = (answers.len(), *us, &oracle);
                        look(&Step { script, index, before, ask, now_us, after, answer: &answer });
                        answers.push(answer);
                    }
                }
            }
        }
    }
}

const EVERYTHING: Mix = Mix { refunds: Refunds::Anyhow, jumps: true, changes: true };

#[test]
fn remaining_is_the_largest_cost_that_passes() {
    sweep(EVERYTHING, |step| {
        let cost = step.answer.remaining;
        assert!(cost == 0 || step.then_admits(&Ask::Charge { cost }, step.now_us), "{step}");
        assert!(!step.then_admits(&Ask::Charge { cost: cost + 1 }, step.now_us), "{step}");
    });
}

#[test]
fn retry_after_is_the_least_wait_that_passes() {
    sweep(EVERYTHING, |step| {
        let Some(wait_us) = step.answer.retry_after_us else { return };
        assert!(step.then_admits(step.ask, step.now_us + wait_us), "{step}");
        assert!(wait_us > 0 && !step.then_admits(step.ask, step.floored_us() + wait_us - 1), "{step}");
    });
}

#[test]
fn reset_after_is_a_wait_until_nothing_counts() {
    sweep(EVERYTHING, |step| {
        let wait_us = step.answer.reset_after_us;
        assert_eq!(step.then(&Ask::Peek, step.now_us + wait_us).reset_after_us, 0, "{step}");
        if wait_us > 0 {
            assert!(step.then(&Ask::Peek, step.floored_us() + wait_us - 1).reset_after_us > 0, "{step}");
        }
    });
}

#[test]
fn what_applies_nothing_leaves_no_trace() {
    // Without jumps there is nothing to repair; a held place is renewed, which is an admission.
    sweep(Mix { jumps: false, ..EVERYTHING }, |step| {
        let is_renewal = matches!(step.ask, Ask::Acquire { .. } | Ask::Renew { .. });
        if step.answer.applied == 0 && !(is_renewal && step.answer.outcome == Outcome::Admitted) {
            assert_eq!(format!("{:?}", step.before), format!("{:?}", step.after), "{step}");
        }
    });
}

#[test]
fn the_count_is_within_its_bound_of_an_exact_window() {
    let still = Mix { refunds: Refunds::Nothing, jumps: false, changes: false };
    // A receipt keeps its time when a repair moves the charge it names, so the two are not mixed here.
    for mix in [
        Mix { jumps: true, ..still },
        Mix { refunds: Refunds::Blindly, jumps: true, ..still },
        Mix { refunds: Refunds::BySettlement, ..still },
        Mix { changes: true, ..still },
    ] {
        sweep(mix, |step| {
            let exact = step.after.used_exactly(step.now_us);
            let used = step.after.used(step.now_us);
            if !step.spec().algorithm.is_bucket() {
                assert!(exact <= used + step.answer.over, "exactly {exact}, counted {used} {step}");
                assert!(used <= exact + step.answer.under, "exactly {exact}, counted {used} {step}");
            }
        });
    }
}

#[test]
fn a_buckets_decisions_are_within_its_bound_of_an_exact_windows() {
    // A bucket does not count a window; its bound tells how far what it admits and refuses is from a window's.
    sweep(Mix { refunds: Refunds::Nothing, jumps: true, changes: false }, |step| {
        let exact = step.after.used_exactly(step.now_us);
        let (amount, Answer { outcome, over, under, .. }) = (step.spec().amount, step.answer);
        match (step.ask, outcome) {
            _ if !step.spec().algorithm.is_bucket() => {}
            (Ask::Charge { .. }, Outcome::Admitted) => assert!(exact <= amount + over, "{exact} {step}"),
            (Ask::Charge { cost }, _) => assert!(exact + cost + under > amount, "{exact} {step}"),
            _ => {}
        }
    });
}
