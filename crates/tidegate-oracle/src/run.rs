//! Playing a script: operations that name each other become questions.

use crate::answer::Answer;
use crate::ask::{Ask, Receipt};
use crate::model::Oracle;
use crate::script::{Line, Op, Script};

/// Plays a script on one counter; panics if an operation comes before the first limit.
pub fn run(script: &Script) -> Vec<Answer> {
    let mut oracle: Option<Oracle> = None;
    let mut answers = Vec::new();
    for line in &script.lines {
        match (line, &mut oracle) {
            (Line::Limit(spec), None) => oracle = Some(Oracle::new(spec)),
            (Line::Limit(spec), Some(oracle)) => oracle.change(spec),
            (Line::At { us, op }, Some(oracle)) => {
                let answer = oracle.ask(&resolve(op, &answers), *us);
                answers.push(answer);
            }
            (Line::At { .. }, None) => panic!("a script begins with a limit"),
        }
    }
    answers
}

/// Turns an operation into a question, given the answers to all operations before it.
pub fn resolve(op: &Op, answers: &[Answer]) -> Ask {
    let receipt = |of: usize| {
        let answer = answers.get(of)?;
        let units = u64::try_from(answer.applied).ok().filter(|units| *units > 0)?;
        Some(Receipt { at_us: answer.at_us, units })
    };
    match *op {
        Op::Charge { cost } => Ask::Charge { cost },
        Op::Peek => Ask::Peek,
        Op::Refund { units, of } => Ask::Refund { units, receipt: of.and_then(receipt) },
        Op::Settle { of, actual } => {
            Ask::Settle { receipt: receipt(of).unwrap_or(Receipt { at_us: 0, units: 0 }), actual }
        }
        Op::Acquire { id, cost } => Ask::Acquire { id, cost },
        Op::Renew { id } => Ask::Renew { id },
        Op::Release { id } => Ask::Release { id },
    }
}
