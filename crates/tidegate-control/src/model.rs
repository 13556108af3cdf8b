//! What is kept. Plain values, which say themselves what cannot be kept of them.
//!
//! Times are microseconds since 1970. What is written to the audit trail as before and after is the JSON of these types.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The number of the last change of the whole control plane. It grows by one with each, without gaps.
pub type Revision = u64;

/// What a lost update is found by. Of a rule: 1, 2, …; of anything else: the revision of its last change. 0 is the version of nothing.
pub type Version = u64;

/// Bounds of what is kept.
pub struct Limits;

impl Limits {
    /// Bytes of an API key, and of names that people give.
    pub const NAME_BYTES: usize = 256;
    /// Bytes of the name of a tier or of the id of a rule.
    pub const ID_BYTES: usize = 64;
    /// Bytes of an override's descriptor.
    pub const DESCRIPTOR_BYTES: usize = 1024;
    /// Overrides of one key or tier.
    pub const OVERRIDES: usize = 64;
    /// Bytes of a rule's document.
    pub const DOCUMENT_BYTES: usize = 1 << 20;
    /// Bytes of a compiled rule's id, as the kill switch names it.
    pub const RULE_BYTES: usize = 4096;
    /// Things on one page, and records in one bulk change.
    pub const PAGE: usize = 1000;
    /// The last instant of the year 9999, which both databases and all who print dates can hold.
    pub const TIME_US: i64 = 253_402_300_799_999_999;
}

/// Who changes something, for the audit trail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Who {
    /// The token's name, `cli`, `node`.
    pub actor: String,
    /// Where it came from: an address.
    pub origin: String,
}

impl Who {
    /// Somebody from somewhere.
    pub fn new(actor: impl Into<String>, origin: impl Into<String>) -> Self {
        Self { actor: actor.into(), origin: origin.into() }
    }

    pub(crate) fn check(&self) -> Result<()> {
        text("actor", &self.actor, Limits::NAME_BYTES)?;
        optional_text("origin", Some(&self.origin).filter(|origin| !origin.is_empty()), Limits::NAME_BYTES)
    }
}

/// Something as it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored<T> {
    /// What it is.
    #[serde(flatten)]
    pub value: T,
    /// The revision of its last change.
    pub version: Version,
    /// When it was first written.
    pub created_at: i64,
    /// When it was last changed.
    pub updated_at: i64,
}

/// What has become of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written<T> {
    /// What is stored now.
    pub now: T,
    /// What the write did.
    pub outcome: Outcome,
}

/// What a write did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was not there before.
    Created,
    /// It was different before.
    Updated,
    /// It was like this before: nothing was written, the audit trail included.
    Unchanged,
}

/// Some of many, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page<T> {
    /// These.
    pub items: Vec<T>,
    /// What to ask for the next page with, if there is one.
    pub next: Option<String>,
}

/// The record of one API key.
pub type QuotaKey = Stored<Quota>;

/// What is agreed with the holder of one API key.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Quota {
    /// Whose.
    pub api_key: String,
    /// The domain it is about; without one, the node's default domain.
    pub domain: Option<String>,
    /// The tier, which holds at once.
    pub tier: Option<String>,
    /// The client behind the key.
    pub client_id: Option<String>,
    /// The user behind the key, whose rules judge it too.
    pub user_id: Option<String>,
    /// Never limited.
    pub whitelisted: bool,
    /// Its own limits, by descriptor, in the order of these.
    pub overrides: Vec<Override>,
}

impl Quota {
    /// A key of which nothing is said.
    pub fn of(api_key: impl Into<String>) -> Self {
        Self { api_key: api_key.into(), ..Self::default() }
    }

    /// The same with its overrides in order, if it can be kept.
    pub(crate) fn checked(mut self) -> Result<Self> {
        text("api_key", &self.api_key, Limits::NAME_BYTES)?;
        optional_text("domain", self.domain.as_ref(), Limits::NAME_BYTES)?;
        self.tier.as_deref().map_or(Ok(()), |tier| tier_name("tier", tier))?;
        optional_text("client_id", self.client_id.as_ref(), Limits::NAME_BYTES)?;
        optional_text("user_id", self.user_id.as_ref(), Limits::NAME_BYTES)?;
        overrides(&mut self.overrides)?;
        Ok(self)
    }
}

