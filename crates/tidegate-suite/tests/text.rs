//! The text of scripts.

use tidegate_suite::Script;
use tidegate_suite::script::Line;

const EVERYTHING: &str = "\
limit a sliding_window 100/1m
limit b2 sub_window 100/1m k=10 strict charge=always
limit c_d token_bucket 5/1s burst=10
limit p concurrency 20 ttl=1m
limit m calendar 10/week zone=UTC week_start=sunday charge=always
at 0s: a charge 1
at 1500ms: a refund 1 of #0, shadow b2 peek, quota c_d charge 7
at 2s: quota a charge 3, quota b2 charge 1 | a peek | - | p acquire 7 cost 1, p renew 7, p release 7
at 1us: a settle #1 as 4, m refund 3
limit a sliding_window 20/1m
inspect a at 3s
reset a
at 25h: -
";

#[test]
fn what_is_printed_reads_back_the_same() {
    let script: Script = EVERYTHING.parse().expect("a script");
    assert_eq!(script.to_string(), EVERYTHING);
    assert_eq!(format!("{script:?}"), EVERYTHING);
    assert_eq!(Script::new(script.lines().to_vec()), Ok(script));
}

#[test]
fn committed_scripts_read_back_the_same() {
    for (name, script) in tidegate_suite::scripts() {
        assert_eq!(script.to_string().parse(), Ok(script), "{name}");
    }
}

#[test]
fn comments_blank_lines_and_other_units_are_read() {
    let text = "# comment\n\n  limit a fixed_window 9/60s # why\n   #0 is a comment too\n\
                at 0ms:a charge 2,  a  peek|a peek#no comment\n";
    let error = text.parse::<Script>().expect_err("a word runs into the comment").to_string();
    assert!(error.starts_with("line 5: expected `charge <units>`, `peek`"), "{error}");
    let script: Script = text.replace("#no", " # a").parse().expect("a script");
    assert_eq!(script.to_string(), "limit a fixed_window 9/1m\nat 0s: a charge 2, a peek | a peek\n");
}

#[test]
fn errors_name_the_line_and_the_way_out() {
    let limit = "limit a fixed_window 1/1m\n";
    for (text, message) in [
        ("at 5s: a peek", "line 1: expected `limit a …` before `a` is used"),
        ("inspect a at 5s", "line 1: expected `limit a …` before `a` is used"),
        ("\nreset a", "line 2: expected `limit a …` before `a` is used"),
        ("limit", "line 1: expected `limit <name> <limit>`, `at <time>: <requests>`, "),
        ("limit a", "line 1: expected an algorithm and an amount"),
        ("limit a window 1/1m", "line 1: expected one of fixed_window, "),
        ("limit A gcra 1/1m", "line 1: expected a name of lower-case letters"),
        (
            "limit quota gcra 1/1m",
            "line 1: expected a name of lower-case letters, digits and `_` that is no role",
        ),
        (
            "limit a gcra 1/1us",
            "line 1: expected a limit that can be: window 1us is not between 1ms and 366d",
        ),
        (
            "limit a sliding_log 10001/1m",
            "line 1: expected a limit that can be: a sliding log keeps an entry",
        ),
        ("go on", "line 1: expected `limit <name> <limit>`, "),
        (&format!("{limit}at 5s a peek"), "line 2: expected `at <time>: <requests>`, with a colon"),
        (
            &format!("{limit}at 5: a peek"),
            "line 2: expected a time such as 250ms, 10s or 1h instead of \"5\"",
        ),
        (&format!("{limit}at 200000d: a peek"), "line 2: expected a time up to 9007199254740991us"),
        (&format!("{limit}at 5s: a"), "line 2: expected `charge <units>`, `peek`, "),
        (&format!("{limit}at 5s:"), "line 2: expected `[shadow|quota] <name> <operation>` instead of \"\""),
        (
            &format!("{limit}at 5s: a peek,"),
            "line 2: expected `[shadow|quota] <name> <operation>` instead of \"\"",
        ),
        (
            &format!("{limit}at 5s: shadow"),
            "line 2: expected `[shadow|quota] <name> <operation>` instead of \"shadow\"",
        ),
        (&format!("{limit}at 5s: a peek, b peek"), "line 2: expected `limit b …` before `b` is used"),
        (
            &format!("{limit}at 5s: a refund 1 of #0"),
            "line 2: expected an operation on `a` in an earlier line instead of #0",
        ),
        (
            &format!("{limit}at 5s: a charge 1 | a settle #0 as 1"),
            "line 2: expected an operation on `a` in an earlier line",
        ),
        (
            &format!("{limit}at 5s: a acquire 0 cost 1"),
            "line 2: expected an id other than 0, which is nobody's",
        ),
        (&format!("{limit}inspect a"), "line 2: expected `limit <name> <limit>`, "),
        (&format!("{limit}inspect a at noon"), "line 2: expected a time such as"),
    ] {
        let error = text.parse::<Script>().expect_err(text).to_string();
        assert!(error.starts_with(message), "{text:?} gave {error:?}");
    }
}

#[test]
fn lines_are_checked_as_texts_are() {
    let script: Script = EVERYTHING.parse().expect("a script");
    let without_limits: Vec<Line> = script.lines()[4..].to_vec();
    let error = Script::new(without_limits).expect_err("no limit").to_string();
    assert_eq!(error, "line 2: expected `limit a …` before `a` is used");
    let nothing = vec![Line::At { us: 0, requests: Vec::new() }];
    let error = Script::new(nothing).expect_err("no request").to_string();
    assert_eq!(error, "line 1: expected a request; `-` is one without takes");
}
