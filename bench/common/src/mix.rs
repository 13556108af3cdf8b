//! Who asks for what: which of many callers, under how many descriptors at once, under a limit that is soon reached or not, and at what
//! cost. The same in every run.

/// How often each caller asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Everybody alike: the worst for caches.
    Uniform,
    /// Few often, most seldom, with exponent 0.99: as traffic is.
    Zipf,
}

/// What requests are made of.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Mix {
    /// How many distinct callers there are.
    pub callers: u32,
    /// How often each of them asks.
    pub order: Order,
    /// Descriptors of a request: from one to so many, each as often.
    pub descriptors_max: u32,
    /// Of a hundred descriptors so many are under the limit that is soon reached.
    pub tight_percent: u32,
    /// What a request costs: from one to so many, each as often.
    pub cost_max: u32,
}

/// One request to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Draw {
    /// Who asks, and is it under the limit that is soon reached? One for each descriptor.
    pub descriptors: Vec<(u32, bool)>,
    /// In units.
    pub cost: u32,
}

impl Mix {
    /// So many requests. Every caller is there in an order that no cache can guess.
    pub fn draw(self, count: usize) -> impl Iterator<Item = Draw> {
        let mut random = Random(7);
        let zipf = (self.order == Order::Zipf).then(|| Zipf::new(self.callers));
        (0..count).map(move |_| {
            let descriptors = (0..random.one_to(self.descriptors_max)).map(|_| {
                let caller = match &zipf {
                    Some(zipf) => zipf.draw(&mut random),
                    None => random.one_to(self.callers) - 1,
                };
                (caller, random.one_to(100) <= self.tight_percent)
            });
            let descriptors = descriptors.collect();
            Draw { descriptors, cost: random.one_to(self.cost_max) }
        })
    }
}

/// splitmix64: one word of state, and any seed is a good seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// One of the first so many numbers, from 1 on.
    fn one_to(&mut self, most: u32) -> u32 {
        (self.uniform() * f64::from(most)) as u32 + 1
    }
}

/// Zipf's law by the method of Gray et al., "Quickly generating billion-record synthetic databases" (1994), as in YCSB.
struct Zipf {
    callers: u32,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

const EXPONENT: f64 = 0.99;

impl Zipf {
    fn new(callers: u32) -> Self {
        let zeta_of = |count: u32| (1..=count).map(|rank| f64::from(rank).powf(-EXPONENT)).sum::<f64>();
        let zeta = zeta_of(callers);
        let eta = (1.0 - (2.0 / f64::from(callers)).powf(1.0 - EXPONENT)) / (1.0 - zeta_of(2) / zeta);
        Self { callers, zeta, alpha: 1.0 / (1.0 - EXPONENT), eta }
    }

    fn draw(&self, random: &mut Random) -> u32 {
        let lot = random.uniform();
        let rank = if lot * self.zeta < 1.0 {
            0
        } else if lot * self.zeta < 1.0 + 0.5_f64.powf(EXPONENT) {
            1
        } else {
            (f64::from(self.callers) * (self.eta * lot - self.eta + 1.0).powf(self.alpha)) as u32
        };
        // Neighbours in rank are not neighbours in number: those may have been stored one after the other.
        const PRIME: u64 = 2_654_435_761;
        (u64::from(rank.min(self.callers - 1)) * PRIME % u64::from(self.callers)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Mix =
        Mix { callers: 10_000, order: Order::Uniform, descriptors_max: 1, tight_percent: 0, cost_max: 1 };

    #[test]
    fn a_plain_mix_is_one_descriptor_that_costs_one() {
        for draw in PLAIN.draw(1_000) {
            assert_eq!((draw.descriptors.len(), draw.cost, draw.descriptors[0].1), (1, 1, false));
            assert!(draw.descriptors[0].0 < PLAIN.callers);
        }
    }

    #[test]
    fn zipf_favours_few_and_uniform_nobody() {
        for (order, low, high) in [(Order::Uniform, 0.0, 0.001), (Order::Zipf, 0.08, 0.12)] {
            let (count, mut asked) = (200_000, vec![0_u32; PLAIN.callers as usize]);
            for draw in (Mix { order, ..PLAIN }).draw(count) {
                asked[draw.descriptors[0].0 as usize] += 1;
            }
            // The most frequent of 10 000 callers has 1/zeta(10 000) = 10 % of Zipf's draws.
            let share = f64::from(asked.into_iter().max().unwrap_or(0)) / count as f64;
            assert!((low..high).contains(&share), "{order:?}: {share}");
        }
    }

    #[test]
    fn every_count_of_descriptors_and_every_cost_comes_as_often() {
        let (count, mut descriptors, mut costs) = (50_000, [0_u32; 5], [0_u32; 10]);
        for draw in (Mix { descriptors_max: 5, cost_max: 10, ..PLAIN }).draw(count) {
            descriptors[draw.descriptors.len() - 1] += 1;
            costs[draw.cost as usize - 1] += 1;
        }
        assert!(descriptors.iter().all(|times| (9_500..10_500).contains(times)), "{descriptors:?}");
        assert!(costs.iter().all(|times| (4_600..5_400).contains(times)), "{costs:?}");
    }

    #[test]
    fn so_many_of_a_hundred_are_under_the_limit_that_is_soon_reached() {
        let tight = (Mix { tight_percent: 20, ..PLAIN }).draw(10_000).filter(|draw| draw.descriptors[0].1);
        assert!((1_850..2_150).contains(&tight.count()));
    }
}
