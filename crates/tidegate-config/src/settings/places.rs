//! What a node can be told: the one table that files, flags, environment, schema and documents are made from.

use tidegate_core::Micros;

use crate::fields::{Field, Kind, Place, Word};
use crate::rules::DEFAULTS;

/// `tidegate.yaml`.
pub static SETTINGS: Place = Place {
    name: "settings",
    doc: "How a node is set up.",
    fields: &[
        Field::new("rules", Kind::Map(&RULES), "Where the rules come from.").ours(),
        Field::new(
            "defaults",
            Kind::Map(&DEFAULTS),
            "What holds for limits of all domains that do not say otherwise.",
        )
        .ours(),
        Field::new("xds", Kind::Map(&XDS), "An xDS server that the rules come from, in place of files.")
            .ours(),
        Field::new("rls", Kind::Map(&RLS), "Envoy's rate limit protocol, over gRPC.").ours(),
        Field::new("http", Kind::Map(&HTTP), "Checks, health and metrics, over HTTP.").ours(),
        Field::new("internal", Kind::Map(&INTERNAL), "Calls that come from inside, and can show it.").ours(),
        Field::new(
            "counters",
            Kind::Map(&COUNTERS),
            "Counters in the memory of the node, where there is no store.",
        )
        .ours(),
        Field::new("store", Kind::Map(&STORE), "Counters that a fleet shares, in Redis or Valkey.").ours(),
        Field::new("control", Kind::Map(&CONTROL), "Tiers, quotas of single callers, rules by API.").ours(),
        Field::new("node", Kind::Map(&NODE), "The process itself.").ours(),
        Field::new("log", Kind::Map(&LOG), "What is logged, to stderr.").ours(),
    ],
};

static RULES: Place = Place {
    name: "rules",
    doc: "Where the rules come from.",
    fields: &[
        Field::new("path", Kind::Text, "A rule file, or a folder of rule files.").ours().default("rules"),
        Field::new("watch", Kind::Flag, "Load them again when they change.").ours().default("true"),
        Field::new("merge_domains", Kind::Flag, "May a domain stand in several documents?")
            .ours()
            .default("false"),
        Field::new(
            "file_bytes_max",
            Kind::Bytes { min: 1_024, max: 1 << 30 },
            "Files larger than this are refused.",
        )
        .ours()
        .default("32MiB"),
    ],
};

static XDS: Place = Place {
    name: "xds",
    doc: "An xDS server that the rules come from, in place of files: see docs/xds.md.",
    fields: &[
        Field::new(
            "server",
            Kind::Text,
            "Where it is, as `host:port`. With it, rules come from there, and `rules.path` stays unset. Until the first rules came, the \
             node is not ready.",
        )
        .ours(),
        Field::new("node_id", Kind::Text, "The id of the node, by which the server knows which rules are meant for it.")
            .ours()
            .default("default"),
        Field::new(
            "node_metadata",
            Kind::OneOrMore(&Kind::Text),
            "What else it is told of the node: `name=value`, several as a list or with commas.",
        )
        .ours(),
        Field::new(
            "headers",
            Kind::OneOrMore(&Kind::Text),
            "Headers of the call: `name:value`, several as a list or with commas. Values are shown nowhere.",
        )
        .ours(),
        Field::new(
            "message_bytes_max",
            Kind::Bytes { min: 1_024, max: 1 << 30 },
            "A larger message ends the connection, and the rules in force stay.",
        )
        .ours()
        .default("16MiB"),
        Field::new(
            "connect_timeout",
            Kind::Duration { min: Micros::from_millis(1), max: Micros::from_secs(60) },
            "How long it may take to connect, handshakes included.",
        )
        .ours()
        .default("5s"),
        Field::new(
            "keepalive",
            Kind::Duration { min: Micros::from_millis(10), max: Micros::from_secs(86_400) },
            "After what time without a word the server is pinged. Servers in Go close connections that ping more often than every 5 \
             minutes, unless they were told otherwise. A machine that is gone is noticed within a minute whatever this is.",
        )
        .ours()
        .default("6m"),
        Field::new("backoff", Kind::Map(&XDS_BACKOFF), "How long to wait before it is asked again.").ours(),
        Field::new("tls", Kind::Map(&XDS_TLS), "How the connection is encrypted.").ours(),
    ],
};

