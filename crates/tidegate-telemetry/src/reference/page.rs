//! Names and values as lines: `/stats` of the reference server, as its documents promise it.

use std::fmt::Write;

use super::stats::ReferenceStats;
use super::sums::ReferenceGauges;

impl ReferenceStats {
    /// The page: a line `name: value` for each number, sorted, as of now. Durations are not on it.
    pub fn page(&self, gauges: &ReferenceGauges) -> String {
        let mut lines: Vec<String> = Vec::new();
        for (cell, value) in self.sums(gauges).cells() {
            let mut line = String::new();
            cell.write_name(&mut line);
            let _ = write!(line, "{}: {value}", self.tags.suffix); // A string takes whatever is written.
            lines.push(line);
        }
        lines.sort_unstable();
        lines.iter().flat_map(|line| [line, "\n"]).collect()
    }
}
