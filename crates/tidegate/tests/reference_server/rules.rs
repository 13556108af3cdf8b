//! Random rules in the reference server's format, and which of them a descriptor finds there.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::dice::Dice;
use crate::support::messages::Entry;

/// A unit of the protocol: its name, its number there, its seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) number: i32,
    pub(crate) secs: u64,
}

pub(crate) const SECOND: Unit = Unit { name: "SECOND", number: 1, secs: 1 };
pub(crate) const MINUTE: Unit = Unit { name: "MINUTE", number: 2, secs: 60 };
const HOUR: Unit = Unit { name: "HOUR", number: 3, secs: 3_600 };
const DAY: Unit = Unit { name: "DAY", number: 4, secs: 86_400 };
const MONTH: Unit = Unit { name: "MONTH", number: 5, secs: 30 * 86_400 };
const YEAR: Unit = Unit { name: "YEAR", number: 6, secs: 365 * 86_400 };
const WEEK: Unit = Unit { name: "WEEK", number: 7, secs: 7 * 86_400 };

pub(crate) const UNITS: [Unit; 7] = [SECOND, MINUTE, HOUR, DAY, MONTH, YEAR, WEEK];

impl Unit {
    pub(crate) fn of_number(number: i32) -> Option<Self> {
        UNITS.into_iter().find(|unit| unit.number == number)
    }

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        UNITS.into_iter().find(|unit| unit.name == name)
    }

    /// Seconds are rare: a step in which one ends is not compared.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        if dice.once_in(16) { SECOND } else { *dice.pick(&UNITS[1..]) }
    }
}

/// A domain that only tells that everything before was counted.
pub(crate) const MARKER: &str = "marker";
pub(crate) const DOMAINS: [&str; 2] = ["shop", "mail"];

/// No `_` in any of these: what that leads to is not left to chance (`corners.rs`).
const KEYS: [&str; 4] = ["key", "path", "user", "ip"];
/// Some that change in the name of a stat, and one that is empty.
pub(crate) const VALUES: [&str; 8] = ["1", "12", "x", "x/y", "10.0.0.1", "a:b", "a|b", ""];
/// The pinned reference server knows `*` at the end only.
const PATTERNS: [&str; 4] = ["x*", "1*", "10.*", "*"];
const NAMES: [&str; 4] = ["n0", "n1", "n2", "n3"];
const DEPTH_MAX: usize = 3;

/// A rule, or a level on the way to one.
#[derive(Default, Debug)]
pub(crate) struct Level {
    key: String,
    value: String,
    limit: Option<Value>,
    pub(crate) flags: BTreeSet<&'static str>,
    levels: Vec<Level>,
}

/// The rules of one domain.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) name: String,
    levels: Vec<Level>,
}

/// What a descriptor finds.
pub(crate) struct Found<'a> {
    pub(crate) level: &'a Level,
    /// The values as they stand in the counter's name: a pattern where one counter is shared.
    pub(crate) values: Vec<String>,
}

impl Domain {
    pub(crate) fn draw(name: &str, dice: &mut Dice) -> Self {
        Self { name: name.into(), levels: draw_levels(dice, 1) }
    }

    /// JSON is YAML.
    pub(crate) fn text(&self) -> String {
        let levels: Vec<Value> = self.levels.iter().map(Level::json).collect();
        json!({"domain": self.name, "descriptors": levels}).to_string()
    }

    /// Exact, else the first pattern, else the key alone; no way back once a branch is taken.
    pub(crate) fn find(&self, entries: &[Entry]) -> Option<Found<'_>> {
        let mut levels = &self.levels;
        let mut values = Vec::new();
        let mut found = None;
        for entry in entries {
            let mut of_key = levels.iter().filter(|level| level.key == entry.key);
            let level = of_key
                .clone()
                .find(|level| !level.value.is_empty() && level.value == entry.value)
                .or_else(|| of_key.clone().find(|level| level.catches(&entry.value)))
                .or_else(|| of_key.find(|level| level.value.is_empty()))?;
            let is_shared = level.flags.contains("share_threshold");
            values.push(if is_shared { level.value.clone() } else { entry.value.clone() });
            levels = &level.levels;
            found = Some(level);
        }
        found.filter(|level| level.limit.is_some()).map(|level| Found { level, values })
    }

    /// Entries that lead to some level, or nearly.
    pub(crate) fn draw_entries(&self, dice: &mut Dice) -> Vec<Entry> {
        let mut entries = Vec::new();
        let mut levels = &self.levels;
        while !levels.is_empty() && entries.len() < DEPTH_MAX {
            let level = dice.pick(levels);
            entries.push(Entry { key: level.key.clone(), value: level.draw_value(dice) });
            levels = &level.levels;
            // Where there is a limit, most end; a few go on to what is below.
            if level.limit.is_some() && !dice.once_in(3) {
                break;
            }
        }
        if dice.once_in(12) {
            entries.push(Entry { key: (*dice.pick(&KEYS)).into(), value: (*dice.pick(&VALUES)).into() });
        }
        entries
    }
}

