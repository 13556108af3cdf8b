//! What envoyproxy/ratelimit says of what is wrong, word for word: logs are searched, and alerts are made, for these texts. A
//! diagnostic carries the text beside our own words.

use std::path::Path;

use crate::fields::Kind;
use crate::yaml::{Node, NodeKind};

pub(crate) const EMPTY_DOMAIN: &str = "config file cannot have empty domain";
pub(crate) const EMPTY_KEY: &str = "descriptor has empty key";
pub(crate) const EMPTY_REPLACES: &str = "should not have an empty replaces entry";
pub(crate) const REPLACES_ITSELF: &str = "replaces should not contain name of same descriptor";
pub(crate) const UNIT_OF_UNLIMITED: &str = "should not specify rate limit unit when unlimited";
/// Of a number that is no `int` in Go, wherever it stands.
const UNCHECKED: &str = "error checking config";

/// What a whole file is put into.
const WHOLE: &str = "map[interface {}]interface {}";

/// A file may say anything: a text is cut behind so many bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 600;

/// The same domain in a second file.
pub(crate) fn duplicate_domain(domain: &str) -> String {
    format!("duplicate domain '{domain}' in config file")
}

/// The same key and value among siblings; `path` is the whole way to it.
pub(crate) fn duplicate_descriptor(path: &str) -> String {
    format!("duplicate descriptor composite key '{path}'")
}

/// What siblings are told apart by there.
pub(crate) fn composite(key: &str, value: Option<&str>) -> String {
    value.map_or_else(|| key.to_string(), |value| format!("{key}_{value}"))
}

/// A unit that is none, or is not there.
pub(crate) fn invalid_unit(unit: &str) -> String {
    format!("invalid rate limit unit '{unit}'")
}

/// Nothing to share.
pub(crate) fn share_without_wildcard(composite: &str) -> String {
    format!(
        "share_threshold can only be used with wildcard values (containing '*'), but found key '{composite}'"
    )
}

/// A key that nobody knows; one that Go's YAML does not take for a text is told by what it takes it for.
pub(crate) fn unknown_key(key: Node<'_>) -> String {
    match Scalar::of(key) {
        Scalar::Text(name) => format!("config error, unknown key '{name}'"),
        other => format!("config error, key is not of type string: {}", other.shown()),
    }
}

/// An item of a list that is no map.
pub(crate) fn item_no_map(item: Node<'_>) -> String {
    let mut shown = String::new();
    show(item, &mut shown);
    format!("config error, yaml file contains list of type other than map: {shown}")
}

/// What a required key means there that is missing.
pub(crate) fn missing(place: &str, field: &str) -> Option<&'static str> {
    match (place, field) {
        ("top-level", "domain") => Some(EMPTY_DOMAIN),
        ("descriptor", "key") => Some(EMPTY_KEY),
        ("replaces", "name") => Some(EMPTY_REPLACES),
        _ => None,
    }
}

/// A value that cannot be put where it stands.
pub(crate) fn wrong_value(node: Node<'_>, kind: Kind) -> Option<String> {
    let into = match kind {
        Kind::Text | Kind::Word(_) => "string",
        Kind::Flag => "bool",
        Kind::Whole { .. } => "uint32",
        Kind::Map(place) => match place.name {
            "top-level" => WHOLE,
            "rate_limit" => "config.YamlRateLimit",
            _ => return None,
        },
        Kind::List(Kind::Map(place)) => match place.name {
            "descriptor" => "[]config.YamlDescriptor",
            "replaces" => "[]config.yamlReplaces",
            _ => return None,
        },
        _ => return None,
    };
    let what = match node.kind() {
        NodeKind::Map => "!!map".to_string(),
        // In a map that could be read, lists are looked into first.
        NodeKind::List => match node.items().find(|item| item.kind() != NodeKind::Map) {
            Some(item) if into != WHOLE => return Some(item_no_map(item)),
            _ => "!!seq".to_string(),
        },
        NodeKind::Scalar | NodeKind::Null => {
            let scalar = Scalar::of(node);
            let tag = match scalar {
                Scalar::Float(_) => return Some(UNCHECKED.into()),
                Scalar::Int(_) => "!!int",
                Scalar::Bool(_) => "!!bool",
                Scalar::Null => "!!null",
                Scalar::Text(_) => "!!str",
            };
            let text = node.text().unwrap_or_default();
            let cut = text.get(..7).filter(|_| text.len() > 10);
            format!("{tag} `{}`", cut.map_or_else(|| text.to_string(), |start| format!("{start}...")))
        }
    };
    Some(loading(&format!("unmarshal errors:\n  line {}: cannot unmarshal {what} into {into}", node.line())))
}

