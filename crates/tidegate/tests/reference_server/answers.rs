//! What was answered, the same whichever door it came through, with the moment at which windows end instead of the wait for it.

use std::collections::HashMap;

use prost::Message;
use serde_json::{Map, Value, json};

use crate::rules::Unit;
use crate::servers::Page;

pub(crate) const OK: i32 = 1;
pub(crate) const OVER_LIMIT: i32 = 2;

/// An answer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Answer {
    Decided {
        /// The status of HTTP, at that door.
        http: Option<u16>,
        overall: i32,
        statuses: Vec<Status>,
        headers: Vec<(String, String)>,
        metadata: Value,
    },
    /// A code of gRPC or a status of HTTP, and a text.
    Failed(i32, String),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Status {
    pub(crate) code: i32,
    pub(crate) limit: Option<Limit>,
    pub(crate) remaining: u32,
    pub(crate) reset: Reset,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    pub(crate) amount: u32,
    pub(crate) unit: Unit,
    pub(crate) name: String,
}

/// When a window ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reset {
    Untold,
    /// At this second since 1970.
    At(u64),
    /// So many seconds after the first of these seconds, at which no window of this limit ends.
    Odd(i64, u64),
}

/// The seconds since 1970 between which a call was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Between(pub(crate) u64, pub(crate) u64);

impl Between {
    /// At which moment a window ends, if that is `reset` away from one of these seconds.
    fn end(self, unit: Unit, reset: i64) -> Option<u64> {
        let reset = u64::try_from(reset).ok()?;
        (self.0..=self.1).find(|now| unit.secs - now % unit.secs == reset).map(|now| now + reset)
    }

    fn reset(self, unit: Unit, reset: i64) -> Reset {
        self.end(unit, reset).map_or(Reset::Odd(reset, self.0), Reset::At)
    }
}

impl Answer {
    pub(crate) fn of_grpc(bytes: &[u8], between: Between) -> Self {
        let response = Response::decode(bytes).expect("a response");
        assert!(response.request_headers.is_empty() && response.raw_body.is_empty(), "{response:?}");
        let statuses = response.statuses.into_iter().map(|status| {
            let limit = status.limit.map(|limit| Limit {
                amount: limit.amount,
                unit: Unit::of_number(limit.unit).unwrap_or_else(|| panic!("unit {}", limit.unit)),
                name: limit.name,
            });
            let seconds = status.reset.map(|reset| {
                assert_eq!(reset.nanos, 0, "whole seconds");
                reset.seconds
            });
            Status {
                code: status.code,
                remaining: status.remaining,
                reset: reset(&limit, seconds, between),
                limit,
            }
        });
        let headers = response.headers.into_iter().map(|header| (header.key, header.value)).collect();
        let metadata = response.metadata.map_or(Value::Null, Struct::json);
        Self::decided(None, response.overall, statuses.collect(), headers, metadata, between)
    }

    pub(crate) fn of_http(page: &Page, between: Between) -> Self {
        if !matches!(page.status, 200 | 429) {
            return Self::Failed(i32::from(page.status), page.body.clone());
        }
        assert_eq!(page.content_type, "application/json", "{page:?}");
        let mut body: Value = serde_json::from_str(&page.body).unwrap_or_else(|_| panic!("{page:?}"));
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let number = |value: &Value| value.as_u64().map_or(0, |number| number as u32);
        let code = |value: &Value| match value.as_str() {
            Some("OK") => OK,
            Some("OVER_LIMIT") => OVER_LIMIT,
            _ => panic!("no code: {value} in {}", page.body),
        };
        let statuses = list(&body["statuses"]).into_iter().map(|status| {
            let limit = status.get("currentLimit").map(|limit| Limit {
                amount: number(&limit["requestsPerUnit"]),
                unit: Unit::of_name(&text(&limit["unit"])).unwrap_or_else(|| panic!("no unit: {limit}")),
                name: text(&limit["name"]),
            });
            let seconds = status.get("durationUntilReset").map(|reset| {
                let seconds = reset.as_str().and_then(|reset| reset.strip_suffix('s')?.parse().ok());
                seconds.unwrap_or_else(|| panic!("no duration: {reset}"))
            });
            let remaining = number(&status["limitRemaining"]);
            Status { code: code(&status["code"]), remaining, reset: reset(&limit, seconds, between), limit }
        });
        let statuses = statuses.collect();
        let headers = list(&body["responseHeadersToAdd"]);
        let headers = headers.iter().map(|header| (text(&header["key"]), text(&header["value"]))).collect();
        let overall = code(&body["overallCode"]);
        let metadata = body["dynamicMetadata"].take();
        Self::decided(Some(page.status), overall, statuses, headers, metadata, between)
    }