impl Level {
    fn draw_value(&self, dice: &mut Dice) -> String {
        match self.value.strip_suffix('*') {
            Some(start) => format!("{start}{}", dice.pick(&["", "1", "/b"])),
            None if self.value.is_empty() || dice.once_in(8) => (*dice.pick(&VALUES)).into(),
            None => self.value.clone(),
        }
    }

    fn catches(&self, value: &str) -> bool {
        self.value.strip_suffix('*').is_some_and(|start| value.starts_with(start))
    }

    fn json(&self) -> Value {
        let mut all = Map::new();
        all.insert("key".into(), self.key.clone().into());
        if !self.value.is_empty() {
            all.insert("value".into(), self.value.clone().into());
        }
        all.extend(self.flags.iter().map(|flag| ((*flag).into(), true.into())));
        all.extend(self.limit.iter().map(|limit| ("rate_limit".into(), limit.clone())));
        if !self.levels.is_empty() {
            all.insert("descriptors".into(), self.levels.iter().map(Self::json).collect());
        }
        all.into()
    }
}

fn draw_levels(dice: &mut Dice, depth: usize) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    for _ in 0..2 + dice.roll(6) {
        let key = *dice.pick(&KEYS);
        let value = match dice.roll(4) {
            0 => "",
            1 => *dice.pick(&PATTERNS),
            _ => *dice.pick(&VALUES),
        };
        if !levels.iter().any(|level| level.key == key && level.value == value) {
            levels.push(draw_level(dice, depth, key, value));
        }
    }
    levels
}

fn draw_level(dice: &mut Dice, depth: usize, key: &str, value: &str) -> Level {
    let mut level = Level { key: key.into(), value: value.into(), ..Level::default() };
    level.limit = (!dice.once_in(5)).then(|| draw_limit(dice));
    if depth < DEPTH_MAX && (level.limit.is_none() || dice.once_in(3)) && !dice.once_in(6) {
        level.levels = draw_levels(dice, depth + 1);
    }
    // A rule that is both in shadow and in quota mode is left to `corners.rs`.
    match dice.roll(6) {
        0 => drop(level.flags.insert("shadow_mode")),
        1 => drop(level.flags.insert("quota_mode")),
        _ => {}
    }
    for flag in ["detailed_metric", "value_to_metric"] {
        if dice.once_in(4) {
            level.flags.insert(flag);
        }
    }
    if value.ends_with('*') && dice.once_in(2) {
        level.flags.insert("share_threshold");
    }
    level
}

fn draw_limit(dice: &mut Dice) -> Value {
    let mut limit = if dice.once_in(8) {
        json!({"unlimited": true})
    } else {
        let unit = Unit::draw(dice).name;
        let unit = if dice.once_in(2) { unit.to_ascii_lowercase() } else { unit.into() };
        let amount = if dice.once_in(8) { 100_000 } else { dice.roll(9) };
        json!({"unit": unit, "requests_per_unit": amount})
    };
    if dice.once_in(2) {
        // Only names before one's own: limits that replace each other are left to `corners.rs`.
        let name = dice.roll(NAMES.len());
        limit["name"] = NAMES[name].into();
        if name > 0 && dice.once_in(3) {
            limit["replaces"] = json!([{"name": NAMES[dice.roll(name)]}]);
        }
    }
    limit
}

/// The domain whose only limit nobody reaches.
pub(crate) fn marker_text() -> String {
    let limit = json!({"unit": "year", "requests_per_unit": 4_000_000_000_u32});
    json!({"domain": MARKER, "descriptors": [{"key": MARKER, "rate_limit": limit}]}).to_string()
}
