//! Markdown from the raw numbers. Pure, so that a test can make the published page again.

use tidegate_bench_common::figures::{Spread, median, thousands};
use tidegate_bench_common::mix::Order;
use tidegate_bench_common::plan::{FEW, Load, MANY};

use super::node::{ALLOWING, FAILING, PATIENT};
use super::results::{AccountRow, By, Counters, Over, Results, Round, Row};
use super::spec::{H2SPEC, judged};

/// As near as they have to be.
const NEAR: f64 = 0.2;
/// A core that has nothing left to give; a process also waits for its start and its end.
const FULL: f64 = 0.85;

/// The whole page.
pub(crate) fn markdown(results: &Results) -> String {
    let mut page = head(results);
    for (title, by, load) in
        [("gRPC", By::Ours, FEW), ("gRPC", By::Ours, MANY), ("HTTP check", By::OursHttp, MANY)]
    {
        page += &format!("\n## {title}, {}\n\n{}", load.spoken(), table(results, by, load));
    }
    page += &format!("\n## Every call accounted for\n\n{}", accounts(&results.accounts));
    page += &format!("\n## h2spec\n\n{}", spec(results));
    page += &format!("\n## What was typed\n\n{}", typed(results));
    page
}

fn head(results: &Results) -> String {
    let machine = &results.machine;
    let flag = results.extent.flag().map(|flag| format!("{flag} ")).unwrap_or_default();
    let pinned = if machine.pinned {
        "the node on one, the generator on another"
    } else {
        "nobody had one of their own, so the numbers mean nothing"
    };
    let redis = if machine.redis.is_empty() { String::new() } else { format!(", Redis {}", machine.redis) };
    let mut text = format!(
        "# Checked by strangers\n\n\
         Made by `cargo xtask bench strangers {flag}--write` from the raw numbers in `strangers.json`.{}\n\n\
         {} cores of {}, {pinned}; {}, rustc {}{redis}, commit {}.\n\n\
         One node with counters in its memory, called by our generator and by those that we did not write, in turns; all of them ask the\n\
         same thing again and again, in a closed loop. Figures are medians of the rounds, shares are medians of \
         the ratios within a round.\n\
         *Per second* and latencies are each generator's own word; calls per second of the node's processor are by the node's own count.\n\
         A round where the node counted fewer calls than a generator says it made, or more than were in flight when that stopped\n\
         counting, is no round.\n",
        results.extent.remark(),
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.rustc,
        machine.commit,
    );
    text += &disturbed(results);
    for missing in &results.missing {
        text += &format!("\n**Missing: {}** ({}).\n", missing.name, missing.reason);
    }
    text
}

/// A closed loop of ours fills the node's core; where it did not, others did.
fn disturbed(results: &Results) -> String {
    let ours = row(results, By::Ours, FEW);
    let busy = ours.and_then(|row| Spread::of(row.rounds.iter().map(Round::server_busy)));
    match busy.filter(|busy| busy.median < FULL) {
        Some(busy) => format!(
            "\n**The machine was busy with other work**: under our generator the node got {:.0} % of its core. \
             Times of the processor are\ncompared all the same; latencies are mostly waits for the others' work.\n",
            busy.median * 100.0
        ),
        None => String::new(),
    }
}

fn row(results: &Results, by: By, load: Load) -> Option<&Row> {
    results.rows.iter().find(|row| row.by == by && row.load == load)
}

/// A figure as a share of ours in the same round.
fn share(results: &Results, row: &Row, figure: fn(&Round) -> f64) -> Option<Spread> {
    let ours = self::row(results, row.by.ours(), row.load)?;
    Spread::of(row.rounds.iter().zip(&ours.rounds).map(|(theirs, ours)| figure(theirs) / figure(ours)))
}

