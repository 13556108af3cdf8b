//! What the library says, in words for people: what, and how to mend it.

use granit_parser::{ErrorKind, ScanError};

use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::source::{Span, line_start};

/// An error of the library, at the place that it names.
pub(super) fn explain(error: &ScanError, at: Span, text: &str, depth: usize) -> Diagnostic {
    let kind = error.kind();
    match kind {
        ErrorKind::UnknownAnchor => return unknown_anchor(alias_at(at, text)),
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
    let at = one_letter(at, text);
    let (message, help) = words(kind, at, text);
    let trouble = Diagnostic::new(Code::Syntax, at, message).label("the reader stopped here");
    match help {
        "" => trouble,
        help => trouble.help(help),
    }
}

pub(super) fn unknown_anchor(at: Span) -> Diagnostic {
    Diagnostic::new(Code::UnknownAnchor, at, "no anchor of this name was set before")
        .label("stands for nothing")
        .help("mark the value with `&name` earlier in the document, or put the text in quotes if a star is meant")
}

/// Message and help for what people run into; for the rest, the library's own words.
fn words(kind: &ErrorKind, at: Span, text: &str) -> (String, &'static str) {
    use ErrorKind as E;
    let before = &text[line_start(text, at.start as usize)..at.start as usize];
    let letter = text[at.start as usize..].chars().next();
    let (message, help) = match kind {
        E::TabNotAllowed
        | E::TabInBlockIndentation
        | E::TabInIndentation
        | E::TabAtBlockScalarStart
        | E::TabInPlainScalar => {
            ("a tab is used for indentation", "YAML is indented with spaces: replace the tab by spaces")
        }
        _ if letter == Some('\t')
            || (!before.is_empty()
                && before.trim_start_matches([' ', '\t']).is_empty()
                && before.contains('\t')) =>
        {
            ("a tab is used for indentation", "YAML is indented with spaces: replace the tab by spaces")
        }
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
