//! One stream after the other, for as long as somebody wants rules. What was learned on one is kept for the next.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::connect::Connection;
use crate::resources::RuleText;
use crate::settings::ClientSettings;
use crate::stream::{Judged, Stream};

/// All rules that there are, as a server has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// What the server calls this state.
    pub version: String,
    /// The texts, in the order of their names. None is no rules, and means it.
    pub rules: Vec<RuleText>,
}

/// Who wants the rules.
pub trait Subscriber: Send + Sync + 'static {
    /// Puts rules in force that replace all before, or says what is wrong with them, and then nothing may have changed. It is called on a
    /// thread that may block, one call at a time, and not for rules that were judged last.
    fn apply(&self, update: &Update) -> Result<(), String>;

    /// Is told what happens. It must not block.
    fn tell(&self, event: Event<'_>);
}

/// What happens to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'e> {
    /// There is a connection, rules were asked for, and the server has not ended it at once.
    Connected,
    /// There is none any more, or none could be had; the next attempt is after the wait.
    Disconnected {
        /// Why.
        why: &'e str,
        /// Until when.
        wait: Duration,
    },
    /// Rules are in force.
    Accepted {
        /// Which.
        version: &'e str,
    },
    /// Rules were not taken; those before stay.
    Rejected {
        /// Which.
        version: &'e str,
        /// What is wrong with them.
        why: &'e str,
    },
}

/// Follows the rules of a server until it is dropped. Whatever that server does, it goes on asking.
pub async fn follow(settings: ClientSettings, subscriber: Arc<dyn Subscriber>) {
    let mut backoff = Backoff::new(settings.backoff);
    let mut judged = Judged::default();
    loop {
        let why = match Connection::open(&settings).await {
            Ok(connection) => {
                let mut stream = Stream::new(&settings, &subscriber, &mut judged);
                let why = stream.run(connection).await;
                if stream.was_healthy() {
                    backoff.reset();
                }
                why
            }
            Err(why) => why,
        };
        let wait = backoff.wait();
        subscriber.tell(Event::Disconnected { why: &why, wait });
        sleep(wait).await;
    }
}
