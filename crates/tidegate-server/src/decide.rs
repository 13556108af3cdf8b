//! From a query to a decision: what the book says counts, what the counters say to that, and what it comes to.

use tidegate_core::{Ask, Book, Fate, Key, Limit, Micros, Plan, Query, Role, told};
use tidegate_counters::{Answer, Batch, Memory, Take};

/// What became of one request.
#[derive(Debug)]
pub struct Decision<'b> {
    /// May it go on?
    pub admitted: bool,
    /// What counted for it.
    pub plan: Plan<'b>,
    /// What the counters said, an answer for each take of the plan.
    pub answers: Vec<Answer>,
}

/// Decides one request by `book`, on counters in memory.
pub fn decide<'b>(book: &'b Book, counters: &Memory, query: &Query<'_>, now: Micros) -> Decision<'b> {
    let mut plan = Plan::new();
    book.plan(query, &mut plan);
    // A request that is refused whatever the counters say still gives back, and is charged where that is always: one more take that nothing
    // fits refuses it.
    let nothing = Limit::fixed_window(0, Micros::from_secs(1)).ok().filter(|_| plan.refused());
    let refuses = nothing.as_ref().map(|limit| Take {
        key: Key::of_bits(0),
        limit,
        ask: Ask::Charge { cost: 1 },
        role: Role::Enforce,
    });
    let takes = plan.takes().iter().map(|take| Take {
        key: take.key,
        limit: plan.limit(take),
        ask: take.ask,
        role: take.role,
    });
    let mut batch = Batch::new();
    batch.push(takes.chain(refuses));
    counters.take_now(&mut batch, now);
    let (admitted, answers) = (batch.admitted(0), batch.answers(0)[..plan.takes().len()].to_vec());
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
        Charge, Descriptor, DescriptorDraft, DomainDraft, Entry, LimitError, OwnLimit, RuleDraft, Secret,
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

    #[test]
    fn a_limit_that_cannot_be_counted_refuses_but_penalties_stand() -> Result<(), LimitError> {
        let limit = Limit::fixed_window(5, Micros::from_secs(60))?;
        let node = |key: &str, limit| DescriptorDraft {
            key: key.into(),
            limits: vec![RuleDraft { limit: Some(limit), ..RuleDraft::default() }],
            ..DescriptorDraft::default()
        };
        let descriptors =
            vec![node("penalty", limit.clone().charging(Charge::Always)?), node("plain", limit)];
        let domain = DomainDraft { name: "d".into(), descriptors, ..DomainDraft::default() };
        let book = Book::new([domain], Secret::new([1; 16]));
        let now = Micros::from_secs(1_800_000_000);
        let counters = Memory::new(MemorySize::of_bytes(1 << 20), now).expect("memory");
        let entries = [Entry { key: "penalty", value: "a" }, Entry { key: "plain", value: "a" }];
        let own = Some(OwnLimit { amount: 1, window: Micros::ZERO });
        let descriptors = [(0..1, None), (1..2, None), (0..2, own)].map(|(entries, limit)| Descriptor {
            entries,
            cost: 1,
            limit,
        });
        let asked = |count| {
            let query = Query { domain: "d", entries: &entries, descriptors: &descriptors[..count] };
            decide(&book, &counters, &query, now)
        };
        assert!(!asked(3).admitted);
        let after = asked(2);
        let remaining: Vec<u32> = after.answers.iter().map(|answer| answer.verdict.remaining).collect();
        assert_eq!((after.admitted, remaining), (true, vec![3, 4]), "only the penalty was charged before");
        Ok(())
    }
}
