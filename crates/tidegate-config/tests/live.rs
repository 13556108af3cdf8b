//! Rules change under load: always a whole book, soon, and never a bad one.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_config::{Following, LiveRules, RuleFiles, Style};
use tidegate_core::{Book, Descriptor, Entry, Key, Plan, Query, Secret};

/// What is promised is a second; the machine may be busy.
const SOON: Duration = Duration::from_secs(5);

/// Every test follows SIGHUP, and one sends it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Node {
    folder: tempfile::TempDir,
    live: Arc<LiveRules>,
    /// The errors of each reload.
    reloads: Receiver<usize>,
    following: Following,
}

fn node() -> Node {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), 1);
    let files = RuleFiles { paths: vec![folder.path().into()], ..RuleFiles::default() };
    let (live, _) = LiveRules::start(files, Secret::new([1; 16])).expect("rules");
    let (sender, reloads) = channel();
    let following = live.follow(move |_, loaded| {
        let _ = sender.send(loaded.report.errors()); // A test may be over.
    });
    Node { folder, live, reloads, following: following.expect("a watch") }
}

/// Two files that belong together: both say the same number.
fn write(folder: &Path, amount: u32) {
    for name in ["a", "b"] {
        let text = format!(
            "domain: {name}\ndescriptors:\n  - key: k\n    rate_limit: {{ limit: {amount}/1m, name: n }}\n"
        );
        let (path, new) = (folder.join(format!("{name}.yaml")), folder.join(format!(".{name}.new")));
        fs::write(&new, text).expect("written");
        fs::rename(new, path).expect("renamed");
    }
}

fn found(book: &Book, domain: &str) -> Option<(Key, u32)> {
    let entries = [Entry { key: "k", value: "v" }];
    let descriptors = [Descriptor { entries: 0..1, cost: 1, limit: None, own_cost: false }];
    let mut plan = Plan::new();
    book.plan(&Query { domain, entries: &entries, descriptors: &descriptors, lease: None }, &mut plan);
    plan.takes().first().map(|take| (take.key, plan.limit(take).amount()))
}

impl Node {
    fn amounts(&self) -> (u32, u32) {
        let book = self.live.in_force();
        let amount = |domain| found(&book, domain).map_or(0, |(_, amount)| amount);
        (amount("a"), amount("b"))
    }

    /// Waits until both domains have this amount.
    fn settles(&self, amount: u32) -> bool {
        while self.amounts() != (amount, amount) {
            if self.reloads.recv_timeout(SOON).is_err() {
                return false;
            }
        }
        true
    }
}

#[test]
fn a_change_is_in_force_soon_and_counters_go_on() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let node = node();
    let before = found(&node.live.in_force(), "a").expect("a rule").0;
    write(node.folder.path(), 2);
    assert!(node.settles(2), "{:?}", node.amounts());
    let after = found(&node.live.in_force(), "a").expect("a rule").0;
    assert_eq!(before, after, "the same counter, with another number");
}

#[test]
fn what_changed_before_anybody_watched_is_loaded() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), 1);
    let files = RuleFiles { paths: vec![folder.path().into()], ..RuleFiles::default() };
    let (live, _) = LiveRules::start(files, Secret::new([1; 16])).expect("rules");
    write(folder.path(), 20);
    let (sender, reloads) = channel();
    let following = live.follow(move |_, loaded| {
        let _ = sender.send(loaded.report.errors()); // A test may be over.
    });
    let node = Node { folder, live, reloads, following: following.expect("a watch") };
    assert!(node.settles(20), "{:?}", node.amounts());
    assert!(node.folder.path().exists());
}

#[test]
fn a_bad_file_changes_nothing_until_it_is_mended() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let node = node();
    fs::write(node.folder.path().join("a.yaml"), "domain: a\ndescriptors: [{ kye: k }]\n").expect("written");
    let errors = std::iter::from_fn(|| node.reloads.recv_timeout(SOON).ok()).find(|errors| *errors > 0);
    assert!(errors.is_some(), "it was not told");
    assert_eq!(node.amounts(), (1, 1), "the old rules hold");
    assert!(node.live.counts().1 >= 1, "it was not counted");
    fs::remove_file(node.folder.path().join("a.yaml")).expect("removed");
    fs::remove_file(node.folder.path().join("b.yaml")).expect("removed");
    node.following.nudge();
    assert!(node.reloads.recv_timeout(SOON).is_ok_and(|errors| errors > 0), "an empty folder is no rules");
    assert_eq!(node.amounts(), (1, 1));
    write(node.folder.path(), 3);
    assert!(node.settles(3), "{:?}", node.amounts());
}

#[test]
fn a_hangup_loads_again() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let node = node();
    let (loads, _) = node.live.counts();
    signal_hook::low_level::raise(signal_hook::consts::SIGHUP).expect("raised");
    assert!(node.reloads.recv_timeout(SOON).is_ok());
    assert!(node.live.counts().0 > loads);
}

