//! What a line looks like: the time in UTC, the level, the message in plain words, then facts as `key=value`. As JSON the same, flat, by
//! the keys `time`, `level` and `message`.
//!
//! Whatever is told in a line stays in it: what a terminal would obey or hide is written out, and no value can end a line or begin another.

use std::error::Error;
use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// For whom lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
    /// For machines that read envoyproxy/ratelimit's.
    JsonAt,
}

/// How long a message or a value may be.
const CHARS_MAX: usize = 4_000;

/// What every line has; a fact by the same name is told as `field.<name>`.
const FIXED: [&str; 2] = ["time", "level"];

impl<S, N> FormatEvent<S, N> for LogFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?; // RFC 3339, in UTC, with microseconds.
        let mut line = Line::default();
        event.record(&mut line);
        match self {
            Self::Text => line.write_text(&mut out, &time, event.metadata().level()),
            Self::Json => {
                let level = event.metadata().level().as_str();
                line.write_json(&mut out, ["time", "level", "message"], &time, level)
            }
            Self::JsonAt => {
                let level = event.metadata().level().as_str().to_ascii_lowercase();
                line.write_json(&mut out, ["@timestamp", "level", "@message"], &time, &level)
            }
        }
    }
}

/// The message and the facts of an event.
#[derive(Default)]
struct Line {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

enum Value {
    /// A number, `true` or `false`: the same in both formats.
    Plain(String),
    Text(String),
}

impl Line {
    fn write_text(&self, out: &mut impl Write, time: &str, level: &Level) -> fmt::Result {
        write!(out, "{time} {level:<5} ")?;
        write_visible(out, &self.message)?;
        for (name, value) in &self.fields {
            write!(out, " {}{name}=", prefix(name))?;
            match value {
                Value::Plain(value) => out.write_str(value)?,
                Value::Text(text) if is_bare(text) => out.write_str(text)?,
                Value::Text(text) => {
                    out.write_char('"')?;
                    write_visible(out, &text.replace('\\', "\\\\").replace('"', "\\\""))?;
                    out.write_char('"')?;
                }
            }
        }
        out.write_char('\n')
    }

    fn write_json(&self, out: &mut impl Write, names: [&str; 3], time: &str, level: &str) -> fmt::Result {
        let [time_name, level_name, message_name] = names;
        write!(out, "{{\"{time_name}\":\"{time}\",\"{level_name}\":\"{level}\",\"{message_name}\":")?;
        write_json_text(out, &self.message)?;
        for (name, value) in &self.fields {
            out.write_char(',')?;
            write_json_text(out, &format!("{}{name}", prefix(name)))?;
            out.write_char(':')?;
            match value {
                Value::Plain(value) => out.write_str(value)?,
                Value::Text(text) => write_json_text(out, text)?,
            }
        }
        out.write_str("}\n")
    }

    fn text(&mut self, field: &Field, mut text: String) {
        if let Some((end, _)) = text.char_indices().nth(CHARS_MAX) {
            text.truncate(end);
            text.push('…');
        }
        match field.name() {
            "message" => self.message = text,
            name => self.fields.push((name, Value::Text(text))),
        }
    }