/// What Go's YAML says about a file that is none.
pub(crate) fn loading(why: &str) -> String {
    format!("error loading config file: yaml: {why}")
}

/// The name of a file: its way below the folder that is watched, with dots. What is not below it keeps its name.
pub(crate) fn file_name(name: &str, root: Option<&Path>) -> String {
    let below = root.and_then(|root| Path::new(name).strip_prefix(root).ok());
    below.map_or_else(|| name.to_string(), |below| below.display().to_string().replace('/', "."))
}

/// A single value as Go's YAML (1.1) takes it.
enum Scalar<'t> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(&'t str),
}

impl<'t> Scalar<'t> {
    fn of(node: Node<'t>) -> Self {
        let Some(text) = node.text() else { return Self::Null };
        if !node.plain() {
            return Self::Text(text);
        }
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
                return Self::Bool(true);
            }
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
                return Self::Bool(false);
            }
            _ => {}
        }
        // What neither begins like a number nor is short enough for one is none.
        if text.len() > 64 || !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
        {
            return Self::Text(text);
        }
        let digits = text.replace('_', "");
        if let Some(number) = whole(&digits) {
            return i64::try_from(number).map_or(Self::Float(number as f64), Self::Int);
        }
        let is_float = digits.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        match digits.parse() {
            Ok(number) if is_float => Self::Float(number),
            _ => Self::Text(text),
        }
    }

    /// As `%v` shows it.
    fn shown(&self) -> String {
        match self {
            Self::Null => "<nil>".into(),
            Self::Bool(flag) => flag.to_string(),
            Self::Int(number) => number.to_string(),
            Self::Float(number) => number.to_string(),
            Self::Text(text) => (*text).to_string(),
        }
    }
}

/// A whole number in any of Go's spellings.
fn whole(text: &str) -> Option<i128> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let (radix, digits) = match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (16, &digits[2..]),
        Some("0o") => (8, &digits[2..]),
        Some("0b") => (2, &digits[2..]),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    i128::from_str_radix(digits, radix).ok().map(|number| sign * number)
}

/// A value as `%v` shows it, as far as a text may go. As deep as the tree, which is bounded.
fn show(node: Node<'_>, out: &mut String) {
    let list =
        |open: &str, items: &mut dyn Iterator<Item = (Option<Node<'_>>, Node<'_>)>, out: &mut String| {
            out.push_str(open);
            for (number, (key, item)) in items.enumerate() {
                if out.len() > TEXT_BYTES_MAX {
                    return;
                }
                out.push_str(if number > 0 { " " } else { "" });
                if let Some(key) = key {
                    show(key, out);
                    out.push(':');
                }
                show(item, out);
            }
            out.push(']');
        };
    match node.kind() {
        NodeKind::Scalar | NodeKind::Null => out.push_str(&Scalar::of(node).shown()),
        NodeKind::List => list("[", &mut node.items().map(|item| (None, item)), out),
        // Go sorts its keys; few have several, in a list of others.
        NodeKind::Map => list("map[", &mut node.entries().map(|(key, item)| (Some(key), item)), out),
    }
}
