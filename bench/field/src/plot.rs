//! Pictures from the raw numbers: bars, written by hand. Pure, so that a test can make the published ones again.

use tidegate_bench_common::results::Counts;

use crate::figures::{closed_median, open_median, p99};
use crate::plan::{Pace, Press};
use crate::report::title;
use crate::results::Results;

const WIDTH: u32 = 860;
const LABEL_WIDTH: u32 = 250;
const BARS_WIDTH: u32 = 500;
const ROW: u32 = 26;
const HEAD: u32 = 48;

/// A bar.
struct Bar {
    label: String,
    value: f64,
    is_ours: bool,
}

/// Every picture, by the name of its file.
pub(crate) fn all(results: &Results) -> Vec<(String, String)> {
    let bars = |figure: &dyn Fn(&str) -> Option<f64>| -> Vec<Bar> {
        let bar = |word: &str| {
            let value = figure(word).filter(|value| *value > 0.0)?;
            Some(Bar { label: title(word), value, is_ours: word.starts_with("tidegate") })
        };
        results.peers.iter().filter_map(|row| bar(&row.peer)).collect()
    };
    let per_core =
        |word: &str| closed_median(results, word, Press::Full, Counts::per_cpu_s).map(|it| it / 1e3);
    let per_store = |word: &str| {
        let has_store = closed_median(results, word, Press::Full, |counts| counts.store_cpu_ns as f64)? > 0.0;
        let figure = closed_median(results, word, Press::Full, Counts::per_store_cpu_s)?;
        has_store.then_some(figure / 1e3)
    };
    let latency = |word: &str| open_median(results, word, Pace::Half, p99).map(|it| it / 1e3);
    let name = |what: &str| format!("{}-{what}.svg", results.extent.name());
    vec![
        (
            name("decisions"),
            picture(
                "Thousands of decisions in a second of the server's core, 256 calls in flight",
                &bars(&per_core),
            ),
        ),
        (
            name("redis"),
            picture(
                "Thousands of decisions in a second of Redis' core, 256 calls in flight",
                &bars(&per_store),
            ),
        ),
        (name("p99"), picture("p99 at half of its own saturation, µs", &bars(&latency))),
    ]
}

fn picture(heading: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let height = HEAD + ROW * bars.len() as u32 + 12;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"26\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
        escaped(heading)
    );
    for (at, bar) in bars.iter().enumerate() {
        let (y, length) = (HEAD + ROW * at as u32, (bar.value / most * f64::from(BARS_WIDTH)).max(1.0));
        let colour = if bar.is_ours { "#1f6feb" } else { "#9aa4b2" };
        let (label_x, value_x) = (LABEL_WIDTH - 8, f64::from(LABEL_WIDTH) + length + 6.0);
        let baseline = y + 15;
        text += &format!(
            "<text x=\"{label_x}\" y=\"{baseline}\" text-anchor=\"end\">{}</text>\n\
             <rect x=\"{LABEL_WIDTH}\" y=\"{y}\" width=\"{length:.1}\" height=\"20\" fill=\"{colour}\"/>\n\
             <text x=\"{value_x:.1}\" y=\"{baseline}\">{}</text>\n",
            escaped(&bar.label.replace('`', "")),
            number(bar.value)
        );
    }
    text + "</svg>\n"
}

fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_is_the_largest_and_ours_has_its_colour() {
        let bar = |label: &str, value, is_ours| Bar { label: label.into(), value, is_ours };
        let text = picture("a < b", &[bar("ours", 200.0, true), bar("`theirs`", 50.0, false)]);
        assert!(text.contains("a &lt; b"));
        assert!(text.contains("width=\"500.0\" height=\"20\" fill=\"#1f6feb\""), "{text}");
        assert!(text.contains("width=\"125.0\" height=\"20\" fill=\"#9aa4b2\""), "{text}");
        assert!(text.contains(">theirs<") && text.contains(">200<") && text.contains(">50.0<"), "{text}");
    }
}
