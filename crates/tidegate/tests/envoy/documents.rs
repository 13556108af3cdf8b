//! The pieces of YAML that `docs/envoy.md` shows.

const ENVOY: &str = include_str!("../../../../docs/envoy.md");

/// The piece of this name.
pub(crate) fn piece(name: &str) -> &'static str {
    let mark = format!("<!-- suite: {name} -->\n\n```yaml\n");
    let piece = ENVOY.split_once(&mark).and_then(|(_, rest)| rest.split_once("```"));
    piece.unwrap_or_else(|| panic!("docs/envoy.md shows no `{name}`")).0
}

/// The same, so many columns further in.
pub(crate) fn indented(text: &str, columns: usize) -> String {
    text.lines().map(|line| format!("{:columns$}{line}\n", "")).collect()
}

#[test]
fn every_piece_of_the_document_is_used() {
    let names: Vec<&str> =
        ENVOY.split("<!-- suite: ").skip(1).filter_map(|rest| rest.split(' ').next()).collect();
    let mut used: Vec<&str> = crate::config::PIECES.to_vec();
    used.sort_unstable();
    let mut shown = names.clone();
    shown.sort_unstable();
    assert_eq!(shown, used);
    assert_eq!(ENVOY.matches("```yaml").count(), names.len(), "each piece has a name");
}