static XDS_BACKOFF: Place = Place {
    name: "xds_backoff",
    doc: "How long to wait after a connection that ended or failed: twice as long each time, up to a bound, and from half to all of it by \
          chance. After a connection that brought rules it starts again.",
    fields: &[
        Field::new(
            "initial",
            Kind::Duration { min: Micros::from_millis(1), max: Micros::from_secs(600) },
            "The first wait.",
        )
        .ours()
        .default("500ms"),
        Field::new(
            "max",
            Kind::Duration { min: Micros::from_millis(1), max: Micros::from_secs(3_600) },
            "The longest.",
        )
        .ours()
        .default("30s"),
    ],
};

static XDS_TLS: Place = Place {
    name: "xds_tls",
    doc: "How the connection to the xDS server is encrypted. Files are read at every connect, so that they may change.",
    fields: &[
        Field::new("enabled", Kind::Flag, "Without it the connection is plain text.").ours().default("false"),
        Field::new(
            "ca",
            Kind::Text,
            "A file with roots, in PEM, one of which vouches for the server; by default those that the machine trusts.",
        )
        .ours(),
        Field::new("certificate", Kind::Text, "A file with the certificate that the node shows to the server, in PEM.").ours(),
        Field::new("key", Kind::Text, "The file with its private key, in PEM.").ours(),
        Field::new(
            "server_name",
            Kind::Text,
            "The name that the server's certificate has to have (a SAN); by default the host of `xds.server`.",
        )
        .ours(),
    ],
};

static RLS: Place = Place {
    name: "rls",
    doc: "Envoy's rate limit protocol, over gRPC.",
    fields: &[
        Field::new(
            "listen",
            Kind::Listen,
            "Where to listen. `127.0.0.1` is this machine alone, `0.0.0.0` everybody who can reach it. Port 0 is any free one. \
             `unix:/run/tidegate/rls.sock` is a socket in the file system, for whoever may write to that file: it is made at \
             the start, in the place of one that a node left behind, and removed at the end.",
        )
        .ours()
        .default("127.0.0.1:8081"),
        HEADERS.default("none"),
        BODY.default("none"),
        Field::new(
            "metadata",
            Kind::Flag,
            "Tell rule, mode and bound of each answer in `dynamic_metadata.tidegate`, for the proxy's logs.",
        )
        .ours()
        .default("false"),
        CONNECTIONS_MAX,
        CONNECTIONS_PER_PEER_MAX,
        Field::new(
            "connection_age",
            Kind::Duration { min: Micros::from_secs(1), max: Micros::from_secs(366 * 86_400) },
            "A connection is asked to end after this, a tenth more or less, so that its client finds new nodes.",
        )
        .ours()
        .default("30m"),
        TLS_CERTIFICATE,
        TLS_KEY,
        TLS_CLIENT_ROOTS,
    ],
};

static HTTP: Place = Place {
    name: "http",
    doc: "Checks, health and metrics, over HTTP.",
    fields: &[
        LISTEN.default("127.0.0.1:8080"),
        HEADERS.default("ietf-11, x-epoch, retry-after"),
        BODY.default("error"),
        Field::new(
            "default_domain",
            Kind::Text,
            "The domain of checks that do not name one. Where there is only one, it is that one.",
        )
        .ours(),
        CONNECTIONS_MAX,
        CONNECTIONS_PER_PEER_MAX,
        Field::new(
            "idle_timeout",
            Kind::Duration { min: Micros::from_secs(1), max: Micros::from_secs(3_600) },
            "A connection that sends no whole request for so long is closed.",
        )
        .ours()
        .default("30s"),
        TLS_CERTIFICATE,
        TLS_KEY,
        TLS_CLIENT_ROOTS,
    ],
};

const LISTEN: Field = Field::new(
    "listen",
    Kind::Socket,
    "Where to listen. `127.0.0.1` is this machine alone, `0.0.0.0` everybody who can reach it. Port 0 is any free one.",
)
.ours();

const HEADERS: Field = Field::new(
    "headers",
    Kind::OneOrMore(&DIALECT),
    "Which headers callers get. Several are written as a list, or with commas.",
)
.ours();

