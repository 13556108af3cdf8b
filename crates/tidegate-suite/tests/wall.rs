//! The wall between the model and the core: of the core it may use words, and nothing that decides or counts.

/// The core's words. A step needs a `State`, and a decision needs `admits`: neither is here.
const WORDS: &[&str] = &[
    "Ask",
    "Bound",
    "Calendar",
    "Charge",
    "Key",
    "Limit",
    "LimitError",
    "Micros",
    "Outcome",
    "Policy",
    "Receipt",
    "Role",
    "Tag",
    "Unit",
    "Verdict",
    "Weekday",
];

/// The one way to a state without its name.
const WAY_ROUND: &str = ".state()";

#[test]
fn the_model_shares_no_decision_with_the_stores() {
    for (file, text) in
        [("model.rs", include_str!("../src/model.rs")), ("words.rs", include_str!("../src/words.rs"))]
    {
        let complaints = complaints(text);
        assert!(complaints.is_empty(), "src/{file} may not use {complaints:?} of the core");
    }
}

#[test]
fn the_wall_holds() {
    assert_eq!(complaints("use tidegate_core::{Ask, admits,\n    State};\n"), ["admits", "State"]);
    assert_eq!(complaints("use tidegate_core::admits;\n"), ["admits"]);
    assert_eq!(complaints("let all = tidegate_core::admits(takes);\n"), ["admits"]);
    assert_eq!(complaints("use tidegate_core::*;\n"), ["*"]);
    assert_eq!(complaints("let mut state = limit.state();\n"), [WAY_ROUND]);
    assert_eq!(complaints("//! Not `tidegate_core::admits`.\nuse tidegate_core::{Ask, Key};\n"), [""; 0]);
}

/// What a text uses of the core that is no word.
fn complaints(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut names = Vec::new();
    if lines.clone().any(|line| line.contains(WAY_ROUND)) {
        names.push(WAY_ROUND);
    }
    for (at, path) in text.match_indices("tidegate_core::") {
        let line_start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        if text[line_start..at].trim_start().starts_with("//") {
            continue;
        }
        let rest = &text[at + path.len()..];
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '*';
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default(),
            None => rest.split(|letter| !is_word(letter)).next().unwrap_or_default(),
        };
        names.extend(list.split(',').map(str::trim).filter(|name| !name.is_empty() && !WORDS.contains(name)));
    }
    names
}
