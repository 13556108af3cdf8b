//! `docs/algorithms.md` says what the code does: its table of forms and the answers in its scripts.

#[path = "law/subject.rs"]
#[expect(dead_code, reason = "the law's tests look at more of a step than its answer")]
mod subject; // the code under test, run on scripts

use std::fs;
use std::path::Path;

use tidegate_core::{FORMS, Form, PORTABLE_VERSION};
use tidegate_oracle::{self as oracle, Script};

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/algorithms.md");
    fs::read_to_string(path).expect("docs/algorithms.md")
}

fn row(form: &Form) -> String {
    let Form { code, name, algorithms, layout, head_bytes, item_bytes, items_max, kept_until } = form;
    let bytes = format!("{head_bytes} + {item_bytes} × {items_max} = {}", form.bytes_max());
    format!("| {code} | {name} | {algorithms} | {layout} | {bytes} | {kept_until} |")
}

#[test]
fn the_table_of_portable_forms_is_the_codes() {
    let document = document();
    let header = "| code | name | algorithms | layout | bytes | kept until |";
    let mut table =
        document.lines().skip_while(|line| *line != header).take_while(|line| line.starts_with('|'));
    assert_eq!(table.next(), Some(header), "the table's header");
    let rows: Vec<&str> = table.skip(1).collect();
    assert_eq!(rows, FORMS.each_ref().map(row), "write the rows on the right into docs/algorithms.md");
    assert!(document.contains(&format!("The version is {PORTABLE_VERSION}.")), "the version that is written");
}

/// Scripts stand in blocks of their own; `# =>` after an operation stands before words of its answer.
#[test]
fn every_script_of_the_document_is_answered_as_it_says() {
    let document = document();
    let mut told = 0;
    for block in document.split("\n```script\n").skip(1) {
        let text = block.split("\n```").next().unwrap_or_default();
        let script: Script = text.parse().unwrap_or_else(|error| panic!("{error} in\n{text}"));
        let judged = oracle::run(&script);
        let mut answers = Vec::new();
        let Ok::<(), ()>(()) = subject::walk(&script, |step| {
            answers.push(subject::answer(&step.verdict));
            Ok(())
        }) else {
            unreachable!()
        };
        assert_eq!(answers, judged, "the oracle answers otherwise to\n{text}");
        let mut operations = 0;
        for line in text.lines() {
            operations += usize::from(line.starts_with("at "));
            let Some(words) = line.strip_prefix("# =>") else { continue };
            let answer = answers[operations - 1].to_string();
            for word in words.split_whitespace() {
                let is_there = answer.split_whitespace().any(|other| other == word);
                assert!(is_there, "no `{word}` in `{answer}`, operation #{} of\n{text}", operations - 1);
            }
            told += 1;
        }
    }
    assert!(told >= 20, "only {told} answers were found");
}