/// One key's own limit for a descriptor.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Override {
    /// The path below the caller's entry, `key:value` joined by `|`; `default` is the caller's own rule.
    pub descriptor: String,
    /// How much.
    pub requests_per_unit: u32,
    /// In how long.
    pub unit: Unit,
    /// From when on; at once without.
    pub effective_at: Option<i64>,
    /// Until when; for good without.
    pub expires_at: Option<i64>,
}

/// How long a window is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "they are what they say")]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// What every key of a tier has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tier {
    /// Which.
    pub name: String,
    /// Its limits, by descriptor, in the order of these. They have no times.
    pub overrides: Vec<Override>,
}

impl Tier {
    pub(crate) fn checked(mut self) -> Result<Self> {
        tier_name("name", &self.name)?;
        overrides(&mut self.overrides)?;
        let timed = |one: &Override| one.effective_at.is_some() || one.expires_at.is_some();
        match self.overrides.iter().position(timed) {
            Some(at) => Err(Error::invalid(format!("overrides[{at}]"), "limits of a tier have no times")),
            None => Ok(self),
        }
    }
}

/// A rule that was written by the API.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleDocument {
    /// Which.
    pub id: String,
    /// 1, 2, …: it goes on where it was when a rule that was deleted is written again.
    pub version: Version,
    /// JSON. What it means is judged elsewhere.
    pub document: String,
    /// The revision of its last change.
    pub revision: Revision,
    /// When this id was first written, or written again after it was deleted.
    pub created_at: i64,
    /// When it was last changed.
    pub updated_at: i64,
}

/// What a rule was at some time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleVersion {
    /// Of which rule.
    pub id: String,
    /// 1, 2, …
    pub version: Version,
    /// None: it was deleted.
    pub document: Option<String>,
    /// The revision that made it so.
    pub revision: Revision,
    /// When.
    pub at: i64,
    /// By whom.
    pub actor: String,
}

/// The kill switch of one rule, wherever that came from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleState {
    /// The id of a compiled rule, or of one that was written by the API.
    pub rule: String,
    /// What it does.
    pub state: State,
    /// Until when; for good without.
    pub expires_at: Option<i64>,
}

impl RuleState {
    pub(crate) fn check(&self) -> Result<()> {
        rule_name(&self.rule)?;
        if let State::EnforceShare { basis_points: ..=10_000 }
        | State::Enforce
        | State::Shadow
        | State::Disabled = self.state
        {
            return time("expires_at", self.expires_at);
        }
        Err(Error::invalid("state", "more than 100 %"))
    }
}

/// What a rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum State {
    /// Decides for everybody.
    Enforce,
    /// Decides for a part of the callers, speaks for the others.
    EnforceShare {
        /// In hundredths of a per cent.
        basis_points: u16,
    },
    /// Speaks, and never decides.
    Shadow,
    /// As if it were not there.
    Disabled,
}

impl fmt::Display for State {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enforce => to.write_str("enforce"),
            Self::Shadow => to.write_str("shadow"),
            Self::Disabled => to.write_str("disabled"),
            Self::EnforceShare { basis_points } => match (basis_points / 100, basis_points % 100) {
                (percent, 0) => write!(to, "enforce {percent}%"),
                (percent, hundredths) => write!(to, "enforce {percent}.{hundredths:02}%"),
            },
        }
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(said: &str) -> std::result::Result<Self, String> {
        match said {
            "enforce" => return Ok(Self::Enforce),
            "shadow" => return Ok(Self::Shadow),
            "disabled" => return Ok(Self::Disabled),
            _ => {}
        }
        share(said)
            .map(|basis_points| Self::EnforceShare { basis_points })
            .ok_or_else(|| format!("`{said}` is none of `enforce`, `enforce N%`, `shadow`, `disabled`"))
    }
}

/// `enforce 12.5%` in hundredths of a per cent.
fn share(said: &str) -> Option<u16> {
    let number = said.strip_prefix("enforce ")?.strip_suffix('%')?;
    let (percent, rest) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if percent.is_empty() || percent.len() > 3 || rest.len() > 2 || !digits(percent) || !digits(rest) {
        return None;
    }
    let basis_points = percent.parse::<u16>().ok()? * 100 + format!("{rest:0<2}").parse::<u16>().ok()?;
    (basis_points <= 10_000).then_some(basis_points)
}

impl From<State> for String {
    fn from(state: State) -> Self {
        state.to_string()
    }
}

impl TryFrom<String> for State {
    type Error = String;

    fn try_from(said: String) -> std::result::Result<Self, String> {
        said.parse()
    }
}

