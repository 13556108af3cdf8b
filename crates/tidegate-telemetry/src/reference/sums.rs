//! What was counted so far: one list for whoever tells it, whether as lines, in statsd or to Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::calls::{CallSums, ReferenceMethod};
use super::stats::{OTHERS, ReferenceStats, write_others};
use super::table::{
    COUNTS, DOMAIN, DOMAIN_NOT_FOUND, METHOD, OF_LOCAL_CACHE, OF_LOCAL_CACHE_LEN, OF_PER_SECOND_POOL,
    OF_POOL, OF_POOL_LEN, OF_RULE, OF_SERVICE, OF_SERVICE_LEN, RESPONSE_TIME, RULE, ReferenceMetric,
    TOTAL_REQUESTS,
};

/// What the node knows itself and hands over when it is asked. What it does not have, it does not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReferenceGauges {
    /// Connections to the store.
    pub redis_pool: Option<PoolGauges>,
    /// Connections to the store for limits per second.
    pub redis_per_second_pool: Option<PoolGauges>,
    /// Refusals in memory.
    pub local_cache: Option<LocalCacheGauges>,
}

/// Connections to a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolGauges {
    /// Those that are open.
    pub cx_active: u64,
    /// Those that were opened, since the start.
    pub cx_total: u64,
    /// Those that were closed, since the start.
    pub cx_local_close: u64,
}

impl PoolGauges {
    pub(super) fn values(&self) -> [u64; OF_POOL_LEN] {
        [self.cx_active, self.cx_total, self.cx_local_close]
    }
}

/// Refusals that a node remembers, so that it need not ask the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocalCacheGauges {
    /// Those that left because memory was full.
    pub evacuate_count: u64,
    /// Those that left because their time was over.
    pub expired_count: u64,
    /// Those that are there.
    pub entry_count: u64,
    /// When those that are there were used, on average: unix seconds.
    pub average_access_time: u64,
    /// Lookups that found one.
    pub hit_count: u64,
    /// Lookups that found none.
    pub miss_count: u64,
    /// Lookups.
    pub lookup_count: u64,
    /// Those that were written over.
    pub overwrite_count: u64,
}

impl LocalCacheGauges {
    pub(super) fn values(&self) -> [u64; OF_LOCAL_CACHE_LEN] {
        [
            self.evacuate_count,
            self.expired_count,
            self.entry_count,
            self.average_access_time,
            self.hit_count,
            self.miss_count,
            self.lookup_count,
            self.overwrite_count,
        ]
    }
}

/// What was counted so far.
#[derive(Debug)]
pub(super) struct Sums {
    /// By name.
    pub(super) rules: BTreeMap<Arc<str>, [u64; COUNTS]>,
    pub(super) domains: BTreeMap<Arc<str>, u64>,
    pub(super) service: [u64; OF_SERVICE_LEN],
    /// By method.
    pub(super) calls: Vec<CallSums>,
    pub(super) gauges: ReferenceGauges,
}

/// Which number it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Cell {
    Rule(Arc<str>, usize),
    Domain(Arc<str>),
    Service(usize),
    Requests(usize),
    Pool(usize),
    PerSecondPool(usize),
    LocalCache(usize),
}

