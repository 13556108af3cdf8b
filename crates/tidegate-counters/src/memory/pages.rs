//! Large pages for large tables: every lookup goes to another page, and finding it in the page tables costs as much as the lookup.
//! One of the two `unsafe` blocks of the project.

use super::sync::AtomicU64;

/// Asks the system to use large pages for these words, where it can. That it may refuse does not matter.
#[cfg(all(target_os = "linux", not(loom), not(miri)))]
#[expect(
    unsafe_code,
    reason = "there is no safe call for it, and it makes lookups in large tables a third faster"
)]
pub fn ask_for_large_pages(words: &[AtomicU64]) {
    const PAGE_BYTES: usize = 4_096;
    let start = (words.as_ptr() as usize).next_multiple_of(PAGE_BYTES);
    let end = (words.as_ptr_range().end as usize) / PAGE_BYTES * PAGE_BYTES;
    if end > start {
        // SAFETY: the pages lie wholly within memory that `words` borrows, and MADV_HUGEPAGE changes neither what is in it nor where it
        // is.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

/// Elsewhere there are none to ask for.
#[cfg(not(all(target_os = "linux", not(loom), not(miri))))]
pub fn ask_for_large_pages(_words: &[AtomicU64]) {}
