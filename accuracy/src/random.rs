//! Seeded randomness for the traces, and nothing else.
//!
//! The logarithm and the exponential are our own: those of the system's mathematics library differ in the last bit
//! between versions, and the same seed must give the same bytes on every machine.

/// splitmix64: one word of state, passes the usual batteries, and any seed is a good seed.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// A stream of its own for each list of labels, so that adding a source never moves the traces of another.
    pub(crate) fn stream(seed: u64, labels: &[u64]) -> Self {
        let mut random = Self { state: seed };
        for label in labels {
            random.state = random.next() ^ label.wrapping_mul(0xD6E8_FEB8_6659_FD93);
        }
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), all 53 bits of the fraction used.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in low..=high.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + (self.uniform() * (high - low + 1) as f64) as u64
    }

    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(1.0 - self.uniform())
    }

    /// Mean 0, variance 1, by the polar form of Box and Muller (no sine or cosine to differ between machines).
    pub(crate) fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * ln(square) / square).sqrt();
            }
        }
    }
}

/// Natural logarithm of a positive normal number: exponent apart, then the series of the inverse hyperbolic tangent.
pub(crate) fn ln(x: f64) -> f64 {
    debug_assert!(x.is_normal() && x > 0.0);
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s; // At most 0.0295, so twelve terms reach the last bit.
    let mut sum = 0.0;
    for term in (0..12).rev() {
        sum = sum * square + 1.0 / (2 * term + 1) as f64;
    }
    2.0 * s * sum + exponent as f64 * std::f64::consts::LN_2
}

/// e to the power x, for the moderate x of a trace.
pub(crate) fn exp(x: f64) -> f64 {
    debug_assert!(x.abs() < 700.0);
    let power = (x / std::f64::consts::LN_2).round();
    let rest = x - power * std::f64::consts::LN_2; // At most 0.35, so eighteen terms are plenty.
    let mut sum = 1.0;
    for term in (1..18).rev() {
        sum = 1.0 + sum * rest / term as f64;
    }
    sum * f64::from_bits(((power as i64 + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_words_are_those_of_the_published_generator() {
        let mut random = Random { state: 1234567 };
        let words = [random.next(), random.next(), random.next()];
        assert_eq!(words, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn streams_depend_on_seed_and_every_label() {
        let first = |seed, labels: &[u64]| Random::stream(seed, labels).next();
        assert_eq!(first(1, &[2, 3]), first(1, &[2, 3]));
        assert_ne!(first(1, &[2, 3]), first(2, &[2, 3]));
        assert_ne!(first(1, &[2, 3]), first(1, &[3, 2]));
        assert_ne!(first(1, &[2, 3]), first(1, &[2, 4]));
    }

    #[test]
    fn logarithm_and_exponential_agree_with_the_system() {
        let mut x = 1e-12;
        while x < 1e6 {
            assert!((ln(x) - f64::ln(x)).abs() <= 1e-14 * f64::ln(x).abs().max(1.0), "ln {x}");
            x *= 1.0371;
        }
        for step in -400..400 {
            let x = f64::from(step) / 20.0;
            assert!((exp(x) / f64::exp(x) - 1.0).abs() < 1e-14, "exp {x}");
        }
    }

    #[test]
    fn means_and_spread_are_as_named() {
        let mut random = Random::stream(7, &[]);
        let n = 200_000;
        let (mut uniform, mut exponential, mut normal, mut square) = (0.0, 0.0, 0.0, 0.0);
        for _ in 0..n {
            uniform += random.uniform();
            exponential += random.exponential(3.0);
            let x = random.normal();
            normal += x;
            square += x * x;
        }
        let mean = |sum: f64| sum / f64::from(n);
        assert!((mean(uniform) - 0.5).abs() < 0.005);
        assert!((mean(exponential) - 3.0).abs() < 0.03);
        assert!(mean(normal).abs() < 0.01);
        assert!((mean(square) - 1.0).abs() < 0.02);
    }

    #[test]
    fn between_reaches_both_ends_and_no_further() {
        let mut random = Random::stream(7, &[]);
        let mut seen = [0u32; 5];
        for _ in 0..1000 {
            seen[random.between(1, 3) as usize] += 1;
        }
        assert_eq!([seen[0], seen[4]], [0, 0]);
        assert!(seen[1..4].iter().all(|&n| n > 250));
    }
}
