//! The slow twin that Tidegate's counters must agree with.
//!
//! One [`Oracle`] is one counter. It keeps what was charged, recomputes everything from that at each question, and
//! finds waits by searching time for the first moment that satisfies their definition. Start at [`Oracle::ask`];
//! [`run`] plays a whole [`Script`].
//!
//! Reading order: `spec` and `script` (what is asked for), `model` (the decision rules, once for all algorithms), then
//! one file per family: `windows`, `log`, `cells`, `bucket`, `concurrency`, `calendar`. `truth` is what an exact
//! window would hold. [`rules`] is the twin of the book: which counters a request asks.

mod answer;
mod ask;
mod bucket;
mod calendar;
mod cells;
mod concurrency;
pub mod duration;
mod log;
mod model;
mod numbers;
pub mod rules;
mod run;
mod script;
mod spec;
mod truth;
mod windows;

pub use answer::{Answer, Outcome};
pub use ask::{Ask, Receipt};
pub use model::Oracle;
pub use run::{resolve, run};
pub use script::{Line, Op, ParseError, Script};
pub use spec::{Algorithm, Calendar, Spec, Unit, Weekday};
