//! Some refusals as lines of the log: so many a second, however many there are.
//!
//! A key is told as its hash, which only whoever has the fleet's secret can make from a caller's name.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidegate_core::{Key, Limit, Micros, Tag};
use tracing::info;

use crate::count::Count;
use crate::label::label;
use crate::refusals_file::RefusalFile;
use crate::words::{LimitSource, Reason};

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
    /// Who asked, keyed-hashed; none where the request names no caller.
    pub caller: Option<Key>,
    /// Why.
    pub reason: Reason,
    /// What a refusal means: `enforce`, `quota`, `shadow`.
    pub state: &'static str,
    /// The limit that it was judged by.
    pub limit: &'r Limit,
    /// What said so.
    pub source: LimitSource,
    /// The tier that the rule is for.
    pub tier: Option<&'r str>,
    /// The largest cost that would have been admitted.
    pub remaining: u32,
    /// How long until the same would pass.
    pub retry_after: Option<Micros>,
    /// The trace that the request belongs to.
    pub trace_id: Option<&'r str>,
}

/// The log of refusals, for all cores.
#[derive(Debug)]
pub struct RefusalLog {
    enforced: Gate,
    /// Of its own, so that a limit that is only tried out hides no real refusal.
    shadow: Gate,
    /// In a file of their own, if somebody wants that.
    file: Option<RefusalFile>,
}

impl RefusalLog {
    /// So many lines a second; as many again for limits in shadow. None turns it off.
    pub fn new(lines_per_second: u32, cores: usize) -> Self {
        let (enforced, shadow) = (Gate::new(lines_per_second, cores), Gate::new(lines_per_second, cores));
        Self { enforced, shadow, file: None }
    }

    /// And in a file of their own: so many a second, in so many bytes.
    pub fn with_file(
        self,
        path: PathBuf,
        lines_per_second: u32,
        bytes_max: u64,
        cores: usize,
    ) -> io::Result<Self> {
        Ok(Self { file: Some(RefusalFile::start(path, lines_per_second, bytes_max, cores)?), ..self })
    }

    /// How many are in that file, and how many could not be written; none where there is no file.
    pub fn file_counts(&self) -> Option<(u64, u64)> {
        self.file.as_ref().map(RefusalFile::counts)
    }

    /// A limit refused a request. Only the thread of `core` may say so.
    ///
    /// # Panics
    /// If there are not so many cores.
    #[inline]
    pub fn refused<'r>(&self, core: usize, now: Micros, refusal: impl FnOnce() -> Refusal<'r>) {
        let line = self.enforced.line(core, now);
        let in_file = self.file.as_ref().and_then(|file| Some((file, file.line(false, core, now)?)));
        if line.is_none() && in_file.is_none() {
            return; // Nearly always, when there are many.
        }
        let refusal = refusal();
        if let Some(left_out) = line {
            let Told { domain, rule, key, tag, caller, reason, limit, source, trace_id, left_out } =
                Told::of(&refusal, left_out);
            info!(domain, rule, %key, tag, caller, reason, limit, source, trace_id, left_out, "refused a request");
        }
        if let Some((file, left_out)) = in_file {
            file.add(&refusal, now, left_out);
        }
    }

    /// A limit in shadow would have. Only the thread of `core` may say so.
    ///
    /// # Panics
    /// If there are not so many cores.
    #[inline]
    pub fn shadow_refused<'r>(&self, core: usize, now: Micros, refusal: impl FnOnce() -> Refusal<'r>) {
        let line = self.shadow.line(core, now);
        let in_file = self.file.as_ref().and_then(|file| Some((file, file.line(true, core, now)?)));
        if line.is_none() && in_file.is_none() {
            return;
        }
        let refusal = refusal();
        if let Some(left_out) = line {
            let Told { domain, rule, key, tag, caller, reason, limit, source, trace_id, left_out } =
                Told::of(&refusal, left_out);
            info!(
                domain, rule, %key, tag, caller, reason, limit, source, trace_id, left_out,
                "would have refused a request (shadow)"
            );
        }
        if let Some((file, left_out)) = in_file {
            file.add(&refusal, now, left_out);
        }
    }
}

