//! One call, as its handler sees it: who asks, about what, with which body; and how it is answered.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::auth::{Caller, hex};
use super::problem::Problem;
use super::when::When;
use crate::error::Error;
use crate::model::{Limits, Version, Who};

/// What comes of a call.
pub(crate) type Answer = Result<Response, Problem>;

/// Bytes of a body that is read whole.
const BODY_BYTES: usize = 1 << 20;
/// Things on a page that names no number.
const PAGE_DEFAULT: usize = 100;

/// One call.
pub(crate) struct Call {
    pub(crate) caller: Caller,
    /// The address that it came from.
    pub(crate) origin: String,
    /// What the path names.
    name: String,
    headers: HeaderMap,
    query: Query,
    /// Nobody waits for it: it makes of a call something that two may look at.
    body: Mutex<Body>,
}

impl Call {
    pub(crate) fn new(
        parts: Parts,
        body: Body,
        name: String,
        caller: Caller,
        origin: String,
        known: &[&str],
    ) -> Result<Self, Problem> {
        let query = Query::read(parts.uri.query().unwrap_or_default(), known)?;
        Ok(Self { caller, origin, name, headers: parts.headers, query, body: Mutex::new(body) })
    }

    /// The key, tier, rule or token that the path names.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn query(&self) -> &Query {
        &self.query
    }

    /// For the audit trail: the token's name, and which token of this name it was.
    pub(crate) fn who(&self) -> Who {
        Who::new(&self.caller.name, format!("{} token:{}", self.origin, self.caller.id).trim_start())
    }

    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The form of the body, without parameters and in small letters.
    pub(crate) fn content_type(&self) -> Option<String> {
        let said = self.header(&CONTENT_TYPE)?;
        Some(said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
    }

    /// The body, to be read by and by.
    pub(crate) fn take_body(&mut self) -> Body {
        std::mem::take(self.body.get_mut().unwrap_or_else(PoisonError::into_inner))
    }

    /// The body as JSON.
    pub(crate) async fn value(&mut self) -> Result<Value, Problem> {
        let bytes = self.bytes().await?;
        read_json(&bytes)
    }

    /// The body as this.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        let bytes = self.bytes().await?;
        read_json(&bytes)
    }

    async fn bytes(&mut self) -> Result<Bytes, Problem> {
        if let Some(form) =
            self.content_type().filter(|form| form != "application/json" && !form.ends_with("+json"))
        {
            return Err(Problem::unsupported(format!("bodies are `application/json` here, not `{form}`")));
        }
        match Limited::new(self.take_body(), BODY_BYTES).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(Problem::too_large(format!("it has more than {BODY_BYTES} bytes")))
            }
            Err(error) => Err(Problem::bad_request("body", format!("it broke off: {error}"))),
        }
    }

    /// What the caller thinks is there.
    pub(crate) fn expected(&self) -> Result<Expected, Problem> {
        let version = |said: &str| {
            let number = said.strip_prefix('"')?.strip_suffix('"')?;
            number.parse::<Version>().ok()
        };
        match (self.headers.get(IF_MATCH), self.headers.get(IF_NONE_MATCH)) {
            (None, None) => Ok(Expected::Anything),
            (Some(said), None) if said == "*" => Ok(Expected::Something),
            (Some(said), None) => match said.to_str().ok().and_then(version) {
                Some(version) => Ok(Expected::Version(version)),
                None => Err(Problem::bad_request(
                    "If-Match",
                    "one version in quotation marks is expected, or `*`",
                )),
            },
            (None, Some(said)) if said == "*" => Ok(Expected::Nothing),
            (None, Some(_)) => {
                Err(Problem::bad_request("If-None-Match", "only `*` is understood: if there is none yet"))
            }
            (Some(_), Some(_)) => Err(Problem::bad_request("If-Match", "stands beside If-None-Match")),
        }
    }
}

/// Reads JSON so that what is wrong is told with the name of its field.
pub(crate) fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let mut from = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut from);
    match read {
        Ok(value) => match from.end() {
            Ok(()) => Ok(value),
            Err(error) => Err(Problem::bad_request("body", format!("it is no JSON: {error}"))),
        },
        Err(error) if !error.inner().is_data() => {
            Err(Problem::bad_request("body", format!("it is no JSON: {}", error.inner())))
        }
        Err(error) => {
            let detail = error.inner().to_string();
            Err(Problem::invalid(field_of(&error.path().to_string(), &detail), detail))
        }
    }
}

/// The same of a value that was read.
pub(crate) fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let detail = error.inner().to_string();
        Problem::invalid(field_of(&error.path().to_string(), &detail), detail)
    })
}

