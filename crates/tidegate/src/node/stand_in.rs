//! A node in the place of envoyproxy/ratelimit: what it has besides.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_config::{DropIn, ListenAt, ListenerSettings, Mogrify, Settings};
use tidegate_server::rls::Beside;
use tidegate_server::{Node, Protocol, StandIn, reference_gauges};
use tidegate_telemetry::Metrics;
use tidegate_telemetry::reference::statsd::{
    self, Mogrifier, Statsd, StatsdDialect, StatsdProtocol, StatsdSettings,
};
use tidegate_telemetry::reference::{ReferenceStats, ReferenceStatsSettings};

use tokio::runtime::Runtime;

use super::{Door, StartError};

/// Connections to its pages.
const CONNECTIONS_MAX: usize = 256;

/// How often probes over gRPC are told anew whether the store is there.
const HEALTH_EVERY: Duration = Duration::from_secs(1);

/// Tells whoever asks over gRPC whether the node is well, where that depends on its store: connections come and go without a word.
pub(super) fn follow_health(runtime: &Runtime, node: &Arc<Node>, beside: Beside) {
    let node = Arc::downgrade(node);
    runtime.spawn(async move {
        let mut every = tokio::time::interval(HEALTH_EVERY);
        // One that ends has told so, and tells nothing else any more.
        while let Some(node) = node.upgrade().filter(|node| !node.draining.load(Ordering::Relaxed)) {
            beside.tell_health(node.is_well()).await;
            drop(node);
            every.tick().await;
        }
    });
}

/// What the node does otherwise.
pub(super) fn of(drop_in: &DropIn, threads: usize) -> StandIn {
    let stats = ReferenceStats::new(ReferenceStatsSettings {
        cores: threads,
        near_limit_ratio: drop_in.near_limit_ratio,
        extra_tags: drop_in.extra_tags.clone(),
        ..ReferenceStatsSettings::default()
    });
    StandIn {
        shadow: drop_in.shadow,
        metadata: drop_in.metadata,
        headers: drop_in.headers.clone(),
        local_cache: drop_in.local_cache,
        prometheus_path: drop_in.prometheus.as_ref().map(|(_, path)| path.clone()),
        health_needs_store: drop_in.health_needs_store,
        stats,
    }
}

/// Where its pages are served: those for debugging, then its metrics.
pub(super) fn doors(
    drop_in: Option<&DropIn>,
    settings: &Settings,
    metrics: &Arc<Metrics>,
) -> Result<Vec<Door>, StartError> {
    let Some(drop_in) = drop_in else { return Ok(Vec::new()) };
    let prometheus = drop_in.prometheus.as_ref().map(|(address, _)| ("PROMETHEUS_ADDR", *address));
    let all = [Some(("DEBUG_PORT", drop_in.debug)), prometheus].into_iter().flatten();
    let open = |(name, address)| {
        let said = ListenerSettings {
            listen: Some(ListenAt::Tcp(address)),
            connections_max: CONNECTIONS_MAX,
            connections_per_peer_max: CONNECTIONS_MAX,
            ..ListenerSettings::default()
        };
        Door::open(name, Protocol::Debug, &said, None, settings, metrics)
    };
    all.map(open).collect()
}

fn mogrifier(said: &Mogrify) -> io::Result<Mogrifier> {
    Mogrifier::new(&said.pattern, &said.name, &said.tags).map_err(|error| {
        io::Error::other(format!("DOG_STATSD_MOGRIFIER with the pattern `{}`: {error}", said.pattern))
    })
}

/// Sends its stats, if they are to be sent.
pub(super) fn send(drop_in: Option<&DropIn>, node: &Arc<Node>) -> io::Result<Option<Statsd>> {
    let (Some(said), Some(stand_in)) = (drop_in.and_then(|drop_in| drop_in.statsd.as_ref()), &node.stand_in)
    else {
        return Ok(None);
    };
    let dialect = match &said.dog {
        None => StatsdDialect::Plain,
        Some(all) => StatsdDialect::Dog(all.iter().map(mogrifier).collect::<Result<_, _>>()?),
    };
    let settings = StatsdSettings {
        protocol: if said.is_tcp { StatsdProtocol::Tcp } else { StatsdProtocol::Udp },
        host: said.host.clone(),
        port: said.port,
        flush_interval: said.every,
        dialect,
    };
    let known = Arc::downgrade(node);
    let gauges = move || known.upgrade().map(|node| reference_gauges(&node)).unwrap_or_default();
    statsd::start(stand_in.stats.clone(), settings, gauges).map(Some)
}