fn table(results: &Results, ours: By, load: Load) -> String {
    let mut text = String::from(
        "| generator | per second | × ours | p50 | p99 | per second of the node's processor | × ours | node busy | generator busy | |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for row in results.rows.iter().filter(|row| row.by.ours() == ours && row.load == load) {
        let median = |figure: fn(&Round) -> f64| median(row.rounds.iter().map(figure));
        let spoken = |figure| share(results, row, figure).map_or("-".into(), Spread::spoken);
        text += &format!(
            "| {} | {:.1} k | **{}** | {:.0} µs | {:.0} µs | {:.1} k | {} | {:.0} % | {:.0} % | {} |\n",
            row.by.title(),
            median(Round::per_s) / 1e3,
            spoken(Round::per_s),
            median(|round| round.said.p50_ns as f64) / 1e3,
            median(|round| round.said.p99_ns as f64) / 1e3,
            median(Round::per_cpu_s) / 1e3,
            spoken(Round::per_cpu_s),
            median(Round::server_busy) * 100.0,
            median(Round::generator_busy) * 100.0,
            verdict(results, row),
        );
    }
    text
}

/// Is it near enough, and if not: could it be? Whoever makes fewer calls in a second of its own processor than the node answers in one of
/// its own cannot fill the node's core, however idle the machine. Anything else that is far off is told as such.
fn verdict(results: &Results, row: &Row) -> String {
    if row.by == row.by.ours() {
        return String::new();
    }
    let Some(share) = share(results, row, Round::per_s) else { return "not compared".into() };
    if (share.median - 1.0).abs() <= NEAR {
        return "within 20 %".into();
    }
    let (makes, answers) = (
        median(row.rounds.iter().map(Round::per_generator_cpu_s)),
        median(row.rounds.iter().map(Round::per_cpu_s)),
    );
    if share.median < 1.0 && makes < answers {
        return format!(
            "cannot saturate the node: {:.1} k calls are all that it makes in a second of its own processor; the node answers {:.1} k \
             in one of its own",
            makes / 1e3,
            answers / 1e3
        );
    }
    let full = |figure: fn(&Round) -> f64| median(row.rounds.iter().map(figure)) >= FULL;
    let why = match (full(Round::server_busy), full(Round::generator_busy)) {
        (false, false) => "neither core was full",
        (true, _) => "the node's core was full",
        (false, true) => "its own core was full",
    };
    format!("**further apart than 20 %**, and not explained: {why}")
}

fn accounts(rows: &[AccountRow]) -> String {
    let mut text = String::from(
        "Our generator counts each call once, as allowed, refused, degraded or failed, from the first of a run to the last. The node's\n\
         metrics have to say the same (`ratelimit_requests_total`, `ratelimit_store_failures_total`); the run ends with both sums if they\n\
         do not.",
    );
    if rows.iter().any(|row| row.counters.are_stopped()) {
        text += " *Degraded* is a call that a policy answered, since the store did not: it is counted as nothing else. Where\n\
                 Redis is stopped in the middle (`SIGSTOP` for a third of the time), `on_store_failure` says what becomes of calls: by\n\
                 `allow` they go on uncounted, by `error` they fail. Refusals that the node remembers stay refusals.";
    }
    text += "\n\n\
         | calls | loop | callers | descriptors | cost | allowed | refused | degraded | failed | node: allowed | refused | degraded | \
         failed | calls per second of its processor |\n\
         |---|---|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n";
    for row in rows {
        let up_to = |most: u32| if most == 1 { "1".to_string() } else { format!("1–{most}") };
        let order = match row.mix.order {
            Order::Uniform => "uniform",
            Order::Zipf => "Zipf",
        };
        let (ours, node) = (&row.ours, &row.node);
        text += &format!(
            "| {} | {} | {} k, {order} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.1} k |\n",
            row.name,
            called(row),
            row.mix.callers / 1_000,
            up_to(row.mix.descriptors_max),
            up_to(row.mix.cost_max),
            ours.allowed,
            ours.refused,
            ours.degraded,
            ours.failed,
            node.allowed,
            node.refused,
            node.degraded,
            node.failed,
            ours.calls() as f64 * 1e6 / row.server_cpu_ns.max(1) as f64,
        );
    }
    text
}

/// How: what is spoken, and in which loop.
fn called(row: &AccountRow) -> String {
    let spoken = match row.over {
        Over::Grpc => "gRPC",
        Over::Http => "HTTP",
    };
    match row.rate {
        Some(rate) => format!("{spoken}, open, {} per second", thousands(rate)),
        None => format!("{spoken}, closed"),
    }
}

