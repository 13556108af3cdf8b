//! From the entries of a descriptor to a place in the tree.

use super::judged::Open;
use super::tree::Node;

/// The children that the entries lead to, from the top, until there is none.
pub(super) fn walk<'t>(top: &'t [Node], entries: &[(String, String)]) -> Vec<&'t Node> {
    let mut way: Vec<&Node> = Vec::new();
    for (key, value) in entries {
        let children = way.last().map_or(top, |node| &node.descriptors);
        match child(children, key, value) {
            Some(node) => way.push(node),
            None => break,
        }
    }
    way
}

/// The child that an entry leads to.
fn child<'t>(children: &'t [Node], key: &str, value: &str) -> Option<&'t Node> {
    let exact = |node: &&Node| {
        !node.has_wildcard() && node.key == key && node.fixed_value().is_some_and(|fixed| fixed == value)
    };
    let by_wildcard = |node: &&Node| {
        let value_fits = node.fixed_value().is_none_or(|pattern| fits(pattern, value));
        node.has_wildcard() && fits(&node.key, key) && value_fits
    };
    let by_key = |node: &&Node| !node.has_wildcard() && node.key == key && node.fixed_value().is_none();
    let first = |is_it: &dyn Fn(&&Node) -> bool| children.iter().find(is_it);
    first(&exact).or_else(|| first(&by_wildcard)).or_else(|| first(&by_key))
}

/// Does the text fit the pattern, in which `*` stands for any number of any characters?
pub fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    fits_from(&pattern, &text)
}

fn fits_from(pattern: &[char], text: &[char]) -> bool {
    match (pattern, text) {
        ([], _) => text.is_empty(),
        (['*', rest @ ..], _) => (0..=text.len()).any(|skipped| fits_from(rest, &text[skipped..])),
        ([one, rest @ ..], [first, others @ ..]) => one == first && fits_from(rest, others),
        (_, []) => false,
    }
}

/// What the way leaves open, and the entries fill in.
pub(super) fn open(way: &[&Node], entries: &[(String, String)]) -> Vec<Open> {
    let mut open = Vec::new();
    for (level, (node, (key, value))) in way.iter().zip(entries).enumerate() {
        if node.share_threshold && node.has_wildcard() {
            continue;
        }
        if node.key.contains('*') {
            open.push(Open::Key(level, key.clone()));
        }
        if node.fixed_value().is_none_or(|fixed| fixed.contains('*')) {
            open.push(Open::Value(level, value.clone()));
        }
    }
    open
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "any|thing\0", true),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*b*", "abc", true),
            ("*b*", "ac", false),
            ("a*b*c", "abbc", true),
            ("a*b*c", "acb", false),
            ("*ab", "aab", true),
            ("ä*", "äö", true),
        ] {
            assert_eq!(fits(pattern, text), expected, "{pattern:?} {text:?}");
        }
    }
}
