//! The traces: when requests arrive. Start at [`TRACES`]; each limiter sees the same ones.
//!
//! Floats make the times here and nothing else; a time is a whole number of microseconds before any limiter sees it.

use crate::random::{Random, exp};

pub(crate) const WINDOW_US: u64 = 60_000_000;

/// Traces begin at a present-day Unix time, on a window boundary: no limiter may rely on small numbers.
pub(crate) const START_US: u64 = 28_333_334 * WINDOW_US;

/// Cells per window that the default algorithm promises; the attack on cells is cut to fit.
const CELLS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    Poisson { load: f64 },
    OnOff { load: f64 },
    LogNormal,
    Zipf,
    RandomBursts,
    EndBurst,
    OneEarly,
    Drip,
    Double,
    CellAttack,
}

pub(crate) struct Trace {
    /// Heading of its column.
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// What exactly arrives, for the reader who wants to repeat it.
    pub(crate) about: &'static str,
    /// Offered below the limit on average: nearly everything should pass.
    pub(crate) below_limit: bool,
}

pub(crate) const TRACES: [Trace; 13] = [
    Trace {
        name: "Poisson 0.95 L",
        shape: Shape::Poisson { load: 0.95 },
        about: "exponential gaps of mean W/(0.95 L); {sources} sources × {windows} W, start uniform in 3 W",
        below_limit: true,
    },
    Trace {
        name: "Poisson 1.05 L",
        shape: Shape::Poisson { load: 1.05 },
        about: "the same at 1.05 L",
        below_limit: false,
    },
    Trace {
        name: "on/off 0.5 L",
        shape: Shape::OnOff { load: 0.5 },
        about: "on for 2–20 % of W (uniform) with exponential gaps at the rate 10 L/W, then off for an exponential time \
                of mean on·(10/0.5 − 1); {sources} sources × {windows} W, start uniform in 3 W",
        below_limit: true,
    },
    Trace {
        name: "on/off 0.9 L",
        shape: Shape::OnOff { load: 0.9 },
        about: "the same at 0.9 L",
        below_limit: true,
    },
    Trace {
        name: "on/off 1.5 L",
        shape: Shape::OnOff { load: 1.5 },
        about: "the same at 1.5 L",
        below_limit: false,
    },
    Trace {
        name: "log-normal population",
        shape: Shape::LogNormal,
        about: "{population} sources × {population_windows} W, mean rate 0.02 L·exp(1.6·N(0,1)) per W; even ones \
                Poisson, odd ones on/off (off at first with the probability of being off)",
        below_limit: false,
    },
    Trace {
        name: "Zipf population",
        shape: Shape::Zipf,
        about: "{population} sources × {population_windows} W, source i Poisson at max(0.3, 40 L/i) per W{zipf_cut}",
        below_limit: false,
    },
    Trace {
        name: "random bursts",
        shape: Shape::RandomBursts,
        about: "{burst_sources} sources, each 40 bursts at uniform times in 40 W, size uniform in 1…L, times uniform \
                over a span of W·u·u′",
        below_limit: false,
    },
    Trace {
        name: "end burst + probe",
        shape: Shape::EndBurst,
        about: "{phases} phases (100 µs apart) × {rounds} rounds of 3 W: L hits 100 µs apart from 20 ms before a window \
                boundary, and 4 L hits W/(2 L) apart from the boundary on",
        below_limit: false,
    },
    Trace {
        name: "one early, rest late, probe",
        shape: Shape::OneEarly,
        about: "1 hit 1 ms after the start of the window, L − 1 in the end burst, the same probe",
        below_limit: false,
    },
    Trace {
        name: "drip, burst, probe",
        shape: Shape::Drip,
        about: "16 hits W/16 apart from the start of the window (L/2 of them where L ≤ 16), the rest of L in the end \
                burst, the same probe",
        below_limit: false,
    },
    Trace {
        name: "fixed-window double",
        shape: Shape::Double,
        about: "L hits 10 µs apart from 20 ms before a boundary, L more from 10 ms after it, every 2 W × {doubles}",
        below_limit: false,
    },
    Trace {
        name: "attack on cells",
        shape: Shape::CellAttack,
        about: "made against our own default: L hits in 20 groups, W/20 apart, all but one hit of a group at its end (in \
                every other round: at its start), the same probe",
        below_limit: false,
    },
];

