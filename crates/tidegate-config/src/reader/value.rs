//! A node read as what the table says it is.

use std::net::SocketAddr;

use tidegate_core::Micros;

use super::{Map, Reader, Spanned};
use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::fields::{Kind, Status, WORDS_SHOWN, Word};
use crate::near::nearest;
use crate::scalars::{self, Cidr, ListenAt, Percent, Wrong};
use crate::source::Span;
use crate::theirs;
use crate::times::{self, Rate};
use crate::yaml::{Entries, Items, Node, NodeKind, Seen};

/// A node, and what it has to be.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    pub(super) reader: &'a Reader,
    /// What people call it, for messages.
    pub(super) name: &'a str,
    pub(super) node: Node<'a>,
    pub(super) kind: Kind,
    /// Is it one of several of this name?
    pub(super) item: bool,
}

impl<'a> Value<'a> {
    /// Where it stands.
    pub fn span(self) -> Span {
        self.node.span()
    }

    /// The node.
    pub fn node(self) -> Node<'a> {
        self.node
    }

    /// What it has to be; of [`Kind::Either`], the one that fits.
    pub fn kind(self) -> Kind {
        self.kind
    }

    /// The node, for kinds that are read elsewhere.
    pub fn node_of(self) -> Option<Node<'a>> {
        Some(self.node)
    }

    /// A [`Kind::Text`].
    pub fn text(self) -> Option<Spanned<&'a str>> {
        let Kind::Text = self.kind else { return self.mistake() };
        self.scalar(Ok)
    }

    /// A [`Kind::Flag`].
    pub fn flag(self) -> Option<Spanned<bool>> {
        let Kind::Flag = self.kind else { return self.mistake() };
        self.scalar(scalars::flag)
    }

    /// A [`Kind::Whole`].
    pub fn whole(self) -> Option<Spanned<u64>> {
        let Kind::Whole { min, max } = self.kind else { return self.mistake() };
        self.scalar(|text| scalars::whole(text, min, max))
    }

    /// A [`Kind::Signed`].
    pub fn signed(self) -> Option<Spanned<i64>> {
        let Kind::Signed { min, max } = self.kind else { return self.mistake() };
        self.scalar(|text| scalars::signed(text, min, max))
    }

    /// A [`Kind::Instant`].
    pub fn instant(self) -> Option<Spanned<Micros>> {
        let Kind::Instant = self.kind else { return self.mistake() };
        self.scalar(times::instant)
    }

    /// A [`Kind::Duration`].
    pub fn duration(self) -> Option<Spanned<Micros>> {
        let Kind::Duration { min, max } = self.kind else { return self.mistake() };
        self.scalar(|text| times::duration(text, min, max))
    }

    /// A [`Kind::Bytes`].
    pub fn bytes(self) -> Option<Spanned<u64>> {
        let Kind::Bytes { min, max } = self.kind else { return self.mistake() };
        self.scalar(|text| scalars::bytes(text, min, max))
    }

    /// A [`Kind::Percent`].
    pub fn percent(self) -> Option<Spanned<Percent>> {
        let Kind::Percent = self.kind else { return self.mistake() };
        self.scalar(scalars::percent)
    }

    /// A [`Kind::Rate`].
    pub fn rate(self) -> Option<Spanned<Rate>> {
        let Kind::Rate = self.kind else { return self.mistake() };
        self.scalar(times::rate)
    }

    /// A [`Kind::Cidr`].
    pub fn cidr(self) -> Option<Spanned<Cidr>> {
        let Kind::Cidr = self.kind else { return self.mistake() };
        self.scalar(scalars::cidr)
    }

    /// A [`Kind::Socket`].
    pub fn socket(self) -> Option<Spanned<SocketAddr>> {
        let Kind::Socket = self.kind else { return self.mistake() };
        self.scalar(scalars::socket)
    }

    /// A [`Kind::Listen`].
    pub fn listen(self) -> Option<Spanned<ListenAt>> {
        let Kind::Listen = self.kind else { return self.mistake() };
        self.scalar(scalars::listen)
    }

    /// A [`Kind::Word`], as the table spells it.
    pub fn word(self) -> Option<Spanned<&'static str>> {
        let Kind::Word(words) = self.kind else { return self.mistake() };
        let Spanned { value, span } = self.scalar(|text| word(text, words))?;
        if let Status::Later(_) = value.status {
            // The name of the field that the table has, since a name here may be the file's.
            let field = self.reader.places.iter().find_map(|place| place.field(self.name));
            self.reader.not_yet(
                field.map_or("value", |(_, field)| field.name),
                value.name,
                value.status,
                span,
            );
        }
        Some(Spanned { value: value.name, span })
    }

    /// A [`Kind::Map`].
    pub fn map(self) -> Option<Map<'a>> {
        let Kind::Map(place) = self.kind else { return self.mistake() };
        self.shape(NodeKind::Map)?;
        let found = self.reader.entries_of(self.node, place);
        Some(Map { reader: self.reader, node: self.node, place, found })
    }

    /// The items of a [`Kind::List`] or [`Kind::OneOrMore`].
    pub fn list(self) -> Option<Values<'a>> {
        let (of, one) = match self.kind {
            Kind::List(of) => (of, false),
            Kind::OneOrMore(of) => (of, self.node.kind() != NodeKind::List),
            _ => return self.mistake(),
        };
        let (reader, name) = (self.reader, self.name);
        if one {
            let nodes = Nodes::One(Some(self.node));
            return Some(Values { reader, name, kind: *of, nodes });
        }
        self.shape(NodeKind::List)?;
        Some(Values { reader, name, kind: *of, nodes: Nodes::Many(self.node.items()) })
    }

    /// The entries of a [`Kind::MapOf`] or [`Kind::Names`]; duplicates are told and left out.
    pub fn names(self) -> Option<Names<'a>> {
        let kind = match self.kind {
            Kind::MapOf(place) => Kind::Map(place),
            Kind::Names(of) => *of,
            _ => return self.mistake(),
        };
        self.shape(NodeKind::Map)?;
        Some(Names { reader: self.reader, kind, entries: self.node.entries(), seen: self.node.seen() })
    }

    /// Reads everything in it, for the sake of the report.
    pub(super) fn check(self) {
        match self.kind {
            Kind::Text => drop(self.text()),
            Kind::Flag => drop(self.flag()),
            Kind::Whole { .. } => drop(self.whole()),
            Kind::Signed { .. } => drop(self.signed()),
            Kind::Duration { .. } => drop(self.duration()),
            Kind::Instant => drop(self.instant()),
            Kind::Bytes { .. } => drop(self.bytes()),
            Kind::Percent => drop(self.percent()),
            Kind::Rate => drop(self.rate()),
            Kind::Cidr => drop(self.cidr()),
            Kind::Socket => drop(self.socket()),
            Kind::Listen => drop(self.listen()),
            Kind::Word(_) => drop(self.word()),
            // The recursion is as deep as the tree, which is bounded.
            Kind::List(_) | Kind::OneOrMore(_) => self.list().into_iter().flatten().for_each(Self::check),
            Kind::MapOf(_) | Kind::Names(_) => {
                self.names().into_iter().flatten().for_each(|(_, value)| value.check());
            }
            Kind::Map(place) => {
                let Some(map) = self.map() else { return };
                for field in place.fields {
                    if let Some(value) = map.get(field.name) {
                        value.check();
                    }
                }
            }
            Kind::Either(_) => self.wrong_type(),
            Kind::Free => {}
        }
    }

    /// A getter that the table does not allow is a mistake in the code, for a test to find; the value counts as absent.
    fn mistake<T>(self) -> Option<T> {
        match self.kind {
            // None of several kinds fits what stands there: that is the file's mistake.
            Kind::Either(_) => self.wrong_type(),
            kind => debug_assert!(false, "`{}` is {kind:?} in the table", self.name),
        }
        None
    }

    fn shape(self, kind: NodeKind) -> Option<()> {
        if self.node.kind() == kind {
            return Some(());
        }
        self.wrong_type();
        None
    }

    fn wrong_type(self) {
        self.reader.say_with(Code::WrongType, || {
            let kind = match self.kind {
                Kind::Map(place) if place.name == self.name => "a map".into(),
                kind => kind.describe(),
            };
            let each = if self.item { "each of " } else { "" };
            let message = format!("{each}{} has to be {kind}", quoted(self.name));
            let trouble = Diagnostic::new(Code::WrongType, self.node.span(), message)
                .label(format!("is {}", found(self.node)));
            let trouble = trouble.theirs_if(self.theirs());
            match (self.kind, self.node.kind()) {
                (Kind::List(_), NodeKind::Scalar | NodeKind::Map) => {
                    trouble.help("begin each item with `- `")
                }
                (Kind::Map(place), NodeKind::Scalar) => match place.example() {
                    Some(field) => trouble
                        .help(format!("write keys and values, e.g. `{}: {}`", field.name, field.example)),
                    None => trouble,
                },
                (Kind::Map(_), NodeKind::List) => trouble.help("remove the dash (`- `) before its keys"),
                _ => trouble,
            }
        });
    }

    /// Is it a whole document of rules?
    fn is_top(self) -> bool {
        let first = self.reader.places.first().filter(|_| self.reader.of_rules);
        matches!(self.kind, Kind::Map(place) if first.is_some_and(|first| std::ptr::eq(*first, place)))
    }

    /// What envoyproxy/ratelimit says of a value that it cannot put where it stands.
    fn theirs(self) -> Option<String> {
        match (self.kind, self.node.kind()) {
            (Kind::Word(_), NodeKind::Scalar) if self.name == "unit" => {
                Some(theirs::invalid_unit(self.node.text().unwrap_or_default()))
            }
            (Kind::Map(_), _) if self.item && self.reader.is_theirs(self.name) => {
                Some(theirs::item_no_map(self.node))
            }
            _ if self.reader.is_theirs(self.name) || self.is_top() => {
                theirs::wrong_value(self.node, self.kind)
            }
            _ => None,
        }
    }

    fn scalar<T>(self, read: impl FnOnce(&'a str) -> Result<T, Wrong>) -> Option<Spanned<T>> {
        let span = self.node.span();
        let Some(text) = self.node.text() else {
            self.wrong_type();
            return None;
        };
        match read(text) {
            Ok(value) => Some(Spanned { value, span }),
            Err(wrong) => {
                self.reader.say_with(wrong.code, || {
                    let trouble = Diagnostic::new(wrong.code, span, wrong.message).label(format!(
                        "{} has to be {}",
                        quoted(self.name),
                        self.kind.describe()
                    ));
                    Diagnostic { help: wrong.help.map(Into::into), ..trouble }.theirs_if(self.theirs())
                });
                None
            }
        }
    }
}

