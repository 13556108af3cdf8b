//! The study: every algorithm on every trace at every limit. Start at [`Study::run`].

use crate::attempts::{Attempts, ESTIMATORS, count};
use crate::exact::{ExactLog, count_attempts, exact_admissions};
use crate::judge::{Requests, Tally, Terms, judge};
use crate::limiter::{ALGORITHMS, Limiter, Shipped};
use crate::trace::{FULL, QUICK, Scale, TRACES, Trace, WINDOW_US};

pub(crate) const LIMITS: [u64; 3] = [10, 100, 1_000];

pub(crate) struct Study {
    pub(crate) seed: u64,
    pub(crate) quick: bool,
    /// One per limit, as in [`LIMITS`].
    pub(crate) parts: Vec<Part>,
}

/// All there is to know at one limit.
pub(crate) struct Part {
    pub(crate) limit: u64,
    /// The largest state that each algorithm can ever need.
    pub(crate) bytes_max: Vec<u64>,
    /// One per trace, as in [`TRACES`].
    pub(crate) columns: Vec<Column>,
}

pub(crate) struct Column {
    /// One per algorithm, as in [`ALGORITHMS`].
    pub(crate) tallies: Vec<Tally>,
    /// One per estimator, as in [`ESTIMATORS`], where the trace is a population.
    pub(crate) attempts: Vec<Attempts>,
}

impl Study {
    pub(crate) fn run(seed: u64, quick: bool) -> Result<Self, String> {
        let scale = if quick { &QUICK } else { &FULL };
        let mut parts = Vec::new();
        for limit in LIMITS {
            let mut limiters = ALGORITHMS
                .iter()
                .map(|algorithm| algorithm.shipped(limit))
                .collect::<Result<Vec<Shipped>, String>>()?;
            let bytes_max = limiters.iter().map(Shipped::bytes_max).collect();
            let mut columns = Vec::new();
            for trace in &TRACES {
                columns.push(column(scale, seed, limit, trace, &mut limiters)?);
            }
            parts.push(Part { limit, bytes_max, columns });
        }
        Ok(Self { seed, quick, parts })
    }

    pub(crate) fn scale(&self) -> &'static Scale {
        if self.quick { &QUICK } else { &FULL }
    }

    /// Decisions that each algorithm made.
    pub(crate) fn decisions_each(&self) -> u64 {
        let columns = self.parts.iter().flat_map(|part| &part.columns);
        columns.filter_map(|column| column.tallies.first()).map(|tally| tally.requests).sum()
    }
}

impl Part {
    /// Everything that one algorithm did at this limit.
    pub(crate) fn sum(&self, algorithm: usize) -> Tally {
        let mut sum = Tally::default();
        for column in &self.columns {
            sum.add(&column.tallies[algorithm]);
        }
        sum
    }
}

fn column(
    scale: &Scale,
    seed: u64,
    limit: u64,
    trace: &Trace,
    limiters: &mut [Shipped],
) -> Result<Column, String> {
    let mut log = ExactLog::new(WINDOW_US);
    let (mut times_us, mut attempts_made) = (Vec::new(), Vec::new());
    let mut tallies = vec![Tally::default(); ALGORITHMS.len()];
    let mut attempts = vec![Attempts::default(); if trace.is_population() { ESTIMATORS.len() } else { 0 }];
    for source in 0..trace.sources(scale) {
        trace.fill(scale, seed, limit, source, &mut times_us);
        count_attempts(&mut log, &times_us, &mut attempts_made);
        let requests = Requests { times_us: &times_us, attempts: &attempts_made };
        let exact_admitted = exact_admissions(&mut log, limit, &times_us);
        for ((algorithm, limiter), sum) in ALGORITHMS.iter().zip(&mut *limiters).zip(&mut tallies) {
            let terms = Terms { limit, estimates_window: algorithm.estimates_window };
            let tally = judge(&terms, limiter as &mut dyn Limiter, &mut log, &requests);
            sum.add(&Tally { exact_admitted, ..tally });
        }
        if trace.is_population() {
            let peak = attempts_made.iter().copied().max().unwrap_or(0);
            for (estimator, sum) in ESTIMATORS.iter().zip(&mut attempts) {
                let mut limiter = estimator.limiter(limit, peak)?;
                sum.add(&count(limit, estimator.units, &mut limiter, &mut log, &times_us)?);
            }
        }
    }
    Ok(Column { tallies, attempts })
}
