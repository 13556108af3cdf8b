//! The document of metrics is made from the table. `TIDEGATE_BLESS=1 cargo test -p tidegate-telemetry` makes it again.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_telemetry::{Kind, Label, Metric, TABLE};

const START: &str = "<!-- metrics -->";
const END: &str = "<!-- end -->";

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md")
}

#[test]
fn the_table_in_the_document_is_the_table() -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(document())?;
    let (before, behind) = text.split_once(START).ok_or("no mark where the table starts")?;
    let (_, after) = behind.split_once(END).ok_or("no mark where it ends")?;
    let rows: String = TABLE.iter().map(|metric| row(metric)).collect();
    let expected = format!("{before}{START}\n\n{HEAD}{rows}\n{END}{after}");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(document(), &expected)?;
        return Ok(());
    }
    assert!(text == expected, "docs/metrics.md is stale: TIDEGATE_BLESS=1 cargo test -p tidegate-telemetry");
    Ok(())
}

const HEAD: &str = "| metric | kind | in | labels | what it says |\n|---|---|---|---|---|\n";

fn row(metric: &Metric) -> String {
    let Metric { name, kind, unit, labels, help } = metric;
    let labels: Vec<String> = labels.iter().map(label).collect();
    format!("| `{name}` | {} | {unit} | {} | {help} |\n", kind.word(), labels.join("; "))
}

fn label(Label { name, words }: &Label) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    if words.is_empty() { format!("`{name}`") } else { format!("`{name}`: {}", words.join(", ")) }
}

#[test]
fn what_the_document_asks_for_is_there() -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(document())?;
    let mut queries = 0;
    for query in text.split("```promql").skip(1) {
        let query = query.split("```").next().unwrap_or_default();
        queries += 1;
        let words = query.split(|one: char| !one.is_alphanumeric() && one != '_');
        let names = words.filter(|word| word.starts_with("ratelimit_") || word.starts_with("tidegate_"));
        let mut found = 0;
        for name in names {
            let is = |metric: &&&Metric| match metric.kind {
                Kind::Histogram => name.strip_suffix("_bucket") == Some(metric.name),
                _ => metric.name == name,
            };
            TABLE.iter().find(is).ok_or(format!("there is no {name}"))?;
            found += 1;
        }
        assert!(found > 0, "{query}");
    }
    assert!(queries >= 5, "{queries}");
    Ok(())
}
