//! What the library says, in words for people: what, and how to mend it.

use granit_parser::{ErrorKind, ScanError};

use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::source::{Span, line_start};
use crate::theirs;

/// An error of the library, at the place that it names.
pub(super) fn explain(error: &ScanError, at: Span, text: &str, depth: usize) -> Diagnostic {
    let kind = error.kind();
    let trouble = explain_kind(kind, at, text, depth);
    match trouble.reference {
        Some(_) => trouble,
        None => {
            let theirs = theirs::loading(&in_go(kind, trouble.at.unwrap_or(at), text, &trouble.message));
            trouble.theirs(theirs)
        }
    }
}

fn explain_kind(kind: &ErrorKind, at: Span, text: &str, depth: usize) -> Diagnostic {
    match kind {
        ErrorKind::UnknownAnchor => return unknown_anchor(alias_at(at, text), text),
        ErrorKind::MissingAnchorOrAliasName => {
            return Diagnostic::new(
                Code::UnknownAnchor,
                one_letter(at, text),
                "a name is missing behind `*` or `&`",
            )
            .label("begins an alias or an anchor")
            .help("put the text in quotes, e.g. `\"*\"`");
        }
        ErrorKind::RecursionLimitExceeded => {
            let message = format!("more than {depth} lists and maps in each other");
            return Diagnostic::new(Code::TooDeep, at, message).label("the bound is reached here");
        }
        _ => {}
    }
    if let Some(at) = tab(kind, at, text) {
        return Diagnostic::new(Code::Syntax, at, "a tab is used for indentation")
            .label("a tab")
            .help("YAML is indented with spaces: replace the tab by spaces");
    }
    let at = one_letter(at, text);
    let (message, help) = words(kind, at, text);
    let trouble = Diagnostic::new(Code::Syntax, at, message).label("the reader stopped here");
    match help {
        "" => trouble,
        help => trouble.help(help),
    }
}

pub(super) fn unknown_anchor(at: Span, text: &str) -> Diagnostic {
    let name = text.get(at.start as usize..at.end as usize).unwrap_or_default().trim_start_matches('*');
    Diagnostic::new(Code::UnknownAnchor, at, "no anchor of this name was set before")
        .label("stands for nothing")
        .help("mark the value with `&name` earlier in the document, or put the text in quotes if a star is meant")
        .theirs(theirs::loading(&format!("unknown anchor '{name}' referenced")))
}

/// What Go's YAML says. Its scanner counts lines from one and its parser from zero, and neither names the first. What people hardly run
/// into is told in our words.
fn in_go(kind: &ErrorKind, at: Span, text: &str, ours: &str) -> String {
    use ErrorKind as E;
    let (before, behind) = text.split_at(crate::source::floor(text, at.start as usize));
    let newlines = |text: &str| text.bytes().filter(|byte| *byte == b'\n').count();
    let parser = |line: usize, what: &str| match line {
        0 => what.to_string(),
        line => format!("line {line}: {what}"),
    };
    let scanner = |line: usize, what: &str| parser(if line == 0 { 0 } else { line + 1 }, what);
    let here = newlines(before);
    let separator =
        |open: char| format!("did not find expected ',' or '{}'", if open == '{' { '}' } else { ']' });
    match kind {
        // There, quoted text may be indented as it likes, so that the same mistake is found at the end.
        E::UnclosedQuotedScalar | E::InvalidQuotedScalarIndent => {
            scanner(newlines(text), "found unexpected end of stream")
        }
        E::DocumentIndicatorInQuotedScalar => scanner(here, "found unexpected document indicator"),
        E::MissingAnchorOrAliasName => scanner(here, "did not find expected alphabetic or numeric character"),
        E::UnknownQuotedScalarEscape => scanner(here, "found unknown escape character"),
        E::MappingValueNotAllowed => scanner(here, "mapping values are not allowed in this context"),
        E::BlockSequenceEntryNotAllowed => {
            scanner(here, "block sequence entries are not allowed in this context")
        }
        E::TabInPlainScalar => scanner(here, "found a tab character that violates indentation"),
        E::UnexpectedCharacter { .. } | E::TabInBlockIndentation | E::TabInIndentation | E::TabNotAllowed => {
            scanner(here, "found character that cannot start any token")
        }
        E::SimpleKeyExpected | E::InvalidSimpleKey => {
            // It is missed where the next line has something on it.
            let next = behind.find('\n').map_or("", |end| &behind[end..]);
            let blank = next.len() - next.trim_start().len();
            scanner(here + newlines(&next[..blank]), "could not find expected ':'")
        }
        E::ExpectedBlockMappingKey
        | E::InvalidTrailingSingleQuotedScalar
        | E::InvalidTrailingDoubleQuotedScalar => parser(here, "did not find expected key"),
        E::ExpectedBlockSequenceEntry => parser(here, "did not find expected '-' indicator"),
        E::MismatchedFlowCollectionEnd { open, .. } => parser(here, &separator(*open)),
        E::ExpectedFlowMappingSeparator => parser(here, &separator('{')),
        E::ExpectedFlowSequenceSeparator => parser(here, &separator('[')),
        E::InvalidColonPlacement => parser(
            here,
            &separator(before.chars().rev().find(|letter| "[{".contains(*letter)).unwrap_or('[')),
        ),
        // The place is where it was opened; it is missed in the next line.
        E::UnclosedFlowCollection { open } => parser(here + 1, &separator(*open)),
        _ => parser(here + 1, ours),
    }
}

