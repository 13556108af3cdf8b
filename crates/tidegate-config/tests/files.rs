//! Which files are rules, and what is told of those that cannot be.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use tempfile::TempDir;
use tidegate_config::{Caps, Code, Given, Loaded, RuleFiles, load, resolve};
use tidegate_core::{Algorithm, Book, Secret};

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(path: &Path, domain: &str) {
    let rule = "descriptors: [{ key: k, rate_limit: { limit: 5/1s } }]";
    fs::write(path, format!("domain: {domain}\n{rule}\n")).expect("written");
}

fn loaded(path: &Path) -> Loaded {
    load(&RuleFiles { paths: vec![path.into()], ..RuleFiles::default() })
}

fn codes(loaded: &Loaded) -> Vec<Code> {
    loaded.report.diagnostics().iter().map(|diagnostic| diagnostic.code).collect()
}

/// To open a pipe is to wait for a writer; a socket stands for all that is no file.
#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let folder = folder();
    let pipe = folder.path().join("a.yaml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let _socket = UnixListener::bind(folder.path().join("b.yaml")).expect("a socket");
    symlink("/dev/zero", folder.path().join("c.yaml")).expect("a link");
    assert_eq!(codes(&loaded(folder.path())), [Code::UnreadableFile; 3]);
    assert_eq!(codes(&loaded(&pipe)), [Code::UnreadableFile]);
    let settings = resolve(&Given { file: Some(pipe), ..Given::default() });
    assert_eq!(settings.report.errors(), 1);
}

#[test]
fn links_that_lead_in_circles_are_followed_once() {
    let folder = folder();
    write(&folder.path().join("a.yaml"), "a");
    fs::create_dir(folder.path().join("deep")).expect("a folder");
    write(&folder.path().join("deep/b.yaml"), "b");
    // Sixteen levels of four links each would be four thousand million folders.
    for name in ["1", "2", "3", "4"] {
        symlink(".", folder.path().join(name)).expect("a link");
        symlink("..", folder.path().join("deep").join(name)).expect("a link");
    }
    let loaded = loaded(folder.path());
    assert_eq!((codes(&loaded).as_slice(), loaded.domains.len()), (&[][..], 2));
}

#[test]
fn more_files_or_folders_than_are_looked_at_are_told() {
    let many = folder();
    for at in 0..=10_000 {
        fs::write(many.path().join(format!("{at}.yaml")), format!("domain: d{at}\n")).expect("written");
    }
    assert_eq!(codes(&loaded(many.path())), [Code::TooManyFiles]);

    let deep = folder();
    write(&deep.path().join("a.yaml"), "a");
    let below = deep.path().join("f/".repeat(17));
    fs::create_dir_all(&below).expect("folders");
    write(&below.join("b.yaml"), "b");
    assert_eq!(codes(&loaded(deep.path())), [Code::TooManyFiles]);
}

#[test]
fn files_that_are_too_much_together_are_told_so() {
    let folder = folder();
    let bytes = 1_024;
    for name in ["a", "b", "c", "d", "e"] {
        let text = format!("domain: {name}\n{}", "#".repeat(1_000));
        fs::write(folder.path().join(format!("{name}.yaml")), text).expect("written");
    }
    let caps = Caps { bytes, ..Caps::default() };
    let loaded = load(&RuleFiles { paths: vec![folder.path().into()], caps, ..RuleFiles::default() });
    let told: Vec<&str> =
        loaded.report.diagnostics().iter().map(|trouble| trouble.message.as_str()).collect();
    assert_eq!(codes(&loaded), [Code::TooLarge]);
    assert!(told[0].contains("e.yaml") && told[0].contains("4 times 1024 bytes"), "{told:?}");
}

/// What the first document of a domain says holds for the rules of all of them.
#[test]
fn a_domain_in_several_documents_is_one_domain() {
    let folder = folder();
    let head = "shadow_mode: true\ndefaults: { algorithm: fixed_window }\n";
    for (name, head) in [("a", head), ("b", "")] {
        let limit = format!("{{ limit: 5/1s, name: {name}, replaces: [{{ name: c }}] }}");
        let text = format!("domain: d\n{head}descriptors: [{{ key: {name}, rate_limit: {limit} }}]\n");
        fs::write(folder.path().join(format!("{name}.yaml")), text).expect("written");
    }
    let rest = "domain: d\ndescriptors: [{ key: c, rate_limit: { limit: 5/1s, name: c } }]\n";
    fs::write(folder.path().join("c.yaml"), rest).expect("written");
    let files = RuleFiles { paths: vec![folder.path().into()], merge_domains: true, ..RuleFiles::default() };
    let loaded = load(&files);
    assert_eq!((codes(&loaded).as_slice(), loaded.domains.len()), (&[][..], 1));
    let book = Book::new(loaded.domains, Secret::new([0; 16]));
    assert_eq!(book.rules().len(), 3);
    for rule in book.rules() {
        let algorithm = rule.said.limit.as_ref().map(|limit| limit.algorithm());
        assert_eq!((rule.said.shadow, algorithm), (true, Some(Algorithm::FixedWindow)), "{}", rule.id);
    }
}
