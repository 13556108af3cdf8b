//! One limit: from what was written, perhaps changed by a tier, to the numbers that count.

use tidegate_core::{
    Algorithm, Calendar, Charge, Consistency, Limit, LimitError, Micros, OnStoreFailure, Policy, RuleDraft,
    Share, Unit, Weekday,
};

use super::places::{UNITS, unit_window};
use crate::codes::Code;
use crate::diagnostic::{Diagnostic, quoted};
use crate::reader::{Map, Reader, Spanned, Value};
use crate::scalars::Percent;
use crate::source::Span;
use crate::theirs;
use crate::times::TimeUnit;

/// How long places are held unless a limit says.
const TTL_DEFAULT: Micros = Micros::from_secs(60);

/// What holds for limits that do not say otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub struct Defaults {
    /// How they are counted.
    pub algorithm: Option<Algorithm>,
    /// How exactly they are kept.
    pub consistency: Option<Consistency>,
    /// What is answered without the store.
    pub on_store_failure: Option<OnStoreFailure>,
    /// What a node may spend alone.
    pub local_share: Option<Share>,
    /// How many replicas have to have a charge.
    pub replicate: Option<u8>,
}

impl Defaults {
    /// What the fields say that `get` finds, and else what holds already.
    pub(crate) fn of<'a>(get: impl Fn(&'static str) -> Option<Value<'a>>, else_: Self) -> Self {
        let word = |name| get(name).and_then(Value::word).map(|word| word.value);
        let local_share = get("local_share").and_then(Value::percent);
        let replicate = get("replicate").and_then(Value::whole);
        Self {
            algorithm: word("algorithm").map(algorithm).or(else_.algorithm),
            consistency: word("consistency").map(consistency).or(else_.consistency),
            on_store_failure: word("on_store_failure").map(on_store_failure).or(else_.on_store_failure),
            local_share: local_share.map(|percent| share(percent.value)).or(else_.local_share),
            replicate: replicate.map(|number| number.value as u8).or(else_.replicate),
        }
    }
}

/// What was written about one limit.
#[derive(Clone, Debug)]
pub(crate) struct LimitText<'a> {
    /// All of it.
    pub(crate) span: Span,
    /// Something in it could not be read, and was told. What follows from that need not be.
    broken: bool,
    amount: Option<Spanned<u64>>,
    window: Option<Spanned<WindowText>>,
    pub(crate) unlimited: Option<Spanned<bool>>,
    algorithm: Option<Spanned<Algorithm>>,
    burst: Option<Spanned<u64>>,
    sub_windows: Option<Spanned<u64>>,
    strict: Option<Spanned<bool>>,
    ttl: Option<Spanned<Micros>>,
    time_zone: Option<Spanned<&'a str>>,
    week_start: Option<Spanned<&'static str>>,
    charge: Option<Spanned<Charge>>,
    pub(crate) enforce: Option<Spanned<Share>>,
    disabled: Option<Spanned<bool>>,
    consistency: Option<Spanned<Consistency>>,
    on_store_failure: Option<Spanned<OnStoreFailure>>,
    local_share: Option<Spanned<Share>>,
    replicate: Option<Spanned<u64>>,
    pub(crate) name: Option<Spanned<&'a str>>,
    pub(crate) replaces: Vec<Spanned<&'a str>>,
    lease_id: Option<Spanned<&'a str>>,
    reservation_id: Option<Spanned<&'a str>>,
}

/// A window as it was written: its length, and the calendar's unit that it may be meant as.
#[derive(Clone, Copy, Debug)]
struct WindowText {
    length: Micros,
    unit: Option<TimeUnit>,
}

