//! No file costs more than it may: whatever is in it, it is refused or read within a second and in 64 MB, its text included.

mod support;

use rustix::time::{ClockId, clock_gettime};
use tidegate_config::{Caps, Code, Report, RuleFiles, Sources, Style, load_texts};

const MB: u64 = 1_000_000;
const SIZE: usize = 10_000_000;

/// A second, and room for a slow machine and a build with checks.
const MS_MAX: i64 = 5_000;

/// What this thread has worked so far. Not the time that passed: a machine that has other things to do would turn tests red.
fn worked_ms() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000 + time.tv_nsec / 1_000_000
}

/// What is wrong, a file that has it, and what is said first.
type Case = (&'static str, fn() -> String, Code);

/// So many of these as make 10 MB.
fn many(piece: &str) -> String {
    piece.repeat(SIZE / piece.len())
}

/// Reads 10 MB of trouble, renders what is said about it, and returns the codes.
fn refused(name: &str, make: impl Fn() -> Vec<u8>) -> Vec<Code> {
    refused_by(name, make, |bytes| support::check(name, bytes, &Caps::default()))
}

fn refused_by(
    name: &str,
    make: impl Fn() -> Vec<u8>,
    check: impl Fn(Vec<u8>) -> (Sources, Report),
) -> Vec<Code> {
    let mut codes = Vec::new();
    let before_ms = worked_ms();
    let counted = allocation_counter::measure(|| {
        let (sources, report) = check(make());
        let text = report.render(&sources, Style::Plain);
        let json = report.json(&sources);
        assert!(text.len() < 400_000, "{name}: {} bytes of text", text.len());
        codes = report.diagnostics().iter().map(|diagnostic| diagnostic.code).collect();
        assert_eq!(json.len(), codes.len());
    });
    let (took_ms, peak_mb) = (worked_ms() - before_ms, counted.bytes_max / MB);
    println!("{name}: {took_ms} ms, {peak_mb} MB");
    assert!(took_ms < MS_MAX, "{name}: {took_ms} ms");
    assert!(peak_mb <= 64, "{name}: {peak_mb} MB");
    assert!(!codes.is_empty(), "{name}: taken");
    codes.dedup();
    codes
}

#[test]
fn bad_files_are_refused_soon_and_in_little_memory() {
    let cases: &[Case] = &[
        ("brackets", || many("["), Code::TooDeep),
        ("brackets on lines", || many("[\n"), Code::TooDeep),
        ("braces", || many("{a: "), Code::TooDeep),
        ("dashes in each other", || many("- "), Code::TooDeep),
        ("question marks", || many("? "), Code::TooDeep),
        ("colons", || many(": "), Code::TooDeep),
        (
            "maps in each other",
            || (0..4_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(),
            Code::TooDeep,
        ),
        ("a thousand brackets", || format!("{}{}", "[".repeat(1_000), "]".repeat(1_000)), Code::TooDeep),
        ("one line", || many("a"), Code::WrongType),
        ("one line of words", || many("a "), Code::WrongType),
        ("a long key", || format!("{}: b", many("a")), Code::Syntax),
        ("a long line of items", || format!("[{}", many("a,")), Code::TooManyNodes),
        ("a long line of lists", || format!("[{}", many("[a],")), Code::TooManyNodes),
        ("a long line of maps", || format!("[{}", many("{a: b},")), Code::TooManyNodes),
        ("commas", || format!("[{}", many(",")), Code::Syntax),
        ("entries on one line", || format!("{{{}", many("a: b, ")), Code::TooManyNodes),
        ("dashes", || many("-\n"), Code::TooManyNodes),
        ("documents", || many("---\n"), Code::TooManyNodes),
        ("texts", || many("- |\n  a\n"), Code::WrongType),
        ("quoted texts", || many("- \"\\n\"\n"), Code::WrongType),
        ("a quoted text", || format!("\"{}", many("\\L")), Code::Syntax),
        ("an empty quoted text", || format!("'{}", many("\n")), Code::Syntax),
        ("a folded text", || format!("a: >\n{}", many(" a\n\n")), Code::UnknownKey),
        ("anchors", || (0..900_000).map(|index| format!("- &{index} b\n")).collect(), Code::TooManyNodes),
        ("anchors of one name", || many("- &a b\n"), Code::TooManyNodes),
        (
            "directives",
            || (0..500_000).map(|index| format!("%TAG !a{index}! tag:x\n")).collect(),
            Code::Syntax,
        ),
        ("tags", || many("- !!str b\n"), Code::WrongType),
        ("a tag", || format!("!{}", many("a")), Code::Syntax),
        ("an anchor", || format!("&{} b", many("a")), Code::WrongType),
        ("empty lines", || many("\n"), Code::EmptyFile),
        ("comments", || many("#\n"), Code::EmptyFile),
        ("spaces", || many(" "), Code::EmptyFile),
        ("a tab", || format!("a:\n{}b", many("\t")), Code::Syntax),
        ("bars", || many("|"), Code::Syntax),
        ("empty texts", || many("- ''\n"), Code::WrongType),
        ("unicode", || many("- ключ: значение\n"), Code::WrongType),
        ("byte order marks", || many("\u{feff}"), Code::EmptyFile),
    ];
    for (name, make, code) in cases {
        let codes = refused(name, || make().into_bytes());
        assert_eq!(codes.first(), Some(code), "{name}: {codes:?}");
    }
}

#[test]
fn bytes_that_are_no_text_are_refused_soon() {
    assert_eq!(refused("no UTF-8", || vec![0xff; SIZE]), [Code::NotUtf8]);
    assert_eq!(refused("no UTF-8 at the end", || [vec![b'a'; SIZE], vec![0xff]].concat()), [Code::NotUtf8]);
    assert_eq!(refused("zeros", || vec![0; SIZE]), [Code::ControlCharacter]);
    assert_eq!(refused("too large", || vec![b'#'; 40_000_000]), [Code::TooLarge]);
}

#[test]
fn an_alias_bomb_costs_nothing() {
    let bomb = || {
        let levels =
            (1..60).map(|level| format!("a{level}: &a{level} [*a{0}, *a{0}, *a{0}, *a{0}]\n", level - 1));
        format!("a0: &a0 x\n{}", levels.collect::<String>()).into_bytes()
    };
    assert_eq!(refused("alias bomb", bomb), [Code::AliasBomb]);
    let merges = || {
        let levels =
            (1..60).map(|level| format!("a{level}: &a{level} {{<<: [*a{0}, *a{0}, *a{0}]}}\n", level - 1));
        format!("a0: &a0 {{b: c}}\n{}", levels.collect::<String>()).into_bytes()
    };
    assert_eq!(refused("merge bomb", merges), [Code::AliasBomb]);
    // A thousand times a text of a megabyte.
    let texts = || {
        let text = "x".repeat(1_000_000);
        format!("domain: &a {text}\nlabels: &b [*a, *a]\nx-c: [{}]\n", "*b, ".repeat(500)).into_bytes()
    };
    assert_eq!(refused("texts", texts), [Code::AliasBomb]);
    // As much as is allowed, all of it merged.
    let wide = || {
        let keys: String = (0..10_000).map(|index| format!("k{index}: v, ")).collect();
        let merged = "  - {<<: *d}\n".repeat(100);
        format!("domain: a\nx-d: &d {{{keys}}}\ndescriptors:\n{merged}").into_bytes()
    };
    assert!(refused("wide merges", wide).contains(&Code::UnknownKey));
}

#[test]
fn a_million_duplicates_are_found_in_one_walk() {
    assert!(
        refused("one key", || "domain: a\n".repeat(1_000_000).into_bytes()).contains(&Code::DuplicateKey)
    );
    let names = || format!("domain: a\nlabels:\n{}", "  k: v\n".repeat(1_000_000)).into_bytes();
    assert_eq!(refused("one name", names), [Code::DuplicateKey]);
    let own = || {
        let names: String = (0..600_000).map(|index| format!("  {index:x}: v\n")).collect();
        format!("domain: a\nlabels:\n{names}  1: again\n").into_bytes()
    };
    assert_eq!(refused("many names", own), [Code::DuplicateKey]);
    let unknown = || format!("domain: a\n{}", many("rate_limits: a\n")).into_bytes();
    assert!(refused("unknown keys", unknown).contains(&Code::UnknownKey));
}

#[test]
fn ordinary_files_far_above_100_000_rules_are_read() {
    let rule = |index: u32| {
        format!(
            "  - key: api_key\n    value: customer-{index}\n    rate_limit:\n      unit: minute\n      requests_per_unit: {index}\n\
             \x20     consistency: exact\n      extra: rule-{index}\n"
        )
    };
    let text = format!("domain: shop\ndescriptors:\n{}", (0..130_000).map(rule).collect::<String>());
    let before_ms = worked_ms();
    let (_, report) = support::check("rules.yaml", text.into(), &Caps::default());
    println!("130 000 rules: {} ms", worked_ms() - before_ms);
    assert_eq!((report.errors(), report.warnings()), (0, 0), "{report:?}");
}

#[test]
fn bad_rules_are_refused_soon_however_many_there_are() {
    let rule = |index: usize| {
        format!(
            "  - key: k\n    value: v{index:06}\n    rate_limit: {{ unit: minute, requests_per_unit: 5, name: n{index} }}\n"
        )
    };
    let rules = |rule: &dyn Fn(usize) -> String| {
        let all: String = (0..110_000).map(rule).collect();
        format!("domain: a\ndescriptors:\n{all}")
    };
    let cases: &[(&str, String, Code)] = &[
        (
            "a mistake in the last rule",
            rules(&rule) + "  - key: k\n    rate_limit: { unti: minute }\n",
            Code::UnknownKey,
        ),
        ("a mistake in every rule", rules(&|index| rule(index).replace("minute", "-1")), Code::BadWord),
        ("the same rule", rules(&|_| rule(0)), Code::DuplicateDescriptor),
    ];
    for (name, text, code) in cases {
        let codes = refused_by(
            name,
            || text.clone().into_bytes(),
            |bytes| {
                let loaded = load_texts([("rules.yaml".into(), bytes)], &RuleFiles::default());
                (loaded.sources, loaded.report)
            },
        );
        assert!(codes.contains(code), "{name}: {codes:?}");
    }
}

fn rules(bytes: Vec<u8>) -> (Sources, Report) {
    let loaded = load_texts([("rules.yaml".into(), bytes)], &RuleFiles::default());
    (loaded.sources, loaded.report)
}

/// Every rule is known by all that is above it.
#[test]
fn long_names_at_the_top_do_not_multiply() {
    let rules_below = |at: &str| {
        let rule = |at: usize| format!("{{ key: k{at}, rate_limit: {{ limit: 5/1s }} }}, ");
        format!("{at}[{}]\n", (0..10_000).map(rule).collect::<String>())
    };
    let long = "x".repeat(100_000);
    let of_a_domain = || rules_below(&format!("domain: {long}\ndescriptors: ")).into_bytes();
    assert_eq!(refused_by("a long domain", of_a_domain, rules), [Code::TooLarge]);
    let of_a_key = || {
        let above = format!("domain: d\ndescriptors:\n  - key: k\n    value: {long}\n    descriptors: ");
        rules_below(&above).into_bytes()
    };
    assert_eq!(refused_by("a long value", of_a_key, rules), [Code::TooLarge]);
}

#[test]
fn many_limits_of_one_descriptor_are_not_even_read() {
    let limits = |before: &str, name: fn(usize) -> String| {
        let limits: String =
            (0..100_000).map(|at| format!("      {}{{ limit: 5/1s }}\n", name(at))).collect();
        format!("domain: d\ndescriptors:\n  - key: k\n{before}{limits}").into_bytes()
    };
    let list = || limits("    rate_limits:\n", |_| "- ".into());
    assert!(refused_by("limits", list, rules).contains(&Code::TooManyLimits));
    let tiers = || limits("    tiers:\n", |at| format!("t{at}: "));
    assert_eq!(refused_by("tiers", tiers, rules), [Code::TooManyLimits]);
}
