//! How the servers of a store are set up, as far as it matters to counters: one that evicts forgets limits, one that keeps nothing forgets
//! all of them when it is restarted.

use redis::Value;

/// What a server says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Survey {
    /// Keys that it evicted since it started.
    pub(super) evicted_keys: Option<u64>,
    /// What is wrong, in words.
    pub(super) warnings: Vec<String>,
}

impl Survey {
    /// Of what INFO and CONFIG GET save say; the latter is forbidden on some.
    pub(super) fn of(address: &str, info: &str, save: Option<&str>) -> Self {
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim)
        };
        let evicted_keys = field("evicted_keys").and_then(|keys| keys.parse().ok());
        let mut warnings = Vec::new();
        let is_capped = field("maxmemory").is_some_and(|bytes| bytes != "0");
        if let Some(policy) = field("maxmemory_policy").filter(|policy| is_capped && *policy != "noeviction")
        {
            warnings.push(format!(
                "{address} evicts keys when it is full ({policy}), and with them limits: set maxmemory-policy noeviction"
            ));
        }
        if field("aof_enabled") == Some("0") && save == Some("") {
            warnings.push(format!(
                "{address} keeps nothing on disk: a restart forgets all counters; set appendonly yes, or save"
            ));
        }
        Self { evicted_keys, warnings }
    }
}

/// A text that a server sent.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

/// The second of the pair that CONFIG GET answers with.
pub(super) fn setting(value: &Value) -> Option<String> {
    match value {
        Value::Array(pair) => text(pair.get(1)?),
        Value::Map(pairs) => text(&pairs.first()?.1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forgets_limits_is_told() {
        let info = |maxmemory: &str, policy: &str, aof: &str| {
            format!(
                "# Memory\r\nmaxmemory:{maxmemory}\r\nmaxmemory_policy:{policy}\r\naof_enabled:{aof}\r\nevicted_keys:7\r\n"
            )
        };
        let told = |info: &str, save| Survey::of("a:1", info, save).warnings.len();
        assert_eq!(told(&info("100", "noeviction", "1"), Some("")), 0);
        assert_eq!(told(&info("0", "allkeys-lru", "0"), Some("3600 1")), 0, "it is never full");
        assert_eq!(told(&info("100", "volatile-ttl", "0"), None), 1, "every counter has a time to live");
        assert_eq!(told(&info("100", "allkeys-lru", "0"), Some("")), 2);
        assert_eq!(told("nothing that is known", None), 0);
        assert_eq!(Survey::of("a:1", &info("0", "x", "0"), None).evicted_keys, Some(7));
    }
}
