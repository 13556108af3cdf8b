//! Headers about limits, in the dialects that clients know. The name of a dialect of the draft has its number, so that a new revision is a
//! new dialect and never a silent change.

use http::HeaderName;

use super::names::NAME_MAX;
use super::text::{LINE_BYTES_MAX, Line, Put};
use super::told::{LISTED_MAX, Span, Told, ToldLimit};
use crate::decide::TAKES_MAX;

/// A set of headers that some clients read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dialect {
    /// `RateLimit-Policy` and `RateLimit`, as in draft-ietf-httpapi-ratelimit-headers-11.
    Ietf11,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset` as a Unix time, and `-Policy`.
    XEpoch,
    /// `X-RateLimit-Limit`, `-Remaining`, and `-Reset` as seconds from now.
    XDelta,
    /// `Retry-After` on refusals that a wait helps against.
    RetryAfter,
    /// As GitHub: like `x-epoch`, with `-Used` and `-Resource`, without `-Policy`.
    Github,
    /// As X, once Twitter: `X-Rate-Limit-Limit`, `-Remaining`, `-Reset` as a Unix time.
    Twitter,
    /// As Envoy writes them itself: like `x-delta`, all limits listed in `-Limit`.
    Envoy,
    /// As Kong: `RateLimit-Limit`, `-Remaining`, `-Reset` as seconds from now, `X-RateLimit-Limit-Minute` and the like, `Retry-After`.
    Kong,
    /// No header.
    None,
}

impl Dialect {
    /// What is written unless a listener says otherwise.
    pub const DEFAULT: [Self; 3] = [Self::Ietf11, Self::XEpoch, Self::RetryAfter];

    /// All of them, in the order in which they are documented.
    pub const ALL: [Self; 9] = [
        Self::Ietf11,
        Self::XEpoch,
        Self::RetryAfter,
        Self::XDelta,
        Self::Github,
        Self::Twitter,
        Self::Envoy,
        Self::Kong,
        Self::None,
    ];

    /// The name used in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ietf11 => "ietf-11",
            Self::XEpoch => "x-epoch",
            Self::XDelta => "x-delta",
            Self::RetryAfter => "retry-after",
            Self::Github => "github",
            Self::Twitter => "twitter",
            Self::Envoy => "envoy",
            Self::Kong => "kong",
            Self::None => "none",
        }
    }

    /// The dialect of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dialect| dialect.name() == name)
    }
}

/// The most that one limit takes in a header: its name and number, and each parameter at its longest.
const LISTED_BYTES_MAX: usize = NAME_MAX
    + "\"-256\";q=4294967295;w=31622400;qu=\"concurrent-requests\";tidegate-burst=4294967295, ".len();
/// The most that stands before those that are listed.
const BEFORE_LISTED_BYTES_MAX: usize = "4294967295, ".len();
/// Some proxies refuse headers that are larger.
const _: () = assert!(BEFORE_LISTED_BYTES_MAX + LISTED_MAX * LISTED_BYTES_MAX <= LINE_BYTES_MAX);
/// Limits of one name are told apart by a number, of three digits at most.
const _: () = assert!(TAKES_MAX <= 256);

/// Hands every header of these dialects to `put`, names in lower case as HTTP/2 wants them. Where dialects share a header, it is written
/// once, and the first of them says what it means.
pub fn write(
    dialects: &[Dialect],
    told: &Told<'_>,
    wall_now_us: u64,
    put: &mut impl FnMut(&'static HeaderName, &str),
) {
    let mut writer = Writer { told, wall_now_us, put, line: Line::default(), trio: false, retry: false };
    for (at, dialect) in dialects.iter().enumerate() {
        if dialects[..at].contains(dialect) {
            continue;
        }
        match dialect {
            Dialect::Ietf11 => writer.ietf(),
            Dialect::XEpoch => writer.x_epoch(),
            Dialect::XDelta => writer.x_delta(),
            Dialect::RetryAfter => writer.retry_after(),
            Dialect::Github => writer.github(),
            Dialect::Twitter => writer.twitter(),
            Dialect::Envoy => writer.envoy(),
            Dialect::Kong => writer.kong(),
            Dialect::None => {}
        }
    }
}

struct Writer<'w, 't, P> {
    told: &'w Told<'t>,
    wall_now_us: u64,
    put: &'w mut P,
    /// Used for one header after the other.
    line: Line,
    /// Are `X-RateLimit-Limit`, `-Remaining` and `-Reset` written?
    trio: bool,
    /// Is `Retry-After`?
    retry: bool,
}

static X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
static X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
static X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static X_RATELIMIT_POLICY: HeaderName = HeaderName::from_static("x-ratelimit-policy");
static X_RATELIMIT_USED: HeaderName = HeaderName::from_static("x-ratelimit-used");
static X_RATELIMIT_RESOURCE: HeaderName = HeaderName::from_static("x-ratelimit-resource");
static X_RATE_LIMIT_LIMIT: HeaderName = HeaderName::from_static("x-rate-limit-limit");
static X_RATE_LIMIT_REMAINING: HeaderName = HeaderName::from_static("x-rate-limit-remaining");
static X_RATE_LIMIT_RESET: HeaderName = HeaderName::from_static("x-rate-limit-reset");
static RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
static RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
static RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
static RETRY_AFTER: HeaderName = HeaderName::from_static("retry-after");

impl<P: FnMut(&'static HeaderName, &str)> Writer<'_, '_, P> {
    fn ietf(&mut self) {
        let told = self.told;
        if !told.limits().is_empty() {
            self.header(&RATELIMIT_POLICY, |line| {
                list(line, told.listed(), |line, at| {
                    put_item(line, told, at);
                    put_policy(line, &told.limits()[at]);
                });
            });
        }
        if let (Some(at), Some(limit)) = (told.speaks_at(), told.speaks()) {
            self.header(&RATELIMIT, |line| {
                put_item(line, told, at);
                put_parameter(line, ";r=", limit.remaining);
                put_parameter(line, ";t=", limit.reset.secs_up());
            });
        }
    }

    fn x_epoch(&mut self) {
        let Some(limit) = self.told.speaks() else { return };
        self.trio(limit, self.epoch(limit));
        self.header(&X_RATELIMIT_POLICY, |line| {
            line.put_number(limit.amount.into());
            if let Some(window_s) = limit.span.window_s() {
                put_parameter(line, ";w=", window_s);
            }
        });
    }

    fn x_delta(&mut self) {
        let Some(limit) = self.told.speaks() else { return };
        self.trio(limit, limit.reset.secs_up());
    }

    fn github(&mut self) {
        let told = self.told;
        let (Some(at), Some(limit)) = (told.speaks_at(), told.speaks()) else { return };
        self.trio(limit, self.epoch(limit));
        self.number(&X_RATELIMIT_USED, (limit.amount - limit.remaining).into());
        self.header(&X_RATELIMIT_RESOURCE, |line| told.put_name(line, at));
    }

    fn twitter(&mut self) {
        let Some(limit) = self.told.speaks() else { return };
        self.number(&X_RATE_LIMIT_LIMIT, limit.amount.into());
        self.number(&X_RATE_LIMIT_REMAINING, limit.remaining.into());
        self.number(&X_RATE_LIMIT_RESET, self.epoch(limit));
    }

    fn envoy(&mut self) {
        let told = self.told;
        let Some(limit) = told.speaks().filter(|_| !self.trio) else { return };
        self.header(&X_LIMIT, |line| {
            line.put_number(limit.amount.into());
            for at in told.listed() {
                let limit = &told.limits()[at];
                // Envoy leaves out what has no window.
                let Some(window_s) = limit.span.window_s() else { continue };
                put_parameter(line, ", ", limit.amount);
                put_parameter(line, ";w=", window_s);
                line.put(";name=");
                put_item(line, told, at);
            }
        });
        self.number(&X_REMAINING, limit.remaining.into());
        self.number(&X_RESET, limit.reset.secs_up());
        self.trio = true;
    }

    fn kong(&mut self) {
        for (seconds, unit, of_limit, of_remaining) in &KONG {
            let is = |limit: &&ToldLimit<'_>| match limit.span {
                Span::Window(window) => window.get() == seconds * 1_000_000,
                Span::Calendar(period) => period.name() == *unit,
                Span::Places => false,
            };
            // Kong has one limit for each unit. Of several the tightest counts.
            let tightest = self.told.limits().iter().filter(is).min_by_key(|limit| limit.remaining);
            if let Some(limit) = tightest {
                self.number(of_limit, limit.amount.into());
                self.number(of_remaining, limit.remaining.into());
            }
        }
        if let Some(limit) = self.told.speaks() {
            self.number(&RATELIMIT_LIMIT, limit.amount.into());
            self.number(&RATELIMIT_REMAINING, limit.remaining.into());
            self.number(&RATELIMIT_RESET, limit.reset.secs_up().max(1));
        }
        self.retry_after();
    }

    fn retry_after(&mut self) {
        if let Some(wait_s) = self.told.retry_after_s().filter(|_| !self.retry) {
            self.number(&RETRY_AFTER, wait_s);
            self.retry = true;
        }
    }

    fn trio(&mut self, limit: &ToldLimit<'_>, reset_s: u64) {
        if !self.trio {
            self.number(&X_LIMIT, limit.amount.into());
            self.number(&X_REMAINING, limit.remaining.into());
            self.number(&X_RESET, reset_s);
            self.trio = true;
        }
    }

    /// The reset in Unix seconds, up: whoever comes back then is not early.
    fn epoch(&self, limit: &ToldLimit<'_>) -> u64 {
        self.wall_now_us.saturating_add(limit.reset.get()).div_ceil(1_000_000)
    }

    fn number(&mut self, name: &'static HeaderName, number: u64) {
        self.header(name, |line| line.put_number(number));
    }

    fn header(&mut self, name: &'static HeaderName, write: impl FnOnce(&mut Line)) {
        self.line.clear();
        write(&mut self.line);
        (self.put)(name, self.line.text());
    }
}

/// The units that Kong counts in, with its names for them.
static KONG: [(u64, &str, HeaderName, HeaderName); 6] = [
    (
        1,
        "second",
        HeaderName::from_static("x-ratelimit-limit-second"),
        HeaderName::from_static("x-ratelimit-remaining-second"),
    ),
    (
        60,
        "minute",
        HeaderName::from_static("x-ratelimit-limit-minute"),
        HeaderName::from_static("x-ratelimit-remaining-minute"),
    ),
    (
        3_600,
        "hour",
        HeaderName::from_static("x-ratelimit-limit-hour"),
        HeaderName::from_static("x-ratelimit-remaining-hour"),
    ),
    (
        86_400,
        "day",
        HeaderName::from_static("x-ratelimit-limit-day"),
        HeaderName::from_static("x-ratelimit-remaining-day"),
    ),
    (
        30 * 86_400,
        "month",
        HeaderName::from_static("x-ratelimit-limit-month"),
        HeaderName::from_static("x-ratelimit-remaining-month"),
    ),
    (
        365 * 86_400,
        "year",
        HeaderName::from_static("x-ratelimit-limit-year"),
        HeaderName::from_static("x-ratelimit-remaining-year"),
    ),
];

fn put_policy(line: &mut Line, limit: &ToldLimit<'_>) {
    put_parameter(line, ";q=", limit.amount);
    if let Some(window_s) = limit.span.window_s() {
        put_parameter(line, ";w=", window_s);
    }
    if limit.span == Span::Places {
        line.put(";qu=\"concurrent-requests\"");
    }
    if let Some(burst) = limit.burst {
        put_parameter(line, ";tidegate-burst=", burst);
    }
}

/// The name of a limit as a String of structured fields: names need no escape.
fn put_item(line: &mut Line, told: &Told<'_>, at: usize) {
    line.put("\"");
    told.put_name(line, at);
    line.put("\"");
}

fn put_parameter(line: &mut Line, key: &str, number: impl Into<u64>) {
    line.put(key);
    line.put_number(number.into());
}

fn list(line: &mut Line, items: impl Iterator<Item = usize>, mut write: impl FnMut(&mut Line, usize)) {
    for (nth, at) in items.enumerate() {
        if nth > 0 {
            line.put(", ");
        }
        write(line, at);
    }
}
