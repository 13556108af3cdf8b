//! Trees to values, by the tables of [`crate::fields`]. What does not fit is told, and the rest is read on: one run shows all.

mod value; // a node read as what the table says it is

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::SocketAddr;

use tidegate_core::Micros;

use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::fields::{Field, Kind, Origin, Place, Status, reachable};
use crate::near::nearest;
use crate::report::Report;
use crate::scalars::{Cidr, ListenAt, Percent};
use crate::source::Span;
use crate::theirs;
use crate::times::Rate;
use crate::yaml::{Node, NodeKind};
pub use value::{Names, Value, Values};
use value::{choose, found};

/// Reads nodes and collects what is wrong with them.
pub struct Reader {
    report: RefCell<Report>,
    /// Where keys may belong that stand where they do not.
    places: Vec<&'static Place>,
    /// What was already said not to work yet: once is enough for a file with 100 000 rules.
    told: RefCell<HashSet<(&'static str, &'static str)>>,
    /// Is a known key in a wrong place only without effect?
    as_reference: bool,
    /// Are these rules, of which envoyproxy/ratelimit has something to say?
    of_rules: bool,
}

/// A value, and where it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it stands; of an alias, the alias.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Another value, which stands there too.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned { value: make(self.value), span: self.span }
    }
}

/// A map whose keys were checked.
pub struct Map<'a> {
    reader: &'a Reader,
    node: Node<'a>,
    place: &'static Place,
    /// What was found, in the order of the text. Not a place for each field of the table: there are many, and a file gives few.
    found: Vec<Found<'a>>,
}

/// A field that a map gives.
struct Found<'a> {
    field: &'static Field,
    key: Node<'a>,
    value: Node<'a>,
}

