//! Every metric of the reference server that is told here: its name for statsd and the page, its name for Prometheus, and what it says.

/// One metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReferenceMetric {
    /// Its name on the page and in statsd. `<rule>` is what the domain and the descriptor are called, joined by dots.
    pub statsd: &'static str,
    /// Its name in Prometheus.
    pub prometheus: &'static str,
    /// Its labels there.
    pub labels: &'static [&'static str],
    /// What kind of number it is.
    pub kind: ReferenceKind,
    /// What it says.
    pub help: &'static str,
}

/// What kind of number a metric is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReferenceKind {
    /// It only grows; statsd is sent what it grew by.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Durations; a histogram in Prometheus.
    Timer,
}

impl ReferenceKind {
    /// The word for it in documents.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Timer => "timer",
        }
    }

    /// The word for it in Prometheus.
    pub(super) const fn prometheus(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Timer => "histogram",
        }
    }

    /// How a line of statsd ends.
    pub(super) const fn statsd(self) -> &'static str {
        match self {
            Self::Counter => "c",
            Self::Gauge => "g",
            Self::Timer => "ms",
        }
    }
}

/// All of them, in the order of the document.
pub static REFERENCE_TABLE: [&ReferenceMetric;
    COUNTS + 1 + OF_SERVICE_LEN + 2 + 2 * OF_POOL_LEN + OF_LOCAL_CACHE_LEN] = [
    &OF_RULE[0],
    &OF_RULE[1],
    &OF_RULE[2],
    &OF_RULE[3],
    &OF_RULE[4],
    &OF_RULE[5],
    &OF_RULE[6],
    &DOMAIN_NOT_FOUND,
    &OF_SERVICE[0],
    &OF_SERVICE[1],
    &OF_SERVICE[2],
    &OF_SERVICE[3],
    &OF_SERVICE[4],
    &OF_SERVICE[5],
    &TOTAL_REQUESTS,
    &RESPONSE_TIME,
    &OF_POOL[0],
    &OF_POOL[1],
    &OF_POOL[2],
    &OF_PER_SECOND_POOL[0],
    &OF_PER_SECOND_POOL[1],
    &OF_PER_SECOND_POOL[2],
    &OF_LOCAL_CACHE[0],
    &OF_LOCAL_CACHE[1],
    &OF_LOCAL_CACHE[2],
    &OF_LOCAL_CACHE[3],
    &OF_LOCAL_CACHE[4],
    &OF_LOCAL_CACHE[5],
    &OF_LOCAL_CACHE[6],
    &OF_LOCAL_CACHE[7],
];

/// What stands in a name for the domain and the descriptor.
pub(super) const RULE: &str = "<rule>";
/// What stands in a name for the domain.
pub(super) const DOMAIN: &str = "<domain>";
/// What stands in a name for a method of gRPC.
pub(super) const METHOD: &str = "<Method>";

/// What is counted of each name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OfRule {
    TotalHits,
    OverLimit,
    NearLimit,
    WithinLimit,
    OverLimitWithLocalCache,
    ShadowMode,
    TotalNegativeHits,
}

/// How many counts each name has, and how many of each other kind there are.
pub(super) const COUNTS: usize = 7;
pub(super) const OF_SERVICE_LEN: usize = 6;
pub(super) const OF_POOL_LEN: usize = 3;
pub(super) const OF_LOCAL_CACHE_LEN: usize = 8;

const LEVELS: &[&str] = &["domain", "key1", "key2"];

/// By [`OfRule`].
#[rustfmt::skip]
pub(super) static OF_RULE: [ReferenceMetric; COUNTS] = [
    counter("ratelimit.service.rate_limit.<rule>.total_hits", "ratelimit_service_rate_limit_total_hits", LEVELS,
        "hits that were asked for, whatever the answer"),
    counter("ratelimit.service.rate_limit.<rule>.over_limit", "ratelimit_service_rate_limit_over_limit", LEVELS,
        "hits above the limit"),
    counter("ratelimit.service.rate_limit.<rule>.near_limit", "ratelimit_service_rate_limit_near_limit", LEVELS,
        "hits between the near-limit threshold (`NEAR_LIMIT_RATIO` of the limit, rounded down) and the limit"),
    counter("ratelimit.service.rate_limit.<rule>.within_limit", "ratelimit_service_rate_limit_within_limit", LEVELS,
        "hits of descriptors that were within the limit"),
    counter("ratelimit.service.rate_limit.<rule>.over_limit_with_local_cache",
        "ratelimit_service_rate_limit_over_limit_with_local_cache", LEVELS,
        "those of `over_limit` that were refused from memory, without asking the store"),
    counter("ratelimit.service.rate_limit.<rule>.shadow_mode", "ratelimit_service_rate_limit_shadow_mode", LEVELS,
        "those of `over_limit` that passed because the rule is in shadow mode"),
    counter("ratelimit.service.rate_limit.<rule>.total_negative_hits", "ratelimit_service_rate_limit_total_negative_hits", LEVELS,
        "hits that were given back"),
];

