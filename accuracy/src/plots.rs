//! The figures: what an algorithm believes, what is true, and the limit. Start at [`figures`].

use crate::exact::ExactLog;
use crate::limiter::{
    Algorithm, CELL_LOG, CELL_LOG_STRICT, FIXED_WINDOW, Limiter, SLIDING_LOG, SUB_WINDOW_10, TOKEN_BUCKET,
    TWO_WINDOW,
};
use crate::svg::{
    Canvas, FAINT, Font, GRID, INK, Named, Point, Rect, Stroke, label_lines, simplified, wrapped,
};
use crate::trace::{QUICK, START_US, Scale, Shape, TRACES, WINDOW_US, edge_burst};

/// A finished drawing.
pub(crate) struct Figure {
    /// Of its file, without the ending.
    pub(crate) name: String,
    pub(crate) title: String,
    /// Is it shown in the report, or on another page?
    pub(crate) in_report: bool,
    pub(crate) svg: String,
}

pub(crate) fn figures() -> Result<Vec<Figure>, String> {
    let mut figures = attacks()?;
    figures.push(attack_on_cells()?);
    figures.extend(portraits()?);
    Ok(figures)
}

const TRUTH: Stroke = Stroke { colour: "#1f2933", width: 2.6, dashes: "" };
const ESTIMATE: Stroke = Stroke { colour: "#1769c2", width: 2.0, dashes: "5 3.5" };
const LIMIT: Stroke = Stroke { colour: "#c2410c", width: 1.6, dashes: "" };
const OVER: &str = "#fbd0c0";
const WITHIN: &str = "#d7f0dd";
const GOOD: &str = "#18733a";
const BAD: &str = "#b42318";
const THIN: Stroke = Stroke { colour: GRID, width: 1.0, dashes: "" };
const EDGE: Stroke = Stroke { colour: "#9aa5b1", width: 1.0, dashes: "1.5 3" };

/// One limiter watched over time, in seconds from the window's edge that the attack aims at.
struct Watched {
    samples: Vec<Sample>,
    peak: u64,
}

struct Sample {
    at_s: f64,
    truth: f64,
    estimate: f64,
}

/// Feeds a trace and looks at every decision and at every eighth of a second in between.
fn watch(algorithm: &Algorithm, limit: u64, times_us: &[u64], span_s: (f64, f64)) -> Result<Watched, String> {
    const LOOK_US: u64 = 125_000;
    let edge_us = START_US + WINDOW_US;
    let us = |seconds: f64| edge_us.saturating_add_signed((seconds * 1e6) as i64);
    let mut limiter = algorithm.shipped(limit)?;
    let mut log = ExactLog::new(WINDOW_US);
    let (mut samples, mut peak) = (Vec::new(), 0);
    let mut look_us = us(span_s.0);
    let hits = times_us.iter().copied().take_while(|&hit_us| hit_us <= us(span_s.1)).map(Some);
    for hit_us in hits.chain([None]) {
        let mut sample = |now_us: u64, truth: u64, estimate: u64| {
            let at_s = (now_us as f64 - edge_us as f64) / 1e6;
            samples.push(Sample { at_s, truth: truth as f64, estimate: estimate as f64 });
        };
        while look_us < hit_us.unwrap_or(us(span_s.1) + 1) {
            sample(look_us, log.count(look_us), limiter.used(look_us));
            look_us += LOOK_US;
        }
        if let Some(now_us) = hit_us {
            let hit = limiter.hit(now_us);
            if hit.admitted {
                log.admit(now_us);
            }
            let truth = log.count(now_us);
            peak = peak.max(truth);
            if now_us >= us(span_s.0) {
                sample(now_us, truth, hit.estimate);
            }
        }
    }
    Ok(Watched { samples, peak })
}

/// Where the numbers of one panel land on the canvas.
struct Axes {
    area: Rect,
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn at(&self, x: f64, y: f64) -> Point {
        Point {
            x: self.area.left + (x - self.x.0) / (self.x.1 - self.x.0) * self.area.width,
            y: self.area.bottom() - (y - self.y.0) / (self.y.1 - self.y.0) * self.area.height,
        }
    }

