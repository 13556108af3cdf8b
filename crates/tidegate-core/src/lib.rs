//! The law of Tidegate: what a limit is, and what it answers.
//!
//! Everything here is a pure integer step, `(limit, state, ask, now) -> verdict`, in place on the state. It reads no clock,
//! allocates nothing, cannot fail and cannot overflow: whatever could go wrong is refused by a [`Limit`] constructor.
//! Start at [`Limit::step`]; `step.rs` holds the rules that all algorithms share, one file each holds what they differ in.
//!
//! ```
//! use tidegate_core::{Ask, Limit, Micros};
//!
//! let limit = Limit::sliding_window(100, Micros::from_secs(60))?;
//! let mut state = limit.state();
//! let verdict = limit.step(&mut state, Ask::Charge { cost: 1 }, Micros::from_secs(1_800_000_000));
//! assert!(verdict.admitted());
//! assert_eq!(verdict.remaining, 99);
//! # Ok::<(), tidegate_core::LimitError>(())
//! ```

mod math; // the divisions that every algorithm needs
mod time; // instants, spans and ticks

mod ask; // what can be asked of a counter
mod verdict; // what it answers

mod limit; // limits that cannot be wrong
mod state; // what a counter remembers

mod dispatch; // a limit is asked about a state
mod step; // the rules that all algorithms share

mod bucket; // token bucket, GCRA, leaky bucket
mod calendar; // quotas per day, week, month in a time zone
mod cells; // the cell log: the default sliding window
mod concurrency; // places held by leases
mod log; // the exact sliding log
mod shaper; // the leaky bucket that delays instead of refusing
mod window; // fixed window, two windows, sub-windows

mod key; // the identity of a counter
mod sip; // what it is hashed by
mod pattern; // wildcards
mod rule; // a limit, where it stands, and what its verdict is for
mod reserved; // charges that are settled later

mod near; // memory that will be needed soon

mod quota; // what is kept about single callers
mod terms; // what is agreed with them
mod shared; // what many have in common
mod roll; // who is known at all
mod own; // what callers have for themselves
mod tier; // what tiers are called

mod query; // what a request asks
mod book; // all rules, compiled
mod plan; // what counts for a request
mod recorder; // how that was found, for whoever asks

mod decision; // a whole request, from the verdicts on its takes

mod numbers; // a limit for stores that take its steps elsewhere
mod packed; // states as a table in memory keeps them
mod portable; // states as bytes, for stores and snapshots

pub use ask::{Ask, Receipt};
pub use book::{Book, DEPTH_MAX, Described, DescriptorDraft, Domain, DomainDraft, Exempt, Matching};
pub use bucket::Level;
pub use calendar::{Calendar, Period, Unit, Weekday};
pub use decision::{Role, admits, told};
pub use key::{Key, KeyParts, Secret, Tag};
pub use limit::{
    AMOUNT_MAX, Algorithm, Charge, LOG_AMOUNT_MAX, Limit, LimitError, PLACES_MAX, SUB_WINDOWS_MAX,
};
pub use near::bring_near;
pub use numbers::{ListTold, Numbers};
pub use packed::{Class, Era, Packed};
pub use plan::{Fate, Found, GrantedBy, Plan, Planned};
pub use portable::{FORMS, Form, PORTABLE_VERSION, PortableError};
pub use query::{Descriptor, Entry, OwnLimit, Query};
pub use quota::{
    ADDRESS_OF_CALLER, AddressError, Below, Callers, Grant, Kept, Override, Quota, QuotaMore, QuotaUnit,
    Quotas, Tier, override_address,
};
pub use recorder::{Event, ExemptBy, How, Recorder, Waypoint};
pub use reserved::{RESERVATION_COUNTERS_MAX, RESERVATION_DIGITS, Reserved};
pub use roll::AskForLargePages;
pub use rule::{
    Consistency, OnStoreFailure, Origin, PathEntry, Policy, Rule, RuleDraft, RuleState, Share, rule_id,
};
pub use shaper::{Reservation, Shaped, Shaper};
pub use state::State;
pub use terms::Terms;
pub use tier::TierName;
pub use time::{Micros, Tick};
pub use verdict::{Bound, Outcome, Verdict};

/// The example of the README, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
