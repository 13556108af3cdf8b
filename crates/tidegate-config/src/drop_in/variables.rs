//! Every environment variable of envoyproxy/ratelimit: what it is there, and what becomes of it here. The one table: what is read goes by
//! it, and the page for whoever changes over is made from it.

use Fate::{Honoured, Ignored, Refused};
use Form::{Address, Count, Flag, List, Number, Pairs, Text, Time, Words};

/// What becomes of a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It does what it does there, or what is said.
    Honoured,
    /// A node does not start with it, or with some of its values.
    Refused,
    /// Nothing: what follows from that is said.
    Ignored,
}

impl Fate {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Honoured => "honoured",
            Refused => "refused",
            Ignored => "ignored",
        }
    }
}

/// How values are written, as Go writes them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Any text.
    Text,
    /// `host:port`, where the host may be missing.
    Address,
    /// `true`, `false`, `1`, `0`, `t`, `f`.
    Flag,
    /// A whole number.
    Count,
    /// A number, perhaps with a fraction.
    Number,
    /// `150us`, `1h30m`.
    Time,
    /// One of these, in capitals or not.
    Words(&'static [&'static str]),
    /// Texts with commas between them.
    List,
    /// `name:value` with commas between them.
    Pairs,
}

/// One of the variables.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// What it is called.
    pub name: &'static str,
    /// What holds without it, there.
    pub default: &'static str,
    /// How it is written.
    pub form: Form,
    /// What becomes of it.
    pub fate: Fate,
    /// What it does here; of what is ignored, what follows from that.
    pub note: &'static str,
}

const fn row(
    name: &'static str,
    default: &'static str,
    form: Form,
    fate: Fate,
    note: &'static str,
) -> Variable {
    Variable { name, default, form, fate, note }
}

const ONE_CONNECTION: &str =
    "each core has one connection to each server, on which calls do not wait for each other";
const AS_MAIN: &str = "as its namesake of the main store";
const NO_MEMCACHED: &str = "there is no memcached here";
const NO_TRACES: &str = "no spans are sent; log lines carry the trace of a request";

