//! The page that is scraped is what the table says, row by row.

mod support;

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use support::{Page, book, node, page, verdict};
use tidegate_core::{LimitError, Micros, OnStoreFailure, Outcome, Role, Verdict};
use tidegate_telemetry::{
    AuditSinkGauges, Build, CalendarGauges, ConnectionRefused, ControlGauges, Gauges, InternalCall, Kind,
    Metric, Metrics, Place, RequestOutcome, Reservation, RuleMetrics, Server, StoreGauges, StoreServer,
    TABLE, XdsGauges, encode,
};

/// A node to which everything has happened, each thing another number of times.
fn busy() -> Result<Page, LimitError> {
    let book = book("api", vec![node("key", Some("per-key"))?]);
    let rules = RuleMetrics::of(&book, 2, None);
    let rule = book.rules().first();
    let metrics = Metrics::new(2);
    let times = |times: u32, what: &dyn Fn()| (0..times).for_each(|_| what());

    let count = |role, outcome| rules.count(1, rule, role, &verdict(outcome, 10), false);
    times(2, &|| count(Role::Enforce, Outcome::Admitted));
    times(3, &|| count(Role::Enforce, Outcome::RateLimited));
    times(4, &|| count(Role::Quota, Outcome::CostExceedsLimit));
    times(5, &|| count(Role::Enforce, Outcome::NotHeld));
    times(6, &|| count(Role::Shadow, Outcome::RateLimited));
    times(7, &|| rules.count(0, rule, Role::Enforce, &verdict(Outcome::Admitted, 0), true));
    let forgiven = Verdict { forgiven: 8, ..verdict(Outcome::RateLimited, 0) };
    rules.count(0, rule, Role::Enforce, &forgiven, false);
    times(9, &|| rules.count(0, None, Role::Enforce, &verdict(Outcome::Admitted, 100), false));

    let core = metrics.core(0);
    for (at, outcome) in RequestOutcome::ALL.iter().enumerate() {
        times(at as u32 + 1, &|| core.request(Server::Rls, *outcome, 20));
    }
    metrics.core(1).request(Server::Http, RequestOutcome::Admitted, 2_000_000);
    times(2, &|| core.refund_ignored());
    times(2, &|| core.places(Place::Taken, 3));
    times(4, &|| core.reservation(Reservation::Settled));
    times(3, &|| core.internal_error(OnStoreFailure::Allow));
    times(4, &|| metrics.core(1).internal_error(OnStoreFailure::Error));
    times(2, &|| core.store_failure(OnStoreFailure::Local));
    times(3, &|| core.store_failure(OnStoreFailure::Deny));
    times(5, &|| core.internal_call(InternalCall::Stale));
    times(6, &|| metrics.connection_refused(Server::Http, ConnectionRefused::Handshake));
    let gauges = Gauges {
        places_expired: 7,
        keys_live: 11,
        keys_capacity: 12,
        keys_expired: 13,
        evicted_live: 16,
        evicted_refused: 2,
        unremembered: 15,
        counter_bytes: 17,
        arena_bytes: 18,
        arena_used_bytes: 19,
        rules: 20,
        reloaded_at: Micros::new(1_800_000_000_500_000),
        reload_successful: true,
        reloads: 21,
        reload_failures: 22,
        connections: [23, 24],
        started_at: Micros::from_secs(1_700_000_000),
        build: Build { version: "1.2.3", commit: "abc", profile: "release" },
        store: Some(store()),
        xds: Some(XdsGauges { connected: true, accepted: 39, rejected: 40 }),
        calendars: Some(CalendarGauges { waiting: 41, written: 42, restored: 43, left_out: 44 }),
        control: Some(ControlGauges {
            stale_seconds: 41,
            revision: 42,
            follow_errors: 43,
            quota_keys: 44,
            quota_bytes: 45,
            admin_calls: Some([46, 47, 48, 49, 50]),
        }),
        refusals_file: Some((43, 44)),
        audit_sink: Some(AuditSinkGauges { behind: 41, failures: 42 }),
    };
    Ok(Page::parse(&encode(&metrics, &rules, &gauges)))
}

