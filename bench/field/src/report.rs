//! Markdown from the raw numbers. Pure, so that a test can make the published page again.

use tidegate_bench_common::figures::{Spread, median, thousands};
use tidegate_bench_common::results::Counts;

use crate::figures::{closed_median, closed_ratio, open_median, p99};
use crate::goals;
use crate::measure::PLAIN;
use crate::peers::{self, Family, Peer, Rule};
use crate::plan::{Pace, Plan, Press};
use crate::results::{OpenTurn, Results};

/// What was asked for when the project began, in microseconds. Printed beside what was measured, never asserted.
const P99_MEMORY_US: f64 = 1_000.0;
const P99_REDIS_US: f64 = 5_000.0;

/// The whole page.
pub(crate) fn markdown(results: &Results) -> String {
    let mut page = head(results);
    page += "\n## Goals\n\n| goal | measured | |\n|---|--:|---|\n";
    for goal in goals::all(results) {
        page += &format!("| {} | {} | {} |\n", goal.wish, spoken(goal.measured), goal.word());
    }
    page += "\n## Decisions\n\n";
    let name = results.extent.name();
    page += &format!(
        "![decisions by core]({name}-decisions.svg)\n\n![decisions by core of Redis]({name}-redis.svg)\n"
    );
    for family in Family::ALL {
        page += &decisions(results, family);
    }
    page += &format!("\n## Latency\n\n![p99]({name}-p99.svg)\n\n");
    page += &latency(results);
    page += "\n## Memory and start\n\n";
    page += &memory(results);
    page += "\n## Seen refusing\n\n";
    page += &seen(results);
    page += &missing(results);
    page += "\n## What was measured, and how\n\n";
    page += &how(results);
    page
}

/// What somebody is called.
pub(crate) fn title(word: &str) -> String {
    match peers::named(word) {
        Some(peer) => peer.title().into(),
        None if word == PLAIN => "plain `EVALSHA`, pipelined".into(),
        None => word.into(),
    }
}

fn spoken(spread: Option<Spread>) -> String {
    spread.map_or("-".into(), Spread::spoken)
}

fn head(results: &Results) -> String {
    let machine = &results.machine;
    let pinned = if machine.pinned {
        "the servers on one, the generator and Redis on another"
    } else {
        "nobody had one of their own, so the numbers mean nothing"
    };
    let took =
        results.took_s.map_or(String::new(), |took_s| format!(" It took {} min.", took_s.div_ceil(60)));
    format!(
        "# Side by side\n\n\
         Made by `{}` from the raw numbers in `{}.json`.{}{}\n\n\
         {} cores of {}, {pinned}; {}, rustc {}, {}, Redis {}, commit {}.\n\n\
         A ratio is ours by theirs: in each of {} rounds the mean of our turns just before and just after the peer's, by the peer's; the\n\
         median over the rounds, with the least and the most beside it. Only ratios travel to other machines. In brackets: thousands of\n\
         decisions in a second of the server's own processor time, all its threads together.\n{}",
        results.extent.command(),
        results.extent.name(),
        results.extent.remark(),
        took,
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.rustc,
        machine.go,
        machine.redis,
        machine.commit,
        results.rounds,
        disturbed(results),
    )
}

/// A closed loop fills its core. Where nobody did, others did; where only ours did not, it may be the generator.
fn disturbed(results: &Results) -> String {
    const FILLED: f64 = 0.9;
    let busy = |word: &str| closed_median(results, word, Press::Full, Counts::server_busy).unwrap_or(0.0);
    let ours = busy(Family::Memory.ours());
    let most = words(results, Family::Memory).into_iter().map(busy).fold(0.0, f64::max);
    let percent = ours * 100.0;
    if ours >= FILLED {
        String::new()
    } else if most >= FILLED {
        format!(
            "\n**Our server was not filled**: in closed loops with counters in memory it worked {percent:.0} % of the time, and others of \
             the same\nrun more. Either the generator is too slow for it or the machine did something else. Times of the processor \
             are compared; half of\nwhat it was seen to do is less than half of what it can do.\n"
        )
    } else {
        format!(
            "\n**The machine was busy with other work**: in closed loops our server got {percent:.0} % of its core. Times of the \
             processor are\ncompared all the same; latencies are mostly waits for others' work, and shares of saturation are \
             shares of what was left.\n"
        )
    }
}

/// The words of a family, ours first, and the plain client with those in Redis.
fn words(results: &Results, family: Family) -> Vec<&str> {
    let is_in = |word: &str| peers::named(word).is_some_and(|peer| peer.family() == family);
    let mut words: Vec<&str> =
        results.peers.iter().map(|row| &*row.peer).filter(|word| is_in(word)).collect();
    if family == Family::Redis && results.closed.iter().any(|turn| turn.peer == PLAIN) {
        words.push(PLAIN);
    }
    words
}

