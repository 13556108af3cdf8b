//! The tree: tokens in the order of the text, 16 bytes each, and nodes to walk them.

use std::sync::Arc;

use super::seen::Seen;
use crate::source::Span;

/// All documents of one file.
#[derive(Debug)]
pub struct Tree {
    pub(super) source: u32,
    pub(super) text: Arc<String>,
    pub(super) tokens: Tokens,
    /// Scalars whose text is not as it stands in the file: escapes, folded lines.
    pub(super) unescaped: String,
    pub(super) unescaped_ends: Vec<u32>,
    pub(super) expanded: u64,
}

/// A place in a [`Tree`]. An alias looks like what it stands for; only [`Node::span`] tells.
#[derive(Clone, Copy, Debug)]
pub struct Node<'t> {
    tree: &'t Tree,
    /// Where it stands.
    at: u32,
    /// What it is; the same as `at` unless it is an alias.
    target: u32,
}

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// A text, a number, a flag: anything single.
    Scalar,
    /// A list.
    List,
    /// A map.
    Map,
    /// Nothing: `null`, `~`, or no value at all.
    Null,
}

impl Tree {
    /// The root of each document.
    pub fn documents(&self) -> Items<'_> {
        Items { tree: self, next: 0, end: self.tokens.len() }
    }

    /// Where the file begins.
    pub(crate) fn start(&self) -> Span {
        Span { source: self.source, start: 0, end: 0 }
    }

    /// How many nodes a walk meets that follows every alias; bounded by [`super::Caps::nodes`].
    pub fn expanded(&self) -> u64 {
        self.expanded
    }

    /// How many nodes are written in the file.
    pub fn written(&self) -> u64 {
        u64::from(self.tokens.len())
    }

    pub(super) fn node(&self, at: u32) -> Node<'_> {
        let token = self.tokens.get(at);
        let target = if token.shape() == Shape::Alias { token.payload() } else { at };
        Node { tree: self, at, target }
    }

    fn scalar(&self, token: Token) -> &str {
        let (start, end) = (token.start as usize, token.end as usize);
        let written = |start: usize, end: usize| self.text.get(start..end).unwrap_or("");
        match token.shape() {
            Shape::Plain => written(start, end),
            Shape::Quoted => written(start + 1, end.saturating_sub(1)),
            Shape::Unescaped => {
                let index = token.payload() as usize;
                let start = index.checked_sub(1).map_or(0, |before| self.unescaped_ends[before]);
                &self.unescaped[start as usize..self.unescaped_ends[index] as usize]
            }
            Shape::Null | Shape::List | Shape::Map | Shape::MergingMap | Shape::Alias => "",
        }
    }
}

impl<'t> Node<'t> {
    /// What it is.
    pub fn kind(self) -> NodeKind {
        match self.token().shape() {
            Shape::Null => NodeKind::Null,
            Shape::Plain | Shape::Quoted | Shape::Unescaped => NodeKind::Scalar,
            Shape::List => NodeKind::List,
            // Only what is no alias can be a target.
            Shape::Map | Shape::MergingMap | Shape::Alias => NodeKind::Map,
        }
    }

    /// Where it stands; of an alias, the alias.
    pub fn span(self) -> Span {
        self.tree.tokens.get(self.at).span(self.tree.source)
    }

    /// Where its value stands; of an alias, what it stands for.
    pub fn definition(self) -> Span {
        self.token().span(self.tree.source)
    }

    /// The line that its value begins in. It is counted: for messages only.
    pub(crate) fn line(self) -> usize {
        let before = self.tree.text.as_bytes().get(..self.token().start as usize).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// Is it an alias?
    pub fn is_alias(self) -> bool {
        self.at != self.target
    }

    /// The text of a scalar, quotes and escapes undone.
    pub fn text(self) -> Option<&'t str> {
        (self.kind() == NodeKind::Scalar).then(|| self.tree.scalar(self.token()))
    }

    /// Is it a scalar without quotes?
    pub fn plain(self) -> bool {
        let token = self.token();
        token.shape() == Shape::Plain || (token.shape() == Shape::Unescaped && token.unquoted())
    }