const BODY: Field = Field::new("body", Kind::Word(BODIES), "What the body of a refusal looks like.").ours();

const CONNECTIONS_MAX: Field = Field::new(
    "connections_max",
    Kind::Whole { min: 1, max: 1_000_000 },
    "How many connections are served at the same time; more are closed at once.",
)
.ours()
.default("10000");

const CONNECTIONS_PER_PEER_MAX: Field = Field::new(
    "connections_per_peer_max",
    Kind::Whole { min: 1, max: 1_000_000 },
    "How many of them from one address.",
)
.ours()
.default("5000");

const TLS_CERTIFICATE: Field = Field::new(
    "tls_certificate",
    Kind::Text,
    "A file with the certificate and those that lead from it to a root, in PEM. Without one there is no TLS. Read again when it changes.",
)
.ours();

const TLS_KEY: Field = Field::new("tls_key", Kind::Text, "The file with its private key, in PEM.").ours();

const TLS_CLIENT_ROOTS: Field = Field::new(
    "tls_client_roots",
    Kind::Text,
    "A file with roots, in PEM: clients have to show a certificate that leads to one of them.",
)
.ours();

static DIALECT: Kind = Kind::Word(DIALECTS);
static DIALECTS: &[Word] = &[
    Word::new("ietf-11", "`RateLimit-Policy` and `RateLimit`, as in the 11th draft of the IETF."),
    Word::new("x-epoch", "`X-RateLimit-Limit`, `-Remaining`, `-Reset` (Unix seconds) and `-Policy`."),
    Word::new("x-delta", "The same, with the seconds until the reset."),
    Word::new("retry-after", "`Retry-After` on refusals, in seconds."),
    Word::new("github", "As GitHub's API."),
    Word::new("twitter", "As X's API."),
    Word::new("envoy", "As Envoy writes them itself."),
    Word::new("kong", "As Kong's plugin."),
    Word::new("none", "None."),
];

static BODIES: &[Word] = &[
    Word::new("error", "JSON with code, message, retry_after, limit, window and scope in an `error` object."),
    Word::new("flat", "JSON with `error` and `message`."),
    Word::new("flat-upper", "The same, with the error in capitals."),
    Word::new("short", "JSON with `error` and `retry_after_seconds`."),
    Word::new("problem", "`application/problem+json` (RFC 9457)."),
    Word::new("none", "No body."),
];

static INTERNAL: Place = Place {
    name: "internal",
    doc: "Calls that come from inside, and can show it.",
    fields: &[
        Field::new(
            "secrets_file",
            Kind::Text,
            "A file with the secrets that calls are signed with, one in each line; any of them is good. Without one nobody is told apart.",
        )
        .ours(),
        Field::new(
            "max_age",
            Kind::Duration { min: Micros::from_secs(1), max: Micros::from_secs(86_400) },
            "How old a signature may be.",
        )
        .ours()
        .default("1m"),
        Field::new(
            "domain",
            Kind::Text,
            "The domain whose rules hold for such calls. Without one they are not limited.",
        )
        .ours(),
    ],
};

static COUNTERS: Place = Place {
    name: "counters",
    doc: "Counters in the memory of the node, where there is no store.",
    fields: &[Field::new(
        "memory",
        Kind::Bytes { min: 1 << 20, max: 1 << 42 },
        "How much memory counters may use. It is fixed, and taken when the node starts; when it is full, \
             what matters least is forgotten, and counted.",
    )
    .ours()
    .default("256MiB")],
};

