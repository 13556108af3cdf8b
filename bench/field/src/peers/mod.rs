//! Who is measured: a file for each, and a row in [`ALL`].

mod cache; // where they are installed

mod bare; // tonic with a fixed answer
mod gubernator; // which cannot be had
mod limitador; // its library, in a server of ours
mod nginx; // its `limit_req`
pub(crate) mod ours; // the node
mod reference; // envoyproxy/ratelimit
mod throttlecrab; // throttlecrab-server

use std::path::PathBuf;

use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::process::Process;
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::speech::Speech;
use tidegate_bench_common::store::Store;

/// Everybody, in the order of the page. Each family begins with ours.
pub(crate) const ALL: &[&dyn Peer] = &[
    &ours::Memory,
    &bare::Bare,
    &throttlecrab::Grpc,
    &limitador::Memory,
    &gubernator::Gubernator,
    &ours::Redis,
    &ours::Leased,
    &reference::Reference,
    &limitador::Redis,
    &ours::Http,
    &throttlecrab::Http,
    &throttlecrab::Resp,
    &nginx::Nginx,
];

/// By its word.
pub(crate) fn named(word: &str) -> Option<&'static dyn Peer> {
    ALL.iter().copied().find(|peer| peer.word() == word)
}

/// Somebody who decides, or seems to.
pub(crate) trait Peer: Sync {
    /// What it is called in the raw numbers.
    fn word(&self) -> &'static str;

    /// What it is called on the page.
    fn title(&self) -> &'static str;

    /// What it counts by, in a few words.
    fn algorithm(&self) -> &'static str;

    /// Whom it is compared with.
    fn family(&self) -> Family;

    /// What is spoken with it.
    fn speech(&self) -> Speech {
        Speech::Rls
    }

    /// Finds its program, or installs it if it may; says why it is missing otherwise.
    fn find(&self, install: Install) -> Result<Found, String>;

    /// Starts it on the core of the servers, and waits until it listens.
    fn start(&self, site: &Site<'_>) -> Result<Process, String>;

    /// Adds the request of one caller for so many units, under one of the two limits that everybody has.
    fn push(&self, requests: &mut Requests, rule: Rule, caller: &str, cost: u32);

    /// How many units a caller takes by its request while it is timed.
    fn timed_cost(&self) -> u32 {
        1
    }

    /// May a request be for more than one unit?
    fn knows_cost(&self) -> bool {
        true
    }

    /// Does it ever refuse? Only those with a fixed answer do not.
    fn refuses(&self) -> bool {
        true
    }
}

/// Those who do the same work, and so are compared with the same one of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    /// gRPC, counters in memory.
    Memory,
    /// gRPC, counters in Redis.
    Redis,
    /// HTTP/1.1, or RESP with one call at a time too; counters in memory.
    Http,
}

impl Family {
    pub(crate) const ALL: [Self; 3] = [Self::Memory, Self::Redis, Self::Http];

    /// The word of ours in it.
    pub(crate) fn ours(self) -> &'static str {
        match self {
            Self::Memory => "tidegate",
            Self::Redis => "tidegate_redis",
            Self::Http => "tidegate_http",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Memory => "gRPC, counters in memory",
            Self::Redis => "gRPC, counters in Redis",
            Self::Http => "HTTP/1.1 and RESP, counters in memory",
        }
    }
}

/// May somebody who is missing be installed?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Install {
    Yes,
    /// Only what is there at once.
    No,
}

/// A program that is there.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Found {
    /// Where, if it is not ours.
    pub(crate) program: PathBuf,
    pub(crate) version: String,
}

/// What a peer is started with.
pub(crate) struct Site<'a> {
    pub(crate) program: &'a PathBuf,
    pub(crate) cores: Option<Cores>,
    /// The Redis of those who count in one.
    pub(crate) store: &'a Store,
    /// How many callers it will meet.
    pub(crate) keys: u32,
    pub(crate) room: Room,
}

/// What a node of ours is told of the memory of its counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// Nothing, unless more callers come than the default has room for.
    Usual,
    /// What so many keys need, and no more.
    For(u32),
}

/// The two limits that everybody has, as far as they can say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// A thousand in a second, for each caller.
    Tight,
    /// A million in an hour: nobody is refused while anything is timed but the one who has taken all of it before.
    Wide,
}

impl Rule {
    pub(crate) const ALL: [Self; 2] = [Self::Tight, Self::Wide];

    /// Units that a caller has,
    pub(crate) fn amount(self) -> u32 {
        match self {
            Self::Tight => 1_000,
            Self::Wide => 1_000_000,
        }
    }

    /// in so many seconds.
    pub(crate) fn seconds(self) -> u32 {
        match self {
            Self::Tight => 1,
            Self::Wide => 3_600,
        }
    }

    /// The domain of its rule, or what stands for it elsewhere.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tight => "tight",
            Self::Wide => "wide",
        }
    }
}

/// The request of those who speak Envoy's protocol: a domain for each limit, and who calls.
fn push_rls(requests: &mut Requests, rule: Rule, caller: &str, cost: u32) {
    let cost = if cost == 1 { 0 } else { cost }; // One is what it is if nothing is said, as proxies do.
    requests.push_all(rule.word(), &[&[("user", caller)]], cost);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_begins_with_ours_and_words_differ() {
        for family in Family::ALL {
            let first = ALL.iter().find(|peer| peer.family() == family).expect("a peer");
            assert_eq!(first.word(), family.ours());
        }
        let words: std::collections::BTreeSet<_> = ALL.iter().map(|peer| peer.word()).collect();
        assert_eq!(words.len(), ALL.len());
    }

    #[test]
    fn a_request_for_several_units_says_so() {
        for (word, said) in [
            ("tidegate_http", r#""descriptors":[{"entries":[{"key":"user","value":"a"}]}],"hitsAddend":7}"#),
            ("throttlecrab_http", r#""quantity":7}"#),
            (
                "throttlecrab_resp",
                "*6\r\n$8\r\nTHROTTLE\r\n$1\r\na\r\n$4\r\n1000\r\n$4\r\n1000\r\n$1\r\n1\r\n$1\r\n7\r\n",
            ),
            ("nginx", "GET /tight?user=a HTTP/1.1\r\n"),
        ] {
            let peer = named(word).expect("a peer");
            let mut requests = Requests::of(peer.speech());
            peer.push(&mut requests, Rule::Tight, "a", 7);
            let text = String::from_utf8_lossy(requests.get(0)).into_owned();
            assert!(text.contains(said), "{word}: {text}");
        }
        let of = |cost| {
            let mut requests = Requests::of(Speech::Rls);
            push_rls(&mut requests, Rule::Tight, "a", cost);
            requests.get(0).to_vec()
        };
        let (one, seven) = (of(1), of(7));
        assert_eq!(seven.len(), one.len() + 2, "the field and its number");
        assert!(seven.ends_with(&[0x18, 7]), "hits_addend");
    }
}
