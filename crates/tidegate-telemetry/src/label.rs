//! Rule ids as labels. They hold what people wrote in files: any text, of any length.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use tidegate_core::{Key, Rule, Secret};

/// The labels of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Labels {
    /// The domain; empty where there is none.
    pub domain: Arc<str>,
    /// The rule's id.
    pub rule: Arc<str>,
    /// The tier; empty for everybody else.
    pub tier: Arc<str>,
}

impl Labels {
    /// Those of a rule.
    pub(crate) fn of(rule: &Rule) -> Self {
        let tier = rule.tier.as_deref().unwrap_or_default();
        Self { domain: label(&rule.domain).into(), rule: label(&rule.id).into(), tier: label(tier).into() }
    }

    /// Those of something that is no rule. The id of a rule has a `#` in it, so none is mistaken for it.
    pub(crate) fn word(word: &'static str) -> Self {
        Self { domain: "".into(), rule: word.into(), tier: "".into() }
    }
}

/// How long a label may be.
const BYTES_MAX: usize = 200;
/// A `~` and a hash.
const MARK_BYTES: usize = 1 + 32;

/// A text as a label: itself where that is short and plain. Otherwise it is cut, control characters are written out (a zero byte would end
/// the page for Prometheus), and a hash of the whole text is put behind, so that different texts stay different.
pub(crate) fn label(text: &str) -> Cow<'_, str> {
    if text.len() <= BYTES_MAX && !text.contains(char::is_control) && !is_marked(text) {
        return Cow::Borrowed(text);
    }
    let mut label = String::new();
    for one in text.chars() {
        let before = label.len();
        match one.is_control() {
            true => label.extend(one.escape_default()),
            false => label.push(one),
        }
        if label.len() > BYTES_MAX - MARK_BYTES {
            label.truncate(before);
            break;
        }
    }
    let _ = write!(label, "~{}", hash(&[text])); // A string takes whatever is written.
    Cow::Owned(label)
}

/// Does it end as a text does that was cut?
fn is_marked(text: &str) -> bool {
    let end = text.len().checked_sub(MARK_BYTES).and_then(|at| text.as_bytes().get(at..));
    matches!(end, Some([b'~', hash @ ..]) if hash.iter().all(u8::is_ascii_hexdigit))
}

/// A hash that is the same on every node and in every release.
pub(crate) fn hash(parts: &[&str]) -> Key {
    let start = Secret::new(*b"tidegate metrics").start();
    parts.iter().fold(start, |start, part| start.part(part.as_bytes())).key()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_plain_texts_are_labels_as_they_are() {
        for text in ["", "api|key:\"quoted\\\"#100/1m", "日本語", &"x".repeat(BYTES_MAX)] {
            assert_eq!(label(text), text);
        }
    }

    #[test]
    fn long_and_strange_texts_are_cut_and_stay_different() {
        let long = "é".repeat(5_000);
        let cut = label("a\0").into_owned();
        let texts = ["x".repeat(201), "x".repeat(202), long.clone() + "1", long + "2"];
        let strange = ["a\0", "a\u{1}", "a\n", "a\r", "a\u{85}", "\\u{0}", cut.as_str()];
        let texts: Vec<&str> = texts.iter().map(String::as_str).chain(strange).collect();
        let labels: Vec<_> = texts.iter().map(|text| label(text)).collect();
        for (at, one) in labels.iter().enumerate() {
            assert!(one.len() <= BYTES_MAX && !one.contains(char::is_control), "{one:?}");
            assert!(!labels[at + 1..].contains(one), "{one}");
        }
        assert_eq!(label("a\0"), format!("a\\u{{0}}~{}", hash(&["a\0"])));
    }
}
