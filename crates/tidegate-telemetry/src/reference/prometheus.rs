//! The page that Prometheus scrapes, by the names that the reference server's own mapping makes. Written by hand: the library puts `_total`
//! behind counters, and these have none.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::calls::{BOUNDS_MS, CallSums};
use super::stats::ReferenceStats;
use super::sums::{Cell, ReferenceGauges, Sums, method_name};
use super::table::{REFERENCE_TABLE, RESPONSE_TIME, ReferenceMetric};
use super::tags::Tags;

/// What the page is sent as.
pub const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

impl ReferenceStats {
    /// The page. A name is cut at its dots into `domain`, `key1` and `key2`, and what is below the second level is added to it, as there.
    pub fn prometheus(&self, gauges: &ReferenceGauges) -> String {
        let sums = self.sums(gauges);
        let mut rows = Rows::of(&sums);
        let mut page = Page { text: String::new(), tags: &self.tags };
        let mut told = "";
        for metric in REFERENCE_TABLE {
            if metric.prometheus == told {
                continue; // Two names of statsd are one here, with a label.
            }
            told = metric.prometheus;
            if *metric == RESPONSE_TIME {
                page.head(metric);
                for (method, calls) in sums.calls.iter().enumerate() {
                    page.histogram(method_name(method), calls, self.settings.response_time_as_milliseconds);
                }
            } else if let Some(rows) = rows.0.remove(metric.prometheus) {
                page.head(metric);
                for (values, value) in rows {
                    let labels: Vec<(&str, &str)> =
                        metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                    page.row(metric.prometheus, &labels, value);
                }
            }
        }
        page.text
    }
}

/// By the name of the metric and the values of its labels.
struct Rows(BTreeMap<&'static str, BTreeMap<Vec<String>, u64>>);

impl Rows {
    fn of(sums: &Sums) -> Self {
        let mut rows = Self(BTreeMap::new());
        for (cell, value) in sums.cells() {
            let metric = cell.metric();
            let sum = rows.0.entry(metric.prometheus).or_default().entry(labels_of(&cell)).or_default();
            *sum = sum.wrapping_add(value);
        }
        rows
    }
}

fn labels_of(cell: &Cell) -> Vec<String> {
    match cell {
        Cell::Rule(name, _) => name.split('.').take(3).map(String::from).collect(),
        Cell::Domain(name) => vec![name.to_string()],
        Cell::Requests(method) => vec![method_name(*method).into()],
        Cell::Service(_) if !cell.metric().labels.is_empty() => {
            vec![cell.metric().statsd.rsplit('.').next().unwrap_or_default().into()]
        }
        _ => Vec::new(),
    }
}

struct Page<'p> {
    text: String,
    tags: &'p Tags,
}

// A string takes whatever is written, so no result is looked at.
impl Page<'_> {
    fn head(&mut self, metric: &ReferenceMetric) {
        let (name, kind) = (metric.prometheus, metric.kind.prometheus());
        let _ = write!(self.text, "# HELP {name} {}\n# TYPE {name} {kind}\n", metric.help);
    }

    fn row(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.text.push_str(name);
        let tags = self.tags.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut before = '{';
        for (label, value) in labels.iter().copied().chain(tags) {
            let _ = write!(self.text, "{before}{label}=\"");
            escape(&mut self.text, value);
            self.text.push('"');
            before = ',';
        }
        if before == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }

    fn histogram(&mut self, method: &str, calls: &CallSums, as_milliseconds: bool) {
        let name = RESPONSE_TIME.prometheus;
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (bound_ms, count) in BOUNDS_MS.iter().zip(&calls.buckets) {
            below += count;
            let told = if as_milliseconds { calls.up_to_us(*bound_ms) } else { below };
            self.row(&bucket, &[("grpc_method", method), ("le", &seconds(*bound_ms))], told);
        }
        self.row(&bucket, &[("grpc_method", method), ("le", "+Inf")], calls.count());
        let sum = calls.sum_us as f64 / if as_milliseconds { 1e3 } else { 1e6 };
        self.row(&format!("{name}_sum"), &[("grpc_method", method)], sum);
        self.row(&format!("{name}_count"), &[("grpc_method", method)], calls.count());
    }
}

fn seconds(ms: u64) -> String {
    format!("{}", ms as f64 / 1e3)
}

fn escape(text: &mut String, value: &str) {
    for one in value.chars() {
        match one {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            one => text.push(one),
        }
    }
}
