//! The decision on a whole request, from the verdicts on its takes.

use std::borrow::Borrow;
use std::cmp::Reverse;

use crate::{Micros, Verdict};

/// What a take means for its request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Role {
    /// A request that does not pass it is refused.
    #[default]
    Enforce,
    /// It is judged and charged as if it were enforced, and never decides.
    Shadow,
    /// One of a group: of all such takes in a request at least one has to pass.
    Quota,
}

/// Is a request admitted, given the role of each take and whether it passed?
///
/// All enforcing takes have to pass and, if there are any of a quota, one of those. A request without takes is admitted.
pub fn admits(takes: impl IntoIterator<Item = (Role, bool)>) -> bool {
    let (mut enforced, mut any_quota, mut quota_passes) = (true, false, false);
    for (role, passes) in takes {
        match role {
            Role::Enforce => enforced &= passes,
            Role::Shadow => {}
            Role::Quota => {
                any_quota = true;
                quota_passes |= passes;
            }
        }
    }
    enforced && (!any_quota || quota_passes)
}

/// Which of several verdicts is told, where one has to speak for all: the refusal with the longest wait; where nothing refuses, the
/// one with the least remaining, and of those the one with the longest reset. What is in shadow never speaks.
pub fn told<V: Borrow<Verdict>>(takes: impl IntoIterator<Item = (Role, V)>) -> Option<usize> {
    let heard = takes.into_iter().enumerate().filter(|(_, (role, _))| *role != Role::Shadow);
    let order = |verdict: &Verdict| match verdict.admitted() {
        // A refusal that no wait cures is the longest.
        false => (false, 0, Reverse(verdict.retry_after.unwrap_or(Micros::MAX))),
        true => (true, verdict.remaining, Reverse(verdict.reset)),
    };
    heard.min_by_key(|(_, (_, verdict))| order(verdict.borrow())).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::Role::{Enforce, Quota, Shadow};
    use super::*;
    use crate::Outcome;

    #[test]
    fn the_longest_wait_is_told_else_the_least_that_remains() {
        let refused = |wait: Option<u64>| Verdict {
            outcome: Outcome::RateLimited,
            retry_after: wait.map(Micros::from_secs),
            ..Verdict::BLANK
        };
        let admitted = |remaining, reset| Verdict {
            outcome: Outcome::Admitted,
            remaining,
            reset: Micros::from_secs(reset),
            ..Verdict::BLANK
        };
        for (verdicts, at) in [
            (vec![], None),
            (vec![(Shadow, refused(Some(9)))], None),
            (
                vec![(Enforce, admitted(0, 9)), (Enforce, refused(Some(1))), (Quota, refused(Some(2)))],
                Some(2),
            ),
            (vec![(Enforce, refused(Some(5))), (Enforce, refused(None))], Some(1)),
            (vec![(Shadow, admitted(1, 1)), (Enforce, admitted(7, 1)), (Enforce, admitted(3, 1))], Some(2)),
            (vec![(Enforce, admitted(3, 1)), (Enforce, admitted(3, 2))], Some(1)),
        ] {
            assert_eq!(told(verdicts.iter().map(|(role, verdict)| (*role, verdict))), at, "{verdicts:?}");
        }
    }

    #[test]
    fn every_enforcing_take_and_one_of_the_quota_have_to_pass() {
        for (takes, admitted) in [
            (vec![], true),
            (vec![(Enforce, true), (Enforce, true)], true),
            (vec![(Enforce, true), (Enforce, false)], false),
            (vec![(Shadow, false)], true),
            (vec![(Quota, false)], false),
            (vec![(Quota, false), (Quota, true)], true),
            (vec![(Quota, true), (Enforce, false)], false),
            (vec![(Quota, false), (Enforce, true)], false),
        ] {
            assert_eq!(admits(takes.clone()), admitted, "{takes:?}");
        }
    }
}