impl ReferenceStats {
    /// Adds up all that was counted. It may be long: for a thread that decides nothing.
    pub(super) fn sums(&self, gauges: &ReferenceGauges) -> Sums {
        let mut rules: BTreeMap<Arc<str>, [u64; COUNTS]> = BTreeMap::new();
        // A rule and a request may have come to the same name: it is one, as there.
        let mut add = |name: Arc<str>, counts: [u64; COUNTS]| {
            let sums = rules.entry(name).or_default();
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.wrapping_add(count));
        };
        for registry in [&self.rules, &self.asked, &self.others] {
            registry.all().into_iter().for_each(|(name, series)| add(name, series.sums()));
        }
        let rest = self.rest.sums();
        if rest != [0; COUNTS] {
            let mut name = String::new();
            write_others(&mut name, OTHERS);
            add(name.into(), rest);
        }
        let known = self.domains.all();
        let mut domains: BTreeMap<Arc<str>, u64> =
            known.into_iter().map(|(name, count)| (name, count.load(Relaxed))).collect();
        let rest = self.rest_of_domains.load(Relaxed);
        if rest > 0 {
            *domains.entry(OTHERS.into()).or_default() += rest;
        }
        let calls = self.calls.iter().map(|cores| {
            let mut sums = CallSums::none();
            cores.iter().for_each(|core| core.add_to(&mut sums));
            sums
        });
        let service = std::array::from_fn(|at| self.service[at].load(Relaxed));
        Sums { rules, domains, service, calls: calls.collect(), gauges: *gauges }
    }
}

impl Sums {
    /// Every number but the durations.
    pub(super) fn cells(&self) -> Vec<(Cell, u64)> {
        let mut cells = Vec::with_capacity(self.rules.len() * COUNTS + self.domains.len() + 32);
        for (name, counts) in &self.rules {
            cells.extend(counts.iter().enumerate().map(|(at, count)| (Cell::Rule(name.clone(), at), *count)));
        }
        cells.extend(self.domains.iter().map(|(name, count)| (Cell::Domain(name.clone()), *count)));
        cells.extend(self.service.iter().enumerate().map(|(at, count)| (Cell::Service(at), *count)));
        let calls = self.calls.iter().enumerate();
        cells.extend(calls.map(|(method, calls)| (Cell::Requests(method), calls.count())));
        let ReferenceGauges { redis_pool, redis_per_second_pool, local_cache } = &self.gauges;
        let mut extend = |of: fn(usize) -> Cell, values: &[u64]| {
            cells.extend(values.iter().enumerate().map(|(at, value)| (of(at), *value)));
        };
        redis_pool.iter().for_each(|pool| extend(Cell::Pool, &pool.values()));
        redis_per_second_pool.iter().for_each(|pool| extend(Cell::PerSecondPool, &pool.values()));
        local_cache.iter().for_each(|cache| extend(Cell::LocalCache, &cache.values()));
        cells
    }
}

impl Cell {
    pub(super) fn metric(&self) -> &'static ReferenceMetric {
        match self {
            Self::Rule(_, at) => &OF_RULE[*at],
            Self::Domain(_) => &DOMAIN_NOT_FOUND,
            Self::Service(at) => &OF_SERVICE[*at],
            Self::Requests(_) => &TOTAL_REQUESTS,
            Self::Pool(at) => &OF_POOL[*at],
            Self::PerSecondPool(at) => &OF_PER_SECOND_POOL[*at],
            Self::LocalCache(at) => &OF_LOCAL_CACHE[*at],
        }
    }

    /// Writes its name, without tags.
    pub(super) fn write_name(&self, out: &mut String) {
        let (hole, filling) = match self {
            Self::Rule(name, _) => (RULE, &**name),
            Self::Domain(name) => (DOMAIN, &**name),
            Self::Requests(method) => (METHOD, method_name(*method)),
            _ => return out.push_str(self.metric().statsd),
        };
        write_filled(out, self.metric().statsd, hole, filling);
    }
}

/// Writes the name of the durations of a method, without tags.
pub(super) fn write_response_time(out: &mut String, method: usize) {
    write_filled(out, RESPONSE_TIME.statsd, METHOD, method_name(method));
}

pub(super) fn method_name(method: usize) -> &'static str {
    ReferenceMethod::ALL.get(method).map_or("", |method| method.name())
}

fn write_filled(out: &mut String, name: &str, hole: &str, filling: &str) {
    let (before, behind) = name.split_once(hole).unwrap_or((name, ""));
    out.extend([before, filling, behind]);
}
