//! Envoy's configuration, made of what the documents show and of what surrounds that.

use std::net::SocketAddr;
use std::path::Path;

use crate::documents::{indented, piece};

/// Every piece that is used.
pub(crate) const PIECES: [&str; 12] = [
    "filter", "closed", "cluster", "rules", "plain", "optional", "weights", "override", "shadow", "leases",
    "tokens", "reserve",
];

/// Those of them that are routes.
const ROUTES: [&str; 8] =
    ["plain", "optional", "weights", "override", "shadow", "leases", "tokens", "reserve"];

/// Limits that no caller meets, for tests that are about something else. A store that is away is an error for one of them.
const MORE_RULES: &str = "  - key: busy
    rate_limit: { limit: 4000000000/1h, name: busy }
  - key: strict
    rate_limit: { limit: 4000000000/1h, on_store_failure: error, name: strict }
";

const MORE_ROUTES: [&str; 2] = ["busy", "strict"];

/// The rules of the domain.
pub(crate) fn rules() -> String {
    format!("{}{MORE_RULES}", piece("rules"))
}

/// Where everything listens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) admin: u16,
    /// Lets requests pass that nobody decides about.
    pub(crate) open: u16,
    /// Stops them.
    pub(crate) closed: u16,
    /// Asks nobody.
    pub(crate) bare: u16,
}

/// How Envoy is with nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manners {
    /// How long it waits for an answer.
    pub(crate) patience: &'static str,
    /// Does it leave a node alone for a while that failed often? It closes the connection then.
    pub(crate) ejects: bool,
}

/// The whole of it.
pub(crate) fn envoy(
    ports: &Ports,
    upstream: SocketAddr,
    nodes: &[String],
    manners: Manners,
    log: &Path,
) -> String {
    let patient = |filter: &str| filter.replace("timeout: 0.02s", &format!("timeout: {}", manners.patience));
    let listeners = [
        listener("open", ports.open, &patient(piece("filter")), log),
        listener("closed", ports.closed, &patient(piece("closed")), log),
        listener("bare", ports.bare, "", log),
    ];
    format!(
        "admin:
  address: {}
static_resources:
  listeners:
{}  clusters:
    - name: upstream
      type: STATIC
      load_assignment:
        cluster_name: upstream
        endpoints: [{{ lb_endpoints: [{{ endpoint: {{ address: {} }} }}] }}]
{}",
        address(ports.admin),
        listeners.concat(),
        address(upstream.port()),
        indented(&cluster(nodes, manners), 4)
    )
}

/// Where something listens, as Envoy writes it.
pub(crate) fn address(port: u16) -> String {
    format!("{{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}")
}

/// The cluster of the document, with these nodes instead of its one.
fn cluster(nodes: &[String], manners: Manners) -> String {
    let shown = piece("cluster");
    let ejects = shown.find("  outlier_detection:").expect("outlier detection");
    let after = shown.find("  health_checks:").expect("health checks");
    let shown =
        if manners.ejects { shown.to_owned() } else { format!("{}{}", &shown[..ejects], &shown[after..]) };
    let line = shown.lines().find(|line| line.contains("port_value: 8081")).expect("a node");
    let lines: Vec<String> = nodes.iter().map(|node| line.replace(&address(8081), node)).collect();
    shown.replace(line, &lines.join("\n"))
}

fn listener(name: &str, port: u16, filter: &str, log: &Path) -> String {
    let routes: String = ROUTES.iter().map(|name| indented(piece(name), 20)).collect();
    let more: String = MORE_ROUTES
        .iter()
        .map(|name| {
            indented(&piece("plain").replace("/plain", &format!("/{name}")).replace("api_key", name), 20)
        })
        .collect();
    format!(
        r#"    - name: {name}
      address: {}
      filter_chains:
        - filters:
          - name: envoy.filters.network.http_connection_manager
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
              stat_prefix: {name}
              access_log:
                - name: envoy.access_loggers.file
                  typed_config:
                    "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
                    path: {}
                    log_format:
                      text_format_source:
                        inline_string: "{name} %REQ(:PATH)% %RESPONSE_CODE% %RESPONSE_FLAGS%
                          %DYNAMIC_METADATA(envoy.filters.http.ratelimit:tidegate)%\n"
              http_filters:
                - name: envoy.filters.http.set_metadata
                  typed_config:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                    metadata:
                      - metadata_namespace: plans
                        value: {{ limit: {{ requests_per_unit: 2, unit: HOUR }} }}
{}                - name: envoy.filters.http.router
                  typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
              route_config:
                virtual_hosts:
                  - name: all
                    domains: ["*"]
                    routes:
{routes}{more}                    - match: {{ prefix: / }}
                      route: {{ cluster: upstream }}
"#,
        address(port),
        log.display(),
        indented(filter, 16),
    )
}