fn decisions(results: &Results, family: Family) -> String {
    let few = if family == Family::Http { "256 × 1" } else { "2 × 128" };
    let mut text = format!(
        "\n### {}\n\n| | ours by theirs, {few} | decisions by core | per second | processor for each | server busy \
         | ours by theirs, 64 × 1 | decisions by core |",
        family.title()
    );
    let in_redis = family == Family::Redis;
    text += if in_redis { " ours by theirs, Redis' core | decisions by Redis' core |\n" } else { "\n" };
    text += if in_redis {
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    } else {
        "|---|--:|--:|--:|--:|--:|--:|--:|\n"
    };
    for word in words(results, family) {
        let is_ours = word == family.ours();
        let ratio = |press, figure: fn(&Counts) -> f64| match is_ours {
            true => "1".to_string(),
            false => spoken(closed_ratio(results, family.ours(), word, press, figure)),
        };
        let of = |press, figure: fn(&Counts) -> f64| closed_median(results, word, press, figure);
        let has_server = of(Press::Full, |counts| counts.server_cpu_ns as f64).is_some_and(|ns| ns > 0.0);
        let by_server = |text: String| if has_server { text } else { "-".to_string() };
        let kilo = |value: Option<f64>| value.map_or("-".into(), |value| format!("[{:.1}]", value / 1e3));
        text += &format!(
            "| {} | **{}** | {} | {} | {} | {} | {} | {} |",
            title(word),
            by_server(ratio(Press::Full, Counts::per_cpu_s)),
            by_server(kilo(of(Press::Full, Counts::per_cpu_s))),
            of(Press::Full, Counts::per_s).map_or("-".into(), |value| format!("{:.1} k", value / 1e3)),
            by_server(
                of(Press::Full, |counts| 1e6 / counts.per_cpu_s())
                    .map_or("-".into(), |us| format!("{us:.1} µs"))
            ),
            by_server(
                of(Press::Full, Counts::server_busy)
                    .map_or("-".into(), |busy| format!("{:.0} %", busy * 100.0))
            ),
            ratio(Press::Many, Counts::per_cpu_s),
            kilo(of(Press::Many, Counts::per_cpu_s)),
        );
        if in_redis {
            let by_store = ratio(Press::Full, Counts::per_store_cpu_s);
            text += &format!(" **{by_store}** | {} |", kilo(of(Press::Full, Counts::per_store_cpu_s)));
        }
        text.push('\n');
    }
    if in_redis {
        let beside =
            spoken(closed_ratio(results, Family::Memory.ours(), "reference", Press::Full, Counts::per_cpu_s));
        text += &format!(
            "\nOurs with counters in memory, by envoyproxy/ratelimit, which has them only in Redis: **{beside}**.\n"
        );
    }
    text
}

fn latency(results: &Results) -> String {
    let mut text = String::from(
        "At 50 % and at 80 % of what the same server could do itself (256 calls in flight), each call due at a fixed time and its latency \
         counted\nfrom then on, also if it had to wait. *Late* is how much of that was over before a call began (p99): nobody ran on the \
         generator's core, or\n256 calls were in flight already. The target is what was asked for of p99 when the project began; it is for \
         ours.\n\n\
         | | calls per second | p50 | p99 | p99.9 | late | calls per second | p50 | p99 | p99.9 | late | target |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for family in Family::ALL {
        for word in words(results, family).into_iter().filter(|word| *word != PLAIN) {
            text += &format!("| {} |", title(word));
            for pace in Pace::ALL {
                let of = |figure: fn(&OpenTurn) -> f64| open_median(results, word, pace, figure);
                let us = |value: Option<f64>| value.map_or("-".into(), |ns| format!("{:.0} µs", ns / 1e3));
                let rate = of(|turn| f64::from(turn.rate));
                text += &format!(
                    " {} | {} | **{}** | {} | {} |",
                    rate.map_or("-".into(), |rate| thousands(rate as u32)),
                    us(of(|turn| turn.latency.p50_ns as f64)),
                    us(of(p99)),
                    us(of(|turn| turn.latency.p999_ns as f64)),
                    us(of(|turn| turn.latency.late_p99_ns as f64)),
                );
            }
            text += &format!(" {} |\n", target(results, family, word));
        }
    }
    text
}

fn target(results: &Results, family: Family, word: &str) -> String {
    if word != family.ours() {
        return String::new();
    }
    let most_us = if family == Family::Redis { P99_REDIS_US } else { P99_MEMORY_US };
    let measured = open_median(results, word, Pace::Half, p99);
    let word =
        measured.map_or("not measured", |ns| if ns / 1e3 <= most_us { "kept" } else { "**not kept**" });
    format!("{:.0} ms at 50 %: {word}", most_us / 1e3)
}

