//! Who is asked, and for how many callers.

use std::time::Duration;

use crate::peers::{self, Family, Install, Peer, ours};
use crate::plan::Extent;

/// How long the callers of one size may take, of one server.
pub(crate) const ASKED_MAX: Duration = Duration::from_secs(10 * 60);

/// A run.
pub(crate) struct Plan {
    /// How many callers ask, fewest first.
    pub(crate) sizes: &'static [u32],
    pub(crate) install: Install,
}

impl Plan {
    pub(crate) fn of(extent: Extent) -> Self {
        let (sizes, install): (&[u32], _) = match extent {
            Extent::Smoke => (&[1_000], Install::No),
            Extent::Quick => (&[100_000, 1_000_000], Install::Yes),
            Extent::Usual | Extent::Full => (&[100_000, 1_000_000, 10_000_000], Install::Yes),
        };
        Self { sizes, install }
    }

    /// How many callers there are at most.
    pub(crate) fn callers(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }
}

/// Everybody of the comparison, and beside ours the same by another algorithm.
pub(crate) fn all() -> Vec<&'static dyn Peer> {
    let mut all = peers::ALL.to_vec();
    let after_ours = all.iter().position(|peer| peer.word() == Family::Memory.ours()).map_or(0, |at| at + 1);
    all.insert(after_ours, &ours::Buckets);
    all
}

/// Is it told at its start how many will come? Who counts in its own memory is, so it is started anew for each size: at a smaller one its
/// table would be another one's. Who counts in Redis is told nothing, and the same process goes on.
pub(crate) fn is_told_how_many(peer: &dyn Peer) -> bool {
    peer.family() != Family::Redis && peer.refuses()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow() {
        for extent in Extent::ALL {
            let plan = Plan::of(extent);
            assert!(plan.sizes.windows(2).all(|pair| pair[0] < pair[1]), "{extent:?}");
            assert_eq!(plan.sizes.last(), Some(&plan.callers()));
        }
    }

    #[test]
    fn everybody_is_there_once_and_ours_by_two_algorithms() {
        let words: Vec<&str> = all().iter().map(|peer| peer.word()).collect();
        assert_eq!(words[..2], ["tidegate", "tidegate_buckets"]);
        assert!(peers::ALL.iter().all(|peer| words.contains(&peer.word())));
        assert_eq!(words.len(), peers::ALL.len() + 1);
    }

    #[test]
    fn who_counts_in_its_own_memory_is_told_how_many_come() {
        for (word, is_told) in [
            ("tidegate", true),
            ("limitador", true),
            ("nginx", true),
            ("limitador_redis", false),
            ("bare", false),
        ] {
            let peer = peers::named(word).expect("a peer");
            assert_eq!(is_told_how_many(peer), is_told, "{word}");
        }
    }
}
