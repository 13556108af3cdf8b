//! The keys that everybody is asked about: how a number becomes a string, and which numbers come in which order.

/// How a workload chooses its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Distribution {
    /// Every key alike: the worst for caches.
    Uniform,
    /// Few keys often, most keys seldom, with exponent 0.99: as traffic is.
    Zipf,
}

impl Distribution {
    pub(crate) const ALL: [Self; 2] = [Self::Uniform, Self::Zipf];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf => "zipf",
        }
    }
}

/// Writes the key of this number, such as `user:00012345`.
pub(crate) fn spell(index: u32, key: &mut String) {
    let mut digits = [b'0'; 8];
    let mut rest = index;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key.clear();
    key.push_str("user:");
    key.push_str(std::str::from_utf8(&digits).unwrap_or_default());
}

/// The most keys that [`spell`] can tell apart.
pub(crate) const KEYS_MAX: u32 = 100_000_000;
/// Bytes of every key.
const KEY_BYTES: usize = "user:".len() + 8;

/// Keys in the order in which they are asked about, drawn and written before anything is timed. The same seed, so the same for everybody.
pub(crate) struct Lists {
    uniform: List,
    zipf: List,
}

struct List {
    indices: Vec<u32>,
    /// Their keys, one after the other.
    text: String,
}

impl Lists {
    /// `length` draws of each distribution over `keys` keys.
    pub(crate) fn draw(keys: u32, length: usize) -> Self {
        let mut random = Random(7);
        let uniform = (0..length).map(|_| (random.uniform() * f64::from(keys)) as u32).collect();
        let zipf = Zipf::new(keys);
        let zipf = (0..length).map(|_| zipf.draw(&mut random)).collect();
        Self { uniform: List::of(uniform), zipf: List::of(zipf) }
    }

    /// `length` draws from place `start` on; the list is a ring.
    pub(crate) fn part(&self, distribution: Distribution, start: usize, length: usize) -> Draws<'_> {
        let List { indices, text } = match distribution {
            Distribution::Uniform => &self.uniform,
            Distribution::Zipf => &self.zipf,
        };
        let length = length.min(indices.len());
        let start = start % (indices.len() - length + 1);
        Draws { indices, text }.part(start, start + length)
    }
}

impl List {
    fn of(indices: Vec<u32>) -> Self {
        let (mut text, mut key) = (String::with_capacity(indices.len() * KEY_BYTES), String::new());
        for index in &indices {
            spell(*index, &mut key);
            text.push_str(&key);
        }
        Self { indices, text }
    }
}

/// Keys to ask about, in order.
#[derive(Clone, Copy)]
pub(crate) struct Draws<'a> {
    indices: &'a [u32],
    text: &'a str,
}

impl<'a> Draws<'a> {
    pub(crate) fn len(&self) -> usize {
        self.indices.len()
    }

    /// Each key's number and its text.
    pub(crate) fn iter(self) -> impl Iterator<Item = (u32, &'a str)> {
        let keys = (0..self.indices.len()).map(move |at| &self.text[at * KEY_BYTES..(at + 1) * KEY_BYTES]);
        self.indices.iter().copied().zip(keys)
    }

    /// So many at a time; the last may be fewer.
    pub(crate) fn chunks(self, size: usize) -> impl Iterator<Item = Draws<'a>> {
        (0..self.len()).step_by(size).map(move |from| self.part(from, self.len().min(from + size)))
    }

    fn part(self, from: usize, to: usize) -> Self {
        Self { indices: &self.indices[from..to], text: &self.text[from * KEY_BYTES..to * KEY_BYTES] }
    }
}

/// splitmix64: one word of state, and any seed is a good seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Zipf's law by the method of Gray et al., "Quickly generating billion-record synthetic databases" (1994), as in YCSB.
struct Zipf {
    keys: u32,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

const EXPONENT: f64 = 0.99;

impl Zipf {
    fn new(keys: u32) -> Self {
        let zeta_of = |n: u32| (1..=n).map(|rank| f64::from(rank).powf(-EXPONENT)).sum::<f64>();
        let zeta = zeta_of(keys);
        let eta = (1.0 - (2.0 / f64::from(keys)).powf(1.0 - EXPONENT)) / (1.0 - zeta_of(2) / zeta);
        Self { keys, zeta, alpha: 1.0 / (1.0 - EXPONENT), eta }
    }

    fn draw(&self, random: &mut Random) -> u32 {
        let u = random.uniform();
        let rank = if u * self.zeta < 1.0 {
            0
        } else if u * self.zeta < 1.0 + 0.5_f64.powf(EXPONENT) {
            1
        } else {
            (f64::from(self.keys) * (self.eta * u - self.eta + 1.0).powf(self.alpha)) as u32
        };
        // Neighbours in rank are not neighbours in number: those were stored one after the other.
        const PRIME: u64 = 2_654_435_761;
        (u64::from(rank.min(self.keys - 1)) * PRIME % u64::from(self.keys)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_key_of_its_own() {
        let spelled = |index| {
            let mut key = String::from("before");
            spell(index, &mut key);
            key
        };
        for index in (0..20_000).chain((0..KEYS_MAX).step_by(9_973)).chain([KEYS_MAX - 1]) {
            assert_eq!(spelled(index), format!("user:{index:08}"));
        }
    }

    #[test]
    fn draws_are_in_range_and_zipf_favours_few() {
        let (keys, length) = (10_000, 200_000);
        let lists = Lists::draw(keys, length);
        for (distribution, low, high) in
            [(Distribution::Uniform, 0.0, 0.001), (Distribution::Zipf, 0.08, 0.12)]
        {
            let mut counts = vec![0u32; keys as usize];
            for (index, _) in lists.part(distribution, 0, length).iter() {
                counts[index as usize] += 1;
            }
            // The most frequent of 10 000 keys has 1/zeta(10 000) = 10 % of Zipf's draws.
            let share = f64::from(counts.iter().copied().max().unwrap_or(0)) / length as f64;
            assert!((low..high).contains(&share), "{distribution:?}: {share}");
        }
    }

    #[test]
    fn parts_and_chunks_keep_every_key_with_its_number() {
        let lists = Lists::draw(1_000, 100);
        for start in [0, 1, 60, 99, 1_000_003] {
            let part = lists.part(Distribution::Zipf, start, 60);
            assert_eq!(part.len(), 60);
            let chunked: Vec<(u32, &str)> = part.chunks(7).flat_map(Draws::iter).collect();
            assert_eq!(chunked, part.iter().collect::<Vec<_>>());
            assert!(chunked.iter().all(|(index, key)| *key == format!("user:{index:08}")));
        }
    }
}
