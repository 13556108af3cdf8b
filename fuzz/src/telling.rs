//! Reports: whatever a file says, they can be shown on a terminal, are bounded, and say the same in every style.

use tidegate_config::{KEPT_MAX, Loaded, Style};

/// What one diagnostic may take, in bytes; the longest that are wanted have a tenth of it.
const DIAGNOSTIC_BYTES_MAX: usize = 16 << 10;

/// Checks all that is told about a load; as JSON it is `json`.
pub(crate) fn check(loaded: &Loaded, json: &str) {
    let Loaded { report, sources, .. } = loaded;
    let (plain, coloured) = (report.render(sources, Style::Plain), report.render(sources, Style::Coloured));
    assert!(!plain.contains(|letter| letter != '\n' && is_obeyed(letter)), "a terminal obeys: {plain:?}");
    assert_eq!(without_colours(&coloured), plain, "colours change the text");
    assert!(!json.contains(is_obeyed), "a terminal obeys: {json:?}");

    let count = report.diagnostics().len();
    assert!(count <= 2 * KEPT_MAX, "{count} diagnostics");
    assert_eq!(plain.is_empty(), report.is_empty());
    for text in [&plain, &coloured, json] {
        assert!(text.len() <= (count + 1) * DIAGNOSTIC_BYTES_MAX, "{} bytes of {count}", text.len());
    }
    for at in report.diagnostics().into_iter().filter_map(|diagnostic| diagnostic.at) {
        let text = sources.text(at.source);
        let (start, end) = (at.start as usize, at.end as usize);
        assert!(text.get(start..end).is_some(), "{start}..{end} is no piece of {} bytes", text.len());
    }
}

pub(crate) fn json(loaded: &Loaded) -> String {
    serde_json::Value::Array(loaded.report.json(&loaded.sources)).to_string()
}

/// Control characters, those that turn the direction of a line, and those that cannot be seen.
fn is_obeyed(letter: char) -> bool {
    let unseen =
        ['\u{200b}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2060}'..='\u{206f}', '\u{feff}'..='\u{feff}'];
    letter.is_control() || unseen.iter().any(|letters| letters.contains(&letter))
}

/// Without the sequences that set colours, and those alone.
fn without_colours(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let first = pieces.next().unwrap_or("").to_string();
    let rest = pieces.map(|piece| {
        let end = piece.find(|letter: char| !letter.is_ascii_digit() && letter != ';').unwrap_or(piece.len());
        piece[end..].strip_prefix('m').unwrap_or("(another sequence)")
    });
    first + &rest.collect::<String>()
}
