//! The dialect of Datadog: names that are made over by patterns, and tags behind the value.

use std::sync::OnceLock;

use regex::{Captures, Regex};
use thiserror::Error;

/// Makes names over: `DOG_STATSD_MOGRIFIER_<N>_{PATTERN,NAME,TAGS}`.
#[derive(Clone, Debug)]
pub struct Mogrifier {
    pattern: Regex,
    name: String,
    tags: Vec<(String, String)>,
}

/// Why names cannot be made over so.
#[derive(Debug, Error)]
pub enum MogrifierError {
    /// There is none.
    #[error("there is no pattern")]
    NoPattern,
    /// It is no regular expression.
    #[error("not a regular expression: {0}")]
    Pattern(#[from] Box<regex::Error>),
    /// There is none.
    #[error("there is no name")]
    NoName,
    /// One of them has no name or no value.
    #[error("tag `{0}:{1}` lacks a name or a value")]
    Tag(String, String),
}

impl Mogrifier {
    /// Names that fit `pattern` become `name`, with these tags. In both, `$0`, `$1` and so on stand for what was found.
    pub fn new(pattern: &str, name: &str, tags: &[(String, String)]) -> Result<Self, MogrifierError> {
        if pattern.is_empty() {
            return Err(MogrifierError::NoPattern);
        }
        if name.is_empty() {
            return Err(MogrifierError::NoName);
        }
        if let Some((tag, value)) = tags.iter().find(|(tag, value)| tag.is_empty() || value.is_empty()) {
            return Err(MogrifierError::Tag(tag.clone(), value.clone()));
        }
        let pattern = Regex::new(pattern).map_err(Box::new)?;
        Ok(Self { pattern, name: name.into(), tags: tags.to_vec() })
    }

    /// The name and the tags, if the pattern fits.
    pub(super) fn made_over(&self, name: &str) -> Option<(String, Vec<String>)> {
        let found = self.pattern.captures(name)?;
        let tags = self.tags.iter().map(|(tag, value)| format!("{tag}:{}", filled(value, &found)));
        Some((filled(&self.name, &found), tags.collect()))
    }
}

/// What was found in the place of `$0`, `$1` and so on; one that there is not stays as it is, as in the reference.
fn filled(text: &str, found: &Captures<'_>) -> String {
    static HOLE: OnceLock<Option<Regex>> = OnceLock::new();
    let Some(hole) = HOLE.get_or_init(|| Regex::new(r"\$([0-9]+)").ok()) else { return text.into() };
    let filling = |place: &Captures<'_>| {
        let number = place[1].parse::<usize>().ok().filter(|number| *number < found.len());
        let filling = number.map(|number| found.get(number).map_or("", |found| found.as_str()));
        filling.unwrap_or(&place[0]).to_string()
    };
    hole.replace_all(text, filling).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_over_as_in_the_reference() -> Result<(), MogrifierError> {
        let tags = [("domain".to_string(), "$1".to_string()), ("all".to_string(), "$0-$9".to_string())];
        let pattern = r"^ratelimit\.service\.rate_limit\.([^.]+)\.(.*)\.([^.]+)$";
        let mogrifier = Mogrifier::new(pattern, "ratelimit.$3", &tags)?;
        let name = "ratelimit.service.rate_limit.shop.key_v.over_limit";
        let (made, tags) = mogrifier.made_over(name).unwrap_or_default();
        assert_eq!(made, "ratelimit.over_limit");
        assert_eq!(tags, ["domain:shop".to_string(), format!("all:{name}-$9")]);
        assert!(mogrifier.made_over("other").is_none());
        Ok(())
    }

    #[test]
    fn what_cannot_work_is_refused() {
        let tag = |name: &str, value: &str| [(name.to_string(), value.to_string())];
        for (pattern, name, tags, said) in [
            ("", "n", vec![], "there is no pattern"),
            ("(", "n", vec![], "not a regular expression"),
            ("a", "", vec![], "there is no name"),
            ("a", "n", tag("", "v").to_vec(), "tag `:v` lacks"),
            ("a", "n", tag("t", "").to_vec(), "tag `t:` lacks"),
        ] {
            let refused = Mogrifier::new(pattern, name, &tags).map(|_| ()).map_err(|error| error.to_string());
            assert!(refused.as_ref().is_err_and(|text| text.starts_with(said)), "{refused:?}");
        }
    }
}