impl<'a> LimitText<'a> {
    /// Reads a `rate_limit` or, with fewer fields, a tier; none if it is no map.
    pub(crate) fn read(reader: &Reader, value: Value<'a>) -> Option<Self> {
        let errors = reader.errors_met();
        let map = &value.map()?;
        let whole = |name| map.whole(name);
        let named = |name| map.place().field(name).is_some();
        let rate = map.rate("limit");
        let (mut amount, unit) = (whole("requests_per_unit"), unit(reader, map));
        let mut window = unit.map(|unit| Spanned {
            value: WindowText { length: unit_window(unit.value), unit: Some(time_unit(unit.value)) },
            span: unit.span,
        });
        if let Some(rate) = rate {
            for other in [amount.map(|amount| amount.span), unit.map(|unit| unit.span)].into_iter().flatten()
            {
                reader.say(
                    Diagnostic::new(Code::SaidTwice, other, "the limit is given in two spellings")
                        .label("once more")
                        .note(rate.span, "given here as one word")
                        .help("keep `limit`, or `requests_per_unit` and `unit`"),
                );
            }
            amount = Some(Spanned { value: rate.value.amount, span: rate.span });
            window = rate.value.window.map(|window| Spanned {
                value: WindowText { length: window.length, unit: window.unit },
                span: rate.span,
            });
        }
        let percent = |name| {
            map.percent(name).map(|percent| Spanned { value: share(percent.value), span: percent.span })
        };
        let optional = |name: &'static str| if named(name) { map.text(name) } else { None };
        let text =
            Self {
                span: map.span(),
                broken: false,
                amount,
                window,
                unlimited: map.flag("unlimited"),
                algorithm: worded(map, "algorithm", algorithm),
                burst: whole("burst"),
                sub_windows: whole("sub_windows"),
                strict: map.flag("strict"),
                ttl: map.duration("ttl"),
                time_zone: map.text("time_zone"),
                week_start: map.word("week_start"),
                charge: worded(map, "charge", |word| {
                    if word == "always" { Charge::Always } else { Charge::Admitted }
                }),
                enforce: percent("enforce"),
                disabled: map.flag("disabled"),
                consistency: worded(map, "consistency", consistency),
                on_store_failure: worded(map, "on_store_failure", on_store_failure),
                local_share: percent("local_share"),
                replicate: whole("replicate"),
                name: optional("name").filter(|name| !name.value.is_empty()),
                replaces: if named("replaces") { replaces(reader, map) } else { Vec::new() },
                lease_id: optional("lease_id"),
                reservation_id: optional("reservation_id"),
            };
        Some(Self { broken: reader.errors_met() > errors, ..text })
    }

    /// The limit of a tier: what it says, and for the rest what the limit of everybody else does.
    pub(crate) fn over(self, base: &Self, defaults: &Defaults) -> Self {
        let of_base = or(base.algorithm, defaults.algorithm, Algorithm::SlidingWindow);
        let other_algorithm = self.algorithm.is_some_and(|own| own.value != of_base);
        let limited = self.amount.is_some() || self.window.is_some();
        let unlimited = self.unlimited.is_some_and(|flag| flag.value);
        // Fields of the algorithm that the tier leaves behind stay behind with it.
        let keep = |field: bool| field && !other_algorithm;
        Self {
            span: self.span,
            broken: self.broken || base.broken,
            amount: self.amount.or(base.amount.filter(|_| !unlimited)),
            window: self.window.or(base.window.filter(|_| !unlimited)),
            unlimited: self.unlimited.or(base.unlimited.filter(|_| !limited)),
            algorithm: self.algorithm.or(base.algorithm),
            burst: self.burst.or(base.burst.filter(|_| keep(!unlimited))),
            sub_windows: self.sub_windows.or(base.sub_windows.filter(|_| keep(!unlimited))),
            strict: self.strict.or(base.strict.filter(|_| keep(!unlimited))),
            ttl: self.ttl.or(base.ttl.filter(|_| keep(!unlimited))),
            time_zone: self.time_zone.or(base.time_zone.filter(|_| keep(!unlimited))),
            week_start: self.week_start.or(base.week_start.filter(|_| keep(!unlimited))),
            charge: self.charge.or(base.charge),
            enforce: self.enforce.or(base.enforce),
            disabled: self.disabled.or(base.disabled),
            consistency: self.consistency.or(base.consistency),
            on_store_failure: self.on_store_failure.or(base.on_store_failure),
            local_share: self.local_share.or(base.local_share),
            replicate: self.replicate.or(base.replicate),
            name: base.name,
            replaces: base.replaces.clone(),
            lease_id: base.lease_id.filter(|_| keep(true)),
            reservation_id: base.reservation_id,
        }
    }