fn store() -> StoreGauges {
    let server = |address: &str, connections| StoreServer {
        address: address.into(),
        connections,
        calls: vec![("take", vec![1, 2, 4], 7_000), ("inspect", vec![0, 0, 0], 0)],
        circuit: 2,
        opened: 34,
        modes: vec![
            ("closed", Duration::from_millis(35_500)),
            ("half_open", Duration::ZERO),
            ("open", Duration::from_secs(36)),
        ],
        evicted_keys: Some(37),
    };
    StoreGauges {
        servers: vec![server("127.0.0.1:6379", 25), server("[::1]:6379", 26)],
        times_us: &[100, 1_000],
        errors: vec![("timeout", 27), ("moved", 28)],
        redirects: 29,
        refreshes: 30,
        remembered_denials: 31,
        disagreements: 32,
        in_flight: 33,
        nodes: Some(38),
    }
}

/// The name under which OpenMetrics announces it.
fn family(metric: &Metric) -> &str {
    let suffix = match metric.kind {
        Kind::Counter => "_total",
        Kind::Info => "_info",
        Kind::Gauge | Kind::Histogram => "",
    };
    metric.name.strip_suffix(suffix).unwrap_or(metric.name)
}

#[test]
fn all_that_is_written_is_in_the_table_and_all_of_the_table_is_written() -> Result<(), LimitError> {
    let page = busy()?;
    let works = || TABLE.iter();
    let expected: Vec<(String, String)> =
        works().map(|metric| (family(metric).into(), metric.kind.word().into())).collect();
    let kinds: BTreeSet<_> = page.kinds.clone().into_iter().collect();
    assert_eq!(kinds, expected.into_iter().collect());

    let mut written = HashSet::new();
    for sample in &page.samples {
        let of_metric = |metric: &&&Metric| match metric.kind {
            Kind::Histogram => {
                let suffix = sample.name.strip_prefix(metric.name);
                matches!(suffix, Some("_bucket" | "_sum" | "_count"))
            }
            _ => metric.name == sample.name,
        };
        let metric = works().find(of_metric).unwrap_or_else(|| panic!("{} is not in the table", sample.name));
        written.insert(metric.name);
        let labels = sample.labels.iter().filter(|(name, _)| name != "le");
        for (label, (name, value)) in metric.labels.iter().zip(labels.clone()) {
            assert_eq!(label.name, name, "{}", metric.name);
            let known = label.words.is_empty() || label.words.contains(&value.as_str());
            assert!(known, "{}: {value} is no word of {name}", metric.name);
        }
        assert_eq!(labels.count(), metric.labels.len(), "{}", metric.name);
    }
    assert_eq!(written.len(), works().count());
    Ok(())
}

/// Not everybody reads a page of thousands of rules to its end.
#[test]
fn rules_stand_behind_all_that_is_told_of_the_node() -> Result<(), LimitError> {
    let page = busy()?;
    let is_of_rule = |sample: &support::Sample| sample.labels.iter().any(|(name, _)| name == "rule");
    let first = page.samples.iter().position(is_of_rule).expect("a rule");
    assert!(first > 0 && page.samples[first..].iter().all(is_of_rule), "{:?}", page.samples[first]);
    Ok(())
}

