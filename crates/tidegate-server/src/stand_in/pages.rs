//! The pages of the debug port and of the one for Prometheus.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body_util::Full;
use tidegate_core::{Book, Rule};
use tidegate_telemetry::reference::PROMETHEUS_CONTENT_TYPE;

use super::reference_gauges;
use crate::node::Node;
use crate::rls::response::CurrentLimit;

type Answer = Response<Full<Bytes>>;

/// The pages, and what is on them.
const PAGES: [(&str, &str); 3] = [
    ("/", "this page"),
    ("/rlconfig", "print out the currently loaded configuration for debugging"),
    ("/stats", "print out stats"),
];

/// Answers a request for a page. It may take a moment, and is worked out where no decision waits.
pub(crate) fn answer(node: &Node, path: &str) -> Answer {
    const TEXT: &str = "text/plain; charset=utf-8";
    let Some(stand_in) = &node.stand_in else { return told(404, TEXT, "there is nothing here\n".into()) };
    match path {
        "/" => told(
            200,
            TEXT,
            PAGES.iter().fold(String::new(), |text, (path, page)| text + &format!("{path}: {page}\n")),
        ),
        "/rlconfig" => told(200, TEXT, rules(&node.rules.in_force().book)),
        "/stats" => told(200, TEXT, stand_in.stats.page(&reference_gauges(node))),
        path if stand_in.prometheus_path.as_deref() == Some(path) => {
            told(200, PROMETHEUS_CONTENT_TYPE, stand_in.stats.prometheus(&reference_gauges(node)))
        }
        _ => told(404, TEXT, "404 page not found\n".into()),
    }
}

/// `/healthcheck`: is the node fit for requests?
pub(crate) fn health(node: &Node) -> (u16, &'static str) {
    if node.is_well() { (200, "OK") } else { (500, "") }
}

/// All rules, a line for each.
fn rules(book: &Book) -> String {
    let mut text = String::new();
    for rule in book.rules() {
        write_rule(rule, &mut text);
    }
    text
}

fn write_rule(rule: &Rule, text: &mut String) {
    text.push_str(&rule.domain);
    for level in rule.path.iter() {
        let _ = write!(text, ".{}", level.key);
        if let Some(value) = &level.value {
            let _ = write!(text, "_{value}");
        }
    }
    let (amount, unit) = match &rule.said.limit {
        None => (0, "UNKNOWN".to_owned()),
        Some(limit) => {
            let told = limit.window().and_then(|window| CurrentLimit::new(limit.amount(), window, ""));
            let unit = told.map_or_else(
                || limit.label(),
                |told| match told.multiplier {
                    1 => told.unit_name().to_owned(),
                    several => format!("{}*{several}", told.unit_name()),
                },
            );
            (limit.amount(), unit)
        }
    };
    let (shadow, quota) = (rule.said.shadow, rule.said.quota);
    let _ = writeln!(
        text,
        ": unit={unit} requests_per_unit={amount}, shadow_mode: {shadow}, quota_mode: {quota}"
    );
}

fn told(status: u16, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    if let Ok(status) = http::StatusCode::from_u16(status) {
        *answer.status_mut() = status;
    }
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
