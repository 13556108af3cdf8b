//! What one verdict adds to which count. The reference adds the hits to a counter first and looks afterwards, so its numbers are in terms
//! of what the counter held before and what it would hold with all hits, admitted or not.

use super::table::{COUNTS, OfRule};

/// What was said to one descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Judged {
    /// What its counter held before.
    pub before: u64,
    /// The hits that it asked for; 0 is a peek.
    pub hits: u64,
    /// The limit.
    pub limit: u64,
    /// Is the rule in shadow mode?
    pub shadow: bool,
    /// Was it refused from memory, without asking the store?
    pub cached: bool,
}

impl Judged {
    /// What it adds, by [`OfRule`]. `ratio` is the part of a limit from which on it is near.
    pub(super) fn adds(&self, ratio: f32) -> [u64; COUNTS] {
        let Self { before, hits, limit, shadow, cached } = *self;
        let after = before.saturating_add(hits);
        let mut adds = [0; COUNTS];
        let mut add = |count: OfRule, by: u64| adds[count as usize] = by;
        add(OfRule::TotalHits, hits);
        if cached || after > limit {
            let over = if cached || before >= limit { hits } else { after - limit };
            add(OfRule::OverLimit, over);
            if cached {
                add(OfRule::OverLimitWithLocalCache, hits);
            } else if before < limit {
                add(OfRule::NearLimit, limit.saturating_sub(near(limit, ratio).max(before)));
            }
            if shadow {
                add(OfRule::ShadowMode, over);
            }
        } else {
            let near = near(limit, ratio);
            add(OfRule::WithinLimit, hits);
            if after > near {
                add(OfRule::NearLimit, if before >= near { hits } else { after - near });
            }
        }
        adds
    }
}

/// From where on a limit is near. In the reference's own single precision, whose roundings show: 0.7 of 10 is 7 there, and the exact
/// product of 10 and the float nearest to 0.7 is not. No decision depends on it.
fn near(limit: u64, ratio: f32) -> u64 {
    (limit as f32 * ratio).floor() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the order of [`OfRule`], without what is given back.
    fn adds(judged: Judged) -> [u64; 6] {
        let adds = judged.adds(0.8);
        assert_eq!(adds[OfRule::TotalNegativeHits as usize], 0);
        std::array::from_fn(|at| adds[at])
    }

    /// The cases of the reference's own tests among them: limits of 20 with hits of 3, and of 4, 10 and 15.
    #[test]
    fn every_count_grows_as_it_does_in_the_reference() {
        let plain = Judged::default();
        let shadow = Judged { shadow: true, ..plain };
        let cached = Judged { cached: true, ..plain };
        // What it is, before, hits, limit: total, over, near, within, from memory, in shadow.
        for (what, judged, before, hits, limit, expected) in [
            ("well within", plain, 0, 1, 10, [1, 0, 0, 1, 0, 0]),
            ("up to the threshold", plain, 7, 1, 10, [1, 0, 0, 1, 0, 0]),
            ("the first that is near", plain, 8, 1, 10, [1, 0, 1, 1, 0, 0]),
            ("the last within", plain, 9, 1, 10, [1, 0, 1, 1, 0, 0]),
            ("the first above", plain, 10, 1, 10, [1, 1, 0, 0, 0, 0]),
            ("far above", plain, 99, 7, 10, [7, 7, 0, 0, 0, 0]),
            ("some near", plain, 14, 3, 20, [3, 0, 1, 3, 0, 0]),
            ("all near", plain, 16, 3, 20, [3, 0, 3, 3, 0, 0]),
            ("exactly full", plain, 17, 3, 20, [3, 0, 3, 3, 0, 0]),
            ("some near, some above", plain, 19, 3, 20, [3, 2, 1, 0, 0, 0]),
            ("within, near and above", plain, 8, 5, 10, [5, 3, 2, 0, 0, 0]),
            ("from nothing to above", plain, 0, 25, 20, [25, 5, 4, 0, 0, 0]),
            ("all above", plain, 22, 3, 20, [3, 3, 0, 0, 0, 0]),
            ("a threshold that is rounded down", plain, 3, 1, 4, [1, 0, 1, 1, 0, 0]),
            ("a limit of one", plain, 0, 1, 1, [1, 0, 1, 1, 0, 0]),
            ("a limit of nothing", plain, 0, 1, 0, [1, 1, 0, 0, 0, 0]),
            ("a peek within", plain, 9, 0, 10, [0, 0, 0, 0, 0, 0]),
            ("a peek above", plain, 11, 0, 10, [0, 0, 0, 0, 0, 0]),
            ("shadow, within", shadow, 9, 1, 10, [1, 0, 1, 1, 0, 0]),
            ("shadow, partly above", shadow, 8, 5, 10, [5, 3, 2, 0, 0, 3]),
            ("shadow, all above", shadow, 10, 5, 10, [5, 5, 0, 0, 0, 5]),
            ("from memory", cached, 0, 3, 10, [3, 3, 0, 0, 3, 0]),
            ("from memory, in shadow", Judged { shadow: true, ..cached }, 0, 3, 10, [3, 3, 0, 0, 3, 3]),
            ("more than there are numbers", plain, u64::MAX, u64::MAX, 10, [u64::MAX, u64::MAX, 0, 0, 0, 0]),
        ] {
            assert_eq!(adds(Judged { before, hits, limit, ..judged }), expected, "{what}");
        }
    }

    #[test]
    fn a_limit_is_near_where_it_is_in_the_reference() {
        for (limit, ratio, expected) in [
            (10, 0.8, 8),
            (15, 0.8, 12),
            (4, 0.8, 3),
            (10, 0.7, 7),
            (1, 0.8, 0),
            (0, 0.8, 0),
            (u64::from(u32::MAX), 0.8, 3_435_973_888), // Single precision has 24 bits.
            (10, 0.0, 0),
            (10, 1.0, 10),
            (10, -1.0, 0),
            (10, f32::NAN, 0),
        ] {
            assert_eq!(near(limit, ratio), expected, "{ratio} of {limit}");
        }
        // A ratio above one: no hit is near, and nothing breaks.
        assert_eq!(Judged { before: 9, hits: 2, limit: 10, ..Judged::default() }.adds(1.5)[..3], [2, 1, 0]);
    }
}
