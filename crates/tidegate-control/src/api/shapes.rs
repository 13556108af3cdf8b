//! The forms in which rules are written by API: a document like a rule file, and three shorter ones. Whatever the form, what is in force is
//! a document in the form of a rule file, and what is told is the form that was sent.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::Desk;
use super::call::from_value;
use super::problem::Problem;

/// What is told beside a rule, and may be sent back with it. It says nothing about the rule.
const BESIDE: [&str; 6] = ["version", "compiled", "created_at", "updated_at", "updatedAt", "writable"];

/// A limit for an endpoint and a tier.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct EndpointRule {
    /// The id, which the path says as well.
    #[serde(default)]
    rule_id: Option<String>,
    /// The value of the entry `endpoint`; everything without, or with `*`.
    #[serde(default)]
    #[schema(example = "/api/search")]
    endpoint: Option<String>,
    /// Whom it is for; everybody without.
    #[serde(default)]
    client_tier: Option<String>,
    /// How much.
    max_requests: u32,
    /// In how long.
    window_seconds: u64,
    /// As in rule files; the domain's default without.
    #[serde(default)]
    algorithm: Option<String>,
    /// The domain; the default domain without.
    #[serde(default)]
    domain: Option<String>,
}

/// A bucket for each user, address or API key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BucketRule {
    /// The id, which the path says as well.
    #[serde(default)]
    id: Option<Value>,
    /// `user`, `ip` or `api_key`.
    scope: String,
    /// The value of the entry `endpoint`; everything with `*`.
    #[schema(example = "POST /v1/login")]
    endpoint: String,
    /// How much the bucket holds.
    capacity: u32,
    /// How much it is filled by in a second: a decimal number, kept exactly; as a text where it has more than 15 digits.
    #[schema(value_type = f64, example = 1.67)]
    refill_per_sec: Value,
    /// The domain; the default domain without.
    #[serde(default)]
    domain: Option<String>,
}

/// A limit for each user, address or API key, or for all together.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyRule {
    /// The id, which the path says as well.
    #[serde(default)]
    policy_id: Option<String>,
    /// `USER`, `IP`, `API_KEY` or `GLOBAL`.
    key_type: String,
    /// How much.
    limit: u32,
    /// In how long.
    window_seconds: u64,
    /// As in rule files, in letters of any size; the domain's default without.
    #[serde(default)]
    algorithm: Option<String>,
    /// The domain; the default domain without.
    #[serde(default)]
    domain: Option<String>,
}

/// A rule as it is kept.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Kept {
    /// As it was sent, without what only says where it is from.
    pub(super) sent: Map<String, Value>,
    /// The same as a rule file.
    pub(super) rules: Value,
}

/// What is stored where these two differ.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Both {
    sent: Map<String, Value>,
    rules: Value,
}

impl Kept {
    /// Reads what was sent under an id.
    pub(super) fn read(desk: &Desk, id: &str, said: Value) -> Result<Self, Problem> {
        let Value::Object(mut sent) = said else {
            return Err(Problem::invalid("body", "is no object"));
        };
        sent.retain(|name, _| !BESIDE.contains(&name.as_str()));
        let has = |names: &[&str]| names.iter().any(|name| sent.contains_key(*name));
        let value = Value::Object(sent.clone());
        let rules = if has(&["descriptors"]) {
            let said = sent.remove("id");
            if said.is_some_and(|said| said != id) {
                return Err(other_id("id"));
            }
            named(Value::Object(sent.clone()), id)
        } else if has(&["maxRequests", "windowSeconds", "clientTier"]) {
            endpoint(desk, id, from_value(value)?)?
        } else if has(&["capacity", "refill_per_sec"]) {
            bucket(desk, id, from_value(value)?)?
        } else if has(&["key_type", "policy_id", "window_seconds"]) {
            policy(desk, id, from_value(value)?)?
        } else {
            let why = "it is none of these: a rule file of one domain (`domain`, `descriptors`); `endpoint`, `clientTier`, `maxRequests`, \
                       `windowSeconds`, `algorithm`; `scope`, `endpoint`, `capacity`, `refill_per_sec`; `policy_id`, `key_type`, `limit`, \
                       `window_seconds`, `algorithm`";
            return Err(Problem::invalid("body", why));
        };
        // The id is told from the path, whether it was sent or not.
        ["id", "ruleId", "policy_id"].iter().for_each(|name| drop(sent.remove(*name)));
        Ok(Self { sent, rules })
    }

    /// As the store has it.
    pub(super) fn stored(&self) -> String {
        let sent = Value::Object(self.sent.clone());
        let text = if sent == self.rules {
            serde_json::to_string(&sent)
        } else {
            serde_json::to_string(&Both { sent: self.sent.clone(), rules: self.rules.clone() })
        };
        text.unwrap_or_default()
    }