impl Reader {
    /// Whatever can be reached from these places is where a misplaced key may belong.
    pub fn new(roots: &[&'static Place]) -> Self {
        let (report, told) = (RefCell::default(), RefCell::default());
        Self { report, places: reachable(roots), told, as_reference: false, of_rules: false }
    }

    /// The same, that reads rules, and tells what envoyproxy/ratelimit says of what is wrong with them.
    #[must_use]
    pub(crate) fn of_rules(self) -> Self {
        Self { of_rules: true, ..self }
    }

    /// The same, that takes known keys in wrong places as envoyproxy/ratelimit does: they have no effect, and a warning says so.
    #[must_use]
    pub fn as_reference(self) -> Self {
        Self { as_reference: true, ..self }
    }

    /// Are rules taken as envoyproxy/ratelimit takes them?
    pub(crate) fn is_as_reference(&self) -> bool {
        self.as_reference
    }

    /// Adds to the report.
    pub fn say(&self, diagnostic: Diagnostic) {
        self.report.borrow_mut().push(diagnostic);
    }

    /// Adds to the report something that is only made if there is room.
    pub fn say_with(&self, code: Code, make: impl FnOnce() -> Diagnostic) {
        self.report.borrow_mut().push_with(code, make);
    }

    /// How many errors were found so far.
    pub fn errors(&self) -> usize {
        self.report.borrow().errors()
    }

    /// How often an error was met so far; the same one, by way of an alias, again and again.
    pub(crate) fn errors_met(&self) -> usize {
        self.report.borrow().errors_met()
    }

    /// All that was found.
    pub fn finish(self) -> Report {
        self.report.into_inner()
    }

    /// Reads a map of which we know the keys; `None` if it is no map.
    pub fn map<'a>(&'a self, node: Node<'a>, place: &'static Place) -> Option<Map<'a>> {
        self.value(place.name, node, Kind::Map(place)).map()
    }

    /// A node that has to be of a kind. The name is for messages.
    pub fn value<'a>(&'a self, name: &'a str, node: Node<'a>, kind: Kind) -> Value<'a> {
        Value { reader: self, name, node, kind: choose(kind, node), item: false }
    }

    /// Looks at everything below a node, for what the tables alone can tell.
    pub fn check<'a>(&'a self, name: &'a str, node: Node<'a>, kind: Kind) {
        self.value(name, node, kind).check();
    }

    fn entries_of<'a>(&'a self, node: Node<'a>, place: &'static Place) -> Vec<Found<'a>> {
        let mut all: Vec<Found<'a>> = Vec::new();
        for (key, value) in node.entries() {
            let Some(name) = self.key(key) else { continue };
            match place.field(name) {
                Some((_, field)) => match all.iter_mut().find(|found| std::ptr::eq(found.field, field)) {
                    Some(first) if self.as_reference => {
                        self.replaced(name, key, first.key.span());
                        (first.key, first.value) = (key, value);
                    }
                    Some(first) => self.duplicate(name, key, first.key.span(), field.name),
                    None => {
                        self.not_yet(field.name, "", field.status, key.span());
                        all.push(Found { field, key, value });
                    }
                },
                None if name.starts_with("x-") => {}
                None if self.as_reference && self.is_theirs(name) => self.say_with(Code::IgnoredKey, || {
                    Diagnostic { code: Code::IgnoredKey, ..self.unknown(name, key.span(), place) }
                }),
                None => self.say_with(Code::UnknownKey, || {
                    let trouble = self.unknown(name, key.span(), place);
                    // What belongs elsewhere is taken there, without effect.
                    let theirs = self.of_rules && !self.is_theirs(name);
                    if theirs { trouble.theirs(theirs::unknown_key(key)) } else { trouble }
                }),
            }
        }
        for field in place.fields.iter().filter(|field| field.required) {
            let found = all.iter().find(|found| std::ptr::eq(found.field, field));
            if found.is_none_or(|found| found.value.kind() == NodeKind::Null) {
                self.say_with(Code::MissingKey, || {
                    let trouble = match found {
                        Some(found) => {
                            let message = format!("`{}` has no value", field.name);
                            missing(field, found.key.span(), message, "nothing follows")
                        }
                        None => {
                            let message = format!("`{}` is missing in `{}`", field.name, place.name);
                            missing(field, node.span(), message, "not in here")
                        }
                    };
                    let theirs = theirs::missing(place.name, field.name).filter(|_| self.of_rules);
                    trouble.theirs_if(theirs.map(String::from))
                });
            }
        }
        all
    }

    /// Is it a key of envoyproxy/ratelimit, wherever it belongs?
    pub(crate) fn is_theirs(&self, name: &str) -> bool {
        let mut fields = self.places.iter().filter_map(|place| place.field(name));
        self.of_rules && fields.any(|(_, field)| field.origin == Origin::Reference)
    }

    /// The text of a key.
    fn key<'a>(&self, key: Node<'a>) -> Option<&'a str> {
        let text = key.text();
        if text.is_none() {
            self.say_with(Code::WrongType, || {
                let trouble = Diagnostic::new(Code::WrongType, key.span(), "a key has to be a text")
                    .label(found(key))
                    .help("put the key in quotes; a value that begins with `{` needs them too");
                match key.kind() {
                    NodeKind::Null if self.of_rules => trouble.theirs(theirs::unknown_key(key)),
                    _ => trouble,
                }
            });
        }
        text
    }

    fn duplicate(&self, name: &str, key: Node<'_>, first: Span, canonical: &str) {
        self.say_with(Code::DuplicateKey, || {
            let message = match name == canonical {
                true => format!("{} is given twice", quoted(name)),
                false => format!("{} is given twice: it is another name of `{canonical}`", quoted(name)),
            };
            Diagnostic::new(Code::DuplicateKey, key.span(), message)
                .label("once more")
                .note(first, "first given here")
                .help("remove one of them")
        });
    }

    /// As envoyproxy/ratelimit takes a key that is given twice: the last one holds.
    fn replaced(&self, name: &str, key: Node<'_>, first: Span) {
        self.say_with(Code::IgnoredKey, || {
            Diagnostic::new(Code::IgnoredKey, first, format!("{} is given twice", quoted(name)))
                .label("has no effect")
                .note(key.span(), "this one holds")
                .help("remove one of them")
        });
    }

    fn unknown(&self, name: &str, at: Span, place: &'static Place) -> Diagnostic {
        let names = |place: &'static Place| {
            place
                .fields
                .iter()
                .flat_map(|field| std::iter::once(field.name).chain(field.aliases.iter().copied()))
        };
        let homes: Vec<String> = self
            .places
            .iter()
            .filter(|other| other.field(name).is_some())
            .take(3)
            .map(|place| format!("`{}`", place.name))
            .collect();
        if !homes.is_empty() {
            let message = format!("{} does not belong in `{}`", quoted(name), place.name);
            return Diagnostic::new(Code::MisplacedKey, at, message)
                .label(format!("belongs in {}", homes.join(" or ")))
                .help("move the line there, and check its indentation");
        }
        let trouble = Diagnostic::new(
            Code::UnknownKey,
            at,
            format!("unknown key {} in `{}`", quoted(name), place.name),
        );
        if let Some(near) = nearest(name, names(place)) {
            return trouble.label(format!("did you mean `{near}`?"));
        }
        let elsewhere = self.places.iter().find_map(|other| Some((nearest(name, names(other))?, other.name)));
        let trouble = match elsewhere {
            Some((near, home)) => trouble.label(format!("did you mean `{near}`, which belongs in `{home}`?")),
            None => trouble.label("not known here"),
        };
        let known: Vec<String> = place.fields.iter().map(|field| format!("`{}`", field.name)).collect();
        trouble.help(format!("known here: {}", known.join(", ")))
    }

    fn not_yet(&self, field: &'static str, word: &'static str, status: Status, at: Span) {
        let Status::Later(instead) = status else { return };
        if self.told.borrow_mut().insert((field, word)) {
            let what = if word.is_empty() { field.to_string() } else { format!("{field}: {word}") };
            self.say(
                Diagnostic::new(Code::NotYet, at, format!("`{what}` is understood but {instead}"))
                    .label("without effect yet"),
            );
        }
    }
}

