//! What a body of JSON asks: a query, in the words of Envoy's protocol or in the short form, and what some verbs need besides.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use smallvec::SmallVec;
use tidegate_core::{Descriptor, Entry, Micros, OwnLimit, Query};

use super::check::Verb;
use super::error::HttpError;
use crate::rls::{DESCRIPTORS_MAX, ENTRIES_MAX};

/// How many checks one request may have.
const CHECKS_MAX: usize = 100;

/// A text that is borrowed from the body where it can be. (A name for `Cow` would not do: serde sees only what is called so.)
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// One object of a body.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub(super) struct Asked<'a> {
    /// The namespace of the rules; else the node's default.
    #[serde(borrow)]
    pub(super) domain: Option<Text<'a>>,
    /// The long form.
    #[serde(borrow)]
    descriptors: Option<AtMost<AskedDescriptor<'a>, DESCRIPTORS_MAX>>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number>,
    /// The short form.
    #[serde(borrow, alias = "client_id")]
    client_id: Option<Text<'a>>,
    #[serde(borrow)]
    endpoint: Option<Text<'a>>,
    cost: Option<i64>,
    /// The id of places, chosen by the caller.
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    /// `true` asks for a receipt; a text is one.
    #[serde(borrow)]
    pub(super) receipt: Option<Receipt<'a>>,
    /// How much of a charge to give back.
    pub(super) units: Option<u64>,
    /// What it turned out to cost.
    pub(super) actual: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Receipt<'a> {
    Wanted(bool),
    Id(#[serde(borrow)] Text<'a>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AskedDescriptor<'a> {
    #[serde(borrow, default)]
    entries: AtMost<AskedEntry<'a>, ENTRIES_MAX>,
    #[serde(alias = "hits_addend")]
    hits_addend: Option<Number>,
    #[serde(alias = "is_negative_hits", default)]
    is_negative_hits: bool,
    limit: Option<AskedLimit>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedEntry<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow, default)]
    value: Text<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct AskedLimit {
    #[serde(alias = "requests_per_unit")]
    requests_per_unit: Number,
    unit: AskedUnit,
    #[serde(alias = "unit_multiplier")]
    unit_multiplier: Option<Number>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum AskedUnit {
    #[serde(alias = "unknown")]
    Unknown,
    #[serde(alias = "second")]
    Second,
    #[serde(alias = "minute")]
    Minute,
    #[serde(alias = "hour")]
    Hour,
    #[serde(alias = "day")]
    Day,
    #[serde(alias = "week")]
    Week,
    #[serde(alias = "month")]
    Month,
    #[serde(alias = "year")]
    Year,
}

impl AskedUnit {
    fn seconds(self) -> Option<u64> {
        Some(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
            Self::Unknown => return None,
        })
    }
}

/// A list that is not read further than it may be long.
#[derive(Debug)]
pub(super) struct AtMost<T, const MAX: usize>(Vec<T>);

impl<T, const MAX: usize> Default for AtMost<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = AtMost<T, MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(item) = items.next_element()? {
                    if all.len() == MAX {
                        return Err(serde::de::Error::custom(format!("{TOO_MANY} {MAX} items,")));
                    }
                    all.push(item);
                }
                Ok(AtMost(all))
            }
        }
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

/// What is said about a list that is too long, before the number that it may have.
const TOO_MANY: &str = "a list is too long: it may have";

/// A number, which the JSON of protobuf may write as a text.
#[derive(Clone, Copy, Debug)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a whole number, not negative")]
        enum Either<'a> {
            Number(u64),
            Text(#[serde(borrow)] Text<'a>),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(number) => Ok(Self(number)),
            Either::Text(text) => text.parse().map(Self).map_err(serde::de::Error::custom),
        }
    }
}

/// What a body asks: one thing, or several, each for itself.
#[derive(Debug)]
pub(super) enum Body<'a> {
    One(Box<Asked<'a>>),
    Several(Vec<Asked<'a>>),
}

impl<'a> Body<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, HttpError> {
        let wrong = |error: serde_json::Error| match error.to_string() {
            text if text.starts_with(TOO_MANY) => HttpError::too_large(text),
            text => HttpError::invalid(format!("the body is not understood: {text}")),
        };
        if bytes.trim_ascii_start().first() != Some(&b'[') {
            return serde_json::from_slice(bytes).map(|asked| Self::One(Box::new(asked))).map_err(wrong);
        }
        let AtMost(several): AtMost<Asked<'a>, CHECKS_MAX> = serde_json::from_slice(bytes).map_err(wrong)?;
        if several.is_empty() {
            return Err(HttpError::invalid("an empty list asks nothing"));
        }
        Ok(Self::Several(several))
    }
}

/// The parts of a query, which borrows from them.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    domain: &'a str,
    entries: SmallVec<[Entry<'a>; 16]>,
    descriptors: SmallVec<[Descriptor; 4]>,
    lease: Option<&'a str>,
}

impl<'a> Parts<'a> {
    /// The same, in another domain.
    pub(super) fn move_to(&mut self, domain: &'a str) {
        self.domain = domain;
    }

    pub(super) fn query(&self) -> Query<'_> {
        Query {
            domain: self.domain,
            entries: &self.entries,
            descriptors: &self.descriptors,
            lease: self.lease,
        }
    }
}

