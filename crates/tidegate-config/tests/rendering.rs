//! What is said to people and to machines, whatever the file says.

mod support;

use proptest::prelude::*;
use serde_json::json;
use tidegate_config::{Caps, Code, Diagnostic, KEPT_MAX, Report, Sources, Span, Style};

#[test]
fn machines_are_told_the_same() {
    let (sources, report) =
        support::check("a.yaml", "domain: ä\nlabels:\n- 1\n- 2\n".into(), &Caps::default());
    let expected = json!([{
        "code": "wrong-type",
        "severity": "error",
        "message": "`labels` has to be a map of names, each a text",
        "file": "a.yaml",
        "line": 3,
        "column": 3,
        "end_line": 4,
        "end_column": 4,
        "label": "is a list",
        "facts": [],
        "help": null,
        "reference": null,
    }]);
    assert_eq!(json!(report.json(&sources)), expected);
    let nowhere = Diagnostic::nowhere(Code::UnreadableFile, "b.yaml: no such file");
    assert_eq!(nowhere.json(&sources)["line"], json!(null));
    assert_eq!(
        nowhere.clone().fact("it was here yesterday").json(&sources)["facts"],
        json!(["it was here yesterday"])
    );
    let said = nowhere.render(&sources, Style::Plain);
    assert_eq!(
        said,
        "error[unreadable-file]: b.yaml: no such file\n |\n = see: docs/diagnostics.md#unreadable-file"
    );
}

#[test]
fn a_report_is_bounded_and_in_the_order_of_the_files() {
    let mut report = Report::new();
    for start in (0..300_u32).rev() {
        let at = Span { source: start % 2, start, end: start };
        report.push(Diagnostic::new(if start % 3 == 0 { Code::NotYet } else { Code::Syntax }, at, "x"));
    }
    assert_eq!((report.errors(), report.warnings()), (200, 100));
    assert_eq!(report.left_out(), (100, 0));
    let places: Vec<Option<Span>> = report.diagnostics().iter().map(|diagnostic| diagnostic.at).collect();
    assert!(places.is_sorted() && places.len() == 2 * KEPT_MAX);
    let text = report.render(&Sources::new(), Style::Plain);
    assert!(
        text.ends_with("and more that are not shown: 100 errors\n\n200 errors, 100 warnings\n"),
        "{text}"
    );
}

#[test]
fn colours_are_for_terminals() {
    let (sources, report) = support::check("a.yaml", "domian: a\n".into(), &Caps::default());
    let (plain, coloured) = (report.render(&sources, Style::Plain), report.render(&sources, Style::Coloured));
    assert!(!plain.contains('\u{1b}') && coloured.contains('\u{1b}'));
    assert_eq!(plain, without_colours(&coloured));
}

/// Without the sequences that set colours, and those alone.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let first = pieces.next().unwrap_or("").to_string();
    let rest = pieces.map(|piece| {
        let end = piece.find(|letter: char| !letter.is_ascii_digit() && letter != ';').unwrap_or(piece.len());
        piece[end..].strip_prefix('m').unwrap_or("another sequence")
    });
    first + &rest.collect::<String>()
}

/// Letters that terminals obey, as they are and as escapes of YAML.
fn hostile() -> impl Strategy<Value = String> {
    let pieces = vec![
        "a",
        ": ",
        "\n",
        "\"",
        "\\e[2J",
        "\\r",
        "\\b",
        "\\u202e",
        "\\x9b",
        "\r",
        "\u{202e}",
        "\u{9b}",
        "\u{1b}]0;x\u{7}",
        "\u{85}",
        "\t",
        "- ",
        "{",
        "[",
        "labels: ",
        "domain: ",
        "x-",
        "\u{2028}",
        "ä",
        "\u{200b}",
        "&a ",
        "*a",
        "日本",
    ];
    proptest::collection::vec(proptest::sample::select(pieces), 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(support::config(3_000))]

    #[test]
    fn no_file_writes_to_a_terminal(text in hostile(), name in hostile()) {
        let (sources, report) = support::check(&name, text.into(), &Caps::default());
        let obeyed = |letter: char| letter != '\n' && (letter.is_control() || ('\u{2028}'..='\u{202e}').contains(&letter));
        let plain = report.render(&sources, Style::Plain);
        prop_assert!(!plain.contains(obeyed), "{plain:?}");
        let coloured = without_colours(&report.render(&sources, Style::Coloured));
        prop_assert!(!coloured.contains(obeyed), "{coloured:?}");
    }
}