/// Message and help for what people run into; for the rest, the library's own words.
fn words(kind: &ErrorKind, at: Span, text: &str) -> (String, &'static str) {
    use ErrorKind as E;
    let before = &text[line_start(text, at.start as usize)..at.start as usize];
    let (message, help) = match kind {
        E::UnclosedQuotedScalar => (
            "a quote is not closed",
            "add the closing quote; in single quotes a quote is written twice: `'it''s'`",
        ),
        E::UnclosedFlowCollection { open: '[' } | E::UnexpectedEofFlowSequence => {
            ("`[` is not closed", "add the missing `]`")
        }
        E::UnclosedFlowCollection { .. } | E::UnexpectedEofFlowMapping => {
            ("`{` is not closed", "add the missing `}`")
        }
        E::MismatchedFlowCollectionEnd { open, close } => {
            return (
                format!("`{open}` is closed by `{close}`"),
                "close brackets in the order they were opened",
            );
        }
        E::MisplacedFlowCollectionEnd => {
            ("a bracket is closed that was not opened", "remove it, or put the text in quotes")
        }
        E::ExpectedFlowMappingSeparator => (
            "`,` or `}` is missing",
            "separate the entries of `{…}` by commas, and close it; put text with commas or brackets in quotes",
        ),
        E::ExpectedFlowSequenceSeparator => (
            "`,` or `]` is missing",
            "separate the items of `[…]` by commas, and close it; put text with commas or brackets in quotes",
        ),
        E::MappingValueNotAllowed if !before.contains(": ") => {
            ("the line is indented deeper than what it belongs to", "indent it exactly like its neighbours")
        }
        E::InvalidColonPlacement => ("`:` cannot stand here", "look above for `[` or `{` that is not closed"),
        E::MappingValueNotAllowed => (
            "a second `: ` on one line",
            "put the value in quotes if it contains `: `; otherwise begin a new line, and check the indentation of the line before",
        ),
        E::SimpleKeyExpected | E::InvalidSimpleKey | E::ExpectedBlockMappingKey => (
            "a line without `key: value`",
            "add a colon and a space behind the key, and indent the line like its neighbours",
        ),
        E::BlockSequenceEntryNotAllowed | E::BlockEntryInFlowCollection => {
            ("a list item (`- `) cannot begin here", "begin a new line for it, indented like the other items")
        }
        E::ExpectedBlockSequenceEntry => {
            ("expected another list item (`- `)", "indent the line like what it belongs to")
        }
        E::InvalidIndentation
        | E::InvalidFlowScalarIndent
        | E::InvalidQuotedScalarIndent
        | E::InvalidBlockScalarIndent => {
            ("the indentation fits nothing above", "indent the line exactly like its neighbours")
        }
        E::MappingKeyNotAllowed => {
            ("a key cannot begin here", "begin a new line for it, indented like the other keys")
        }
        E::UnexpectedCharacter { character } => {
            return (
                format!("a value cannot begin with {}", quoted(&character.to_string())),
                "put the value in quotes",
            );
        }
        E::InvalidGlobalTagCharacter
        | E::MissingTagUri
        | E::InvalidTagTerminator
        | E::ExpectedTagBang
        | E::UndeclaredTagHandle => ("`!` begins a tag, and this is none", "put the value in quotes"),
        E::UnknownQuotedScalarEscape => (
            "unknown escape in double quotes",
            "write a backslash twice (`\\\\`), or use single quotes, where it means itself",
        ),
        E::InvalidQuotedScalarHexEscape
        | E::InvalidUnicodeEscape
        | E::UnpairedLowSurrogate
        | E::MissingLowSurrogate => (
            "a broken escape in double quotes",
            "write `\\xNN` or `\\uNNNN` with hexadecimal digits, or use single quotes",
        ),
        E::InvalidTrailingSingleQuotedScalar | E::InvalidTrailingDoubleQuotedScalar => {
            ("something follows a closing quote", "put all of the value into the quotes, or none")
        }
        E::DirectiveDisallowed | E::MissingDocumentEndBeforeDirective => (
            "directives (`%…`) are not used here",
            "remove the line; if the value begins with `%`, put it in quotes",
        ),
        E::BomInsideDocument => {
            ("a byte order mark in the middle of the file", "remove it; two files were probably joined")
        }
        E::DocumentIndicatorInQuotedScalar => {
            ("a quote is not closed before `---` or `...`", "add the closing quote")
        }
        E::InvalidBlockScalarHeader => {
            ("something follows `|` or `>`", "begin the text on the next line, or put it in quotes")
        }
        E::ExpectedNodeContent => {
            ("a value is missing here", "add it, or remove the comma or bracket too many")
        }
        E::CommentNotSeparated => {
            ("a comment needs a space before `#`", "add a space, or put the text in quotes")
        }
        E::UnexpectedEof
        | E::UnexpectedEofBlockMapping
        | E::UnexpectedEofBlockSequence
        | E::UnexpectedEofImplicitFlowMapping => {
            ("the file ends in the middle of something", "close what is open")
        }
        other => return (other.to_string(), ""),
    };
    (message.into(), help)
}

