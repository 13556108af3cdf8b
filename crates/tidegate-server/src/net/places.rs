//! How many connections there may be, in all and of one peer. Each holds a place until it ends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// How many connections are served at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaceLimits {
    /// In all.
    pub all: usize,
    /// Of one address.
    pub of_peer: usize,
}

/// The connections that are open.
#[derive(Debug)]
pub struct Places {
    limits: PlaceLimits,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    of_peer: HashMap<IpAddr, usize>,
}

/// Why a connection was not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Full {
    All,
    OfPeer,
}

impl Places {
    /// Places for so many.
    pub fn new(limits: PlaceLimits) -> Arc<Self> {
        Arc::new(Self { limits, taken: Mutex::default() })
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }

    /// A place for a peer; whoever has no address is bounded by the number of all alone.
    pub(super) fn take(self: &Arc<Self>, peer: Option<IpAddr>) -> Result<Place, Full> {
        let peer = peer.map(|peer| peer.to_canonical());
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.limits.all {
            return Err(Full::All);
        }
        if let Some(peer) = peer {
            // Not `entry`: a peer that is refused leaves nothing behind.
            let of_peer = taken.of_peer.get(&peer).copied().unwrap_or(0);
            if of_peer >= self.limits.of_peer {
                return Err(Full::OfPeer);
            }
            taken.of_peer.insert(peer, of_peer + 1);
        }
        taken.all += 1;
        Ok(Place { places: self.clone(), peer })
    }
}

/// A connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    peer: Option<IpAddr>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all = taken.all.saturating_sub(1);
        let Some(peer) = self.peer else { return };
        match taken.of_peer.get_mut(&peer) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.of_peer.remove(&peer)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_and_come_back() {
        let places = Places::new(PlaceLimits { all: 3, of_peer: 2 });
        let peer = |last| Some(IpAddr::from([10, 0, 0, last]));
        let one = places.take(peer(1)).expect("a place");
        let _two = places.take(peer(1)).expect("a place");
        assert_eq!(places.take(peer(1)).err(), Some(Full::OfPeer));
        let _three = places.take(peer(2)).expect("a place");
        assert_eq!(places.take(peer(3)).err(), Some(Full::All));
        drop(one);
        assert!(places.take(peer(1)).is_ok());
        assert_eq!(places.taken(), 2, "the last one was not kept");
        drop((_two, _three));
        assert_eq!((places.taken(), places.taken.lock().expect("lock").of_peer.len()), (0, 0));
    }

    #[test]
    fn an_address_is_one_peer_in_either_clothes() {
        let places = Places::new(PlaceLimits { all: 9, of_peer: 1 });
        let _one = places.take(Some(IpAddr::from([10, 0, 0, 1]))).expect("a place");
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().expect("an address");
        assert_eq!(places.take(Some(mapped)).err(), Some(Full::OfPeer));
    }
}
