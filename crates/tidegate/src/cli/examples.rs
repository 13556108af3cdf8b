//! Every command that `--help` and the documents show can be given like that.

use clap::{Command, CommandFactory as _, Parser as _};

use super::Arguments;

/// The words of a line, as a shell takes them: quotes, a comment, and what becomes of the output left out. None: it is no plain command.
fn words(line: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (end, Some(begun)) if end == begun => quote = None,
            ('\\', None) => word.get_or_insert_default().push(letters.next()?),
            (' ', None) => words.extend(word.take()),
            ('#', None) if word.is_none() => break,
            ('|' | '>' | '<' | '&', None) => break,
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Some(words)
}

/// Commands below `Examples:` of every help page. Those that go on in the next line end with a backslash; behind two spaces stands what
/// it is for.
fn in_help(command: &Command, found: &mut Vec<String>) {
    for text in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten() {
        let text = text.to_string().replace("\\\n", "");
        let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
        let commands = lines.filter(|line| line.starts_with("tidegate "));
        found.extend(commands.map(|line| match line.find("  ") {
            // Inside a command that goes on there are as many.
            Some(at) if !line[at..].trim_start().starts_with('-') => line[..at].to_owned(),
            _ => line.to_owned(),
        }));
    }
    command.get_subcommands().for_each(|inner| in_help(inner, found));
}

fn in_documents(found: &mut Vec<String>) {
    for name in ["cli", "changing-limits", "access", "audit", "disputes"] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/{name}.md"));
        let text = std::fs::read_to_string(path).expect("a document");
        // Prose begins lines with such words too; only commands stand in blocks.
        let blocks = text.split("```").skip(1).step_by(2);
        let lines: Vec<&str> = blocks.flat_map(str::lines).collect();
        found.extend(lines.iter().filter(|line| line.starts_with("tidegate ")).map(|line| line.to_string()));
        found.extend(lines.iter().filter_map(|line| line.strip_prefix("$ ")).map(String::from));
    }
}

#[test]
fn every_example_can_be_given() {
    let mut found = Vec::new();
    in_help(&Arguments::command(), &mut found);
    let of_help = found.len();
    in_documents(&mut found);
    assert!(of_help > 40 && found.len() > of_help + 25, "{of_help} of {}", found.len());
    for line in found {
        let words = words(&line).expect("a command");
        if let Err(error) = Arguments::try_parse_from(&words) {
            panic!("{line}\n{words:?}\n{error}");
        }
    }
}
