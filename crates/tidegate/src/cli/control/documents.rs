//! What is read from a file, or from stdin.

use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;
use tidegate_config::{Caps, NodeKind, Sources, Style, json, parse};

/// Bytes of a document that the API takes.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;
/// Bytes of an import that it takes.
pub(super) const IMPORT_BYTES_MAX: u64 = 64 << 20;

/// The bytes of a file; `-` is stdin.
pub(super) fn bytes(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let told = |error: io::Error| io::Error::other(format!("{} cannot be read: {error}", path.display()));
    let mut bytes = Vec::new();
    let mut read = |from: &mut dyn Read| from.take(bytes_max + 1).read_to_end(&mut bytes).map_err(told);
    match path.to_str() {
        Some("-") => read(&mut io::stdin().lock())?,
        _ => read(&mut std::fs::File::open(path).map_err(told)?)?,
    };
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max {
        return Err(io::Error::other(format!("{} has more than {bytes_max} bytes", path.display())));
    }
    Ok(bytes)
}

/// One document: JSON, or YAML as in rule files.
pub(super) fn document(path: &Path) -> io::Result<Value> {
    let bytes = bytes(path, DOCUMENT_BYTES_MAX)?;
    if let Ok(value) = serde_json::from_slice(&bytes) {
        return Ok(value);
    }
    let mut sources = Sources::new();
    let read = match sources.add(path.display().to_string(), bytes) {
        Ok(source) => parse(source, &sources, &Caps::default()),
        Err(trouble) => Err(trouble),
    };
    let tree = read.map_err(|trouble| io::Error::other(trouble.render(&sources, Style::Plain)))?;
    let mut documents = tree.documents().filter(|document| document.kind() != NodeKind::Null);
    match (documents.next(), documents.next()) {
        (Some(one), None) => Ok(json(one)),
        (None, _) => Err(io::Error::other(format!("{} is empty", path.display()))),
        (Some(_), Some(_)) => Err(io::Error::other(format!(
            "{} has several documents; one is written at a time",
            path.display()
        ))),
    }
}
