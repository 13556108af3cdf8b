//! The table.

use Shown::{Differs, Same};

/// A test of ours: its file and its name.
pub(crate) type Test = (&'static str, &'static str);

/// Where it is seen what a test of theirs asserts.
pub(crate) enum Shown {
    /// Ours does the same.
    Same(&'static [Test]),
    /// Ours does something else, for this reason.
    Differs(&'static str, &'static [Test]),
}

/// The tests of a file.
pub(crate) struct Group {
    pub(crate) file: &'static str,
    pub(crate) rows: &'static [(&'static str, Shown)],
}

/// What is in the name of a file or a test that is left out: memcached, and what only it needs (names of servers from SRV records).
pub(crate) const LEFT_OUT: &[&str] = &["memcached/", "Memcache", "srv_test.go"];

macro_rules! tests {
    ($($name:ident = $path:literal, $test:literal;)*) => {
        $(const $name: Test = ($path, $test);)*
    };
}

tests! {
    PLAYED = "crates/tidegate/tests/reference_server/ours.rs", "ours_does_what_the_reference_server_does";
    FLEET = "crates/tidegate/tests/reference_server/ours.rs", "a_fleet_of_both_shares_its_limits";
    TEXTS = "crates/tidegate/tests/reference_server/error_texts.rs", "ours_tells_of_bad_rules_in_the_words_of_the_reference_server";
    NO_REQUESTS = "crates/tidegate/tests/reference_server/corners.rs", "requests_that_are_none_are_answered_with_400_and_no_reason";
    LOADED_TEXTS = "crates/tidegate-config/tests/error_texts.rs", "bad_rules_are_told_word_for_word";
    ONE_REDIS = "crates/tidegate/tests/node/common_body.rs", "it_holds_on_one_redis";
    PASSWORDS = "crates/tidegate/tests/node/common_body.rs", "it_holds_with_passwords_and_certificates";
    ON_CLUSTER = "crates/tidegate/tests/node/common_body.rs", "it_holds_on_a_cluster";
    SENTINELS = "crates/tidegate/tests/node/common_body.rs", "it_holds_behind_sentinels";
    FILES = "crates/tidegate/tests/node/common_body.rs", "files_that_come_and_go_are_loaded";
    TAGGED = "crates/tidegate/tests/node/common_body.rs", "stats_have_the_tags_that_were_given";
    SHARED = "crates/tidegate/tests/node/common_body.rs", "a_threshold_is_shared_where_it_says_so";
    BY_XDS = "crates/tidegate/tests/node/xds.rs", "what_its_own_tests_ask_holds_by_xds_too";
    GATEWAY = "crates/tidegate/tests/node/xds.rs", "a_node_in_the_place_of_envoyproxy_ratelimit_follows_it_too";
    SHADOW = "crates/tidegate/tests/node/reference_service.rs", "a_limit_in_shadow_never_refuses_and_one_beside_it_does";
    QUOTAS = "crates/tidegate/tests/node/reference_service.rs", "quotas_beside_a_limit_and_in_a_shadow";
    HEADERS = "crates/tidegate/tests/node/reference_service.rs", "headers_tell_of_the_limit_that_refuses";
    UNLIMITED = "crates/tidegate/tests/node/reference_service.rs", "unlimited_ones_are_told_beside_others";
    REPLACES = "crates/tidegate/tests/node/reference_service.rs", "a_limit_replaces_others_and_leaves_them_as_they_were";
    DETAILED = "crates/tidegate/tests/node/reference_service.rs", "stats_of_a_detailed_limit_have_the_value";
    COUNTED = "crates/tidegate/tests/node/reference_service.rs", "errors_and_calls_are_counted";
    GRPC_HEALTH = "crates/tidegate/tests/node/reference_service.rs", "health_is_told_over_grpc_too";
    WORKED = "crates/tidegate/tests/node/drop_in.rs", "the_worked_examples_come_out_as_they_do_there";
    JSON = "crates/tidegate/tests/node/drop_in.rs", "it_answers_over_json_and_counts_under_the_names_that_others_use";
    MODES = "crates/tidegate/tests/node/drop_in.rs", "modes_of_the_whole_node_are_honoured";
    PER_SECOND = "crates/tidegate/tests/node/drop_in.rs", "limits_per_second_have_a_store_of_their_own";
    NOT_LOADED = "crates/tidegate/tests/node/drop_in.rs", "rules_that_cannot_be_loaded_fail_calls_until_they_can";
    NO_STORE = "crates/tidegate/tests/node/drop_in.rs", "without_its_store_calls_fail_so_that_envoy_decides";
    RIGHT_NAME = "crates/tidegate/tests/node/drop_in.rs", "only_clients_of_the_right_name_are_let_in";
    CERTIFICATES = "crates/tidegate/tests/node/tls.rs", "certificates_that_change_are_used_and_broken_ones_are_not";
    HEALTH = "crates/tidegate/tests/node/rls.rs", "health_and_reflection_are_served_beside";
    MATCHED = "crates/tidegate-config/tests/reference.rs", "exact_then_wildcard_then_any_value_and_no_way_back";
    IN_REQUEST = "crates/tidegate-config/tests/reference.rs", "a_limit_in_the_request_is_used_instead_of_the_tree";
    SHARED_KEY = "crates/tidegate-config/tests/reference.rs", "a_shared_threshold_is_one_counter_for_all_that_fits";
    OF_DESCRIPTOR = "crates/tidegate-config/tests/reference.rs", "quota_and_shadow_are_of_their_descriptor_alone";
    MERGED = "crates/tidegate-config/tests/files.rs", "a_domain_in_several_documents_is_one_domain";
    URLS = "crates/tidegate-config/tests/drop_in.rs", "stores_are_found_by_their_urls";
    IGNORED = "crates/tidegate-config/tests/drop_in.rs", "what_is_set_and_ignored_is_known";
    MOGRIFIERS = "crates/tidegate-config/tests/drop_in.rs", "mogrifiers_are_read_from_their_variables";
    HIDDEN = "crates/tidegate-config/tests/drop_in.rs", "a_password_in_the_url_of_a_store_is_shown_nowhere";
    NAMED = "crates/tidegate-core/tests/book/kept.rs", "the_reference_server_finds_its_counters";
    ARITHMETIC = "crates/tidegate-telemetry/src/reference/arithmetic.rs", "every_count_grows_as_it_does_in_the_reference";
    NEAR = "crates/tidegate-telemetry/src/reference/arithmetic.rs", "a_limit_is_near_where_it_is_in_the_reference";
    CALLED = "crates/tidegate-telemetry/tests/reference/names.rs", "descriptors_are_called_as_in_the_reference";
    BROUGHT = "crates/tidegate-telemetry/tests/reference/names.rs", "limits_that_requests_bring_are_called_by_all_their_values";
    TAGS = "crates/tidegate-telemetry/tests/reference/sent.rs", "tags_are_part_of_the_name_or_stand_behind";
    MADE_OVER = "crates/tidegate-telemetry/src/reference/statsd/dog.rs", "names_are_made_over_as_in_the_reference";
    REFUSED = "crates/tidegate-telemetry/src/reference/statsd/dog.rs", "what_cannot_work_is_refused";
    LEVELS = "crates/tidegate-telemetry/tests/reference/told.rs", "prometheus_has_the_names_and_levels_of_the_reference";
    NOTHING_ELSE = "crates/tidegate-telemetry/tests/reference/told.rs", "prometheus_is_told_what_the_table_says_and_nothing_else";
    HISTOGRAM = "crates/tidegate-telemetry/tests/reference/told.rs", "response_times_are_a_histogram_in_seconds_or_as_they_once_were";
    DURATIONS = "crates/tidegate-telemetry/src/reference/calls.rs", "durations_are_told_in_whole_milliseconds_and_never_as_longer";
    SENTINEL_PASSWORD = "crates/tidegate-counters/src/redis/wires/tests/doors.rs", "sentinels_may_want_a_password_of_their_own";
    PRIMARY = "crates/tidegate-counters/src/redis/wires/tests/doors.rs", "sentinels_are_asked_who_is_primary";
    ENVOY_429 = "crates/tidegate/tests/envoy/answers.rs", "who_is_over_the_limit_gets_429_with_envoys_headers";
    ENVOY_SHADOW = "crates/tidegate/tests/envoy/answers.rs", "a_rule_in_shadow_is_seen_by_operators_alone";
    ENVOY_REPORTED = "crates/tidegate/tests/envoy/costs.rs", "what_is_reported_at_the_end_closes_the_door_for_the_next";
}

