//! Every call accounted for: mixes of callers, descriptors and costs, over gRPC and HTTP, in closed loops and an open one, with counters in
//! memory and in a Redis that may be stopped meanwhile. What the generator counted has to be what the node counted.

use std::time::Duration;

use serde_json::json;
use tidegate_bench_common::accounting::Account;
use tidegate_bench_common::generator::{self, Calls};
use tidegate_bench_common::mix::{Mix, Order};
use tidegate_bench_common::pin::Cores;
use tidegate_bench_common::plan::{FEW, MANY, Span};
use tidegate_bench_common::process::Entrance;
use tidegate_bench_common::requests::Requests;
use tidegate_bench_common::results::Counts;
use tidegate_bench_common::speech::Speech;
use tidegate_bench_common::store::Store;
use tidegate_bench_common::tally::Tally;
use tidegate_bench_common::witness::{self, Until};
use tidegate_clock::Stopwatch;

use super::node::{ALLOWING, DOMAIN, FAILING, Node, PATIENT, TIGHT, WIDE};
use super::results::{AccountRow, Counters, Over};
use crate::wait::wait;

/// How many distinct requests are drawn; after the last comes the first.
const REQUESTS: usize = 100_000;
/// Far below what a node answers: in an open loop nothing is to pile up.
const OPEN_RATE: u32 = 20_000;
/// How long a store is stopped at least: a call that it does not answer is given up after 12 ms, on a busy machine later.
const STOP_MIN: Duration = Duration::from_millis(200);

const PLAIN: Mix =
    Mix { callers: 100_000, order: Order::Uniform, descriptors_max: 1, tight_percent: 0, cost_max: 1 };
/// All that there is.
const LARGEST: Mix = Mix { order: Order::Zipf, descriptors_max: 5, tight_percent: 20, cost_max: 10, ..PLAIN };

/// What is asked, and how.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    mix: Mix,
    over: Over,
    /// Calls per second of an open loop.
    rate: Option<u32>,
    counters: Counters,
}

impl Case {
    const fn closed(name: &'static str, mix: Mix) -> Self {
        Self { name, mix, over: Over::Grpc, rate: None, counters: Counters::Memory }
    }
}

/// In the order of the page.
const CASES: [Case; 10] = [
    Case::closed("many callers, each alike", PLAIN),
    Case::closed("few often, most seldom", Mix { order: Order::Zipf, ..PLAIN }),
    Case::closed("1 to 5 descriptors", Mix { tight_percent: 0, cost_max: 1, ..LARGEST }),
    Case::closed("some refused", Mix { cost_max: 1, ..LARGEST }),
    Case::closed("… and 1 to 10 units", LARGEST),
    Case { rate: Some(OPEN_RATE), ..Case::closed("the same in an open loop", LARGEST) },
    Case { over: Over::Http, ..Case::closed("the same over HTTP", LARGEST) },
    Case { counters: Counters::Redis, ..Case::closed("the same, counters in Redis", LARGEST) },
    Case {
        counters: Counters::StoppedRedis,
        ..Case::closed("the same, Redis stopped in the middle", LARGEST)
    },
    Case { counters: Counters::StoppedRedisError, ..Case::closed("the same, calls fail meanwhile", LARGEST) },
];

/// Calls the node with each mix for a time, and other nodes where they are to count elsewhere. Ends badly where the sums differ.
pub(crate) fn all(
    node: &Node,
    store: &Store,
    cores: Option<Cores>,
    lasts: Duration,
) -> Result<Vec<AccountRow>, String> {
    // Memory that is touched for the first time has to be cleared by the system, which takes longer than any decision.
    eprintln!("every key of the mixes is asked for once");
    let all_once = |calls: &Calls<'_>| generator::closed(calls, FEW, Span::NONE, Some(REQUESTS as u64));
    call(node, &Case::closed("every key", PLAIN), |calls| all_once(calls).map(Called::of))?;
    let mut rows = Vec::new();
    for case in &CASES {
        eprintln!("accounted: {}", case.name);
        let row = match case.counters {
            Counters::Memory => call(node, case, |calls| kept_up(calls, case, lasts)),
            Counters::Redis => Node::start_on(cores, store, PATIENT)
                .and_then(|node| call(&node, case, |calls| kept_up(calls, case, lasts))),
            Counters::StoppedRedis => Node::start_on(cores, store, ALLOWING)
                .and_then(|node| call(&node, case, |calls| stopped(calls, case, store, lasts))),
            Counters::StoppedRedisError => Node::start_on(cores, store, FAILING)
                .and_then(|node| call(&node, case, |calls| stopped(calls, case, store, lasts))),
        };
        rows.push(row.map_err(|error| format!("{}: {error}", case.name))?);
    }
    Ok(rows)
}

