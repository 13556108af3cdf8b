//! What is answered when something cannot be done: problems as RFC 9457 writes them, which name the field they are about.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, ETAG, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::error::Error;
use crate::plane::PlaneError;

/// Something that cannot be done, and why.
#[derive(Debug)]
pub(crate) struct Problem(Box<Inside>);

#[derive(Debug)]
struct Inside {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
    field: Option<String>,
    errors: Vec<Value>,
    more: Map<String, Value>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// What all problems look like.
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// What kind of problem it is: `urn:tidegate:problem:` and a word.
    #[serde(rename = "type")]
    kind: String,
    /// The same for people.
    title: &'static str,
    /// The status of the answer.
    status: u16,
    /// What is wrong in this case.
    detail: String,
    /// The field that it is about: `overrides[1].unit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// Each thing that is wrong, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    errors: Vec<Value>,
    #[serde(flatten)]
    #[schema(ignore)]
    more: Map<String, Value>,
}

impl Problem {
    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self(Box::new(Inside {
            status,
            kind,
            title,
            detail: detail.into(),
            field: None,
            errors: Vec::new(),
            more: Map::new(),
            headers: Vec::new(),
        }))
    }

    /// The request itself is odd: its query, its headers, its bytes.
    pub(crate) fn bad_request(field: &str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", "the request cannot be read", detail).field(field)
    }

    /// What is asked for cannot be.
    pub(crate) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        let title = "what was sent cannot be kept";
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", title, detail).field(field)
    }

    /// Nobody said who asks, or nobody knows them.
    pub(crate) fn unauthorized(detail: &str, challenge: &'static str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "a token is needed", detail)
            .header(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    /// They may not.
    pub(crate) fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "this token may not do this", detail)
    }

    /// There is no such thing.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", "there is no such thing", detail)
    }

    /// There is such a path, for others.
    pub(crate) fn method_not_allowed(allow: &str) -> Self {
        let problem = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method-not-allowed",
            "not by this method",
            format!("this path is asked by {allow}"),
        );
        match HeaderValue::from_str(allow) {
            Ok(value) => problem.header(ALLOW, value),
            Err(_) => problem,
        }
    }

    /// It is written elsewhere.
    pub(crate) fn written_elsewhere(detail: impl Into<String>, origins: Vec<String>) -> Self {
        let problem =
            Self::new(StatusCode::CONFLICT, "written-elsewhere", "it cannot be changed here", detail);
        problem.with("written_in", origins.into())
    }

    /// It is counted elsewhere. To ask here again does not help.
    pub(crate) fn counted_elsewhere(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "counted-elsewhere", "the counters are not here", detail)
    }

    /// Somebody else was first.
    pub(crate) fn conflict(current: u64) -> Self {
        let detail = match current {
            0 => "there is none".to_owned(),
            _ => format!("the version is {current} now; read it, and decide again"),
        };
        let title = "somebody else changed it, or it is not as expected";
        let problem = Self::new(StatusCode::PRECONDITION_FAILED, "version-conflict", title, detail)
            .with("current_version", current.into());
        match HeaderValue::from_str(&format!("\"{current}\"")) {
            Ok(tag) if current > 0 => problem.header(ETAG, tag),
            _ => problem,
        }
    }

    /// Too much was sent.
    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "the body is too large", detail)
    }

    /// It was sent in a form that nobody reads here.
    pub(crate) fn unsupported(detail: impl Into<String>) -> Self {
        let title = "this form is not read here";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", title, detail)
    }

    /// Too many tries.
    pub(crate) fn too_many(detail: impl Into<String>, retry_after_s: u64) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too-many-tries", "too many failed tries", detail)
            .header(RETRY_AFTER, HeaderValue::from(retry_after_s))
            .with("retry_after", retry_after_s.into())
    }

    /// Not now.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "not available now", detail)
            .header(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    pub(crate) fn errors(mut self, errors: Vec<Value>) -> Self {
        self.0.errors = errors;
        self
    }

    pub(crate) fn with(mut self, name: &str, value: Value) -> Self {
        self.0.more.insert(name.into(), value);
        self
    }

    fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// The field and what is wrong with it, for lists of problems.
    pub(crate) fn told(&self) -> (Option<&str>, &str) {
        (self.0.field.as_deref(), &self.0.detail)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Conflict { current } => Self::conflict(current),
            Error::NotFound { what } => Self::not_found(format!("there is no such {what}")),
            Error::Invalid { field, why } => Self::invalid(field, why),
            unavailable @ (Error::Unavailable { .. } | Error::TooNew { .. }) => {
                Self::unavailable(unavailable.to_string())
            }
        }
    }
}

impl From<PlaneError> for Problem {
    fn from(error: PlaneError) -> Self {
        match error {
            unavailable @ PlaneError::Unavailable { .. } => Self::unavailable(unavailable.to_string()),
            PlaneError::Unknown { why } => Self::not_found(why),
            PlaneError::Elsewhere { why } => Self::counted_elsewhere(why),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Inside { status, kind, title, detail, field, errors, more, headers } = *self.0;
        let kind = format!("urn:tidegate:problem:{kind}");
        let body = ProblemBody { kind, title, status: status.as_u16(), detail, field, errors, more };
        let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap_or_default()));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response.headers_mut().extend(headers);
        response
    }
}
