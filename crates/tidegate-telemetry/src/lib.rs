//! What operators see of a node: metrics, logs, and the keys that are refused most.
//!
//! Every metric stands in one [`TABLE`]; [`encode()`] writes the page that is scraped, and a test keeps both and the document the same.
//! Nothing that a request says ever becomes a label: labels are rule ids and fixed words, so the page is as long as the rules make it.
//! Only [`mod@reference`] tells what requests say, as the server does whose names it has, and has a bound for it.
//!
//! Counting is on the path of every decision. Each core writes numbers of its own, without a lock and without an instruction that other
//! cores have to wait for; who reads them adds them up.

mod words; // the fixed words of labels
mod table; // every metric

mod count; // a number that one thread writes
mod metrics; // what a core counts of its requests
mod label; // ids as labels
mod rules; // what a core counts of each rule

mod gauges; // what the node knows itself
mod encode; // the page that is scraped

pub mod log; // lines for people and machines
mod refusals; // some refusals, as lines
mod refusals_file; // and in a file of their own
mod trace; // the id of a trace
mod top; // the keys that are refused most

pub mod reference; // what users of envoyproxy/ratelimit chart

#[cfg(test)]
mod proof; // how many cases properties are tried on

pub use encode::{CONTENT_TYPE, encode};
pub use gauges::{
    AuditSinkGauges, Build, CalendarGauges, ControlGauges, Gauges, StoreGauges, StoreServer, XdsGauges,
};
pub use label::Labels;
pub use metrics::{CoreMetrics, Metrics};
pub use refusals::{Refusal, RefusalLog};
pub use rules::{RULES_SHOWN_MAX, RuleMark, RuleMetrics};
pub use table::{Kind, Label, Metric, TABLE};
pub use top::{COUNTERS, Top, TopKey, TopKeys};
pub use trace::trace_id_of;
pub use words::{
    AdminCall, ConnectionRefused, InternalCall, LimitSource, Place, Reason, RequestOutcome, Reservation,
    Server,
};
