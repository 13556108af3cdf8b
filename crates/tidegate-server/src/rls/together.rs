//! Calls that came together, on counters in memory. What each of them needs is somewhere else in memory, and takes as long to come from
//! there as a good part of a decision; so before the first is decided, it is found out for all of them what that will be, and asked for.
//!
//! Nothing is decided ahead, nor charged: a call of which nothing was found out is answered like one that came alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use smallvec::SmallVec;
use tidegate_core::Micros;
use tidegate_counters::Memory;
use tidegate_http2::StreamId;

use super::answer::Read;
use super::grpc::Call;
use crate::decide::By;
use crate::node::{Ahead, Core, InForce};

/// How many calls are looked at together. What they need has to stay near until it is their turn.
pub(super) const TOGETHER_MAX: usize = 8;

/// A call whose message is here.
pub(super) struct Ready<'a> {
    pub(super) stream: StreamId,
    pub(super) call: Call,
    pub(super) message: &'a [u8],
}

/// Calls that came together.
pub(super) type Together<'a> = SmallVec<[Ready<'a>; TOGETHER_MAX]>;

/// What was read and found out of each. One that is not there, or has no plan, is to be answered like one that came alone.
pub(super) type LookedAt<'a, 'r> = SmallVec<[Read<'a, 'r>; TOGETHER_MAX]>;

impl Core {
    /// Looks at some calls before they are decided, all of them at the time `now`.
    pub(super) fn look_ahead<'a, 'r>(
        &self,
        memory: &Memory,
        in_force: &'r InForce,
        calls: &[Ready<'a>],
        now: Micros,
        all: &mut LookedAt<'a, 'r>,
    ) {
        // What settles a reservation is another request when it is planned.
        if calls.len() < 2 || in_force.book.has_reservations() {
            return;
        }
        let looked = catch_unwind(AssertUnwindSafe(|| {
            let by = in_force.at(now);
            for (at, ready) in calls.iter().enumerate() {
                all.push(Read::default());
                self.begin(&by, in_force, ready, &mut all[at]);
            }
            // Who has nothing for itself is planned at once. Who has is further away: the way there takes as long as others' plans.
            let mut own: SmallVec<[usize; TOGETHER_MAX]> = SmallVec::new();
            for (at, (read, ready)) in all.iter_mut().zip(calls).enumerate() {
                let mut looks_up = |callers| read.ahead.as_mut().is_some_and(|one| one.plan.look_up(callers));
                if by.callers.as_ref().is_some_and(&mut looks_up) {
                    own.push(at);
                } else {
                    self.finish(&by, memory, ready, read);
                }
            }
            if let Some(callers) = &by.callers {
                of(all, &own).for_each(|ahead| ahead.plan.bring_own_near(callers));
            }
            bring_states_near(memory, all.iter().filter_map(|read| read.ahead.as_ref()));
            for at in &own {
                self.finish(&by, memory, &calls[*at], &mut all[*at]);
            }
            bring_states_near(memory, of(all, &own));
        }));
        if looked.is_err() {
            all.clear(); // Who broke it will break alone.
        }
    }

    /// Ends the plan of a call, if it has begun, and asks for the counters that are in it.
    #[inline]
    fn finish<'a, 'r>(
        &self,
        by: &By<'r>,
        memory: &Memory,
        ready: &Ready<'a>,
        Read { request, lease, ahead }: &mut Read<'a, 'r>,
    ) {
        let domain = self.domain_of(request.domain, ready.call.standing);
        let (Some(ahead), Some(domain)) = (ahead, domain) else { return };
        by.finish_plan(&request.query(domain, lease), &mut ahead.plan);
        ahead.plan.takes().iter().for_each(|take| memory.bring_set_near(take.key));
    }

    /// Reads a call and begins its plan, if there is anything to be planned.
    fn begin<'a, 'r>(
        &self,
        by: &By<'r>,
        in_force: &InForce,
        ready: &Ready<'a>,
        Read { request, lease, ahead }: &mut Read<'a, 'r>,
    ) {
        if request.read(ready.message).is_err() || request.too_much {
            return;
        }
        if let Some(domain) = self.domain_of(request.domain, ready.call.standing) {
            *lease = self.fresh_lease_by(in_force);
            *ahead = Some(self.begin_ahead(by, &request.query(domain, lease)));
        }
    }
}

/// What was found out of these of them.
fn of<'l, 'r>(all: &'l LookedAt<'_, 'r>, some: &'l [usize]) -> impl Iterator<Item = &'l Ahead<'r>> {
    some.iter().filter_map(|at| all[*at].ahead.as_ref())
}

/// Asks for the states of the counters in these plans. A plan that is not finished has none.
fn bring_states_near<'l, 'r: 'l>(memory: &Memory, all: impl Iterator<Item = &'l Ahead<'r>>) {
    for Ahead { plan, .. } in all {
        plan.takes().iter().for_each(|take| memory.bring_state_near(take.key, plan.limit(take)));
    }
}