#[test]
fn every_row_has_its_number() -> Result<(), LimitError> {
    let page = busy()?;
    let rule = ("rule", "api|key#per-key");
    for (name, labels, value) in [
        ("ratelimit_decisions_total", &[rule, ("outcome", "allowed")][..], 2.0),
        ("ratelimit_decisions_total", &[rule, ("outcome", "refused")], 13.0),
        ("ratelimit_decisions_total", &[rule, ("outcome", "shadow_refused")], 6.0),
        ("ratelimit_decisions_total", &[rule, ("outcome", "degraded"), ("domain", "api"), ("tier", "")], 7.0),
        ("ratelimit_decisions_total", &[("rule", "request"), ("outcome", "allowed"), ("domain", "")], 9.0),
        ("ratelimit_denied_total", &[rule, ("reason", "rate_limited")], 4.0),
        ("ratelimit_denied_total", &[rule, ("reason", "cost_exceeds_limit")], 4.0),
        ("ratelimit_denied_total", &[rule, ("reason", "not_held")], 5.0),
        ("ratelimit_forgiven_units_total", &[rule], 8.0),
        ("ratelimit_remaining_bucket", &[rule, ("le", "0.0")], 1.0),
        ("ratelimit_remaining_bucket", &[rule, ("le", "0.05")], 1.0),
        ("ratelimit_remaining_bucket", &[rule, ("le", "0.1")], 21.0),
        ("ratelimit_remaining_bucket", &[rule, ("le", "+Inf")], 21.0),
        ("ratelimit_remaining_count", &[rule], 21.0),
        ("ratelimit_remaining_sum", &[rule], 2.0),
        ("ratelimit_requests_total", &[("server", "rls"), ("outcome", "admitted")], 1.0),
        ("ratelimit_requests_total", &[("server", "rls"), ("outcome", "refused")], 2.0),
        ("ratelimit_requests_total", &[("server", "rls"), ("outcome", "invalid")], 3.0),
        ("ratelimit_requests_total", &[("server", "rls"), ("outcome", "failed")], 4.0),
        ("ratelimit_requests_total", &[("server", "http"), ("outcome", "failed")], 0.0),
        ("ratelimit_check_duration_seconds_bucket", &[("server", "rls"), ("le", "0.00001")], 0.0),
        ("ratelimit_check_duration_seconds_bucket", &[("server", "rls"), ("le", "0.000025")], 10.0),
        ("ratelimit_check_duration_seconds_bucket", &[("server", "http"), ("le", "1.0")], 0.0),
        ("ratelimit_check_duration_seconds_bucket", &[("server", "http"), ("le", "+Inf")], 1.0),
        ("ratelimit_check_duration_seconds_sum", &[("server", "http")], 2.0),
        ("ratelimit_refunds_ignored_total", &[], 2.0),
        ("ratelimit_places_total", &[("event", "taken")], 6.0),
        ("ratelimit_places_total", &[("event", "missed")], 0.0),
        ("ratelimit_places_total", &[("event", "expired")], 7.0),
        ("ratelimit_reservations_total", &[("event", "settled")], 4.0),
        ("ratelimit_failopen_total", &[], 3.0),
        ("ratelimit_store_failures_total", &[("policy", "local")], 2.0),
        ("ratelimit_store_failures_total", &[("policy", "deny")], 3.0),
        ("ratelimit_store_failures_total", &[("policy", "error")], 0.0),
        ("ratelimit_redis_errors_total", &[("kind", "moved")], 28.0),
        (
            "ratelimit_store_duration_seconds_bucket",
            &[("shard", "[::1]:6379"), ("op", "take"), ("le", "0.0001")],
            1.0,
        ),
        (
            "ratelimit_store_duration_seconds_bucket",
            &[("shard", "[::1]:6379"), ("op", "take"), ("le", "0.001")],
            3.0,
        ),
        (
            "ratelimit_store_duration_seconds_bucket",
            &[("shard", "[::1]:6379"), ("op", "take"), ("le", "+Inf")],
            7.0,
        ),
        ("ratelimit_store_duration_seconds_sum", &[("shard", "[::1]:6379"), ("op", "take")], 0.007),
        ("ratelimit_store_duration_seconds_count", &[("shard", "[::1]:6379"), ("op", "inspect")], 0.0),
        ("ratelimit_store_connections", &[("shard", "127.0.0.1:6379")], 25.0),
        ("ratelimit_circuit_state", &[("shard", "[::1]:6379")], 2.0),
        ("ratelimit_circuit_opened_total", &[("shard", "[::1]:6379")], 34.0),
        ("ratelimit_store_mode_seconds_total", &[("shard", "127.0.0.1:6379"), ("mode", "closed")], 35.5),
        ("ratelimit_store_mode_seconds_total", &[("shard", "127.0.0.1:6379"), ("mode", "open")], 36.0),
        ("ratelimit_store_evicted_keys", &[("shard", "127.0.0.1:6379")], 37.0),
        ("ratelimit_fleet_nodes", &[], 38.0),
        ("ratelimit_store_redirects_total", &[], 29.0),
        ("tidegate_xds_connected", &[], 1.0),
        ("tidegate_xds_updates_total", &[("result", "accepted")], 39.0),
        ("tidegate_xds_updates_total", &[("result", "rejected")], 40.0),
        ("ratelimit_config_stale_seconds", &[], 41.0),
        ("tidegate_control_revision", &[], 42.0),
        ("tidegate_control_follow_errors_total", &[], 43.0),
        ("tidegate_quota_keys", &[], 44.0),
        ("tidegate_quota_bytes", &[], 45.0),
        ("tidegate_admin_calls_total", &[("result", "done")], 46.0),
        ("tidegate_admin_calls_total", &[("result", "unauthorized")], 47.0),
        ("tidegate_admin_calls_total", &[("result", "throttled")], 48.0),
        ("tidegate_admin_calls_total", &[("result", "refused")], 49.0),
        ("tidegate_admin_calls_total", &[("result", "failed")], 50.0),
        ("ratelimit_store_refreshes_total", &[], 30.0),
        ("ratelimit_remembered_denials_total", &[], 31.0),
        ("ratelimit_store_disagreements_total", &[], 32.0),
        ("ratelimit_store_in_flight", &[], 33.0),
        ("tidegate_internal_errors_total", &[("policy", "allow")], 3.0),
        ("tidegate_internal_errors_total", &[("policy", "error")], 4.0),
        ("tidegate_internal_calls_total", &[("result", "stale")], 5.0),
        ("tidegate_connections_refused_total", &[("server", "http"), ("reason", "handshake")], 6.0),
        ("tidegate_keys_live", &[], 11.0),
        ("tidegate_keys_capacity", &[], 12.0),
        ("tidegate_keys_expired_total", &[], 13.0),
        ("tidegate_counter_evictions_total", &[("kind", "live")], 14.0),
        ("tidegate_counter_evictions_total", &[("kind", "refused")], 2.0),
        ("tidegate_charges_unremembered_total", &[], 15.0),
        ("tidegate_counter_bytes", &[], 17.0),
        ("tidegate_counter_arena_bytes", &[], 18.0),
        ("tidegate_counter_arena_used_bytes", &[], 19.0),
        ("tidegate_rules", &[], 20.0),
        ("tidegate_config_last_reload_timestamp_seconds", &[], 1_800_000_000.5),
        ("tidegate_config_last_reload_successful", &[], 1.0),
        ("tidegate_config_reloads_total", &[], 21.0),
        ("tidegate_config_reload_failures_total", &[], 22.0),
        ("tidegate_connections", &[("server", "rls")], 23.0),
        ("tidegate_connections", &[("server", "http")], 24.0),
        ("tidegate_log_lines_lost_total", &[], 0.0),
        ("tidegate_start_time_seconds", &[], 1_700_000_000.0),
        ("tidegate_build_info", &[("version", "1.2.3"), ("commit", "abc"), ("profile", "release")], 1.0),
    ] {
        assert_eq!(page.value(name, labels), Some(value), "{name} {labels:?}");
    }
    Ok(())
}