#[rustfmt::skip]
pub(super) static DOMAIN_NOT_FOUND: ReferenceMetric =
    counter("ratelimit.service.rate_limit.<domain>.domain_not_found", "ratelimit_service_rate_limit_domain_not_found", &["domain"],
        "descriptors of a domain that no rules name");

/// What is counted once for the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OfService {
    ConfigLoadSuccess,
    ConfigLoadError,
    GlobalShadowMode,
    RedisError,
    ServiceError,
    NamesShared,
}

/// By [`OfService`].
#[rustfmt::skip]
pub(super) static OF_SERVICE: [ReferenceMetric; OF_SERVICE_LEN] = [
    counter("ratelimit.service.config_load_success", "ratelimit_service_config_load_success", &[],
        "times that rules were loaded"),
    counter("ratelimit.service.config_load_error", "ratelimit_service_config_load_error", &[],
        "times that rules were refused"),
    counter("ratelimit.service.global_shadow_mode", "ratelimit_service_global_shadow_mode", &[],
        "requests that passed because of `SHADOW_MODE`"),
    counter("ratelimit.service.call.should_rate_limit.redis_error", "ratelimit_service_should_rate_limit_error", &["err_type"],
        "calls that failed because the store did"),
    counter("ratelimit.service.call.should_rate_limit.service_error", "ratelimit_service_should_rate_limit_error", &["err_type"],
        "calls that failed for another reason, such as an empty domain"),
    counter("ratelimit.service.names_shared", "ratelimit_service_names_shared", &[],
        "answers that were counted under `others`, since there were too many names; not in the reference server"),
];

#[rustfmt::skip]
pub(super) static TOTAL_REQUESTS: ReferenceMetric =
    counter("ratelimit_server.<Method>.total_requests", "ratelimit_service_total_requests", &["grpc_method"],
        "calls, by method of gRPC");

pub(super) static RESPONSE_TIME: ReferenceMetric = ReferenceMetric {
    statsd: "ratelimit_server.<Method>.response_time",
    prometheus: "ratelimit_service_response_time_seconds",
    labels: &["grpc_method"],
    kind: ReferenceKind::Timer,
    help: "how long they took; in statsd in whole milliseconds",
};

/// In the order of [`super::PoolGauges::values`].
#[rustfmt::skip]
pub(super) static OF_POOL: [ReferenceMetric; OF_POOL_LEN] = [
    gauge("ratelimit.redis_pool.cx_active", "ratelimit_redis_pool_cx_active", "open connections to the store"),
    counter("ratelimit.redis_pool.cx_total", "ratelimit_redis_pool_cx_total", &[], "connections that were opened"),
    counter("ratelimit.redis_pool.cx_local_close", "ratelimit_redis_pool_cx_local_close", &[], "connections that were closed"),
];

#[rustfmt::skip]
pub(super) static OF_PER_SECOND_POOL: [ReferenceMetric; OF_POOL_LEN] = [
    gauge("ratelimit.redis_per_second_pool.cx_active", "ratelimit_redis_per_second_pool_cx_active",
        "the same, of the store for limits per second"),
    counter("ratelimit.redis_per_second_pool.cx_total", "ratelimit_redis_per_second_pool_cx_total", &[], "likewise"),
    counter("ratelimit.redis_per_second_pool.cx_local_close", "ratelimit_redis_per_second_pool_cx_local_close", &[], "likewise"),
];

/// In the order of [`super::LocalCacheGauges::values`].
#[rustfmt::skip]
pub(super) static OF_LOCAL_CACHE: [ReferenceMetric; OF_LOCAL_CACHE_LEN] = [
    gauge("ratelimit.localcache.evacuateCount", "ratelimit_localcache_evacuateCount",
        "always 0: memory that is full takes no more refusals, and none has to leave"),
    gauge("ratelimit.localcache.expiredCount", "ratelimit_localcache_expiredCount", "refusals that made room because their time was over"),
    gauge("ratelimit.localcache.entryCount", "ratelimit_localcache_entryCount", "refusals in memory, also those whose time is over"),
    gauge("ratelimit.localcache.averageAccessTime", "ratelimit_localcache_averageAccessTime",
        "always 0: none is there for longer than a second"),
    gauge("ratelimit.localcache.hitCount", "ratelimit_localcache_hitCount", "lookups that found one"),
    gauge("ratelimit.localcache.missCount", "ratelimit_localcache_missCount", "lookups that found none"),
    gauge("ratelimit.localcache.lookupCount", "ratelimit_localcache_lookupCount", "lookups"),
    gauge("ratelimit.localcache.overwriteCount", "ratelimit_localcache_overwriteCount",
        "refusals that were written over before their time was over"),
];

const fn counter(
    statsd: &'static str,
    prometheus: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> ReferenceMetric {
    ReferenceMetric { statsd, prometheus, labels, kind: ReferenceKind::Counter, help }
}

const fn gauge(statsd: &'static str, prometheus: &'static str, help: &'static str) -> ReferenceMetric {
    ReferenceMetric { statsd, prometheus, labels: &[], kind: ReferenceKind::Gauge, help }
}
