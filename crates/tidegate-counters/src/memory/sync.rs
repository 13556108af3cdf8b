//! The atomics that the table is made of, or loom's, so that what is model-checked is what is shipped.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// So many words of zero. The pages of a large table cost nothing until they are touched.
#[cfg(not(loom))]
pub(crate) fn zeroed(words: usize) -> Option<Box<[AtomicU64]>> {
    bytemuck::allocation::try_zeroed_slice_box(words).ok()
}

#[cfg(loom)]
pub(crate) fn zeroed(words: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..words).map(|_| AtomicU64::new(0)).collect())
}

/// Bit 63 of a word as a lock. Held for some hundred nanoseconds, so whoever finds it taken spins a little; and then yields, since its
/// holder may have been put to sleep.
pub(crate) const LOCK: u64 = 1 << 63;

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
    while word.fetch_or(LOCK, Ordering::Acquire) & LOCK != 0 {
        while word.load(Ordering::Relaxed) & LOCK != 0 {
            wait(&mut spins);
        }
    }
    Locked(word)
}

pub(crate) fn try_lock(word: &AtomicU64) -> Option<Locked<'_>> {
    let is_free = word.load(Ordering::Relaxed) & LOCK == 0;
    (is_free && word.fetch_or(LOCK, Ordering::Acquire) & LOCK == 0).then(|| Locked(word))
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
