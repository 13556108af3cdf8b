//! Diagnostics as text, like the compiler's, and as JSON.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};

use crate::codes::Severity;
use crate::diagnostic::{Diagnostic, is_hostile, push_escaped};
use crate::report::Report;
use crate::source::{Sources, Span, floor, line_start};

/// With colours for a terminal, or without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// For files and pipes.
    Plain,
    /// For terminals.
    Coloured,
}

/// How much of a line is shown before and behind the place.
const BEFORE_CHARS: usize = 80;
const BEHIND_CHARS: usize = 60;
/// How much of a message is shown: it may quote a file.
const MESSAGE_CHARS_MAX: usize = 600;

impl Report {
    /// Everything that was kept, by place, and a line that counts.
    pub fn render(&self, sources: &Sources, style: Style) -> String {
        let mut text = String::new();
        for diagnostic in self.diagnostics() {
            text += &diagnostic.render(sources, style);
            text += "\n\n";
        }
        let (errors, warnings) = self.left_out();
        if errors + warnings > 0 {
            text += &format!("and more that are not shown: {}\n\n", counts(errors, warnings));
        }
        if !self.is_empty() {
            text += &format!("{}\n", counts(self.errors(), self.warnings()));
        }
        text
    }

    /// One object for each diagnostic that was kept, by place.
    pub fn json(&self, sources: &Sources) -> Vec<Value> {
        self.diagnostics().into_iter().map(|diagnostic| diagnostic.json(sources)).collect()
    }
}

/// `2 errors, 1 warning`.
fn counts(errors: usize, warnings: usize) -> String {
    let count = |count: usize, word: &str| match count {
        0 => None,
        1 => Some(format!("1 {word}")),
        _ => Some(format!("{count} {word}s")),
    };
    let parts: Vec<String> =
        [count(errors, "error"), count(warnings, "warning")].into_iter().flatten().collect();
    parts.join(", ")
}

impl Diagnostic {
    /// As the compiler would say it.
    pub fn render(&self, sources: &Sources, style: Style) -> String {
        let level = match self.severity() {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title = level.primary_title(clean(&self.message)).id(self.code.id());
        let mut group = Group::with_title(title);
        if let Some(at) = self.at {
            let (origin, snippet) = snippet(sources, at, AnnotationKind::Primary, &self.label);
            group = group.element(origin).elements(snippet);
        }
        for (at, note) in &self.notes {
            group = match at {
                Some(at) => {
                    let (origin, snippet) = snippet(sources, *at, AnnotationKind::Context, note);
                    group.element(origin).elements(snippet)
                }
                None => group.element(Level::NOTE.message(clean(note))),
            };
        }
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(clean(help)));
        }
        group =
            group.element(Level::NOTE.with_name("see").message(format!("docs/diagnostics.md#{}", self.code)));
        let renderer = match style {
            Style::Plain => Renderer::plain(),
            Style::Coloured => Renderer::styled(),
        };
        // A snippet whose origin was said apart is headed by an empty one.
        let text = renderer.decor_style(DecorStyle::Ascii).render(&[group]);
        let lines: Vec<&str> = text.lines().filter(|line| uncoloured(line).trim() != ":::").collect();
        lines.join("\n")
    }

    /// For machines.
    pub fn json(&self, sources: &Sources) -> Value {
        let place = |offset: fn(Span) -> u32| self.at.map(|at| sources.place(at.source, offset(at)));
        let (start, end) = (place(|at| at.start), place(|at| at.end));
        json!({
            "code": self.code.id(),
            "severity": self.severity().name(),
            "message": self.message,
            "file": self.at.map(|at| sources.name(at.source)),
            "line": start.map(|start| start.line),
            "column": start.map(|start| start.column),
            "end_line": end.map(|end| end.line),
            "end_column": end.map(|end| end.column),
            "label": self.label,
            "facts": self.facts().collect::<Vec<_>>(),
            "help": self.help,
            "reference": self.reference,
        })
    }
}

/// The line of a place, cut around it, with nothing in it that a terminal obeys. Of several lines, the first.
fn snippet(
    sources: &Sources,
    at: Span,
    kind: AnnotationKind,
    label: &str,
) -> (Origin<'static>, Option<Snippet<'static, Annotation<'static>>>) {
    let text = sources.text(at.source);
    let start = floor(text, at.start as usize);
    let end = floor(text, at.end as usize).max(start);
    let line_start = line_start(text, start);
    let line_end = text[start..].find(['\n', '\r']).map_or(text.len(), |newline| start + newline);
    let place = sources.place(at.source, at.start);
    let mut shown = String::new();
    let before = text[line_start..start].trim_start_matches('\u{feff}');
    let skipped = before.chars().count().saturating_sub(BEFORE_CHARS);
    if skipped > 0 {
        shown.push('…');
    }
    push_clean(&mut shown, before.chars().skip(skipped));
    let marked_start = shown.len();
    let marked = &text[start..end.min(line_end)];
    push_cut(&mut shown, marked);
    let marked_end = shown.len();
    if marked.chars().nth(BEHIND_CHARS).is_none() {
        push_cut(&mut shown, &text[end.min(line_end)..line_end]);
    }
    let annotation = kind.span(marked_start..marked_end).label(match label.is_empty() {
        true => None,
        false => Some(clean(label)),
    });
    // Said apart from the snippet: of a line that was cut, the library would count the columns that are left.
    let origin = Origin::path(clean(sources.name(at.source))).line(place.line).char_column(place.column);
    // Of an empty file there is nothing to show.
    let snippet =
        (!text.is_empty()).then(|| Snippet::source(shown).line_start(place.line).annotation(annotation));
    (origin, snippet)
}

/// A line without the sequences that colour it; all of them are the library's own.
fn uncoloured(line: &str) -> String {
    let mut pieces = line.split('\u{1b}');
    let first = pieces.next().unwrap_or("").to_string();
    first + &pieces.map(|piece| piece.split_once('m').map_or("", |(_, text)| text)).collect::<String>()
}

fn push_cut(out: &mut String, text: &str) {
    push_clean(out, text.chars().take(BEHIND_CHARS));
    if text.chars().nth(BEHIND_CHARS).is_some() {
        out.push('…');
    }
}

fn push_clean(out: &mut String, letters: impl Iterator<Item = char>) {
    for letter in letters {
        push_escaped(out, letter);
    }
}

/// A message on one line, with nothing in it that a terminal obeys.
fn clean(message: &str) -> String {
    let mut shown = String::new();
    for (count, letter) in message.chars().enumerate() {
        if count == MESSAGE_CHARS_MAX {
            shown.push('…');
            break;
        }
        match letter {
            '\n' | '\t' => shown.push(' '),
            letter if is_hostile(letter) => push_escaped(&mut shown, letter),
            letter => shown.push(letter),
        }
    }
    shown
}