/// How much of each trace is run.
pub(crate) struct Scale {
    pub(crate) sources: u64,
    pub(crate) windows: u64,
    pub(crate) population: u64,
    pub(crate) population_windows: u64,
    pub(crate) burst_sources: u64,
    pub(crate) phases: u64,
    pub(crate) rounds: u64,
    pub(crate) doubles: u64,
    /// Rank of the first Zipf source and the step to the next: a short run meets the small ones, not the giants.
    pub(crate) zipf_first: u64,
    pub(crate) zipf_step: u64,
}

pub(crate) const FULL: Scale = Scale {
    sources: 10,
    windows: 400,
    population: 20_000,
    population_windows: 8,
    burst_sources: 400,
    phases: 10,
    rounds: 60,
    doubles: 100,
    zipf_first: 1,
    zipf_step: 1,
};

/// For the tests: the same kinds of traffic, seconds instead of minutes.
pub(crate) const QUICK: Scale = Scale {
    sources: 2,
    windows: 8,
    population: 60,
    population_windows: 8,
    burst_sources: 1,
    phases: 1,
    rounds: 4,
    doubles: 4,
    zipf_first: 10,
    zipf_step: 331,
};

impl Trace {
    pub(crate) fn is_population(&self) -> bool {
        matches!(self.shape, Shape::LogNormal | Shape::Zipf)
    }

    /// How many independent callers it has; each starts with an untouched state.
    pub(crate) fn sources(&self, scale: &Scale) -> u64 {
        match self.shape {
            Shape::Poisson { .. } | Shape::OnOff { .. } => scale.sources,
            Shape::LogNormal | Shape::Zipf => scale.population,
            Shape::RandomBursts => scale.burst_sources,
            Shape::EndBurst | Shape::OneEarly | Shape::Drip | Shape::CellAttack => scale.phases,
            Shape::Double => 1,
        }
    }

    /// The description with this run's counts in it.
    pub(crate) fn about(&self, scale: &Scale) -> String {
        let zipf_cut = match scale.zipf_step {
            1 => String::new(),
            step => format!(" (from rank {}, every {step}th)", scale.zipf_first),
        };
        self.about
            .replace("{sources}", &scale.sources.to_string())
            .replace("{windows}", &scale.windows.to_string())
            .replace("{population}", &thousands(scale.population))
            .replace("{population_windows}", &scale.population_windows.to_string())
            .replace("{burst_sources}", &scale.burst_sources.to_string())
            .replace("{phases}", &scale.phases.to_string())
            .replace("{rounds}", &scale.rounds.to_string())
            .replace("{doubles}", &scale.doubles.to_string())
            .replace("{zipf_cut}", &zipf_cut)
    }

