//! What the control plane keeps, put in force: quotas entry by entry, rules and their states as a new book.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use tidegate_control::api::rule_file;
use tidegate_control::{Override, Quota, Revision, RuleState, Sink, State, Tier, Unit};
use tidegate_core::{
    Grant, Micros, Override as CoreOverride, Quota as CoreQuota, QuotaMore, QuotaUnit, Quotas,
    RuleState as CoreState, Share, Tier as CoreTier, override_address,
};
use tidegate_server::rls::Beside;
use tidegate_server::{ControlStatus, Node};
use tokio::runtime::Handle;

use super::super::rules;
use super::API;

/// The node, as what is kept gets to it.
pub(super) struct Apply {
    pub(super) node: Weak<Node>,
    pub(super) quotas: Arc<Quotas>,
    pub(super) status: Arc<ControlStatus>,
    pub(super) beside: Beside,
    pub(super) runtime: Handle,
}

impl Sink for Apply {
    fn quota(&self, quota: &Quota) {
        self.quotas.put(core_quota(quota));
        if quota.domain.is_none() && !self.status.may_have_unnamed() {
            self.status.has_unnamed(true);
            if let Some(node) = self.node.upgrade().filter(|_| self.status.is_loaded()) {
                rules::tell_lost_quotas(&node);
            }
        }
    }

    fn no_quota(&self, api_key: &str) {
        self.quotas.remove(api_key);
    }

    fn quotas_begin(&self) {
        self.quotas.begin();
        self.status.has_unnamed(false);
    }

    fn quotas_end(&self) {
        self.quotas.end();
    }

    fn tiers(&self, tiers: &BTreeMap<String, Tier>) {
        self.quotas.set_tiers(tiers.values().map(|tier| CoreTier {
            name: tier.name.as_str().into(),
            overrides: core_overrides(&tier.overrides),
        }));
    }

    fn rules(&self, rules: &BTreeMap<String, String>) {
        let Some(node) = self.node.upgrade() else { return };
        let texts = rules.iter().map(|(id, document)| (format!("{API}{id}"), Arc::from(rule_file(document))));
        if let Some(loaded) = node.rules.replace_added(texts.collect()) {
            rules::tell(&node, &loaded);
        }
    }

    fn states(&self, states: &[RuleState]) {
        let Some(node) = self.node.upgrade() else { return };
        // A rule by API is also known by its own id, whatever it is compiled to, and whenever.
        let names = |id: &str| [Box::from(id), format!("{API}{id}").into()];
        let of_rules: HashMap<Box<str>, CoreState> = states
            .iter()
            .flat_map(|state| names(&state.rule).map(|name| (name, core_state(state.state))))
            .collect();
        if node.rules.set_states(of_rules, |in_force| &in_force.book) {
            match states.len() {
                0 => tracing::info!("all rules are in the state that they were written in"),
                states => tracing::warn!(states, "rules are in another state than they were written in"),
            }
        }
    }

    fn is_at(&self, revision: Revision) {
        let Some(node) = self.node.upgrade() else { return };
        let was_loaded = self.status.is_loaded();
        self.status.is_at(revision);
        if !was_loaded {
            rules::tell_lost_quotas(&node);
            let (beside, is_ready) = (self.beside.clone(), node.is_ready());
            self.runtime.spawn(async move { beside.tell_health(is_ready).await });
        }
    }

    fn heard(&self) {
        if let Some(node) = self.node.upgrade() {
            self.status.heard(node.clock.wall_now_us());
        }
    }

    fn heard_nothing(&self) {
        self.status.heard_nothing();
    }
}

/// A record in the words of decisions.
pub(super) fn core_quota(quota: &Quota) -> CoreQuota {
    let boxed = |text: &Option<String>| text.as_deref().map(Box::from);
    let more = QuotaMore {
        domain: boxed(&quota.domain),
        user: boxed(&quota.user_id),
        client: boxed(&quota.client_id),
    };
    CoreQuota {
        caller: quota.api_key.as_str().into(),
        tier: quota.tier.as_deref().map(Arc::from),
        overrides: core_overrides(&quota.overrides),
        whitelisted: quota.whitelisted,
        more: (more != QuotaMore::default()).then(|| Box::new(more)),
    }
}

/// What has no address is nowhere: the API does not take such, but a database may have been written by others.
fn core_overrides(overrides: &[Override]) -> Box<[CoreOverride]> {
    let one = |said: &Override| {
        let below = override_address(&said.descriptor).ok()?;
        let time = |at: Option<i64>, none: Micros| {
            at.map_or(none, |at| Micros::new(u64::try_from(at).unwrap_or_default()))
        };
        Some(CoreOverride {
            below,
            grant: Grant { amount: said.requests_per_unit, unit: core_unit(said.unit) },
            from: time(said.effective_at, Micros::ZERO),
            until: time(said.expires_at, Micros::MAX),
        })
    };
    overrides.iter().filter_map(one).collect()
}

fn core_unit(unit: Unit) -> QuotaUnit {
    match unit {
        Unit::Second => QuotaUnit::Second,
        Unit::Minute => QuotaUnit::Minute,
        Unit::Hour => QuotaUnit::Hour,
        Unit::Day => QuotaUnit::Day,
        Unit::Week => QuotaUnit::Week,
        Unit::Month => QuotaUnit::Month,
        Unit::Year => QuotaUnit::Year,
    }
}

fn core_state(state: State) -> CoreState {
    match state {
        State::Enforce => CoreState::Enforce(Share::ALL),
        State::EnforceShare { basis_points } => CoreState::Enforce(Share::of_basis_points(basis_points)),
        State::Shadow => CoreState::Shadow,
        State::Disabled => CoreState::Disabled,
    }
}