fn missing(field: &Field, at: Span, message: String, label: &str) -> Diagnostic {
    let trouble = Diagnostic::new(Code::MissingKey, at, message).label(label);
    match field.example {
        "" => trouble.help(format!("add `{}`: {}", field.name, field.kind.describe())),
        example => trouble.help(format!("add it, e.g. `{}: {example}`", field.name)),
    }
}

impl<'a> Map<'a> {
    /// Where it stands.
    pub fn span(&self) -> Span {
        self.node.span()
    }

    /// The node.
    pub fn node(&self) -> Node<'a> {
        self.node
    }

    /// The place that it was read as.
    pub fn place(&self) -> &'static Place {
        self.place
    }

    /// The value of a field, unless it is absent or null. The name is one of the table.
    pub fn get(&self, name: &'static str) -> Option<Value<'a>> {
        let Found { field, value, .. } = self.found(name)?;
        (value.kind() != NodeKind::Null).then(|| self.reader.value(field.name, *value, field.kind))
    }

    fn found(&self, name: &'static str) -> Option<&Found<'a>> {
        debug_assert!(self.place.field(name).is_some(), "the table of `{}` has no `{name}`", self.place.name);
        self.found.iter().find(|found| found.field.is_called(name))
    }

    /// Was it given, be it null?
    pub fn has(&self, name: &'static str) -> bool {
        self.key(name).is_some()
    }

    /// Where the key of a field stands.
    pub fn key(&self, name: &'static str) -> Option<Span> {
        self.found(name).map(|found| found.key.span())
    }

    /// The fields that were given, in the order of the text.
    pub fn given(&self) -> impl Iterator<Item = &'static Field> {
        self.found.iter().map(|found| found.field)
    }
}

/// The typed getters of a field: `map.whole("x")` is `map.get("x")?.whole()`.
macro_rules! getters {
    ($($name:ident -> $type:ty, $doc:literal;)*) => {
        impl<'a> Map<'a> {
            $(#[doc = $doc] pub fn $name(&self, name: &'static str) -> Option<$type> {
                self.get(name)?.$name()
            })*
        }
    };
}

getters! {
    text -> Spanned<&'a str>, "A [`Kind::Text`].";
    flag -> Spanned<bool>, "A [`Kind::Flag`].";
    whole -> Spanned<u64>, "A [`Kind::Whole`].";
    signed -> Spanned<i64>, "A [`Kind::Signed`].";
    duration -> Spanned<Micros>, "A [`Kind::Duration`].";
    instant -> Spanned<Micros>, "A [`Kind::Instant`].";
    bytes -> Spanned<u64>, "A [`Kind::Bytes`].";
    percent -> Spanned<Percent>, "A [`Kind::Percent`].";
    rate -> Spanned<Rate>, "A [`Kind::Rate`].";
    cidr -> Spanned<Cidr>, "A [`Kind::Cidr`].";
    socket -> Spanned<SocketAddr>, "A [`Kind::Socket`].";
    listen -> Spanned<ListenAt>, "A [`Kind::Listen`].";
    word -> Spanned<&'static str>, "A [`Kind::Word`], as the table spells it.";
    map -> Map<'a>, "A [`Kind::Map`].";
    list -> Values<'a>, "The items of a [`Kind::List`] or [`Kind::OneOrMore`].";
    names -> Names<'a>, "The entries of a [`Kind::MapOf`] or [`Kind::Names`].";
    node_of -> Node<'a>, "Whatever stands there.";
}
