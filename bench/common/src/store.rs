//! The store: a real Redis, what it has used of the processor, and what it says of itself.

use crate::pin::{Cores, Place};
use crate::process;
use tidegate_testbed::{Kind, Options, Server};

/// A Redis of our own, on the generator's core: at full load the node has the other one for itself.
pub struct Store {
    server: Server,
}

impl Store {
    /// Starts one.
    pub fn start(cores: Option<Cores>) -> Result<Self, String> {
        let start = || Server::start(Kind::Redis, &Options::new());
        Ok(Self { server: Cores::on(cores, Place::Generator, start)? })
    }

    /// The server itself.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Moves it to another core.
    pub fn bring(&self, cores: Option<Cores>, place: Place) {
        if let Some(pid) = self.server.pid() {
            Cores::bring(cores, place, pid);
        }
    }

    /// What it has used of its processor so far.
    pub fn cpu_ns(&self) -> Result<u64, String> {
        let pid = self.server.pid().ok_or("the store has ended")?;
        process::cpu_ns(&pid.to_string())
    }

    /// How many scripts it was asked to run so far.
    pub fn calls(&self) -> Result<u64, String> {
        Ok(calls(&self.info("commandstats")?))
    }

    /// What it has allocated.
    pub fn used_memory(&self) -> Result<u64, String> {
        number(&self.info("memory")?, "used_memory:").ok_or_else(|| "INFO memory without used_memory".into())
    }

    /// Its version.
    pub fn version(&self) -> Result<String, String> {
        let info = self.info("server")?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.unwrap_or("unknown").to_string())
    }

    /// Makes it forget everything.
    pub fn flush(&self) -> Result<(), String> {
        let reply = self.server.try_command(&["FLUSHALL", "SYNC"])?;
        reply.error().map_or(Ok(()), |error| Err(error.to_string()))
    }

    /// How many keys it has.
    pub fn keys(&self) -> Result<u64, String> {
        let reply = self.server.try_command(&["DBSIZE"])?;
        let keys = reply.integer().and_then(|keys| u64::try_from(keys).ok());
        keys.ok_or_else(|| format!("DBSIZE: {reply:?}"))
    }

    /// How long the value of some key is.
    pub fn some_length(&self) -> Result<u64, String> {
        let key = self.server.try_command(&["RANDOMKEY"])?;
        let key = key.text().ok_or_else(|| format!("RANDOMKEY: {key:?}"))?;
        let length = self.server.try_command(&["STRLEN", &key])?;
        length
            .integer()
            .and_then(|bytes| u64::try_from(bytes).ok())
            .ok_or_else(|| format!("STRLEN: {length:?}"))
    }

    fn info(&self, section: &str) -> Result<String, String> {
        let reply = self.server.try_command(&["INFO", section])?;
        reply.text().ok_or_else(|| format!("INFO {section}: {reply:?}"))
    }
}

/// Scripts are called by their hash, or with their text if that is not known.
fn calls(info: &str) -> u64 {
    let of = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        number(line.split(',').next()?, &format!("{name}calls="))
    };
    of("cmdstat_evalsha:").unwrap_or(0) + of("cmdstat_eval:").unwrap_or(0)
}

fn number(info: &str, name: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_says_of_itself_is_read() {
        let stats = "# Commandstats\r\ncmdstat_set:calls=9,usec=1\r\ncmdstat_eval:calls=1,usec=5\r\n\
                     cmdstat_evalsha:calls=41,usec=700,failed_calls=1\r\n";
        assert_eq!(calls(stats), 42);
        assert_eq!(calls(""), 0);
        assert_eq!(number("used_memory:1024\r\nused_memory_human:1K\r\n", "used_memory:"), Some(1_024));
    }
}
