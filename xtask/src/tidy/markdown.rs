//! Do the links of the Markdown files lead anywhere? Only those inside the repository: no test needs the network.

use std::collections::{BTreeMap, BTreeSet};

use super::{Complaint, Repository, numbered};

pub(super) fn dead_links(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (path, text) in repository.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (at, target) in links(text) {
            if let Err(trouble) = follow(&repository.files, path, &target) {
                complaints.push(format!("{path}:{at}: the link to `{target}` {trouble}"));
            }
        }
    }
    complaints
}

/// What stands under the first heading that contains these words, up to the next heading of its rank.
pub(super) fn section(text: &str, words: &str) -> Option<String> {
    let mut headings = headings(text).skip_while(|(_, _, title)| !title.to_lowercase().contains(words));
    let (start, rank, _) = headings.next()?;
    let end = headings.find(|(_, other, _)| *other <= rank).map_or(usize::MAX, |(end, ..)| end);
    let lines = numbered(text).filter(|(at, _)| (start..end).contains(at)).map(|(_, line)| line);
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// Every heading, with its line and its rank.
fn headings(text: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    prose(text).filter_map(|(at, line)| {
        let title = line.trim_start_matches('#');
        let rank = line.len() - title.len();
        ((1..=6).contains(&rank) && title.starts_with(' ')).then_some((at, rank, title.trim()))
    })
}

/// The numbered lines that are not inside a fenced block of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence = None;
    numbered(text).filter(move |(_, line)| {
        let mark = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, None) => return true,
            _ => (),
        }
        false
    })
}

/// Where the links of a text lead, with the line of each: `[a](b)`, `[a]: b`, `src="b"` and `href="b"`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, line) in prose(text) {
        let line = without_code(line);
        for (opening, closing) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
            let starts = line.match_indices(opening).map(|(start, _)| &line[start + opening.len()..]);
            found.extend(
                starts
                    .filter_map(|rest| rest.split_once(closing))
                    .map(|(target, _)| (at, target.to_string())),
            );
        }
        if let Some((_, target)) = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "))
        {
            found.push((at, target.to_string()));
        }
    }
    for (_, target) in &mut found {
        // `(target "a title")` and `(<target>)` are links too.
        let word = target.split_whitespace().next().unwrap_or_default();
        *target = word.trim_start_matches('<').trim_end_matches('>').to_string();
    }
    found
}

/// The line with what stands between backticks left out: it shows a link, it is none.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

fn follow(files: &BTreeMap<String, String>, from: &str, target: &str) -> Result<(), &'static str> {
    let scheme = target.split_once(':').map_or("", |(scheme, _)| scheme);
    if !scheme.is_empty() && scheme.chars().all(|letter| letter.is_ascii_alphanumeric()) {
        return Ok(()); // https, mailto: somebody else's.
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { from.to_string() } else { resolve(from, path)? };
    let folder = format!("{path}/");
    let Some(text) = files.get(&path) else {
        let is_folder = path.is_empty() || files.keys().any(|file| file.starts_with(&folder));
        return if is_folder { Ok(()) } else { Err("leads to no file of the repository") };
    };
    let has_anchor = anchor.is_empty() || !path.ends_with(".md") || anchors(text).contains(anchor);
    if has_anchor { Ok(()) } else { Err("names a heading that is not there") }
}

/// The path of a link from the root of the repository.
fn resolve(from: &str, path: &str) -> Result<String, &'static str> {
    if path.starts_with('/') {
        return Err("is absolute: write it from the file that it stands in");
    }
    let mut steps: Vec<&str> = from.split('/').collect();
    steps.pop();
    for step in path.split('/') {
        match step {
            "" | "." => (),
            ".." => drop(steps.pop().ok_or("leads out of the repository")?),
            name => steps.push(name),
        }
    }
    Ok(steps.join("/"))
}

/// The names under which the headings of a text can be linked to, made as the usual viewers make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, _, title) in headings(text) {
        let kept = title.to_lowercase().replace(' ', "-");
        let name: String =
            kept.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect();
        let numbered = (1..).map(|n| format!("{name}-{n}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The complaints about `docs/guide.md` with this text, in a repository with a README and one more guide.
    fn complaints(text: &str) -> Vec<Complaint> {
        let mut repository = Repository::default();
        for (path, text) in [
            ("README.md", "# Tidegate\n## Try it\n## Try it\n## What `run` does, and why\n"),
            ("docs/other.md", ""),
            ("docs/guide.md", text),
        ] {
            repository.files.insert(path.into(), text.into());
        }
        dead_links(&repository)
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        for link in [
            "[a](../README.md)",
            "[a](other.md) and ![a picture](./other.md \"with a title\")",
            "[a](<other.md>)",
            "[a](..), [a](../docs) and [a](../docs/)",
            "[a]: other.md",
            "<img src=\"other.md\">",
            "[a](https://example.com/none) [b](mailto:a@example.com)",
            "# Here\n[a](#here)",
            "[a](../README.md#try-it) [a](../README.md#try-it-1) [a](../README.md#what-run-does-and-why)",
        ] {
            assert_eq!(complaints(link), [""; 0], "{link}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_are_seen() {
        for (link, complaint) in [
            ("\n[a](none.md)", "docs/guide.md:2: the link to `none.md` leads to no file of the repository"),
            ("[a]: none.md", "docs/guide.md:1: the link to `none.md` leads to no file of the repository"),
            ("<a href=\"none\">", "docs/guide.md:1: the link to `none` leads to no file of the repository"),
            ("[a](README.md)", "docs/guide.md:1: the link to `README.md` leads to no file of the repository"),
            ("[a](../../x.md)", "docs/guide.md:1: the link to `../../x.md` leads out of the repository"),
            (
                "[a](/x)",
                "docs/guide.md:1: the link to `/x` is absolute: write it from the file that it stands in",
            ),
            ("[a](#none)", "docs/guide.md:1: the link to `#none` names a heading that is not there"),
            (
                "[a](../README.md#try)",
                "docs/guide.md:1: the link to `../README.md#try` names a heading that is not there",
            ),
            ("[`code`](none)", "docs/guide.md:1: the link to `none` leads to no file of the repository"),
        ] {
            assert_eq!(complaints(link), [complaint], "{link}");
        }
    }

    #[test]
    fn code_shows_links_and_has_none() {
        assert_eq!(
            complaints("`[a](none.md)`\n```text\n[a](none.md)\n```\n~~~\n```\n[a](none.md)\n~~~"),
            [""; 0]
        );
        assert_eq!(complaints("```\ncode\n```\n[a](none.md)").len(), 1);
    }

    #[test]
    fn a_section_ends_at_the_next_heading_of_its_rank() {
        let text = "# A\n## The code map\none\n### Part\ntwo\n```\n## no heading\n```\n## After\nthree\n";
        let map = section(text, "code map").expect("the section");
        assert!(map.contains("one") && map.contains("two") && map.contains("no heading"), "{map}");
        assert!(!map.contains("three"), "{map}");
        assert_eq!(section(text, "not there"), None);
    }
}
