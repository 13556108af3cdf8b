//! Which rules a node runs on, and what is told when they change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tidegate_config::{Following, LiveRules, Loaded, Settings};
use tidegate_core::{Book, Quotas, Secret};
use tidegate_counters::Store;
use tidegate_server::rls::Beside;
use tidegate_server::{InForce, Node};
use tidegate_telemetry::reference::ReferenceStats;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use super::StartError;

/// The rules of a node that nobody gave any.
const DEMO: &str = include_str!("../../../../examples/demo.yaml");
/// How many of a file's errors are logged.
const TOLD_MAX: usize = 10;

/// Where rules come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// Files.
    Files,
    /// What is built in, since nobody named files and there are none.
    Demo,
    /// A server, whose rules come later.
    Xds,
}

impl Source {
    fn of(settings: &Settings) -> Self {
        let missing = || settings.rules.paths.iter().all(|path| !path.exists());
        match &settings.xds.server {
            Some(_) => Self::Xds,
            None if !settings.rules_said && missing() => Self::Demo,
            None => Self::Files,
        }
    }
}

/// What is made of every book anew, where a node stands in for envoyproxy/ratelimit.
pub(super) struct Kept {
    /// Are all limits in quota mode?
    pub(super) all_quota: bool,
    /// Its numbers.
    pub(super) stats: Arc<ReferenceStats>,
}

type Live = Arc<LiveRules<InForce>>;

/// Loads the rules that a node starts with, and tells of them.
pub(super) fn start(
    settings: &Settings,
    secret: Secret,
    threads: usize,
    store: &Store,
    quotas: &Arc<Quotas>,
    stand_in: Option<Kept>,
) -> Result<(Source, Live), StartError> {
    let source = Source::of(settings);
    let stats = stand_in.as_ref().map(|kept| kept.stats.clone());
    let (tags, names) = (store.wants_tags(), store.wants_reference_names());
    let (quotas, default_domain) = (quotas.clone(), settings.http_default_domain.clone());
    let make = move |book: Book, before: Option<&InForce>| {
        let book = book.with_default_domain(default_domain.as_deref());
        let book = if tags { book.with_tags() } else { book };
        let book = if names { book.with_reference_names() } else { book };
        match &stand_in {
            None => InForce::new(book, threads, before).with_quotas(&quotas),
            Some(kept) => {
                let book = book.as_stand_in(kept.all_quota);
                InForce::new(book, threads, before).with_quotas(&quotas).with_reference_stats(&kept.stats)
            }
        }
    };
    let mut files = settings.rules.clone();
    match source {
        Source::Xds => return Ok((source, LiveRules::start_empty(files, secret, make))),
        Source::Demo => {
            files.paths.clear();
            files.texts.push(("examples/demo.yaml".into(), DEMO.into()));
        }
        Source::Files => {}
    }
    if let Some(stats) = stats {
        // As there: a node whose first rules cannot be loaded runs, and every call fails until they can.
        let rules = LiveRules::start_later(files, secret, make);
        let loaded = rules.reload();
        stats.config_load(loaded.is_valid());
        tell_loaded(&loaded, rules.in_force().book.rules().len(), Told::AsReference);
        return Ok((source, rules));
    }
    let (rules, loaded) = LiveRules::start_with(files, secret, make).map_err(StartError::Rules)?;
    let told = if source == Source::Demo { Told::Demo } else { Told::Files };
    tell_loaded(&loaded, rules.in_force().book.rules().len(), told);
    Ok((source, rules))
}

