//! The atomics that the table is made of, or loom's, so that what is model-checked is what is shipped.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

// The model checker's threads are one thread of the machine: each needs a desk of its own all the same.
#[cfg(loom)]
pub(crate) use loom::thread_local;
#[cfg(not(loom))]
pub(crate) use std::thread_local;

/// So many words or bytes of zero. The pages of a large table cost nothing until they are touched.
#[cfg(not(loom))]
pub(crate) fn zeroed<T: bytemuck::Zeroable>(len: usize) -> Option<Box<[T]>> {
    bytemuck::allocation::try_zeroed_slice_box(len).ok()
}

#[cfg(loom)]
pub(crate) fn zeroed<T: Default>(len: usize) -> Option<Box<[T]>> {
    Some((0..len).map(|_| T::default()).collect())
}

/// Bit 62 of a word as a lock. Held for some hundred nanoseconds, so whoever finds it taken spins a little; and then yields, since its
/// holder may have been put to sleep. (Not bit 63: the compiler takes that for a sign, and misses that one instruction sets and tests it.)
pub(crate) const LOCK: u64 = 1 << 62;

/// A lock that is held until this is dropped, by a panic too.
#[must_use]
pub(crate) struct Locked<'a>(&'a AtomicU64);

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        unlock(self.0);
    }
}

#[inline]
pub(crate) fn lock(word: &AtomicU64) -> Locked<'_> {
    let mut spins = 0u32;
    while !grab(word) {
        while word.load(Ordering::Relaxed) & LOCK != 0 {
            wait(&mut spins);
        }
    }
    Locked(word)
}

pub(crate) fn try_lock(word: &AtomicU64) -> Option<Locked<'_>> {
    let is_free = word.load(Ordering::Relaxed) & LOCK == 0;
    (is_free && grab(word)).then(|| Locked(word))
}

/// Whoever comes too late writes back what he read.
#[cfg(not(loom))]
fn grab(word: &AtomicU64) -> bool {
    word.fetch_or(LOCK, Ordering::Acquire) & LOCK == 0
}

/// The same for loom, which does not know that what was written back cannot come after what the holder writes later: so nothing is.
#[cfg(loom)]
fn grab(word: &AtomicU64) -> bool {
    let free = word.load(Ordering::Relaxed) & !LOCK;
    word.compare_exchange(free, free | LOCK, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// For the holder, who alone changes the other bits.
pub(crate) fn unlock(word: &AtomicU64) {
    word.store(word.load(Ordering::Relaxed) & !LOCK, Ordering::Release);
}

#[cfg(not(loom))]
fn wait(spins: &mut u32) {
    const SPINS_MAX: u32 = 64;
    *spins += 1;
    if *spins < SPINS_MAX {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

#[cfg(loom)]
fn wait(_spins: &mut u32) {
    loom::thread::yield_now();
}
