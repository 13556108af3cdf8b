//! Changes are seen however they are made.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tidegate_config::Watch;

/// What is promised is a second; the machine may be busy.
const SOON: Duration = Duration::from_secs(5);
/// Long enough for a change that should not have been told.
const NEVER: Duration = Duration::from_millis(700);

struct Watched {
    changes: Receiver<()>,
    watch: Watch,
    folder: tempfile::TempDir,
}

fn watched(path: &str, before: impl FnOnce(&Path)) -> Watched {
    let folder = tempfile::tempdir().expect("a folder");
    before(folder.path());
    let (sender, changes) = channel();
    let watch =
        Watch::start(vec![folder.path().join(path)], move || sender.send(()).expect("a test that listens"));
    Watched { changes, watch: watch.expect("a watch"), folder }
}

impl Watched {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn told(&self) -> bool {
        self.changes.recv_timeout(SOON).is_ok()
    }

    fn quiet(&self) -> bool {
        self.changes.recv_timeout(NEVER).is_err()
    }
}

#[test]
fn edits_renames_and_removals_are_told() {
    let watched = watched("rules", |folder| {
        fs::create_dir_all(folder.join("rules/deep")).expect("folders");
        fs::write(folder.join("rules/a.yaml"), "1").expect("a file");
    });
    fs::write(watched.path("rules/a.yaml"), "2").expect("written");
    assert!(watched.told(), "an edit");
    fs::write(watched.path("new"), "3").expect("written");
    fs::rename(watched.path("new"), watched.path("rules/a.yaml")).expect("renamed");
    assert!(watched.told(), "a rename from elsewhere");
    fs::write(watched.path("rules/deep/b.yaml"), "4").expect("written");
    assert!(watched.told(), "a file in a folder below");
    fs::remove_file(watched.path("rules/a.yaml")).expect("removed");
    assert!(watched.told(), "a removal");
}

/// A ConfigMap: the files lead through `..data` to a folder that is replaced whole.
#[test]
fn the_link_that_kubernetes_swaps_is_told_every_time() {
    let watched = watched("rules", |folder| {
        let rules = folder.join("rules");
        fs::create_dir_all(rules.join("..1")).expect("folders");
        fs::write(rules.join("..1/a.yaml"), "1").expect("a file");
        symlink("..1", rules.join("..data")).expect("a link");
        symlink("..data/a.yaml", rules.join("a.yaml")).expect("a link");
    });
    for (at, before) in [(2, 1), (3, 2), (4, 3)] {
        let rules = watched.path("rules");
        fs::create_dir(rules.join(format!("..{at}"))).expect("a folder");
        fs::write(rules.join(format!("..{at}/a.yaml")), at.to_string()).expect("a file");
        symlink(format!("..{at}"), rules.join("..data_tmp")).expect("a link");
        fs::rename(rules.join("..data_tmp"), rules.join("..data")).expect("swapped");
        fs::remove_dir_all(rules.join(format!("..{before}"))).expect("removed");
        assert!(watched.told(), "swap {at}");
        while watched.changes.recv_timeout(NEVER).is_ok() {}
        assert_eq!(fs::read_to_string(rules.join("a.yaml")).expect("the file"), at.to_string());
    }
}

#[test]
fn a_path_that_is_itself_a_link_is_followed_to_where_it_leads_now() {
    let watched = watched("current", |folder| {
        for name in ["one", "two"] {
            fs::create_dir(folder.join(name)).expect("a folder");
        }
        symlink("one", folder.join("current")).expect("a link");
    });
    symlink("two", watched.path("next")).expect("a link");
    fs::rename(watched.path("next"), watched.path("current")).expect("swapped");
    assert!(watched.told(), "the swap");
    while watched.changes.recv_timeout(NEVER).is_ok() {}
    fs::write(watched.path("two/a.yaml"), "1").expect("written");
    assert!(watched.told(), "a file in the new folder");
}

#[test]
fn a_path_that_comes_later_is_waited_for() {
    let watched = watched("rules", |_| {});
    fs::create_dir(watched.path("rules")).expect("a folder");
    assert!(watched.told(), "the folder");
    while watched.changes.recv_timeout(NEVER).is_ok() {}
    fs::write(watched.path("rules/a.yaml"), "1").expect("written");
    assert!(watched.told(), "a file in it");
}

