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
    /// The take that speaks for the whole request. One of a quota that refused does not, where another let the request pass: nobody who is
    /// admitted is told to wait.
    pub fn told(&self) -> Option<usize> {
        let speaks = |take: &usize| !self.admitted || self.answers[*take].verdict.admitted();
        self.told_of((0..self.answers.len()).filter(speaks))
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

#[cfg(test)]
mod tests {
    use tidegate_core::{
        Descriptor, DescriptorDraft, DomainDraft, Entry, Limit, LimitError, RuleDraft, Secret,
    };
    use tidegate_counters::MemorySize;

    use super::*;

    #[test]
    fn who_is_admitted_is_not_told_to_wait() -> Result<(), LimitError> {
        let node = |key: &str, amount| -> Result<DescriptorDraft, LimitError> {
            let limit = Some(Limit::fixed_window(amount, Micros::from_secs(60))?);
            let rule = RuleDraft { limit, quota: true, ..RuleDraft::default() };
            Ok(DescriptorDraft { key: key.into(), limits: vec![rule], ..DescriptorDraft::default() })
        };
        let descriptors = vec![node("small", 1)?, node("large", 5)?];
        let domain = DomainDraft { name: "d".into(), descriptors, ..DomainDraft::default() };
        let book = Book::new([domain], Secret::new([1; 16]));
        let now = Micros::from_secs(1_800_000_000);
        let counters = Memory::new(MemorySize::of_bytes(1 << 20), now).expect("memory");
        let entries = [Entry { key: "small", value: "a" }, Entry { key: "large", value: "a" }];
        let descriptors = [0..1, 1..2].map(|entries| Descriptor { entries, cost: 1, limit: None });
        let query = Query { domain: "d", entries: &entries, descriptors: &descriptors };
        decide(&book, &counters, &query, now);
        let second = decide(&book, &counters, &query, now);
        assert!(second.admitted);
        assert_eq!(
            (second.told(), second.told_for(0)),
            (Some(1), Some(0)),
            "each descriptor is told its own"
        );
        Ok(())
    }
}
