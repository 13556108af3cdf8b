//! The API for programs: an OpenAPI document, made from the table of calls and from the types that are read and written.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::call::{Answer, Call};
use super::problem::{Problem, ProblemBody};
use super::routes::{Given, Needs, Route, Sent, routes};
use super::{Desk, safe};
use crate::error::Error;
use crate::model::Limits;

/// Schemas by their names.
pub(super) type Schemas = BTreeMap<String, Value>;

/// Adds the schemas of a type, and gives a reference to its own.
pub(super) type SchemaOf = fn(&mut Schemas) -> Value;

pub(super) fn schema_of<T: ToSchema>(to: &mut Schemas) -> Value {
    let mut below = Vec::new();
    T::schemas(&mut below);
    let own = (T::name().into_owned(), T::schema());
    for (name, schema) in below.into_iter().chain([own]) {
        to.insert(name, serde_json::to_value(schema).unwrap_or_default());
    }
    json!({ "$ref": format!("#/components/schemas/{}", T::name()) })
}

/// The same of a page of them.
pub(super) fn page_of<T: ToSchema>(to: &mut Schemas) -> Value {
    json!({
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": { "type": "array", "items": schema_of::<T>(to) },
            "next": {
                "type": ["string", "null"],
                "description": "What to ask for the next page with, as `cursor`; none at the end.",
            },
        },
    })
}

/// What the parameters behind question marks mean.
fn parameter(name: &str) -> (Value, &'static str) {
    let text = json!({ "type": "string" });
    let time = json!({ "type": "string", "format": "date-time" });
    let number = json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX });
    match name {
        "actor" => (text, "By this one: the name of a token."),
        "client_id" => (text, "Of this client."),
        "cursor" => (text, "What the page before gave as `next`."),
        "descriptor" => (text, "Only the counters at this address: `default`, or `key:value` joined by `|`."),
        "domain" => (text, "Of this domain."),
        "dry_run" => (json!({ "type": "boolean" }), "Says what would change, and writes nothing."),
        "expires_after" => (
            time,
            "With an override that ends at this time or later; with `expires_before`, one that ends between the two.",
        ),
        "expires_before" => (time, "With an override that ends before this time, also one that has ended."),
        "format" => {
            (json!({ "type": "string", "enum": ["csv", "jsonl"] }), "The form; otherwise as `Accept` says.")
        }
        "from" => (number, "From this row on."),
        "kind" => {
            let kinds = ["quota", "tier", "rule", "rule_state", "token", "usage", "database"];
            (json!({ "type": "string", "enum": kinds }), "About things of this kind.")
        }
        "limit" => (
            json!({ "type": "integer", "minimum": 1, "maximum": Limits::PAGE }),
            "So many on a page; 100 unless said.",
        ),
        "of" => (json!({ "type": "string", "enum": ["rules", "quotas"] }), "Only these."),
        "order" => (
            json!({ "type": "string", "enum": ["newest", "oldest"] }),
            "Which come first; the newest unless said.",
        ),
        "prefix" => (text, "Whose keys begin so."),
        "since" => (time, "Not before this time."),
        "source" => (json!({ "type": "string", "enum": ["api"] }), "Only rules by API, as they were sent."),
        "subject" => (text, "About this one."),
        "tier" => (text, "Of this tier."),
        "to" => (number, "Up to this row."),
        "until" => (time, "Before this time."),
        "user_id" => (text, "Of this user."),
        _ => (text, ""),
    }
}

