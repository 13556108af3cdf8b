//! The tables as Markdown, for the documents.

use crate::fields::{Field, Kind, Origin, Place, Status, Word};

/// The keys of a place as a table, and the words that they take.
pub fn reference(place: &'static Place) -> String {
    let mut text = String::from("| key | value | default | |\n|---|---|---|---|\n");
    for field in place.fields {
        let (key, value, default) = (key(field), value(field), code(field.default));
        text += &format!("| {key} | {value} | {default} | {} |\n", cell(&about(field)));
    }
    for field in place.fields {
        if let Some(words) =
            words_of(field.kind).filter(|words| words.iter().any(|word| !word.doc.is_empty()))
        {
            text += &format!("\n`{}`:\n\n", field.name);
            text += &words.iter().map(word).collect::<String>();
        }
    }
    text
}

fn key(field: &Field) -> String {
    let aliases: String = field.aliases.iter().map(|alias| format!(", `{alias}`")).collect();
    let required = if field.required { " (required)" } else { "" };
    cell(&format!("`{}`{aliases}{required}", field.name))
}

fn value(field: &Field) -> String {
    match field.example {
        "" => cell(&field.kind.describe()),
        example => cell(&format!("{}: `{example}`", field.kind.describe())),
    }
}

fn about(field: &Field) -> String {
    let reference = if field.origin == Origin::Reference { " †" } else { "" };
    format!("{}{}{reference}", field.doc, later(field.status))
}

fn word(word: &Word) -> String {
    let aliases: String = word.aliases.iter().map(|alias| format!(", `{alias}`")).collect();
    format!("- `{}`{aliases}: {}{}\n", word.name, word.doc, later(word.status))
}

fn later(status: Status) -> String {
    match status {
        Status::Works => String::new(),
        Status::Later(instead) => format!(" Understood, but {instead}."),
    }
}

fn words_of(kind: Kind) -> Option<&'static [Word]> {
    match kind {
        Kind::Word(words) => Some(words),
        Kind::List(of) | Kind::OneOrMore(of) | Kind::Names(of) => words_of(*of),
        Kind::Either(kinds) => kinds.iter().find_map(|kind| words_of(*kind)),
        _ => None,
    }
}

fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { cell(&format!("`{text}`")) }
}

/// A bar would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