    fn line(&self, watched: &Watched, value: impl Fn(&Sample) -> f64) -> Vec<Point> {
        let points: Vec<Point> =
            watched.samples.iter().map(|sample| self.at(sample.at_s, value(sample))).collect();
        simplified(&points)
    }

    /// Ticks, grid, the edges of aligned windows and what the axes measure.
    fn draw(&self, canvas: &mut Canvas, y_ticks: &[f64], y_unit: &str) {
        let small = Font::plain(11.5, FAINT);
        for &tick in y_ticks {
            let (left, right) = (self.at(self.x.0, tick), self.at(self.x.1, tick));
            canvas.line(&[left, right], THIN);
            let name = number(tick) + y_unit;
            canvas.text(Point { x: left.x - 5.0, y: left.y + 4.0 }, small.anchored("end"), &name);
        }
        let mut tick_s = (self.x.0 / 60.0).ceil() * 60.0;
        while tick_s <= self.x.1 {
            let (bottom, top) = (self.at(tick_s, self.y.0), self.at(tick_s, self.y.1));
            canvas.line(&[bottom, top], EDGE);
            canvas.text(Point { x: bottom.x, y: bottom.y + 15.0 }, small.anchored("middle"), &number(tick_s));
            tick_s += 60.0;
        }
        let middle = Point { x: self.area.left + self.area.width / 2.0, y: self.area.bottom() + 32.0 };
        canvas.text(middle, small.anchored("middle"), "seconds (dotted: edges of aligned minutes)");
    }
}

/// A whole number with a true minus, and never "-0".
fn number(value: f64) -> String {
    format!("{}", value as i64).replace('-', "−")
}

/// True count, estimate and limit of one algorithm.
fn counts_panel(canvas: &mut Canvas, axes: &Axes, limit: u64, watched: &Watched, estimate_name: &str) {
    let limit = limit as f64;
    let truth = axes.line(watched, |sample| sample.truth);
    let estimate = axes.line(watched, |sample| sample.estimate);
    let line = [axes.at(axes.x.0, limit), axes.at(axes.x.1, limit)];

    let mut over = axes.line(watched, |sample| sample.truth.max(limit));
    if watched.peak as f64 > limit {
        over.extend([line[1], line[0]]);
        canvas.area(&over, OVER);
    }
    axes.draw(canvas, &[0.0, 50.0, 100.0, 150.0, 200.0], "");
    canvas.line(&line, LIMIT);
    canvas.line(&truth, TRUTH);
    canvas.line(&estimate, ESTIMATE);
    let highest = watched.samples.iter().max_by(|a, b| a.truth.total_cmp(&b.truth));
    let off = |sample: &Sample| (sample.estimate - sample.truth).abs();
    let farthest = watched.samples.iter().max_by(|a, b| off(a).total_cmp(&off(b)));
    let (Some(highest), Some(farthest)) = (highest, farthest) else { return };
    let limit_name = format!("limit {limit}");
    let limit_line = Named { name: &limit_name, colour: LIMIT.colour, points: &line, best_at: line[1] };
    let truth_at = axes.at(highest.at_s, highest.truth);
    if off(farthest) * 20.0 <= limit {
        let both = Named {
            name: "true count and estimate",
            colour: TRUTH.colour,
            points: &truth,
            best_at: truth_at,
        };
        label_lines(canvas, axes.area, 12.0, &[both, limit_line]);
        return;
    }
    let truth_line = Named { name: "true count", colour: TRUTH.colour, points: &truth, best_at: truth_at };
    let estimate_line = Named {
        name: estimate_name,
        colour: ESTIMATE.colour,
        points: &estimate,
        best_at: axes.at(farthest.at_s, farthest.estimate),
    };
    label_lines(canvas, axes.area, 12.0, &[truth_line, estimate_line, limit_line]);
}

