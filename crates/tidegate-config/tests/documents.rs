//! What is made from the tables is as they are: schemas, and the tables in the documents. `TIDEGATE_BLESS=1 cargo test -p
//! tidegate-config` makes them again.

mod support;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::differs;
use tidegate_config::{
    Caps, DOMAIN, Kind, Place, RULE_TESTS, SETTINGS, Sources, Tree, Word, json, parse, reachable, reference,
    rule_tests_schema, rules_schema, settings_schema,
};

type Outcome = Result<(), Box<dyn Error>>;

const BLESS: &str = "if that is right: TIDEGATE_BLESS=1 cargo test -p tidegate-config";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_schemas_are_made_from_the_tables() -> Outcome {
    for (name, schema) in
        [("rules", rules_schema()), ("settings", settings_schema()), ("rule-tests", rule_tests_schema())]
    {
        jsonschema::meta::validate(&schema).map_err(|error| error.to_string())?;
        let path = root().join(format!("schema/{name}.schema.json"));
        assert_eq!(differs(&path, &format!("{schema:#}\n"))?, None, "{BLESS}");
    }
    Ok(())
}

#[test]
fn the_tables_in_the_documents_are_the_tables() -> Outcome {
    for (name, root_place) in [("rules", &DOMAIN), ("settings", &SETTINGS), ("testing-rules", &RULE_TESTS)] {
        let path = root().join(format!("docs/{name}.md"));
        let text = fs::read_to_string(&path)?;
        let places = reachable(&[root_place]);
        assert_eq!(differs(&path, &filled(&text, &places)?)?, None, "{BLESS}");
        // Rules explain small maps where they are used; of settings nothing is explained but in its table.
        let needed = places.iter().filter(|place| name == "settings" && place.name != root_place.name);
        for needed in needed.map(|place| place.name) {
            assert!(
                text.contains(&format!("<!-- fields: {needed} -->")),
                "{name}.md has no table of {needed}"
            );
        }
    }
    Ok(())
}

/// The fuzzer puts these words together: every key and word of the tables, values that fit, and what is special in YAML.
#[test]
fn the_words_of_the_fuzzer_are_those_of_the_tables() -> Outcome {
    const YAML: &[&str] = &[
        "---\n", "...\n", "- ", ": ", "? ", "# ", "{", "}", "[", "]", ", ", "\n  ", "&a ", "*a", "<<: *a",
        "|\n", ">-\n", "!!str ", "%TAG ", "\"", "''", "~", "\\e[2J", "\\u202e", "\t", "\r\n", "\u{feff}",
        "\u{85}", "\u{2028}", "\u{202e}", "\u{1b}", "\u{1c}", "\u{ff}",
    ];
    const VALUES: &str = "true off 100/1m 20 1000/month 1h30m 1ms 366d 25% 0.01% 10.0.0.0/8 2001:db8::/32 files/* tier \
                          remote_address Europe/Berlin 18446744073709551615 9007199254740992 -1 1e9 0x10 32MiB";
    let mut words = Vec::new();
    for field in reachable(&[&DOMAIN]).into_iter().flat_map(|place| place.fields) {
        words.extend([field.name].iter().chain(field.aliases).map(|key| format!("{key}: ")));
        if let Kind::Word(of_field) = field.kind {
            words.extend(of_field.iter().flat_map(Word::spellings).map(String::from));
        }
    }
    words.extend(YAML.iter().copied().chain(VALUES.split_whitespace()).map(String::from));
    words.sort();
    words.dedup();
    let lines = words.iter().map(|word| {
        let escaped = |byte: u8| match byte {
            b'"' | b'\\' => format!("\\{}", char::from(byte)),
            b' '..=b'~' => char::from(byte).to_string(),
            _ => format!("\\x{byte:02X}"),
        };
        format!("\"{}\"\n", word.bytes().map(escaped).collect::<String>())
    });
    let text = format!(
        "# For libFuzzer. Made from the tables by a test, {}.\n{}",
        file!(),
        lines.collect::<String>()
    );
    assert_eq!(differs(&root().join("fuzz/rules.dict"), &text)?, None, "{BLESS}");
    Ok(())
}

/// The text with a table between each pair of marks.
fn filled(text: &str, places: &[&'static Place]) -> Result<String, Box<dyn Error>> {
    const END: &str = "<!-- end -->";
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("<!-- fields: ") {
        let (name, behind) = behind.split_once(" -->").ok_or("a mark that does not end")?;
        let place =
            places.iter().find(|place| place.name == name).ok_or(format!("there is no place `{name}`"))?;
        let (_, behind) = behind.split_once(END).ok_or(format!("no {END} behind `{name}`"))?;
        filled += &format!("{before}<!-- fields: {name} -->\n\n{}\n{END}", reference(place));
        rest = behind;
    }
    Ok(filled + rest)
}

/// An editor that goes by the schema takes what we take.
#[test]
fn the_examples_are_valid_by_the_schema() -> Outcome {
    for (folder, schema) in [("rules", rules_schema()), ("tests", rule_tests_schema())] {
        let validator = jsonschema::draft202012::new(&schema)?;
        let mut examples = 0;
        for entry in fs::read_dir(root().join("examples").join(folder))? {
            let path = entry?.path();
            let mut sources = Sources::new();
            let source = sources.add("example", fs::read(&path)?).map_err(|trouble| trouble.message)?;
            let tree: Tree = parse(source, &sources, &Caps::default()).map_err(|trouble| trouble.message)?;
            for document in tree.documents() {
                let value: Value = json(document);
                let errors: Vec<String> =
                    validator.iter_errors(&value).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{}: {errors:?}", path.display());
                examples += 1;
            }
        }
        assert!(examples >= 12, "{examples} examples in {folder}");
    }
    Ok(())
}
