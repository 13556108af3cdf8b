//! Somebody says that something has changed: it is looked whether that is so.
//!
//! What is said is not believed. Whoever can send a notification could tell any revision; it makes a node look once, and however many
//! come, it looks so often and no more.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Notify;

use super::Follower;
use crate::error::Result;
use crate::model::Revision;

/// Between two looks. Whoever is told of in this time is seen by the next.
const PAUSE: Duration = Duration::from_millis(50);

/// Where it is said. Nothing is kept of it but that it was.
#[derive(Default)]
pub(crate) struct Nudges(Notify);

impl Nudges {
    /// Something may have changed.
    pub(crate) fn nudge(&self) {
        self.0.notify_one();
    }
}

/// Looks whenever it is said, for as long as it is asked to. `read` tells the revision that there is.
pub(super) async fn heed<F: Future<Output = Result<Revision>>>(follower: &Follower, read: impl Fn() -> F) {
    loop {
        follower.nudges.0.notified().await;
        // What cannot be read now, the next look finds.
        if let Ok(revision) = read().await {
            follower.tell(revision);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
