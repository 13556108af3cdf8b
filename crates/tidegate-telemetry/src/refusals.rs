//! Some refusals as lines of the log: so many a second, however many there are.
//!
//! A key is told as its hash, which only whoever has the fleet's secret can make from a caller's name.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_core::{Key, Micros, Tag};
use tracing::info;

use crate::count::Count;
use crate::label::label;
use crate::words::Reason;

/// What is told of a refusal.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'r> {
    /// The domain.
    pub domain: &'r str,
    /// The rule's id; none where the request brought its limit.
    pub rule: Option<&'r str>,
    /// The counter.
    pub key: Key,
    /// What it is kept near to, where that is needed to find it.
    pub tag: Option<Tag>,
    /// Why.
    pub reason: Reason,
    /// The trace that the request belongs to.
    pub trace_id: Option<&'r str>,
}

/// The log of refusals, for all cores.
#[derive(Debug)]
pub struct RefusalLog {
    enforced: Gate,
    /// Of its own, so that a limit that is only tried out hides no real refusal.
    shadow: Gate,
}

impl RefusalLog {
    /// So many lines a second; as many again for limits in shadow. None turns it off.
    pub fn new(lines_per_second: u32, cores: usize) -> Self {
        Self { enforced: Gate::new(lines_per_second, cores), shadow: Gate::new(lines_per_second, cores) }
    }

    /// A limit refused a request. Only the thread of `core` may say so.
    ///
    /// # Panics
    /// If there are not so many cores.
    #[inline]
    pub fn refused<'r>(&self, core: usize, now: Micros, refusal: impl FnOnce() -> Refusal<'r>) {
        if let Some(left_out) = self.enforced.line(core, now) {
            let Told { domain, rule, key, tag, reason, trace_id, left_out } = Told::of(&refusal(), left_out);
            info!(domain, rule, %key, tag, reason, trace_id, left_out, "refused a request");
        }
    }

    /// A limit in shadow would have. Only the thread of `core` may say so.
    ///
    /// # Panics
    /// If there are not so many cores.
    #[inline]
    pub fn shadow_refused<'r>(&self, core: usize, now: Micros, refusal: impl FnOnce() -> Refusal<'r>) {
        if let Some(left_out) = self.shadow.line(core, now) {
            let Told { domain, rule, key, tag, reason, trace_id, left_out } = Told::of(&refusal(), left_out);
            info!(domain, rule, %key, tag, reason, trace_id, left_out, "would have refused a request (shadow)");
        }
    }
}

/// The fields of a line.
struct Told<'r> {
    domain: &'r str,
    rule: String,
    key: Key,
    tag: Option<String>,
    reason: &'static str,
    trace_id: Option<&'r str>,
    left_out: Option<u64>,
}

impl<'r> Told<'r> {
    fn of(refusal: &Refusal<'r>, left_out: u64) -> Self {
        Self {
            domain: refusal.domain,
            // As on the page of metrics, so that one leads to the other.
            rule: refusal.rule.map_or("request".into(), |rule| label(rule).into_owned()),
            key: refusal.key,
            tag: refusal.tag.map(|tag| tag.to_string()),
            reason: refusal.reason.word(),
            trace_id: refusal.trace_id,
            left_out: Some(left_out).filter(|left_out| *left_out > 0),
        }
    }
}

/// Lets so many pass in each second of the clock.
#[derive(Debug)]
struct Gate {
    per_second: u32,
    /// The second in the high half, how many passed in it in the low half. It is written at most so many times a second, so reading it
    /// costs cores nothing when there is a flood.
    passed: AtomicU64,
    /// How many did not pass, by core.
    left_out: Box<[LeftOut]>,
    /// How many of those were told.
    told: AtomicU64,
}

#[derive(Default, Debug)]
#[repr(align(128))]
struct LeftOut(Count);

impl Gate {
    fn new(per_second: u32, cores: usize) -> Self {
        let left_out = (0..cores).map(|_| LeftOut::default()).collect();
        Self { per_second, passed: AtomicU64::new(0), left_out, told: AtomicU64::new(0) }
    }

    /// May a line be written? Then says how many were left out since the last.
    #[inline]
    fn line(&self, core: usize, now: Micros) -> Option<u64> {
        let second = (now.get() / 1_000_000) as u32;
        let next = |passed: u64| {
            let (of, lines) = ((passed >> 32) as u32, passed as u32);
            // Cores do not read the clock at the same time: one that is a second late belongs to the newer. A clock that went back
            // further starts anew.
            let late = of.wrapping_sub(second) <= 1;
            match late {
                true => (lines < self.per_second).then_some(passed + 1),
                false => (self.per_second > 0).then_some(u64::from(second) << 32 | 1),
            }
        };
        match self.passed.fetch_update(Relaxed, Relaxed, next) {
            Ok(_) => Some(self.tell()),
            Err(_) => {
                self.left_out[core].0.add(1);
                None
            }
        }
    }