    /// The keys of entries that have ids in them.
    pub(crate) fn ids(&self) -> impl Iterator<Item = Spanned<&'a str>> {
        self.lease_id.into_iter().chain(self.reservation_id)
    }

    /// The rule, if all of it makes sense; what does not is told.
    pub(crate) fn rule(&self, reader: &Reader, defaults: &Defaults) -> Option<RuleDraft> {
        if self.broken {
            return None;
        }
        let limit = if self.unlimited.is_some_and(|flag| flag.value) {
            self.refuse_numbers(reader)?;
            None
        } else {
            Some(self.limit(reader, defaults)?)
        };
        let text = |text: Option<Spanned<&str>>| text.map(|text| Box::from(text.value));
        let value = |flag: Option<Spanned<bool>>| flag.is_some_and(|flag| flag.value);
        let defaulted = Policy::default();
        let policy = Policy {
            consistency: or(self.consistency, defaults.consistency, defaulted.consistency),
            on_store_failure: or(
                self.on_store_failure,
                defaults.on_store_failure,
                defaulted.on_store_failure,
            ),
            local_share: self.local_share.map(|share| share.value).or(defaults.local_share),
            replicate: self.replicate.map(|number| number.value as u8).or(defaults.replicate).unwrap_or(0),
        };
        Some(RuleDraft {
            name: text(self.name),
            limit,
            policy,
            disabled: value(self.disabled),
            enforce: self.enforce.map(|share| share.value),
            replaces: self.replaces.iter().map(|name| name.value.into()).collect(),
            lease_id: text(self.lease_id),
            reservation_id: text(self.reservation_id),
            ..RuleDraft::default()
        })
    }

    fn limit(&self, reader: &Reader, defaults: &Defaults) -> Option<Limit> {
        let algorithm = or(self.algorithm, defaults.algorithm, Algorithm::SlidingWindow);
        self.refuse_foreign(reader, algorithm)?;
        let amount = self.amount(reader)?;
        let strict = self.strict.is_some_and(|flag| flag.value);
        let burst = self.burst.map(|burst| burst.value);
        let window = || self.window(reader, algorithm);
        let limit = match algorithm {
            Algorithm::SlidingWindow if strict => Limit::sliding_window_strict(amount, window()?),
            Algorithm::SlidingWindow => Limit::sliding_window(amount, window()?),
            Algorithm::SlidingLog => Limit::sliding_log(amount, window()?),
            Algorithm::SlidingWindowCounter => Limit::sliding_window_counter(amount, window()?),
            Algorithm::SubWindow => {
                let k = self.sub_windows.map(|k| k.value as u32);
                Limit::sub_window(amount, window()?, k, strict)
            }
            Algorithm::FixedWindow => Limit::fixed_window(amount, window()?),
            Algorithm::TokenBucket => Limit::token_bucket(amount, window()?, burst),
            Algorithm::Gcra => Limit::gcra(amount, window()?, burst),
            Algorithm::LeakyBucket => Limit::leaky_bucket(amount, window()?, burst),
            Algorithm::Concurrency => {
                self.refuse_window(reader)?;
                Limit::concurrency(amount, self.ttl.map_or(TTL_DEFAULT, |ttl| ttl.value))
            }
            Algorithm::Calendar => {
                self.calendar(reader)?.and_then(|calendar| Limit::calendar(amount, calendar))
            }
        };
        let charge = self.charge.map_or(Charge::Admitted, |charge| charge.value);
        match limit.and_then(|limit| limit.charging(charge)) {
            Ok(limit) => Some(limit),
            Err(error) => {
                reader.say(self.impossible(&error));
                None
            }
        }
    }

    fn amount(&self, reader: &Reader) -> Option<u64> {
        match self.amount {
            Some(Spanned { value: 0, span }) => {
                reader.say(
                    Diagnostic::new(Code::LimitZero, span, "a limit of 0 refuses every request")
                        .label("refuses everything")
                        .help("nothing has to be done if that is meant; else give it a number, or `unlimited: true`"),
                );
                Some(0)
            }
            Some(amount) => Some(amount.value),
            None if self.window.is_some() => {
                // As in the format that ours extends, where it is 0.
                reader.say(
                    Diagnostic::new(
                        Code::LimitZero,
                        self.span,
                        "without `requests_per_unit` the limit is 0 and refuses every request",
                    )
                    .label("no `requests_per_unit`")
                    .help("add `requests_per_unit`, or write `requests_per_unit: 0` if that is meant"),
                );
                Some(0)
            }
            None => {
                reader.say(
                    Diagnostic::new(Code::NoLimit, self.span, "a limit without a number")
                        .label("how much?")
                        .help("add e.g. `limit: 100/1m`, or `unlimited: true`")
                        .theirs(theirs::invalid_unit("")),
                );
                None
            }
        }
    }

    fn window(&self, reader: &Reader, algorithm: Algorithm) -> Option<Micros> {
        if self.window.is_none() {
            let at = self.amount.map_or(self.span, |amount| amount.span);
            reader.say(
                Diagnostic::new(Code::NoWindow, at, "a limit without a window")
                    .label(format!("in which time? `{algorithm}` needs one"))
                    .help("write e.g. `limit: 100/1m` or add `unit: minute`; for so many at once use `algorithm: concurrency`")
                    .theirs(theirs::invalid_unit("")),
            );
        }
        self.window.map(|window| window.value.length)
    }

    fn refuse_window(&self, reader: &Reader) -> Option<()> {
        let Some(window) = self.window else { return Some(()) };
        reader.say(
            Diagnostic::new(
                Code::ForeignField,
                window.span,
                "`concurrency` has no window: so many at once, however long they take",
            )
            .label("has a window")
            .help("write the number alone, e.g. `limit: 20`; how long a place may be held is `ttl`"),
        );
        None
    }

    fn calendar(&self, reader: &Reader) -> Option<Result<Calendar, LimitError>> {
        let unit = match self.window.map(|window| window.value.unit) {
            Some(Some(TimeUnit::Day)) => Unit::Day,
            Some(Some(TimeUnit::Week)) => Unit::Week,
            Some(Some(TimeUnit::Month)) => Unit::Month,
            _ => {
                let at = self.window.map_or(self.span, |window| window.span);
                reader.say(
                    Diagnostic::new(
                        Code::NotACalendarUnit,
                        at,
                        "a calendar counts by `day`, `week` or `month`",
                    )
                    .label("is none of them")
                    .help("write e.g. `limit: 1000/month`, or use another algorithm for this window"),
                );
                return None;
            }
        };
        if let Some(start) = self.week_start
            && unit != Unit::Week
        {
            reader.say(
                Diagnostic::new(Code::ForeignField, start.span, "`week_start` is for weeks only")
                    .label(format!("the limit is per {}", unit.name()))
                    .help("remove it, or count per `week`"),
            );
            return None;
        }
        let zone = self.time_zone.map_or("UTC", |zone| zone.value);
        Some(Calendar::new(unit, zone, self.week_start.map_or(Weekday::Monday, |day| weekday(day.value))))
    }

    /// Fields that another algorithm has.
    fn refuse_foreign(&self, reader: &Reader, algorithm: Algorithm) -> Option<()> {
        use Algorithm::{Calendar, Concurrency, Gcra, LeakyBucket, SlidingWindow, SubWindow, TokenBucket};
        let span = |given: Option<Span>, name, of: &'static [Algorithm]| given.map(|span| (span, name, of));
        let given = [
            span(self.burst.map(|it| it.span), "burst", &[TokenBucket, Gcra, LeakyBucket]),
            span(self.sub_windows.map(|it| it.span), "sub_windows", &[SubWindow]),
            span(self.strict.filter(|it| it.value).map(|it| it.span), "strict", &[SlidingWindow, SubWindow]),
            span(self.ttl.map(|it| it.span), "ttl", &[Concurrency]),
            span(self.lease_id.map(|it| it.span), "lease_id", &[Concurrency]),
            span(self.time_zone.map(|it| it.span), "time_zone", &[Calendar]),
            span(self.week_start.map(|it| it.span), "week_start", &[Calendar]),
        ];
        let mut fine = Some(());
        for (span, name, of) in given.into_iter().flatten().filter(|(_, _, of)| !of.contains(&algorithm)) {
            let of: Vec<String> = of.iter().map(|algorithm| format!("`{algorithm}`")).collect();
            reader.say(
                Diagnostic::new(Code::ForeignField, span, format!("`{algorithm}` has no `{name}`"))
                    .label(format!("only for {}", of.join(", ")))
                    .help(format!("remove it, or write `algorithm: {}`", of[0].trim_matches('`'))),
            );
            fine = None;
        }
        fine
    }

    fn refuse_numbers(&self, reader: &Reader) -> Option<()> {
        let unlimited = self.unlimited.map_or(self.span, |flag| flag.span);
        if let Some(window) = self.window {
            reader.say(
                Diagnostic::new(Code::UnlimitedLimit, window.span, "`unlimited` stands without a limit")
                    .label("a limit")
                    .note(unlimited, "unlimited")
                    .help("remove one of them")
                    .theirs(theirs::UNIT_OF_UNLIMITED),
            );
            return None;
        }
        let fields = [
            (self.burst.map(|it| it.span), "burst"),
            (self.sub_windows.map(|it| it.span), "sub_windows"),
            (self.strict.filter(|it| it.value).map(|it| it.span), "strict"),
            (self.ttl.map(|it| it.span), "ttl"),
            (self.time_zone.map(|it| it.span), "time_zone"),
            (self.week_start.map(|it| it.span), "week_start"),
        ];
        if let Some((span, name)) = fields.into_iter().find_map(|(span, name)| Some((span?, name))) {
            reader.say(
                Diagnostic::new(Code::ForeignField, span, format!("`unlimited` has no `{name}`"))
                    .label("nothing is counted")
                    .note(unlimited, "unlimited")
                    .help("remove one of them"),
            );
            return None;
        }
        if let Some(amount) = self.amount {
            // The format that ours extends takes it.
            reader.say(
                Diagnostic::new(Code::IgnoredAmount, amount.span, "a number beside `unlimited`")
                    .label("has no effect")
                    .note(unlimited, "unlimited")
                    .help("remove one of them"),
            );
        }
        Some(())
    }

    /// What a constructor of the law says, at the field that it speaks of.
    fn impossible(&self, error: &LimitError) -> Diagnostic {
        let whole = self.window.map_or(self.span, |window| window.span);
        let at = match error {
            LimitError::AmountTooLarge { .. }
            | LimitError::LogTooLong { .. }
            | LimitError::PlacesTooMany { .. } => self.amount.map(|amount| amount.span),
            LimitError::BurstOutOfRange { .. } | LimitError::BurstTooSlow { .. } => {
                self.burst.map(|burst| burst.span)
            }
            LimitError::SubWindowsDoNotFit { .. } => self.sub_windows.map(|k| k.span),
            LimitError::TtlOutOfRange { .. } => self.ttl.map(|ttl| ttl.span),
            LimitError::ZoneUnknown { .. } => self.time_zone.map(|zone| zone.span),
            LimitError::AlwaysWithoutWindow => self.charge.map(|charge| charge.span),
            LimitError::WindowOutOfRange { .. }
            | LimitError::TickTooCoarse { .. }
            | LimitError::DelayTooLong { .. } => None,
        };
        // The law says what is wrong, then how to mend it. Of a zone it repeats what the file says, which may be anything.
        let text = error.to_string();
        let (what, fix) = match error {
            LimitError::ZoneUnknown { zone } => {
                let fix = text.rsplit_once(": ").map_or("", |(_, fix)| fix);
                (format!("time zone {} is unknown", quoted(zone)), fix)
            }
            _ => text.split_once(": ").map_or_else(|| (text.clone(), ""), |(what, fix)| (what.into(), fix)),
        };
        let trouble = Diagnostic::new(Code::ImpossibleLimit, at.unwrap_or(whole), what)
            .label("cannot be counted like this");
        if fix.is_empty() { trouble } else { trouble.help(fix) }
    }
}