    fn plain(&mut self, field: &Field, value: impl ToString) {
        self.fields.push((field.name(), Value::Plain(value.to_string())));
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let causes = std::iter::successors(Some(value), |error: &&(dyn Error + 'static)| (*error).source());
        let texts: Vec<String> = causes.take(16).map(|error| error.to_string()).collect();
        self.text(field, texts.join(": "));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.plain(field, value);
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.plain(field, value);
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.plain(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match value.is_finite() {
            true => self.plain(field, value),
            false => self.text(field, value.to_string()), // JSON has no such number.
        }
    }
}

fn prefix(name: &str) -> &'static str {
    if FIXED.contains(&name) { "field." } else { "" }
}

/// Can it stand without quotes?
fn is_bare(text: &str) -> bool {
    let plain = |one: char| !one.is_whitespace() && !matches!(one, '"' | '=' | '\\') && !is_hostile(one);
    !text.is_empty() && text.chars().all(plain)
}

fn write_visible(out: &mut impl Write, text: &str) -> fmt::Result {
    for one in text.chars() {
        match one {
            '\n' => out.write_str("\\n")?,
            '\r' => out.write_str("\\r")?,
            '\t' => out.write_str("\\t")?,
            one if is_hostile(one) => write!(out, "\\u{{{:x}}}", u32::from(one))?,
            one => out.write_char(one)?,
        }
    }
    Ok(())
}

pub(crate) fn write_json_text(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for one in text.chars() {
        match one {
            '"' | '\\' => write!(out, "\\{one}")?,
            '\n' => out.write_str("\\n")?,
            one if is_hostile(one) => {
                for unit in one.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}")?;
                }
            }
            one => out.write_char(one)?,
        }
    }
    out.write_char('"')
}

/// Control characters, and those that change the direction or the look of what stands around them.
fn is_hostile(one: char) -> bool {
    one.is_control()
        || matches!(one, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || matches!(one, '\u{61c}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tracing::info;
    use tracing::level_filters::LevelFilter;

    use super::*;
    use crate::log::captured;

    /// The time is now, which no test can know: checked for its shape, and taken off.
    fn timed(line: &str, at: usize) -> (&str, &str) {
        let (before, rest) = line.split_at(at);
        let (time, rest) = rest.split_at("2026-10-02T04:07:09.123456Z".len());
        let shape: String = time.chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000Z", "{line}");
        (before, rest)
    }

    fn speak() {
        let error = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let error: &(dyn Error + 'static) = &error;
        info!(
            rule = "api|key#\"a\"",
            time = "mine",
            empty = "",
            count = 3,
            on = true,
            share = 0.5,
            none = f64::NAN,
            key = %"00ff",
            error,
            "rules loaded, {} changed\nWARN nothing\u{1b}[2J \u{202e}",
            2
        );
    }

    #[test]
    fn a_line_for_people() {
        let text = captured(LogFormat::Text, LevelFilter::INFO, speak);
        let (_, line) = timed(&text, 0);
        assert_eq!(
            line,
            " INFO  rules loaded, 2 changed\\nWARN nothing\\u{1b}[2J \\u{202e} rule=\"api|key#\\\"a\\\"\" \
             field.time=mine empty=\"\" count=3 on=true share=0.5 none=NaN key=00ff error=\"no such file\"\n"
        );
    }

    #[test]
    fn a_line_for_machines() -> Result<(), serde_json::Error> {
        let text = captured(LogFormat::Json, LevelFilter::INFO, speak);
        let (before, rest) = timed(&text, "{\"time\":\"".len());
        assert_eq!((before, text.lines().count()), ("{\"time\":\"", 1), "{text}");
        assert!(!text.trim_end().contains(is_hostile), "{text}");
        let expected = serde_json::json!({
            "time": "", "level": "INFO", "message": "rules loaded, 2 changed\nWARN nothing\u{1b}[2J \u{202e}",
            "rule": "api|key#\"a\"", "field.time": "mine", "empty": "", "count": 3, "on": true, "share": 0.5,
            "none": "NaN", "key": "00ff", "error": "no such file",
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&format!("{before}{rest}"))?, expected);
        Ok(())
    }

    #[test]
    fn a_value_of_any_length_is_cut() {
        let text = captured(LogFormat::Text, LevelFilter::INFO, || info!(long = "é".repeat(1_000_000), "m"));
        assert_eq!(text.matches('é').count(), CHARS_MAX);
    }

    proptest! {
        #![proptest_config(crate::proof::config(256))]

        #[test]
        fn whatever_is_said_is_one_line_and_machines_read_it_back(
            text in proptest::collection::vec(any::<char>(), 0..40).prop_map(String::from_iter),
        ) {
            for format in [LogFormat::Text, LogFormat::Json] {
                let line = captured(format, LevelFilter::INFO, || info!(text, "{text}"));
                let inner = line.strip_suffix('\n').unwrap_or_default();
                prop_assert!(!inner.contains(is_hostile), "{line:?}");
                if format == LogFormat::Json {
                    let value: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
                    prop_assert_eq!(value["message"].as_str(), Some(&*text));
                    prop_assert_eq!(value["text"].as_str(), Some(&*text));
                }
            }
        }
    }
}