/// A field that is missing is named by the message alone.
fn field_of(path: &str, detail: &str) -> String {
    let parent = if path == "." { "" } else { path };
    let missing = detail.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match (parent, missing) {
        ("", None) => "body".into(),
        ("", Some(missing)) => missing.into(),
        (parent, None) => parent.into(),
        (parent, Some(missing)) => format!("{parent}.{missing}"),
    }
}

/// What a caller thinks is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    Anything,
    Nothing,
    Something,
    Version(Version),
}

impl Expected {
    /// As the store understands it, given how to find out what there is.
    pub(crate) async fn version(
        self,
        now: impl Future<Output = Result<Version, Error>>,
    ) -> Result<Option<Version>, Problem> {
        match self {
            Self::Anything => Ok(None),
            Self::Nothing => Ok(Some(0)),
            Self::Version(version) => Ok(Some(version)),
            Self::Something => match now.await {
                Ok(version) => Ok(Some(version)),
                Err(Error::NotFound { .. }) => Err(Problem::conflict(0)),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Is it as expected? For what is asked and not written.
    pub(crate) fn check(self, current: Version) -> Result<(), Problem> {
        let fits = match self {
            Self::Anything => true,
            Self::Nothing => current == 0,
            Self::Something => current > 0,
            Self::Version(version) => version == current,
        };
        if fits { Ok(()) } else { Err(Problem::conflict(current)) }
    }
}

/// What stands behind the question mark.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    fn read(text: &str, known: &[&str]) -> Result<Self, Problem> {
        let mut all: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| {
                let bytes = unescaped(text);
                let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                text.filter(|text| !text.contains('\0'))
            };
            let Some((name, value)) = decoded(name).zip(decoded(value)) else {
                return Err(Problem::bad_request("query", "a parameter is no text"));
            };
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                return Err(Problem::bad_request(
                    &name,
                    format!("is no parameter of this call; these are: {known}"),
                ));
            }
            if all.iter().any(|(other, _)| *other == name) {
                return Err(Problem::bad_request(&name, "is there twice"));
            }
            all.push((name, value));
        }
        Ok(Self(all))
    }

    /// A parameter that says something.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// One that may stand alone.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str()) {
            None | Some("false" | "0") => Ok(false),
            Some("" | "true" | "1") => Ok(true),
            Some(_) => Err(Problem::bad_request(name, "is `true` or `false`")),
        }
    }

    /// An instant, in microseconds since 1970.
    pub(crate) fn time(&self, name: &str) -> Result<Option<i64>, Problem> {
        let read = self.get(name).map(|said| {
            let When(us) = When::read(said)?;
            if (0..=Limits::TIME_US).contains(&us) {
                Ok(us)
            } else {
                Err(format!("`{said}` is not between the years 1970 and 9999"))
            }
        });
        read.transpose().map_err(|why: String| Problem::bad_request(name, why))
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Problem> {
        let Some(said) = self.get(name) else { return Ok(None) };
        let read = said.parse::<u64>().ok().filter(|number| i64::try_from(*number).is_ok());
        read.map(Some).ok_or_else(|| Problem::bad_request(name, "is no whole number"))
    }

    /// How much a page holds.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        let Some(said) = self.number("limit")? else { return Ok(PAGE_DEFAULT) };
        let fits = usize::try_from(said).ok().filter(|said| (1..=Limits::PAGE).contains(said));
        fits.ok_or_else(|| Problem::bad_request("limit", format!("is not between 1 and {}", Limits::PAGE)))
    }

    /// Where a page begins.
    pub(crate) fn cursor(&self) -> Result<Option<String>, Problem> {
        let Some(said) = self.get("cursor") else { return Ok(None) };
        let bytes: Option<Vec<u8>> = said
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok()))
            .collect();
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).filter(|text| !text.contains('\0'));
        text.map(Some).ok_or_else(|| Problem::bad_request("cursor", "was not made by this API"))
    }
}

/// A cursor, as it is told. It may hold an identifier, which has no business in plain sight.
pub(crate) fn cursor(next: Option<String>) -> Option<String> {
    next.map(|next| hex(next.as_bytes()))
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    Some(bytes)
}

/// Some of many.
#[derive(Serialize)]
pub(crate) struct PageOf<T> {
    /// These.
    pub(crate) items: Vec<T>,
    /// What to ask for the next page with, as `cursor`; none at the end.
    pub(crate) next: Option<String>,
}

/// All is well.
pub(crate) fn ok(body: &impl Serialize) -> Answer {
    answer(StatusCode::OK, body)
}

pub(crate) fn answer(status: StatusCode, body: &impl Serialize) -> Answer {
    let text = serde_json::to_vec(body).map_err(|error| Problem::unavailable(error.to_string()))?;
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The same, with the version that a later change is to expect.
pub(crate) fn tagged(version: Version, body: &impl Serialize) -> Answer {
    let mut response = ok(body)?;
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// It is gone.
pub(crate) fn no_content() -> Answer {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