    /// Arrival times of one source, in order, into `times_us`.
    pub(crate) fn fill(&self, scale: &Scale, seed: u64, limit: u64, source: u64, times_us: &mut Vec<u64>) {
        times_us.clear();
        let place = TRACES.iter().position(|trace| trace.shape == self.shape).unwrap_or_default();
        let random = &mut Random::stream(seed, &[place as u64, limit, source]);
        let per_window = limit as f64;
        match self.shape {
            Shape::Poisson { load } => poisson(random, load * per_window, scale.windows, times_us),
            Shape::OnOff { load } => on_off(random, load, limit, scale.windows, true, times_us),
            Shape::LogNormal => {
                let load = 0.02 * exp(1.6 * random.normal());
                match source % 2 {
                    0 => poisson(random, load * per_window, scale.population_windows, times_us),
                    _ => {
                        let starts_on = random.uniform() < load / ON_RATE;
                        on_off(random, load, limit, scale.population_windows, starts_on, times_us);
                    }
                }
            }
            Shape::Zipf => {
                let rank = (scale.zipf_first + source * scale.zipf_step) as f64;
                poisson(random, f64::max(0.3, 40.0 * per_window / rank), scale.population_windows, times_us);
            }
            Shape::RandomBursts => random_bursts(random, limit, times_us),
            Shape::EndBurst | Shape::OneEarly | Shape::Drip | Shape::CellAttack => {
                for round in 0..scale.rounds {
                    // Each round has a window to prepare in, then two for the probe.
                    let window_start_us = START_US + round * 3 * WINDOW_US + source * 100;
                    attack(self.shape, limit, round, window_start_us, times_us);
                }
            }
            Shape::Double => {
                for round in 0..scale.doubles {
                    let edge_us = START_US + (2 * round + 1) * WINDOW_US;
                    times_us.extend((0..limit).map(|n| edge_us - 20_000 + n * 10));
                    times_us.extend((0..limit).map(|n| edge_us + 10_000 + n * 10));
                }
            }
        }
        times_us.sort_unstable(); // Bursts overlap, and a long end burst runs into its probe.
    }
}

/// 200 requests in 2 s around a window's edge, then a probe: the picture that every algorithm's page shows.
pub(crate) fn edge_burst(limit: u64) -> Vec<u64> {
    let edge_us = START_US + WINDOW_US;
    let burst = (0..2 * limit).map(|n| edge_us - 1_000_000 + n * 1_000_000 / limit);
    let gap_us = WINDOW_US / (2 * limit);
    let probe = (0..4 * limit).map(|n| edge_us + 1_000_000 + (n + 1) * gap_us);
    burst.chain(probe).collect()
}

/// During an on-period a source sends this many limits per window.
const ON_RATE: f64 = 10.0;

fn at(us: f64) -> u64 {
    START_US + us as u64
}

fn poisson(random: &mut Random, per_window: f64, windows: u64, times_us: &mut Vec<u64>) {
    let window_us = WINDOW_US as f64;
    let start_us = random.uniform() * 3.0 * window_us;
    let mut now_us = start_us;
    loop {
        now_us += random.exponential(window_us / per_window);
        if now_us > start_us + windows as f64 * window_us {
            return;
        }
        times_us.push(at(now_us));
    }
}

fn on_off(
    random: &mut Random,
    load: f64,
    limit: u64,
    windows: u64,
    starts_on: bool,
    times_us: &mut Vec<u64>,
) {
    let window_us = WINDOW_US as f64;
    let start_us = random.uniform() * 3.0 * window_us;
    let end_us = start_us + windows as f64 * window_us;
    // A source whose mean exceeds the on-rate is simply always on, at its mean.
    let gap_us = window_us / (limit as f64 * f64::max(ON_RATE, load));
    let mut now_us = start_us;
    let mut on = starts_on;
    while now_us < end_us {
        let on_us = (0.02 + 0.18 * random.uniform()) * window_us;
        if on {
            let off_at_us = f64::min(now_us + on_us, end_us);
            loop {
                now_us += random.exponential(gap_us);
                if now_us > off_at_us {
                    break;
                }
                times_us.push(at(now_us));
            }
            now_us = off_at_us;
        }
        now_us += random.exponential(on_us * f64::max(0.0, ON_RATE / load - 1.0));
        on = true;
    }
}

fn random_bursts(random: &mut Random, limit: u64, times_us: &mut Vec<u64>) {
    let window_us = WINDOW_US as f64;
    for _ in 0..40 {
        let first_us = random.uniform() * 40.0 * window_us;
        let size = random.between(1, limit);
        let span_us = window_us * random.uniform() * random.uniform();
        times_us.extend((0..size).map(|_| at(first_us + random.uniform() * span_us)));
    }
}