    pub(super) fn from_store(text: &str) -> Self {
        if let Ok(Both { sent, rules }) = serde_json::from_str(text) {
            return Self { sent, rules };
        }
        let rules: Value = serde_json::from_str(text).unwrap_or_default();
        Self { sent: rules.as_object().cloned().unwrap_or_default(), rules }
    }

    /// The domain that it is about.
    pub(super) fn domain(&self) -> Option<&str> {
        self.rules.get("domain")?.as_str()
    }
}

/// The rule file in a rule's document, as the store has that: with it, where it was sent in a shorter form, is what was sent.
pub fn rule_file(document: &str) -> String {
    Kept::from_store(document).rules.to_string()
}

fn other_id(field: &str) -> Problem {
    Problem::invalid(field, "is not the one that the path names")
}

/// Limits without a name are called like the rule, so that no limit of a file is in their way. Several in one list are told apart by what
/// they are, as in files.
fn named(mut document: Value, id: &str) -> Value {
    fn limits(list: &mut Value, id: &str) {
        if let Some([Value::Object(only)]) = list.as_array_mut().map(Vec::as_mut_slice) {
            only.entry("name").or_insert_with(|| id.into());
        }
    }
    fn descriptors(list: &mut Value, id: &str) {
        for descriptor in list.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            if let Some(Value::Object(limit)) = descriptor.get_mut("rate_limit") {
                limit.entry("name").or_insert_with(|| id.into());
            }
            if let Some(list) = descriptor.get_mut("rate_limits") {
                limits(list, id);
            }
            for tier in descriptor.get_mut("tiers").and_then(Value::as_object_mut).into_iter().flatten() {
                limits(tier.1, id);
            }
            if let Some(below) = descriptor.get_mut("descriptors") {
                descriptors(below, id);
            }
        }
    }
    if let Some(list) = document.get_mut("descriptors") {
        descriptors(list, id);
    }
    document
}

fn domain_of(desk: &Desk, said: Option<String>) -> Result<String, Problem> {
    let domain = desk.domain(said.as_deref());
    domain.ok_or_else(|| Problem::invalid("domain", "there are several; name the one that it is about"))
}

fn limit_of(amount: u32, seconds: u64, algorithm: Option<String>, id: &str) -> Value {
    let mut limit = json!({ "limit": format!("{amount}/{seconds}s"), "name": id });
    if let Some(algorithm) = algorithm {
        limit["algorithm"] = algorithm.to_ascii_lowercase().into();
    }
    limit
}

/// A path of entries, the innermost with what it says.
fn path(domain: String, entries: &[(String, Option<&str>)], says: Map<String, Value>) -> Value {
    let mut inner: Option<Value> = None;
    for (key, value) in entries.iter().rev() {
        let mut entry = match inner.take() {
            None => says.clone(),
            Some(below) => Map::from_iter([("descriptors".to_owned(), json!([below]))]),
        };
        entry.insert("key".into(), key.as_str().into());
        if let Some(value) = value {
            entry.insert("value".into(), (*value).into());
        }
        inner = Some(Value::Object(entry));
    }
    json!({ "domain": domain, "descriptors": [inner] })
}

/// The entry of a caller, and that of the endpoint if it is not any.
fn entries(caller: String, endpoint: Option<&str>) -> Vec<(String, Option<&str>)> {
    let mut entries = vec![(caller, None)];
    entries.extend(
        endpoint
            .filter(|said| !said.is_empty() && *said != "*")
            .map(|said| ("endpoint".to_owned(), Some(said))),
    );
    entries
}

/// What the entry is called that names callers.
fn caller_key(desk: &Desk, domain: &str) -> String {
    desk.plane.quota_key(domain).unwrap_or_else(|| "api_key".into())
}

fn endpoint(desk: &Desk, id: &str, rule: EndpointRule) -> Result<Value, Problem> {
    if rule.rule_id.is_some_and(|said| said != id) {
        return Err(other_id("ruleId"));
    }
    let domain = domain_of(desk, rule.domain)?;
    let limit = limit_of(rule.max_requests, rule.window_seconds, rule.algorithm, id);
    let says = match rule.client_tier {
        Some(tier) => json!({ "tiers": { tier: [limit] } }),
        None => json!({ "rate_limit": limit }),
    };
    let caller = caller_key(desk, &domain);
    Ok(path(
        domain,
        &entries(caller, rule.endpoint.as_deref()),
        says.as_object().cloned().unwrap_or_default(),
    ))
}