fn peak_words(limit: u64, peak: u64) -> (String, &'static str) {
    let part = peak as f64 / limit as f64;
    (format!("up to {peak} in 60 s: {part:.2} × the limit"), if part <= 1.05 { GOOD } else { BAD })
}

const WIDE: f64 = 900.0;

/// Title and sentence; says where the panels may begin.
fn head(canvas: &mut Canvas, width: f64, title: &str, sentence: &str) -> f64 {
    canvas.text(Point { x: 16.0, y: 28.0 }, Font::plain(17.0, INK).bold(), title);
    let mut y = 30.0;
    for line in wrapped(sentence, 13.0, width - 20.0) {
        y += 18.0;
        canvas.text(Point { x: 16.0, y }, Font::plain(13.0, INK), &line);
    }
    y
}

/// The three attacks that tell the algorithms apart, three algorithms side by side.
fn attacks() -> Result<Vec<Figure>, String> {
    const LIMIT_UNITS: u64 = 100;
    let shown = [
        (
            "end-burst",
            Shape::EndBurst,
            "A burst just before the window's edge, then a steady probe",
            "100 requests come 20 ms before the edge at 0 s, then 200 a minute.",
            (-20.0, 150.0),
        ),
        (
            "drip-burst",
            Shape::Drip,
            "A drip, a burst just before the window's edge, then a steady probe",
            "16 requests are spread over a minute, 84 come 20 ms before the edge at 0 s, then 200 a minute.",
            (-64.0, 150.0),
        ),
        (
            "fixed-window-double",
            Shape::Double,
            "Twice the limit within 40 ms, around a window's edge",
            "100 requests come 20 ms before the edge at 0 s, 100 more 10 ms after it, and again two minutes later.",
            (-20.0, 150.0),
        ),
    ];
    let panels = [
        (FIXED_WINDOW, "Fixed window"),
        (TWO_WINDOW, "Two-window counter"),
        (CELL_LOG, "Cell log (our default)"),
    ];
    let scale = Scale { rounds: 2, doubles: 2, ..QUICK };
    let mut figures = Vec::new();
    for (name, shape, title, story, span_s) in shown {
        let times_us = times(shape, &scale, LIMIT_UNITS);
        let watched = panels
            .iter()
            .map(|(algorithm, _)| watch(algorithm, LIMIT_UNITS, &times_us, span_s))
            .collect::<Result<Vec<Watched>, String>>()?;
        let sentence = format!(
            "{story} The limit is 100 a minute. The fixed window lets {} through within one minute, the two-window counter {}, \
             the cell log {}.",
            watched[0].peak, watched[1].peak, watched[2].peak
        );
        let mut canvas = Canvas::new(WIDE, 388.0);
        let top = head(&mut canvas, WIDE, title, &sentence) + 68.0;
        canvas.text_upwards(
            Point { x: 18.0, y: top + 100.0 },
            Font::plain(12.0, FAINT).anchored("middle"),
            "requests in the last 60 s",
        );
        for (index, ((_, heading), watched)) in panels.iter().zip(&watched).enumerate() {
            let area = Rect { left: 56.0 + index as f64 * 285.0, top, width: 246.0, height: 200.0 };
            let (words, colour) = peak_words(LIMIT_UNITS, watched.peak);
            canvas.text(Point { x: area.left, y: top - 29.0 }, Font::plain(14.0, INK).bold(), heading);
            canvas.text(Point { x: area.left, y: top - 11.0 }, Font::plain(12.5, colour).bold(), &words);
            let axes = Axes { area, x: span_s, y: (0.0, 215.0) };
            counts_panel(&mut canvas, &axes, LIMIT_UNITS, watched, "estimate");
        }
        figures.push(Figure {
            name: name.into(),
            title: title.into(),
            in_report: true,
            svg: canvas.finish(title, &sentence),
        });
    }
    Ok(figures)
}