/// What a token may do. Each may do what those before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Look at everything but tokens.
    Read,
    /// Change quotas, tiers and rules.
    Write,
    /// Everything, tokens included.
    Admin,
}

/// A token to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewToken {
    /// The first characters of the secret, which it is found by.
    pub prefix: String,
    /// The secret's hash, keyed by [`crate::ControlStore::token_key`].
    pub hash: [u8; 32],
    /// What it may do.
    pub scope: Scope,
    /// The only domain that it may do this to.
    pub tenant: Option<String>,
    /// For people, and for the audit trail.
    pub name: String,
    /// Until when; for good without.
    pub expires_at: Option<i64>,
}

impl NewToken {
    pub(crate) fn check(&self) -> Result<()> {
        id("prefix", &self.prefix)?;
        text("name", &self.name, Limits::NAME_BYTES)?;
        optional_text("tenant", self.tenant.as_ref(), Limits::NAME_BYTES)?;
        time("expires_at", self.expires_at)
    }
}

/// A bearer of rights. Its secret is nowhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Which.
    pub id: String,
    /// The first characters of the secret.
    pub prefix: String,
    /// The secret's keyed hash, which no answer and no audit trail shows.
    #[serde(skip)]
    pub hash: [u8; 32],
    /// What it may do.
    pub scope: Scope,
    /// The only domain that it may do this to.
    pub tenant: Option<String>,
    /// For people.
    pub name: String,
    /// When it was made.
    pub created_at: i64,
    /// By whom.
    pub created_by: String,
    /// Until when; for good without.
    pub expires_at: Option<i64>,
    /// Since when it is worth nothing.
    pub revoked_at: Option<i64>,
}

impl fmt::Debug for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Token").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// What was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "they are what they say")]
pub enum Action {
    Create,
    Update,
    Delete,
    Rollback,
    Revoke,
    Reset,
    Restore,
}

/// What it was done to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The record of a key; the subject is the key.
    Quota,
    /// A tier; the subject is its name.
    Tier,
    /// A rule by API; the subject is its id.
    Rule,
    /// A kill switch; the subject is the rule.
    RuleState,
    /// A token; the subject is its id.
    Token,
    /// Counters, which are not kept here; the subject says which.
    Usage,
    /// All that is kept, which was filled from a backup; the subject is `all`.
    Database,
    /// Something that only a newer Tidegate knows.
    Unknown,
}

/// Names of values that are kept as text.
macro_rules! names {
    ($type:ty { $($value:ident = $name:literal),+ $(,)? }) => {
        impl $type {
            /// As it is written.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $name),+ }
            }
        }
        impl FromStr for $type {
            type Err = String;

            fn from_str(said: &str) -> std::result::Result<Self, String> {
                match said {
                    $($name => Ok(Self::$value),)+
                    _ => Err(format!("`{said}` is none of {}", [$(concat!("`", $name, "`")),+].join(", "))),
                }
            }
        }
    };
}

names!(Unit {
    Second = "second",
    Minute = "minute",
    Hour = "hour",
    Day = "day",
    Week = "week",
    Month = "month",
    Year = "year"
});
names!(Scope { Read = "read", Write = "write", Admin = "admin" });
names!(Action {
    Create = "create",
    Update = "update",
    Delete = "delete",
    Rollback = "rollback",
    Revoke = "revoke",
    Reset = "reset",
    Restore = "restore"
});
names!(Kind {
    Quota = "quota",
    Tier = "tier",
    Rule = "rule",
    RuleState = "rule_state",
    Token = "token",
    Usage = "usage",
    Database = "database",
    Unknown = "unknown"
});

/// Which keys to list. All of these hold together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaFilter {
    /// Of this tier.
    pub tier: Option<String>,
    /// That begin so.
    pub prefix: Option<String>,
    /// Of this user.
    pub user_id: Option<String>,
    /// Of this client.
    pub client_id: Option<String>,
    /// With an override that ends before this time; one without an end does not.
    pub expires_before: Option<i64>,
    /// With an override that ends at this time or later: the same one, where both are said.
    pub expires_after: Option<i64>,
}

/// Which rows of the audit trail to list. All of these hold together.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditFilter {
    /// From this row on.
    pub since_seq: Option<Revision>,
    /// Up to this row, which is still listed.
    pub until_seq: Option<Revision>,
    /// Not before this time.
    pub since: Option<i64>,
    /// Before this time.
    pub until: Option<i64>,
    /// By this actor.
    pub actor: Option<String>,
    /// About things of this kind.
    pub kind: Option<Kind>,
    /// About this one.
    pub subject: Option<String>,
}