/// One round: L hits placed to mislead, then a probe at twice the limit that takes whatever it is given.
fn attack(shape: Shape, limit: u64, round: u64, window_start_us: u64, times_us: &mut Vec<u64>) {
    let edge_us = window_start_us + WINDOW_US;
    let mut end_burst = |hits: u64| times_us.extend((0..hits).map(|n| edge_us - 20_000 + n * 100));
    match shape {
        Shape::OneEarly => {
            end_burst(limit - 1);
            times_us.push(window_start_us + 1_000);
        }
        Shape::Drip => {
            let drips = if limit > 16 { 16 } else { limit / 2 };
            end_burst(limit - drips);
            times_us.extend((0..drips).map(|n| window_start_us + n * WINDOW_US / drips));
        }
        Shape::CellAttack => {
            let late = round.is_multiple_of(2);
            let group = limit.div_ceil(CELLS);
            let span_us = WINDOW_US / CELLS;
            for hit in 0..limit {
                let (start_us, place) = (window_start_us + hit / group * span_us, hit % group);
                // The lone hit opens the group; the rest come 10 µs apart, just before the next group opens.
                let packed_us = place * 10;
                times_us.push(match (late, place) {
                    (true, 0) => start_us,
                    (true, _) => start_us + span_us - 2_000 + packed_us,
                    (false, place) if place + 1 == group => start_us + span_us - 1_000,
                    (false, _) => start_us + packed_us,
                });
            }
        }
        _ => end_burst(limit),
    }
    times_us.extend((0..4 * limit).map(|n| edge_us + n * WINDOW_US / (2 * limit)));
}

