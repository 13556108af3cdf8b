//! What is wrong, where, and how to mend it.

use crate::codes::{Code, Severity};
use crate::source::Span;
use crate::theirs::TEXT_BYTES_MAX;

/// One thing that is wrong with a file, or worth a warning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Which kind of trouble; decides the severity.
    pub code: Code,
    /// What is wrong: lower case, no full stop, with the facts in it.
    pub message: String,
    /// Where, if it is about a place in a file.
    pub at: Option<Span>,
    /// A few words that stand beside the place.
    pub label: Box<str>,
    /// Other places that have to do with it, and what else is known.
    pub notes: Vec<(Option<Span>, String)>,
    /// How to mend it.
    pub help: Option<Box<str>>,
    /// What envoyproxy/ratelimit says of it, word for word, if it refuses it too. In a report of [`crate::Loaded`] the name that it gives
    /// the file stands before it.
    pub reference: Option<Box<str>>,
}

impl Diagnostic {
    /// About a place.
    pub fn new(code: Code, at: Span, message: impl Into<String>) -> Self {
        Self { at: Some(at), ..Self::nowhere(code, message) }
    }

    /// About no place in a file, such as a file that cannot be opened.
    pub fn nowhere(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            at: None,
            label: Box::default(),
            notes: Vec::new(),
            help: None,
            reference: None,
        }
    }

    /// With words beside the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into().into();
        self
    }

    /// With another place that has to do with it.
    #[must_use]
    pub fn note(mut self, at: Span, note: impl Into<String>) -> Self {
        self.notes.push((Some(at), note.into()));
        self
    }

    /// With something else that is known about it.
    #[must_use]
    pub fn fact(mut self, fact: impl Into<String>) -> Self {
        self.notes.push((None, fact.into()));
        self
    }

    /// With a way to mend it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into().into());
        self
    }

    /// With what envoyproxy/ratelimit says of it.
    #[must_use]
    pub(crate) fn theirs(self, text: impl Into<String>) -> Self {
        self.theirs_if(Some(text.into()))
    }

    /// With what envoyproxy/ratelimit says of it, if it says something.
    #[must_use]
    pub(crate) fn theirs_if(mut self, text: Option<String>) -> Self {
        self.reference = text.map(|text| {
            let mut text = tame(&text);
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            text.into()
        });
        self
    }

    /// What is known besides, without a place.
    pub fn facts(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().filter(|(at, _)| at.is_none()).map(|(_, fact)| fact.as_str())
    }

    /// Error or warning.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// How much of a value is quoted in a message.
const QUOTED_CHARS_MAX: usize = 60;

/// A value from a file, quoted for a message: in backticks, one line, cut when long, nothing in it that a terminal obeys.
pub fn quoted(text: &str) -> String {
    let mut shown = String::from("`");
    for (count, letter) in text.chars().enumerate() {
        if count == QUOTED_CHARS_MAX {
            shown.push('…');
            break;
        }
        push_escaped(&mut shown, letter);
    }
    shown.push('`');
    shown
}

/// A value from a file, all of it on one line, with nothing in it that a terminal obeys.
pub fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut shown, letter| {
        push_escaped(&mut shown, letter);
        shown
    })
}

/// A text of several lines, with nothing in it that a terminal obeys but their ends.
pub(crate) fn tame(text: &str) -> String {
    text.chars().fold(String::new(), |mut shown, letter| {
        if letter == '\n' {
            shown.push(letter)
        } else {
            push_escaped(&mut shown, letter)
        }
        shown
    })
}

/// One character, or its escape if a terminal would obey it or hide it.
pub(crate) fn push_escaped(out: &mut String, letter: char) {
    match letter {
        '\t' => out.push_str("\\t"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        letter if is_hostile(letter) => out.push_str(&format!("\\u{{{:x}}}", letter as u32)),
        letter => out.push(letter),
    }
}

/// Control characters, and those that change the direction or the look of what stands around them.
pub(crate) fn is_hostile(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(letter, '\u{61c}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_cannot_write_to_a_terminal() {
        assert_eq!(quoted("a\u{1b}[2J\u{202e}b\r\n"), "`a\\u{1b}[2J\\u{202e}b\\r\\n`");
        assert_eq!(escaped("a\u{1b}[2J\n"), "a\\u{1b}[2J\\n");
        assert_eq!(tame("a\u{1b}[2J\n\u{202e}b\t"), "a\\u{1b}[2J\n\\u{202e}b\\t");
        assert_eq!(quoted("größe"), "`größe`");
        assert_eq!(quoted(&"x".repeat(1_000)).chars().count(), QUOTED_CHARS_MAX + 3);
    }
}