/// The worst that can be done to our own default: how far off its estimate is, moment by moment.
fn attack_on_cells() -> Result<Figure, String> {
    const LIMIT_UNITS: u64 = 1_000;
    const SPAN_S: (f64, f64) = (-60.0, 360.0);
    let panels = [
        (CELL_LOG, "Cell log (our default)", (-5.0, 5.0)),
        (CELL_LOG_STRICT, "Cell log, strict", (0.0, 5.0)),
    ];
    let times_us = times(Shape::CellAttack, &Scale { rounds: 2, ..QUICK }, LIMIT_UNITS);
    let mut watched = Vec::new();
    let mut worst = Vec::new();
    let off = |sample: &Sample| (sample.estimate - sample.truth) * 100.0 / LIMIT_UNITS as f64;
    for (algorithm, ..) in &panels {
        let seen = watch(algorithm, LIMIT_UNITS, &times_us, SPAN_S)?;
        let range = seen
            .samples
            .iter()
            .map(off)
            .fold((0.0, 0.0), |(low, high), off| (f64::min(low, off), f64::max(high, off)));
        watched.push(seen);
        worst.push(range);
    }
    let title = "Never off by more than 5 % of the limit, even against an attack made for it";
    let sentence = format!(
        "1000 requests are packed into cells so that the estimate errs as far as it can: at first it is too low, in the second round \
         (after 180 s) too high. It stays within {:.1} % and +{:.1} % of the limit of 1000 a minute; the strict form is never below the \
         truth. The green band is what we promise.",
        worst[0].0, worst[0].1
    )
    .replace('-', "−");
    let mut canvas = Canvas::new(WIDE, 388.0);
    let top = head(&mut canvas, WIDE, title, &sentence) + 52.0;
    canvas.text_upwards(
        Point { x: 18.0, y: top + 95.0 },
        Font::plain(12.0, FAINT).anchored("middle"),
        "estimate − truth, % of limit",
    );
    for (index, ((_, heading, promised), watched)) in panels.iter().zip(&watched).enumerate() {
        let area = Rect { left: 66.0 + index as f64 * 430.0, top, width: 385.0, height: 190.0 };
        let axes = Axes { area, x: SPAN_S, y: (-8.0, 8.0) };
        canvas.text(Point { x: area.left, y: top - 12.0 }, Font::plain(14.0, INK).bold(), heading);
        let corners =
            [(SPAN_S.0, promised.0), (SPAN_S.1, promised.0), (SPAN_S.1, promised.1), (SPAN_S.0, promised.1)];
        canvas.area(&corners.map(|(x, y)| axes.at(x, y)), WITHIN);
        axes.draw(&mut canvas, &[-5.0, 0.0, 5.0], " %");
        let line = axes.line(watched, off);
        canvas.line(&line, Stroke { width: 1.4, dashes: "", ..ESTIMATE });
        label_lines(
            &mut canvas,
            area,
            12.0,
            &[Named {
                name: "error of the estimate",
                colour: ESTIMATE.colour,
                points: &line,
                best_at: axes.at(120.0, 0.0),
            }],
        );
    }
    Ok(Figure {
        name: "attack-on-cells".into(),
        title: title.into(),
        in_report: true,
        svg: canvas.finish(title, &sentence),
    })
}