/// All files are swapped by one link, as Kubernetes does, again and again while they are loaded: whoever asks sees all old or all new.
#[test]
fn nobody_ever_sees_half_of_a_change() {
    const SWAPS: u32 = 200;
    let folder = tempfile::tempdir().expect("a folder");
    let current = folder.path().join("current");
    let set = |amount: u32| {
        let version = folder.path().join(format!("v{amount}"));
        fs::create_dir(&version).expect("a folder");
        write(&version, amount);
        // So that it takes a while from the first file to the last.
        for filler in 0..100 {
            fs::write(version.join(format!("a{filler}.yaml")), format!("domain: a{filler}\n"))
                .expect("written");
        }
        let next = folder.path().join("next");
        std::os::unix::fs::symlink(&version, &next).expect("a link");
        fs::rename(next, &current).expect("swapped");
    };
    set(1);
    let files = RuleFiles { paths: vec![current.clone()], ..RuleFiles::default() };
    let (live, _) = LiveRules::start(files, Secret::new([1; 16])).expect("rules");
    let amounts = || {
        let book = live.in_force();
        ["a", "b"].map(|domain| found(&book, domain).map_or(0, |(_, amount)| amount))
    };
    let done = AtomicBool::new(false);
    let loads = std::thread::scope(|scope| {
        let loader = scope.spawn(|| {
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                live.reload();
                let [a, b] = amounts();
                assert_eq!(a, b, "half of a change");
                assert!(a >= last, "went back from {last} to {a}");
                last = a;
            }
            live.counts().0
        });
        for amount in 2..=SWAPS {
            set(amount);
            // Whoever writes is not to be done before anybody has read.
            while live.counts().0 * 15 < u64::from(amount) && !loader.is_finished() {
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
        loader.join().expect("no half of a change")
    });
    assert!(loads > 10, "only {loads} loads");
    assert!(live.reload().is_valid());
    assert_eq!(amounts(), [SWAPS, SWAPS]);
}

#[test]
fn another_secret_means_other_keys_for_the_rules_in_force_and_for_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), 1);
    let files = RuleFiles { paths: vec![folder.path().into()], ..RuleFiles::default() };
    let start = |secret| LiveRules::start(files.clone(), Secret::new([secret; 16])).expect("rules").0;
    let key = |live: &LiveRules| found(&live.in_force(), "a").map(|(key, _)| key);
    let (live, other) = (start(1), start(2));
    let before = key(&live);
    assert!(!live.rekey(Secret::new([1; 16]), |book| book), "the same");
    assert_eq!(key(&live), before);
    fs::write(folder.path().join("a.yaml"), "domain: [").expect("written");
    assert!(live.rekey(Secret::new([2; 16]), |book| book), "files that are broken meanwhile are not read");
    assert_eq!(key(&live), key(&other));
    assert_ne!(key(&live), before);
    write(folder.path(), 5);
    assert!(live.reload().is_valid());
    assert_eq!((key(&live), live.secret() == Secret::new([2; 16])), (key(&other), true));
}

#[test]
fn texts_replace_texts_as_a_whole_or_not_at_all() {
    let text = |name: &str, domain: &str, amount: u32| -> (String, Arc<str>) {
        let text = format!(
            r#"{{"domain": "{domain}", "descriptors": [{{"key": "k", "rate_limit": {{"limit": "{amount}/1m"}}}}]}}"#
        );
        (name.into(), text.into())
    };
    let files = RuleFiles { paths: vec!["nowhere".into()], ..RuleFiles::default() };
    let live = LiveRules::start_empty(files, Secret::new([1; 16]), |book, _| book);
    let amounts = || {
        let book = live.in_force();
        ["a", "b", "c"].map(|domain| found(&book, domain).map(|(_, amount)| amount))
    };
    assert_eq!((live.is_loaded(), live.counts(), amounts()), (false, (0, 0), [None, None, None]));
    let bad = live.replace(vec![("xds:one".into(), "domain: a\ndescriptors: [{}]\n".into())]);
    assert_eq!((bad.report.errors(), live.is_loaded(), live.last_load_failed()), (1, false, true));

    assert!(live.replace(vec![text("xds:one", "a", 1), text("xds:two", "b", 2)]).is_valid());
    assert_eq!((live.is_loaded(), live.counts(), amounts()), (true, (1, 1), [Some(1), Some(2), None]));
    let book = live.in_force();
    let from: Vec<&str> = book.rules().iter().map(|rule| &*rule.said.origin.file).collect();
    assert_eq!(from, ["xds:one", "xds:two"]);
    drop(book);

    // A domain that stands twice, in one of three texts: nothing changes.
    let twice =
        live.replace(vec![text("xds:one", "a", 9), text("xds:two", "c", 9), text("xds:three", "c", 9)]);
    let told = twice.report.render(&twice.sources, Style::Plain);
    assert!(told.contains("the domain `c` stands twice") && told.contains("xds:three"), "{told}");
    assert_eq!(amounts(), [Some(1), Some(2), None]);
    assert!(live.reload().is_valid(), "the good ones are loaded again");
    assert_eq!(amounts(), [Some(1), Some(2), None]);

    assert!(live.replace(vec![text("xds:two", "b", 3)]).is_valid());
    assert_eq!(amounts(), [None, Some(3), None], "what is not among them is gone");
    assert!(live.replace(Vec::new()).is_valid());
    assert_eq!((live.is_loaded(), amounts()), (true, [None, None, None]), "and nothing is something");
}
