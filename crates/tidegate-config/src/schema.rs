//! The tables as JSON Schema (draft 2020-12), for editors. The reader decides; the schema says the same as far as it can.

use serde_json::{Map, Value, json};

use crate::fields::{Field, Kind, Place, Status, Word, reachable};
use crate::rule_tests::RULE_TESTS;
use crate::rules::DOMAIN;
use crate::scalars::flag_words;
use crate::settings::SETTINGS;
use crate::times::unit_words;

/// The schema of a file whose root is this place.
pub fn schema(root: &'static Place, id: &str, title: &str) -> Value {
    let places = Places::new(root);
    let mut schema = places.object(root);
    schema.insert("$schema".into(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("$id".into(), id.into());
    schema.insert("title".into(), title.into());
    let definitions =
        places.named.iter().map(|(place, name)| (name.clone(), Value::Object(places.object(place))));
    schema.insert("$defs".into(), Value::Object(definitions.collect()));
    Value::Object(schema)
}

/// The schema of rule files.
pub fn rules_schema() -> Value {
    schema(&DOMAIN, "tidegate/rules.schema.json", "Rules of Tidegate")
}

/// The schema of `tidegate.yaml`.
pub fn settings_schema() -> Value {
    schema(&SETTINGS, "tidegate/settings.schema.json", "Settings of Tidegate")
}

/// The schema of files of rule tests.
pub fn rule_tests_schema() -> Value {
    schema(&RULE_TESTS, "tidegate/rule-tests.schema.json", "Rule tests of Tidegate")
}

/// Every place, with the name of its definition.
struct Places {
    named: Vec<(&'static Place, String)>,
}

impl Places {
    fn new(root: &'static Place) -> Self {
        let mut named: Vec<(&'static Place, String)> = Vec::new();
        for place in reachable(&[root]) {
            let base: String =
                place.name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
            let same = named.iter().filter(|(other, _)| other.name == place.name).count();
            named.push((place, if same == 0 { base } else { format!("{base}_{}", same + 1) }));
        }
        Self { named }
    }

    fn object(&self, place: &'static Place) -> Map<String, Value> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        let mut either = Vec::new();
        for field in place.fields {
            let property = self.property(field);
            for alias in field.aliases {
                properties.insert((*alias).into(), property.clone());
            }
            properties.insert(field.name.into(), property);
            if field.required && field.aliases.is_empty() {
                required.push(field.name);
            } else if field.required {
                let spellings = std::iter::once(&field.name).chain(field.aliases);
                let ways: Vec<Value> = spellings.map(|name| json!({ "required": [name] })).collect();
                either.push(json!({ "anyOf": ways }));
            }
        }
        let mut object = Map::new();
        object.insert("type".into(), "object".into());
        object.insert("description".into(), place.doc.into());
        object.insert("properties".into(), Value::Object(properties));
        object.insert("patternProperties".into(), json!({ "^x-": true }));
        object.insert("additionalProperties".into(), false.into());
        if !required.is_empty() {
            object.insert("required".into(), required.into());
        }
        if !either.is_empty() {
            object.insert("allOf".into(), either.into());
        }
        object
    }

    fn property(&self, field: &Field) -> Value {
        let mut property = self.kind(field.kind);
        let mut description = field.doc.to_string();
        if let Status::Later(instead) = field.status {
            description += &format!(" Understood, but {instead}.");
        }
        property.insert("description".into(), description.into());
        if let Some(default) = example(field.default) {
            property.insert("default".into(), default);
        }
        if let Some(example) = example(field.example) {
            property.insert("examples".into(), json!([example]));
        }
        Value::Object(property)
    }

    fn kind(&self, kind: Kind) -> Map<String, Value> {
        let schema = match kind {
            Kind::Text => json!({ "type": ["string", "number", "boolean"] }),
            Kind::Flag => {
                let words: Vec<String> = flag_words().map(any_case).collect();
                json!({ "anyOf": [{ "type": "boolean" }, pattern(&words.join("|"))] })
            }
            Kind::Whole { min, max } => {
                json!({ "anyOf": [{ "type": "integer", "minimum": min, "maximum": max }, pattern(WHOLE)] })
            }
            Kind::Signed { min, max } => {
                let whole = format!("-?({WHOLE})");
                json!({ "anyOf": [{ "type": "integer", "minimum": min, "maximum": max }, pattern(&whole)] })
            }
            Kind::Instant => pattern(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9:.]+ *([Zz]|[+-][0-9:]+)"),
            Kind::Duration { .. } => pattern(&durations()),
            Kind::Bytes { .. } => json!({ "anyOf": [
                { "type": "integer", "minimum": 0 },
                pattern(&format!("{WHOLE} *([kKmMgGtT][iI]?)?[bB]?")),
            ] }),
            Kind::Percent => json!({ "anyOf": [
                { "type": "number", "minimum": 0, "maximum": 100 },
                pattern(r"[0-9]{1,3}(\.[0-9]{1,2})? *%?"),
            ] }),
            Kind::Rate => {
                let units: Vec<&str> = unit_words().collect();
                let window = format!("({}|{})", units.join("|"), durations());
                json!({ "anyOf": [
                    { "type": "integer", "minimum": 0 },
                    pattern(&format!("{WHOLE}|{WHOLE} *r? */ *{window}")),
                ] })
            }
            Kind::Word(words) => words_schema(words),
            Kind::Socket => pattern(r"([0-9.]+|\[[0-9a-fA-F:.]+\]|localhost|\*?):[0-9]{1,5}"),
            Kind::Listen => pattern(r"(unix:.+|([0-9.]+|\[[0-9a-fA-F:.]+\]|localhost|\*?):[0-9]{1,5})"),
            Kind::Cidr => pattern("[0-9a-fA-F:.]+(/[0-9]{1,3})?"),
            Kind::List(of) => json!({ "type": "array", "items": self.kind(*of) }),
            Kind::OneOrMore(of) => {
                json!({ "anyOf": [self.kind(*of), { "type": "array", "items": self.kind(*of) }] })
            }
            Kind::Map(place) => json!({ "$ref": self.reference(place) }),
            Kind::MapOf(place) => {
                json!({ "type": "object", "additionalProperties": { "$ref": self.reference(place) } })
            }
            Kind::Names(of) => json!({ "type": "object", "additionalProperties": self.kind(*of) }),
            Kind::Free => json!({}),
            Kind::Either(kinds) => {
                json!({ "anyOf": kinds.iter().map(|kind| self.kind(*kind)).collect::<Vec<_>>() })
            }
        };
        match schema {
            Value::Object(schema) => schema,
            _ => Map::new(),
        }
    }

    fn reference(&self, place: &'static Place) -> String {
        let named = self.named.iter().find(|(known, _)| std::ptr::eq(*known, place));
        format!("#/$defs/{}", named.map_or("", |(_, name)| name))
    }
}

/// One by one, so that an editor can show what each means; then every other way to write them.
fn words_schema(words: &'static [Word]) -> Value {
    let described = words.iter().map(|word| json!({ "const": word.name, "description": word.doc }));
    let spellings: Vec<String> = words.iter().flat_map(Word::spellings).map(any_case).collect();
    json!({ "anyOf": described.chain([pattern(&spellings.join("|"))]).collect::<Vec<_>>() })
}

/// A whole number as text.
const WHOLE: &str = r"\+?(0|[1-9][0-9]*(_[0-9]+)*|0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+)";

fn durations() -> String {
    let units: Vec<&str> = unit_words().collect();
    format!("([1-9][0-9_]* *({0}) *|0 *({0}) *)+", units.join("|"))
}

/// A text that is this from its first letter to its last.
fn pattern(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^({pattern})$") })
}

/// A pattern for a word in upper or lower case: patterns of JSON Schema have no flag for that.
fn any_case(word: &str) -> String {
    let letter = |letter: char| match letter {
        letter if letter.is_ascii_alphabetic() => {
            format!("[{}{}]", letter.to_ascii_lowercase(), letter.to_ascii_uppercase())
        }
        letter if letter.is_ascii_alphanumeric() || letter == '_' || letter == '-' => letter.to_string(),
        letter => format!("\\{letter}"),
    };
    word.chars().map(letter).collect()
}

/// A value of the tables as an editor would insert it. What is more than a single value is left to the documents.
fn example(text: &str) -> Option<Value> {
    match text {
        "" => None,
        "true" => Some(true.into()),
        "false" => Some(false.into()),
        text if text.starts_with(['[', '{', '-']) => None,
        text => Some(text.parse::<u64>().map_or_else(|_| text.into(), Value::from)),
    }
}
