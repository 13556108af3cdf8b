//! The words of rule files for what a rule says.

use tidegate_core::{Consistency, OnStoreFailure, Rule};

/// What is unusual about a rule, besides its limit.
pub(crate) fn of(rule: &Rule) -> Vec<String> {
    let said = &rule.said;
    let mut words = Vec::new();
    let flags = [(said.disabled, "disabled"), (said.shadow, "shadow_mode"), (said.quota, "quota_mode")];
    words.extend(flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_string()));
    if let Some(share) = said.enforce {
        words.push(format!("enforce={}%", f64::from(share.basis_points()) / 100.0));
    }
    if said.policy.consistency != Consistency::default() {
        words.push(format!("consistency={}", consistency(said.policy.consistency)));
    }
    if said.policy.on_store_failure != OnStoreFailure::default() {
        words.push(format!("on_store_failure={}", on_store_failure(said.policy.on_store_failure)));
    }
    if !said.replaces.is_empty() {
        words.push(format!("replaces={}", said.replaces.join(",")));
    }
    words
}

pub(crate) fn consistency(consistency: Consistency) -> &'static str {
    match consistency {
        Consistency::Exact => "exact",
        Consistency::Leased => "leased",
        Consistency::Capped => "capped",
        Consistency::Local => "local",
    }
}

pub(crate) fn on_store_failure(policy: OnStoreFailure) -> &'static str {
    match policy {
        OnStoreFailure::Allow => "allow",
        OnStoreFailure::Deny => "deny",
        OnStoreFailure::Local => "local",
        OnStoreFailure::Error => "error",
    }
}
