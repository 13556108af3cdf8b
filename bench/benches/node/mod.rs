//! A node in this process: counters in memory, and a clock that stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use tidegate_clock::{Clock, ManualClock};
use tidegate_config::{LiveRules, RuleFiles};
use tidegate_core::{Micros, OnStoreFailure, Quotas, Secret};
use tidegate_counters::{Memory, MemorySize, Store};
use tidegate_server::{InForce, Node, PlaceLimits, Places, Receipts, ReplyStyle, StoreFailures};
use tidegate_telemetry::{Build, Metrics, RefusalLog, TopKeys};

/// Any time will do.
pub(crate) const NOW: Micros = Micros::from_secs(1_800_000_000);

/// A node with these rules that knows these callers.
pub(crate) fn node(rules: &str, quotas: Arc<Quotas>) -> Node {
    let files = RuleFiles { texts: vec![("rules".into(), rules.into())], ..RuleFiles::default() };
    let rules = LiveRules::start_with(files, Secret::new([7; 16]), move |book, before| {
        InForce::new(book.with_default_domain(None), 1, before).with_quotas(&quotas)
    });
    let Ok((rules, _)) = rules else { panic!("the rules are not valid") };
    let places = || Places::new(PlaceLimits { all: 1, of_peer: 1 });
    Node {
        decides: true,
        rules,
        store: Store::Memory(Arc::new(Memory::new(MemorySize::of_bytes(1 << 20), NOW).expect("memory"))),
        xds: None,
        control: None,
        ledger: None,
        failures: StoreFailures::default(),
        clock: Clock::from(&ManualClock::at(NOW.get())),
        metrics: Metrics::new(1),
        refusals: RefusalLog::new(0, 1),
        top: TopKeys::new(1),
        receipts: Receipts::default(),
        internal_calls: None,
        internal_domain: None,
        default_domain: None,
        on_failure: OnStoreFailure::Allow,
        deadline: Duration::from_millis(15),
        rls: ReplyStyle::default(),
        http: ReplyStyle::default(),
        draining: AtomicBool::new(false),
        places: [places(), places()],
        started_us: NOW.get(),
        reloaded_us: AtomicU64::new(NOW.get()),
        build: Build::default(),
        stand_in: None,
        aside: tokio::sync::Semaphore::new(1),
        fault: None,
    }
}