/// The unit. Of what is unlimited envoyproxy/ratelimit refuses one that is right, and ignores one that is not.
fn unit(reader: &Reader, map: &Map<'_>) -> Option<Spanned<&'static str>> {
    let text =
        map.get("unit").and_then(|unit| Some(Spanned { value: unit.node().text()?, span: unit.span() }));
    let is_unit =
        |text: &str| UNITS.iter().any(|word| word.spellings().any(|known| known.eq_ignore_ascii_case(text)));
    let wrong = text.filter(|text| !is_unit(text.value));
    let is_unlimited = || map.flag("unlimited").is_some_and(|flag| flag.value);
    match wrong {
        Some(wrong) if reader.is_as_reference() && is_unlimited() => {
            reader.say(
                Diagnostic::new(Code::IgnoredKey, wrong.span, format!("{} is no unit", quoted(wrong.value)))
                    .label("has no effect beside `unlimited`")
                    .help("remove it"),
            );
            None
        }
        _ => map.word("unit"),
    }
}

fn replaces<'a>(reader: &Reader, map: &Map<'a>) -> Vec<Spanned<&'a str>> {
    let mut names = Vec::new();
    for item in map.list("replaces").into_iter().flatten() {
        let Some(name) = item.map().and_then(|item| item.text("name")) else { continue };
        if name.value.is_empty() {
            reader.say(
                Diagnostic::new(Code::EmptyText, name.span, "a `replaces` without a name")
                    .label("empty")
                    .help("write the `name` of the limit that is replaced, or remove the entry")
                    .theirs(theirs::EMPTY_REPLACES),
            );
        }
        names.push(name);
    }
    let own = if names.is_empty() { None } else { map.text("name") };
    for name in names.iter().filter(|name| own.is_some_and(|own| own.value == name.value)) {
        reader.say(
            Diagnostic::new(
                Code::ReplacesItself,
                name.span,
                format!("the limit {} replaces itself", quoted(name.value)),
            )
            .label("its own name")
            .help("write the name of another limit")
            .theirs(theirs::REPLACES_ITSELF),
        );
    }
    names
}