fn spec(results: &Results) -> String {
    let mut text = format!(
        "h2spec {} sends to a port what HTTP/2 allows and what it does not, and looks at what comes back.\n\n",
        H2SPEC.version
    );
    for port in &results.ports {
        let Some(spec) = &port.spec else {
            text += &format!(
                "- **{}**: speaks HTTP/1.1 only, and closes connections that begin as HTTP/2.\n",
                port.name
            );
            continue;
        };
        let (passed, skipped, failed) = (spec.passed, spec.skipped, spec.failures.len());
        text += &format!("- **{}**: {passed} passed, {failed} failed, {skipped} skipped.\n", port.name);
        for failure in &spec.failures {
            let said = match judged(failure) {
                Some(judged) if judged.matters => format!("**matters**: {}", judged.why),
                Some(judged) => format!("does not matter: {}", judged.why),
                None => "**nobody has looked at it yet**".into(),
            };
            text +=
                &format!("  - `{}` {}: {said}. (Came: {})\n", failure.section, failure.test, failure.actual);
        }
    }
    text
}

fn typed(results: &Results) -> String {
    let mut text = String::from("The node: `tidegate run --node-threads 1`, with its default settings.\n\n");
    for (counters, what, settings) in [
        (Counters::Redis, "on Redis", PATIENT),
        (Counters::StoppedRedis, "on the Redis that is stopped in the middle, where calls go on", ALLOWING),
        (Counters::StoppedRedisError, "on that Redis, where they fail", FAILING),
    ] {
        if results.accounts.iter().any(|row| row.counters == counters) {
            text += &format!("- the node {what}: the same with\n  `--store-url redis://$REDIS {settings}`\n");
        }
    }
    for caller in &results.callers {
        let (title, version) = (caller.by.title(), &caller.version);
        text += &format!("- {title} ({version}):\n  `{}`\n", caller.command);
        if let Some(log) = &caller.log {
            text += &format!(
                "  What calls took it tells only by a log, with a line for each: its latencies are those of runs of their own, with\n  \
                 `{log}` besides{}.\n",
                logged(results, caller.by)
            );
        }
    }
    text
}

