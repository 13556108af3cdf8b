//! Every test of envoyproxy/ratelimit, and which of ours shows the same, or why ours does something else. `docs/reference-tests.md` is made
//! from the table; `TIDEGATE_BLESS=1 cargo test -p tidegate --test reference_tests` makes it again.

mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use table::{Group, SINCE, Shown, TESTS};
use tidegate_testbed::REFERENCE_VERSION;

const MODULE: &str = "github.com/envoyproxy/ratelimit";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All rows, with the file that they are about.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, &'static Shown)> {
    let row = |group: &'static Group| group.rows.iter().map(move |(name, shown)| (group.file, *name, shown));
    TESTS.iter().chain([&SINCE]).flat_map(row)
}

#[test]
fn the_tests_that_are_named_are_there() {
    for (file, name, shown) in rows() {
        let (ours, reason) = match shown {
            Shown::Same(ours) => (*ours, None),
            Shown::Differs(reason, ours) => (*ours, Some(*reason)),
        };
        assert!(reason.is_some() || !ours.is_empty(), "{file}: {name} is shown by nothing");
        assert!(reason.is_none_or(|reason| reason.len() > 30), "{file}: {name} has no reason");
        for (path, test) in ours {
            let text =
                fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            let is_test = |(at, _): (usize, &str)| {
                let before = text[..at].trim_end().trim_end_matches("async").trim_end();
                let head = before.rsplit_once("\n\n").map_or(before, |(_, head)| head);
                head.contains("#[test]") || head.contains("#[tokio::test")
            };
            let there = text.match_indices(&format!("fn {test}(")).any(is_test);
            assert!(there, "{file}: {name}: there is no test `{test}` in {path}");
        }
    }
}

/// The list is theirs: what they test and is not in it is missed, and what is in it and they do not have.
#[test]
fn every_test_of_theirs_is_in_the_list() {
    let Some(source) = source() else {
        eprintln!("skipped: the source of {MODULE}@{REFERENCE_VERSION} is not in the cache of Go");
        return;
    };
    let mut theirs = BTreeSet::new();
    for path in files(&source) {
        let name = path.strip_prefix(&source).expect("below it").display().to_string();
        let text = fs::read_to_string(&path).expect("a text");
        let functions = text.lines().filter_map(|line| line.strip_prefix("func Test")?.split('(').next());
        theirs.extend(functions.map(|test| (name.clone(), format!("Test{test}"))));
        if name.ends_with(".sh") {
            theirs.insert((name, "the script".into()));
        }
    }
    let is_left_out = |(file, test): &&(String, String)| {
        table::LEFT_OUT.iter().any(|part| file.contains(part) || test.contains(part))
    };
    let theirs: BTreeSet<_> = theirs.iter().filter(|test| !is_left_out(test)).cloned().collect();
    let listed = TESTS.iter().flat_map(|group| group.rows.iter().map(|(name, _)| (group.file, *name)));
    let listed: BTreeSet<_> = listed.map(|(file, name)| (file.to_string(), name.to_string())).collect();
    assert!(theirs.len() > 100, "{}", theirs.len());
    assert_eq!(
        theirs.difference(&listed).collect::<Vec<_>>(),
        Vec::<&(String, String)>::new(),
        "not in the list"
    );
    assert_eq!(listed.difference(&theirs).collect::<Vec<_>>(), Vec::<&(String, String)>::new(), "not theirs");
}

/// Where Go keeps what it has built the server from.
fn source() -> Option<PathBuf> {
    let told = Command::new("go").args(["env", "GOMODCACHE"]).output().ok()?;
    let cache = String::from_utf8(told.stdout).ok()?;
    let folder = Path::new(cache.trim()).join(format!("{MODULE}@{REFERENCE_VERSION}"));
    folder.is_dir().then_some(folder)
}

/// Its tests, and the scripts of its end-to-end tests.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.display().to_string();
        if path.is_dir() {
            found.extend(files(&path));
        } else if name.ends_with("_test.go") || name.contains("integration-test/scripts/") {
            found.push(path);
        }
    }
    found
}

#[test]
fn the_page_is_made_from_the_table() {
    let path = root().join("docs/reference-tests.md");
    let page = page();
    if std::env::var_os("TIDEGATE_BLESS").is_some() {
        fs::write(&path, &page).expect("written");
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/reference-tests.md is stale: TIDEGATE_BLESS=1 cargo test -p tidegate --test reference_tests"
    );
}

fn page() -> String {
    let mut text = format!(
        "# The tests of envoyproxy/ratelimit\n\n\
         <!-- Made from crates/tidegate/tests/reference_tests/table.rs: \
         TIDEGATE_BLESS=1 cargo test -p tidegate --test reference_tests -->\n\n\
         What envoyproxy/ratelimit asserts of itself, test by test ({REFERENCE_VERSION}), and which of our tests shows the same; or what \
         is different on purpose. That the list is whole, and that our tests are there, is a test too. Left out is what is about \
         memcached, which there is none of here, and benchmarks. How to change over: \
         [migrating-from-envoyproxy-ratelimit.md](migrating-from-envoyproxy-ratelimit.md).\n"
    );
    for group in TESTS.iter().chain([&SINCE]) {
        text += &format!("\n## {}\n\n| theirs | | ours |\n|---|---|---|\n", group.file);
        for (name, shown) in group.rows {
            let (word, reason, ours) = match shown {
                Shown::Same(ours) => ("same", "", ours),
                Shown::Differs(reason, ours) => ("intended difference", *reason, ours),
            };
            let named = |(path, test): &(&str, &str)| {
                let file = Path::new(path).file_stem().map_or("", |stem| stem.to_str().unwrap_or_default());
                format!("[`{file}::{test}`](../{path})")
            };
            let ours: Vec<String> = (!reason.is_empty())
                .then(|| reason.to_string())
                .into_iter()
                .chain(ours.iter().map(named))
                .collect();
            text += &format!("| `{name}` | {word} | {} |\n", ours.join("; "));
        }
    }
    text
}