/// 20000 → "20 000".
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push('\u{202f}'); // A narrow space that never breaks the line.
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(shape: Shape, scale: &Scale, limit: u64, source: u64) -> Vec<u64> {
        let trace = TRACES.iter().find(|trace| trace.shape == shape).unwrap();
        let mut times_us = Vec::new();
        trace.fill(scale, 1, limit, source, &mut times_us);
        times_us
    }

    /// Where in its window, in microseconds, from the edge that ends the first window.
    fn from_edge(times_us: &[u64]) -> Vec<i64> {
        times_us.iter().map(|&us| us as i64 - (START_US + WINDOW_US) as i64).collect()
    }

    #[test]
    fn every_trace_is_ordered_repeatable_and_not_empty() {
        for trace in &TRACES {
            for limit in [10, 100] {
                let (mut a, mut b) = (Vec::new(), Vec::new());
                let total: usize = (0..trace.sources(&QUICK))
                    .map(|source| {
                        trace.fill(&QUICK, 5, limit, source, &mut a);
                        trace.fill(&QUICK, 5, limit, source, &mut b);
                        assert_eq!(a, b, "{}", trace.name);
                        assert!(a.is_sorted(), "{}", trace.name);
                        assert!(a.iter().all(|&us| us >= START_US), "{}", trace.name);
                        a.len()
                    })
                    .sum();
                assert!(total >= 80, "{} has {total}", trace.name);
            }
        }
    }

    #[test]
    fn seed_moves_random_traces_only() {
        for trace in &TRACES {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            trace.fill(&QUICK, 5, 100, 0, &mut a);
            trace.fill(&QUICK, 6, 100, 0, &mut b);
            use Shape::{CellAttack, Double, Drip, EndBurst, OneEarly};
            let attack = matches!(trace.shape, EndBurst | OneEarly | Drip | Double | CellAttack);
            assert_eq!(a == b, attack, "{}", trace.name);
        }
    }

    #[test]
    fn loads_are_as_named() {
        for (shape, load, slack) in [
            (Shape::Poisson { load: 0.95 }, 0.95, 0.02),
            (Shape::Poisson { load: 1.05 }, 1.05, 0.02),
            (Shape::OnOff { load: 0.5 }, 0.5, 0.05),
            (Shape::OnOff { load: 0.9 }, 0.9, 0.05),
            (Shape::OnOff { load: 1.5 }, 1.5, 0.05),
        ] {
            let hits: usize = (0..FULL.sources).map(|source| times(shape, &FULL, 100, source).len()).sum();
            let seen = hits as f64 / (FULL.sources * FULL.windows * 100) as f64;
            assert!((seen / load - 1.0).abs() < slack, "{shape:?}: {seen}");
        }
    }

    #[test]
    fn populations_have_the_mean_they_should() {
        let scale = Scale { population: 4000, ..FULL };
        let hits: usize = (0..4000).map(|source| times(Shape::LogNormal, &scale, 100, source).len()).sum();
        let seen = hits as f64 / (4000.0 * 8.0 * 100.0);
        let due = 0.02 * f64::exp(1.6 * 1.6 / 2.0);
        assert!((seen / due - 1.0).abs() < 0.2, "{seen} against {due}");

        let first = times(Shape::Zipf, &FULL, 100, 0).len() as f64;
        assert!((first / 32_000.0 - 1.0).abs() < 0.03, "{first}");
        let last: usize = (19_900..20_000).map(|source| times(Shape::Zipf, &FULL, 100, source).len()).sum();
        assert!((last as f64 / 240.0 - 1.0).abs() < 0.3, "{last}");
    }

    #[test]
    fn end_burst_by_hand() {
        let scale = Scale { rounds: 2, ..QUICK };
        let hits = from_edge(&times(Shape::EndBurst, &scale, 10, 3));
        assert_eq!(hits[..3], [-20_000 + 300, -19_900 + 300, -19_800 + 300]);
        assert_eq!(hits[9..13], [-19_100 + 300, 300, 3_000_300, 6_000_300]);
        assert_eq!(hits.len(), 2 * 50);
        assert_eq!(hits[50], 180_000_000 - 20_000 + 300);
    }

    #[test]
    fn drip_one_early_and_double_by_hand() {
        let scale = Scale { rounds: 1, doubles: 2, ..QUICK };
        let drip = from_edge(&times(Shape::Drip, &scale, 100, 0));
        assert_eq!(drip[..2], [-60_000_000, -56_250_000]);
        assert_eq!(drip[15..18], [-3_750_000, -20_000, -19_900]);
        assert_eq!((drip[99], drip[100]), (-20_000 + 8_300, 0));

        let early = from_edge(&times(Shape::OneEarly, &scale, 10, 0));
        assert_eq!(early[..3], [-59_999_000, -20_000, -19_900]);
        assert_eq!(early[10], 0);

        let double = from_edge(&times(Shape::Double, &scale, 10, 0));
        assert_eq!(
            (double[0], double[9], double[10], double[20]),
            (-20_000, -19_910, 10_000, 120_000_000 - 20_000)
        );
        assert_eq!(double.len(), 40);
    }

    #[test]
    fn attack_on_cells_puts_l_hits_before_the_edge_skewed_both_ways() {
        let scale = Scale { rounds: 2, ..QUICK };
        let hits = from_edge(&times(Shape::CellAttack, &scale, 100, 0));
        assert_eq!(hits.iter().filter(|&&us| us < 0).count(), 100);
        assert_eq!(hits[..6], [-60_000_000, -57_001_990, -57_001_980, -57_001_970, -57_001_960, -57_000_000]);
        let second: Vec<i64> = hits[500..506].iter().map(|us| us - 180_000_000).collect();
        assert_eq!(second, [-60_000_000, -59_999_990, -59_999_980, -59_999_970, -57_001_000, -57_000_000]);
    }

    #[test]
    fn edge_burst_by_hand() {
        let hits = from_edge(&edge_burst(100));
        assert_eq!(
            (hits[0], hits[1], hits[100], hits[199], hits[200]),
            (-1_000_000, -990_000, 0, 990_000, 1_300_000)
        );
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1\u{202f}234\u{202f}567");
    }
}