impl Asked<'_> {
    /// Is there what a verb needs, and nothing that it would ignore?
    pub(super) fn fits(&self, verb: Verb) -> Result<(), HttpError> {
        let said = [
            ("id", self.id.is_some(), matches!(verb, Verb::Acquire | Verb::Renew | Verb::Release)),
            ("units", self.units.is_some(), verb == Verb::Refund),
            ("actual", self.actual.is_some(), verb == Verb::Settle),
            (
                "receipt",
                self.receipt.is_some(),
                matches!(verb, Verb::Check | Verb::Acquire | Verb::Refund | Verb::Settle),
            ),
        ];
        if let Some((name, ..)) = said.iter().find(|(_, is_said, has_meaning)| *is_said && !has_meaning) {
            return Err(HttpError::invalid(format!("\"{name}\" has no meaning here")));
        }
        let needs = |what: &str| Err(HttpError::invalid(format!("{what} is missing")));
        match (verb, &self.receipt) {
            (Verb::Acquire | Verb::Renew | Verb::Release, _) if self.id.is_none() => {
                needs("\"id\", by which the places are known,")
            }
            (Verb::Settle, _) if self.actual.is_none() => needs("\"actual\", what it turned out to cost,"),
            (Verb::Settle | Verb::Refund, None | Some(Receipt::Wanted(_))) => {
                needs("\"receipt\", the text that a check with \"receipt\": true answered,")
            }
            (Verb::Check | Verb::Acquire, Some(Receipt::Id(_))) => {
                Err(HttpError::invalid("\"receipt\" is true or false here: is one wanted?"))
            }
            _ => Ok(()),
        }
    }

    /// The query that it means. `default_domain` is where it does not name one.
    pub(super) fn parts<'a>(
        &'a self,
        default_domain: Option<&'a str>,
        lease: Option<&'a str>,
    ) -> Result<Parts<'a>, HttpError> {
        let domain = self.domain.as_deref().or(default_domain).ok_or_else(|| {
            HttpError::invalid(
                "which domain? there are several: name one as \"domain\", or set http.default_domain for the node",
            )
        })?;
        let mut parts = Parts { domain, entries: SmallVec::new(), descriptors: SmallVec::new(), lease };
        match (&self.descriptors, &self.client_id) {
            (Some(_), Some(_)) => {
                return Err(HttpError::invalid("\"descriptors\" or \"clientId\", not both"));
            }
            (None, None) => {
                return Err(HttpError::invalid(
                    "who asks? send \"descriptors\", or \"clientId\" and perhaps \"endpoint\"",
                ));
            }
            (None, Some(client)) => self.short(client, &mut parts)?,
            (Some(AtMost(descriptors)), None) => self.long(descriptors, &mut parts)?,
        }
        Ok(parts)
    }

    fn short<'a>(&'a self, client: &'a str, parts: &mut Parts<'a>) -> Result<(), HttpError> {
        if self.hits_addend.is_some() {
            return Err(HttpError::invalid(
                "\"hitsAddend\" belongs to \"descriptors\"; with \"clientId\" it is \"cost\"",
            ));
        }
        parts.entries.push(Entry { key: "api_key", value: client });
        if let Some(endpoint) = &self.endpoint {
            parts.entries.push(Entry { key: "endpoint", value: endpoint });
        }
        let entries = 0..parts.entries.len();
        parts.descriptors.push(Descriptor {
            entries,
            cost: self.cost.unwrap_or(1),
            limit: None,
            own_cost: false,
        });
        Ok(())
    }

    fn long<'a>(
        &'a self,
        descriptors: &'a [AskedDescriptor<'a>],
        parts: &mut Parts<'a>,
    ) -> Result<(), HttpError> {
        if self.endpoint.is_some() || self.cost.is_some() {
            return Err(HttpError::invalid(
                "\"endpoint\" and \"cost\" belong to \"clientId\"; with \"descriptors\" write an entry, and \"hitsAddend\"",
            ));
        }
        if descriptors.is_empty() {
            return Err(HttpError::invalid("an empty list of descriptors asks nothing"));
        }
        let entries: usize = descriptors.iter().map(|descriptor| descriptor.entries.0.len()).sum();
        if entries > ENTRIES_MAX {
            let (count, caps) = (descriptors.len(), format!("{DESCRIPTORS_MAX} and {ENTRIES_MAX}"));
            let message = format!("{count} descriptors with {entries} entries; a request may have {caps}");
            return Err(HttpError::too_large(message));
        }
        for descriptor in descriptors {
            let from = parts.entries.len();
            let entry = |entry: &'a AskedEntry<'a>| Entry { key: &entry.key, value: &entry.value };
            parts.entries.extend(descriptor.entries.0.iter().map(entry));
            let of_request = self.hits_addend.map_or(1, |Number(hits)| hits.max(1));
            let hits = descriptor.hits_addend.map_or(of_request, |Number(hits)| hits);
            let hits = i64::try_from(hits).unwrap_or(i64::MAX);
            parts.descriptors.push(Descriptor {
                entries: from..parts.entries.len(),
                cost: if descriptor.is_negative_hits { -hits } else { hits },
                limit: descriptor.limit.as_ref().and_then(AskedLimit::own),
                own_cost: descriptor.hits_addend.is_some(),
            });
        }
        Ok(())
    }
}

impl AskedLimit {
    /// None if its unit is not known: then the rules hold.
    fn own(&self) -> Option<OwnLimit> {
        let multiplier = self.unit_multiplier.map_or(1, |Number(multiplier)| multiplier);
        let seconds = self.unit.seconds()?.saturating_mul(multiplier);
        // More seconds than there are is no window either; it is refused as such.
        let window = Micros::new(seconds.saturating_mul(1_000_000));
        Some(OwnLimit { amount: self.requests_per_unit.0, window })
    }
}
