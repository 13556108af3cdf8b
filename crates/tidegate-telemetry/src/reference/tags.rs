//! Tags that are put behind every name: `EXTRA_TAGS` of the reference server.

use std::collections::BTreeMap;

/// Tags, sorted by their names, in the spellings that they are told in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tags {
    /// `.__name=value` for each.
    pub(super) suffix: String,
    /// `name`, as Prometheus allows it, and `value`.
    pub(super) labels: Vec<(String, String)>,
    /// `name:value` for each, as DogStatsD has it.
    pub(super) pairs: Vec<String>,
}

impl Tags {
    /// Of the same name the last counts; what has no name or no value is left out, as there.
    pub(super) fn of(tags: &[(String, String)]) -> Self {
        let sorted: BTreeMap<&str, String> = tags
            .iter()
            .filter(|(name, value)| !name.is_empty() && !value.is_empty())
            .map(|(name, value)| (name.as_str(), plain(value)))
            .collect();
        let mut all = Self::default();
        for (name, value) in sorted {
            let plain_name: String =
                name.chars().map(|one| if one.is_control() { '_' } else { one }).collect();
            all.suffix.push_str(&format!(".__{plain_name}={value}"));
            all.pairs.push(format!("{plain_name}:{value}"));
            let label = label_name(name);
            // Of two names that become one, the first is told: a row must not have a label twice.
            if all.labels.iter().all(|(other, _)| *other != label) {
                all.labels.push((label, value));
            }
        }
        all
    }
}

/// A value as the reference writes it, and without what would end a line.
fn plain(value: &str) -> String {
    value
        .chars()
        .map(|one| if matches!(one, '.' | ':' | '|') || one.is_control() { '_' } else { one })
        .collect()
}

/// A name that Prometheus takes for a label, and that no metric has of its own.
fn label_name(name: &str) -> String {
    let mut label: String =
        name.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '_' }).collect();
    let taken = ["domain", "key1", "key2", "err_type", "grpc_method", "le"];
    if label.starts_with(|first: char| first.is_ascii_digit())
        || label.starts_with("__")
        || taken.contains(&label.as_str())
    {
        label.insert_str(0, "tag_");
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_sorted_and_written_as_the_reference_writes_them() {
        let given =
            [("b", "1.2:3|4"), ("a", "x"), ("", "y"), ("c", ""), ("a", "z"), ("domain", "d"), ("9", "n\n")];
        let tags = Tags::of(&given.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(tags.suffix, ".__9=n_.__a=z.__b=1_2_3_4.__domain=d");
        assert_eq!(tags.pairs, ["9:n_", "a:z", "b:1_2_3_4", "domain:d"]);
        let labels: Vec<String> = tags.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(labels, ["tag_9=n_", "a=z", "b=1_2_3_4", "tag_domain=d"]);
    }
}
