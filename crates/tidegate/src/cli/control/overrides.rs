//! Limits of single callers and of tiers, on a command line: `endpoint:POST /orders=500/minute,until=2026-12-01`.

use clap::Args;
use serde_json::{Map, Value, json};
use tidegate_core::{ADDRESS_OF_CALLER, override_address};

use super::{show, times};

/// For `--help`.
pub(super) const SYNTAX: &str = "\
An override is [DESCRIPTOR=]AMOUNT/UNIT[,from=TIME][,until=TIME]
  DESCRIPTOR  the path below the caller's entry: key:value, joined by |; without one, the
              caller's own rule (`default`)
  UNIT        second, minute, hour, day, week, month or year (short: s, m, h, d, w)";

/// Which limits to set, and which to take away.
#[derive(Args, Debug)]
pub(super) struct Overrides {
    /// Set a limit for a descriptor, in the place of one there was; may stand several times
    #[arg(long = "override", value_name = "OVERRIDE", value_parser = read)]
    set: Vec<Value>,
    /// Take away the limit for a descriptor; may stand several times
    #[arg(long = "remove-override", value_name = "DESCRIPTOR")]
    remove: Vec<String>,
}

impl Overrides {
    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }

    /// What there is then, of what there was. To take away what is not there is told: it would be a mistake in its name.
    pub(super) fn applied(&self, there: Vec<Value>) -> Result<Vec<Value>, String> {
        let mut all = there;
        for gone in &self.remove {
            let before = all.len();
            all.retain(|one| one["descriptor"] != gone.as_str());
            if all.len() == before {
                let known: Vec<String> = all.iter().map(|one| show::text(&one["descriptor"])).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                return Err(format!("there is no override for `{gone}`; there are: {known}"));
            }
        }
        for new in &self.set {
            match all.iter_mut().find(|one| one["descriptor"] == new["descriptor"]) {
                Some(old) => *old = new.clone(),
                None => all.push(new.clone()),
            }
        }
        Ok(all)
    }
}

/// Reads one. From its end: a descriptor may hold any letters, `=` and `,` too.
fn read(said: &str) -> Result<Value, String> {
    let (mut rest, mut body) = (said, Map::new());
    while let Some((before, option)) = rest.rsplit_once(',') {
        let (field, time) = match option.trim_start().split_once('=') {
            // No time has an `=` in it: this one is a descriptor's.
            Some(("from", time)) if !time.contains('=') => ("effective_at", time),
            Some(("until", time)) if !time.contains('=') => ("expires_at", time),
            _ => break,
        };
        if body.insert(field.into(), times::ahead(time)?.into()).is_some() {
            return Err(format!("`{}` says it twice", option.trim()));
        }
        rest = before;
    }
    let (descriptor, limit) = rest.rsplit_once('=').unwrap_or((ADDRESS_OF_CALLER, rest));
    let (amount, unit) = amount_and_unit(limit.trim())?;
    let descriptor = descriptor.trim_end();
    if let Err(why) = override_address(descriptor) {
        return Err(format!(
            "`{descriptor}` is no descriptor: {why}; write key:value, such as \"endpoint:POST /orders\", or leave it out"
        ));
    }
    body.insert("descriptor".into(), descriptor.into());
    body.insert("requests_per_unit".into(), amount.into());
    body.insert("unit".into(), unit.into());
    Ok(Value::Object(body))
}

fn amount_and_unit(said: &str) -> Result<(u32, &'static str), String> {
    const UNITS: [(&str, &str); 7] = [
        ("second", "s"),
        ("minute", "m"),
        ("hour", "h"),
        ("day", "d"),
        ("week", "w"),
        ("month", ""),
        ("year", ""),
    ];
    let wrong = |why: &str| format!("`{said}` is no limit such as 500/minute: {why}");
    let (amount, unit) = said.split_once('/').ok_or_else(|| wrong("write AMOUNT/UNIT"))?;
    let amount = amount.trim();
    let amount = amount.parse::<u32>().map_err(|_| wrong("the amount is a whole number below 4294967296"))?;
    let unit = unit.trim().to_ascii_lowercase();
    // As rule files write a window of one.
    let unit = unit.strip_prefix('1').unwrap_or(&unit);
    let known = UNITS.iter().find(|(name, short)| unit == *name || (!short.is_empty() && unit == *short));
    match known {
        Some((name, _)) => Ok((amount, name)),
        None => Err(wrong("the unit is one second, minute, hour, day, week, month or year")),
    }
}

/// What an answer says of its overrides, each with its own times: what it says of all is said of each. So one that is added does not get
/// the times of the others.
pub(super) fn of_quota(answer: &Value) -> Vec<Value> {
    let common = ["effective_at", "expires_at"].map(|name| (name, answer[name].clone()));
    let with_times = |one: &Value| {
        let mut one = one.clone();
        for (name, time) in &common {
            if !time.is_null() && one[*name].is_null() {
                one[*name] = time.clone();
            }
        }
        one
    };
    show::items(&answer["quotas"]["overrides"]).iter().map(with_times).collect()
}