#[test]
fn a_rule_of_any_name_is_a_row_that_can_be_read() -> Result<(), LimitError> {
    for name in ["\"}\\ 1", "\n# EOF", "日本語", "a\0b", &"x".repeat(50_000)] {
        let book = book("api\"", vec![node("key", Some(name))?]);
        let rules = RuleMetrics::of(&book, 1, None);
        rules.count(0, book.rules().first(), Role::Enforce, &verdict(Outcome::Admitted, 1), false);
        let page = page(&rules);
        let row = page.samples.iter().find(|sample| sample.name == "ratelimit_decisions_total");
        let label = row.and_then(|row| row.label("rule")).unwrap_or_default();
        let id = &book.rules()[0].id;
        let plain = id.len() <= 200 && !id.contains(char::is_control);
        assert_eq!(label == &**id, plain, "{label}");
        assert!(label.starts_with("api\"|key#") && label.len() <= 200, "{label}");
    }
    Ok(())
}

#[test]
fn what_is_not_told_by_tier_is_one_row_for_all() -> Result<(), LimitError> {
    let mut key = node("key", Some("first"))?;
    key.limits.extend(node("key", Some("second"))?.limits);
    key.tiers = vec![("pro".into(), key.limits.clone())];
    let book = book("api", vec![key]); // The tiers of one rule do not stand beside each other.
    let rules = RuleMetrics::of(&book, 1, None);
    let refused = Verdict { forgiven: 3, ..verdict(Outcome::RateLimited, 0) };
    for rule in book.rules() {
        rules.count(0, Some(rule), Role::Enforce, &refused, false);
    }
    let page = page(&rules);
    for rule in ["api|key#first", "api|key#second"] {
        let value = |name, labels: &[_]| page.value(name, &[&[("rule", rule)], labels].concat());
        assert_eq!(value("ratelimit_denied_total", &[("reason", "rate_limited")]), Some(2.0));
        assert_eq!(value("ratelimit_forgiven_units_total", &[]), Some(6.0));
        for tier in ["", "pro"] {
            let labels = [("outcome", "refused"), ("tier", tier)];
            assert_eq!(value("ratelimit_decisions_total", &labels), Some(1.0), "{tier}");
        }
    }
    Ok(())
}