    /// The items of a list; nothing for anything else.
    pub fn items(self) -> Items<'t> {
        let token = self.token();
        match token.shape() {
            Shape::List => Items { tree: self.tree, next: self.target + 1, end: token.next },
            _ => Items { tree: self.tree, next: 0, end: 0 },
        }
    }

    /// Keys and values of a map, in the order of the text, duplicates included; nothing for anything else.
    ///
    /// What `<<` takes over follows the map's own entries, as far as those do not say otherwise.
    pub fn entries(self) -> Entries<'t> {
        match self.token().shape() {
            Shape::Map => Entries(Source::Own(self.own_children())),
            Shape::MergingMap => Entries(Source::Merged(self.tree, self.merged().into_iter())),
            _ => Entries(Source::Own(Items { tree: self.tree, next: 0, end: 0 })),
        }
    }

    pub(super) fn at(self) -> u32 {
        self.at
    }

    /// To find duplicates among the keys of this map.
    pub(crate) fn seen(self) -> Seen<'t> {
        Seen::new(self.tree, self.entries().count())
    }

    fn token(self) -> Token {
        self.tree.tokens.get(self.target)
    }

    /// Keys and values of a map, one after the other.
    fn own_children(self) -> Items<'t> {
        Items { tree: self.tree, next: self.target + 1, end: self.token().next }
    }

    pub(super) fn is_merge_key(self) -> bool {
        !self.is_alias() && self.token().shape() == Shape::Plain && self.text() == Some("<<")
    }

    /// Where the keys stand that the map has with what it takes over.
    fn merged(self) -> Vec<u32> {
        let maps = self.merging();
        let count = maps.iter().map(|map| map.own_children().count() / 2).sum();
        let mut keys = Vec::with_capacity(count);
        let mut seen = Seen::new(self.tree, count);
        for map in maps {
            let first = keys.len();
            let mut children = map.own_children();
            while let (Some(key), Some(_)) = (children.next(), children.next()) {
                if !key.is_merge_key() && !key.text().is_some_and(|text| seen.has(text)) {
                    keys.push(key.at);
                }
            }
            // Only now: a map's own duplicates are the reader's to report.
            for key in &keys[first..] {
                seen.before(self.tree.node(*key));
            }
        }
        keys
    }

    /// The map and all that it takes over, the strongest first. How many there are is bounded when the tree is built.
    fn merging(self) -> Vec<Self> {
        let mut maps = Vec::new();
        let mut waiting = vec![self];
        while let Some(map) = waiting.pop() {
            maps.push(map);
            let mut sources = Vec::new();
            let mut children = map.own_children();
            while let (Some(key), Some(value)) = (children.next(), children.next()) {
                match value.kind() {
                    _ if !key.is_merge_key() => {}
                    NodeKind::List => sources.extend(value.items()),
                    _ => sources.push(value),
                }
            }
            waiting.extend(sources.into_iter().rev());
        }
        maps
    }
}

/// Nodes that stand beside each other.
#[derive(Clone, Debug)]
pub struct Items<'t> {
    tree: &'t Tree,
    next: u32,
    end: u32,
}

impl<'t> Iterator for Items<'t> {
    type Item = Node<'t>;

    fn next(&mut self) -> Option<Node<'t>> {
        if self.next >= self.end {
            return None;
        }
        let node = self.tree.node(self.next);
        self.next = self.tree.tokens.get(self.next).next;
        Some(node)
    }
}

/// The entries of a map.
#[derive(Clone, Debug)]
pub struct Entries<'t>(Source<'t>);

#[derive(Clone, Debug)]
enum Source<'t> {
    /// Keys and values as they stand.
    Own(Items<'t>),
    /// Where the keys stand; each value is behind its key.
    Merged(&'t Tree, std::vec::IntoIter<u32>),
}

impl<'t> Iterator for Entries<'t> {
    type Item = (Node<'t>, Node<'t>);

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Source::Own(children) => Some((children.next()?, children.next()?)),
            Source::Merged(tree, keys) => {
                let key = keys.next()?;
                Some((tree.node(key), tree.node(tree.tokens.get(key).next)))
            }
        }
    }
}

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Null,
    /// The text of the span.
    Plain,
    /// The text of the span without its first and last byte.
    Quoted,
    /// The payload says which piece of the side table.
    Unescaped,
    List,
    Map,
    /// A map with at least one `<<`.
    MergingMap,
    /// The payload says which token it stands for.
    Alias,
}

const SHAPES: [Shape; 8] = [
    Shape::Null,
    Shape::Plain,
    Shape::Quoted,
    Shape::Unescaped,
    Shape::List,
    Shape::Map,
    Shape::MergingMap,
    Shape::Alias,
];

/// A node as it is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) start: u32,
    pub(super) end: u32,
    /// The token behind this one and everything in it.
    pub(super) next: u32,
    /// Three bits of shape, one for "without quotes", the rest payload.
    bits: u32,
}

const _: () = assert!(size_of::<Token>() == 16);

/// Tokens and pieces of the side table are counted in 28 bits.
pub(super) const PAYLOAD_MAX: u64 = 1 << 28;

impl Token {
    pub(super) fn new(shape: Shape, start: u32, end: u32, next: u32, payload: u32, unquoted: bool) -> Self {
        Self { start, end, next, bits: shape as u32 | u32::from(unquoted) << 3 | payload << 4 }
    }

    pub(super) fn shape(self) -> Shape {
        SHAPES[(self.bits & 7) as usize]
    }

    pub(super) fn set_merging(&mut self) {
        self.bits = self.bits & !7 | Shape::MergingMap as u32;
    }

    fn payload(self) -> u32 {
        self.bits >> 4
    }

    fn unquoted(self) -> bool {
        self.bits & 8 != 0
    }

    fn span(self, source: u32) -> Span {
        Span { source, start: self.start, end: self.end }
    }
}

/// Tokens in chunks: a vector that doubles would need three times the memory for a moment.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    chunks: Vec<Vec<Token>>,
    len: u32,
}

const CHUNK: usize = 1 << 14;

impl Tokens {
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn get(&self, at: u32) -> Token {
        self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    pub(super) fn get_mut(&mut self, at: u32) -> &mut Token {
        &mut self.chunks[at as usize / CHUNK][at as usize % CHUNK]
    }

    pub(super) fn push(&mut self, token: Token) {
        match self.chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK => chunk.push(token),
            // The first chunk grows as it needs to: most files are small.
            None => self.chunks.push(vec![token]),
            Some(_) => {
                let mut chunk = Vec::with_capacity(CHUNK);
                chunk.push(token);
                self.chunks.push(chunk);
            }
        }
        self.len += 1;
    }
}