/// The problems that a call may end with.
fn problems(route: &Route) -> Vec<(u16, &'static str)> {
    let mut all = vec![(400, "The request cannot be read.")];
    if matches!(route.needs, Needs::Token { .. }) {
        all.extend([
            (401, "No token, or one that is worth nothing."),
            (403, "A token that may not do this."),
            (429, "Too many tokens from this address were worth nothing."),
            (503, "The database, or the store of counters, is not available."),
        ]);
    }
    if route.path.contains('{') {
        all.extend([(404, "There is no such thing."), (422, "What was sent cannot be kept.")]);
    }
    if route.is_elsewhere {
        all.push((409, "It is written or counted elsewhere, and to be changed there."));
    }
    if route.is_conditional {
        all.push((
            412,
            "It is not as If-Match or If-None-Match expects; the problem has the current version.",
        ));
    }
    if route.body.is_some() {
        all.extend([
            (413, "The body is too large."),
            (415, "The body is in a form that is not read here."),
            (422, "What was sent cannot be kept."),
        ]);
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// The whole document.
pub fn document() -> Value {
    let mut schemas = Schemas::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for route in routes() {
        let operation = operation(route, &mut schemas);
        paths.entry(route.path).or_default().insert(route.method.as_str().to_ascii_lowercase(), operation);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate admin API",
            "version": "1",
            "description": "Quotas, tiers, rules, usage, tokens and the audit trail of a rate limiter.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "bearerFormat": "tg_<prefix>_<secret>" } },
        },
    })
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let mut parameters = Vec::new();
    if let Some((_, rest)) = route.path.split_once('{') {
        let name = rest.split('}').next().unwrap_or_default();
        parameters.push(json!({
            "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 },
        }));
    }
    for name in route.query {
        let (schema, description) = parameter(name);
        parameters.push(json!({ "name": name, "in": "query", "schema": schema, "description": description }));
    }
    if route.is_conditional {
        let text = json!({ "type": "string" });
        parameters.push(json!({
            "name": "If-Match", "in": "header", "schema": text,
            "description": "The version that is expected to be there, in quotation marks; `*` is any.",
        }));
        parameters.push(json!({
            "name": "If-None-Match", "in": "header", "schema": text, "description": "`*`: if there is none yet.",
        }));
    }
    let mut responses = Map::new();
    for (status, given) in &route.answers {
        let content = match given {
            Given::Json(schema) => json!({ "application/json": { "schema": schema(schemas) } }),
            Given::Texts(types) => {
                types.iter().map(|name| ((*name).to_owned(), json!({}))).collect::<Map<_, _>>().into()
            }
            Given::Nothing => Value::Null,
        };
        let mut response = json!({ "description": if *status == 204 { "It is done." } else { "It is so." } });
        if !content.is_null() {
            response["content"] = content;
        }
        responses.insert(status.to_string(), response);
    }
    for (status, description) in problems(route) {
        let schema = schema_of::<ProblemBody>(schemas);
        let response = json!({ "description": description, "content": { "application/problem+json": { "schema": schema } } });
        responses.insert(status.to_string(), response);
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "responses": responses,
    });
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    match route.body {
        None => {}
        Some(Sent::Json(schema)) => {
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": schema(schemas) } } });
        }
        Some(Sent::Lines) => {
            let lines = json!({ "schema": { "type": "string" } });
            operation["requestBody"] =
                json!({ "required": true, "content": { "text/csv": lines, "application/x-ndjson": lines } });
        }
    }
    if let Needs::Token { scope, tenants } = route.needs {
        operation["security"] = json!([{ "token": [] }]);
        let bound = if tenants { "" } else { " A token that is bound to a domain may not." };
        operation["description"] = format!("Needs the scope `{}`.{bound}", scope.as_str()).into();
    }
    operation
}

/// `put_admin_v1_quotas_api_key`.
fn operation_id(route: &Route) -> String {
    let path: Vec<&str> =
        route.path.split(|letter: char| !letter.is_alphanumeric()).filter(|part| !part.is_empty()).collect();
    format!("{}_{}", route.method.as_str().to_ascii_lowercase(), path.join("_"))
}

pub(super) async fn get(_: Arc<Desk>, _: Call) -> Answer {
    super::call::ok(&document())
}

pub(super) async fn live(_: Arc<Desk>, _: Call) -> Answer {
    Ok(alive())
}

fn alive() -> Response {
    let mut response = Response::new(Body::from("ok\n"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// What answers before there is a database: the calls that need none. A process that waits for one is alive.
pub fn before() -> Router {
    let refuse = || async { safe(Problem::method_not_allowed("GET, HEAD").into_response()) };
    let live = axum::routing::get(|| async { safe(alive()) }).fallback(refuse);
    let told = || async { safe(super::call::ok(&document()).unwrap_or_else(Problem::into_response)) };
    let document = axum::routing::get(told).fallback(refuse);
    let why = || Error::Unavailable { why: "it has not been opened yet".into() };
    Router::new()
        .route("/livez", live)
        .route("/openapi.json", document)
        .fallback(move || async move { safe(Problem::from(why()).into_response()) })
}
