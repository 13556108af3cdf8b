//! What a node does otherwise because it stands in for envoyproxy/ratelimit: its stats, headers and metadata, its modes for the whole node,
//! and its pages. Decisions are made as everywhere.

mod json; // `/json`
mod metadata; // what the proxy is told beside an answer
mod pages; // `/rlconfig`, `/stats` and the like

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Fate, Found, Query, Role, RuleState};
use tidegate_counters::{Mode, Store};
use tidegate_telemetry::RequestOutcome;
use tidegate_telemetry::reference::{
    Judged, LocalCacheGauges, PoolGauges, ReferenceGauges, ReferenceMethod, ReferenceStats,
};

use crate::decide::Decision;
use crate::node::{InForce, Node};
use crate::rls::CallError;
use crate::rls::response::{Code, ResponseWriter, Status};

pub(crate) use json::answer as answer_json;
pub(crate) use metadata::write as write_metadata;
pub(crate) use pages::{answer as answer_page, health};

/// A call for a domain without a name, and one without descriptors, in the reference's words.
pub(crate) const EMPTY_DOMAIN: &str = "rate limit domain must not be empty";
pub(crate) const NO_DESCRIPTORS: &str = "rate limit descriptor list must not be empty";
/// A call that came before any rules did.
pub(crate) const NO_RULES: &str = "no rate limit configuration loaded";

/// What a node does because it stands in for envoyproxy/ratelimit.
#[derive(Debug)]
pub struct StandIn {
    /// Every request is let through.
    pub shadow: bool,
    /// Answers bring metadata.
    pub metadata: bool,
    /// The names of the headers for limit, remaining and reset, if answers bring any.
    pub headers: Option<[String; 3]>,
    /// Are refusals remembered, as in its local cache?
    pub local_cache: bool,
    /// The path of its metrics, if they are served.
    pub prometheus_path: Option<String>,
    /// Is a node without a connection to its store ill?
    pub health_needs_store: bool,
    /// Its numbers.
    pub stats: Arc<ReferenceStats>,
}

impl StandIn {
    /// Counts a decision, and says what the whole request is told.
    pub(crate) fn overall(
        &self,
        core: usize,
        decision: &Decision<'_>,
        in_force: &InForce,
        query: &Query<'_>,
    ) -> Code {
        self.count(core, decision, in_force, query);
        if decision.admitted {
            return Code::Ok;
        }
        if self.shadow {
            self.stats.global_shadow_mode();
            return Code::Ok;
        }
        Code::OverLimit
    }

    /// Counts a request that failed.
    pub(crate) fn failed(&self, error: &CallError) {
        match error {
            CallError::Unavailable => self.stats.redis_error(),
            _ => self.stats.service_error(),
        }
    }

    /// Counts a call.
    pub(crate) fn called(&self, core: usize, outcome: RequestOutcome, took: Duration) {
        match outcome {
            RequestOutcome::Failed => self.stats.redis_error(),
            RequestOutcome::Invalid => self.stats.service_error(),
            _ => {}
        }
        self.stats.call(core, ReferenceMethod::ShouldRateLimit, took);
    }

    fn count(&self, core: usize, decision: &Decision<'_>, in_force: &InForce, query: &Query<'_>) {
        let Some(domain) = decision.plan.domain() else {
            return self.stats.domain_not_found(query.domain, query.descriptors.len() as u64);
        };
        let Some(names) = &in_force.reference else { return };
        for found in decision.plan.found() {
            let (Fate::Counted(at), Some(number)) = (found.fate, found.descriptor) else { continue };
            let (Some(answer), Some(descriptor)) = (decision.answers.get(at), query.descriptors.get(number))
            else {
                continue;
            };
            if matches!(answer.mode, Mode::Degraded(_) | Mode::Unasked) {
                continue; // There, too, nothing is counted that the store did not answer.
            }
            let (entries, rule) = (domain.walked(query.entries_of(descriptor)), found.rule);
            let hits = descriptor.cost.unsigned_abs();
            if descriptor.cost < 0 {
                names.given_back(core, query.domain, rule, entries, hits);
                continue;
            }
            let (verdict, limit) = (&answer.verdict, u64::from(answer.verdict.limit));
            let used = (limit + u64::from(verdict.debt)).saturating_sub(verdict.remaining.into());
            let judged = Judged {
                before: used.saturating_sub(u64::try_from(verdict.applied).unwrap_or(0)),
                hits,
                limit,
                shadow: rule.is_some_and(|rule| rule.state() == RuleState::Shadow),
                cached: self.local_cache && answer.mode == Mode::Remembered,
            };
            names.judged(core, query.domain, rule, entries, &judged);
        }
    }

    /// What is known of a descriptor whose limit is in shadow mode: elsewhere nothing, here its numbers.
    pub(crate) fn shadowed(decision: &Decision<'_>, descriptor: usize) -> Option<usize> {
        let of_it = |found: &&Found<'_>| found.descriptor == Some(descriptor);
        decision.plan.found().iter().filter(of_it).find_map(|found| match found.fate {
            Fate::Counted(at) if decision.role(at) == Role::Shadow && decision.has_numbers(at) => Some(at),
            _ => None,
        })
    }

    /// The headers of an answer: those of the last limit that refused it, else of the one with the least remaining.
    pub(crate) fn write_headers<'s>(
        &self,
        statuses: impl Iterator<Item = (Status<'s>, bool)>,
        writer: &mut ResponseWriter<'_>,
    ) {
        let Some(names) = &self.headers else { return };
        let (mut told, mut refused): (Option<Status<'s>>, bool) = (None, false);
        for (status, decides) in statuses.filter(|(status, _)| status.limit.is_some()) {
            let refuses = status.code == Code::OverLimit && decides;
            if refuses || !refused && told.is_none_or(|told| status.remaining < told.remaining) {
                told = Some(status);
            }
            refused |= refuses;
        }
        let Some(status) = told else { return };
        let amount = status.limit.map_or(0, |limit| limit.amount);
        let reset = status.reset.map_or(0, |reset| reset.secs_up());
        for (name, value) in names.iter().zip([amount.into(), status.remaining.into(), reset]) {
            writer.response_header(name, &value.to_string());
        }
    }
}

/// What a node knows of itself, for stats.
pub fn reference_gauges(node: &Node) -> ReferenceGauges {
    let Store::Redis(redis) = &node.store else { return ReferenceGauges::default() };
    let (stats, second) = (redis.stats(), redis.per_second_stats());
    let pool = |active: u64, opened: u64| PoolGauges {
        cx_active: active,
        cx_total: opened,
        cx_local_close: opened.saturating_sub(active),
    };
    let local_cache = node.stand_in.as_ref().is_some_and(|stand_in| stand_in.local_cache);
    ReferenceGauges {
        redis_pool: Some(pool(stats.connections(), stats.connections_opened())),
        redis_per_second_pool: second.map(|stats| pool(stats.connections(), stats.connections_opened())),
        local_cache: local_cache.then(|| LocalCacheGauges {
            expired_count: stats.denials.expired,
            entry_count: stats.denials.entries,
            hit_count: stats.remembered_denials,
            miss_count: stats.denials.lookups.saturating_sub(stats.remembered_denials),
            lookup_count: stats.denials.lookups,
            overwrite_count: stats.denials.overwritten,
            ..LocalCacheGauges::default()
        }),
    }
}
