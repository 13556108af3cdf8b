//! All numbers of a node, by the names of the reference server. They grow for as long as the node runs, whatever is reloaded.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::calls::{Calls, ReferenceMethod};
use super::registry::{Registry, Series};
use super::spelling;
use super::table::{COUNTS, OF_SERVICE_LEN, OfService};
use super::tags::Tags;

/// Domains that have a name for what finds no room; those of the rest share one.
const OTHERS_MAX: usize = 1_000;
/// What stands in a name for all that found no room.
pub(super) const OTHERS: &str = "others";
/// How much room for writing names a thread keeps.
const SCRATCH_BYTES_MAX: usize = 4_096;

/// How numbers are counted and told.
#[derive(Clone, PartialEq, Debug)]
pub struct ReferenceStatsSettings {
    /// The threads that count. Each has counts of its own, up to sixteen.
    pub cores: usize,
    /// The part of a limit from which on it is near: `NEAR_LIMIT_RATIO`.
    pub near_limit_ratio: f32,
    /// What is put behind every name: `EXTRA_TAGS`.
    pub extra_tags: Vec<(String, String)>,
    /// Names of rules, names that requests make up, and names of unknown domains: so many of each kind. What is asked first after that
    /// shares the name `<domain>.others`, or `others` where the domain is unknown.
    pub names_max: usize,
    /// Prometheus is told milliseconds under the name that says seconds, and in buckets made for seconds, as the reference once did:
    /// `PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS`.
    pub response_time_as_milliseconds: bool,
}

impl Default for ReferenceStatsSettings {
    fn default() -> Self {
        Self {
            cores: 1,
            near_limit_ratio: 0.8,
            extra_tags: Vec::new(),
            names_max: 10_000,
            response_time_as_milliseconds: false,
        }
    }
}

/// The numbers of a node. Any thread may count, and none waits for whoever reads.
#[derive(Debug)]
pub struct ReferenceStats {
    pub(super) settings: ReferenceStatsSettings,
    pub(super) tags: Tags,
    /// Of rules whose name is fixed.
    pub(super) rules: Registry<Series>,
    /// Of names that requests made up.
    pub(super) asked: Registry<Series>,
    /// Of what found no room, for each domain that has rules.
    pub(super) others: Registry<Series>,
    /// Of what found no room even there.
    pub(super) rest: Series,
    pub(super) domains: Registry<AtomicU64>,
    pub(super) rest_of_domains: AtomicU64,
    /// By [`OfService`].
    pub(super) service: [AtomicU64; OF_SERVICE_LEN],
    /// By method, then by core.
    pub(super) calls: Box<[Box<[Calls]>]>,
    told_of_others: AtomicBool,
}

impl ReferenceStats {
    /// Numbers, all zero.
    pub fn new(settings: ReferenceStatsSettings) -> Arc<Self> {
        let cores = settings.cores.max(1);
        let calls = || (0..cores).map(|_| Calls::new()).collect();
        Arc::new(Self {
            tags: Tags::of(&settings.extra_tags),
            rules: Registry::new(settings.names_max),
            asked: Registry::new(settings.names_max),
            others: Registry::new(settings.names_max.min(OTHERS_MAX)),
            rest: Series::of_cores(cores),
            domains: Registry::new(settings.names_max),
            rest_of_domains: AtomicU64::new(0),
            service: Default::default(),
            calls: ReferenceMethod::ALL.iter().map(|_| calls()).collect(),
            told_of_others: AtomicBool::new(false),
            settings,
        })
    }

    /// So many descriptors came for a domain that no rules name.
    pub fn domain_not_found(&self, domain: &str, descriptors: u64) {
        let write = |name: &mut String| spelling::write_domain(name, domain);
        let counted = with_name(write, |name| {
            let add = |count: &Arc<AtomicU64>| count.fetch_add(descriptors, Relaxed);
            self.domains.known_or_new(name, || AtomicU64::new(0), add)
        });
        if counted.is_none() {
            self.rest_of_domains.fetch_add(descriptors, Relaxed);
            self.shared();
        }
    }

    /// Rules were loaded, or refused.
    pub fn config_load(&self, success: bool) {
        self.count(if success { OfService::ConfigLoadSuccess } else { OfService::ConfigLoadError });
    }

    /// A request passed because of the shadow mode of the whole node.
    pub fn global_shadow_mode(&self) {
        self.count(OfService::GlobalShadowMode);
    }

    /// A call failed because the store did.
    pub fn redis_error(&self) {
        self.count(OfService::RedisError);
    }

    /// A call failed for another reason.
    pub fn service_error(&self) {
        self.count(OfService::ServiceError);
    }

    /// A call was answered, after so long.
    #[inline]
    pub fn call(&self, core: usize, method: ReferenceMethod, took: Duration) {
        let calls = &self.calls[method as usize];
        calls[core % calls.len()].add(took);
    }

    /// Counts what a rule or a limit of a request's own said, under the name that `write` writes.
    pub(super) fn count_asked(
        &self,
        core: usize,
        domain: &str,
        adds: &[u64; COUNTS],
        write: impl FnOnce(&mut String),
    ) {
        let add = |series: &Arc<Series>| series.add(core, adds);
        let counted = with_name(write, |name| self.asked.known_or_new(name, Series::single, add));
        if counted.is_none() {
            self.count_others(core, domain, adds);
        }
    }

    /// Counts what found no room.
    #[cold]
    pub(super) fn count_others(&self, core: usize, domain: &str, adds: &[u64; COUNTS]) {
        self.shared();
        let add = |series: &Arc<Series>| series.add(core, adds);
        let write = |name: &mut String| write_others(name, domain);
        let counted = with_name(write, |name| self.others.known_or_new(name, Series::single, add));
        if counted.is_none() {
            self.rest.add(core, adds);
        }
    }

    /// What is counted of a rule whose name is fixed; none if there is no room for it.
    pub(super) fn series_of(&self, write: impl FnOnce(&mut String)) -> Option<Arc<Series>> {
        let fresh = || Series::of_cores(self.settings.cores);
        with_name(write, |name| self.rules.known_or_new(name, fresh, Arc::clone))
    }

    fn count(&self, what: OfService) {
        self.service[what as usize].fetch_add(1, Relaxed);
    }

    fn shared(&self) {
        self.count(OfService::NamesShared);
        if !self.told_of_others.swap(true, Relaxed) {
            let names_max = self.settings.names_max;
            tracing::warn!(
                names_max,
                "more names of statistics than there is room for; new ones share `others`"
            );
        }
    }
}

/// Writes what all that found no room in a domain is called.
pub(super) fn write_others(name: &mut String, domain: &str) {
    spelling::write_domain(name, domain);
    name.push('.');
    name.push_str(OTHERS);
}

/// Writes a name into room that the thread keeps, and shows it to `read`.
fn with_name<R>(write: impl FnOnce(&mut String), read: impl FnOnce(&str) -> R) -> R {
    thread_local! {
        static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) };
    }
    let mut name = SCRATCH.take();
    name.clear();
    write(&mut name);
    let shown = read(&name);
    if name.capacity() <= SCRATCH_BYTES_MAX {
        SCRATCH.set(name);
    }
    shown
}