/// Of what all their integration tests ask.
const BODY: &str = "the same but for two things: a refused request takes nothing from its other descriptor, as there only with \
                    STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT, and with a local cache a refusal is remembered for a second at most";
const NO_POOL: Shown = Differs(
    "there is no pool that could be empty: each thread has one connection, which carries many calls at once. The variable is ignored, \
     and that is told at the start",
    &[IGNORED],
);
const NO_SPANS: Shown = Differs(
    "there are no spans of OpenTelemetry; the variables are ignored, and that is told at the start",
    &[IGNORED],
);
const CACHE: Shown = Differs(
    "what is counted is the same. A refusal is remembered for a second at most, and by its limit, not until the window ends: a refund or \
     a raised limit opens the door; there, both are missed",
    &[ARITHMETIC, ONE_REDIS],
);
const COMMANDS: Shown = Differs(
    "a request is one script, not a pipeline of INCRBY and EXPIRE, so that all of it is charged or nothing; counters have the same names \
     and numbers, and both kinds of server share them",
    &[FLEET, PLAYED],
);
const QUOTA: Shown = Differs(
    "a spent quota is told as OVER_LIMIT, and a request all of whose quotas are spent is refused: as in its later versions, not in the one \
     that Go's registry has",
    &[QUOTAS, MODES],
);

