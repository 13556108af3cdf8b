//! Books and pages for the tests.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeMap;

use tidegate_core::{
    Book, DescriptorDraft, DomainDraft, Limit, LimitError, Micros, Outcome, RuleDraft, Secret, Verdict,
};
use tidegate_telemetry::{Gauges, Metrics, RuleMetrics, encode};

/// A descriptor with a limit of 100 a minute.
pub(crate) fn node(key: &str, name: Option<&str>) -> Result<DescriptorDraft, LimitError> {
    let limit = Some(Limit::fixed_window(100, Micros::from_secs(60))?);
    let rule = RuleDraft { limit, name: name.map(Box::from), ..RuleDraft::default() };
    Ok(DescriptorDraft { key: key.into(), limits: vec![rule], ..DescriptorDraft::default() })
}

/// A book of one domain.
pub(crate) fn book(domain: &str, descriptors: Vec<DescriptorDraft>) -> Book {
    let domain = DomainDraft { name: domain.into(), descriptors, ..DomainDraft::default() };
    Book::new([domain], Secret::new([1; 16]))
}

/// A verdict with so much remaining of 100.
pub(crate) fn verdict(outcome: Outcome, remaining: u32) -> Verdict {
    Verdict { outcome, limit: 100, remaining, ..Verdict::BLANK }
}

/// The page of these rules, of a node about which nothing else is known.
pub(crate) fn page(rules: &RuleMetrics) -> Page {
    Page::parse(&encode(&Metrics::new(1), rules, &Gauges::default()))
}

/// A page that was scraped, read by rules of its own: the library that wrote it does not read.
#[derive(Default, Debug)]
pub(crate) struct Page {
    /// The kind of each family, by its name.
    pub(crate) kinds: BTreeMap<String, String>,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

impl Page {
    pub(crate) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let lines = text.strip_suffix("# EOF\n").expect("a page ends with # EOF");
        for line in lines.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["#", "TYPE", name, kind] => {
                    assert!(page.kinds.insert(name.into(), kind.into()).is_none(), "{name} twice");
                }
                ["#", "HELP" | "UNIT", ..] => {}
                _ => page.samples.push(Sample::parse(line)),
            }
        }
        page
    }

    /// The value of the row with this name and these labels; the others of the row are left open.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut fitting = self.samples.iter().filter(|sample| {
            let has = |(name, value): &(&str, &str)| sample.label(name) == Some(value);
            sample.name == name && labels.iter().all(has)
        });
        let first = fitting.next();
        assert!(fitting.next().is_none(), "{name} {labels:?} is not one row");
        first.map(|sample| sample.value)
    }
}

impl Sample {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    fn parse(line: &str) -> Self {
        let split = line.find(['{', ' ']).expect("a name ends");
        let (name, mut rest) = line.split_at(split);
        let mut labels = Vec::new();
        if let Some(behind) = rest.strip_prefix('{') {
            rest = behind;
            while !rest.starts_with('}') {
                let (label, behind) = rest.split_once("=\"").expect("a label has a value");
                let (value, behind) = unquote(behind);
                labels.push((label.into(), value));
                rest = behind.strip_prefix(',').unwrap_or(behind);
            }
            rest = &rest[1..];
        }
        let value = rest.strip_prefix(' ').expect("a space before the value");
        Self { name: name.into(), labels, value: value.parse().expect("a number") }
    }
}

/// A value, and what is behind its closing quote.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match letters.next() {
                Some((_, 'n')) => '\n',
                Some((_, escaped @ ('"' | '\\'))) => escaped,
                other => panic!("{other:?} is no escape"),
            }),
            letter => value.push(letter),
        }
    }
    panic!("a value that does not end: {text}");
}
