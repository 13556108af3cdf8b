//! Text to tree. The one module that touches a YAML library.
//!
//! granit-parser and not saphyr-parser, which it comes from: that one buffers the tokens of a whole flow collection on one
//! line (3 GB for a line of 10 MB), counts places in characters, and tells errors apart by their English only.

mod errors; // what the library says, in words for people
mod seen; // which keys a map already has
mod tree; // tokens and nodes

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Tag};

use crate::codes::Code;
use crate::diagnostic::Diagnostic;
use crate::source::{Sources, Span};
use crate::theirs;
pub(crate) use seen::Seen;
pub use tree::{Entries, Items, Node, NodeKind, Tree};
use tree::{PAYLOAD_MAX, Shape, Token, Tokens};

/// Bounds on a file. What is beyond them is refused while it is read, before memory is spent on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caps {
    /// Length of the text.
    pub bytes: usize,
    /// Keys, values, lists and maps, as written and as aliases make them.
    pub nodes: u64,
    /// Lists and maps in each other, as written and as aliases make them. No more than 1 000 whatever is asked for,
    /// because readers follow the tree by recursion.
    pub depth: usize,
}

impl Default for Caps {
    /// An ordinary rule has 15 nodes and 150 bytes: room for 140 000 of them. Two million nodes are read in less than a
    /// second and kept in 34 MB.
    fn default() -> Self {
        Self { bytes: 32 << 20, nodes: 2_100_000, depth: 100 }
    }
}

const DEPTH_MAX: usize = 1_000;

/// Anchors are kept by name while a document is read, at some 60 bytes each.
const ANCHORS_MAX: usize = 100_000;

/// Reads all documents of a file.
pub fn parse(source: u32, sources: &Sources, caps: &Caps) -> Result<Tree, Diagnostic> {
    let text = sources.shared_text(source);
    if text.len() > caps.bytes {
        let message = format!("the file has {} bytes, {} at most", text.len(), caps.bytes);
        return Err(Diagnostic::new(Code::TooLarge, Span { source, start: 0, end: 0 }, message)
            .help("split the file into several"));
    }
    refuse_control_characters(source, &text)?;
    let depth = caps.depth.min(DEPTH_MAX);
    let mut options = Options::default();
    options.disallow_directives = true; // Their tables are not bounded, and nothing here has a use for them.
    options.set_emit_comments(false);
    // One more than allowed, so that the builder meets it first and can say more.
    options.flow_nesting_limit = depth + 1;
    options.block_nesting_limit = depth + 1;
    let mut builder = Builder::new(source, Caps { depth, nodes: caps.nodes.min(PAYLOAD_MAX), ..*caps });
    for event in Parser::new_from_str_with_options(&text, options) {
        match event {
            Ok((event, span)) => builder.take(event, &span, &text)?,
            Err(error) => return Err(errors::explain(&error, builder.here(&error), &text, depth)),
        }
    }
    Ok(Tree {
        source,
        text,
        tokens: builder.tokens,
        unescaped: builder.unescaped,
        unescaped_ends: builder.unescaped_ends,
        expanded: builder.expanded,
    })
    .and_then(|tree| check_merges(&tree, &builder.merges).map_or(Ok(tree), Err))
}

/// The library allows some of them, and says of the others only that they are "unexpected".
fn refuse_control_characters(source: u32, text: &str) -> Result<(), Diagnostic> {
    let allowed = |letter: char| matches!(letter, '\t' | '\n' | '\r' | '\u{85}') || !letter.is_control();
    let Some((start, letter)) = text.char_indices().find(|(_, letter)| !allowed(*letter)) else {
        return Ok(());
    };
    let at = Span { source, start: start as u32, end: (start + letter.len_utf8()) as u32 };
    let message = format!("control character U+{:04X} at byte {start}", letter as u32);
    let help = match letter {
        '\0' => {
            "a file with NUL bytes is often UTF-16: save it as UTF-8; otherwise it is damaged, write it again"
        }
        _ => "remove it; inside double quotes it can be written as an escape, e.g. `\"\\x1b\"`",
    };
    let trouble = Diagnostic::new(Code::ControlCharacter, at, message).label("here").help(help);
    Err(trouble.theirs(theirs::loading("control characters are not allowed")))
}

