//! Wildcards: `*` stands for any number of any characters, anywhere, several times.

use memchr::memmem::Finder;

/// A text with wildcards, cut at them.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// What stands before the first wildcard.
    head: Box<str>,
    /// What stands between two; prepared, because preparing a search takes longer than most searches.
    middle: Box<[Finder<'static>]>,
    /// What stands after the last.
    tail: Box<str>,
}

impl Pattern {
    /// The pattern that a text is, if there is a wildcard in it.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let (head, rest) = text.split_once('*')?;
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        let parts = middle.split('*').filter(|part| !part.is_empty());
        let middle = parts.map(|part| Finder::new(part).into_owned()).collect();
        Some(Self { head: head.into(), middle, tail: tail.into() })
    }

    /// Does it fit all of `text`? Each part is looked for once, from the left: linear, whatever a client sends.
    pub(crate) fn fits(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(&*self.head) else { return false };
        let Some(rest) = rest.strip_suffix(&*self.tail) else { return false };
        let mut rest = rest.as_bytes();
        for part in &self.middle {
            let Some(at) = part.find(rest) else { return false };
            rest = &rest[at + part.needle().len()..];
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fits(pattern: &str, text: &str) -> bool {
        Pattern::of(pattern).expect("a wildcard").fits(text)
    }

    #[test]
    fn a_text_without_a_wildcard_is_no_pattern() {
        assert!(Pattern::of("files").is_none());
    }

    #[test]
    fn what_is_before_and_after_may_not_overlap() {
        assert!(!fits("aba*ba", "aba"));
        assert!(fits("aba*ba", "ababa"));
    }

    /// The definition: a wildcard takes nothing, or one character and may take more.
    fn naive(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*', rest @ ..], _) => naive(rest, text) || (!text.is_empty() && naive(pattern, &text[1..])),
            ([one, pattern @ ..], [other, text @ ..]) => one == other && naive(pattern, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn it_fits_what_the_definition_says(pattern in "[abé]{0,3}\\*[abé*]{0,6}", text in "[abé]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(fits(&pattern, &text), naive(&chars(&pattern), &chars(&text)));
        }
    }
}
