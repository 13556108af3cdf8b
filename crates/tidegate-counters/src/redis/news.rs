//! News for the nodes of a fleet, beside what they count: a channel of the store. It holds nothing up and promises nothing: whoever
//! listens is told that there is something new, perhaps, and looks where it is kept.

use redis::Value;
use tokio::time::{Instant, timeout_at};

use super::wires::Ears;
use super::{RedisCounters, SECRET_MAX, garbled};
use crate::Unavailable;

/// Hears what is told on a channel, on a connection of its own.
pub struct NewsEars(Ears);

impl RedisCounters {
    /// Tells all who listen now; gives how many of them the server knows.
    pub async fn tell_news(&self, about: &str, news: &str) -> Result<u64, Unavailable> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(self.channel(about)).arg(news);
        // A cluster passes it on to all its servers, whichever it is told to.
        match self.lane.wires.command(0, &publish, "news", Instant::now() + SECRET_MAX).await? {
            Value::Int(heard) => u64::try_from(heard).map_err(|_| garbled()),
            _ => Err(garbled()),
        }
    }

    /// Listens from now on.
    pub async fn hear_news(&self, about: &str) -> Result<NewsEars, Unavailable> {
        let (channel, until) = (self.channel(about), Instant::now() + SECRET_MAX);
        let listening = self.lane.wires.listen(0, &channel, until);
        let late = || Err("it did not answer in time".to_owned());
        let ears = timeout_at(until, listening).await.unwrap_or_else(|_| late());
        ears.map(NewsEars).map_err(|why| Unavailable { why })
    }

    fn channel(&self, about: &str) -> String {
        format!("{}:{about}", self.lane.store.servers.settings().prefix)
    }
}

impl NewsEars {
    /// Waits until something was told, once or often. An error ends it: what is told then is missed.
    pub async fn hear(&mut self) -> Result<(), Unavailable> {
        self.0.hear().await.map_err(|why| Unavailable { why })
    }
}
