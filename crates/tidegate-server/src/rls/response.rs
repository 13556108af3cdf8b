//! `RateLimitResponse`: written straight into its bytes.

use tidegate_core::Micros;

use super::wire::{put_always, put_bytes, put_double, put_message, put_number};

/// What a descriptor, or the whole request, is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// Go on.
    Ok = 1,
    /// Stop.
    OverLimit = 2,
}

/// What one descriptor is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status<'a> {
    /// Go on, or stop.
    pub code: Code,
    /// The limit that is told of.
    pub limit: Option<CurrentLimit<'a>>,
    /// How much of it is left.
    pub remaining: u32,
    /// When there is more.
    pub reset: Option<Micros>,
}

/// A limit as Envoy tells it: so many in so many units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurrentLimit<'a> {
    /// How many.
    pub amount: u32,
    /// In which unit, by its number.
    pub unit: u32,
    /// How many of the unit.
    pub multiplier: u32,
    /// Its name.
    pub name: &'a str,
}

impl<'a> CurrentLimit<'a> {
    /// The largest unit that divides the window, and how often. Windows that are no whole seconds cannot be told.
    pub fn new(amount: u32, window: Micros, name: &'a str) -> Option<Self> {
        // To Envoy a month has 30 days and a year 365.
        const DAY: u64 = 86_400;
        const UNITS: [(u64, u32); 7] =
            [(365 * DAY, 6), (30 * DAY, 5), (7 * DAY, 7), (DAY, 4), (3_600, 3), (60, 2), (1, 1)];
        let seconds = window.get().is_multiple_of(1_000_000).then(|| window.get() / 1_000_000)?;
        let (length, unit) = UNITS.into_iter().find(|(length, _)| seconds.is_multiple_of(*length))?;
        Some(Self { amount, unit, multiplier: u32::try_from(seconds / length).ok()?, name })
    }
}

impl CurrentLimit<'_> {
    /// What its unit is called.
    pub fn unit_name(&self) -> &'static str {
        const NAMES: [&str; 8] = ["UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK"];
        NAMES.get(self.unit as usize).copied().unwrap_or(NAMES[0])
    }
}

/// Writes a response, field by field.
pub struct ResponseWriter<'o>(&'o mut Vec<u8>);

impl<'o> ResponseWriter<'o> {
    /// Begins a response, with what the whole request is told.
    pub fn start(out: &'o mut Vec<u8>, overall: Code) -> Self {
        put_number(out, 1, overall as u64);
        Self(out)
    }

    /// What the next descriptor is told.
    pub fn status(&mut self, status: &Status<'_>) {
        put_message(self.0, 2, |out| {
            put_number(out, 1, status.code as u64);
            if let Some(limit) = &status.limit {
                put_message(out, 2, |out| put_limit(out, limit));
            }
            put_number(out, 3, status.remaining.into());
            if let Some(reset) = status.reset {
                // In whole seconds, up: Envoy rounds down, and an early retry is refused again.
                put_message(out, 4, |out| put_number(out, 1, reset.secs_up()));
            }
        });
    }

    /// A header for the answer that the caller gets.
    pub fn response_header(&mut self, name: &str, value: &str) {
        put_message(self.0, 3, |out| {
            put_bytes(out, 1, name.as_bytes());
            put_bytes(out, 2, value.as_bytes());
        });
    }

    /// The body of a refusal.
    pub fn body(&mut self, body: &[u8]) {
        put_bytes(self.0, 5, body);
    }

    /// What the proxy keeps beside the request.
    pub fn metadata(&mut self, write: impl FnOnce(&mut FieldWriter<'_>)) {
        put_message(self.0, 6, |out| write(&mut FieldWriter(out)));
    }
}

/// Writes the fields of a `google.protobuf.Struct`.
pub struct FieldWriter<'o>(&'o mut Vec<u8>);

impl FieldWriter<'_> {
    /// A text.
    pub fn text(&mut self, name: &str, text: &str) {
        // In a choice of several kinds even an empty text has to be there.
        self.field(name, |out| put_message(out, 3, |out| out.extend_from_slice(text.as_bytes())));
    }

    /// A number.
    pub fn number(&mut self, name: &str, number: f64) {
        self.field(name, |out| put_double(out, 2, number));
    }

    /// True or false.
    pub fn flag(&mut self, name: &str, flag: bool) {
        self.field(name, |out| put_flag(out, flag));
    }

    /// Nothing.
    pub fn null(&mut self, name: &str) {
        self.field(name, put_null);
    }

    /// A list.
    pub fn list(&mut self, name: &str, write: impl FnOnce(&mut ListWriter<'_>)) {
        self.field(name, |out| put_message(out, 6, |out| write(&mut ListWriter(out))));
    }

    /// Fields of its own.
    pub fn fields(&mut self, name: &str, write: impl FnOnce(&mut FieldWriter<'_>)) {
        self.field(name, |out| put_message(out, 5, |out| write(&mut FieldWriter(out))));
    }

    fn field(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
        put_message(self.0, 1, |out| {
            put_bytes(out, 1, name.as_bytes());
            put_message(out, 2, value);
        });
    }
}

/// Writes the items of a `google.protobuf.ListValue`.
pub struct ListWriter<'o>(&'o mut Vec<u8>);

impl ListWriter<'_> {
    /// A text.
    pub fn text(&mut self, text: &str) {
        self.item(|out| put_message(out, 3, |out| out.extend_from_slice(text.as_bytes())));
    }

    /// A number.
    pub fn number(&mut self, number: f64) {
        self.item(|out| put_double(out, 2, number));
    }

    /// True or false.
    pub fn flag(&mut self, flag: bool) {
        self.item(|out| put_flag(out, flag));
    }

    /// Nothing.
    pub fn null(&mut self) {
        self.item(put_null);
    }

    /// A list of its own.
    pub fn list(&mut self, write: impl FnOnce(&mut ListWriter<'_>)) {
        self.item(|out| put_message(out, 6, |out| write(&mut ListWriter(out))));
    }

    /// Fields of its own.
    pub fn fields(&mut self, write: impl FnOnce(&mut FieldWriter<'_>)) {
        self.item(|out| put_message(out, 5, |out| write(&mut FieldWriter(out))));
    }

    fn item(&mut self, value: impl FnOnce(&mut Vec<u8>)) {
        put_message(self.0, 1, value);
    }
}

/// In a choice of several kinds even what is false, or nothing, has to be there.
fn put_flag(out: &mut Vec<u8>, flag: bool) {
    put_always(out, 4, flag.into());
}

fn put_null(out: &mut Vec<u8>) {
    put_always(out, 1, 0);
}

fn put_limit(out: &mut Vec<u8>, limit: &CurrentLimit<'_>) {
    put_number(out, 1, limit.amount.into());
    put_number(out, 2, limit.unit.into());
    put_bytes(out, 3, limit.name.as_bytes());
    if limit.multiplier != 1 {
        put_message(out, 4, |out| put_number(out, 1, limit.multiplier.into()));
    }
}