static STORE: Place = Place {
    name: "store",
    doc: "Counters that a fleet shares, in Redis or Valkey.",
    fields: &[
        Field::new(
            "url",
            Kind::Text,
            "Where the store is: `redis://host:6379`, `redis+cluster://a:6379,b:6379`, `redis+sentinel://a:26379,b:26379/name` or \
             `unix:///path`, with `rediss` for TLS. Without one, counters are in the memory of the node.",
        )
        .ours(),
        Field::new("user", Kind::Text, "The ACL user; by default the one of the URL, else the store's default user.").ours(),
        Field::new(
            "password_file",
            Kind::Text,
            "A file whose first line is the password. Read at every connect, so that it may change.",
        )
        .ours(),
        Field::new("prefix", Kind::Text, "What all keys begin with. Fleets with different prefixes share nothing.")
            .ours()
            .default("tg"),
        Field::new(
            "timeout",
            Kind::Duration { min: Micros::from_millis(1), max: Micros::from_secs(10) },
            "How long one operation may take, redirects included. After that, `on_store_failure` answers.",
        )
        .ours()
        .default("12ms"),
        Field::new(
            "connect_timeout",
            Kind::Duration { min: Micros::from_millis(1), max: Micros::from_secs(60) },
            "How long it may take to connect.",
        )
        .ours()
        .default("250ms"),
        Field::new(
            "in_flight",
            Kind::Whole { min: 1, max: 1_000_000 },
            "How many requests of a thread may wait for each server of the store at once. For more, `on_store_failure` answers.",
        )
        .ours()
        .default("4096"),
        Field::new(
            "reference_names",
            Kind::Flag,
            "Fixed windows of whole seconds are kept as envoyproxy/ratelimit keeps them, so that its nodes and these count on the same \
             numbers while a fleet changes over: by the nodes' clocks, and in a cluster each on a slot of its own.",
        )
        .ours()
        .default("false"),
        Field::new(
            "reference_prefix",
            Kind::Text,
            "What these names begin with: its `CACHE_KEY_PREFIX`.",
        )
        .ours()
        .default(""),
        Field::new("circuit", Kind::Map(&STORE_CIRCUIT), "When a server of the store is left alone for a while.").ours(),
        Field::new("tls", Kind::Map(&STORE_TLS), "How connections to the store are encrypted.").ours(),
    ],
};

static STORE_CIRCUIT: Place = Place {
    name: "store_circuit",
    doc: "When a server of the store is left alone for a while, because calls to it fail or only wait: `on_store_failure` answers at once \
          then, for its keys alone. It also is when half of at least 20 calls within about a second fail.",
    fields: &[
        Field::new(
            "failures",
            Kind::Whole { min: 0, max: 100 },
            "After how many failures; 0 is never. Calls that fail at the same time are one.",
        )
        .ours()
        .default("5"),
        Field::new(
            "within",
            Kind::Duration { min: Micros::from_millis(100), max: Micros::from_secs(600) },
            "Within what time they have to be; without it, they have to be in a row.",
        )
        .ours(),
        Field::new(
            "open_for",
            Kind::Duration { min: Micros::from_millis(10), max: Micros::from_secs(600) },
            "After what time one call tries it again, a fifth more or less. After three good ones it is called as before.",
        )
        .ours()
        .default("250ms"),
    ],
};

static STORE_TLS: Place = Place {
    name: "store_tls",
    doc: "How connections to the store are encrypted. Files are read at every connect, so that they may change.",
    fields: &[
        Field::new(
            "ca",
            Kind::Text,
            "A file with roots, in PEM, one of which vouches for the store; by default those that the machine trusts.",
        )
        .ours(),
        Field::new("certificate", Kind::Text, "A file with the certificate that the node shows to the store, in PEM.").ours(),
        Field::new("key", Kind::Text, "The file with its private key, in PEM.").ours(),
        Field::new(
            "any_name",
            Kind::Flag,
            "The store's certificate may be made out to any name, as long as one of the roots vouches for it.",
        )
        .ours()
        .default("false"),
    ],
};

static CONTROL: Place = Place {
    name: "control",
    doc: "The control plane: tiers, quotas of single callers and rules, kept in SQL and changed by an API: see docs/quotas.md. No decision \
          ever waits for it.",
    fields: &[
        Field::new("enabled", Kind::Flag, "Without it there are only the rules of files, and no API.").ours().default("true"),
        LISTEN.default("127.0.0.1:8082"),
        Field::new(
            "database",
            Kind::Text,
            "Where it is kept: `postgres://user@host/name`, which a fleet of nodes shares. Without one, in SQLite: a file in `node.data`, \
             for this node alone.",
        )
        .ours(),
        Field::new("password_file", Kind::Text, "A file whose first line is the password for it. Read at the start.").ours(),
        Field::new(
            "publish",
            Kind::Flag,
            "Where counters are in Redis: are edits told there too, on the channel `control` behind the store's prefix? So they arrive \
             within a second where a pooler in front of PostgreSQL swallows its notifications. Needs `publish` and `subscribe`: see \
             docs/redis.md.",
        )
        .ours()
        .default("true"),
        Field::new(
            "allow_plain",
            Kind::Flag,
            "May the API be reached from other machines without TLS? Tokens would be sent as plain text.",
        )
        .ours()
        .default("false"),
        TLS_CERTIFICATE,
        TLS_KEY,
        TLS_CLIENT_ROOTS,
        Field::new(
            "audit_sink",
            Kind::Text,
            "A file that every row of the audit trail is added to as a line of JSON, or `stdout`: at least once, in order. Only nodes that \
             have the API write it. See docs/audit.md.",
        )
        .ours(),
    ],
};

