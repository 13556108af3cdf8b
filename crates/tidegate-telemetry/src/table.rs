//! Every metric, once: what is scraped, the document and its tests are made from this table.

use crate::words::{
    AdminCall, ConnectionRefused, Evicted, InternalCall, Place, Policy, Reason, RequestOutcome, Reservation,
    Said, Server, XdsUpdate,
};

/// One metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    /// Its name, as it is queried.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// What it is measured in.
    pub unit: &'static str,
    /// Its labels, in the order in which they are written.
    pub labels: &'static [Label],
    /// What it says, in a sentence.
    pub help: &'static str,
}

/// What kind of number a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only goes up, and starts at zero with the process.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How many were at most so much, for several bounds.
    Histogram,
    /// Always 1: its labels are what it says.
    Info,
}

/// One label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// The words that its value is one of; none where values come from rules, from the store or from the build.
    pub words: &'static [&'static str],
}

impl Kind {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

const fn label(name: &'static str, words: &'static [&'static str]) -> Label {
    Label { name, words }
}

const DOMAIN: Label = label("domain", &[]);
const RULE: Label = label("rule", &[]);
const TIER: Label = label("tier", &[]);
const SERVER: Label = label("server", Server::WORDS);
/// The address of a server of the store.
const SHARD: Label = label("shard", &[]);

impl Metric {
    const fn new(kind: Kind, name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self { name, kind, unit, labels: &[], help }
    }

    const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Counter, name, unit, help)
    }

    const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Gauge, name, unit, help)
    }

    const fn histogram(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Histogram, name, unit, help)
    }

    const fn by(self, labels: &'static [Label]) -> Self {
        Self { labels, ..self }
    }
}

/// Names each row, and makes the table of them all.
macro_rules! table {
    ($($row:ident = $metric:expr;)+) => {
        $(pub(crate) static $row: Metric = $metric;)+

        /// Every metric.
        pub static TABLE: &[&Metric] = &[$(&$row,)+];
    };
}