/// As a table.
pub(super) fn table(all: &[Value]) -> String {
    show::table(["override", "limit", "from", "until"], all, "no overrides", |one| {
        [
            show::text(&one["descriptor"]),
            format!("{}/{}", one["requests_per_unit"], show::text(&one["unit"])),
            show::time(&one["effective_at"]),
            show::time(&one["expires_at"]),
        ]
    })
}

/// A body with these.
pub(super) fn body(all: Vec<Value>) -> Value {
    json!({ "overrides": all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_is_written_as_it_is_spoken() {
        let plain = |descriptor: &str, amount: u32, unit: &str| {
            let amount = json!(amount);
            json!({ "descriptor": descriptor, "requests_per_unit": amount, "unit": unit })
        };
        let timed = |mut body: Value, times: &[(&str, &str)]| {
            times.iter().for_each(|(name, time)| body[*name] = json!(time));
            body
        };
        let december = "2026-12-01T00:00:00Z";
        for (said, expected) in [
            ("500/minute", plain("default", 500, "minute")),
            ("default=500/minute", plain("default", 500, "minute")),
            ("endpoint:POST /api/v1/orders=500/minute", plain("endpoint:POST /api/v1/orders", 500, "minute")),
            ("endpoint:a=b,c=5/1m", plain("endpoint:a=b,c", 5, "minute")),
            ("endpoint:x,until=y=5/h", plain("endpoint:x,until=y", 5, "hour")),
            ("a:b|c:d=0/week", plain("a:b|c:d", 0, "week")),
            (
                "endpoint:POST /api/v1/orders=500/minute,until=2026-12-01T00:00:00Z",
                timed(plain("endpoint:POST /api/v1/orders", 500, "minute"), &[("expires_at", december)]),
            ),
            (
                "5/month,until=2027-01-01, from=2026-12-01",
                timed(
                    plain("default", 5, "month"),
                    &[("effective_at", december), ("expires_at", "2027-01-01T00:00:00Z")],
                ),
            ),
        ] {
            assert_eq!(read(said), Ok(expected), "{said}");
        }
        for (said, told) in [
            (
                "endpoint:POST /orders",
                "`endpoint:POST /orders` is no limit such as 500/minute: the amount is a whole number",
            ),
            ("500", "write AMOUNT/UNIT"),
            ("500/fortnight", "the unit is one second, minute"),
            ("500/5m", "the unit is one second, minute"),
            ("-5/m", "the amount is a whole number"),
            ("5000000000/m", "the amount is a whole number"),
            ("POST /orders=5/m", "`POST /orders` is no descriptor"),
            ("5/m,until=tomorrow", "`tomorrow` is no time such as"),
            ("5/m,until=1h,until=2h", "says it twice"),
            ("5/m,for=1h", "is no limit such as"),
            ("", "write AMOUNT/UNIT"),
        ] {
            let error = read(said).expect_err(said);
            assert!(error.contains(told), "{said}: {error}");
        }
    }

    #[test]
    fn what_is_not_named_stays() {
        let there = vec![read("a:b=1/s").expect("one"), read("2/m").expect("one")];
        let overrides = |set: &[&str], remove: &[&str]| Overrides {
            set: set.iter().map(|said| read(said).expect("an override")).collect(),
            remove: remove.iter().map(|said| (*said).to_owned()).collect(),
        };
        let after = |set: &[&str], remove: &[&str]| {
            let all = overrides(set, remove).applied(there.clone())?;
            Ok(all
                .iter()
                .map(|one| format!("{}={}", show::text(&one["descriptor"]), one["requests_per_unit"]))
                .collect())
        };
        assert_eq!(after(&["c:d=3/h"], &[]), Ok(vec!["a:b=1".into(), "default=2".into(), "c:d=3".into()]));
        assert_eq!(after(&["9/m"], &["a:b"]), Ok(vec!["default=9".into()]));
        let wrong: Result<Vec<String>, String> = after(&[], &["x:y"]);
        assert_eq!(wrong, Err("there is no override for `x:y`; there are: a:b, default".into()));
    }

    #[test]
    fn times_of_all_are_times_of_each() {
        let answer = json!({ "expires_at": "2026-12-01T00:00:00Z", "quotas": { "overrides": [
            { "descriptor": "a:b", "requests_per_unit": 1, "unit": "second" }] } });
        assert_eq!(of_quota(&answer)[0]["expires_at"], "2026-12-01T00:00:00Z");
        assert!(of_quota(&answer)[0]["effective_at"].is_null());
    }
}
