//! The decision on a whole request, from the verdicts on its takes.

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

#[cfg(test)]
mod tests {
    use super::Role::{Enforce, Quota, Shadow};
    use super::*;

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