table! {
    DECISIONS = Metric::counter(
        "ratelimit_decisions_total",
        "takes",
        "What each limit said to each take that asked it, whatever became of the request.",
    )
    .by(&[DOMAIN, RULE, TIER, label("outcome", Said::WORDS)]);

    DENIED = Metric::counter(
        "ratelimit_denied_total",
        "takes",
        "Why limits refused; without those in shadow.",
    )
    .by(&[DOMAIN, RULE, label("reason", Reason::WORDS)]);

    REMAINING = Metric::histogram(
        "ratelimit_remaining",
        "ratio",
        "What remained of each limit after a take, as a part of it: 0 is used up, 1 untouched.",
    )
    .by(&[DOMAIN, RULE, TIER]);

    FORGIVEN = Metric::counter(
        "ratelimit_forgiven_units_total",
        "units",
        "Units beyond the largest debt of limits that are charged always.",
    )
    .by(&[DOMAIN, RULE]);

    REQUESTS = Metric::counter("ratelimit_requests_total", "requests", "Requests, by what became of them.")
        .by(&[SERVER, label("outcome", RequestOutcome::WORDS)]);

    DURATION = Metric::histogram(
        "ratelimit_check_duration_seconds",
        "seconds",
        "How long requests took, from the bytes that came to the bytes that went.",
    )
    .by(&[SERVER]);

    REFUNDS_IGNORED = Metric::counter(
        "ratelimit_refunds_ignored_total",
        "refunds",
        "Refunds in domains that do not apply them.",
    );

    PLACES = Metric::counter(
        "ratelimit_places_total",
        "places",
        "Places of concurrency limits. `expired` were not given back in time, counted when the next who takes, keeps or releases a place \
         of the same counter clears them away, or the node's memory is swept; a whole counter that expires in a store is not seen. \
         `missed` are releases that came too late.",
    )
    .by(&[label("event", Place::WORDS)]);

    RESERVATIONS = Metric::counter(
        "ratelimit_reservations_total",
        "reservations",
        "Reservations. Those that were made and not settled keep their estimate; `missed` came too late, or twice.",
    )
    .by(&[label("event", Reservation::WORDS)]);

    FAILOPEN = Metric::counter(
        "ratelimit_failopen_total",
        "requests",
        "Requests that were let through because nothing could be counted: the policy `allow`.",
    );

    STORE_FAILURES = Metric::counter(
        "ratelimit_store_failures_total",
        "requests",
        "Requests that the store did not answer, by the policy that answered.",
    )
    .by(&[label("policy", Policy::WORDS)]);

    CIRCUIT_STATE = Metric::gauge(
        "ratelimit_circuit_state",
        "state",
        "The circuit of each primary: 0 closed, 1 half open, 2 open.",
    )
    .by(&[SHARD]);

    CIRCUIT_OPENED = Metric::counter(
        "ratelimit_circuit_opened_total",
        "times",
        "How often the circuit of each server opened, because calls to it failed or only waited.",
    )
    .by(&[SHARD]);

    STORE_MODE = Metric::counter(
        "ratelimit_store_mode_seconds_total",
        "seconds",
        "How long the circuit of each server was closed, half open and open.",
    )
    .by(&[SHARD, label("mode", &["closed", "half_open", "open"])]);

    STORE_EVICTED = Metric::gauge(
        "ratelimit_store_evicted_keys",
        "keys",
        "Keys that each server evicted since it started. Each may have been a limit: alert when it rises.",
    )
    .by(&[SHARD]);

    FLEET_NODES = Metric::gauge(
        "ratelimit_fleet_nodes",
        "nodes",
        "Nodes that share the store, the most that were seen in the last minutes.",
    );

    REDIS_ERRORS = Metric::counter("ratelimit_redis_errors_total", "errors", "Calls to Redis that went wrong.")
        .by(&[label("kind", &[])]);

    STORE_DURATION = Metric::histogram(
        "ratelimit_store_duration_seconds",
        "seconds",
        "How long calls to each server of the store took, answered or given up, by what they did.",
    )
    .by(&[SHARD, label("op", &[])]);

    STORE_CONNECTIONS = Metric::gauge(
        "ratelimit_store_connections",
        "connections",
        "Open connections to each server of the store.",
    )
    .by(&[SHARD]);

    STORE_REDIRECTS = Metric::counter(
        "ratelimit_store_redirects_total",
        "redirects",
        "Calls that the store sent on to another server.",
    );
    STORE_REFRESHES = Metric::counter(
        "ratelimit_store_refreshes_total",
        "times",
        "Times that the map of the cluster was read.",
    );
    REMEMBERED_DENIALS = Metric::counter(
        "ratelimit_remembered_denials_total",
        "requests",
        "Requests that were refused without asking the store, because it had refused the same a moment before.",
    );
    STORE_DISAGREEMENTS = Metric::counter(
        "ratelimit_store_disagreements_total",
        "answers",
        "Answers of the store that this node would have given otherwise. Please report them.",
    );
    STORE_IN_FLIGHT = Metric::gauge(
        "ratelimit_store_in_flight",
        "requests",
        "Requests that wait for an answer of the store.",
    );

    INTERNAL_ERRORS = Metric::counter(
        "tidegate_internal_errors_total",
        "requests",
        "Decisions that went wrong inside the node, by the policy that answered. Please report them.",
    )
    .by(&[label("policy", Policy::WORDS)]);

    INTERNAL_CALLS = Metric::counter(
        "tidegate_internal_calls_total",
        "calls",
        "Calls that said they come from inside, by whether that could be verified.",
    )
    .by(&[label("result", InternalCall::WORDS)]);

    KEYS_LIVE = Metric::gauge("tidegate_keys_live", "keys", "Keys in memory.");
    KEYS_CAPACITY = Metric::gauge("tidegate_keys_capacity", "keys", "Keys that there are slots for.");
    KEYS_EXPIRED = Metric::counter("tidegate_keys_expired_total", "keys", "Idle keys that left.");

    EVICTIONS = Metric::counter(
        "tidegate_counter_evictions_total",
        "keys",
        "Keys that were forgotten for want of room while they counted, or even while they were being refused.",
    )
    .by(&[label("kind", Evicted::WORDS)]);

    UNREMEMBERED = Metric::counter(
        "tidegate_charges_unremembered_total",
        "charges",
        "Charges that were judged but not kept, since no room could be made.",
    );

    COUNTER_BYTES = Metric::gauge("tidegate_counter_bytes", "bytes", "Memory set aside for counters.");
    ARENA_BYTES =
        Metric::gauge("tidegate_counter_arena_bytes", "bytes", "The part of it for states that fill no slot.");
    ARENA_USED_BYTES =
        Metric::gauge("tidegate_counter_arena_used_bytes", "bytes", "What is in use of that part.");

    CONNECTIONS = Metric::gauge("tidegate_connections", "connections", "Connections that are open.").by(&[SERVER]);
    CONNECTIONS_REFUSED = Metric::counter(
        "tidegate_connections_refused_total",
        "connections",
        "Connections that were not served.",
    )
    .by(&[SERVER, label("reason", ConnectionRefused::WORDS)]);

    RELOAD_TIME = Metric::gauge(
        "tidegate_config_last_reload_timestamp_seconds",
        "seconds",
        "When the rules that are in force were loaded, since 1970.",
    );
    RELOAD_SUCCESSFUL = Metric::gauge(
        "tidegate_config_last_reload_successful",
        "0 or 1",
        "Are the rules in force as they were last read? If not, those from before are, or rules by API are left out.",
    );
    RELOADS = Metric::counter("tidegate_config_reloads_total", "loads", "Times that the rules were read.");
    RELOAD_FAILURES =
        Metric::counter("tidegate_config_reload_failures_total", "loads", "Those that failed.");
    RULES = Metric::gauge("tidegate_rules", "rules", "Rules in force.");
    XDS_CONNECTED = Metric::gauge(
        "tidegate_xds_connected",
        "0 or 1",
        "Is there a connection to the xDS server that rules come from? If not, the last ones stay in force.",
    );
    XDS_UPDATES = Metric::counter(
        "tidegate_xds_updates_total",
        "updates",
        "Rules that came from the xDS server and were others than before, by what became of them.",
    )
    .by(&[label("result", XdsUpdate::WORDS)]);
    CALENDAR_WAITING = Metric::gauge(
        "tidegate_calendar_waiting",
        "counters",
        "Counters of calendar quotas whose charges are not written to the control plane's database yet.",
    );
    CALENDAR_WRITTEN = Metric::counter(
        "tidegate_calendar_written_total",
        "counters",
        "Counters of calendar quotas that were written there, each time that they were.",
    );
    CALENDAR_RESTORED = Metric::counter(
        "tidegate_calendar_restored_total",
        "counters",
        "Counters of calendar quotas that were found empty and have again what was used.",
    );
    CALENDAR_LEFT_OUT = Metric::counter(
        "tidegate_calendar_left_out_total",
        "charges",
        "Charges of calendar quotas that are not written there because too many waited.",
    );

    CONFIG_STALE = Metric::gauge(
        "ratelimit_config_stale_seconds",
        "seconds",
        "For how long the node has not been level with the control plane's database: 0 while it is. Decisions go on with what is \
         known.",
    );
    CONTROL_REVISION = Metric::gauge(
        "tidegate_control_revision",
        "revision",
        "The revision of the control plane that is in force. Nodes of a fleet that differ for longer than seconds are told different \
         things.",
    );
    CONTROL_FOLLOW_ERRORS = Metric::counter(
        "tidegate_control_follow_errors_total",
        "times",
        "Times that the control plane's database did not tell what has changed.",
    );
    QUOTA_KEYS = Metric::gauge(
        "tidegate_quota_keys",
        "keys",
        "Callers with a record of their own: a tier, overrides, a user.",
    );
    QUOTA_BYTES = Metric::gauge(
        "tidegate_quota_bytes",
        "bytes",
        "Memory that these records take, as far as the node can tell.",
    );
    ADMIN_CALLS = Metric::counter(
        "tidegate_admin_calls_total",
        "calls",
        "Calls of the admin API, by what became of them: `refused` is any other 4xx, `throttled` a token check that was not made because \
         too many before were worth nothing, `failed` a 5xx.",
    )
    .by(&[label("result", AdminCall::WORDS)]);

    AUDIT_SINK_BEHIND = Metric::gauge(
        "tidegate_audit_sink_behind_rows",
        "rows",
        "Rows of the audit trail that `control.audit_sink` lacks. Nothing else waits for them.",
    );
    AUDIT_SINK_FAILURES = Metric::counter(
        "tidegate_audit_sink_failures_total",
        "tries",
        "Times that the audit trail could not be read, or not be written to `control.audit_sink`. It is tried again.",
    );

    REFUSALS_WRITTEN = Metric::counter(
        "tidegate_refusals_file_lines_total",
        "lines",
        "Refusals that were written to `log.refusals_file`.",
    );
    REFUSALS_LOST = Metric::counter(
        "tidegate_refusals_file_lost_total",
        "lines",
        "Refusals that were to be written to `log.refusals_file` and were dropped: it cannot be written, or not fast enough.",
    );
    LOG_LINES_LOST = Metric::counter(
        "tidegate_log_lines_lost_total",
        "lines",
        "Lines of the log that were dropped because nobody read them fast enough.",
    );
    START_TIME = Metric::gauge(
        "tidegate_start_time_seconds",
        "seconds",
        "When the process started, since 1970.",
    );
    BUILD_INFO = Metric::new(Kind::Info, "tidegate_build_info", "", "What is running.")
        .by(&[label("version", &[]), label("commit", &[]), label("profile", &[])]);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_say_what_they_are() {
        let mut names = HashSet::new();
        for metric in TABLE {
            let name = metric.name;
            assert!(names.insert(name), "{name} twice");
            assert!(name.starts_with("ratelimit_") || name.starts_with("tidegate_"), "{name}");
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), metric.kind == Kind::Info, "{name}");
            let measured = name.trim_end_matches("_total");
            let in_name = measured.ends_with("_seconds") || measured.ends_with("_bytes");
            assert_eq!(in_name, matches!(metric.unit, "seconds" | "bytes"), "{name}");
            // The library writes help as it is; a line break would end it.
            assert!(!metric.help.contains(['\n', '\\']) && metric.help.ends_with('.'), "{name}");
        }
    }
}
