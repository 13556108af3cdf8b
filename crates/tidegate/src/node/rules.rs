//! Which rules a node runs on, and what is told when they change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tidegate_config::{Following, LiveRules, Loaded, RuleFiles, Settings};
use tidegate_core::Secret;
use tidegate_counters::Store;
use tidegate_server::{InForce, Node};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

/// The rules of a node that nobody gave any.
const DEMO: &str = include_str!("../../../../examples/demo.yaml");
/// How many of a file's errors are logged.
const TOLD_MAX: usize = 10;

/// The files of the settings; where none were named and there are none, the demo.
pub(super) fn files(settings: &Settings) -> (RuleFiles, bool) {
    let demo = !settings.rules_said && settings.rules.paths.iter().all(|path| !path.exists());
    let mut files = settings.rules.clone();
    if demo {
        files.paths.clear();
        files.texts.push(("examples/demo.yaml".into(), DEMO));
    }
    (files, demo)
}

pub(super) type Live = Arc<LiveRules<InForce>>;

pub(super) fn load(
    files: RuleFiles,
    secret: Secret,
    threads: usize,
    store: &Store,
) -> Result<(Live, Loaded), Box<Loaded>> {
    let (tags, names) = (store.wants_tags(), store.wants_reference_names());
    LiveRules::start_with(files, secret, move |book, before| {
        let book = if tags { book.with_tags() } else { book };
        InForce::new(if names { book.with_reference_names() } else { book }, threads, before)
    })
}

/// Loads rules again when they change, and tells of it. Without a watch, only a signal does that; the demo never changes.
pub(super) fn follow(
    node: &Arc<Node>,
    settings: &Settings,
    demo: bool,
    runtime: &Runtime,
) -> std::io::Result<Option<Following>> {
    let told = Arc::downgrade(node);
    if settings.watch && !demo {
        let follow = node.rules.follow(move |_, loaded| {
            if let Some(node) = told.upgrade() {
                tell(&node, loaded);
            }
        });
        return follow.map(Some);
    }
    let _inside = runtime.enter();
    let mut hangups = signal(SignalKind::hangup())?;
    runtime.spawn(async move {
        while hangups.recv().await.is_some() {
            let Some(node) = told.upgrade() else { return };
            if demo {
                tracing::info!("demo rules are built in: there is nothing to load again");
                continue;
            }
            let reloading = tokio::task::spawn_blocking(move || {
                let loaded = node.rules.reload();
                tell(&node, &loaded);
            });
            let _ = reloading.await; // Its panic has been told already.
        }
    });
    Ok(None)
}

fn tell(node: &Node, loaded: &Loaded) {
    if loaded.is_valid() {
        node.reloaded_us.store(node.clock.wall_now_us(), Ordering::Relaxed);
    }
    tell_loaded(loaded, node.rules.in_force().book.rules().len(), false);
    tell_missing_domains(node);
}

/// A setting with a typing error would switch limits off, in silence.
pub(super) fn tell_missing_domains(node: &Node) {
    for (setting, domain) in node.missing_domains(&node.rules.in_force().book) {
        tracing::warn!(setting, domain, "no rule has this domain: what is counted there is not limited");
    }
}

/// Says what came of loading rules.
pub(super) fn tell_loaded(loaded: &Loaded, rules: usize, demo: bool) {
    let (errors, warnings) = (loaded.report.errors(), loaded.report.warnings());
    for trouble in loaded.report.json(&loaded.sources).into_iter().take(TOLD_MAX) {
        let text = |name: &str| trouble.get(name).and_then(Value::as_str).unwrap_or_default().to_string();
        let place = format!("{}:{}:{}", text("file"), trouble["line"], trouble["column"]);
        if text("severity") == "error" {
            tracing::error!(place, code = text("code"), "rules: {}", text("message"));
        } else {
            tracing::warn!(place, code = text("code"), "rules: {}", text("message"));
        }
    }
    match (errors, demo) {
        (0, false) => tracing::info!(rules, warnings, "rules in force"),
        (0, true) => tracing::info!(rules, "demo rules in force: there is no folder `rules` here"),
        _ => tracing::error!(errors, rules, "rules not loaded; the ones before stay in force"),
    }
}
