//! Trees to values, by the tables of [`crate::fields`]. What does not fit is told, and the rest is read on: one run shows all.

use std::cell::RefCell;
use std::collections::HashSet;

use tidegate_core::Micros;

use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::fields::{Field, Kind, Place, Status, WORDS_SHOWN, Word, reachable};
use crate::near::nearest;
use crate::report::Report;
use crate::scalars::{self, Cidr, Percent, Wrong};
use crate::source::Span;
use crate::times::{self, Rate};
use crate::yaml::{Entries, Items, Node, NodeKind, Seen};

/// Reads nodes and collects what is wrong with them.
pub struct Reader {
    report: RefCell<Report>,
    /// Where keys may belong that stand where they do not.
    places: Vec<&'static Place>,
    /// What was already said not to work yet: once is enough for a file with 100 000 rules.
    told: RefCell<HashSet<(&'static str, &'static str)>>,
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
    /// What was found, in the order of the place's fields.
    found: Vec<Option<(Node<'a>, Node<'a>)>>,
}

/// A node, and what it has to be.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    reader: &'a Reader,
    /// What people call it, for messages.
    name: &'a str,
    node: Node<'a>,
    kind: Kind,
}

impl Reader {
    /// Whatever can be reached from these places is where a misplaced key may belong.
    pub fn new(roots: &[&'static Place]) -> Self {
        Self { report: RefCell::default(), places: reachable(roots), told: RefCell::default() }
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
        Value { reader: self, name, node, kind: choose(kind, node) }
    }

    /// Looks at everything below a node, for what the tables alone can tell.
    pub fn check<'a>(&'a self, name: &'a str, node: Node<'a>, kind: Kind) {
        self.value(name, node, kind).check();
    }

    fn entries_of<'a>(&'a self, node: Node<'a>, place: &'static Place) -> Vec<Option<(Node<'a>, Node<'a>)>> {
        let mut found: Vec<Option<(Node<'a>, Node<'a>)>> = vec![None; place.fields.len()];
        for (key, value) in node.entries() {
            let Some(name) = self.key(key) else { continue };
            match place.field(name) {
                Some((index, field)) => match found[index] {
                    Some((first, _)) => self.duplicate(name, key, first.span(), field.name),
                    None => {
                        self.not_yet(field.name, "", field.status, key.span());
                        found[index] = Some((key, value));
                    }
                },
                None if name.starts_with("x-") => {}
                None => self.say_with(Code::UnknownKey, || self.unknown(name, key.span(), place)),
            }
        }
        for (field, found) in place.fields.iter().zip(&found) {
            let absent = found.is_none_or(|(_, value)| value.kind() == NodeKind::Null);
            if field.required && absent {
                self.say_with(Code::MissingKey, || match found {
                    Some((key, _)) => missing(
                        field,
                        key.span(),
                        format!("`{}` has no value", field.name),
                        "nothing follows",
                    ),
                    None => {
                        let message = format!("`{}` is missing in `{}`", field.name, place.name);
                        missing(field, node.span(), message, "not in here")
                    }
                });
            }
        }
        found
    }

    /// The text of a key.
    fn key<'a>(&self, key: Node<'a>) -> Option<&'a str> {
        let text = key.text();
        if text.is_none() {
            self.say_with(Code::WrongType, || {
                Diagnostic::new(Code::WrongType, key.span(), "a key has to be a text")
                    .label(found(key))
                    .help("put the key in quotes; a value that begins with `{` needs them too")
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

/// What stands there, for messages.
fn found(node: Node<'_>) -> &'static str {
    match node.kind() {
        NodeKind::Scalar => "a single value",
        NodeKind::List => "a list",
        NodeKind::Map => "a map",
        NodeKind::Null => "nothing",
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
        let field = self.place.field(name);
        debug_assert!(field.is_some(), "the table of `{}` has no `{name}`", self.place.name);
        let (index, field) = field?;
        let (_, value) = self.found[index]?;
        (value.kind() != NodeKind::Null).then(|| self.reader.value(field.name, value, field.kind))
    }

    /// Was it given, be it null?
    pub fn has(&self, name: &'static str) -> bool {
        self.key(name).is_some()
    }

    /// Where the key of a field stands.
    pub fn key(&self, name: &'static str) -> Option<Span> {
        let (index, _) = self.place.field(name)?;
        self.found[index].map(|(key, _)| key.span())
    }

    /// The fields that were given, in the order of the table.
    pub fn given(&self) -> impl Iterator<Item = &'static Field> {
        self.place.fields.iter().zip(&self.found).filter(|(_, found)| found.is_some()).map(|(field, _)| field)
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
    word -> Spanned<&'static str>, "A [`Kind::Word`], as the table spells it.";
    map -> Map<'a>, "A [`Kind::Map`].";
    list -> Values<'a>, "The items of a [`Kind::List`] or [`Kind::OneOrMore`].";
    names -> Names<'a>, "The entries of a [`Kind::MapOf`] or [`Kind::Names`].";
    node_of -> Node<'a>, "Whatever stands there.";
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
    fn check(self) {
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
            let message = format!("{} has to be {kind}", quoted(self.name));
            let trouble = Diagnostic::new(Code::WrongType, self.node.span(), message)
                .label(format!("is {}", found(self.node)));
            match (self.kind, self.node.kind()) {
                (Kind::List(_), NodeKind::Scalar | NodeKind::Map) => {
                    trouble.help("begin each item with `- `")
                }
                (Kind::Map(_), NodeKind::List) => trouble.help("remove the dash (`- `) before its keys"),
                _ => trouble,
            }
        });
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
                    Diagnostic { help: wrong.help, ..trouble }
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
        node.map(|node| self.reader.value(self.name, node, self.kind))
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
fn choose(kind: Kind, node: Node<'_>) -> Kind {
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
            Kind::Word(words) => word(text, words).is_ok(),
            _ => true,
        }
    };
    let of_shape = || kinds.iter().filter(fits_shape);
    of_shape().find(fits).or_else(|| of_shape().next()).copied().unwrap_or(kind)
}
