//! An explanation for a terminal: the answer, the request, the limit that decides, the others, and how the rules were found.

use tidegate_config::{escaped, quoted};

use super::words::{list, places, span};
use super::{ExplainedCounter, ExplainedDescriptor, ExplainedLimit, ExplainedState, Explanation};

/// No line is longer.
const COLUMNS: usize = 100;
/// How many limits and descriptors are told; as JSON, all are.
const LIMITS_SHOWN: usize = 32;
const DESCRIPTORS_SHOWN: usize = 16;
/// How much is told in one go.
const CHARS_SHOWN: usize = 1_000;
/// Where what is said about a limit begins.
const FACTS: usize = 14;

impl Explanation {
    /// As plain text, at most 100 columns wide.
    pub fn render(&self) -> String {
        let mut page = Page::default();
        let word = if self.admitted { "ADMITTED" } else { "REFUSED" };
        page.line(0, 2, &format!("{word}: {}", self.why));
        self.render_request(&mut page);
        let decides = self.decided_by.and_then(|at| self.limits.get(at));
        if let Some(decides) = decides {
            page.heading(if self.admitted { "tightest limit" } else { "decided by" });
            self.render_limit(decides, &mut page);
        }
        let is_other =
            |limit: &&ExplainedLimit| !decides.is_some_and(|decides| std::ptr::eq(decides, *limit));
        let others: Vec<&ExplainedLimit> = self.limits.iter().filter(is_other).collect();
        if !others.is_empty() {
            page.heading(if decides.is_some() { "other limits" } else { "limits" });
            page.some(&others, LIMITS_SHOWN, |page, limit| self.render_limit(limit, page));
        }
        if self.domain.passed_over.is_none() && !self.descriptors.is_empty() {
            page.heading("how the rules were found");
            let numbers: Vec<usize> = (0..self.descriptors.len()).collect();
            page.some(&numbers, DESCRIPTORS_SHOWN, |page, at| self.render_walk(*at, page));
        }
        page.text
    }

    fn render_request(&self, page: &mut Page) {
        page.heading("request");
        let counts = match (&self.domain.passed_over, self.domain.matching.as_deref()) {
            (Some(_), _) => String::new(),
            (None, Some("leaf")) => {
                ", where the limits at a descriptor's last entry count (`match: leaf`)".into()
            }
            (None, Some("path")) => ", where all limits on a descriptor's way count (`match: path`)".into(),
            _ => String::new(),
        };
        page.line(2, 4, &format!("domain {}{counts}", quoted(&self.domain.name)));
        let numbers: Vec<usize> = (0..self.descriptors.len()).collect();
        page.some(&numbers, DESCRIPTORS_SHOWN, |page, at| {
            page.line(2, 4, &format!("{}. {}", at + 1, described(&self.descriptors[*at])));
        });
    }

    fn render_limit(&self, limit: &ExplainedLimit, page: &mut Page) {
        let tier = limit.tier.as_ref().map(|tier| format!(" for tier {}", quoted(tier)));
        let what = limit.limit.as_deref().unwrap_or("no limit");
        let written = limit.written.as_ref().map(|written| format!(", {written}"));
        let (tier, written) = (tier.unwrap_or_default(), written.unwrap_or_default());
        page.line(2, 4, &format!("{}{tier}: {what}{written}", limit.name));
        match &limit.counter {
            Some(counter) => self.render_counter(limit, counter, page),
            None => page.fact("counts", &format!("no: {}", limit.says)),
        }
        let mut by: Vec<String> = limit.found_by.iter().map(|at| format!("descriptor {}", at + 1)).collect();
        if limit.always {
            by.push("every request of its domain (`always: true`)".to_owned());
        }
        page.fact("found by", &list(&by));
        if let Some(rule) = &limit.rule {
            page.fact("rule", rule);
        }
        if let Some(counter) = &limit.counter {
            let forgotten =
                if counter.before.stored { "" } else { " (not stored: never used, or done with)" };
            page.fact("counter", &format!("{}{forgotten}", counter.key));
        }
    }

    fn render_counter(&self, limit: &ExplainedLimit, counter: &ExplainedCounter, page: &mut Page) {
        page.fact("verdict", &limit.says);
        if let Some(says) = &counter.role_says {
            page.fact("role", says);
        }
        match (counter.admitted, counter.retry_after_ms) {
            (true, _) => {}
            (false, None) => page.fact("passes", "never: no wait cures it"),
            (false, Some(wait)) if places(limit) => {
                page.fact("passes", &format!("in {} at the latest, when places expire", span(wait)));
            }
            (false, Some(wait)) => {
                page.fact("passes", &format!("in {}, if nothing else is charged", span(wait)))
            }
        }
        page.fact("state", &self.state(limit, counter));
        if counter.admitted && counter.reset_ms > 0 {
            page.fact("reset", &format!("in {}", span(counter.reset_ms)));
        }
        page.fact("bound", &format!("{} (mode `{}`)", counter.bound.says, counter.mode));
    }