/// Every test of the version that ours is played beside.
pub(crate) const TESTS: &[Group] = &[
    Group {
        file: "test/integration/integration_test.go",
        rows: &[
            ("TestBasicConfig", Differs(BODY, &[ONE_REDIS])),
            ("TestXdsProviderBasicConfig", Differs(BODY, &[BY_XDS])),
            ("TestBasicConfig_ExtraTags", Same(&[TAGGED])),
            ("TestBasicTLSConfig", Differs(BODY, &[PASSWORDS])),
            ("TestBasicAuthConfig", Differs(BODY, &[PASSWORDS])),
            ("TestBasicAuthConfigWithRedisCluster", Differs(BODY, &[ON_CLUSTER])),
            ("TestBasicAuthConfigWithRedisSentinel", Differs(BODY, &[SENTINELS, SENTINEL_PASSWORD])),
            ("TestBasicReloadConfig", Differs(BODY, &[ONE_REDIS, FILES])),
            ("TestXdsProviderBasicConfigReload", Same(&[BY_XDS])),
            ("Test_mTLS", Same(&[RIGHT_NAME])),
            ("TestReloadGRPCServerCerts", Same(&[CERTIFICATES])),
            ("TestShareThreshold", Same(&[SHARED])),
        ],
    },
    Group { file: "test/integration/mtls_test.go", rows: &[("Test_mTLSSetup", Same(&[RIGHT_NAME]))] },
    Group { file: "integration-test/scripts/replaces.sh", rows: &[("the script", Same(&[REPLACES]))] },
    Group { file: "integration-test/scripts/simple-get.sh", rows: &[("the script", Same(&[ENVOY_429]))] },
    Group {
        file: "integration-test/scripts/trigger-ratelimit.sh",
        rows: &[("the script", Same(&[ENVOY_429]))],
    },
    Group {
        file: "integration-test/scripts/trigger-shadow-mode-key.sh",
        rows: &[("the script", Same(&[ENVOY_SHADOW, SHADOW]))],
    },
    Group {
        file: "integration-test/scripts/value-included-in-stats-key-when-unspecified.sh",
        rows: &[("the script", Same(&[DETAILED]))],
    },
    Group {
        file: "test/config/config_test.go",
        rows: &[
            ("TestBasicConfig", Same(&[MATCHED, WORKED, PLAYED])),
            ("TestDomainMerge", Same(&[MERGED])),
            ("TestConfigLimitOverride", Same(&[IN_REQUEST, BROUGHT, PLAYED])),
            ("TestEmptyDomain", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestDuplicateDomain", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestEmptyKey", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestDuplicateKey", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestDuplicateKeyDomainMerge", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestBadLimitUnit", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestReplacesSelf", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestReplacesEmpty", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestBadYaml", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestMisspelledKey", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestNonStringKey", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestNonMapList", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestUnlimitedWithRateLimitUnit", Same(&[LOADED_TEXTS, TEXTS])),
            ("TestShadowModeConfig", Same(&[OF_DESCRIPTOR, SHADOW])),
            ("TestWildcardConfig", Same(&[MATCHED, WORKED])),
            ("TestDetailedMetric", Same(&[CALLED, DETAILED, PLAYED])),
            ("TestValueToMetric_UsesRuntimeValuesInStats", Same(&[CALLED, PLAYED])),
            ("TestValueToMetric_DefaultKeyIncludesValueAtThatLevel", Same(&[CALLED, PLAYED])),
            ("TestValueToMetric_MidLevelOnly", Same(&[CALLED, PLAYED])),
            ("TestValueToMetric_NoFlag_Unchanged", Same(&[CALLED, PLAYED])),
            ("TestValueToMetric_DoesNotOverrideDetailedMetric", Same(&[CALLED, PLAYED])),
            ("TestValueToMetric_WithConfiguredValues", Same(&[CALLED, PLAYED])),
            ("TestValueToMetric_WithWildcard", Same(&[CALLED, PLAYED])),
            ("TestValueToMetric_WithEmptyValue", Same(&[CALLED, PLAYED])),
            ("TestValueToMetric_FullKeyMatchesStatsKey", Same(&[CALLED, PLAYED])),
            ("TestShareThreshold", Same(&[SHARED_KEY, CALLED, PLAYED])),
            ("TestWildcardStatsBehavior", Same(&[CALLED, PLAYED])),
        ],
    },
    Group {
        file: "test/service/ratelimit_test.go",
        rows: &[
            ("TestService", Same(&[NOT_LOADED, BY_XDS, PLAYED])),
            ("TestServiceGlobalShadowMode", Same(&[MODES, PLAYED])),
            ("TestRuleShadowMode", Same(&[SHADOW, PLAYED])),
            ("TestMixedRuleShadowMode", Same(&[SHADOW, PLAYED])),
            ("TestServiceWithCustomRatelimitHeaders", Same(&[HEADERS])),
            ("TestServiceWithDefaultRatelimitHeaders", Same(&[HEADERS, PLAYED])),
            ("TestEmptyDomain", Same(&[COUNTED])),
            ("TestEmptyDescriptors", Same(&[COUNTED])),
            (
                "TestCacheError",
                Differs(
                    "the call fails with UNAVAILABLE within the deadline, and is counted as redis_error; there it is UNKNOWN, with the \
                     error of the library as its text, when the caller's patience ends",
                    &[NO_STORE],
                ),
            ),
            ("TestInitialLoadError", Same(&[COUNTED, NOT_LOADED])),
            ("TestUnlimited", Same(&[UNLIMITED])),
            ("TestServiceTracer", NO_SPANS),
            (
                "TestServiceHealthStatus",
                Differs(
                    "a node is healthy once rules are loaded, and not before: it could only fail calls",
                    &[NOT_LOADED, GATEWAY],
                ),
            ),
            (
                "TestServiceHealthStatusAtLeastOneConfigLoaded",
                Differs(
                    "healthy once rules are loaded: the same, without the variable. Rules without a domain are rules too, though: whoever \
                     was told that nothing is limited can serve",
                    &[NOT_LOADED, GATEWAY],
                ),
            ),
            ("TestServiceGlobalQuotaMode", QUOTA),
            (
                "TestServiceQuotaModeWithMetadata",
                Differs("its later versions do not tell these two fields any more", &[PLAYED]),
            ),
            ("TestServicePerDescriptorQuotaMode", QUOTA),
            ("TestServiceQuotaModeOnly", QUOTA),
            ("TestServiceQuotaModeWithShadowMode", QUOTA),
        ],
    },
    Group {
        file: "src/service/ratelimit_test.go",
        rows: &[(
            "TestRatelimitToMetadata",
            Differs("the same but for two fields of quotas, which its later versions have not", &[PLAYED]),
        )],
    },
    Group {
        file: "test/limiter/base_limiter_test.go",
        rows: &[
            ("TestGenerateCacheKeys", Same(&[NAMED, PLAYED])),
            ("TestGenerateCacheKeysPrefix", Same(&[JSON, ONE_REDIS])),
            ("TestGenerateCacheKeysWithShareThreshold", Same(&[SHARED_KEY, WORKED])),
            ("TestOverLimitWithLocalCache", CACHE),
            ("TestNoOverLimitWithLocalCache", Same(&[ONE_REDIS])),
            ("TestGetResponseStatusEmptyKey", Same(&[ONE_REDIS, PLAYED])),
            ("TestGetResponseStatusOverLimitWithLocalCache", CACHE),
            ("TestGetResponseStatusOverLimitWithLocalCacheShadowMode", CACHE),
            ("TestGetResponseStatusOverLimit", Same(&[ARITHMETIC, PLAYED])),
            ("TestGetResponseStatusOverLimitShadowMode", Same(&[ARITHMETIC, SHADOW, PLAYED])),
            ("TestGetResponseStatusBelowLimit", Same(&[ARITHMETIC, NEAR, PLAYED])),
            ("TestGetResponseStatusBelowLimitShadowMode", Same(&[ARITHMETIC, PLAYED])),
        ],
    },
    Group {
        file: "test/redis/fixed_cache_impl_test.go",
        rows: &[
            ("TestRedis", Same(&[PER_SECOND, NAMED, PLAYED])),
            ("TestOverLimitWithLocalCache", CACHE),
            ("TestNearLimit", Same(&[ARITHMETIC, NEAR, PLAYED])),
            (
                "TestRedisWithJitter",
                Differs(
                    "a counter lives for its window and a moment, without a jitter: nothing is left behind that would have to leave at \
                     different times",
                    &[IGNORED, PLAYED],
                ),
            ),
            ("TestOverLimitWithLocalCacheShadowRule", CACHE),
            ("TestRedisTracer", NO_SPANS),
            ("TestOverLimitWithStopCacheKeyIncrementWhenOverlimitConfig", Same(&[ONE_REDIS, WORKED])),
        ],
    },
    Group {
        file: "test/redis/driver_impl_test.go",
        rows: &[
            (
                "TestNewClientImpl",
                Differs(
                    "with the right password it connects; a store that refuses a connection or a password does not end the node, which \
                     starts without it and answers by on_store_failure",
                    &[PASSWORDS, NO_STORE],
                ),
            ),
            ("TestDoCmd", COMMANDS),
            ("TestPipeDo", COMMANDS),
            ("TestPoolOnEmptyBehavior", NO_POOL),
            ("TestNewClientImplSentinel", Same(&[URLS, PRIMARY, SENTINEL_PASSWORD, SENTINELS])),
        ],
    },
    Group {
        file: "test/server/server_impl_test.go",
        rows: &[("TestJsonHandler", Same(&[JSON, NO_REQUESTS, PLAYED]))],
    },
    Group {
        file: "test/server/health_test.go",
        rows: &[
            ("TestHealthCheck", Same(&[JSON, GRPC_HEALTH])),
            ("TestHealthyWithAtLeastOneConfigLoaded", Same(&[NOT_LOADED])),
            ("TestGrpcHealthCheck", Same(&[GRPC_HEALTH, HEALTH])),
            ("TestGrpcHealthyWithAtLeastOneConfigLoaded", Same(&[GRPC_HEALTH])),
        ],
    },
    Group {
        file: "test/provider/xds_grpc_sotw_provider_test.go",
        rows: &[("TestXdsProvider", Same(&[BY_XDS, GATEWAY]))],
    },
    Group {
        file: "test/metrics/metrics_test.go",
        rows: &[
            ("TestMetricsInterceptor", Same(&[COUNTED, DURATIONS])),
            ("TestMetricsInterceptor_Concurrent", Same(&[COUNTED])),
        ],
    },
    Group {
        file: "test/stats/manager_impl_test.go",
        rows: &[("TestEscapingInvalidChartersInMetricName", Same(&[CALLED]))],
    },
    Group {
        file: "test/utils/utilities_test.go",
        rows: &[
            ("TestMaskCredentialsInUrl", Same(&[HIDDEN])),
            ("TestMaskCredentialsInUrlCluster", Same(&[HIDDEN])),
            ("TestMaskCredentialsInUrlSentinel", Same(&[HIDDEN])),
        ],
    },
    Group {
        file: "src/godogstats/dogstatsd_sink_test.go",
        rows: &[("TestSeparateExtraTags", Same(&[TAGS])), ("TestSinkMogrify", Same(&[MADE_OVER, TAGS]))],
    },
    Group {
        file: "src/godogstats/mogrifier_map_test.go",
        rows: &[
            ("TestMogrify", Same(&[MADE_OVER])),
            ("TestEmpty", Same(&[MOGRIFIERS, TAGS])),
            ("TestNil", Same(&[MOGRIFIERS, TAGS])),
            ("TestLoadMogrifiersFromEnv", Same(&[MOGRIFIERS, MADE_OVER])),
            ("TestValidation", Same(&[MOGRIFIERS, REFUSED])),
        ],
    },
    Group {
        file: "src/stats/prom/prometheus_sink_test.go",
        rows: &[
            ("TestFlushCounter", Same(&[LEVELS])),
            ("TestFlushCounterWithDifferentLabels", Same(&[LEVELS])),
            ("TestFlushGauge", Same(&[NOTHING_ELSE])),
            (
                "TestFlushTimer",
                Differs(
                    "no limit has a time: the only ones are those of calls, which are a histogram",
                    &[HISTOGRAM],
                ),
            ),
        ],
    },
    Group {
        file: "src/settings/settings_test.go",
        rows: &[
            (
                "TestSettingsTlsConfigUnmodified",
                Differs(
                    "it looks into a structure of Go's TLS; with roots of one's own a store is trusted by these alone",
                    &[PASSWORDS],
                ),
            ),
            ("TestRedisPoolOnEmptyBehavior_Default", NO_POOL),
            ("TestRedisPoolOnEmptyBehavior_Error", NO_POOL),
            ("TestRedisPoolOnEmptyBehavior_Create", NO_POOL),
            ("TestRedisPoolOnEmptyBehavior_Wait", NO_POOL),
            ("TestRedisPoolOnEmptyBehavior_CaseInsensitive", NO_POOL),
            ("TestRedisPerSecondPoolOnEmptyBehavior_Default", NO_POOL),
            ("TestRedisPerSecondPoolOnEmptyBehavior_Error", NO_POOL),
            ("TestRedisPoolOnEmptyBehavior_IndependentConfiguration", NO_POOL),
        ],
    },
];

/// What its tests assert since then, in our words: that version is not in Go's registry.
pub(crate) const SINCE: Group = Group {
    file: "Since that version",
    rows: &[
        ("wildcards anywhere in a value", Same(&[MATCHED])),
        ("share_threshold with any wildcard, and the text of its error", Same(&[LOADED_TEXTS])),
        ("quotas: told, and refused when all are spent", Same(&[WORKED, QUOTAS])),
        ("token quotas: a look at the request, a debit at the response (scripts)", Same(&[ENVOY_REPORTED])),
        ("commands of a cluster are grouped by key, some at the same time", COMMANDS),
    ],
};
