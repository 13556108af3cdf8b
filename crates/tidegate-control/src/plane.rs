//! What the control plane asks of the process that it is part of: which rules are in force, what counters hold. It does not know how
//! decisions are made, and they do not know it.

use std::future::Future;
use std::pin::Pin;

use serde::Serialize;
use serde_json::Value;

use crate::model::Quota;

/// An answer that may take a while. Whoever waits for it has a deadline.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, PlaneError>> + Send + 'a>>;

/// Why the process does not answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlaneError {
    /// The store of counters does not answer.
    #[error("the counters cannot be asked: {why}")]
    Unavailable {
        /// Why.
        why: String,
    },
    /// There is nothing that it could be about.
    #[error("{why}")]
    Unknown {
        /// What is missing.
        why: String,
    },
    /// Others know, and this process does not: it decides nothing, and the counters are where decisions are made.
    #[error("{why}")]
    Elsewhere {
        /// Whom to ask.
        why: String,
    },
}

/// The process, as the control plane sees it.
pub trait Plane: Send + Sync + 'static {
    /// The domain of what does not name one; none where there are several, and none was set.
    fn default_domain(&self) -> Option<String>;

    /// The key of the entry that names callers in a domain, if there is such a domain.
    fn quota_key(&self, domain: &str) -> Option<String>;

    /// Every rule that is in force, in the order of the files.
    fn rules(&self) -> Vec<RuleInForce>;

    /// The tiers that rules in force name.
    fn tiers(&self) -> Vec<String>;

    /// What would come of these rules by API, each an id and a document in the form of a rule file, in the place of all before. Puts
    /// nothing in force.
    fn judge(&self, rules: Vec<(String, String)>) -> Judged;

    /// What holds for the caller of a quota where its own rule stands, as if the quota were stored: its override, its tier's limit, the
    /// rule's.
    fn default_limit(&self, quota: &Quota) -> Option<LimitInForce>;

    /// A call was answered with this status: for whoever counts them.
    fn answered(&self, status: u16);

    /// What every counter of a caller holds, without charging: of each rule that counts for the caller and whose values are known; or of
    /// those at one address.
    fn usage<'a>(
        &'a self,
        domain: Option<&'a str>,
        api_key: &'a str,
        address: Option<&'a str>,
    ) -> Pending<'a, CallerUsage>;

    /// Makes counters of a caller as if never touched: all but those that count for everybody, or those at one address. Gives what they
    /// held.
    fn reset<'a>(
        &'a self,
        domain: Option<&'a str>,
        api_key: &'a str,
        address: Option<&'a str>,
    ) -> Pending<'a, CallerUsage>;
}

/// How much, in which time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LimitInForce {
    /// How much.
    pub amount: u32,
    /// The window in microseconds; none for places that are held, and for calendars.
    pub window_us: Option<u64>,
    /// `day`, `week` or `month` of a calendar.
    pub calendar: Option<&'static str>,
    /// The algorithm's name in rule files.
    pub algorithm: &'static str,
    /// As a person would write it: `sliding_window 100/1m`.
    pub text: String,
    /// What said so: `override`, `tier` or `rule`.
    pub source: &'static str,
}

/// A rule that is in force.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RuleInForce {
    /// Its id: domain, path, and name or else algorithm and window.
    pub id: String,
    /// Its domain.
    pub domain: String,
    /// The tier that it is for; none is everybody else.
    pub tier: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its limit; none is unlimited.
    pub limit: Option<LimitInForce>,
    /// Where it was written: a file and a line, `api:<id>`, `xds:<resource>`.
    pub origin: String,
    /// The id of the rule by API that it comes from; none cannot be changed by API, but for its state.
    pub api_id: Option<String>,
    /// `enforce`, `enforce N%`, `shadow` or `disabled`: as it was written.
    pub written_state: String,
    /// The same: as it is.
    pub state: String,
}

/// What would come of rules.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Judged {
    /// What is wrong with them, as `tidegate config check --output json` tells it. With any, nothing can be put in force.
    pub errors: Vec<Value>,
    /// What is odd about them.
    pub warnings: Vec<Value>,
    /// What would change, by the ids of rules.
    pub changes: Vec<RuleChange>,
    /// What would change besides: what holds for a whole domain, by its name, and what descriptors say besides their limits, by their
    /// paths.
    pub besides: Vec<RuleChange>,
    /// The domain that quotas are about which name none, if there would be no such domain any more.
    pub lost_default: Option<String>,
}

/// What would become of one rule, domain or descriptor. What it says is told as `tidegate config diff` tells it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RuleChange {
    /// Its id.
    pub id: String,
    /// The tier that it is for.
    pub tier: Option<String>,
    /// What it says before: of a rule its limit, its state and whatever else is unusual about it. None where it is new.
    pub before: Option<String>,
    /// What it would say then; none where it would be gone.
    pub after: Option<String>,
    /// Would its counters start afresh? So would those of a rule whose id is new because of its window or algorithm.
    pub counters_start_afresh: bool,
}

/// What the counters of a caller hold.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CallerUsage {
    /// Those that were looked at.
    pub counters: Vec<Used>,
    /// Rules that count for the caller by counters that nobody can list.
    pub not_listed: Vec<NotListed>,
    /// So many counters and rules more there are than were looked at and named.
    pub left_out: u64,
}

/// A rule whose counters cannot be listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NotListed {
    /// Its id.
    pub rule: String,
    /// Why not, and what to do.
    pub why: String,
}

/// For whom a counter counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountsFor {
    /// The caller alone.
    Caller,
    /// All keys of its user.
    UserId,
    /// All keys of its client.
    ClientId,
    /// Others too, whoever they are.
    All,
}

/// What one counter of a caller holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Used {
    /// The rule; none where the caller has a limit of its own and no rule stands.
    pub rule: Option<String>,
    /// For whom it counts.
    pub counts_for: CountsFor,
    /// Where below the caller's entry: `default`, or `key:value` joined by `|`. Of a rule that is not about this entry, its id.
    pub address: String,
    /// Its limit.
    pub limit: LimitInForce,
    /// How much is used.
    pub used: u64,
    /// How much is left.
    pub remaining: u64,
    /// The window that is counted: for sliding ones until now. In microseconds since 1970.
    pub window: (i64, i64),
    /// Was anything stored?
    pub stored: bool,
    /// The counter's key, as hexadecimal digits.
    pub key: String,
}
