//! What an error that a server replies means: was anything done, and where to go next.

use redis::ServerError;

use crate::redis::settings::Address;
use crate::redis::stats::Trouble;

/// What an error that a server replies means.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// Nothing was done: the server does not know the script.
    NoScript,
    /// Nothing was done: from now on another server answers for the slot.
    Moved(Address),
    /// Nothing was done: for this once another server answers.
    Ask(Address),
    /// Nothing was done, and soon it may be.
    TryAgain,
    /// Nothing was done, and this server will not do it; another one may.
    Elsewhere(Trouble),
    /// Nothing was done.
    NotDone(Trouble),
    /// A script broke off: what it did before that stays.
    Unknown,
}

/// The words of an error, as the server sent them.
pub(super) fn words(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

/// What an error of the server at `asked` means.
pub(super) fn meaning(error: &ServerError, asked: &Address) -> Meaning {
    let details = error.details().unwrap_or_default();
    match error.code() {
        "NOSCRIPT" => Meaning::NoScript,
        "MOVED" => redirected(details, asked).map_or(Meaning::NotDone(Trouble::Moved), Meaning::Moved),
        "ASK" => redirected(details, asked).map_or(Meaning::NotDone(Trouble::Ask), Meaning::Ask),
        "TRYAGAIN" => Meaning::TryAgain,
        // Servers check these before the first write of a script and never after it, so even from inside of one nothing was done.
        "READONLY" => Meaning::Elsewhere(Trouble::ReadOnly),
        "OOM" => Meaning::NotDone(Trouble::Oom),
        "LOADING" => Meaning::Elsewhere(Trouble::Loading),
        "CLUSTERDOWN" | "MASTERDOWN" => Meaning::Elsewhere(Trouble::ClusterDown),
        // Speaks of a script, but of another one.
        "BUSY" => Meaning::NotDone(Trouble::Busy),
        _ if is_from_script(details) => Meaning::Unknown,
        "NOPERM" | "NOAUTH" | "WRONGPASS" => Meaning::NotDone(Trouble::Auth),
        _ => Meaning::NotDone(Trouble::Other),
    }
}

fn is_from_script(details: &str) -> bool {
    let words = details.to_ascii_lowercase();
    words.contains("script") && !words.starts_with("error compiling script")
}

/// The address in `1234 host:port`.
fn redirected(details: &str, asked: &Address) -> Option<Address> {
    let (host, port) = details.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
    Some(address(host, port.parse().ok().filter(|port| *port != 0)?, asked))
}

/// An address as servers tell it: without a host it is the one that was asked.
pub(super) fn address(host: &str, port: u16, asked: &Address) -> Address {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match (host, asked) {
        ("" | "?", Address::Tcp(asked, _)) => Address::Tcp(asked.clone(), port),
        // Somebody asked through a socket of this machine, so that is where the others are.
        ("" | "?", Address::Unix(_)) => Address::Tcp("localhost".into(), port),
        (host, _) => Address::Tcp(host.to_owned(), port),
    }
}

/// What to do about it.
pub(super) fn advice(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::Auth => "; allow it by ACL SETUSER, or give the store's settings another user",
        Trouble::ReadOnly => "; it is a replica: name the primary, or its sentinels",
        Trouble::Loading => "; it will answer once it has read its data",
        Trouble::Busy => "; somebody's script does not end, SCRIPT KILL ends it",
        Trouble::ClusterDown => "; see CLUSTER INFO for what it has lost",
        Trouble::Oom => "; raise its maxmemory",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    fn error(text: &str) -> ServerError {
        match redis::parse_redis_value(format!("-{text}\r\n").as_bytes()) {
            Ok(Value::ServerError(error)) => error,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn errors_say_whether_anything_was_done() {
        let asked = Address::Tcp("h".into(), 1);
        let at = |host: &str, port| Address::Tcp(host.into(), port);
        let cases = [
            ("NOSCRIPT No matching script. Please use EVAL.", Meaning::NoScript),
            ("MOVED 3999 127.0.0.1:6381", Meaning::Moved(at("127.0.0.1", 6381))),
            ("MOVED 3999 2001:db8::1:6381", Meaning::Moved(at("2001:db8::1", 6381))),
            ("MOVED 3999 :6381", Meaning::Moved(at("h", 6381))),
            ("MOVED 3999 ?:6381", Meaning::Moved(at("h", 6381))),
            ("MOVED 3999 h:0", Meaning::NotDone(Trouble::Moved)),
            ("MOVED", Meaning::NotDone(Trouble::Moved)),
            ("ASK 3999 store:6381", Meaning::Ask(at("store", 6381))),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Meaning::TryAgain),
            (
                "READONLY You can't write. script: 3a, on @user_script:1.",
                Meaning::Elsewhere(Trouble::ReadOnly),
            ),
            ("LOADING Redis is loading the dataset in memory", Meaning::Elsewhere(Trouble::Loading)),
            ("CLUSTERDOWN Hash slot not served", Meaning::Elsewhere(Trouble::ClusterDown)),
            ("MASTERDOWN Link with MASTER is down", Meaning::Elsewhere(Trouble::ClusterDown)),
            ("OOM command not allowed. script: 3a, on @user_script:1.", Meaning::NotDone(Trouble::Oom)),
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL.",
                Meaning::NotDone(Trouble::Busy),
            ),
            (
                "NOPERM this user has no permissions to run the 'evalsha' command",
                Meaning::NotDone(Trouble::Auth),
            ),
            ("NOPERM no permissions to access a key. script: 3a, on @user_script:1.", Meaning::Unknown),
            ("WRONGTYPE Operation against a key", Meaning::NotDone(Trouble::Other)),
            ("WRONGTYPE Operation against a key. script: 3a, on @user_script:1.", Meaning::Unknown),
            (
                "ERR user_script:2: attempt to index a nil value script: 3a, on @user_script:2.",
                Meaning::Unknown,
            ),
            ("ERR Error running script (call to f_3a): @user_script:1: x", Meaning::Unknown),
            ("ERR Error compiling script (new function): user_script:1: x", Meaning::NotDone(Trouble::Other)),
            ("ERR unknown command", Meaning::NotDone(Trouble::Other)),
        ];
        for (text, expected) in cases {
            assert_eq!(meaning(&error(text), &asked), expected, "{text}");
            assert_eq!(words(&error(text)), text);
        }
    }
}