/// Makes tokens from events, and counts what they stand for.
struct Builder {
    source: u32,
    caps: Caps,
    tokens: Tokens,
    unescaped: String,
    unescaped_ends: Vec<u32>,
    /// Lists and maps that are open.
    open: Vec<Open>,
    anchors: Vec<Anchor>,
    /// The number that the library gave to the first of `anchors`; they begin anew in each document.
    first_anchor: usize,
    merges: Vec<u32>,
    expanded: u64,
    /// Bytes of texts, as aliases make them.
    expanded_bytes: u64,
}

struct Open {
    token: u32,
    /// What the file stood for when it was opened.
    expanded_before: u64,
    bytes_before: u64,
    /// How many levels are below it so far.
    height: usize,
    /// How many children it has so far; in a map, even ones are keys.
    children: u64,
    anchor: usize,
    /// Where its last child ends so far.
    end: u32,
}

/// What an alias can stand for.
struct Anchor {
    token: u32,
    span: Span,
    /// Nothing while it is open: an alias in there would never end.
    closed: Option<Weight>,
}

/// What a node stands for.
#[derive(Clone, Copy)]
struct Weight {
    nodes: u64,
    /// Levels of lists and maps.
    height: usize,
    /// Of texts. A text of a megabyte is one node, and a thousand aliases of it are a gigabyte to whoever takes them over.
    bytes: u64,
}

impl Builder {
    fn new(source: u32, caps: Caps) -> Self {
        Self {
            source,
            caps,
            tokens: Tokens::default(),
            unescaped: String::new(),
            unescaped_ends: Vec::new(),
            open: Vec::new(),
            anchors: Vec::new(),
            first_anchor: 1,
            merges: Vec::new(),
            expanded: 0,
            expanded_bytes: 0,
        }
    }

    fn take(&mut self, event: Event<'_>, span: &granit_parser::Span, text: &str) -> Result<(), Diagnostic> {
        let forced_text = match event.tag() {
            Some(tag) => refuse_own_tags(tag, self.span(&span.tag_span().unwrap_or(*span)))?,
            None => false,
        };
        let span = self.span(span);
        match event {
            Event::DocumentEnd => {
                self.first_anchor += self.anchors.len();
                self.anchors.clear();
                Ok(())
            }
            Event::Scalar(value, style, anchor, _) => {
                let style = if forced_text { Style::Text } else { Style::of(style) };
                self.scalar(&value, style, anchor, span, text)
            }
            Event::SequenceStart(_, anchor, _) => self.start(Shape::List, anchor, span),
            Event::MappingStart(_, anchor, _) => self.start(Shape::Map, anchor, span),
            Event::SequenceEnd | Event::MappingEnd => {
                self.end(span);
                Ok(())
            }
            Event::Alias(anchor) => self.alias(anchor, span, text),
            _ => Ok(()),
        }
    }

    fn scalar(
        &mut self,
        value: &str,
        style: Style,
        anchor: usize,
        span: Span,
        text: &str,
    ) -> Result<(), Diagnostic> {
        let plain = style == Style::Plain;
        let written = text.get(span.start as usize..span.end as usize).unwrap_or("");
        let between_quotes = written.get(1..written.len().saturating_sub(1));
        let (shape, payload) = if plain && (written.is_empty() || is_null(written)) {
            (Shape::Null, 0)
        } else if plain && written == value {
            (Shape::Plain, 0)
        } else if style == Style::Quoted && between_quotes == Some(value) {
            (Shape::Quoted, 0)
        } else {
            // What an empty scalar with a tag of its own is called differs between libraries; it is an empty text.
            self.unescaped.push_str(if written.is_empty() { "" } else { value });
            self.unescaped_ends.push(self.unescaped.len() as u32);
            (Shape::Unescaped, self.unescaped_ends.len() as u32 - 1)
        };
        let weight = Weight { nodes: 1, height: 0, bytes: value.len() as u64 };
        self.node(span, weight)?;
        if plain && written == "<<" {
            self.mark_merge();
        }
        self.anchor(anchor, span, Some(weight))?;
        self.push(shape, span, payload, plain);
        Ok(())
    }