/// The items of a list, one after the other: a vector of them would be larger than the file.
pub struct Values<'a> {
    reader: &'a Reader,
    name: &'a str,
    kind: Kind,
    nodes: Nodes<'a>,
}

enum Nodes<'a> {
    One(Option<Node<'a>>),
    Many(Items<'a>),
}

impl<'a> Iterator for Values<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let node = match &mut self.nodes {
            Nodes::One(node) => node.take(),
            Nodes::Many(items) => items.next(),
        };
        node.map(|node| Value { item: true, ..self.reader.value(self.name, node, self.kind) })
    }
}

/// The entries of a map whose names are up to the writer.
pub struct Names<'a> {
    reader: &'a Reader,
    kind: Kind,
    entries: Entries<'a>,
    seen: Seen<'a>,
}

impl<'a> Iterator for Names<'a> {
    type Item = (Spanned<&'a str>, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (key, node) = self.entries.next()?;
            let Some(name) = self.reader.key(key) else { continue };
            if let Some(first) = self.seen.before(key) {
                self.reader.duplicate(name, key, first.span(), name);
                continue;
            }
            let value = self.reader.value(name, node, self.kind);
            return Some((Spanned { value: name, span: key.span() }, value));
        }
    }
}

fn word(text: &str, words: &'static [Word]) -> Result<&'static Word, Wrong> {
    let named = |spelling: &str| {
        words.iter().find(|word| word.spellings().any(|known| known.eq_ignore_ascii_case(spelling)))
    };
    named(text).ok_or_else(|| {
        let wrong = Wrong::new(Code::BadWord, format!("unknown word {}", quoted(text)));
        if let Some(near) = nearest(text, words.iter().flat_map(Word::spellings)) {
            return wrong.help(format!("did you mean `{near}`?"));
        }
        if words.len() <= WORDS_SHOWN {
            return wrong;
        }
        let known: Vec<String> = words.iter().map(|word| format!("`{}`", word.name)).collect();
        wrong.help(format!("write one of {}", known.join(", ")))
    })
}

/// Of several kinds, the one that fits the node; if none does, the first of the same shape, so that its complaint is told;
/// if none has the shape, all of them.
pub(super) fn choose(kind: Kind, node: Node<'_>) -> Kind {
    let Kind::Either(kinds) = kind else { return kind };
    let fits_shape = |kind: &&Kind| match kind {
        Kind::List(_) => node.kind() == NodeKind::List,
        Kind::Map(_) | Kind::MapOf(_) | Kind::Names(_) => node.kind() == NodeKind::Map,
        Kind::OneOrMore(_) | Kind::Free | Kind::Either(_) => true,
        _ => node.kind() == NodeKind::Scalar,
    };
    let fits = |kind: &&Kind| {
        let text = node.text().unwrap_or("");
        match **kind {
            Kind::Flag => scalars::flag(text).is_ok(),
            Kind::Whole { min, max } => scalars::whole(text, min, max).is_ok(),
            Kind::Signed { min, max } => scalars::signed(text, min, max).is_ok(),
            Kind::Duration { min, max } => times::duration(text, min, max).is_ok(),
            Kind::Instant => times::instant(text).is_ok(),
            Kind::Bytes { min, max } => scalars::bytes(text, min, max).is_ok(),
            Kind::Percent => scalars::percent(text).is_ok(),
            Kind::Rate => times::rate(text).is_ok(),
            Kind::Cidr => scalars::cidr(text).is_ok(),
            Kind::Socket => scalars::socket(text).is_ok(),
            Kind::Listen => scalars::listen(text).is_ok(),
            Kind::Word(words) => word(text, words).is_ok(),
            _ => true,
        }
    };
    let of_shape = || kinds.iter().filter(fits_shape);
    of_shape().find(fits).or_else(|| of_shape().next()).copied().unwrap_or(kind)
}

/// What stands there, for messages.
pub(super) fn found(node: Node<'_>) -> &'static str {
    match node.kind() {
        NodeKind::Scalar => "a single value",
        NodeKind::List => "a list",
        NodeKind::Map => "a map",
        NodeKind::Null => "nothing",
    }
}
