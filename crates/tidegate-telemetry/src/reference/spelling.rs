//! What a descriptor is called: the stats key of the reference server, letter by letter.

use std::fmt::Write;

use tidegate_core::{Entry, PathEntry, Rule};

use crate::label::hash;

/// How long a name may be; what is longer is cut, with a hash of the whole behind. Far below a packet of statsd.
pub(super) const NAME_BYTES_MAX: usize = 400;
/// A `~` and the half of a hash.
const MARK_BYTES: usize = 1 + 16;

/// How a level of a rule's path is called.
enum Level<'l> {
    /// By what was written, whatever the request says.
    Written(&'l str, Option<&'l str>),
    /// By the request's key and this value.
    Pattern(&'l str),
    /// By the request's key and value.
    Asked,
}

/// Is a rule called the same whatever a request says?
pub(super) fn is_fixed(rule: &Rule) -> bool {
    rule.always || (!rule.said.detailed_metric && rule.path.iter().all(|level| !is_asked(level)))
}

/// Writes what a rule is called whose name is fixed.
pub(super) fn write_fixed(name: &mut String, rule: &Rule) {
    name.push_str(&rule.domain);
    for level in rule.path.iter() {
        push(name, &level.key, level.value.as_deref().unwrap_or_default());
    }
    finish(name);
}

/// Writes what a rule is called for the entries that found it. There may be more of them than its path is long.
pub(super) fn write_asked<'e>(name: &mut String, rule: &Rule, entries: impl Iterator<Item = &'e Entry<'e>>) {
    let detailed = rule.said.detailed_metric;
    let shares = rule.path.iter().any(is_shared);
    name.push_str(&rule.domain);
    for (level, entry) in rule.path.iter().zip(entries) {
        match level_of(level, entry.key, detailed) {
            Level::Written(key, value) => push(name, key, value.unwrap_or_default()),
            Level::Pattern(pattern) => push(name, entry.key, pattern),
            // A detailed name has the line even where the value is empty, unless a level shares its counter: as there.
            Level::Asked if detailed && !shares => {
                let _ = write!(name, ".{}_{}", entry.key, entry.value); // A string takes whatever is written.
            }
            Level::Asked => push(name, entry.key, entry.value),
        }
    }
    finish(name);
}

/// Writes what a descriptor is called that brought its own limit.
pub(super) fn write_own<'e>(name: &mut String, domain: &str, entries: impl Iterator<Item = &'e Entry<'e>>) {
    name.push_str(domain);
    let before = name.len();
    entries.for_each(|entry| push(name, entry.key, entry.value));
    if name.len() == before {
        name.push('.');
    }
    finish(name);
}

/// Writes what a domain is called.
pub(super) fn write_domain(name: &mut String, domain: &str) {
    name.push_str(domain);
    finish(name);
}

fn level_of<'l>(level: &'l PathEntry, asked_key: &str, detailed: bool) -> Level<'l> {
    let value = level.value.as_deref();
    let pattern = || match value {
        _ if !level.key.contains('*') => value.unwrap_or_default(),
        // The reference matches `key_value` as one text, and cuts the request's key off the pattern where it can.
        None => {
            level.key.strip_prefix(asked_key).and_then(|rest| rest.strip_prefix('_')).unwrap_or(&level.key)
        }
        Some(value) => value,
    };
    match () {
        () if is_shared(level) => Level::Pattern(pattern()),
        () if detailed || level.value_to_metric => Level::Asked,
        () if is_wild(level) => Level::Pattern(pattern()),
        () => Level::Written(&level.key, value),
    }
}

/// Is a level called otherwise from request to request?
fn is_asked(level: &PathEntry) -> bool {
    let open = level.value.is_none() || is_wild(level);
    level.key.contains('*') || (level.value_to_metric && open && !is_shared(level))
}

fn is_wild(level: &PathEntry) -> bool {
    level.key.contains('*') || level.value.as_deref().is_some_and(|value| value.contains('*'))
}

/// Do all values that fit share one counter?
fn is_shared(level: &PathEntry) -> bool {
    is_wild(level) && level.is_fixed()
}

fn push(name: &mut String, key: &str, value: &str) {
    name.push('.');
    name.push_str(key);
    if !value.is_empty() {
        name.push('_');
        name.push_str(value);
    }
}

/// Takes out what statsd would misread, as the reference does; control characters too, or a request could write lines of its own. Then cuts
/// what is too long.
fn finish(name: &mut String) {
    let cut = (name.len() > NAME_BYTES_MAX).then(|| hash(&[name]));
    if let Some(hash) = cut {
        let mut end = NAME_BYTES_MAX - MARK_BYTES;
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.truncate(end);
        let _ = write!(name, "~{:016x}", hash.bits() as u64);
    }
    let mut bytes = std::mem::take(name).into_bytes();
    for byte in &mut bytes {
        if matches!(byte, b':' | b'|') || byte.is_ascii_control() {
            *byte = b'_';
        }
    }
    join_addresses(&mut bytes);
    // Only bytes of ASCII were put in the place of others: it is the same allocation, and still a text.
    *name = String::from_utf8(bytes).unwrap_or_default();
}

/// Writes `_` for the dots of IPv4 addresses: for those of the leftmost `\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}`, again and again.
fn join_addresses(bytes: &mut [u8]) {
    let mut at = 0;
    while at < bytes.len() {
        match address_end(bytes, at) {
            Some(end) => {
                bytes[at..end].iter_mut().filter(|byte| **byte == b'.').for_each(|byte| *byte = b'_');
                at = end;
            }
            None => at += 1,
        }
    }
}

/// Where an address ends that starts here.
fn address_end(bytes: &[u8], start: usize) -> Option<usize> {
    let digits = |from: usize| bytes[from..].iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = start;
    for part in 0..4 {
        let count = digits(at);
        match part {
            3 if count > 0 => return Some(at + count.min(3)), // The rest of a longer number is left alone, as there.
            0..3 if (1..=3).contains(&count) && bytes.get(at + count) == Some(&b'.') => at += count + 1,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::{Captures, Regex};

    use super::*;

    proptest! {
        #![proptest_config(crate::proof::config(2_000))]

        /// The reference's own expression, by a library that tries everything.
        #[test]
        fn addresses_are_found_where_the_expression_finds_them(text in "[0-9.]{0,30}|([0-9]{1,4}[.x]){0,12}") {
            let address = Regex::new(r"[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}");
            let address = address.map_err(|error| TestCaseError::fail(error.to_string()))?;
            let expected = address.replace_all(&text, |found: &Captures<'_>| found[0].replace('.', "_"));
            let mut bytes = text.clone().into_bytes();
            join_addresses(&mut bytes);
            prop_assert_eq!(String::from_utf8_lossy(&bytes), expected, "{}", text);
        }
    }
}
