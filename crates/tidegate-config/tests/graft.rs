//! Rules that are written one by one, grafted onto those of files.

use std::sync::Arc;

use tidegate_config::{Defaults, LiveRules, Loaded, RuleFiles};
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
        let loaded = added(&live, &[("api:bad", &bad)]);
        assert!(!loaded.is_valid() && told(&loaded).contains(said), "{}", told(&loaded));
        assert!(!live.try_added(texts(&[("api:bad", &bad)])).is_valid());
        assert_eq!(rules(&live.in_force()), before, "what was in force stays");
        assert!(live.reload().is_valid(), "and what was refused is not loaded with the files");
    }
    let bad = r#"{"domain": "api", "match": "leaf", "descriptors": [{"key": "x", "rate_limit": {"limit": "1/1s"}}]}"#;
    assert!(told(&added(&live, &[("api:bad", bad)])).contains("settings of the domain `api`"));
}

#[test]
fn two_that_are_added_cannot_be_the_same_limit() {
    let live = live();
    let one = endpoint("one", "/a", r#""rate_limit": {"limit": "9/1m"}"#);
    let two = endpoint("two", "/a", r#""rate_limit": {"limit": "8/1m"}"#);
    let loaded = added(&live, &[("api:one", &one), ("api:two", &two)]);
    assert!(told(&loaded).contains("is there already, from api:one:"), "{}", told(&loaded));
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