    /// What the counter holds, and what the request would make of it.
    fn state(&self, limit: &ExplainedLimit, counter: &ExplainedCounter) -> String {
        let (used, left) = if places(limit) { ("taken", "free") } else { ("used", "remaining") };
        let tell = |state: &ExplainedState| format!("{} {used}, {} {left}", state.used, state.remaining);
        let before = tell(&counter.before);
        if counter.charged == 0 {
            let why = match (counter.cost, self.admitted, counter.admitted) {
                (0, ..) => "",
                (_, false, _) => ": a refused request charges nothing",
                (_, true, false) => ": what does not fit is not charged",
                (_, true, true) => "",
            };
            return format!("{before}; unchanged{why}");
        }
        let always = if counter.charged > 0 && !self.admitted { ": it is charged always" } else { "" };
        let forgiven = match counter.forgiven {
            0 => String::new(),
            units => format!(", and {units} more are forgiven"),
        };
        format!("{before}; then {}{always}{forgiven}", tell(&counter.after))
    }

    fn render_walk(&self, at: usize, page: &mut Page) {
        let Some(descriptor) = self.descriptors.get(at) else { return };
        page.line(2, 4, &format!("descriptor {}", at + 1));
        let says = descriptor.steps.iter().map(|step| &step.says).chain(&descriptor.notes);
        says.for_each(|says| page.line(4, 6, says));
        if descriptor.entries.is_empty() {
            page.line(4, 6, "it has no entries");
        }
    }
}

/// A descriptor on a line.
fn described(descriptor: &ExplainedDescriptor) -> String {
    let entries = descriptor.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value));
    let cost = match descriptor.cost {
        0 => "0, a peek".to_owned(),
        cost if cost < 0 => format!("{cost}, which gives back"),
        cost => cost.to_string(),
    };
    let mut text = format!("{}; cost {cost}", entries.collect::<Vec<_>>().join(", "));
    if let Some(limit) = &descriptor.limit {
        text += &format!("; with a limit of its own, {limit}");
    }
    if let Some(tier) = &descriptor.tier {
        text += &format!("; tier {tier}");
    }
    text
}

/// Text that grows by lines.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn heading(&mut self, heading: &str) {
        self.text += &format!("\n{heading}\n");
    }

    /// Something about a limit.
    fn fact(&mut self, name: &str, text: &str) {
        let width = FACTS - 4;
        self.line(4, FACTS, &format!("{name:<width$}{text}"));
    }

    /// The first few, and how many there are besides.
    fn some<T>(&mut self, all: &[T], most: usize, tell: impl Fn(&mut Self, &T)) {
        all.iter().take(most).for_each(|one| tell(self, one));
        if all.len() > most {
            self.line(2, 2, &format!("and {} more, told as JSON", all.len() - most));
        }
    }

    /// A line, and as many more, further in, as it takes. Nothing in it is obeyed by a terminal, wherever it came from.
    fn line(&mut self, indent: usize, hang: usize, text: &str) {
        let mut cut: String = escaped(text).chars().take(CHARS_SHOWN).collect();
        if text.chars().nth(CHARS_SHOWN).is_some() {
            cut.push('…');
        }
        let (mut line, mut column) = (" ".repeat(indent), indent);
        let mut is_start = true;
        for word in cut.split(' ') {
            let mut letters: Vec<char> = word.chars().collect();
            if !is_start && column + 1 + letters.len() > COLUMNS {
                self.text += &format!("{}\n", line.trim_end());
                (line, column, is_start) = (" ".repeat(hang), hang, true);
            }
            if !is_start {
                line.push(' ');
                column += 1;
            }
            while column + letters.len() > COLUMNS {
                let rest = letters.split_off(COLUMNS - column);
                line.extend(letters);
                self.text += &format!("{line}\n");
                (line, column, letters) = (" ".repeat(hang), hang, rest);
            }
            column += letters.len();
            line.extend(letters);
            is_start = false;
        }
        self.text += &format!("{}\n", line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_where_there_are_none_anywhere() {
        let long = "x".repeat(150);
        for (text, expected) in [
            ("a b", vec![2 + 3]),
            ("", vec![0]),
            (long.as_str(), vec![100, 4 + 52]),
            (&format!("a {long}"), vec![2 + 1, 100, 4 + 54]),
            (&"word ".repeat(40), vec![2 + 19 * 5 - 1, 4 + 19 * 5 - 1, 4 + 2 * 5 - 1]),
            (&"y".repeat(5_000), [vec![100], vec![100; 9], vec![4 + 39]].concat()),
        ] {
            let mut page = Page::default();
            page.line(2, 4, text);
            let columns: Vec<usize> = page.text.lines().map(|line| line.chars().count()).collect();
            assert_eq!(columns, expected, "{}", page.text);
        }
    }
}
