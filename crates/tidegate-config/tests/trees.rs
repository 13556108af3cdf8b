//! What a text becomes: values, places, aliases, merges, and no panic on anything.

mod support;

use proptest::prelude::*;
use tidegate_config::{Caps, Code, Diagnostic, Node, NodeKind, Sources, Tree, parse};

fn tree(text: &str) -> Result<(Sources, Tree), Diagnostic> {
    with(text.as_bytes(), &Caps::default())
}

fn with(bytes: &[u8], caps: &Caps) -> Result<(Sources, Tree), Diagnostic> {
    let mut sources = Sources::new();
    let source = sources.add("a.yaml", bytes.to_vec())?;
    let tree = parse(source, &sources, caps)?;
    Ok((sources, tree))
}

/// The documents, written in one way whatever the text looked like. Aliases and merges are followed.
fn shown(text: &str) -> String {
    match tree(text) {
        Ok((_, tree)) => tree.documents().map(show).collect::<Vec<_>>().join(" --- "),
        Err(trouble) => trouble.code.to_string(),
    }
}

fn show(node: Node<'_>) -> String {
    match node.kind() {
        NodeKind::Null => "~".into(),
        NodeKind::Scalar if node.plain() => node.text().unwrap_or("?").into(),
        NodeKind::Scalar => format!("{:?}", node.text().unwrap_or("?")),
        NodeKind::List => format!("[{}]", node.items().map(show).collect::<Vec<_>>().join(", ")),
        NodeKind::Map => {
            let entries = node.entries().map(|(key, value)| format!("{}: {}", show(key), show(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

/// How many nodes a walk meets.
fn walked(node: Node<'_>) -> u64 {
    let below: u64 = node.items().map(walked).sum();
    below + node.entries().map(|(key, value)| walked(key) + walked(value)).sum::<u64>() + 1
}

#[test]
fn texts_become_what_they_say() {
    for (text, expected) in [
        ("a: b\nc: [1, \"2\", '3', ~, ]\n", r#"{a: b, c: [1, "2", "3", ~]}"#),
        ("- - a\n  - b\n-\n- c", "[[a, b], ~, c]"),
        ("a: |\n  x\n  y\nb: >-\n  x\n  y\nc: x\n  y\n", r#"{a: "x\ny\n", b: "x y", c: x y}"#),
        ("'it''s': \"a\\tb\"", r#"{"it's": "a\tb"}"#),
        ("a:\nb: null\nc: 'null'\nd: !!str null\ne: !!str\n", r#"{a: ~, b: ~, c: "null", d: "null", e: ""}"#),
        ("\u{feff}a: ä\r\nb: ö\r\n", "{a: ä, b: ö}"),
        ("a\n---\nb\n...\n---\n", "a --- b --- ~"),
        ("", ""),
        ("# only\n", ""),
        ("{a, b: , : c}", "{a: ~, b: ~, ~: c}"),
        ("a: 1\na: 2\n", "{a: 1, a: 2}"),
        ("%TAG ! x\n---\na", "syntax"),
        ("a: !x y", "syntax"),
    ] {
        assert_eq!(shown(text), expected, "{text:?}");
    }
}

#[test]
fn aliases_look_like_what_they_stand_for() {
    for (text, expected) in [
        ("a: &x {b: 1}\nc: *x\nd: [*x, *x]\n", "{a: {b: 1}, c: {b: 1}, d: [{b: 1}, {b: 1}]}"),
        ("- &a 1\n- &a 2\n- *a\n", "[1, 2, 2]"),
        ("&a a: *a\n", "{a: a}"),
        ("- &e\n- *e\n", "[~, ~]"),
        ("&a [*a]", "unknown-anchor"),
        ("&a {b: [{c: *a}]}", "unknown-anchor"),
        ("a: &a 1\n---\nb: *a\n", "unknown-anchor"),
        ("a: *b\nc: &b 1\n", "unknown-anchor"),
        ("a: &a 1\n---\nb: &b 2\nc: *b\n", "{a: 1} --- {b: 2, c: 2}"),
    ] {
        assert_eq!(shown(text), expected, "{text:?}");
    }
}

#[test]
fn merge_keys_work_as_in_yaml_1_1() {
    for (text, expected) in [
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\n", "{a: {b: 1, c: 2}, d: {c: 3, b: 1}}"),
        ("- &x {b: 1}\n- &y {b: 2, c: 3}\n- {<<: [*x, *y]}\n", "[{b: 1}, {b: 2, c: 3}, {b: 1, c: 3}]"),
        ("- &x {b: 1}\n- &y {<<: *x, c: 2}\n- {<<: *y}\n", "[{b: 1}, {c: 2, b: 1}, {c: 2, b: 1}]"),
        ("{a: 1, a: 2, <<: {a: 3, b: 4}}", "{a: 1, a: 2, b: 4}"),
        ("{'<<': 1}", "{\"<<\": 1}"),
        ("[<<]", "[<<]"),
        ("{a: <<}", "{a: <<}"),
        ("{<<: 1}", "bad-merge"),
        ("{<<: [{a: 1}, 2]}", "bad-merge"),
        ("{<<: }", "bad-merge"),
    ] {
        assert_eq!(shown(text), expected, "{text:?}");
    }
}

#[test]
fn places_are_those_of_the_text() -> Result<(), Diagnostic> {
    let text = "a: &x\n  b: 'ä b'\n  c:\n    - 1\n\n# end\nd: *x\ne: [1, 2]\nf:\n- {g: [h]}\n";
    let (sources, tree) = tree(text)?;
    let Some(root) = tree.documents().next() else { return Ok(()) };
    let values: Vec<Node<'_>> = root.entries().map(|(_, value)| value).collect();
    let slices: Vec<&str> = values.iter().map(|value| sources.slice(value.span())).collect();
    assert_eq!(slices, ["b: 'ä b'\n  c:\n    - 1", "*x", "[1, 2]", "{g: [h]}"]);
    assert_eq!(values[1].definition(), values[0].span());
    assert!(values[1].is_alias() && !values[0].is_alias());
    let inner: Vec<&str> = values[1].entries().map(|(key, _)| sources.slice(key.span())).collect();
    assert_eq!(inner, ["b", "c"]);
    Ok(())
}

#[test]
fn what_aliases_stand_for_is_bounded() {
    let caps = Caps { nodes: 100, depth: 10, ..Caps::default() };
    let code = |text: &str| with(text.as_bytes(), &caps).map(|_| ()).map_err(|trouble| trouble.code);
    let chain = |levels: usize| {
        let links = (1..levels).map(|level| format!("- &a{level} [*a{}]\n", level - 1));
        format!("- &a0 [x]\n{}", links.collect::<String>())
    };
    assert_eq!(code(&format!("- &a [{}]\n- *a\n", "x, ".repeat(48))), Ok(()));
    assert_eq!(code(&format!("- &a [{}]\n- *a\n", "x, ".repeat(49))), Err(Code::AliasBomb));
    assert_eq!(code(&"- x\n".repeat(99)), Ok(()));
    assert_eq!(code(&"- x\n".repeat(100)), Err(Code::TooManyNodes));
    assert_eq!(code(&"[".repeat(10).replace('[', "[ ")), Err(Code::Syntax));
    assert_eq!(code(&format!("{}{}", "[".repeat(10), "]".repeat(10))), Ok(()));
    assert_eq!(code(&format!("{}{}", "[".repeat(11), "]".repeat(11))), Err(Code::TooDeep));
    assert_eq!(code(&"- ".repeat(11)), Err(Code::TooDeep));
    // A chain of aliases is as deep as what it stands for, though no line of it is.
    assert_eq!(code(&chain(9)), Ok(()));
    assert_eq!(code(&chain(10)), Err(Code::TooDeep));
}

/// Lists and maps in each other, made of these.
fn values(leaves: &'static [&'static str]) -> impl Strategy<Value = String> {
    let leaf = proptest::sample::select(leaves).prop_map(String::from);
    leaf.prop_recursive(3, 20, 4, |inner| {
        let items = proptest::collection::vec(inner, 0..4);
        let map = |items: &[String]| items.iter().map(|item| format!("k: {item}, ")).collect::<String>();
        let list = items.clone().prop_map(|items| format!("[{}]", items.join(", ")));
        prop_oneof![list, items.prop_map(move |items| format!("{{{}}}", map(&items)))]
    })
}

/// Pieces of YAML, so that random texts reach further than the first letter.
fn yaml() -> impl Strategy<Value = String> {
    let pieces = vec![
        "a", "b: ", "- ", "? ", ": ", "[", "]", "{", "}", ", ", "\n", "\n  ", "\n    ", "&x ", "*x", "&y ",
        "*y", "<<: ", "|\n", ">-\n ", "'", "\"", "\\n", "# c\n", "---\n", "...\n", "!!str ", "!t ", "~", "1",
        "ä", "\t", "\r\n", "\u{feff}", "%A\n",
    ];
    proptest::collection::vec(proptest::sample::select(pieces), 0..40).prop_map(|pieces| pieces.concat())
}

const GOOD: &str = "\
domain: shop
x: &d {unit: minute, n: [1, '2', \"3\\n\"]}
descriptors:
  - key: a
    rate_limit:
      <<: *d
      name: |
        long
";

proptest! {
    #![proptest_config(support::config(4_000))]

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = with(&bytes, &Caps::default());
    }

    #[test]
    fn trees_hold_what_they_promise(text in yaml()) {
        if let Ok((sources, tree)) = tree(&text) {
            let walked: u64 = tree.documents().map(walked).sum();
            // Merging leaves out what is overridden, and the key itself.
            prop_assert!(walked <= tree.expanded(), "{walked} > {}", tree.expanded());
            if !text.contains("<<") {
                prop_assert_eq!(walked, tree.expanded());
            }
            prop_assert!(tree.written() <= tree.expanded());
            for document in tree.documents() {
                spans_hold(&sources, document)?;
            }
        }
    }

    #[test]
    fn what_aliases_stand_for_is_counted(first in values(&["a"]), second in values(&["a", "*x"]), third in values(&["a", "*x", "*y"])) {
        let text = format!("- &x [{first}]\n- &y [{second}]\n- {third}\n");
        let (_, tree) = tree(&text).map_err(|trouble| TestCaseError::fail(format!("{text}: {trouble:?}")))?;
        let walked: u64 = tree.documents().map(walked).sum();
        prop_assert_eq!(walked, tree.expanded(), "{}", text);
    }

    #[test]
    fn mutated_files_make_nothing_panic(at in 0..GOOD.len(), piece in yaml(), cut in 0..20_usize) {
        let end = (at + cut).min(GOOD.len());
        let text = format!("{}{piece}{}", &GOOD[..at], &GOOD[end..]);
        if let Ok((sources, tree)) = tree(&text) {
            for document in tree.documents() {
                spans_hold(&sources, document)?;
            }
        }
    }
}

/// Every span is a piece of the text, and children stand inside of what they belong to.
fn spans_hold(sources: &Sources, node: Node<'_>) -> Result<(), TestCaseError> {
    let text = sources.text(node.span().source);
    for span in [node.span(), node.definition()] {
        prop_assert!(text.get(span.start as usize..span.end as usize).is_some(), "{span:?} of {text:?}");
    }
    let whole = node.definition();
    for item in node.items() {
        let at = item.span();
        prop_assert!(whole.start <= at.start && at.end <= whole.end, "{at:?} not in {whole:?} of {text:?}");
        spans_hold(sources, item)?;
    }
    for (key, value) in node.entries() {
        spans_hold(sources, key)?;
        spans_hold(sources, value)?;
    }
    Ok(())
}