fn memory(results: &Results) -> String {
    let mut text = format!(
        "| | resident at start | after {} callers | for each | start to first answer |\n|---|--:|--:|--:|--:|\n",
        thousands(results.keys)
    );
    for row in &results.peers {
        let (start, filled) = (row.rss_start_bytes as f64, row.rss_bytes as f64);
        let grows = |peer: &dyn Peer| {
            peer.family() != Family::Redis && peer.refuses() && peer.word() != peer.family().ours()
        };
        let each = match peers::named(&row.peer).is_some_and(grows) {
            true => format!("{:.0} bytes", (filled - start).max(0.0) / f64::from(results.keys.max(1))),
            false => "-".into(),
        };
        text += &format!(
            "| {} | {:.1} MB | {:.1} MB | {each} | {:.0} ms |\n",
            title(&row.peer),
            start / 1e6,
            filled / 1e6,
            median(row.start_ns.iter().map(|ns| *ns as f64)) / 1e6,
        );
    }
    text + "\n*For each* is what the process grew by, with connections and buffers: a sense of size. Ours has a table of a fixed\n\
            size, and takes the memory for all of it in its first second, so that its growth says nothing. What a caller takes of it,\n\
            and of everybody's memory with up to ten million callers, is in [memory.md](memory.md).\n"
}

fn seen(results: &Results) -> String {
    let mut text = format!(
        "Before anything is timed, one caller asks for more than its limit of {} in a second; and one of those by whom everybody is timed\n\
         takes all of the limit that counts then by one request, and asks for more: it stays refused while the others are timed. Who was\n\
         not seen refusing is not timed. nginx knows no request for several units, so it was seen refusing a caller of its own only.\n\n\
         | | counts by | asked | admitted | refused | in | asked behind all | refused |\n|---|---|--:|--:|--:|--:|--:|--:|\n",
        Rule::Tight.amount()
    );
    for row in &results.peers {
        let algorithm = peers::named(&row.peer).map_or("-", |peer| peer.algorithm());
        let figures = match row.seen {
            Some(seen) => format!(
                "{} | {} | {} | {:.0} ms",
                seen.asked,
                seen.admitted,
                seen.asked - seen.admitted,
                seen.wall_ns as f64 / 1e6
            ),
            None => "- | - | - | -".into(),
        };
        let behind = match row.seen_timed {
            Some(seen) => format!("{} | {}", seen.asked - 1, seen.asked - seen.admitted),
            None => "- | -".into(),
        };
        text += &format!("| {} | {algorithm} | {figures} | {behind} |\n", title(&row.peer));
    }
    text
}

fn missing(results: &Results) -> String {
    let mut text = String::new();
    if !results.missing.is_empty() {
        text += "\n## Missing\n\n";
        for missing in &results.missing {
            text += &format!("- **{}**: {}\n", title(&missing.peer), missing.reason.replace('\n', " "));
        }
    }
    if !results.broken.is_empty() {
        text += &format!("\n## Turns that are left out\n\n{} of them:\n\n", results.broken.len());
        let mut distinct = results.broken.clone();
        distinct.sort();
        distinct.dedup();
        for broken in distinct {
            text += &format!("- {}\n", broken.replace('\n', " "));
        }
    }
    text
}

fn how(results: &Results) -> String {
    let at_once = match Plan::of(results.extent).groups {
        [_] => "All serve during the whole run",
        _ => "All of a table serve at once, one table after the other,",
    };
    let mut text = format!(
        "- Everybody has two limits for each caller: {} in a second, and {} in an hour, which nobody reaches while anything is timed\n  \
         but the one who was to. nginx can say whole requests per second only, each for one. throttlecrab-server is told the limit with\n  \
         each request; over RESP it could be sent several on a connection at a time, and is sent one, as over HTTP.\n\
         - {} callers, one descriptor with one entry each, in an order that no cache can guess; the same for everybody, encoded before.\n\
         - Each server is a process of its own on one core, with one thread that works where it can be told so; the generator has the\n  \
         other core, with Redis. {at_once} and have their turns one after the other, every other round backwards.\n\
         - A turn with a single call that fails is left out, and named.\n\
         - Limitador's own server is in no registry: its library answers in a thin server of ours, tonic on a runtime of one thread, as\n  \
         the bare one that decides nothing.\n\
         - The plain client sends Redis the very scripts that Tidegate sends, 128 in flight, one decision each.\n\
         - nginx answers from a file of three bytes behind `limit_req`, as one process.\n\n\
         | | version | started by |\n|---|---|---|\n",
        thousands(Rule::Tight.amount()),
        thousands(Rule::Wide.amount()),
        thousands(results.keys),
    );
    for row in &results.peers {
        text += &format!("| {} | {} | `{}` |\n", title(&row.peer), row.version, row.command);
    }
    text
}

#[cfg(test)]
mod tests;