/// The tab in the indentation of the line, if that is the trouble. The library names the start of what it was reading, so a
/// few more lines are looked at if it says that it met a tab.
fn tab(kind: &ErrorKind, at: Span, text: &str) -> Option<Span> {
    use ErrorKind as E;
    let told = matches!(
        kind,
        E::TabNotAllowed
            | E::TabInBlockIndentation
            | E::TabInIndentation
            | E::TabAtBlockScalarStart
            | E::TabInPlainScalar
    );
    let lines_max = if told { LINES_LOOKED_AT } else { 1 };
    let mut start = line_start(text, crate::source::floor(text, at.start as usize));
    for line in text[start..].split_inclusive('\n').take(lines_max) {
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(tab) = line[..indentation].find('\t') {
            let tab = (start + tab) as u32;
            return Some(Span { start: tab, end: tab + 1, ..at });
        }
        start += line.len();
    }
    told.then(|| one_letter(at, text))
}

const LINES_LOOKED_AT: usize = 20;

/// The place, with the letter that stands there.
fn one_letter(at: Span, text: &str) -> Span {
    let start = crate::source::floor(text, at.start as usize);
    let letter = text[start..].chars().next().filter(|letter| *letter != '\n');
    Span { start: start as u32, end: (start + letter.map_or(0, char::len_utf8)) as u32, ..at }
}

/// The place, with the name of the alias that begins there.
fn alias_at(at: Span, text: &str) -> Span {
    let rest = text.get(at.start as usize..).unwrap_or("");
    let end =
        rest.find(|letter: char| letter.is_whitespace() || ",[]{}".contains(letter)).unwrap_or(rest.len());
    Span { end: at.start + end as u32, ..at }
}