/// Loads rules again when their files change, and tells of it. Without a watch, only a signal does that; others than files never change so.
pub(super) fn follow(
    node: &Arc<Node>,
    settings: &Settings,
    source: Source,
    beside: Beside,
    runtime: &Runtime,
) -> std::io::Result<Option<Following>> {
    let told = Arc::downgrade(node);
    if settings.watch && source == Source::Files {
        let background = runtime.handle().clone();
        let follow = node.rules.follow(move |_, loaded| {
            if let Some(node) = told.upgrade() {
                tell(&node, loaded);
                // The first rules may have come late.
                let (beside, is_well) = (beside.clone(), node.is_well());
                background.spawn(async move { beside.tell_health(is_well).await });
            }
        });
        return follow.map(Some);
    }
    let _inside = runtime.enter();
    let mut hangups = signal(SignalKind::hangup())?;
    runtime.spawn(async move {
        while hangups.recv().await.is_some() {
            let Some(node) = told.upgrade() else { return };
            match source {
                Source::Demo => tracing::info!("demo rules are built in: there is nothing to load again"),
                Source::Xds => {
                    tracing::info!("rules come from an xDS server: there is nothing to load again")
                }
                Source::Files => {
                    let reloading = tokio::task::spawn_blocking(move || {
                        let loaded = node.rules.reload();
                        tell(&node, &loaded);
                    });
                    let _ = reloading.await; // Its panic has been told already.
                }
            }
        }
    });
    Ok(None)
}

/// Says what came of loading rules again.
pub(super) fn tell(node: &Node, loaded: &Loaded) {
    if loaded.is_valid() {
        node.reloaded_us.store(node.clock.wall_now_us(), Ordering::Relaxed);
    }
    let told = match &node.stand_in {
        None => Told::Files,
        Some(stand_in) => {
            stand_in.stats.config_load(loaded.is_valid());
            Told::AsReference
        }
    };
    tell_loaded(loaded, node.rules.in_force().book.rules().len(), told);
    tell_missing_domains(node);
    tell_lost_quotas(node);
}

/// A second domain, or its first quota, would switch quotas off, in silence.
pub(super) fn tell_lost_quotas(node: &Node) {
    if let Some(lost) = node.lost_quotas(&node.rules.in_force().book) {
        tracing::warn!("{lost}");
    }
}

/// A setting with a typing error would switch limits off, in silence.
pub(super) fn tell_missing_domains(node: &Node) {
    for (setting, domain) in node.missing_domains(&node.rules.in_force().book) {
        tracing::warn!(setting, domain, "no rule has this domain: what is counted there is not limited");
    }
}

/// Of which rules is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    /// Somebody's.
    Files,
    /// Those that are built in.
    Demo,
    /// Somebody's who runs us in the place of envoyproxy/ratelimit, and looks for its words.
    AsReference,
}

/// What the line begins with by which envoyproxy/ratelimit says that rules cannot be loaded.
pub(super) const NOT_LOADED: &str = "Error loading new configuration";

/// Says what came of loading rules.
fn tell_loaded(loaded: &Loaded, rules: usize, told: Told) {
    let (errors, warnings) = (loaded.report.errors(), loaded.report.warnings());
    for trouble in loaded.report.json(&loaded.sources).into_iter().take(TOLD_MAX) {
        let text = |name: &str| trouble.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
        let place = format!("{}:{}:{}", text("file"), trouble["line"], trouble["column"]);
        let reference = text("reference");
        if told == Told::AsReference && !reference.is_empty() {
            let (says, help) = (text("message"), text("help"));
            tracing::error!(place, code = text("code"), says, help, "{NOT_LOADED}: {reference}");
        } else if text("severity") == "error" {
            tracing::error!(place, code = text("code"), "rules: {}", text("message"));
        } else {
            tracing::warn!(place, code = text("code"), "rules: {}", text("message"));
        }
    }
    for one in loaded.left_out.iter().take(TOLD_MAX) {
        tracing::error!(rule = one.name, "a rule by API is not in force: {}", one.why());
    }
    if !loaded.left_out.is_empty() {
        let left_out = loaded.left_out.len();
        tracing::error!(
            left_out,
            "rules by API are not in force; they are tried again whenever rules are loaded"
        );
    }
    match (errors, told == Told::Demo) {
        (0, false) => tracing::info!(rules, warnings, "rules in force"),
        (0, true) => tracing::info!(rules, "demo rules in force: there is no folder `rules` here"),
        _ => tracing::error!(errors, rules, "rules not loaded; the ones before stay in force"),
    }
}