/// The fields of a line.
struct Told<'r> {
    domain: &'r str,
    rule: String,
    key: Key,
    tag: Option<String>,
    caller: Option<String>,
    reason: &'static str,
    limit: String,
    source: &'static str,
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
            caller: refusal.caller.map(|caller| caller.to_string()),
            limit: refusal.limit.to_string(),
            source: refusal.source.word(),
            reason: refusal.reason.word(),
            trace_id: refusal.trace_id,
            left_out: Some(left_out).filter(|left_out| *left_out > 0),
        }
    }
}

/// Lets so many pass in each second of the clock.
#[derive(Debug)]
pub(crate) struct Gate {
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
    pub(crate) fn new(per_second: u32, cores: usize) -> Self {
        let left_out = (0..cores).map(|_| LeftOut::default()).collect();
        Self { per_second, passed: AtomicU64::new(0), left_out, told: AtomicU64::new(0) }
    }

    /// May a line be written? Then says how many were left out since the last.
    #[inline]
    pub(crate) fn line(&self, core: usize, now: Micros) -> Option<u64> {
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
    fn a_file_of_its_own_says_all_of_it_and_keeps_to_its_bytes() -> Result<(), Box<dyn std::error::Error>> {
        let folder = std::env::temp_dir().join(format!("tidegate-refusals-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let path = folder.join("refusals.jsonl");
        let limit = Limit::fixed_window(100, Micros::from_secs(60)).map_err(|error| error.to_string())?;
        let refusal = Refusal {
            domain: "api \"\n",
            rule: Some("api|key#100/1m"),
            key: Key::of_bits(0xabc),
            tag: Some(Tag::of_bits(0xde)),
            caller: Some(Key::of_bits(0xca11)),
            reason: Reason::RateLimited,
            state: "enforce",
            limit: &limit,
            source: LimitSource::Override,
            tier: Some("pro"),
            remaining: 3,
            retry_after: Some(Micros::new(1_500)),
            trace_id: None,
        };
        let log = RefusalLog::new(0, 1).with_file(path.clone(), 10, 4_000, 1)?;
        let written = |count: u64| {
            let tries = (0..10_000).find(|_| {
                std::thread::park_timeout(std::time::Duration::from_millis(1));
                log.file_counts().is_some_and(|(written, lost)| written + lost >= count)
            });
            tries.map(|_| log.file_counts())
        };
        for refused in 0..12 {
            log.refused(0, NOON.plus(Micros::new(refused)), || refusal);
        }
        assert_eq!(written(10), Some(Some((10, 0))));
        let first: serde_json::Value = serde_json::from_str(
            std::fs::read_to_string(folder.join("refusals.jsonl.1"))?.lines().next().unwrap_or_default(),
        )?;
        let expected = serde_json::json!({
            "time": "2027-01-15T08:00:00.000000Z", "domain": "api \"\n", "rule": "api|key#100/1m",
            "caller": "0000000000000000000000000000ca11", "key": "00000000000000000000000000000abc", "tag": "000000de",
            "reason": "rate_limited", "state": "enforce", "source": "override", "limit": "fixed_window 100/1m", "tier": "pro",
            "remaining": 3, "retry_after_ms": 2,
        });
        assert_eq!(first, expected);
        // However many there are; a file that was moved away is made again.
        for second in 1..40 {
            log.refused(0, NOON.plus(Micros::from_secs(second)), || refusal);
        }
        assert_eq!(written(49), Some(Some((49, 0))));
        let sizes = [path.clone(), folder.join("refusals.jsonl.1")]
            .map(|file| std::fs::metadata(file).map_or(0, |file| file.len()));
        assert!(sizes.iter().all(|size| (1..=2_000).contains(size)), "{sizes:?}");
        std::fs::rename(&path, folder.join("aside"))?;
        log.refused(0, NOON.plus(Micros::from_secs(50)), || refusal);
        assert_eq!(written(50), Some(Some((50, 0))));
        assert_eq!(std::fs::read_to_string(&path)?.lines().count(), 1);
        std::fs::remove_dir_all(&folder)?;
        log.refused(0, NOON.plus(Micros::from_secs(60)), || refusal);
        assert_eq!(written(51), Some(Some((50, 1))), "what cannot be written is counted");
        Ok(())
    }

    #[test]
    fn half_a_line_spoils_no_other_and_a_file_that_cannot_be_renamed_does_not_grow()
    -> Result<(), Box<dyn std::error::Error>> {
        let folder = std::env::temp_dir().join(format!("tidegate-half-refusals-{}", std::process::id()));
        let path = folder.join("refusals.jsonl");
        // In the place of the file before stands what no file can take the place of.
        std::fs::create_dir_all(folder.join("refusals.jsonl.1/folder"))?;
        std::fs::write(&path, "{\"time\":\"20")?;
        let limit = Limit::fixed_window(100, Micros::from_secs(60)).map_err(|error| error.to_string())?;
        let refusal = Refusal {
            domain: "api",
            rule: None,
            key: Key::of_bits(0xabc),
            tag: None,
            caller: None,
            reason: Reason::RateLimited,
            state: "enforce",
            limit: &limit,
            source: LimitSource::Request,
            tier: None,
            remaining: 0,
            retry_after: None,
            trace_id: None,
        };
        let log = RefusalLog::new(0, 1).with_file(path.clone(), 100, 2_000, 1)?;
        for _ in 0..20 {
            log.refused(0, NOON, || refusal);
        }
        let tries = (0..10_000).find(|_| {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
            log.file_counts().is_some_and(|(written, lost)| written + lost == 20)
        });
        assert!(tries.is_some(), "{:?}", log.file_counts());
        let text = std::fs::read_to_string(&path)?;
        let whole = text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
        let whole = whole.count();
        assert!(whole > 2 && text.lines().count() == whole + 1, "{text}");
        assert_eq!(log.file_counts(), Some((whole as u64, 20 - whole as u64)));
        assert!(text.len() <= 1_000, "{} bytes", text.len());
        std::fs::remove_dir_all(&folder)?;
        Ok(())
    }

    #[test]
    fn a_line_says_who_was_refused_by_what_and_never_a_name() {
        let Ok(limit) = Limit::fixed_window(100, Micros::from_secs(60)) else { unreachable!() };
        let refusal = Refusal {
            domain: "api",
            rule: Some("api|key#100/1m"),
            key: Key::of_bits(0xabc),
            tag: None,
            caller: Some(Key::of_bits(0xca11)),
            reason: Reason::CostExceedsLimit,
            state: "enforce",
            limit: &limit,
            source: LimitSource::ApiTier,
            tier: None,
            remaining: 0,
            retry_after: None,
            trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736"),
        };
        let tag = Some(Tag::of_bits(0xde));
        let (rule, trace_id, source) = (None, None, LimitSource::Request);
        let own =
            Refusal { rule, tag, caller: None, reason: Reason::RateLimited, trace_id, source, ..refusal };
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
                 caller=0000000000000000000000000000ca11 reason=cost_exceeds_limit limit=\"fixed_window 100/1m\" \
                 source=api_tier trace_id=4bf92f3577b34da6a3ce929d0e0e4736",
                "INFO  would have refused a request (shadow) domain=api rule=request \
                 key=00000000000000000000000000000abc tag=000000de reason=rate_limited limit=\"fixed_window 100/1m\" \
                 source=request",
                "INFO  refused a request domain=api rule=request key=00000000000000000000000000000abc tag=000000de \
                 reason=rate_limited limit=\"fixed_window 100/1m\" source=request left_out=1",
            ]
        );
    }
}