    /// The next token is `<<`: if it is a key, its map takes over others.
    fn mark_merge(&mut self) {
        let Some(open) = self.open.last().filter(|open| open.children % 2 == 1) else { return };
        let map = self.tokens.get_mut(open.token);
        if map.shape() != Shape::List {
            map.set_merging();
            self.merges.push(self.tokens.len());
        }
    }

    fn start(&mut self, shape: Shape, anchor: usize, span: Span) -> Result<(), Diagnostic> {
        let (expanded_before, bytes_before) = (self.expanded, self.expanded_bytes);
        self.node(span, Weight { nodes: 1, height: 1, bytes: 0 })?;
        self.anchor(anchor, span, None)?;
        let token = self.tokens.len();
        self.push(shape, span, 0, false);
        self.open.push(Open {
            token,
            expanded_before,
            bytes_before,
            height: 0,
            children: 0,
            anchor,
            end: span.end,
        });
        Ok(())
    }

    fn end(&mut self, span: Span) {
        let Some(open) = self.open.pop() else { return };
        // A block ends where its last child does; the library says where the next thing begins.
        let next = self.tokens.len();
        let token = self.tokens.get_mut(open.token);
        token.next = next;
        token.end = if span.end > span.start { span.end } else { open.end };
        let end = token.end;
        let height = open.height + 1;
        if open.anchor >= self.first_anchor {
            self.anchors[open.anchor - self.first_anchor].closed = Some(Weight {
                nodes: self.expanded - open.expanded_before,
                height,
                bytes: self.expanded_bytes - open.bytes_before,
            });
        }
        if let Some(parent) = self.open.last_mut() {
            parent.height = parent.height.max(height);
            parent.end = parent.end.max(end);
        }
    }

    fn alias(&mut self, anchor: usize, span: Span, text: &str) -> Result<(), Diagnostic> {
        let Some(known) = anchor.checked_sub(self.first_anchor).and_then(|index| self.anchors.get(index))
        else {
            return Err(errors::unknown_anchor(span, text));
        };
        let (token, defined) = (known.token, known.span);
        let Some(weight) = known.closed else {
            return Err(Diagnostic::new(
                Code::UnknownAnchor,
                span,
                "the alias stands inside of what it stands for",
            )
            .label("would contain itself")
            .note(defined, "the anchor is here"));
        };
        self.node(span, weight).map_err(|trouble| match trouble.code {
            Code::AliasBomb => trouble.note(defined, "one of the aliases stands for this"),
            _ => trouble,
        })?;
        self.push(Shape::Alias, span, token, false);
        Ok(())
    }

