//! From a query to a decision: what the book says counts, what the counters say to that, and what it comes to.

use tidegate_core::{Book, Fate, Micros, Plan, Query, told};
use tidegate_counters::{Answer, Batch, Memory, Take};

/// What became of one request.
#[derive(Debug)]
pub struct Decision<'b> {
    /// May it go on?
    pub admitted: bool,
    /// What counted for it.
    pub plan: Plan<'b>,
    /// What the counters said, an answer for each take of the plan; none if they were not asked.
    pub answers: Vec<Answer>,
}

/// Decides one request by `book`, on counters in memory.
pub fn decide<'b>(book: &'b Book, counters: &Memory, query: &Query<'_>, now: Micros) -> Decision<'b> {
    let mut plan = Plan::new();
    book.plan(query, &mut plan);
    if plan.refused() {
        return Decision { admitted: false, plan, answers: Vec::new() };
    }
    let mut batch = Batch::new();
    batch.push(plan.takes().iter().map(|take| Take {
        key: take.key,
        limit: plan.limit(take),
        ask: take.ask,
        role: take.role,
    }));
    counters.take_now(&mut batch, now);
    let (admitted, answers) = (batch.admitted(0), batch.answers(0).to_vec());
    drop(batch);
    Decision { admitted, plan, answers }
}

impl Decision<'_> {
    /// The take that speaks for the whole request.
    pub fn told(&self) -> Option<usize> {
        self.told_of(0..self.answers.len())
    }

    /// The take that speaks for a descriptor, if anything was counted for it.
    pub fn told_for(&self, descriptor: usize) -> Option<usize> {
        let found = self.plan.found().iter().filter(|found| found.descriptor == Some(descriptor));
        let takes =
            found.filter_map(|found| if let Fate::Counted(take) = found.fate { Some(take) } else { None });
        self.told_of(takes)
    }

    fn told_of(&self, takes: impl Iterator<Item = usize> + Clone) -> Option<usize> {
        let answered = takes.filter(|take| *take < self.answers.len());
        let roles = answered.clone().map(|take| (self.plan.takes()[take].role, &self.answers[take].verdict));
        let at = told(roles)?;
        answered.clone().nth(at)
    }
}
