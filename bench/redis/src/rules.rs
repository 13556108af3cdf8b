//! What the nodes go by, and the calls that find it.

use std::path::Path;

use tidegate_bench_common::requests::{Requests, shuffled};

use crate::plan::Case;

/// So high that nobody reaches it but who asks for all of it, over so long that nothing leaves the window.
const HIGH: &str = "1000000/1h";
pub(crate) const HIGH_AMOUNT: u32 = 1_000_000;
/// The same of a bucket; it is filled so slowly that its counters stay in the store.
const HIGH_BUCKET: &str = "1000/1h, algorithm: token_bucket, burst: 1000000";
/// What is used up.
pub(crate) const LOW_AMOUNT: u32 = 5;

/// Below a caller: so many limits with `match: path` as entries are sent.
const ENTRIES: [&str; 3] = ["user", "route", "method"];

/// Writes a file for each case.
pub(crate) fn write(folder: &Path) -> Result<(), String> {
    write_with(folder, Case::ALL.map(|case| (case, text(case))))
}

/// The same for envoyproxy/ratelimit, which knows one algorithm.
pub(crate) fn write_reference(folder: &Path) -> Result<(), String> {
    let domain = Case::SlidingWindow.domain();
    let limit = format!("rate_limit: {{ unit: hour, requests_per_unit: {HIGH_AMOUNT} }}");
    let text = format!("domain: {domain}\ndescriptors:\n  - key: {}\n    {limit}\n", ENTRIES[0]);
    write_with(folder, [(Case::SlidingWindow, text)])
}

fn write_with(folder: &Path, files: impl IntoIterator<Item = (Case, String)>) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("rules cannot be written to {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(wrong)?;
    for (case, text) in files {
        std::fs::write(folder.join(format!("{}.yaml", case.domain())), text).map_err(wrong)?;
    }
    Ok(())
}

fn text(case: Case) -> String {
    let low = format!("{LOW_AMOUNT}/1h");
    let limit = match case {
        Case::SlidingWindow | Case::SlidingWindow3 => HIGH,
        Case::TokenBucket | Case::TokenBucket3 => HIGH_BUCKET,
        Case::Refused => &low,
    };
    let mut text = format!("domain: {}\nmatch: path\n", case.domain());
    for (depth, key) in ENTRIES.iter().take(case.takes()).enumerate() {
        let indent = "    ".repeat(depth);
        text += &format!(
            "{indent}descriptors:\n{indent}  - key: {key}\n{indent}    rate_limit: {{ limit: {limit} }}\n"
        );
    }
    text
}

/// One call for each of so many callers, in an order that no cache can guess.
pub(crate) fn requests(case: Case, callers: u32) -> Requests {
    let mut requests = Requests::default();
    for caller in shuffled(callers) {
        push(&mut requests, case, caller, 0);
    }
    requests
}

/// One of those callers takes all of its limit at once, and then asks for more, so many times.
pub(crate) fn used_up(case: Case, caller: u32, times: usize) -> Requests {
    let mut requests = Requests::default();
    push(&mut requests, case, caller, HIGH_AMOUNT);
    for _ in 0..times {
        push(&mut requests, case, caller, 0);
    }
    requests
}

/// A cost of 0 is that of 1, and is not sent.
fn push(requests: &mut Requests, case: Case, caller: u32, cost: u32) {
    let user = format!("user-{caller:08}");
    let values = [user.as_str(), "/v1/orders", "POST"];
    let entries: Vec<_> = ENTRIES.into_iter().zip(values).take(case.takes()).collect();
    requests.push_all(case.domain(), &[&entries], cost);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_takes_are_three_limits_on_the_way() {
        let text = text(Case::TokenBucket3);
        assert_eq!(text.matches("rate_limit").count(), 3);
        assert!(text.contains("        descriptors:\n          - key: method\n"), "{text}");
        assert_eq!(self::text(Case::Refused).matches("rate_limit").count(), 1);
    }

    #[test]
    fn who_is_used_up_is_one_of_those_who_are_timed_and_takes_all_that_the_limit_has() {
        let (timed, used_up) = (requests(Case::SlidingWindow, 100), used_up(Case::SlidingWindow, 7, 3));
        let is_timed = |number| (0..100).any(|at| timed.get(at) == used_up.get(number));
        assert_eq!((used_up.len(), is_timed(0)), (4, false), "the first is for all");
        assert!((1..4).all(is_timed), "the others ask as those who are timed");
        assert_eq!(HIGH, format!("{HIGH_AMOUNT}/1h"));
    }

    #[test]
    fn every_caller_is_asked_for_once_before_one_is_again() {
        let requests = requests(Case::SlidingWindow3, 100);
        let distinct: std::collections::BTreeSet<_> = (0..100).map(|number| requests.get(number)).collect();
        assert_eq!((requests.len(), distinct.len()), (100, 100));
    }
}
