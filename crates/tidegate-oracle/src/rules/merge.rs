//! Several findings, one counter.

use super::judge::Finding;
use super::judged::{Asked, Role};

/// The number of the ask that counts a finding; if it is the first of its counter, the ask is made from all of them.
pub(super) fn merge(asks: &mut Vec<Asked>, all: &[Finding], finding: &Finding) -> usize {
    let of_same = |ask: &Asked| Some(&ask.counter) == finding.counter.as_ref() && ask.lease == finding.lease;
    if let Some(number) = asks.iter().position(of_same) {
        return number;
    }
    let same = |other: &&Finding| {
        other.is_counted(all) && other.counter == finding.counter && other.lease == finding.lease
    };
    let group: Vec<&Finding> = all.iter().filter(same).collect();
    let costs = || group.iter().filter_map(|finding| finding.cost);
    let cost = match finding.by_largest {
        true => i128::from(costs().max().unwrap_or(0)),
        false => costs().map(i128::from).sum(),
    };
    let spec = group.iter().filter_map(|finding| finding.spec.as_ref()).min_by_key(|spec| spec.amount);
    asks.push(Asked {
        counter: finding.counter.clone().expect("what is counted has a counter"),
        lease: finding.lease.clone(),
        cost,
        spec: spec.cloned().expect("what is counted has a limit"),
        role: group.iter().fold(Role::Shadow, |role, finding| strictest(role, finding.role)),
    });
    asks.len() - 1
}

/// One that refuses for anybody refuses for all.
fn strictest(one: Role, other: Role) -> Role {
    let order = [Role::Enforce, Role::EnforceOrShadow, Role::Quota, Role::QuotaOrShadow, Role::Shadow];
    order.into_iter().find(|role| *role == one || *role == other).unwrap_or(Role::Shadow)
}
