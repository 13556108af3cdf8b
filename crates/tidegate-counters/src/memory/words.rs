//! Memory as words that begin at a cache line.

use super::pages::ask_for_large_pages;
use super::sync::{AtomicU64, Ordering, zeroed};

/// Words in a cache line.
pub(crate) const LINE_WORDS: usize = 8;
/// Words in the smallest page that there is.
const PAGE_WORDS: usize = 512;

pub(crate) struct Words {
    words: Box<[AtomicU64]>,
    /// Where the first whole cache line is.
    start: usize,
}

impl Words {
    /// So many words of zero, or nothing if there is not as much memory.
    pub(crate) fn new(len: usize) -> Option<Self> {
        let words = zeroed(len.checked_add(LINE_WORDS)?)?;
        ask_for_large_pages(&words);
        let into_line = words.as_ptr() as usize / size_of::<u64>() % LINE_WORDS;
        Some(Self { words, start: (LINE_WORDS - into_line) % LINE_WORDS })
    }

    /// Writes to every page, and changes nothing. (An addition of nothing would be taken for a look by the compiler.)
    pub(crate) fn touch_pages(&self) {
        for word in self.words.iter().step_by(PAGE_WORDS) {
            let _ = word.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// A cache line.
    #[inline]
    pub(crate) fn line(&self, line: usize) -> &[AtomicU64; LINE_WORDS] {
        let start = self.start + line * LINE_WORDS;
        match self.words[start..start + LINE_WORDS].as_array() {
            Some(line) => line,
            None => unreachable!("it is as long as it was cut"),
        }
    }

    /// `len` words from `at`.
    #[inline]
    pub(crate) fn get(&self, at: usize, len: usize) -> &[AtomicU64] {
        &self.words[self.start + at..self.start + at + len]
    }
}

#[cfg(all(test, target_os = "linux", not(loom), not(miri)))]
mod tests {
    use super::*;

    /// Bytes of memory that this process has in use.
    fn rss_bytes() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("what Linux tells");
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        pages.expect("a number of pages") * 4_096
    }

    #[test]
    fn touched_pages_are_there_and_what_is_written_stays() {
        const BYTES: usize = 256 << 20; // More than other tests take or give back meanwhile.
        let words = Words::new(BYTES / size_of::<u64>()).expect("memory");
        words.line(3)[0].store(7, Ordering::Relaxed);
        let before = rss_bytes();
        words.touch_pages();
        let grown = rss_bytes().saturating_sub(before);
        assert!(grown > BYTES / 2, "{grown} of {BYTES}");
        assert_eq!(words.line(3)[0].load(Ordering::Relaxed), 7);
    }
}
