//! Rules that are written one by one, grafted onto those of files.

use std::sync::Arc;

use tidegate_config::{Defaults, LeftOut, LiveRules, Loaded, RuleFiles};
use tidegate_core::{Algorithm, Book, Secret};

const FILE: &str = "\
domain: api
match: path
defaults: { algorithm: fixed_window }
descriptors:
  - key: api_key
    rate_limit: { limit: 100/1m, name: per-key }
    descriptors:
      - key: endpoint
        value: POST /orders
        rate_limit: { limit: 20/1m, name: writes }
        tiers:
          pro: { limit: 200/1m }
";

fn files() -> RuleFiles {
    RuleFiles { texts: texts(&[("rules.yaml", FILE)]), defaults: Defaults::default(), ..RuleFiles::default() }
}

fn texts(texts: &[(&str, &str)]) -> Vec<(String, Arc<str>)> {
    texts.iter().map(|(name, text)| ((*name).to_owned(), Arc::from(*text))).collect()
}

fn live() -> Arc<LiveRules> {
    LiveRules::start(files(), Secret::new([7; 16])).unwrap_or_else(|loaded| panic!("{}", told(&loaded))).0
}

fn added(live: &LiveRules, those: &[(&str, &str)]) -> Loaded {
    live.replace_added(texts(those)).expect("they are others than before")
}

fn told(loaded: &Loaded) -> String {
    let all = loaded.report.json(&loaded.sources);
    all.iter().map(|one| format!("{}: {}\n", one["code"], one["message"])).collect()
}

/// Why what was added is left out.
fn why(loaded: &Loaded) -> String {
    loaded.left_out.iter().map(|one| format!("{}: {}\n", one.name, one.why())).collect()
}

/// What is, and whether that is new.
fn left_out(all: &[LeftOut]) -> Vec<(&str, bool)> {
    all.iter().map(|one| (&*one.name, one.is_new)).collect()
}

fn rules(book: &Book) -> Vec<String> {
    let told = |rule: &tidegate_core::Rule| {
        let tier = rule.tier.as_deref().map_or_else(String::new, |tier| format!(" for {tier}"));
        let limit = rule.said.limit.as_ref().map_or_else(String::new, |limit| format!(" {limit}"));
        format!("{}{tier}{limit}", rule.id)
    };
    let mut rules: Vec<String> = book.rules().iter().map(told).collect();
    rules.sort();
    rules
}

fn endpoint(name: &str, endpoint: &str, below: &str) -> String {
    format!(
        r#"{{"domain": "api", "descriptors": [{{"key": "api_key", "descriptors": [
            {{"key": "endpoint", "value": "{endpoint}", {}}}]}}]}}"#,
        below.replace("NAME", name)
    )
}

