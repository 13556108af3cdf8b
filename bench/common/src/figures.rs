//! What a page is made from: medians of ratios, and how numbers are written.

/// A median, and the least and the most beside it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

impl Spread {
    /// Of some values; none if there are none.
    pub fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { median, least, most })
    }

    /// As it stands on a page.
    pub fn spoken(self) -> String {
        format!("{:.2} ({:.2}–{:.2})", self.median, self.least, self.most)
    }
}

/// The median of some values, or zero.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}

/// `1 000 000`.
pub fn thousands(number: u32) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_its_median_in_the_middle() {
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter()).expect("values");
        assert_eq!((spread.median, spread.least, spread.most), (2.0, 1.0, 3.0));
        assert_eq!(median([4.0, 2.0].into_iter()), 3.0);
        assert!(Spread::of(std::iter::empty()).is_none());
    }

    #[test]
    fn numbers_are_written_in_groups_of_three() {
        for (number, text) in [(0, "0"), (999, "999"), (4_000, "4 000"), (1_000_000, "1 000 000")] {
            assert_eq!(thousands(number), text);
        }
    }
}