/// Which rows come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AuditOrder {
    /// The first that was written.
    #[default]
    OldestFirst,
    /// The last.
    NewestFirst,
}

/// Where the audit trail ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The number of its last row, which is the revision of the whole.
    pub seq: Revision,
    /// That row's hash.
    pub hash: [u8; crate::audit::HASH_BYTES],
}

/// What looking over a part of the audit trail found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verification {
    /// Every row is as it was written, and none is missing.
    Intact {
        /// So many rows.
        rows: u64,
        /// The last of them.
        last: Head,
    },
    /// Somebody has changed something.
    Broken(crate::audit::Broken),
}

/// That something has changed. What it is now, one reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The revision that it came with.
    pub seq: Revision,
    /// What has changed.
    pub kind: Kind,
    /// Which one.
    pub subject: String,
    /// The hash of this row of the audit trail; none if it is not as long as a hash.
    pub hash: Option<[u8; crate::audit::HASH_BYTES]>,
}

/// What has changed since some revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// The first of them, in order.
    pub changes: Vec<Change>,
    /// The hash of the row that they come after, if it is there. If it is another than it was, the store was put back, as with a smaller
    /// head.
    pub since: Option<[u8; crate::audit::HASH_BYTES]>,
    /// The revision that the store was at. If it is below the one asked about, the store was put back, and all has to be read again.
    pub head: Revision,
}

/// How much of a calendar period was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usage {
    /// The key of the counter.
    pub key: u128,
    /// When the period began.
    pub period_start: i64,
    /// So much.
    pub used: i64,
}

/// What a node saw of a calendar period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spending {
    /// How much of it was used then.
    pub usage: Usage,
    /// How much the node saw given back since it told the last time.
    pub given_back: i64,
    /// When it saw that, in µs since 1970.
    pub at: i64,
}

impl Spending {
    /// Sights of the same moment may be told in the wrong order.
    const MOMENT_US: u64 = 50_000;

    /// What this and another sight of the same period come to: the later one, but of the same moment the larger, unless something was given
    /// back.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let given_back = self.given_back.saturating_add(other.given_back);
        let later = if self.at <= other.at { other } else { self };
        let used = match given_back == 0 && self.at.abs_diff(other.at) < Self::MOMENT_US {
            true => self.usage.used.max(other.usage.used),
            false => later.usage.used,
        };
        Self { usage: Usage { used, ..self.usage }, given_back, at: self.at.max(other.at) }
    }
}

/// A part of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotPage {
    /// Tiers.
    Tiers(Vec<Stored<Tier>>),
    /// Rules by API.
    Rules(Vec<RuleDocument>),
    /// Kill switches.
    RuleStates(Vec<Stored<RuleState>>),
    /// Records of keys.
    Quotas(Vec<QuotaKey>),
}

/// Of a rule that is written by the API.
pub(crate) fn rule_id(said: &str) -> Result<()> {
    id("id", said)
}

/// Of any rule. It holds what people wrote in files, so all that is refused is what PostgreSQL cannot hold.
pub(crate) fn rule_name(said: &str) -> Result<()> {
    match said {
        "" => Err(Error::invalid("rule", "is empty")),
        long if long.len() > Limits::RULE_BYTES => {
            Err(Error::invalid("rule", format!("is longer than {} bytes", Limits::RULE_BYTES)))
        }
        odd if odd.contains('\0') => Err(Error::invalid("rule", "has a NUL character")),
        _ => Ok(()),
    }
}

/// The document of a rule, as JSON.
pub(crate) fn document(said: &str) -> Result<serde_json::Value> {
    if said.len() > Limits::DOCUMENT_BYTES {
        return Err(Error::invalid("document", format!("is longer than {} bytes", Limits::DOCUMENT_BYTES)));
    }
    serde_json::from_str(said).map_err(|error| Error::invalid("document", format!("is no JSON: {error}")))
}

