//! Counters that a fleet shares, in Redis or Valkey.

mod settings; // where the store is
mod stats; // what operators are told
#[allow(dead_code)] // Until decisions use it.
mod wires; // connections, slots, redirects

use std::rc::Rc;
use std::sync::Arc;

use tidegate_core::{Key, Limit, Micros, Secret, Tag};

use crate::{Batch, Counters, Inspection, Rehearsed, Unavailable};

pub use settings::{Address, Password, RedisSettings, StoreClock, StoreTls, Topology, UrlError};
pub use stats::{RedisStats, STORE_TIMES_US, ServerStats, Times};

/// A store in Redis or Valkey: what the threads of a node share about it.
pub struct RedisStore {
    settings: RedisSettings,
}

/// One thread's hand on a store in Redis: its own connections. Needs a tokio runtime with a `LocalSet` on its thread.
pub struct RedisCounters {
    store: Arc<RedisStore>,
    _stays: Rc<()>,
}

impl RedisStore {
    /// A store; nothing is asked of it yet.
    pub fn new(settings: RedisSettings) -> Arc<Self> {
        Arc::new(Self { settings })
    }

    /// A hand on it for the thread that calls.
    pub fn counters(self: &Arc<Self>) -> RedisCounters {
        RedisCounters { store: self.clone(), _stays: Rc::default() }
    }

    /// Where it is, in words, without passwords.
    pub fn place(&self) -> String {
        format!("{:?}", self.settings.topology)
    }

    /// What happened so far.
    pub fn stats(&self) -> RedisStats {
        RedisStats::default()
    }
}

impl RedisCounters {
    /// The secret of the fleet: the one that is in the store, or, if there is none, the one that is offered, from now on.
    pub async fn agree_on_secret(&self, offered: Secret) -> Result<Secret, Unavailable> {
        let _ = offered;
        Err(self.store.nothing())
    }
}

impl RedisCounters {
    /// The same as [`Counters::rehearse`]. Tells besides what each take found and would leave, in the order of requests and takes.
    pub async fn rehearse_seen(
        &self,
        _batch: &mut Batch<'_>,
        _now: Micros,
    ) -> Result<Vec<Rehearsed>, Unavailable> {
        Err(self.store.nothing())
    }
}

impl RedisStore {
    fn nothing(&self) -> Unavailable {
        Unavailable { why: "no store is asked yet".into() }
    }
}

impl Counters for RedisCounters {
    async fn take(&self, batch: &mut Batch<'_>, _now: Micros) {
        for request in 0..batch.len() {
            batch.fail(request, self.store.nothing());
        }
    }

    async fn rehearse(&self, batch: &mut Batch<'_>, now: Micros) {
        if let Err(why) = self.rehearse_seen(batch, now).await {
            (0..batch.len()).for_each(|request| batch.fail(request, why.clone()));
        }
    }

    async fn inspect(
        &self,
        _key: Key,
        _tag: Tag,
        _limit: &Limit,
        _now: Micros,
    ) -> Result<Inspection, Unavailable> {
        Err(self.store.nothing())
    }

    async fn reset(&self, _key: Key, _tag: Tag) -> Result<bool, Unavailable> {
        Err(self.store.nothing())
    }
}
