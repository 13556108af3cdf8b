//! Whichever store a node counts in, and one thread's hand on it. Whoever decides does not know which it is.

use std::sync::Arc;

use tidegate_core::{Key, Limit, Micros, Tag};

use crate::{Asking, Batch, Counters, Inspection, Memory, RedisCounters, RedisStore, Rehearsed, Unavailable};

/// What a node counts in: shared by its threads.
#[derive(Clone)]
pub enum Store {
    /// Its own memory.
    Memory(Arc<Memory>),
    /// What the fleet shares.
    Redis(Arc<RedisStore>),
}

/// One thread's hand on a [`Store`]. It stays on its thread, which has to run a tokio runtime with a `LocalSet` where the store is Redis.
pub enum Hand {
    /// See [`Store::Memory`].
    Memory(Arc<Memory>),
    /// See [`Store::Redis`].
    Redis(RedisCounters),
}

impl Store {
    /// A hand on it for the thread that calls.
    pub fn hand(&self) -> Hand {
        match self {
            Self::Memory(memory) => Hand::Memory(memory.clone()),
            Self::Redis(store) => Hand::Redis(store.counters()),
        }
    }

    /// Are there counters in it under the names of the reference server ([`tidegate_core::Book::with_reference_names`])?
    pub fn wants_reference_names(&self) -> bool {
        matches!(self, Self::Redis(store) if store.has_reference_names())
    }

    /// Do its counters want to know what they are kept near to ([`tidegate_core::Book::with_tags`])?
    pub fn wants_tags(&self) -> bool {
        matches!(self, Self::Redis(_))
    }
}

impl Hand {
    /// Begins [`Counters::take`]: on counters in memory it is done then; elsewhere somebody is asked, whose answer has to be waited for
    /// ([`Asking::wait`]) and judged ([`Hand::judge`]).
    pub fn ask(&self, batch: &mut Batch<'_>, now: Micros) -> Option<Asking> {
        match self {
            Self::Memory(memory) => {
                memory.take_now(batch, now);
                None
            }
            Self::Redis(redis) => Some(redis.ask(batch, now)),
        }
    }

    /// Writes what was answered into the batch that was asked about.
    pub fn judge(&self, batch: &mut Batch<'_>, asking: Asking) {
        if let Self::Redis(redis) = self {
            redis.judge(batch, asking);
        }
    }

    /// The same as [`Counters::rehearse`]. Tells besides what each take found and would leave, in the order of requests and takes.
    pub async fn rehearse_seen(
        &self,
        batch: &mut Batch<'_>,
        now: Micros,
    ) -> Result<Vec<Rehearsed>, Unavailable> {
        match self {
            Self::Memory(memory) => Ok(memory.rehearse_now(batch, now)),
            Self::Redis(redis) => redis.rehearse_seen(batch, now).await,
        }
    }
}

impl Counters for Hand {
    async fn take(&self, batch: &mut Batch<'_>, now: Micros) {
        match self {
            Self::Memory(memory) => memory.take_now(batch, now),
            Self::Redis(redis) => redis.take(batch, now).await,
        }
    }

    async fn rehearse(&self, batch: &mut Batch<'_>, now: Micros) {
        match self {
            Self::Memory(memory) => memory.rehearse(batch, now).await,
            Self::Redis(redis) => redis.rehearse(batch, now).await,
        }
    }

    async fn inspect(
        &self,
        key: Key,
        tag: Tag,
        limit: &Limit,
        now: Micros,
    ) -> Result<Inspection, Unavailable> {
        match self {
            Self::Memory(memory) => memory.inspect(key, tag, limit, now).await,
            Self::Redis(redis) => redis.inspect(key, tag, limit, now).await,
        }
    }

    async fn reset(&self, key: Key, tag: Tag) -> Result<bool, Unavailable> {
        match self {
            Self::Memory(memory) => memory.reset(key, tag).await,
            Self::Redis(redis) => redis.reset(key, tag).await,
        }
    }
}