static ROLES: &[Word] = &[
    Word::new("all", "It decides, and has the control plane's API."),
    Word::new("decide", "It decides. What the control plane keeps is followed, and changed by other nodes."),
    Word::new(
        "control",
        "It has the control plane's API and decides nothing: there is no RLS, and `http.listen` has `/livez`, `/readyz`, `/healthz` \
         and `/metrics` alone.",
    ),
];

static NODE: Place = Place {
    name: "node",
    doc: "The process itself.",
    fields: &[
        Field::new("role", Kind::Word(ROLES), "What the process does.").ours().default("all"),
        Field::new("threads", Kind::Whole { min: 1, max: 1_024 }, "How many threads decide; by default one for each core.")
            .ours(),
        Field::new(
            "deadline",
            Kind::Duration { min: Micros::from_millis(1), max: Micros::from_secs(60) },
            "How long an answer may take, whatever the store does; three quarters of the caller's own `grpc-timeout`, if that is shorter. \
             What the store has not said by then, `on_store_failure` answers. Envoy gives up after 20 ms.",
        )
        .ours()
        .default("15ms"),
        Field::new(
            "data",
            Kind::Text,
            "A folder for what has to outlive the process: the secret that keys are hashed under, and counters after a graceful stop.",
        )
        .ours()
        .default("tidegate-data"),
        Field::new(
            "drain_delay",
            Kind::Duration { min: Micros::ZERO, max: Micros::from_secs(600) },
            "How long requests are still taken after SIGTERM, while probes say \"not ready\": time for balancers to notice.",
        )
        .ours()
        .default("2s"),
        Field::new(
            "drain_timeout",
            Kind::Duration { min: Micros::ZERO, max: Micros::from_secs(600) },
            "How long connections may take to end after that.",
        )
        .ours()
        .default("10s"),
    ],
};

static LOG: Place = Place {
    name: "log",
    doc: "What is logged, to stderr.",
    fields: &[
        Field::new("format", Kind::Word(FORMATS), "In which form.").ours().default("text"),
        Field::new("level", Kind::Word(LEVELS), "From which level on.").ours().default("info"),
        Field::new(
            "refusals_per_second",
            Kind::Whole { min: 0, max: 100_000 },
            "How many refusals are logged each second, as a sample; 0 is none.",
        )
        .ours()
        .default("1"),
        Field::new(
            "refusals_file",
            Kind::Text,
            "A file of its own for refusals, a line of JSON for each, to answer disputes by: see docs/disputes.md. No decision \
             waits for it.",
        )
        .ours(),
        Field::new(
            "refusals_file_per_second",
            Kind::Whole { min: 1, max: 100_000 },
            "How many refusals are written to it each second at most, as a sample; as many again of limits in shadow.",
        )
        .ours()
        .default("100"),
        Field::new(
            "refusals_file_bytes",
            Kind::Bytes { min: 64 << 10, max: 1 << 40 },
            "How large it may get. At half of that it is renamed to end in `.1`, in the place of the one before.",
        )
        .ours()
        .default("128MiB"),
    ],
};

static FORMATS: &[Word] = &[
    Word::new("text", "For people: time, level, message, then `key=value`."),
    Word::new("json", "For machines: an object in each line."),
    Word::new("json-at", "The same with `@timestamp` and `@message`, as envoyproxy/ratelimit writes it."),
];

static LEVELS: &[Word] = &[
    Word::new("error", "What failed."),
    Word::new("warn", "And what may fail."),
    Word::new("info", "And what changed."),
    Word::new("debug", "And what happened."),
    Word::new("trace", "Everything; what libraries trace is left out of a release."),
];