fn bucket(desk: &Desk, id: &str, rule: BucketRule) -> Result<Value, Problem> {
    let is_same = |said: Value| said == id || said.as_u64().is_some_and(|said| said.to_string() == id);
    if rule.id.is_some_and(|said| !is_same(said)) {
        return Err(other_id("id"));
    }
    let domain = domain_of(desk, rule.domain)?;
    let caller = match rule.scope.as_str() {
        "user" => "user_id".into(),
        "ip" => "remote_address".into(),
        "api_key" => caller_key(desk, &domain),
        _ => return Err(Problem::invalid("scope", "is none of `user`, `ip`, `api_key`")),
    };
    let said = match &rule.refill_per_sec {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return Err(Problem::invalid("refill_per_sec", "is no number")),
    };
    let is_number = rule.refill_per_sec.is_number();
    let (amount, seconds) = ratio(&said, is_number).map_err(|why| Problem::invalid("refill_per_sec", why))?;
    let says = json!({ "rate_limit": {
        "limit": format!("{amount}/{seconds}s"),
        "algorithm": "token_bucket",
        "burst": rule.capacity,
        "name": id,
    } });
    Ok(path(domain, &entries(caller, Some(&rule.endpoint)), says.as_object().cloned().unwrap_or_default()))
}

fn policy(desk: &Desk, id: &str, rule: PolicyRule) -> Result<Value, Problem> {
    if rule.policy_id.is_some_and(|said| said != id) {
        return Err(other_id("policy_id"));
    }
    let domain = domain_of(desk, rule.domain)?;
    let limit = limit_of(rule.limit, rule.window_seconds, rule.algorithm, id);
    let says = json!({ "rate_limit": limit }).as_object().cloned().unwrap_or_default();
    let caller = match rule.key_type.to_ascii_lowercase().as_str() {
        "user" => "user_id".into(),
        "ip" => "remote_address".into(),
        "api_key" => caller_key(desk, &domain),
        "global" => {
            let mut says = says;
            says.insert("always".into(), true.into());
            return Ok(path(domain, &[("global".into(), Some(id))], says));
        }
        _ => return Err(Problem::invalid("key_type", "is none of `USER`, `IP`, `API_KEY`, `GLOBAL`")),
    };
    Ok(path(domain, &entries(caller, None), says))
}

/// A decimal number as so many in so many seconds, exactly: 1.67 is 167 in 100 s.
fn ratio(said: &str, is_float: bool) -> Result<(u64, u64), String> {
    let odd = || format!("`{said}` is no decimal number above 0");
    let (mantissa, exponent) = said.split_once(['e', 'E']).unwrap_or((said, "0"));
    let exponent: i32 = exponent.parse().map_err(|_| odd())?;
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return Err(odd());
    }
    let all = format!("{whole}{part}");
    let all = all.trim_start_matches('0');
    if all.is_empty() {
        return Err(odd());
    }
    if is_float && all.trim_end_matches('0').len() > 15 {
        return Err("has more than 15 digits, and would not be kept exactly; send it as a text".into());
    }
    let too_long = || "cannot be kept exactly: it has too many digits".to_owned();
    let mut amount: u64 = all.parse().map_err(|_| too_long())?;
    let places = i32::try_from(part.len()).map_err(|_| too_long())?.saturating_sub(exponent);
    let power = |places: i32| {
        u32::try_from(places).ok().and_then(|places| 10_u64.checked_pow(places)).ok_or_else(too_long)
    };
    let mut seconds = 1;
    if places > 0 {
        seconds = power(places)?;
    } else {
        amount = amount.checked_mul(power(-places)?).ok_or_else(too_long)?;
    }
    let common = common_divisor(amount, seconds);
    (amount, seconds) = (amount / common, seconds / common);
    Ok((amount, seconds))
}

fn common_divisor(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_kept_exactly() {
        for (said, kept) in [
            ("1.67", (167, 100)),
            ("1.5", (3, 2)),
            ("100", (100, 1)),
            ("0.001", (1, 1000)),
            ("1e-7", (1, 10_000_000)),
            ("2.5e3", (2500, 1)),
            ("1.666666666666666666", (833_333_333_333_333_333, 500_000_000_000_000_000)),
        ] {
            assert_eq!(ratio(said, false), Ok(kept), "{said}");
        }
        for odd in ["0", "0.0", "-1", "", ".5", "1.2.3", "1e", "NaN", "1e99", "1e-99"] {
            assert!(ratio(odd, false).is_err(), "{odd}");
        }
        assert!(ratio("1.6666666666666667", true).unwrap_err().contains("as a text"));
    }

    #[test]
    fn limits_without_a_name_are_called_like_the_rule() {
        let document = json!({ "domain": "api", "descriptors": [
            { "key": "a", "rate_limit": { "limit": "1/1s" }, "tiers": { "pro": { "requests_per_unit": 2 } } },
            { "key": "b", "rate_limits": [{ "limit": "1/1s" }], "descriptors": [
                { "key": "c", "rate_limit": { "limit": "1/1s", "name": "own" } }] },
            { "key": "d", "rate_limits": [{ "limit": "1/1s" }, { "limit": "1/1m" }], "tiers": { "pro": [{ "limit": "9/1s" }] } },
        ] });
        let named = named(document, "search");
        let names: Vec<_> = named.to_string().matches("\"name\":\"search\"").map(str::to_owned).collect();
        assert_eq!(names.len(), 3, "{named}");
        assert!(named.to_string().contains("\"name\":\"own\""));
    }
}
