//! What a core counts of its requests, whatever rules they meet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_core::OnStoreFailure;

use crate::count::{APART_BYTES, Count};
use crate::words::{ConnectionRefused, InternalCall, Place, Policy, RequestOutcome, Reservation, Server};

/// The upper bounds of how long a request takes, in µs. An answer is due after 15 ms, and Envoy gives up after 20.
pub(crate) const DURATION_BOUNDS_US: [u64; 17] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 15_000, 20_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000,
];

const SERVERS: usize = Server::ALL.len();

/// The numbers of a node.
#[derive(Debug)]
pub struct Metrics {
    cores: Box<[CoreMetrics]>,
    /// Connections are few beside requests, and who accepts them need be no core.
    connections_refused: [[AtomicU64; ConnectionRefused::ALL.len()]; SERVERS],
}

/// The numbers of one core. Only its thread may count here; anybody may read.
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct CoreMetrics {
    requests: [[Count; RequestOutcome::ALL.len()]; SERVERS],
    durations: [Durations; SERVERS],
    refunds_ignored: Count,
    places: [Count; Place::ALL.len()],
    reservations: [Count; Reservation::ALL.len()],
    internal_errors: [Count; Policy::ALL.len()],
    store_failures: [Count; Policy::ALL.len()],
    internal_calls: [Count; InternalCall::ALL.len()],
}

const _: () = assert!(align_of::<CoreMetrics>() == APART_BYTES);

/// How long requests took.
#[derive(Default, Debug)]
struct Durations {
    /// One for each bound, and one for what is longer.
    buckets: [Count; DURATION_BOUNDS_US.len() + 1],
    sum_us: Count,
}

impl Metrics {
    /// Numbers for so many cores, all zero.
    pub fn new(cores: usize) -> Arc<Self> {
        let cores = (0..cores).map(|_| CoreMetrics::default()).collect();
        Arc::new(Self { cores, connections_refused: Default::default() })
    }

    /// The numbers of a core, which are its thread's alone to write.
    ///
    /// # Panics
    /// If there are not so many cores.
    pub fn core(&self, core: usize) -> &CoreMetrics {
        &self.cores[core]
    }

    /// A connection was not served. Any thread may say so.
    pub fn connection_refused(&self, server: Server, reason: ConnectionRefused) {
        self.connections_refused[server as usize][reason as usize].fetch_add(1, Relaxed);
    }
}

impl CoreMetrics {
    /// A request was answered, after so many microseconds.
    #[inline]
    pub fn request(&self, server: Server, outcome: RequestOutcome, duration_us: u64) {
        self.requests[server as usize][outcome as usize].add(1);
        let durations = &self.durations[server as usize];
        // From the shortest: nearly all end in the first or second.
        let bucket = DURATION_BOUNDS_US.iter().position(|bound_us| duration_us <= *bound_us);
        durations.buckets[bucket.unwrap_or(DURATION_BOUNDS_US.len())].add(1);
        durations.sum_us.add(duration_us);
    }

    /// A refund came to a domain that applies none.
    #[inline]
    pub fn refund_ignored(&self) {
        self.refunds_ignored.add(1);
    }

    /// Something became of so many places.
    pub fn places(&self, event: Place, count: u64) {
        self.places[event as usize].add(count);
    }

    /// Something became of a reservation.
    pub fn reservation(&self, event: Reservation) {
        self.reservations[event as usize].add(1);
    }

    /// A decision went wrong here, and was answered by this policy.
    pub fn internal_error(&self, policy: OnStoreFailure) {
        self.internal_errors[Policy::from(policy) as usize].add(1);
    }

    /// The store did not answer a request, which was answered by this policy.
    pub fn store_failure(&self, policy: OnStoreFailure) {
        self.store_failures[Policy::from(policy) as usize].add(1);
    }

    /// A call said that it comes from inside.
    #[inline]
    pub fn internal_call(&self, result: InternalCall) {
        self.internal_calls[result as usize].add(1);
    }
}

