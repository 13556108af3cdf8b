//! What holds for rule files whatever is in them. Read [`check`]; what it finds broken is a panic, which the fuzzer reports. And what
//! holds for a connection whatever is said on it: [`converse`].

mod asking; // requests to the rules that were loaded
mod telling; // what people and machines are told
mod writing; // rule files made from the tables
mod talking; // clients of HTTP/2

use tidegate_config::{Caps, Loaded, RuleFiles, load_texts};
use tidegate_core::{Book, DescriptorDraft, Secret};

pub use talking::converse;
pub use writing::Written;

/// Between the files of one input: U+001C, the separator of files in ASCII, which no rule file may hold.
pub(crate) const FILE_SEPARATOR: u8 = 0x1c;
const FILES_MAX: usize = 4;

/// Small enough for the fuzzer to reach every one of them.
const SMALL: Caps = Caps { bytes: 2_048, nodes: 150, depth: 8 };

/// How many descriptors are looked at more than once. Aliases can make a hundred thousand of one page, which is allowed, and slow.
const SIZE_MAX: usize = 5_000;

/// Set it to have each input shown before it is checked: those of `write_rules` cannot be read as they are.
const SHOW_VARIABLE: &str = "TIDEGATE_FUZZ_SHOW";

const SECRET: Secret = Secret::new(*b"of no importance");

/// Loads the bytes as rules, twice and by other bounds, and holds the results against each other.
pub fn check(bytes: &[u8]) {
    if std::env::var_os(SHOW_VARIABLE).is_some() {
        eprintln!("{}", String::from_utf8_lossy(bytes));
    }
    let first = load(bytes, Caps::default(), false);
    let told = telling::json(&first);
    telling::check(&first, &told);
    if first.domains.iter().map(|domain| size(&domain.descriptors)).sum::<usize>() > SIZE_MAX {
        return;
    }
    let again = load(bytes, Caps::default(), false);
    assert_eq!(told, telling::json(&again), "the same files are told about differently");

    let small = load(bytes, SMALL, false);
    let merged = load(bytes, Caps::default(), true);
    for other in [&small, &merged] {
        let other_told = telling::json(other);
        if other_told != told {
            telling::check(other, &other_told); // Rendering is most of the work, and the same has been rendered.
        }
    }
    assert!(first.is_valid() || !small.is_valid(), "valid by small bounds alone");
    assert!(merged.is_valid() || !first.is_valid(), "valid only if domains are not merged");

    let [first, again, small, merged] = [first, again, small, merged].map(book);
    let Some(merged) = merged else { return };
    asking::check(&merged, &merged, bytes);
    let (Some(first), Some(again)) = (first, again) else { return };
    for other in [Some(again), small].into_iter().flatten() {
        assert_eq!(ids(&first), ids(&other), "the same files have other rules");
        asking::check(&first, &other, bytes);
    }
}

fn size(descriptors: &[DescriptorDraft]) -> usize {
    descriptors.iter().map(|descriptor| 1 + size(&descriptor.descriptors)).sum()
}

fn load(bytes: &[u8], caps: Caps, merge_domains: bool) -> Loaded {
    let texts = bytes.splitn(FILES_MAX, |byte| *byte == FILE_SEPARATOR).enumerate();
    let named = texts.map(|(at, text)| (format!("{at}.yaml"), text.to_vec()));
    load_texts(named, &RuleFiles { caps, merge_domains, ..RuleFiles::default() })
}

/// The book, if the rules can be used. No two of its rules have the same id, but for those of tiers.
fn book(loaded: Loaded) -> Option<Book> {
    let book = loaded.is_valid().then(|| Book::new(loaded.domains, SECRET))?;
    let mut ids = ids(&book);
    ids.sort();
    assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "two rules with one id: {ids:?}");
    Some(book)
}

fn ids(book: &Book) -> Vec<(&str, Option<&str>)> {
    book.rules().iter().map(|rule| (&*rule.id, rule.tier.as_deref())).collect()
}
