//! Enough SVG to draw lines over time, as text: no scripts, no fonts of its own, a light background in any theme.

use std::fmt::Write as _;

pub(crate) const INK: &str = "#1f2933";
pub(crate) const FAINT: &str = "#5b6670";
pub(crate) const GRID: &str = "#e3e7eb";
pub(crate) const PAPER: &str = "#ffffff";

const FONTS: &str =
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif";

/// Average width of a character ÷ its size in the widest of the usual fonts, plain and bold: what fits here fits everywhere.
const PLAIN: f64 = 0.58;
const BOLD: f64 = 0.64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rect {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Rect {
    pub(crate) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn holds(&self, point: Point) -> bool {
        (self.left..=self.right()).contains(&point.x) && (self.top..=self.bottom()).contains(&point.y)
    }

    fn meets(&self, other: &Self) -> bool {
        self.left < other.right()
            && other.left < self.right()
            && self.top < other.bottom()
            && other.top < self.bottom()
    }

    fn within(&self, other: &Self) -> bool {
        self.left >= other.left
            && self.right() <= other.right()
            && self.top >= other.top
            && self.bottom() <= other.bottom()
    }

    fn grown(&self, by: f64) -> Self {
        Self {
            left: self.left - by,
            top: self.top - by,
            width: self.width + 2.0 * by,
            height: self.height + 2.0 * by,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Stroke {
    pub(crate) colour: &'static str,
    pub(crate) width: f64,
    /// As SVG spells it; empty for a solid line.
    pub(crate) dashes: &'static str,
}

#[derive(Clone, Copy)]
pub(crate) struct Font {
    pub(crate) size: f64,
    pub(crate) colour: &'static str,
    pub(crate) bold: bool,
    /// `start`, `middle` or `end`.
    pub(crate) anchor: &'static str,
}

impl Font {
    pub(crate) const fn plain(size: f64, colour: &'static str) -> Self {
        Self { size, colour, bold: false, anchor: "start" }
    }

    pub(crate) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(crate) const fn anchored(self, anchor: &'static str) -> Self {
        Self { anchor, ..self }
    }
}

pub(crate) struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

impl Canvas {
    pub(crate) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    pub(crate) fn text(&mut self, at: Point, font: Font, words: &str) {
        self.words(at, font, words, "");
    }

    /// Text that reads upwards, for the title of a vertical axis.
    pub(crate) fn text_upwards(&mut self, at: Point, font: Font, words: &str) {
        let turn = format!(" transform=\"rotate(-90 {} {})\"", short(at.x), short(at.y));
        self.words(at, font, words, &turn);
    }

    /// Text over lines, with a rim of paper around the letters.
    pub(crate) fn label(&mut self, at: Point, font: Font, words: &str) {
        let rim = format!(
            " stroke=\"{PAPER}\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\""
        );
        self.words(at, font, words, &rim);
    }

    fn words(&mut self, at: Point, font: Font, words: &str, more: &str) {
        let Font { size, colour, bold, anchor } = font;
        let weight = if bold { " font-weight=\"600\"" } else { "" };
        let _ = writeln!(
            self.body,
            "<text x=\"{}\" y=\"{}\" font-size=\"{size}\" fill=\"{colour}\" text-anchor=\"{anchor}\"{weight}{more}>{}</text>",
            short(at.x),
            short(at.y),
            escaped(words)
        );
    }

    pub(crate) fn line(&mut self, points: &[Point], stroke: Stroke) {
        let Stroke { colour, width, dashes } = stroke;
        let dashes =
            if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"{dashes}/>",
            listed(points)
        );
    }

    pub(crate) fn area(&mut self, points: &[Point], colour: &str) {
        let _ = writeln!(self.body, "<polygon points=\"{}\" fill=\"{colour}\"/>", listed(points));
    }

    /// The file. `title` and `about` are what a screen reader says.
    pub(crate) fn finish(self, title: &str, about: &str) -> String {
        let (width, height) = (short(self.width), short(self.height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" font-family=\"{FONTS}\">\n<title>{}</title>\n<desc>{}</desc>\n\
             <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"{PAPER}\"/>\n{}</svg>\n",
            escaped(title),
            escaped(about),
            self.body
        )
    }
}

/// A line with a name, in the coordinates of the canvas.
pub(crate) struct Named<'a> {
    pub(crate) name: &'a str,
    pub(crate) colour: &'static str,
    pub(crate) points: &'a [Point],
    /// Where on the line the name says most.
    pub(crate) best_at: Point,
}

/// Where a name may be, seen from a point of its line: left edge in widths of the name, top edge in heights.
const PLACES: [(f64, f64); 8] = [
    (-0.5, -1.6),
    (-0.5, 0.6),
    (0.08, -0.5),
    (-1.08, -0.5),
    (0.06, -1.4),
    (0.06, 0.4),
    (-1.06, -1.4),
    (-1.06, 0.4),
];

/// Writes each line's name beside it: where it covers no line and no other name, where no other line is as near, and then as
/// near as can be to where the name says most.
pub(crate) fn label_lines(canvas: &mut Canvas, area: Rect, size: f64, lines: &[Named<'_>]) {
    let dense: Vec<Vec<Point>> = lines.iter().map(|line| filled_in(line.points)).collect();
    let inside =
        |place: Rect, points: &[Point]| points.iter().filter(|point| place.holds(**point)).count() as f64;
    let mut taken: Vec<Rect> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let width = line.name.chars().count() as f64 * size * BOLD;
        let mut best: Option<(f64, Rect)> = None;
        for point in dense[index].iter().filter(|point| area.holds(**point)) {
            for (dx, dy) in PLACES {
                let place =
                    Rect { left: point.x + dx * width, top: point.y + dy * size, width, height: size };
                if !place.within(&area.grown(-2.0)) || taken.iter().any(|other| place.grown(4.0).meets(other))
                {
                    continue;
                }
                let mut cost = 0.05 * distance(*point, line.best_at, line.best_at);
                for (other, points) in dense.iter().enumerate() {
                    cost += match other == index {
                        true => 10.0 * inside(place.grown(1.0), points),
                        false => {
                            10.0 * inside(place.grown(3.0), points) + 0.5 * inside(place.grown(9.0), points)
                        }
                    };
                }
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, place));
                }
            }
        }
        if let Some((_, place)) = best {
            let middle = Point { x: place.left + width / 2.0, y: place.bottom() - 0.15 * size };
            canvas.label(middle, Font::plain(size, line.colour).bold().anchored("middle"), line.name);
            taken.push(place);
        }
    }
}