fn or<T: Copy>(said: Option<Spanned<T>>, default: Option<T>, else_: T) -> T {
    said.map(|said| said.value).or(default).unwrap_or(else_)
}

fn worded<T>(map: &Map<'_>, name: &'static str, of: impl Fn(&'static str) -> T) -> Option<Spanned<T>> {
    map.word(name).map(|word| Spanned { value: of(word.value), span: word.span })
}

fn share(percent: Percent) -> Share {
    Share::of_basis_points(percent.basis_points.min(10_000) as u16)
}

/// The words of the table, whose first is the default.
fn algorithm(word: &str) -> Algorithm {
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == word).unwrap_or(Algorithm::SlidingWindow)
}

fn consistency(word: &str) -> Consistency {
    match word {
        "leased" => Consistency::Leased,
        "capped" => Consistency::Capped,
        "local" => Consistency::Local,
        _ => Consistency::Exact,
    }
}

fn on_store_failure(word: &str) -> OnStoreFailure {
    match word {
        "deny" => OnStoreFailure::Deny,
        "local" => OnStoreFailure::Local,
        "error" => OnStoreFailure::Error,
        _ => OnStoreFailure::Allow,
    }
}

fn weekday(word: &str) -> Weekday {
    match word {
        "tuesday" => Weekday::Tuesday,
        "wednesday" => Weekday::Wednesday,
        "thursday" => Weekday::Thursday,
        "friday" => Weekday::Friday,
        "saturday" => Weekday::Saturday,
        "sunday" => Weekday::Sunday,
        _ => Weekday::Monday,
    }
}

fn time_unit(word: &str) -> TimeUnit {
    match word {
        "second" => TimeUnit::Second,
        "minute" => TimeUnit::Minute,
        "hour" => TimeUnit::Hour,
        "day" => TimeUnit::Day,
        "week" => TimeUnit::Week,
        "month" => TimeUnit::Month,
        _ => TimeUnit::Year,
    }
}
