//! The page for users is made from the table. `TIDEGATE_BLESS=1 cargo test -p tidegate-telemetry --test reference` makes it again.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_telemetry::reference::{REFERENCE_TABLE, ReferenceMetric};

const START: &str = "<!-- names -->";
const END: &str = "<!-- end -->";
const HEAD: &str = "| statsd and `/stats` | Prometheus | kind | what it says |\n|---|---|---|---|\n";

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference-stats.md")
}

#[test]
fn the_names_in_the_document_are_the_table() -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(document())?;
    let (before, behind) = text.split_once(START).ok_or("no mark where the table starts")?;
    let (_, after) = behind.split_once(END).ok_or("no mark where it ends")?;
    let rows: String = REFERENCE_TABLE.into_iter().map(row).collect();
    let expected = format!("{before}{START}\n\n{HEAD}{rows}\n{END}{after}");
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(document(), &expected)?;
        return Ok(());
    }
    assert!(text == expected, "docs/reference-stats.md is stale: run with TIDEGATE_BLESS=1");
    Ok(())
}

fn row(metric: &ReferenceMetric) -> String {
    let ReferenceMetric { statsd, prometheus, labels, kind, help } = metric;
    let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    format!("| `{statsd}` | `{prometheus}{labels}` | {} | {help} |\n", kind.word())
}
