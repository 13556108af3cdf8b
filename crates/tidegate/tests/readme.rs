//! What the README shows is what the binary says.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// The text between a line that begins with `fence` and the next fence; `at` counts such blocks.
fn block(text: &str, fence: &str, at: usize) -> String {
    let fence = format!("```{fence}\n");
    let behind = text.split(&fence).nth(at + 1).expect("a block");
    behind.split("```").next().unwrap_or_default().to_string()
}

fn tidegate(folder: &Path, words: &str) -> Output {
    let command = env!("CARGO_BIN_EXE_tidegate");
    Command::new(command).args(words.split_whitespace()).current_dir(folder).output().expect("the binary")
}

#[test]
fn the_first_screen_is_true() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).expect("the README");
    let rules = block(&readme, "yaml", 0);
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("rules")).expect("a folder");
    let write = |text: &str| fs::write(folder.path().join("rules/shop.yaml"), text).expect("written");

    write(&rules);
    let behind = readme.split("## Rules").nth(1).expect("the rules");
    let session = block(behind, "text", 0);
    let mut commands = 0;
    for part in session.split("$ tidegate ").skip(1) {
        let (words, expected) = part.split_once('\n').expect("a command and its answer");
        let answer = tidegate(folder.path(), words);
        assert_eq!(String::from_utf8_lossy(&answer.stdout), expected, "tidegate {words}");
        commands += 1;
    }
    assert_eq!(commands, 2);

    write(&rules.replace("burst:", "burts:"));
    let answer = tidegate(folder.path(), "config check");
    let told = String::from_utf8_lossy(&answer.stderr).into_owned();
    let shown = block(behind, "text", 1);
    assert!(told.contains(&shown), "the README shows\n{shown}\nit says\n{told}");
}