fn overrides(all: &mut [Override]) -> Result<()> {
    if all.len() > Limits::OVERRIDES {
        return Err(Error::invalid("overrides", format!("more than {}", Limits::OVERRIDES)));
    }
    for (at, one) in all.iter().enumerate() {
        let field = |name: &str| format!("overrides[{at}].{name}");
        text(&field("descriptor"), &one.descriptor, Limits::DESCRIPTOR_BYTES)?;
        time(&field("effective_at"), one.effective_at)?;
        time(&field("expires_at"), one.expires_at)?;
        if one.effective_at.zip(one.expires_at).is_some_and(|(from, until)| until <= from) {
            return Err(Error::invalid(field("expires_at"), "is not after effective_at"));
        }
        if all[..at].iter().any(|other| other.descriptor == one.descriptor) {
            return Err(Error::invalid(field("descriptor"), "is there twice"));
        }
    }
    all.sort_by(|one, other| one.descriptor.cmp(&other.descriptor));
    Ok(())
}

fn tier_name(field: &str, said: &str) -> Result<()> {
    letters(field, said, "_.-")
}

fn id(field: &str, said: &str) -> Result<()> {
    letters(field, said, "_.:-")
}

fn letters(field: &str, said: &str, also: &str) -> Result<()> {
    if said.is_empty() || said.len() > Limits::ID_BYTES {
        return Err(Error::invalid(
            field,
            format!("has {} bytes, 1 to {} are allowed", said.len(), Limits::ID_BYTES),
        ));
    }
    let fits = |letter: char| letter.is_ascii_alphanumeric() || also.contains(letter);
    match said.chars().find(|letter| !fits(*letter)) {
        Some(odd) => {
            Err(Error::invalid(field, format!("has {odd:?}; letters, digits and {also} are allowed")))
        }
        None => Ok(()),
    }
}

pub(crate) fn text(field: &str, said: &str, bytes_max: usize) -> Result<()> {
    if said.is_empty() || said.len() > bytes_max {
        return Err(Error::invalid(field, format!("has {} bytes, 1 to {bytes_max} are allowed", said.len())));
    }
    if said.chars().any(char::is_control) {
        return Err(Error::invalid(field, "has a control character"));
    }
    Ok(())
}

fn optional_text(field: &str, said: Option<&String>, bytes_max: usize) -> Result<()> {
    said.map_or(Ok(()), |said| text(field, said, bytes_max))
}

fn time(field: &str, at: Option<i64>) -> Result<()> {
    match at {
        Some(at) if !(0..=Limits::TIME_US).contains(&at) => {
            Err(Error::invalid(field, "is not between the years 1970 and 9999"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_they_are_written() {
        for said in [
            "enforce",
            "enforce 25%",
            "enforce 0.05%",
            "enforce 12.50%",
            "enforce 100%",
            "shadow",
            "disabled",
        ] {
            let state: State = said.parse().expect(said);
            assert_eq!(state.to_string(), said);
        }
        assert_eq!("enforce 12.5%".parse(), Ok(State::EnforceShare { basis_points: 1250 }));
        for odd in [
            "",
            "enforce 101%",
            "enforce 1.234%",
            "enforce %",
            "enforce -1%",
            "enforce +1%",
            "off",
            "enforce 9999%",
        ] {
            assert!(odd.parse::<State>().is_err(), "{odd}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_named() {
        let one = |descriptor: &str| Override {
            descriptor: descriptor.into(),
            requests_per_unit: 1,
            unit: Unit::Minute,
            effective_at: None,
            expires_at: None,
        };
        let with = |overrides: Vec<Override>| Quota { overrides, ..Quota::of("key") };
        let late = Override { effective_at: Some(5), expires_at: Some(5), ..one("default") };
        let cases = [
            (Quota::of(""), "api_key"),
            (Quota::of("k".repeat(257)), "api_key"),
            (Quota::of("a\nb"), "api_key"),
            (Quota { tier: Some("big spender".into()), ..Quota::of("key") }, "tier"),
            (Quota { user_id: Some(String::new()), ..Quota::of("key") }, "user_id"),
            (with(vec![one("default"), one("")]), "overrides[1].descriptor"),
            (with(vec![one("a:b"), one("a:b")]), "overrides[1].descriptor"),
            (with(vec![late]), "overrides[0].expires_at"),
            (with(vec![Override { effective_at: Some(-1), ..one("default") }]), "overrides[0].effective_at"),
            (with((0..65).map(|n| one(&format!("a:{n}"))).collect()), "overrides"),
        ];
        for (quota, expected) in cases {
            match quota.clone().checked() {
                Err(Error::Invalid { field, .. }) => assert_eq!(field, expected),
                other => panic!("{quota:?}: {other:?}"),
            }
        }
        let ordered = with(vec![one("b:1"), one("a:1")]).checked().expect("it can be kept");
        assert_eq!(ordered.overrides[0].descriptor, "a:1");
    }
}
