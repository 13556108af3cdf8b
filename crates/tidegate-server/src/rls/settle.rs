//! Reservations that a call names are settled: an estimate that was charged is made into what it turned out to cost.

use std::sync::Arc;

use arc_swap::Guard;
use tidegate_core::{
    Ask, Descriptor, Entry, Limit, Micros, OnStoreFailure, Plan, Policy, Query, Reserved, Role, Tag,
};
use tidegate_counters::{Batch, Counters as _, Take};
use tidegate_telemetry::Reservation;

use super::request::RateLimitRequest;
use crate::decide::Asks;
use crate::node::{Asker, Core, InForce, Standing};
use crate::receipts::{Charges, KEPT_MAX};

impl Core {
    /// Does a call settle anything?
    pub(super) fn settles(&self, message: &[u8], standing: Standing) -> bool {
        let in_force = self.node.rules.in_force();
        in_force.book.has_reservations()
            && RateLimitRequest::parse(message).is_ok_and(|request| {
                let domain = self.domain_of(request.domain, standing);
                domain.is_some_and(|domain| names_one(&in_force, &request, domain))
            })
    }

    /// Settles the reservations that descriptors name, and takes these out of the request: nothing else is asked of them. Rules on the same
    /// path that know nothing of the reservation are not charged a second time.
    #[inline]
    pub(super) async fn settle(&self, request: &mut RateLimitRequest<'_>, domain: &str) {
        let in_force = self.node.rules.in_force();
        if !in_force.book.has_reservations() || !names_one(&in_force, request, domain) {
            return;
        }
        // Seldom: in a place of its own, so that no other call carries it along.
        Box::pin(self.settle_named(Guard::into_inner(in_force), request, domain)).await;
    }

    async fn settle_named(&self, in_force: Arc<InForce>, request: &mut RateLimitRequest<'_>, domain: &str) {
        let Some(domain) = in_force.book.domain(domain) else { return };
        for at in 0..request.descriptors.len() {
            let Descriptor { entries, cost, .. } = request.descriptors[at].clone();
            let own = request.entries.get(entries.clone()).unwrap_or_default();
            let Some(named) = domain.reservation_of(own) else { continue };
            // Whatever it came to, the counters are those of a charge.
            let one = [Descriptor { entries, cost: 1, limit: None, own_cost: false }];
            let query =
                Query { domain: domain.name(), entries: &request.entries, descriptors: &one, lease: None };
            let settled = self.settle_one(&in_force, &query, *named, cost).await;
            let event = if settled { Reservation::Settled } else { Reservation::Missed };
            self.node.metrics.core(self.number).reservation(event);
            request.descriptors[at] = Descriptor { entries: 0..0, cost: 0, limit: None, own_cost: false };
        }
    }

    /// Settles what one descriptor names. Says whether there was anything: not if it was settled before, was reserved too long ago, or
    /// never was. That is no trouble.
    async fn settle_one(&self, in_force: &InForce, query: &Query<'_>, named: Entry<'_>, cost: i64) -> bool {
        let mut plan = Plan::new();
        let now = if self.waits() { self.node.wall_now() } else { self.node.now() };
        in_force.plan(query, now, &mut plan);
        let (mut charges, mut first) = (Charges::new(), None);
        for take in plan.takes() {
            let names = |reservation: &str| reservation == named.key;
            let rule = take.rule.filter(|rule| rule.said.reservation_id.as_deref().is_some_and(names));
            let reserved = rule.and_then(|rule| rule.reserved(take.key, named.value));
            if let Some(reserved) = reserved.filter(|one| now.minus(one.receipt.at) < KEPT_MAX) {
                charges.push((take.key, reserved.receipt));
                first = first.or(Some((reserved, take.tag)));
            }
        }
        // One counter speaks for all of them: of two calls that come at the same time, one settles everything.
        let Some((reserved, tag)) = first else { return false };
        if !self.is_first(&reserved, tag, now).await {
            return false;
        }
        let asks = match u64::try_from(cost) {
            Ok(actual) => Asks::Settle { actual, charges: &charges },
            Err(_) => Asks::Refund { units: Some(cost.unsigned_abs()), charges: &charges },
        };
        self.decide(query, &asks, &Asker::at(self.node.now()), |_| ()).await;
        true
    }

    /// Is nobody else settling it, nor has? That is a counter of its own, for as long as the id is good: two calls of two nodes may come at
    /// the same time. If the store cannot say, it is not settled, and the estimate stays.
    async fn is_first(&self, reserved: &Reserved, tag: Tag, now: Micros) -> bool {
        let Ok(limit) = Limit::token_bucket(1, KEPT_MAX, None) else { return false };
        let policy = Policy { on_store_failure: OnStoreFailure::Deny, ..Policy::STRICT };
        let (key, ask, role) = (reserved.settled, Ask::Charge { cost: 1 }, Role::Enforce);
        let mut batch = Batch::new();
        batch.push([Take { key, tag, name: None, limit: &limit, ask, role, policy }]);
        batch.answer_within(self.node.deadline);
        self.hand.take(&mut batch, now).await;
        batch.failure(0).is_none() && batch.admitted(0)
    }
}

fn names_one(in_force: &InForce, request: &RateLimitRequest<'_>, domain: &str) -> bool {
    let domain = in_force.book.domain(domain);
    domain.is_some_and(|domain| domain.reservation_of(&request.entries).is_some())
}
