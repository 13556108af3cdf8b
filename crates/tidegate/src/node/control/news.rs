//! Edits, told over Redis as well where counters are there: a pooler in front of PostgreSQL may swallow its notifications.
//!
//! Two connections and no more: one tells, one listens. What is heard is not believed; it makes this node look once. Whatever goes wrong
//! here, edits are found by looking every two seconds.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tidegate_control::ControlStore;
use tidegate_counters::{RedisCounters, RedisStore, Unavailable};
use tokio::time::sleep;

/// What the channel is called, behind the store's prefix and a colon.
const CHANNEL: &str = "control";
/// How long to wait before it is tried again to listen: at first, and at most.
const BACKOFF: Duration = Duration::from_millis(250);
const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Between two that are told: what was written meanwhile is told at once.
const TELL_PAUSE: Duration = Duration::from_millis(20);

/// Tells and listens for as long as it is asked to. On the thread that calls, which has connections of its own.
pub(super) async fn run(redis: Arc<RedisStore>, store: ControlStore) {
    let hand = redis.counters();
    tokio::join!(tell(&hand, &store), listen(&hand, &store));
}

async fn tell(hand: &RedisCounters, store: &ControlStore) {
    let (mut writes, mut trouble) = (store.own_writes(), Trouble::default());
    while let Some(revision) = writes.changed().await {
        match hand.tell_news(CHANNEL, &revision.to_string()).await {
            Ok(_) => trouble.is_over(),
            Err(why) => {
                trouble.is_told("edits cannot be told over Redis; other nodes find them by looking", &why)
            }
        }
        sleep(TELL_PAUSE).await;
    }
}

async fn listen(hand: &RedisCounters, store: &ControlStore) {
    let (mut trouble, mut backoff) = (Trouble::default(), BACKOFF);
    loop {
        let why = match hand.hear_news(CHANNEL).await {
            Ok(mut ears) => {
                trouble.is_over();
                backoff = BACKOFF;
                loop {
                    store.nudge(); // At first too: of what was told before, nothing was heard.
                    if let Err(why) = ears.hear().await {
                        break why;
                    }
                }
            }
            Err(why) => {
                trouble.is_told("edits cannot be heard of over Redis; they are found by looking", &why);
                why
            }
        };
        tracing::debug!(%why, "not listening to edits over Redis");
        sleep(jittered(backoff)).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// Is told once, until it is over.
#[derive(Default)]
struct Trouble(bool);

impl Trouble {
    fn is_told(&mut self, what: &str, why: &Unavailable) {
        if !std::mem::replace(&mut self.0, true) {
            tracing::warn!(%why, "{what}");
        }
    }

    fn is_over(&mut self) {
        self.0 = false;
    }
}

/// Between half and all of it, so that a fleet does not come back at one instant.
fn jittered(time: Duration) -> Duration {
    let lot = RandomState::new().hash_one(0_u8) % 501; // Keyed anew each time.
    time.mul_f64(0.5 + lot as f64 / 1_000.0)
}
