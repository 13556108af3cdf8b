//! YAML as JSON, for what is only handed on.

use serde_json::{Map, Number, Value};

use crate::scalars;
use crate::yaml::{Node, NodeKind};

/// The same as JSON. Plain words are what YAML takes them for: nothing, a flag, a number or a text. Of keys that stand twice the first counts.
/// As deep as the tree, which is bounded.
pub fn json(node: Node<'_>) -> Value {
    match node.kind() {
        NodeKind::Null => Value::Null,
        NodeKind::Scalar => scalar(node.text().unwrap_or_default(), node.plain()),
        NodeKind::List => Value::Array(node.items().map(json).collect()),
        NodeKind::Map => {
            let mut map = Map::new();
            for (key, value) in node.entries() {
                if let Some(key) = key.text() {
                    map.entry(key).or_insert_with(|| json(value));
                }
            }
            Value::Object(map)
        }
    }
}

fn scalar(text: &str, plain: bool) -> Value {
    if !plain {
        return text.into();
    }
    let one_letter = text.len() == 1; // `y` and `n` are texts to most readers.
    if let (Ok(flag), false) = (scalars::flag(text), one_letter) {
        return flag.into();
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    let number = text.parse::<f64>().ok().filter(|_| text.bytes().any(|byte| byte.is_ascii_digit()));
    number.and_then(Number::from_f64).map_or_else(|| text.into(), Value::Number)
}