    fn decided(
        http: Option<u16>,
        overall: i32,
        statuses: Vec<Status>,
        mut headers: Vec<(String, String)>,
        mut metadata: Value,
        between: Between,
    ) -> Self {
        // The last of three is a wait: told as the end of a window of whichever limit.
        if let [_, _, (_, reset)] = &mut headers[..] {
            let units = statuses.iter().filter_map(|status| status.limit.as_ref()).map(|limit| limit.unit);
            let seconds: i64 = reset.parse().expect("a number");
            let end = units.clone().find_map(|unit| between.end(unit, seconds));
            *reset = end.map_or(format!("in {seconds} s"), |end| format!("at {end}"));
        }
        whole_numbers(&mut metadata);
        // Go puts one blank or two between fields, as it likes, so that nobody reads them by machine.
        for descriptor in metadata["descriptors"].as_array_mut().into_iter().flatten() {
            if let Some(Value::String(limit)) = descriptor.get_mut("limit") {
                *limit = limit.split_whitespace().collect::<Vec<_>>().join(" ");
            }
        }
        Self::Decided { http, overall, statuses, headers, metadata }
    }
}

/// 3.0 is 3, in JSON.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|number| number.fract() == 0.0) {
                *value = json!(whole as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(fields) => fields.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

fn reset(limit: &Option<Limit>, seconds: Option<i64>, between: Between) -> Reset {
    match (limit, seconds) {
        (_, None) => Reset::Untold,
        (None, Some(seconds)) => Reset::Odd(seconds, between.0),
        (Some(limit), Some(seconds)) => between.reset(limit.unit, seconds),
    }
}

// The messages, with all that metadata may hold.

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(int32, tag = "1")]
    overall: i32,
    #[prost(message, repeated, tag = "2")]
    statuses: Vec<WireStatus>,
    #[prost(message, repeated, tag = "3")]
    headers: Vec<Header>,
    #[prost(message, repeated, tag = "4")]
    request_headers: Vec<Header>,
    #[prost(bytes = "vec", tag = "5")]
    raw_body: Vec<u8>,
    #[prost(message, optional, tag = "6")]
    metadata: Option<Struct>,
}

#[derive(Clone, PartialEq, Message)]
struct WireStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(message, optional, tag = "2")]
    limit: Option<WireLimit>,
    #[prost(uint32, tag = "3")]
    remaining: u32,
    #[prost(message, optional, tag = "4")]
    reset: Option<Duration>,
}

#[derive(Clone, PartialEq, Message)]
struct WireLimit {
    #[prost(uint32, tag = "1")]
    amount: u32,
    #[prost(int32, tag = "2")]
    unit: i32,
    #[prost(string, tag = "3")]
    name: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Duration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Struct {
    #[prost(map = "string, message", tag = "1")]
    fields: HashMap<String, WireValue>,
}

#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(message, repeated, tag = "1")]
    values: Vec<WireValue>,
}

#[derive(Clone, PartialEq, Message)]
struct WireValue {
    #[prost(double, optional, tag = "2")]
    number: Option<f64>,
    #[prost(string, optional, tag = "3")]
    text: Option<String>,
    #[prost(bool, optional, tag = "4")]
    truth: Option<bool>,
    #[prost(message, optional, tag = "5")]
    fields: Option<Struct>,
    #[prost(message, optional, tag = "6")]
    list: Option<List>,
}

impl Struct {
    fn json(self) -> Value {
        let fields = self.fields.into_iter().map(|(name, value)| (name, value.json()));
        Value::Object(fields.collect::<Map<_, _>>())
    }
}

impl WireValue {
    fn json(self) -> Value {
        match self {
            Self { number: Some(number), .. } if number.fract() == 0.0 => json!(number as i64),
            Self { number: Some(number), .. } => json!(number),
            Self { text: Some(text), .. } => json!(text),
            Self { truth: Some(truth), .. } => json!(truth),
            Self { fields: Some(fields), .. } => fields.json(),
            Self { list: Some(list), .. } => list.values.into_iter().map(Self::json).collect(),
            _ => Value::Null,
        }
    }
}
