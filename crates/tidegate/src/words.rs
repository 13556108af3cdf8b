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
        words.push(format!("on_store_failure={}", said.policy.on_store_failure.name()));
    }
    if let Some(share) = said.policy.local_share {
        words.push(format!("local_share={}%", f64::from(share.basis_points()) / 100.0));
    }
    if said.policy.replicate > 0 {
        words.push(format!("replicate={}", said.policy.replicate));
    }
    if !said.replaces.is_empty() {
        words.push(format!("replaces={}", said.replaces.join(",")));
    }
    let ids = [("lease_id", &said.lease_id), ("reservation_id", &said.reservation_id)];
    words.extend(ids.into_iter().filter_map(|(word, id)| Some(format!("{word}={}", id.as_ref()?))));
    let flags = [(rule.always, "always"), (said.detailed_metric, "detailed_metric")];
    words.extend(flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_string()));
    for level in rule.path.iter() {
        let pattern = level.value.as_ref().unwrap_or(&level.key);
        if level.is_fixed() && (level.key.contains('*') || pattern.contains('*')) {
            words.push(format!("share_threshold={pattern}"));
        }
        if level.value_to_metric {
            words.push(format!("value_to_metric={}", level.key));
        }
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