/// What our generator did: all of its calls, and what they took.
struct Called {
    tally: Tally,
    wall_ns: u64,
    server_cpu_ns: u64,
}

impl Called {
    /// Those that were not measured took as long as those that were.
    fn of(counts: Counts) -> Self {
        let all = |ns: u64| ns * counts.all.calls() / counts.calls.max(1);
        Self { tally: counts.all, wall_ns: all(counts.wall_ns), server_cpu_ns: all(counts.server_cpu_ns) }
    }
}

fn call(
    node: &Node,
    case: &Case,
    work: impl FnOnce(&Calls<'_>) -> Result<Called, String>,
) -> Result<AccountRow, String> {
    let requests = drawn(case.mix, case.over);
    let (address, entrance) = match case.over {
        Over::Grpc => (node.process.address, Entrance::Rls),
        Over::Http => (node.http, Entrance::Http),
    };
    let used = || node.used();
    let account = Account::open(node.http, entrance)?;
    let called = work(&Calls { address, requests: &requests, first: 0, used: &used })?;
    let told = account.close(&called.tally)?;
    Ok(AccountRow {
        name: case.name.into(),
        mix: case.mix,
        over: case.over,
        rate: case.rate,
        counters: case.counters,
        ours: called.tally,
        node: told,
        wall_ns: called.wall_ns,
        server_cpu_ns: called.server_cpu_ns,
    })
}

/// A load that is kept up for a time. A call that fails, or that nobody counted, ends it.
fn kept_up(calls: &Calls<'_>, case: &Case, lasts: Duration) -> Result<Called, String> {
    let span = Span { warm: lasts / 10, measured: lasts };
    let load = if case.over == Over::Http { MANY } else { FEW };
    let counts = match case.rate {
        Some(rate) => generator::open(calls, load, rate, span)?.0,
        None => generator::closed(calls, load, span, None)?,
    };
    Ok(Called::of(counts))
}

/// One during which the store is stopped for the second third of the time.
fn stopped(calls: &Calls<'_>, case: &Case, store: &Store, lasts: Duration) -> Result<Called, String> {
    let third = (lasts / 3).max(STOP_MIN);
    let (watch, before) = (Stopwatch::start(), (calls.used)()?);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait(third);
            store.server().stop();
            wait(third);
            store.server().cont();
        });
        witness::watch(calls, FEW, &watch, Until::time(third * 3))
    })?;
    let (wall_ns, tally) = (watch.elapsed().as_nanos() as u64, witness::tally(&seen));
    shows_both(case.counters, &tally)?;
    let server_cpu_ns = (calls.used)()?.server_cpu_ns.saturating_sub(before.server_cpu_ns);
    Ok(Called { tally, wall_ns, server_cpu_ns })
}

/// Some were counted and some were not, or else nothing was shown. What becomes of those the policy says, and of no others.
fn shows_both(counters: Counters, tally: &Tally) -> Result<(), String> {
    let (meant, others) = match counters {
        Counters::StoppedRedisError => (tally.failed, tally.degraded),
        _ => (tally.degraded, tally.failed),
    };
    if tally.allowed == 0 || meant == 0 || others > 0 {
        return Err(format!("{tally}, while the store was stopped for a while: that shows nothing"));
    }
    Ok(())
}