/// How much that took of its speed.
fn logged(results: &Results, by: By) -> String {
    let rows = results.rows.iter().filter(|row| row.by == by);
    let shares = rows.filter_map(|row| {
        let ratios = row.rounds.iter().filter_map(|round| Some(round.logged_per_s? as f64 / round.per_s()));
        Some(format!("× {:.2} ({})", Spread::of(ratios)?.median, row.load.spoken()))
    });
    let shares: Vec<String> = shares.collect();
    if shares.is_empty() {
        String::new()
    } else {
        format!(", which made its calls per second {}", shares.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::{Caller, Failure, Port, Said, Spec};
    use super::*;
    use crate::machine::Machine;
    use crate::plan::Extent;

    /// The page cannot say what the numbers do not.
    #[test]
    fn the_published_page_is_made_from_the_published_numbers() {
        let [json, page] = crate::pages::read(["strangers.json", "strangers.md"]);
        let results: Results = serde_json::from_str(&json).expect("raw numbers");
        let again = "make it again: cargo xtask bench strangers --write";
        assert_eq!(markdown(&results), page, "{again}");
        assert_eq!(results.json().expect("JSON"), json, "{again}");
    }

    fn round(calls: u64, server_busy: u64, generator_busy: u64) -> Round {
        let said = Said { calls, wall_ns: 1_000_000_000, p50_ns: 1, p99_ns: 2 };
        let (server_cpu_ns, generator_cpu_ns) = (server_busy * 10_000_000, generator_busy * 10_000_000);
        let (counted, whole_ns, logged_per_s) = (calls, 1_000_000_000, None);
        Round { said, counted, whole_ns, server_cpu_ns, generator_cpu_ns, logged_per_s }
    }

    fn results(rows: &[(By, Round)]) -> Results {
        let machine = Machine { cores: 2, pinned: true, ..Machine::default() };
        let rows = rows.iter().map(|&(by, round)| Row { by, load: FEW, rounds: vec![round] }).collect();
        let (callers, missing, accounts, ports) = (vec![], vec![], vec![], vec![]);
        Results { extent: Extent::Smoke, machine, callers, missing, rows, accounts, ports }
    }

    #[test]
    fn a_generator_is_near_too_slow_itself_or_to_be_explained() {
        for (theirs, expected) in [
            (round(85_000, 99, 60), "within 20 %"),
            (
                round(20_000, 40, 80),
                "cannot saturate the node: 25.0 k calls are all that it makes in a second of its own processor; the node answers \
                 50.0 k in one of its own",
            ),
            // As many calls for the same time of the node's processor are no excuse for fewer in a second.
            (round(40_000, 40, 20), "**further apart than 20 %**, and not explained: neither core was full"),
            (
                round(20_000, 99, 10),
                "**further apart than 20 %**, and not explained: the node's core was full",
            ),
            (
                round(130_000, 99, 40),
                "**further apart than 20 %**, and not explained: the node's core was full",
            ),
        ] {
            let results = results(&[(By::Ours, round(100_000, 99, 30)), (By::Ghz, theirs)]);
            assert_eq!(verdict(&results, &results.rows[1]), expected);
        }
    }

    #[test]
    fn a_failure_that_nobody_has_looked_at_stands_out() {
        let mut results = results(&[(By::Ours, round(100_000, 99, 30))]);
        let failure =
            Failure { section: "http2/9".into(), test: "Sends a surprise".into(), actual: "Timeout".into() };
        let spec = Some(Spec { passed: 144, skipped: 0, failures: vec![failure] });
        results.ports = vec![Port { name: "gRPC".into(), spec }, Port { name: "HTTP".into(), spec: None }];
        let page = markdown(&results);
        assert!(page.contains("`http2/9` Sends a surprise: **nobody has looked at it yet**"), "{page}");
        assert!(page.contains("- **HTTP**: speaks HTTP/1.1 only"), "{page}");
        assert!(!page.contains("busy with other work"), "{page}");
    }

    #[test]
    fn a_row_says_how_it_was_called_and_an_older_one_was_called_over_grpc_in_a_closed_loop() {
        let json = r#"{"name":"a","mix":{"callers":100000,"order":"zipf","descriptors_max":5,"tight_percent":0,"cost_max":1},
            "ours":{"allowed":2,"refused":0,"degraded":1,"failed":0},"node":{"allowed":2,"refused":0,"degraded":1,"failed":0},
            "wall_ns":1,"server_cpu_ns":3000000}"#;
        let row = || serde_json::from_str::<AccountRow>(json).expect("a row");
        let again = serde_json::to_string(&row()).expect("JSON");
        assert!(!again.contains("over") && !again.contains("rate") && !again.contains("counters"), "{again}");
        let http = AccountRow { over: Over::Http, ..row() };
        let open = AccountRow { rate: Some(20_000), counters: Counters::StoppedRedis, ..row() };
        for (row, expected) in [
            (row(), "| a | gRPC, closed | 100 k, Zipf | 1–5 | 1 | 2 | 0 | 1 | 0 | 2 | 0 | 1 | 0 | 1.0 k |"),
            (http, "| a | HTTP, closed | "),
            (open, "| a | gRPC, open, 20 000 per second | "),
        ] {
            let is_stopped = row.counters.are_stopped();
            let mut results = results(&[(By::Ours, round(100_000, 99, 30))]);
            results.accounts = vec![row];
            let page = markdown(&results);
            assert!(page.contains(expected), "{page}");
            assert_eq!(page.contains("--rls-metadata true"), is_stopped, "{page}");
        }
    }

    #[test]
    fn the_page_says_where_latencies_are_from_runs_with_a_log() {
        let theirs = Round { logged_per_s: Some(40_000), ..round(50_000, 40, 80) };
        let mut results = results(&[(By::Ours, round(100_000, 99, 30)), (By::H2load, theirs)]);
        let log = Some("--log-file=log".to_string());
        for (log, has) in [(log, true), (None, false)] {
            let (version, command) = ("1".into(), "h2load -t 1".into());
            results.callers = vec![Caller { by: By::H2load, version, command, log }];
            let page = markdown(&results);
            let told = "with\n  `--log-file=log` besides, which made its calls per second × 0.80 (2 connections × 128 calls).";
            assert_eq!(page.contains(told), has, "{page}");
            let again: Results = serde_json::from_str(&results.json().expect("JSON")).expect("numbers");
            assert_eq!(markdown(&again), page);
        }
    }

    #[test]
    fn a_page_from_a_busy_machine_says_so() {
        let results = results(&[(By::Ours, round(100_000, 50, 30))]);
        assert!(markdown(&results).contains("the node got 50 % of its core"));
    }
}