/// All of them, in groups that belong together.
pub static VARIABLES: &[Variable] = &[
    row("HOST", "0.0.0.0", Text, Honoured, "where HTTP listens"),
    row("PORT", "8080", Count, Honoured, "where HTTP listens"),
    row("GRPC_HOST", "0.0.0.0", Text, Honoured, "where RLS listens"),
    row("GRPC_PORT", "8081", Count, Honoured, "where RLS listens"),
    row(
        "GRPC_UDS",
        "",
        Text,
        Honoured,
        "RLS listens at this socket instead; one that was left behind is replaced (there it is fatal), and it is removed at the end",
    ),
    row("DEBUG_HOST", "0.0.0.0", Text, Honoured, "where `/rlconfig` and `/stats` are served"),
    row("DEBUG_PORT", "6070", Count, Honoured, "where `/rlconfig` and `/stats` are served"),
    row(
        "GRPC_MAX_CONNECTION_AGE",
        "24h",
        Time,
        Honoured,
        "when connections are asked to end, a tenth more or less",
    ),
    row(
        "GRPC_MAX_CONNECTION_AGE_GRACE",
        "1h",
        Time,
        Ignored,
        "calls in flight then have `node.drain_timeout`; they take milliseconds",
    ),
    row("GRPC_SERVER_USE_TLS", "false", Flag, Honoured, "RLS is encrypted"),
    row(
        "GRPC_SERVER_TLS_CERT",
        "",
        Text,
        Honoured,
        "its certificate; read again when it changes, and it may be in another folder than its key",
    ),
    row("GRPC_SERVER_TLS_KEY", "", Text, Honoured, "its key"),
    row("GRPC_CLIENT_TLS_CACERT", "", Text, Honoured, "roots: clients have to show a certificate"),
    row("GRPC_CLIENT_TLS_SAN", "", Text, Honoured, "the DNS name that certificates of clients have to have"),
    row(
        "LOG_LEVEL",
        "WARN",
        Words(&["trace", "debug", "info", "warn", "warning", "error", "fatal", "panic"]),
        Honoured,
        "from which level on is logged; `fatal` and `panic` are `error`",
    ),
    row(
        "LOG_FORMAT",
        "text",
        Words(&["text", "json"]),
        Honoured,
        "JSON has the keys `@timestamp`, `@message` and `level`",
    ),
    row(
        "CONFIG_TYPE",
        "FILE",
        Words(&["file", "grpc_xds_sotw"]),
        Honoured,
        "where rules come from: files, or an xDS server",
    ),
    row(
        "FORCE_START_WITHOUT_INITIAL_CONFIG",
        "false",
        Flag,
        Ignored,
        "ports are always open at once; calls fail with `no rate limit configuration loaded` until there are rules",
    ),
    row("MERGE_DOMAIN_CONFIG", "false", Flag, Honoured, "a domain may stand in several files"),
    row("RUNTIME_ROOT", "/srv/runtime_data/current", Text, Honoured, "the folder of rules is below it"),
    row("RUNTIME_SUBDIRECTORY", "", Text, Honoured, "part of the way to it"),
    row("RUNTIME_APPDIRECTORY", "config", Text, Honoured, "part of the way to it"),
    row(
        "RUNTIME_IGNOREDOTFILES",
        "false",
        Flag,
        Ignored,
        "names that begin with a dot are always left out, so that mounted ConfigMaps work as they are",
    ),
    row(
        "RUNTIME_WATCH_ROOT",
        "true",
        Flag,
        Ignored,
        "both are always noticed: files that change, and links that are swapped anywhere on the way; errors name files by it",
    ),
    row(
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        "false",
        Flag,
        Ignored,
        "a node is always healthy only once rules are loaded",
    ),
    row("CONFIG_GRPC_XDS_NODE_ID", "default", Text, Honoured, "who asks the xDS server"),
    row(
        "CONFIG_GRPC_XDS_NODE_METADATA",
        "",
        Text,
        Honoured,
        "`name=value` with commas between them, for the xDS server",
    ),
    row("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000", Text, Honoured, "where the xDS server is"),
    row(
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        "3s",
        Time,
        Ignored,
        "the back-off of XDS_CLIENT_BACKOFF_* holds for connecting too",
    ),
    row(
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        "",
        Pairs,
        Honoured,
        "headers of the stream to the xDS server",
    ),
    row("CONFIG_GRPC_XDS_SERVER_USE_TLS", "false", Flag, Honoured, "the stream is encrypted"),
    row(
        "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
        "",
        Text,
        Honoured,
        "our certificate, if the xDS server asks for one",
    ),
    row("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "", Text, Honoured, "its key"),
    row(
        "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
        "",
        Text,
        Honoured,
        "roots, one of which vouches for the xDS server",
    ),
    row("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "", Text, Honoured, "the name that its certificate has to have"),
    row(
        "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
        "10s",
        Time,
        Honoured,
        "the first wait before the stream is opened again",
    ),
    row("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "60s", Time, Honoured, "the longest"),
    row(
        "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
        "0.5",
        Number,
        Ignored,
        "each wait is twice the one before (there, with 0.5, it never grows)",
    ),
    row(
        "XDS_CLIENT_BACKOFF_JITTER",
        "true",
        Flag,
        Ignored,
        "waits always differ a little, so that not all nodes come back at once",
    ),
    row("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0", Count, Honoured, "the largest message of the xDS server"),
    row(
        "BACKEND_TYPE",
        "redis",
        Words(&["redis", "memcache"]),
        Refused,
        "`memcache` cannot count exactly, and is refused: set REDIS_URL and leave BACKEND_TYPE out",
    ),
    row("CACHE_KEY_PREFIX", "", Text, Honoured, "what the names of counters begin with"),
    row(
        "EXPIRATION_JITTER_MAX_SECONDS",
        "300",
        Count,
        Ignored,
        "a counter lives for its window and a moment: nothing is left behind that would have to leave at different times",
    ),
    row(
        "LOCAL_CACHE_SIZE_IN_BYTES",
        "0",
        Count,
        Honoured,
        "with 0 no refusal is remembered; else they are, for a second at most and in bounded memory, whatever the number is",
    ),
    row("NEAR_LIMIT_RATIO", "0.8", Number, Honoured, "from which part of a limit on `near_limit` counts"),
    row(
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        "false",
        Flag,
        Ignored,
        "a refused request is never charged, for none of its descriptors, in one atomic step",
    ),
    row(
        "SHADOW_MODE",
        "false",
        Flag,
        Honoured,
        "every request is let through; statuses say what would have been",
    ),
    row(
        "QUOTA_MODE",
        "false",
        Flag,
        Honoured,
        "of all limits that a request finds, one has to have room; descriptors without a limit have no say",
    ),
    row(
        "RESPONSE_DYNAMIC_METADATA",
        "false",
        Flag,
        Honoured,
        "answers say what was asked, and the `metadata` of the limits that passed",
    ),
    row("LIMIT_RESPONSE_HEADERS_ENABLED", "false", Flag, Honoured, "answers bring the three headers below"),
    row("LIMIT_LIMIT_HEADER", "RateLimit-Limit", Text, Honoured, "the name of the first"),
    row("LIMIT_REMAINING_HEADER", "RateLimit-Remaining", Text, Honoured, "the name of the second"),
    row("LIMIT_RESET_HEADER", "RateLimit-Reset", Text, Honoured, "the name of the third"),
    row("REDIS_SOCKET_TYPE", "unix", Words(&["unix", "tcp"]), Honoured, "how Redis is reached"),
    row(
        "REDIS_TYPE",
        "SINGLE",
        Words(&["single", "sentinel", "cluster"]),
        Honoured,
        "how many servers there are",
    ),
    row(
        "REDIS_URL",
        "/var/run/nutcracker/ratelimit.sock",
        Text,
        Honoured,
        "where they are: `host:port`, a socket, `master,host:port,…` or a list",
    ),
    row("REDIS_POOL_SIZE", "10", Count, Ignored, ONE_CONNECTION),
    row("REDIS_AUTH", "", Text, Honoured, "`password` or `user:password`"),
    row("REDIS_SENTINEL_AUTH", "", Text, Honoured, "the same for the sentinels"),
    row("REDIS_TLS", "false", Flag, Honoured, "connections are encrypted"),
    row("REDIS_TLS_CLIENT_CERT", "", Text, Honoured, "our certificate, if Redis asks for one"),
    row("REDIS_TLS_CLIENT_KEY", "", Text, Honoured, "its key"),
    row("REDIS_TLS_CACERT", "", Text, Honoured, "roots, one of which vouches for Redis"),
    row("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", "false", Flag, Honoured, "its certificate may have any name"),
    row(
        "REDIS_PIPELINE_WINDOW",
        "0",
        Time,
        Ignored,
        "what comes together goes out together, and nothing waits for more",
    ),
    row("REDIS_PIPELINE_LIMIT", "0", Count, Ignored, "as REDIS_PIPELINE_WINDOW"),
    row(
        "REDIS_CLUSTER_PIPELINE_PARALLELISM",
        "1",
        Count,
        Ignored,
        "all servers of a request are asked at the same time",
    ),
    row(
        "REDIS_TIMEOUT",
        "10s",
        Time,
        Honoured,
        "how long it may take to connect; 250 ms if it is not set. An answer never takes longer than `node.deadline`",
    ),
    row("REDIS_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, Ignored, ONE_CONNECTION),
    row(
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        "false",
        Flag,
        Honoured,
        "`/healthcheck` fails while there is no connection to Redis",
    ),
    row(
        "REDIS_STARTUP_INITIAL_INTERVAL",
        "1s",
        Time,
        Ignored,
        "a node serves at once, and finds Redis when it is there",
    ),
    row("REDIS_STARTUP_MAX_INTERVAL", "30s", Time, Ignored, "as REDIS_STARTUP_INITIAL_INTERVAL"),
    row(
        "REDIS_STARTUP_MAX_ELAPSED_TIME",
        "0",
        Time,
        Ignored,
        "as REDIS_STARTUP_INITIAL_INTERVAL: no node ends because Redis is late",
    ),
    row("REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR", "false", Flag, Ignored, "a failover is always followed"),
    row("REDIS_PERSECOND", "false", Flag, Honoured, "limits per second are counted in a store of their own"),
    row("REDIS_PERSECOND_SOCKET_TYPE", "unix", Words(&["unix", "tcp"]), Honoured, AS_MAIN),
    row("REDIS_PERSECOND_TYPE", "SINGLE", Words(&["single", "sentinel", "cluster"]), Honoured, AS_MAIN),
    row("REDIS_PERSECOND_URL", "/var/run/nutcracker/ratelimitpersecond.sock", Text, Honoured, AS_MAIN),
    row("REDIS_PERSECOND_POOL_SIZE", "10", Count, Ignored, ONE_CONNECTION),
    row("REDIS_PERSECOND_AUTH", "", Text, Honoured, AS_MAIN),
    row("REDIS_PERSECOND_TLS", "false", Flag, Honoured, AS_MAIN),
    row("REDIS_PERSECOND_SENTINEL_AUTH", "", Text, Honoured, AS_MAIN),
    row("REDIS_PERSECOND_PIPELINE_WINDOW", "0", Time, Ignored, AS_MAIN),
    row("REDIS_PERSECOND_PIPELINE_LIMIT", "0", Count, Ignored, AS_MAIN),
    row("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", "1", Count, Ignored, AS_MAIN),
    row("REDIS_PERSECOND_TIMEOUT", "10s", Time, Honoured, AS_MAIN),
    row("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", "WAIT", Text, Ignored, AS_MAIN),
    row("MEMCACHE_HOST_PORT", "", List, Ignored, NO_MEMCACHED),
    row("MEMCACHE_SRV", "", Text, Ignored, NO_MEMCACHED),
    row("MEMCACHE_SRV_REFRESH", "0", Time, Ignored, NO_MEMCACHED),
    row("MEMCACHE_MAX_IDLE_CONNS", "2", Count, Ignored, NO_MEMCACHED),
    row("MEMCACHE_TLS", "false", Flag, Ignored, NO_MEMCACHED),
    row("MEMCACHE_TLS_CLIENT_CERT", "", Text, Ignored, NO_MEMCACHED),
    row("MEMCACHE_TLS_CLIENT_KEY", "", Text, Ignored, NO_MEMCACHED),
    row("MEMCACHE_TLS_CACERT", "", Text, Ignored, NO_MEMCACHED),
    row("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", "false", Flag, Ignored, NO_MEMCACHED),
    row("USE_STATSD", "true", Flag, Honoured, "stats go to statsd; beside Prometheus, if both are wanted"),
    row("STATSD_HOST", "localhost", Text, Honoured, "where it is"),
    row("STATSD_PORT", "8125", Count, Honoured, "where it is"),
    row("STATSD_PROTOCOL", "tcp", Words(&["tcp", "udp"]), Honoured, "how it is reached"),
    row("STATS_FLUSH_INTERVAL", "10s", Time, Honoured, "how often"),
    row("EXTRA_TAGS", "", Pairs, Honoured, "what the name of every stat ends in, as `.__name=value`"),
    row("DISABLE_STATS", "false", Flag, Honoured, "nothing is sent to statsd; pages stay"),
    row("USE_DOG_STATSD", "false", Flag, Honoured, "stats go to STATSD_HOST by UDP, with tags behind"),
    row(
        "USE_DOG_STATSD_MOGRIFIERS",
        "",
        List,
        Honoured,
        "names that are made over, by DOG_STATSD_MOGRIFIER_<N>_PATTERN, _NAME and _TAGS",
    ),
    row(
        "USE_PROMETHEUS",
        "false",
        Flag,
        Honoured,
        "metrics by these names are served at PROMETHEUS_ADDR; ours are always at `/metrics` of PORT",
    ),
    row("PROMETHEUS_ADDR", ":9090", Address, Honoured, "where"),
    row("PROMETHEUS_PATH", "/metrics", Text, Honoured, "under which path"),
    row("PROMETHEUS_MAPPER_YAML", "", Text, Ignored, "names and labels are those of its default mapping"),
    row(
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        "false",
        Flag,
        Ignored,
        "times are in seconds, as the name of the metric says",
    ),
    row("TRACING_ENABLED", "false", Flag, Ignored, NO_TRACES),
    row("TRACING_SERVICE_NAME", "RateLimit", Text, Ignored, NO_TRACES),
    row("TRACING_SERVICE_NAMESPACE", "", Text, Ignored, NO_TRACES),
    row("TRACING_SERVICE_INSTANCE_ID", "", Text, Ignored, NO_TRACES),
    row("TRACING_EXPORTER_PROTOCOL", "http", Text, Ignored, NO_TRACES),
    row("TRACING_SAMPLING_RATE", "1", Number, Ignored, NO_TRACES),
];