    #[cold]
    fn tell(&self) -> u64 {
        let left_out = self.left_out.iter().map(|core| core.0.get()).sum();
        // Of two that tell at once, each tells what the other does not.
        left_out - self.told.fetch_max(left_out, Relaxed).min(left_out)
    }
}

#[cfg(test)]
mod tests {
    use tracing::level_filters::LevelFilter;

    use super::*;
    use crate::log::{LogFormat, captured};

    const NOON: Micros = Micros::from_secs(1_800_000_000);

    #[test]
    fn so_many_lines_a_second_and_each_tells_what_was_left_out_before() {
        let gate = Gate::new(2, 1);
        let asked = [
            (0, Some(0)),
            (400_000, Some(0)),
            (999_999, None),
            (1_000_000, Some(1)),
            (999_999, Some(0)), // Late, from another core.
            (1_000_001, None),
            (1_999_999, None),
            (5_000_000, Some(2)),
            (5_000_000, Some(0)),
            (5_000_000, None),
        ];
        for (at_us, line) in asked {
            assert_eq!(gate.line(0, NOON.plus(Micros::new(at_us))), line, "after {at_us} µs");
        }
        let long_ago = NOON.minus(Micros::from_secs(3_600));
        assert_eq!(gate.line(0, long_ago), Some(1), "a clock that went back does not silence the log");
    }

    #[test]
    fn none_a_second_is_off() {
        let gate = Gate::new(0, 1);
        assert!((0..3).all(|second| gate.line(0, NOON.plus(Micros::from_secs(second))).is_none()));
    }

    #[test]
    fn cores_together_write_no_more_and_every_refusal_is_told_once() {
        const TIMES: u64 = 5_000;
        let gate = Gate::new(10, 4);
        let second = |second: u64| NOON.plus(Micros::from_secs(second));
        for at in 0..3 {
            let lines: Vec<u64> = std::thread::scope(|scope| {
                let run = |core| {
                    let gate = &gate;
                    move || (0..TIMES).filter_map(|_| gate.line(core, second(at))).collect::<Vec<u64>>()
                };
                let cores: Vec<_> = (0..4).map(|core| scope.spawn(run(core))).collect();
                cores.into_iter().flat_map(|core| core.join().unwrap_or_default()).collect()
            });
            assert_eq!(lines.len(), 10, "in second {at}");
            // What was left out while the ten were written may be told by one of them already.
            let left_out: u64 = gate.left_out.iter().map(|core| core.0.get()).sum();
            assert_eq!(left_out, (at + 1) * (4 * TIMES - 10));
        }
        let told = gate.told.load(Relaxed);
        assert_eq!(gate.line(0, second(9)), Some(3 * (4 * TIMES - 10) - told));
    }

    #[test]
    fn a_line_says_who_was_refused_by_what_and_never_a_name() {
        let refusal = Refusal {
            domain: "api",
            rule: Some("api|key#100/1m"),
            key: Key::of_bits(0xabc),
            tag: None,
            reason: Reason::CostExceedsLimit,
            trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736"),
        };
        let tag = Some(Tag::of_bits(0xde));
        let own = Refusal { rule: None, tag, reason: Reason::RateLimited, trace_id: None, ..refusal };
        let log = RefusalLog::new(1, 2);
        let text = captured(LogFormat::Text, LevelFilter::INFO, || {
            log.refused(0, NOON, || refusal);
            log.refused(1, NOON, || unreachable!("nobody asks for the facts of a line that is left out"));
            log.shadow_refused(0, NOON, || own);
            log.refused(0, NOON.plus(Micros::from_secs(1)), || own);
        });
        let lines: Vec<&str> = text.lines().map(|line| &line[28..]).collect();
        assert_eq!(
            lines,
            [
                "INFO  refused a request domain=api rule=api|key#100/1m key=00000000000000000000000000000abc \
                 reason=cost_exceeds_limit trace_id=4bf92f3577b34da6a3ce929d0e0e4736",
                "INFO  would have refused a request (shadow) domain=api rule=request \
                 key=00000000000000000000000000000abc tag=000000de reason=rate_limited",
                "INFO  refused a request domain=api rule=request key=00000000000000000000000000000abc tag=000000de \
                 reason=rate_limited left_out=1",
            ]
        );
    }
}
