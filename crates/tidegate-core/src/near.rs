//! Memory that will be needed soon. A cache line from far away takes as long as a few hundred instructions; who asks for it early, and
//! does something else meanwhile, does not wait.

/// Asks for the cache line in which this begins.
#[inline(always)]
pub fn bring_near<T>(what: &T) {
    bring_near_address(std::ptr::from_ref(what).addr());
}

/// Asks for the cache line of an address, which may be anybody's, or nobody's: nothing is read.
#[inline(always)]
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[expect(unsafe_code, reason = "there is no safe call for it yet, and to read instead is to wait")]
pub(crate) fn bring_near_address(address: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: it is a hint. It neither reads nor writes what a program sees, and does not fault, whatever the address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address)) };
}

#[inline(always)]
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) fn bring_near_address(_: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_may_be_asked_for() {
        bring_near(&[1_u64; 8]);
        [0, 1, 4_095, usize::MAX / 2, usize::MAX].into_iter().for_each(bring_near_address);
    }
}
