//! What limits are called in front of callers.

use tidegate_core::{Book, Rule};

/// The longest name.
pub(super) const NAME_MAX: usize = 64;

/// The name of a limit that a request brought.
const OF_REQUEST: &str = "request";
/// The name of a rule that nothing can be said of.
const NAMELESS: &str = "limit";

/// The names of all rules of a book, as headers tell them: printable ASCII that needs no escape, and not long. Made when the book is put
/// in force, and only good for that one.
#[derive(Clone, Debug, Default)]
pub struct PolicyNames(Box<[Box<str>]>);

impl PolicyNames {
    /// A rule is called by its name, else by the keys of its path.
    pub fn of(book: &Book) -> Self {
        Self(book.rules().iter().map(name).collect())
    }

    /// What a rule is called, or a limit that came with the request.
    pub fn name(&self, rule: Option<&Rule>) -> &str {
        let Some(rule) = rule else { return OF_REQUEST };
        self.0.get(rule.number).map_or(NAMELESS, |name| name)
    }
}

fn name(rule: &Rule) -> Box<str> {
    let said = rule.said.name.as_deref().map(printable).filter(|name| !name.is_empty());
    let name = said.unwrap_or_else(|| {
        let keys: Vec<&str> = rule.path.iter().map(|entry| &*entry.key).collect();
        printable(&keys.join("."))
    });
    if name.is_empty() { NAMELESS.into() } else { name.into() }
}

fn printable(text: &str) -> String {
    let shown = |one| if matches!(one, ' '..='~') && !matches!(one, '"' | '\\') { one } else { '_' };
    text.chars().take(NAME_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_core::{DescriptorDraft, DomainDraft, RuleDraft, Secret};

    use super::*;

    #[test]
    fn a_rule_is_called_by_its_name_else_by_the_keys_of_its_path() {
        let long = "n".repeat(100);
        for (keys, said, name) in [
            (["api_key", "endpoint"], Some("writes"), "writes"),
            (["api_key", "endpoint"], None, "api_key.endpoint"),
            (["api_key", "endpoint"], Some(""), "api_key.endpoint"),
            (["api_key", "endpoint"], Some("a\"b\\c\r\nd é…"), "a_b_c__d __"),
            (["key\u{7f}", "*"], None, "key_.*"),
            (["a", "b"], Some(&*long), &long[..NAME_MAX]),
        ] {
            let rule = RuleDraft { name: said.map(Box::from), ..RuleDraft::default() };
            let below =
                DescriptorDraft { key: keys[1].into(), limits: vec![rule], ..DescriptorDraft::default() };
            let top = DescriptorDraft {
                key: keys[0].into(),
                descriptors: vec![below],
                ..DescriptorDraft::default()
            };
            let domain = DomainDraft { name: "d".into(), descriptors: vec![top], ..DomainDraft::default() };
            let book = Book::new([domain], Secret::new([1; 16]));
            let names = PolicyNames::of(&book);
            assert_eq!(names.name(book.rules().first()), name);
            assert_eq!(names.name(None), "request");
            assert_eq!(PolicyNames::default().name(book.rules().first()), "limit", "of another book");
        }
    }
}