    /// Counts one more node, with all that it stands for.
    fn node(&mut self, span: Span, weight: Weight) -> Result<(), Diagnostic> {
        let Caps { nodes, depth, .. } = self.caps;
        let height = weight.height;
        // An escape may stand for more bytes than it has, but not for twice as many.
        let bytes = self.caps.bytes as u64 * 2;
        self.expanded += weight.nodes;
        self.expanded_bytes += weight.bytes;
        if u64::from(self.tokens.len()) >= nodes {
            return Err(Diagnostic::new(
                Code::TooManyNodes,
                span,
                format!("more than {nodes} values in one file"),
            )
            .label("the bound is reached here")
            .help("split the file into several"));
        }
        if self.expanded > nodes {
            let message = format!("with its aliases, the file stands for more than {nodes} values");
            return Err(Diagnostic::new(Code::AliasBomb, span, message).label("the bound is reached here"));
        }
        if self.expanded_bytes > bytes {
            let message = format!("with its aliases, the file stands for more than {bytes} bytes of text");
            return Err(Diagnostic::new(Code::AliasBomb, span, message).label("the bound is reached here"));
        }
        if self.open.len() + height > depth {
            let message = format!("more than {depth} lists and maps in each other");
            return Err(Diagnostic::new(Code::TooDeep, span, message).label("the bound is reached here"));
        }
        if let Some(parent) = self.open.last_mut() {
            parent.height = parent.height.max(height);
            parent.children += 1;
            parent.end = parent.end.max(span.end);
        }
        Ok(())
    }

    fn anchor(&mut self, anchor: usize, span: Span, closed: Option<Weight>) -> Result<(), Diagnostic> {
        if anchor == 0 {
            return Ok(());
        }
        if self.anchors.len() == ANCHORS_MAX {
            let message = format!("more than {ANCHORS_MAX} anchors in one document");
            return Err(Diagnostic::new(Code::TooManyNodes, span, message));
        }
        self.anchors.push(Anchor { token: self.tokens.len(), span, closed });
        Ok(())
    }

    fn push(&mut self, shape: Shape, span: Span, payload: u32, unquoted: bool) {
        let next = self.tokens.len() + 1;
        self.tokens.push(Token::new(shape, span.start, span.end, next, payload, unquoted));
    }

    fn span(&self, span: &granit_parser::Span) -> Span {
        let range = span.byte_range().unwrap_or_default();
        Span { source: self.source, start: range.start as u32, end: range.end as u32 }
    }

    fn here(&self, error: &ScanError) -> Span {
        let start = error.marker().byte_offset().unwrap_or_default() as u32;
        Span { source: self.source, start, end: start }
    }
}

/// How a scalar is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Quoted,
    /// As a block, or made a text by a tag.
    Text,
}

impl Style {
    fn of(style: ScalarStyle) -> Self {
        match style {
            ScalarStyle::Plain => Self::Plain,
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => Self::Quoted,
            _ => Self::Text,
        }
    }
}

/// What YAML 1.1 and 1.2 take for nothing.
fn is_null(text: &str) -> bool {
    matches!(text, "~" | "null" | "Null" | "NULL")
}

/// Tags of YAML itself change nothing here, but that `!!str` makes a text of anything. Others would be skipped silently.
fn refuse_own_tags(tag: &Tag, span: Span) -> Result<bool, Diagnostic> {
    if let Some(suffix) = tag.core_suffix() {
        return Ok(suffix == "str");
    }
    if tag.handle() == "!" && tag.suffix().is_empty() || tag.handle().is_empty() && tag.suffix() == "!" {
        return Ok(true);
    }
    Err(Diagnostic::new(Code::Syntax, span, "tags have no meaning here")
        .label("a tag")
        .help("remove the tag; if the exclamation mark belongs to the text, put it in quotes"))
}

/// The first `<<` whose value is not a map or a list of maps.
fn check_merges(tree: &Tree, merges: &[u32]) -> Option<Diagnostic> {
    merges.iter().find_map(|key| {
        let (key, value) = (tree.node(*key), tree.node(key + 1));
        let is_map = |node: &Node<'_>| node.kind() == NodeKind::Map;
        let good = key.is_merge_key()
            && (is_map(&value) || value.kind() == NodeKind::List && value.items().all(|item| is_map(&item)));
        (!good).then(|| {
            Diagnostic::new(Code::BadMerge, value.span(), "`<<` takes a map or a list of maps")
                .label("is neither")
                .help(
                    "point it at a map: `<<: *name`; if the key is meant to be called `<<`, put it in quotes",
                )
                .theirs(theirs::loading("map merge requires map or sequence of maps as the value"))
        })
    })
}