#[test]
fn a_rule_is_grafted_where_it_belongs_and_taken_away_again() {
    let live = live();
    let before = rules(&live.in_force());
    let search = endpoint("search", "/search", r#""rate_limit": {"limit": "10/1m", "name": "NAME"}"#);
    let extra = endpoint("extra", "POST /orders", r#""rate_limit": {"limit": "3/1s", "name": "NAME"}"#);
    let free = endpoint("gold", "POST /orders", r#""tiers": {"gold": [{"limit": "7/1m", "name": "NAME"}]}"#);
    let loaded = added(&live, &[("api:search", &search), ("api:extra", &extra), ("api:gold", &free)]);
    assert!(loaded.is_valid(), "{}", told(&loaded));
    let mut expected = before.clone();
    expected.extend(
        [
            "api|api_key|endpoint:/search#search fixed_window 10/1m",
            "api|api_key|endpoint:POST /orders#extra fixed_window 3/1s",
            "api|api_key|endpoint:POST /orders#gold for gold fixed_window 7/1m",
        ]
        .map(String::from),
    );
    expected.sort();
    assert_eq!(rules(&live.in_force()), expected, "by the default algorithm of the file's domain");
    let in_force = live.in_force();
    let search = in_force.rules().iter().find(|rule| rule.id.contains("search")).expect("grafted");
    assert_eq!(&*search.said.origin.file, "api:search");
    assert_eq!(search.said.limit.as_ref().map(tidegate_core::Limit::algorithm), Some(Algorithm::FixedWindow));
    assert!(added(&live, &[]).is_valid());
    assert_eq!(rules(&live.in_force()), before);
}

#[test]
fn a_limit_of_a_file_is_not_replaced_and_its_place_is_told() {
    let live = live();
    let before = rules(&live.in_force());
    for (below, said) in [
        (
            r#""rate_limit": {"limit": "9/1m", "name": "writes"}"#,
            "the limit `writes` is there already, from rules.yaml:10",
        ),
        (
            r#""exempt": {"callers": ["a"]}, "rate_limit": {"limit": "9/1m", "name": "x"}"#,
            "the descriptor `endpoint` is there already",
        ),
        (r#""rate_limit": {"limit": "9/0m", "name": "x"}"#, "9/0m"),
    ] {
        let bad = endpoint("bad", "POST /orders", below);
        let tried = live.try_added(texts(&[("api:bad", &bad)]));
        assert_eq!(left_out(&tried.left_out), [("api:bad", true)]);
        let loaded = added(&live, &[("api:bad", &bad)]);
        assert!(why(&loaded).contains(said), "{}", why(&loaded));
        let tried = live.try_added(texts(&[("api:bad", &bad)]));
        assert_eq!(left_out(&tried.left_out), [("api:bad", false)], "that is known");
        assert_eq!(rules(&live.in_force()), before, "what was in force stays");
        assert_eq!(
            left_out(&live.reload().left_out),
            [("api:bad", false)],
            "also when files are loaded again"
        );
        assert_eq!((rules(&live.in_force()), live.last_load_failed()), (before.clone(), false));
    }
    let bad = r#"{"domain": "api", "match": "leaf", "descriptors": [{"key": "x", "rate_limit": {"limit": "1/1s"}}]}"#;
    assert!(why(&added(&live, &[("api:bad", bad)])).contains("settings of the domain `api`"));
}

#[test]
fn two_that_are_added_cannot_be_the_same_limit() {
    let live = live();
    let one = endpoint("one", "/a", r#""rate_limit": {"limit": "9/1m"}"#);
    let two = endpoint("two", "/a", r#""rate_limit": {"limit": "8/1m"}"#);
    let loaded = added(&live, &[("api:one", &one), ("api:two", &two)]);
    assert!(why(&loaded).contains("is there already, from api:one:"), "{}", why(&loaded));
    assert_eq!(left_out(&loaded.left_out), [("api:two", true)]);
}

/// A folder with a file, and rules by it.
struct InFiles {
    folder: tempfile::TempDir,
    live: Arc<LiveRules>,
}

impl InFiles {
    fn start(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("rules.yaml"), text).expect("written");
        let files = RuleFiles { paths: vec![folder.path().into()], ..RuleFiles::default() };
        let live = LiveRules::start(files, Secret::new([7; 16]))
            .unwrap_or_else(|loaded| panic!("{}", told(&loaded)));
        Self { folder, live: live.0 }
    }

    fn write(&self, text: &str) -> Loaded {
        std::fs::write(self.folder.path().join("rules.yaml"), text).expect("written");
        self.live.reload()
    }

    /// The rules in force below `endpoint` that were added, by name.
    fn names(&self) -> Vec<String> {
        let book = self.live.in_force();
        let of_api = book.rules().iter().filter(|rule| rule.said.origin.file.starts_with("api:"));
        let mut names: Vec<String> =
            of_api.filter_map(|rule| Some(rule.said.name.as_deref()?.to_owned())).collect();
        names.sort();
        names
    }
}

fn limit(name: &str, amount: u32) -> String {
    let limit = format!(r#""rate_limit": {{"limit": "{amount}/1m", "name": "{name}"}}"#);
    endpoint(name, "POST /orders", &limit)
}

/// `FILE` with one limit more where those that are added stand.
fn with_limit(name: &str) -> String {
    FILE.replace("name: writes }", &format!("name: {name} }}"))
}

#[test]
fn what_does_not_fit_is_left_out_alone_and_comes_back_when_the_files_are_repaired() {
    let all =
        [("api:a", &*limit("a", 1)), ("api:other", &*limit("other", 2)), ("api:tight", &*limit("tight", 3))];
    // A start, by files that were edited meanwhile.
    let node = InFiles::start(&with_limit("other"));
    let loaded = added(&node.live, &all);
    assert_eq!(left_out(&loaded.left_out), [("api:other", true)]);
    assert!(why(&loaded).contains("the limit `other` is there already, from"), "{}", why(&loaded));
    assert_eq!(node.names(), ["a", "tight"]);
    assert_eq!(left_out(&node.live.left_out()), [("api:other", true)]);

    // Another edit of the files changes nothing about that.
    let loaded = node.write(&with_limit("other").replace("100/1m", "101/1m"));
    assert_eq!((loaded.is_valid(), left_out(&loaded.left_out)), (true, vec![("api:other", false)]));
    assert_eq!(node.names(), ["a", "tight"]);
    assert!(rules(&node.live.in_force()).contains(&"api|api_key#per-key fixed_window 101/1m".to_owned()));

    // They never take away what is in force.
    let loaded = node.write(&with_limit("tight"));
    assert!(
        !loaded.is_valid() && told(&loaded).contains("the limit `tight` is there already"),
        "{}",
        told(&loaded)
    );
    assert_eq!((node.names(), node.live.last_load_failed()), (vec!["a".into(), "tight".into()], true));

    // Repaired.
    let loaded = node.write(FILE);
    assert_eq!((loaded.is_valid(), left_out(&loaded.left_out)), (true, vec![]));
    assert_eq!(
        (node.names(), node.live.last_load_failed()),
        (vec!["a".into(), "other".into(), "tight".into()], false)
    );
    assert!(node.live.left_out().is_empty());
}

#[test]
fn a_new_form_that_does_not_fit_leaves_the_old_one_and_keeps_no_other_edit_away() {
    let node = InFiles::start(FILE);
    let (one, two) = (limit("one", 1), limit("two", 2));
    assert!(added(&node.live, &[("api:one", &one), ("api:two", &two)]).left_out.is_empty());
    let (bad, more) = (limit("writes", 9), limit("three", 3));
    let loaded = added(&node.live, &[("api:one", &bad), ("api:three", &more), ("api:two", &two)]);
    assert_eq!(left_out(&loaded.left_out), [("api:one", true)]);
    assert_eq!(node.names(), ["one", "three", "two"]);
    // Whoever is gone is gone, whatever its last form.
    assert!(added(&node.live, &[("api:three", &more)]).left_out.is_empty());
    assert_eq!(node.names(), ["three"]);
}

#[test]
fn who_comes_first_gives_way_to_nobody() {
    let node = InFiles::start(FILE);
    assert!(added(&node.live, &[("api:m", &limit("same", 1))]).left_out.is_empty());
    let loaded = added(&node.live, &[("api:a", &limit("same", 2)), ("api:m", &limit("same", 1))]);
    assert_eq!(left_out(&loaded.left_out), [("api:a", true)], "although it stands before");
}

#[test]
fn edits_are_judged_by_the_files_in_force_while_those_on_the_disk_are_broken() {
    let node = InFiles::start(FILE);
    assert!(!node.write("domain: [").is_valid());
    let one = limit("one", 1);
    assert!(node.live.try_added(texts(&[("api:one", &one)])).left_out.is_empty());
    let loaded = added(&node.live, &[("api:one", &one)]);
    assert!(loaded.is_valid() && loaded.left_out.is_empty(), "{}", told(&loaded));
    assert_eq!((node.names(), node.live.last_load_failed()), (vec!["one".into()], true));
    assert!(node.write(FILE).is_valid());
    assert_eq!((node.names(), node.live.last_load_failed()), (vec!["one".into()], false));
}

#[test]
fn among_many_those_that_do_not_fit_are_found() {
    let node = InFiles::start(FILE);
    let all: Vec<(String, Arc<str>)> = (0..2_000)
        .map(|at| {
            let name = if at % 150 == 7 { "writes".into() } else { format!("n{at}") };
            (format!("api:{at:04}"), Arc::from(limit(&name, 5)))
        })
        .collect();
    let loaded = node.live.replace_added(all).expect("others than before");
    let expected: Vec<String> = (7..2_000).step_by(150).map(|at| format!("api:{at:04}")).collect();
    let mut found: Vec<String> = loaded.left_out.into_iter().map(|one| one.name).collect();
    found.sort();
    assert_eq!((found, node.names().len()), (expected, 2_000 - 14));
}

#[test]
fn looking_for_those_that_do_not_fit_has_an_end() {
    let node = InFiles::start(FILE);
    let mut all: Vec<(String, Arc<str>)> =
        (0..500).map(|at| (format!("api:{at:03}"), Arc::from(limit("writes", 5)))).collect();
    all.push(("api:999".into(), limit("good", 1).into()));
    let loaded = node.live.replace_added(all).expect("others than before");
    assert_eq!((loaded.left_out.len() + node.names().len(), node.names().len() <= 1), (501, true));
    assert!(loaded.left_out.iter().all(|one| !one.why().is_empty()));
}

#[test]
fn a_domain_that_no_file_has_comes_to_be() {
    let live = live();
    let one = r#"{"domain": "shop", "match": "path", "descriptors": [{"key": "user", "rate_limit": {"limit": "5/1m"}}]}"#;
    let two = r#"{"domain": "shop", "descriptors": [{"key": "ip", "rate_limit": {"limit": "6/1m"}}]}"#;
    let loaded = added(&live, &[("api:one", one), ("api:two", two)]);
    assert!(loaded.is_valid(), "{}", told(&loaded));
    assert!(rules(&live.in_force()).contains(&"shop|ip#sliding_window/1m sliding_window 6/1m".to_owned()));
}

#[test]
fn what_is_added_before_there_are_other_rules_waits_for_them() {
    let one = endpoint("one", "/a", r#""rate_limit": {"limit": "9/1m", "name": "NAME"}"#);
    let live = LiveRules::start_empty(RuleFiles::default(), Secret::new([7; 16]), |book, _| book);
    for _ in 0..2 {
        assert!(live.replace_added(texts(&[("api:one", &one)])).is_none());
        assert!(!live.is_loaded(), "alone they are not all rules");
    }
    assert!(live.replace(texts(&[("xds:all", FILE)])).is_valid());
    assert!(rules(&live.in_force()).contains(&"api|api_key|endpoint:/a#one fixed_window 9/1m".to_owned()));
    assert!(live.replace_added(texts(&[("api:one", &one)])).is_none(), "nothing has changed");
}
