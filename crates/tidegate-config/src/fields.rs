//! Tables of what may stand where. The reader, the schema and the documents are made from them, so that they cannot
//! disagree.

use tidegate_core::Micros;

/// A map of which we know the keys.
#[derive(Debug)]
pub struct Place {
    /// What people call it, such as `rate_limit`.
    pub name: &'static str,
    /// What it is for, in a sentence or two.
    pub doc: &'static str,
    /// What may stand in it.
    pub fields: &'static [Field],
}

/// A key that may stand in a [`Place`].
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The key.
    pub name: &'static str,
    /// Other spellings that are taken as well.
    pub aliases: &'static [&'static str],
    /// What its value has to be.
    pub kind: Kind,
    /// What it is for, in a sentence or two.
    pub doc: &'static str,
    /// What holds without it, for the documents; empty if there is nothing to say.
    pub default: &'static str,
    /// A value, as written in YAML; empty if there is nothing to show.
    pub example: &'static str,
    /// Is a map without it refused?
    pub required: bool,
    /// Whether envoyproxy/ratelimit knows it.
    pub origin: Origin,
    /// Whether it does something yet.
    pub status: Status,
}

/// Where a key comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// envoyproxy/ratelimit has it, and it means the same.
    Reference,
    /// It is ours; envoyproxy/ratelimit would refuse it.
    Ours,
}

/// Whether something has an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// It has.
    Works,
    /// Not yet: what holds instead, to follow "is understood but", such as "works as `exact` until leases are there".
    Later(&'static str),
}