/// The same line with a point at least every two units.
fn filled_in(points: &[Point]) -> Vec<Point> {
    let mut dense = Vec::new();
    for pair in points.windows(2) {
        let (dx, dy) = (pair[1].x - pair[0].x, pair[1].y - pair[0].y);
        let steps = (f64::max(dx.abs(), dy.abs()) / 2.0).ceil().max(1.0);
        let mut step = 0.0;
        while step < steps {
            dense.push(Point { x: pair[0].x + dx * step / steps, y: pair[0].y + dy * step / steps });
            step += 1.0;
        }
    }
    dense.extend(points.last());
    dense
}

/// The line without the points that nobody would miss (Douglas and Peucker).
pub(crate) fn simplified(points: &[Point]) -> Vec<Point> {
    const TOLERANCE: f64 = 0.15;
    let mut keep = vec![false; points.len()];
    let mut spans = vec![(0, points.len().saturating_sub(1))];
    while let Some((from, to)) = spans.pop() {
        if let Some(mark) = keep.get_mut(from) {
            *mark = true;
        }
        if let Some(mark) = keep.get_mut(to) {
            *mark = true;
        }
        let mut farthest = (TOLERANCE, None);
        for index in from + 1..to {
            let off = distance(points[index], points[from], points[to]);
            if off > farthest.0 {
                farthest = (off, Some(index));
            }
        }
        if let Some(index) = farthest.1 {
            spans.push((from, index));
            spans.push((index, to));
        }
    }
    points.iter().zip(keep).filter(|(_, keep)| *keep).map(|(point, _)| *point).collect()
}

/// From a point to the segment between two others.
fn distance(point: Point, from: Point, to: Point) -> f64 {
    let (dx, dy) = (to.x - from.x, to.y - from.y);
    let length = dx * dx + dy * dy;
    let along = match length {
        0.0 => 0.0,
        _ => (((point.x - from.x) * dx + (point.y - from.y) * dy) / length).clamp(0.0, 1.0),
    };
    let (x, y) = (point.x - from.x - along * dx, point.y - from.y - along * dy);
    (x * x + y * y).sqrt()
}

/// Breaks a sentence into lines that fit a width.
pub(crate) fn wrapped(words: &str, size: f64, width: f64) -> Vec<String> {
    let most = (width / (size * PLAIN)) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in words.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn listed(points: &[Point]) -> String {
    let each: Vec<String> =
        points.iter().map(|point| format!("{},{}", short(point.x), short(point.y))).collect();
    each.join(" ")
}

/// At most one decimal.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(list: &[(f64, f64)]) -> Vec<Point> {
        list.iter().map(|&(x, y)| Point { x, y }).collect()
    }

    #[test]
    fn simplifying_keeps_corners_and_drops_the_rest() {
        let line = points(&[(0.0, 0.0), (1.0, 0.1), (2.0, 0.0), (2.0, 9.0), (3.0, 9.0), (4.0, 9.0)]);
        assert_eq!(simplified(&line), points(&[(0.0, 0.0), (2.0, 0.0), (2.0, 9.0), (4.0, 9.0)]));
        assert_eq!(simplified(&line[..1]), line[..1]);
        assert_eq!(simplified(&[]), []);
    }

    #[test]
    fn lines_fit_the_width_and_lose_no_word() {
        let words = "one two three four five";
        let lines = wrapped(words, 10.0, 60.0);
        assert!(lines.iter().all(|line| line.len() <= 10), "{lines:?}");
        assert_eq!(lines.join(" "), words);
    }

    #[test]
    fn text_is_escaped_and_numbers_are_short() {
        assert_eq!(escaped("a < b & c"), "a &lt; b &amp; c");
        assert_eq!([1.0, 1.26, -0.5].map(short), ["1", "1.3", "-0.5"]);
    }

    #[test]
    fn names_avoid_lines_and_each_other() {
        let area = Rect { left: 0.0, top: 0.0, width: 200.0, height: 100.0 };
        let (upper, lower) = (points(&[(0.0, 40.0), (200.0, 40.0)]), points(&[(0.0, 60.0), (200.0, 60.0)]));
        let mut canvas = Canvas::new(200.0, 100.0);
        label_lines(
            &mut canvas,
            area,
            12.0,
            &[
                Named { name: "upper", colour: INK, points: &upper, best_at: upper[0] },
                Named { name: "lower", colour: INK, points: &lower, best_at: lower[0] },
            ],
        );
        let heights: Vec<f64> = canvas
            .body
            .split("y=\"")
            .skip(1)
            .map(|rest| rest[..rest.find('"').unwrap()].parse().unwrap())
            .collect();
        assert_eq!(heights.len(), 2);
        assert!(heights[0] < 40.0 && heights[1] > 60.0, "{heights:?}");
    }
}