#[test]
fn reading_is_no_change_and_many_writes_are_few() {
    let watched = watched("rules", |folder| {
        fs::create_dir(folder.join("rules")).expect("a folder");
        fs::write(folder.join("rules/a.yaml"), "1").expect("a file");
    });
    fs::read_to_string(watched.path("rules/a.yaml")).expect("read");
    fs::read_dir(watched.path("rules")).expect("listed").count();
    assert!(watched.quiet(), "reading");
    for at in 0..100 {
        fs::write(watched.path("rules/a.yaml"), at.to_string()).expect("written");
    }
    let told = std::iter::from_fn(|| watched.changes.recv_timeout(NEVER).ok()).count();
    assert!((1..20).contains(&told), "told {told} times");
}

#[test]
fn a_nudge_is_a_change_and_the_end_is_the_end() {
    let watched = watched("rules", |_| {});
    watched.watch.nudge();
    assert!(watched.told());
    let Watched { changes, watch, folder } = watched;
    drop(watch);
    fs::create_dir(folder.path().join("rules")).expect("a folder");
    assert!(changes.recv_timeout(NEVER).is_err(), "nobody watches any more");
}

/// What is beside the rules may be the log that is written on every load.
#[test]
fn what_is_beside_the_rules_is_no_change() {
    let watched = watched("rules", |folder| fs::create_dir(folder.join("rules")).expect("a folder"));
    fs::write(watched.path("node.log"), "1").expect("written");
    fs::create_dir(watched.path("data")).expect("a folder");
    assert!(watched.quiet(), "a log and a folder");
    fs::write(watched.path("rules/a.yaml"), "1").expect("written");
    assert!(watched.told(), "a rule file");
}

#[test]
fn a_link_above_the_path_is_followed() {
    let watched = watched("current/rules", |folder| {
        for name in ["one", "two"] {
            fs::create_dir_all(folder.join(name).join("rules")).expect("folders");
        }
        symlink("one", folder.join("current")).expect("a link");
    });
    symlink("two", watched.path("next")).expect("a link");
    fs::rename(watched.path("next"), watched.path("current")).expect("swapped");
    assert!(watched.told(), "the swap");
    while watched.changes.recv_timeout(NEVER).is_ok() {}
    fs::write(watched.path("two/rules/a.yaml"), "1").expect("written");
    assert!(watched.told(), "a file in the new folder");
}

#[test]
fn a_file_that_a_link_leads_to_is_watched_where_it_is() {
    let watched = watched("rules", |folder| {
        for name in ["rules", "shared", "elsewhere"] {
            fs::create_dir(folder.join(name)).expect("a folder");
        }
        fs::write(folder.join("elsewhere/a.yaml"), "1").expect("a file");
        symlink("../elsewhere/a.yaml", folder.join("shared/a.yaml")).expect("a link");
        symlink("../shared/a.yaml", folder.join("rules/a.yaml")).expect("a link");
    });
    fs::write(watched.path("elsewhere/a.yaml"), "2").expect("written");
    assert!(watched.told(), "an edit");
    while watched.changes.recv_timeout(NEVER).is_ok() {}
    fs::write(watched.path("elsewhere/b.yaml"), "1").expect("written");
    symlink("../elsewhere/b.yaml", watched.path("shared/next")).expect("a link");
    fs::rename(watched.path("shared/next"), watched.path("shared/a.yaml")).expect("swapped");
    assert!(watched.told(), "a link on the way");
}

/// A ConfigMap of which one file is named.
#[test]
fn a_single_file_behind_links_is_followed() {
    let watched = watched("rules/a.yaml", |folder| {
        let rules = folder.join("rules");
        for name in ["..1", "..2"] {
            fs::create_dir_all(rules.join(name)).expect("folders");
            fs::write(rules.join(name).join("a.yaml"), name).expect("a file");
        }
        symlink("..1", rules.join("..data")).expect("a link");
        symlink("..data/a.yaml", rules.join("a.yaml")).expect("a link");
    });
    symlink("..2", watched.path("rules/..data_tmp")).expect("a link");
    fs::rename(watched.path("rules/..data_tmp"), watched.path("rules/..data")).expect("swapped");
    assert!(watched.told(), "the swap");
}

#[test]
fn a_panic_does_not_end_the_watch() {
    let folder = tempfile::tempdir().expect("a folder");
    let (sender, changes) = channel();
    let mut first = true;
    let watch = Watch::start(vec![folder.path().into()], move || {
        assert!(!std::mem::take(&mut first), "a loader that breaks, once");
        let _ = sender.send(());
    });
    let watch = watch.expect("a watch");
    watch.nudge();
    assert!(changes.recv_timeout(NEVER).is_err(), "the first one broke");
    watch.nudge();
    assert!(changes.recv_timeout(SOON).is_ok(), "the second was told");
}