/// What a value has to be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any single value, as written: `5`, `true` and `x` are texts.
    Text,
    /// True or false, in the words of YAML 1.1.
    Flag,
    /// A whole number.
    Whole {
        /// The smallest.
        min: u64,
        /// The largest.
        max: u64,
    },
    /// A whole number that may be negative.
    Signed {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// A time that passes: `1h30m`.
    Duration {
        /// The shortest.
        min: Micros,
        /// The longest.
        max: Micros,
    },
    /// A point in time: `2026-01-01T00:00:00Z`.
    Instant,
    /// An amount of memory: `32MiB`.
    Bytes {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// From `0%` to `100%`.
    Percent,
    /// An amount and a window: `100/min`.
    Rate,
    /// One of a few words, in any case.
    Word(&'static [Word]),
    /// An address or a range of addresses.
    Cidr,
    /// An address and a port.
    Socket,
    /// The same, or `unix:` and the path of a socket.
    Listen,
    /// A list.
    List(&'static Kind),
    /// A list, or a single thing in its place.
    OneOrMore(&'static Kind),
    /// A map of which we know the keys.
    Map(&'static Place),
    /// A map from names that are up to the writer.
    MapOf(&'static Place),
    /// A map from names that are up to the writer to single values or lists.
    Names(&'static Kind),
    /// Any YAML.
    Free,
    /// The first of these that fits.
    Either(&'static [Kind]),
}

/// One of the words of a [`Kind::Word`].
#[derive(Debug)]
pub struct Word {
    /// The word, which readers are given whatever spelling was used.
    pub name: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// What it means.
    pub doc: &'static str,
    /// Whether it does something yet.
    pub status: Status,
}

impl Place {
    /// The field of this name or alias.
    pub fn field(&self, name: &str) -> Option<(usize, &'static Field)> {
        self.fields.iter().enumerate().find(|(_, field)| field.is_called(name))
    }

    /// The first field that has an example.
    pub fn example(&self) -> Option<&'static Field> {
        self.fields.iter().find(|field| !field.example.is_empty())
    }
}

impl Field {
    /// Optional, known to the reference, working. The methods below say otherwise.
    pub const fn new(name: &'static str, kind: Kind, doc: &'static str) -> Self {
        Self {
            name,
            aliases: &[],
            kind,
            doc,
            default: "",
            example: "",
            required: false,
            origin: Origin::Reference,
            status: Status::Works,
        }
    }

    /// With other spellings.
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// With what holds without it.
    pub const fn default(mut self, default: &'static str) -> Self {
        self.default = default;
        self
    }

    /// With a value as written in YAML.
    pub const fn example(mut self, example: &'static str) -> Self {
        self.example = example;
        self
    }

    /// A map without it is refused.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// envoyproxy/ratelimit does not know it.
    pub const fn ours(mut self) -> Self {
        self.origin = Origin::Ours;
        self
    }

    /// Has no effect yet; see [`Status::Later`].
    pub const fn later(mut self, instead: &'static str) -> Self {
        self.status = Status::Later(instead);
        self
    }

    /// Is this its name, or one of its aliases?
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

impl Word {
    /// Without other spellings, working.
    pub const fn new(name: &'static str, doc: &'static str) -> Self {
        Self { name, aliases: &[], doc, status: Status::Works }
    }

    /// With other spellings.
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Has no effect yet; see [`Status::Later`].
    pub const fn later(mut self, instead: &'static str) -> Self {
        self.status = Status::Later(instead);
        self
    }

    /// Every spelling.
    pub fn spellings(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }
}

/// How many words of a [`Kind::Word`] a message lists.
pub(crate) const WORDS_SHOWN: usize = 6;

impl Kind {
    /// Any whole number.
    pub const ANY_WHOLE: Self = Self::Whole { min: 0, max: u64::MAX };
    /// Any duration but none.
    pub const ANY_DURATION: Self = Self::Duration { min: Micros::new(1), max: Micros::MAX };

    /// For messages: "a whole number".
    pub fn describe(self) -> String {
        match self {
            Self::Text => "a text".into(),
            Self::Flag => "`true` or `false`".into(),
            Self::Whole { .. } | Self::Signed { .. } => "a whole number".into(),
            Self::Duration { .. } => "a duration such as `15m`".into(),
            Self::Instant => "a date and time such as `2026-01-01T00:00:00Z`".into(),
            Self::Bytes { .. } => "a size such as `32MiB`".into(),
            Self::Percent => "a percentage such as `25%`".into(),
            Self::Rate => "a rate such as `100/min`".into(),
            Self::Word(words) => {
                let shown = words.iter().take(WORDS_SHOWN).map(|word| format!("`{}`", word.name));
                let more = if words.len() > WORDS_SHOWN { ", …" } else { "" };
                format!("one of {}{more}", shown.collect::<Vec<_>>().join(", "))
            }
            Self::Socket => "an address and a port such as `127.0.0.1:8080`".into(),
            Self::Listen => "an address and a port such as `127.0.0.1:8080`, or a socket such as `unix:/run/tidegate.sock`".into(),
            Self::Cidr => "an address range such as `10.0.0.0/8`".into(),
            Self::List(of) => format!("a list, each {}", of.describe()),
            Self::OneOrMore(of) => format!("{}, or a list of such", of.describe()),
            Self::Map(place) => format!("a map ({})", place.name),
            Self::MapOf(place) => format!("a map of names, each a map ({})", place.name),
            Self::Names(of) => format!("a map of names, each {}", of.describe()),
            Self::Free => "anything".into(),
            Self::Either(kinds) => kinds.iter().map(|kind| kind.describe()).collect::<Vec<_>>().join(", or "),
        }
    }
}

/// Every place that can be reached from these, themselves first, each once.
pub fn reachable(roots: &[&'static Place]) -> Vec<&'static Place> {
    let mut places: Vec<&'static Place> = Vec::new();
    let mut kinds: Vec<Kind> = roots.iter().rev().map(|root| Kind::Map(root)).collect();
    while let Some(kind) = kinds.pop() {
        match kind {
            Kind::Map(place) | Kind::MapOf(place)
                if !places.iter().any(|known| std::ptr::eq(*known, place)) =>
            {
                places.push(place);
                kinds.extend(place.fields.iter().rev().map(|field| field.kind));
            }
            Kind::List(of) | Kind::OneOrMore(of) | Kind::Names(of) => kinds.push(*of),
            Kind::Either(of) => kinds.extend(of.iter().rev()),
            _ => {}
        }
    }
    places
}
