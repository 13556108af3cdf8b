//! What a response delivers, as texts of rules: the same format as in files, so that one compiler reads both.

use std::sync::Arc;

use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Any, Struct, Value};
use serde::Serialize;
use serde_json::{Map, Number, Value as Json};

use crate::messages::{DiscoveryResponse, RateLimitConfig, RateLimitDescriptor, RateLimitPolicy};

/// The type of the resources that are asked for.
pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The units, by their numbers.
const UNITS: [&str; 8] = ["", "second", "minute", "hour", "day", "month", "year", "week"];

/// One resource as the text of a rule file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleText {
    /// The name of the resource.
    pub name: String,
    /// JSON, which is YAML too.
    pub text: Arc<str>,
}

/// All resources of a response in the order of their names, which servers do not keep; or what is wrong with one.
pub(crate) fn rule_texts(response: &DiscoveryResponse) -> Result<Vec<RuleText>, String> {
    if response.type_url != TYPE_URL {
        return Err(format!("resources of type `{}` came, `{TYPE_URL}` was asked for", response.type_url));
    }
    let mut texts = Vec::with_capacity(response.resources.len());
    for (at, resource) in response.resources.iter().enumerate() {
        texts.push(rule_text(at, resource)?);
    }
    texts.sort_by(|one, other| (&one.name, &one.text).cmp(&(&other.name, &other.text)));
    Ok(texts)
}

fn rule_text(at: usize, resource: &Any) -> Result<RuleText, String> {
    let number = at + 1;
    if resource.type_url != TYPE_URL {
        return Err(format!(
            "resource {number} is of type `{}`, `{TYPE_URL}` was asked for",
            resource.type_url
        ));
    }
    let config = RateLimitConfig::decode(&*resource.value)
        .map_err(|error| format!("resource {number} cannot be read: {error}"))?;
    let name = if config.name.is_empty() { format!("resource {number}") } else { config.name.clone() };
    let domain = Domain::of(&config).map_err(|why| format!("{name}: {why}"))?;
    let text = serde_json::to_string_pretty(&domain).map_err(|error| format!("{name}: {error}"))?;
    Ok(RuleText { name, text: text.into() })
}

/// The top of a rule file.
#[derive(Serialize)]
struct Domain<'c> {
    domain: &'c str,
    descriptors: Vec<Descriptor<'c>>,
}

#[derive(Serialize)]
struct Descriptor<'c> {
    key: &'c str,
    #[serde(skip_serializing_if = "str::is_empty")]
    value: &'c str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limit: Option<Limit<'c>>,
    #[serde(skip_serializing_if = "is_off")]
    shadow_mode: bool,
    #[serde(skip_serializing_if = "is_off")]
    quota_mode: bool,
    #[serde(skip_serializing_if = "is_off")]
    detailed_metric: bool,
    #[serde(skip_serializing_if = "Map::is_empty")]
    metadata: Map<String, Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    descriptors: Vec<Self>,
}

#[derive(Serialize)]
struct Limit<'c> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'c str,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_unit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
    #[serde(skip_serializing_if = "is_off")]
    unlimited: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    replaces: Vec<Replaces<'c>>,
}

#[derive(Serialize)]
struct Replaces<'c> {
    name: &'c str,
}

fn is_off(flag: &bool) -> bool {
    !flag
}

impl<'c> Domain<'c> {
    fn of(config: &'c RateLimitConfig) -> Result<Self, String> {
        let descriptors = config.descriptors.iter().map(Descriptor::of).collect::<Result<_, _>>()?;
        Ok(Self { domain: &config.domain, descriptors })
    }
}

impl<'c> Descriptor<'c> {
    // Calls itself as deep as the message is nested; prost reads a hundred levels and no more.
    fn of(said: &'c RateLimitDescriptor) -> Result<Self, String> {
        Ok(Self {
            key: &said.key,
            value: &said.value,
            rate_limit: said.rate_limit.as_ref().map(Limit::of).transpose()?,
            shadow_mode: said.shadow_mode,
            quota_mode: said.quota_mode,
            detailed_metric: said.detailed_metric,
            metadata: said.metadata.as_ref().map(json_map).unwrap_or_default(),
            descriptors: said.descriptors.iter().map(Self::of).collect::<Result<_, _>>()?,
        })
    }
}

impl<'c> Limit<'c> {
    fn of(said: &'c RateLimitPolicy) -> Result<Self, String> {
        let unit = usize::try_from(said.unit).ok().and_then(|number| UNITS.get(number)).copied();
        let unit = unit.filter(|word| !word.is_empty());
        if unit.is_none() && !said.unlimited {
            // In the words of envoyproxy/ratelimit, which people look for.
            let word = if said.unit == 0 { "UNKNOWN".into() } else { said.unit.to_string() };
            return Err(format!("invalid rate limit unit '{word}'"));
        }
        Ok(Self {
            name: &said.name,
            // An amount of what is unlimited means nothing there either.
            requests_per_unit: (!said.unlimited).then_some(said.requests_per_unit),
            unit,
            unlimited: said.unlimited,
            replaces: said.replaces.iter().map(|replaced| Replaces { name: &replaced.name }).collect(),
        })
    }
}

fn json_map(said: &Struct) -> Map<String, Json> {
    said.fields.iter().map(|(name, value)| (name.clone(), json(value))).collect()
}

fn json(said: &Value) -> Json {
    match &said.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::BoolValue(flag)) => Json::Bool(*flag),
        Some(Kind::StringValue(text)) => Json::String(text.clone()),
        Some(Kind::NumberValue(number)) => json_number(*number),
        Some(Kind::ListValue(list)) => Json::Array(list.values.iter().map(json).collect()),
        Some(Kind::StructValue(map)) => Json::Object(json_map(map)),
    }
}

/// A number as people write it: whole where it is. What no JSON can say is null.
fn json_number(number: f64) -> Json {
    const EXACT: f64 = 9_007_199_254_740_992.0; // 2^53: up to there every whole number is a double.
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Json::from(number as i64);
    }
    Number::from_f64(number).map_or(Json::Null, Json::Number)
}

#[cfg(test)]
mod tests;
