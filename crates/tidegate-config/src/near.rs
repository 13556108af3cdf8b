//! "Did you mean …?"

/// Longer names are not compared: the work grows with the square, and nobody mistypes forty letters.
const LETTERS_MAX: usize = 40;

/// The candidate that was most likely meant, if any is close.
pub fn nearest<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    if name.len() > LETTERS_MAX {
        return None;
    }
    let folded = fold(name);
    // A third of the letters may be wrong; in short names, one.
    let distance_max = (folded.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(&folded, &fold(candidate)), candidate))
        .filter(|(distance, candidate)| *distance <= distance_max && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Without differences of fashion: `requestsPerUnit`, `requests-per-unit` and `REQUESTS_PER_UNIT` are the same.
fn fold(name: &str) -> String {
    let mut folded = String::with_capacity(name.len() + 4);
    let mut after_small = false;
    for letter in name.chars() {
        if letter.is_uppercase() && after_small {
            folded.push('_');
        }
        after_small = letter.is_lowercase();
        folded.extend(if matches!(letter, '-' | ' ') { '_' } else { letter }.to_lowercase());
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_found_and_nothing_else_is() {
        let names = ["requests_per_unit", "unit", "name", "unlimited", "on"];
        for (typed, meant) in [
            ("request_per_unit", Some("requests_per_unit")),
            ("requestsPerUnit", Some("requests_per_unit")),
            ("REQUESTS-PER-UNIT", Some("requests_per_unit")),
            ("uint", Some("unit")),
            ("nam", Some("name")),
            ("window", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(nearest(typed, names.into_iter()), meant, "{typed}");
        }
        assert_eq!(nearest(&"unit".repeat(1_000_000), names.into_iter()), None);
    }
}