/// One small picture per algorithm, all of the same traffic.
fn portraits() -> Result<Vec<Figure>, String> {
    const LIMIT_UNITS: u64 = 100;
    const SPAN_S: (f64, f64) = (-20.0, 130.0);
    const WIDTH: f64 = 480.0;
    let shown = [
        (
            FIXED_WINDOW,
            "fixed_window",
            "Fixed window",
            "estimate",
            "The count starts anew at the edge, so 100 more pass at once.",
        ),
        (
            SLIDING_LOG,
            "sliding_log",
            "Sliding log",
            "estimate",
            "Every admission is remembered, so the limit is kept exactly.",
        ),
        (
            TWO_WINDOW,
            "sliding_window_counter",
            "Two-window counter",
            "estimate",
            "It believes that the burst fades evenly, and lets the probe in far too early.",
        ),
        (
            SUB_WINDOW_10,
            "sub_window",
            "Sub-windows (k = 10)",
            "estimate",
            "Only the oldest tenth of the window is guessed, so it errs for a tenth of the time.",
        ),
        (
            TOKEN_BUCKET,
            "token_bucket",
            "Token bucket (burst 100)",
            "level of the bucket",
            "A full burst, and 100 a minute more as it leaks: a contract of its own, not a window.",
        ),
        (
            CELL_LOG,
            "sliding_window",
            "Cell log (our default)",
            "estimate",
            "Only one cell, at most 5 % of the limit, is ever guessed.",
        ),
        (
            CELL_LOG_STRICT,
            "sliding_window_strict",
            "Cell log, strict",
            "estimate",
            "The one cell in doubt counts in full, so it is never over the limit.",
        ),
    ];
    let times_us = edge_burst(LIMIT_UNITS);
    let mut figures = Vec::new();
    for (algorithm, name, title, estimate_name, seen) in shown {
        let watched = watch(&algorithm, LIMIT_UNITS, &times_us, SPAN_S)?;
        let sentence = format!(
            "200 requests in 2 s around the edge at 0 s, then 200 a minute; the limit is 100 a minute. {seen}"
        );
        let mut canvas = Canvas::new(WIDTH, 358.0);
        let top = head(&mut canvas, WIDTH, title, &sentence) + 36.0;
        let area = Rect { left: 58.0, top, width: WIDTH - 74.0, height: 190.0 };
        let (words, colour) = peak_words(LIMIT_UNITS, watched.peak);
        canvas.text(Point { x: 16.0, y: top - 14.0 }, Font::plain(12.5, colour).bold(), &words);
        canvas.text_upwards(
            Point { x: 18.0, y: top + 95.0 },
            Font::plain(12.0, FAINT).anchored("middle"),
            "requests in the last 60 s",
        );
        let axes = Axes { area, x: SPAN_S, y: (0.0, 215.0) };
        counts_panel(&mut canvas, &axes, LIMIT_UNITS, &watched, estimate_name);
        figures.push(Figure {
            name: name.into(),
            title: title.into(),
            in_report: false,
            svg: canvas.finish(title, &format!("{sentence} {words}")),
        });
    }
    Ok(figures)
}

fn times(shape: Shape, scale: &Scale, limit: u64) -> Vec<u64> {
    let mut times_us = Vec::new();
    if let Some(trace) = TRACES.iter().find(|trace| trace.shape == shape) {
        trace.fill(scale, 0, limit, 0, &mut times_us);
    }
    times_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watching_sees_every_decision_and_the_time_between() {
        let edge_us = START_US + WINDOW_US;
        let watched = watch(&SLIDING_LOG, 2, &[edge_us, edge_us + 1, edge_us + 2], (-1.0, 61.0)).unwrap();
        assert_eq!(watched.peak, 2);
        let truth_at = |at_s: f64| watched.samples.iter().rfind(|sample| sample.at_s <= at_s).unwrap().truth;
        assert_eq!([-0.5, 0.5, 59.9, 60.5].map(truth_at), [0.0, 2.0, 2.0, 0.0]);
    }

    #[test]
    fn figures_are_plain_and_named_once() {
        let figures = figures().unwrap();
        assert_eq!(figures.len(), 3 + 1 + 7);
        for figure in &figures {
            assert!(figure.svg.starts_with("<svg ") && figure.svg.ends_with("</svg>\n"), "{}", figure.name);
            assert!(!figure.svg.contains("script") && !figure.svg.contains("NaN"), "{}", figure.name);
            assert!(
                figure.svg.contains("true count") || figure.svg.contains("error of the estimate"),
                "{}",
                figure.name
            );
            assert_eq!(figures.iter().filter(|other| other.name == figure.name).count(), 1);
        }
    }
}
