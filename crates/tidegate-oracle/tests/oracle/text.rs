//! The text form.

use tidegate_oracle::{Line, Op, Script, Spec};

const EVERYTHING: &str = "\
limit sliding_window 100/1m
limit sliding_window 100/1m strict charge=always
limit sub_window 100/1m k=10 strict
limit token_bucket 100/1m burst=20
limit gcra 1/1500ms
limit leaky_bucket 7/90s burst=3 charge=always
limit fixed_window 0/366d
limit sliding_log 4294967295/1ms
limit sliding_window_counter 10/1001us
limit concurrency 20 ttl=1m
limit calendar 1000/month zone=America/New_York
limit calendar 10/week zone=UTC week_start=sunday charge=always
limit calendar 10/day zone=Asia/Kathmandu
at 0s peek
at 15s charge 5
at 20s refund 3
at 20s refund 3 of #0
at 30s settle #0 as 4
at 30001us acquire 7 cost 1
at 25h renew 7
at 1d release 7
";

#[test]
fn what_is_printed_reads_back_the_same() {
    let script: Script = EVERYTHING.parse().expect("a script");
    assert_eq!(script.to_string(), EVERYTHING);
    assert_eq!(format!("{script:?}"), EVERYTHING);
    assert_eq!(script.to_string().parse::<Script>(), Ok(script));
}

#[test]
fn comments_blank_lines_and_other_units_are_read() {
    let text = "# comment\n\n  limit sliding_window 100/60s\n   # at 5s peek\n at 15000ms charge 5\n";
    let script: Script = text.parse().expect("a script");
    assert_eq!(script.to_string(), "limit sliding_window 100/1m\nat 15s charge 5\n");
    assert_eq!(script.lines[1], Line::At { us: 15_000_000, op: Op::Charge { cost: 5 } });
}

#[test]
fn defaults_are_filled_in() {
    let script: Script = "limit concurrency 5\nlimit calendar 1/week zone=UTC".parse().expect("a script");
    assert_eq!(script.to_string(), "limit concurrency 5 ttl=1m\nlimit calendar 1/week zone=UTC\n");
    let Line::Limit(Spec { ttl_us, window_us, .. }) = &script.lines[0] else { panic!("a limit") };
    assert_eq!((*ttl_us, *window_us), (60_000_000, 0));
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    let limit = "limit fixed_window 1/1m\n";
    for (text, message) in [
        ("at 5s peek", "line 1: expected a limit before the first operation"),
        ("\nlimit", "line 2: expected an algorithm and an amount"),
        ("limit window 1/1m", "line 1: expected one of fixed_window, "),
        ("limit gcra 1", "line 1: expected <amount>/<window> instead of \"1\""),
        ("limit gcra x/1m", "line 1: expected a number of units instead of \"x\""),
        ("limit gcra 1/1y", "line 1: expected a window such as 250ms, 10s or 1h instead of \"1y\""),
        ("limit gcra 1/0s", "line 1: expected a window"),
        ("limit gcra 1/300000000000000d", "line 1: expected a window"),
        ("limit gcra 1/1m strict", "line 1: expected an option of gcra instead of \"strict\""),
        ("limit sub_window 1/1m k=0", "line 1: expected a number of sub-windows"),
        ("limit calendar 1/year zone=UTC", "line 1: expected <amount>/day, /week or /month"),
        ("limit calendar 1/day", "line 1: expected zone=<time zone>"),
        ("limit calendar 1/day zone=Mars/Olympus", "line 1: expected a time zone of the tz database"),
        ("limit calendar 1/day zone=UTC week_start=sunday", "line 1: expected an option of calendar"),
        ("limit calendar 1/week zone=UTC week_start=someday", "line 1: expected a day from monday to sunday"),
        ("go 5s", "line 1: expected `limit <limit>` or `at <time> <operation>`"),
        (&format!("{limit}at 5 peek"), "line 2: expected a time such as"),
        (&format!("{limit}at 5s charge"), "line 2: expected `charge <units>`, `peek`,"),
        (&format!("{limit}at 5s charge -1"), "line 2: expected a whole number instead of \"-1\""),
        (&format!("{limit}at 5s settle 0 as 1"), "line 2: expected an operation such as #0 instead of \"0\""),
    ] {
        let error = text.parse::<Script>().expect_err(text).to_string();
        assert!(error.starts_with(message), "{text:?} gave {error:?}");
    }
}

#[test]
fn a_limit_and_an_operation_are_read_alone() {
    assert_eq!(
        "gcra 5/1500ms burst=9".parse::<Spec>().map(|spec| spec.to_string()),
        Ok("gcra 5/1500ms burst=9".to_owned())
    );
    assert_eq!("refund 3 of #2".parse(), Ok(Op::Refund { units: 3, of: Some(2) }));
    let error = "charge".parse::<Op>().expect_err("no units").to_string();
    assert!(error.starts_with("line 1: expected `charge <units>`"), "{error}");
}