/// What all cores have counted so far.
#[derive(Debug)]
pub(crate) struct CoreSums {
    pub(crate) requests: [[u64; RequestOutcome::ALL.len()]; SERVERS],
    pub(crate) durations: [DurationSums; SERVERS],
    pub(crate) refunds_ignored: u64,
    pub(crate) places: [u64; Place::ALL.len()],
    pub(crate) reservations: [u64; Reservation::ALL.len()],
    pub(crate) internal_errors: [u64; Policy::ALL.len()],
    pub(crate) store_failures: [u64; Policy::ALL.len()],
    pub(crate) internal_calls: [u64; InternalCall::ALL.len()],
    pub(crate) connections_refused: [[u64; ConnectionRefused::ALL.len()]; SERVERS],
}

/// How long all requests of a server took.
#[derive(Debug)]
pub(crate) struct DurationSums {
    pub(crate) buckets: [u64; DURATION_BOUNDS_US.len() + 1],
    pub(crate) sum_us: u64,
}

impl Metrics {
    /// Adds up what the cores have counted.
    pub(crate) fn sums(&self) -> CoreSums {
        let sum = |of: &dyn Fn(&CoreMetrics) -> &Count| {
            self.cores.iter().fold(0_u64, |sum, core| sum.wrapping_add(of(core).get()))
        };
        use std::array::from_fn;
        CoreSums {
            requests: from_fn(|server| from_fn(|outcome| sum(&|core| &core.requests[server][outcome]))),
            durations: from_fn(|server| DurationSums {
                buckets: from_fn(|bucket| sum(&|core| &core.durations[server].buckets[bucket])),
                sum_us: sum(&|core| &core.durations[server].sum_us),
            }),
            refunds_ignored: sum(&|core| &core.refunds_ignored),
            places: from_fn(|event| sum(&|core| &core.places[event])),
            reservations: from_fn(|event| sum(&|core| &core.reservations[event])),
            internal_errors: from_fn(|policy| sum(&|core| &core.internal_errors[policy])),
            store_failures: from_fn(|policy| sum(&|core| &core.store_failures[policy])),
            internal_calls: from_fn(|result| sum(&|core| &core.internal_calls[result])),
            connections_refused: from_fn(|server| {
                from_fn(|reason| self.connections_refused[server][reason].load(Relaxed))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_in_the_bucket_whose_bound_it_does_not_exceed() {
        for (duration_us, bucket) in [(0, 0), (10, 0), (11, 1), (15_000, 10), (15_001, 11), (1_000_000, 16)] {
            let metrics = Metrics::new(2);
            metrics.core(1).request(Server::Http, RequestOutcome::Refused, duration_us);
            let sums = metrics.sums();
            let counted = sums.durations[Server::Http as usize].buckets.iter().position(|count| *count == 1);
            assert_eq!(counted, Some(bucket), "{duration_us} µs");
        }
        let metrics = Metrics::new(1);
        metrics.core(0).request(Server::Rls, RequestOutcome::Failed, u64::MAX);
        assert_eq!(metrics.sums().durations[0].buckets.last(), Some(&1));
    }

    /// Which is why none waits for another, and none loses a count to another.
    #[test]
    fn each_core_writes_what_is_its_own() {
        let metrics = Metrics::new(3);
        for core in [0, 1, 1, 2, 2, 2] {
            metrics.core(core).request(Server::Rls, RequestOutcome::Admitted, 3);
        }
        let admitted = |core: &CoreMetrics| core.requests[0][0].get();
        assert_eq!(metrics.cores.iter().map(admitted).collect::<Vec<u64>>(), [1, 2, 3]);
        let sums = metrics.sums();
        assert_eq!((sums.requests[0][0], sums.durations[0].buckets[0], sums.durations[0].sum_us), (6, 6, 18));
    }
}