fn drawn(mix: Mix, over: Over) -> Requests {
    let mut requests = match over {
        Over::Grpc => Requests::of(Speech::Rls),
        Over::Http => Requests::of(Speech::HttpBody),
    };
    for draw in mix.draw(REQUESTS) {
        let callers: Vec<String> =
            draw.descriptors.iter().map(|(caller, _)| format!("user-{caller:08}")).collect();
        let entries: Vec<[(&str, &str); 1]> = (draw.descriptors.iter().zip(&callers))
            .map(|((_, is_tight), caller)| [(if *is_tight { TIGHT } else { WIDE }, caller.as_str())])
            .collect();
        let descriptors: Vec<&[(&str, &str)]> = entries.iter().map(<[_; 1]>::as_slice).collect();
        match over {
            Over::Grpc => requests.push_all(DOMAIN, &descriptors, draw.cost),
            Over::Http => requests.push_post("/v1/check", &body(&descriptors, draw.cost)),
        }
    }
    requests
}

/// The same as JSON.
fn body(descriptors: &[&[(&str, &str)]], cost: u32) -> String {
    let entry = |(key, value): &(&str, &str)| json!({ "key": key, "value": value });
    let entries = |entries: &&[(&str, &str)]| entries.iter().map(entry).collect::<Vec<_>>();
    let descriptor = |one: &&[(&str, &str)]| json!({ "entries": entries(one) });
    let descriptors: Vec<_> = descriptors.iter().map(descriptor).collect();
    json!({ "domain": DOMAIN, "descriptors": descriptors, "hitsAddend": cost }).to_string()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use serde_json::Value;
    use tidegate_bench_common::messages::RateLimitRequest;
    use tidegate_bench_common::requests::PREFIX_BYTES;

    use super::*;

    #[test]
    fn requests_are_what_the_mix_says_over_grpc_and_over_http() {
        let (grpc, http) = (drawn(LARGEST, Over::Grpc), drawn(LARGEST, Over::Http));
        let (mut descriptors_most, mut cost_most, mut tight) = (0, 0, 0);
        for number in 0..1_000 {
            let message = RateLimitRequest::decode(&grpc.get(number)[PREFIX_BYTES..]).expect("a request");
            descriptors_most = descriptors_most.max(message.descriptors.len());
            cost_most = cost_most.max(message.hits_addend);
            tight +=
                message.descriptors.iter().filter(|descriptor| descriptor.entries[0].key == TIGHT).count();
            let text = String::from_utf8_lossy(http.get(number)).into_owned();
            let (head, body) = text.split_once("\r\n\r\n").expect("a body");
            assert!(head.starts_with("POST /v1/check HTTP/1.1\r\n"), "{head}");
            let body: Value = serde_json::from_str(body).expect("JSON");
            assert_eq!(body["domain"], message.domain);
            assert_eq!(body["hitsAddend"], message.hits_addend);
            let said = body["descriptors"].as_array().expect("descriptors").iter();
            let said = said.map(|one| (one["entries"][0]["key"].clone(), one["entries"][0]["value"].clone()));
            let meant = message.descriptors.iter().map(|one| &one.entries[0]);
            assert!(said.eq(meant.map(|entry| (entry.key.clone().into(), entry.value.clone().into()))));
        }
        assert_eq!((descriptors_most, cost_most), (5, 10));
        assert!((450..750).contains(&tight), "a fifth of some three thousand: {tight}");
    }

    #[test]
    fn a_stop_that_nobody_noticed_shows_nothing() {
        let tally = |allowed, degraded, failed| Tally { allowed, refused: 3, degraded, failed };
        for (tally, goes_on, fails) in [
            (tally(5, 2, 0), true, false),
            (tally(5, 0, 2), false, true),
            (tally(5, 0, 0), false, false),
            (tally(0, 2, 0), false, false),
            (tally(0, 0, 2), false, false),
            (tally(5, 2, 1), false, false),
        ] {
            assert_eq!(shows_both(Counters::StoppedRedis, &tally).is_ok(), goes_on, "{tally}");
            assert_eq!(shows_both(Counters::StoppedRedisError, &tally).is_ok(), fails, "{tally}");
        }
    }

    #[test]
    fn every_way_to_call_and_to_count_has_a_row() {
        let has = |is: fn(&Case) -> bool| CASES.iter().any(is);
        assert!(has(|case| case.over == Over::Http) && has(|case| case.rate.is_some()));
        assert!(has(|case| case.counters == Counters::Redis));
        assert!(has(|case| case.counters == Counters::StoppedRedis));
        assert!(has(|case| case.counters == Counters::StoppedRedisError));
    }
}
