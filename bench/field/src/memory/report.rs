//! Markdown from the raw numbers. Pure, so that a test can make the published page again.

use tidegate_bench_common::figures::thousands;

use super::left::LEFT_BYTES_MIN;
use super::results::{Results, Row, Size};
use crate::peers::Rule;

/// From its sources: a caller whose bucket has been empty for so long is forgotten when others come.
const NGINX_REMEMBERS_MS: u64 = 60_000;

/// The whole page.
pub(crate) fn markdown(results: &Results) -> String {
    let mut page = head(results);
    page += &format!("\n## Bytes for each caller\n\n{}", each(results));
    page += &format!("\n## Resident\n\n{}", resident(results));
    page += &format!("\n## In Redis\n\n{}", in_redis(results));
    page += &format!("\n## What a node says of its counters\n\n{}", own(results));
    page += &left_out(results);
    page += "\n## What was measured, and how\n\n";
    page += &how(results);
    page
}

fn head(results: &Results) -> String {
    let machine = &results.machine;
    let flag = results.extent.flag().map(|flag| format!("{flag} ")).unwrap_or_default();
    format!(
        "# What a caller takes of memory\n\n\
         Made by `cargo xtask bench memory {flag}--write` from the raw numbers in `memory.json`.{} It took {} min.\n\n\
         {} cores of {}; {}, rustc {}, {}, Redis {}, commit {}.\n\n\
         One server after the other, with the generator and a Redis beside it. Callers ask once each, all under one limit of {} in an\n\
         hour, so a caller is one counter. A caller who asks under two limits has two counters, and takes twice as much.\n",
        results.extent.remark(),
        results.took_s.div_ceil(60),
        machine.cores,
        machine.cpu,
        machine.kernel,
        machine.rustc,
        machine.go,
        machine.redis,
        machine.commit,
        thousands(Rule::Wide.amount()),
    )
}

/// A table with a column, or some, for each size, and a row for each of the rows.
fn table<'a>(
    results: &Results,
    first: &str,
    heads: &[&str],
    rows: impl Iterator<Item = &'a Row>,
    cells: impl Fn(&Row) -> String,
    figures: impl Fn(&Row, &Size) -> Vec<String>,
) -> String {
    let mut text = format!("|{first}|");
    for callers in &results.sizes {
        let callers = thousands(*callers);
        text += &heads.iter().map(|head| format!(" {callers}{head} |")).collect::<String>();
    }
    text += &format!("\n|{}", "---|".repeat(first.split('|').count()));
    text += &format!("{}\n", "--:|".repeat(results.sizes.len() * heads.len()));
    for row in rows {
        text += &format!("| {}", cells(row));
        for callers in &results.sizes {
            let figures =
                row.of_size(*callers).map_or(vec!["-".into(); heads.len()], |size| figures(row, size));
            text += &figures.iter().map(|figure| format!(" | {figure}")).collect::<String>();
        }
        text += " |\n";
    }
    text
}

fn each(results: &Results) -> String {
    let text = table(
        results,
        " | counts by ",
        &[": grew by", ", all of it"],
        results.rows.iter(),
        |row| format!("{} | {}", row.title, row.algorithm),
        |_, size| {
            // What was set aside at the start is no growth.
            let grown = if size.own.is_some() { "-".into() } else { format!("{:.0}", size.grown_each()) };
            vec![grown, format!("**{:.0}**", size.all_each())]
        },
    );
    text + "\n*Grew by* is what the server's process has more than after its first answer, with connections and buffers. *All of it* is\n\
            the whole process, and all that its Redis has allocated if it counts in one. Both divided by the callers. A node of ours\n\
            takes the memory for all of its counters at its start: only *all of it* means something there, and what it says itself\n\
            (below).\n"
        + &forgetful(results)
}

/// Less would nearly have done.
fn forgetful(results: &Results) -> String {
    let mut text = String::new();
    for row in &results.rows {
        for size in &row.sizes {
            let Some(own) = size.own.filter(|own| own.forgotten() > 0) else { continue };
            text += &format!(
                "\n{} takes **{:.0}** for each of {} with less room, and forgets {} of them (below).\n",
                row.title,
                size.all_each(),
                thousands(size.callers),
                own.forgotten(),
            );
        }
    }
    text
}

fn resident(results: &Results) -> String {
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    table(
        results,
        " ",
        &[": first answer", ", all asked", " in"],
        results.rows.iter(),
        |row| row.title.clone(),
        |_, size| {
            let seconds = size.asked_ms as f64 / 1e3;
            vec![mb(size.rss_start_bytes), mb(size.rss_bytes), format!("{seconds:.1} s")]
        },
    )
}

fn in_redis(results: &Results) -> String {
    let text = table(
        results,
        " ",
        &[": for each", ", all of it"],
        results.rows.iter().filter(|row| row.sizes.iter().any(|size| size.store.is_some())),
        |row| row.title.clone(),
        |_, size| {
            let all =
                size.store.map_or("-".into(), |store| format!("{:.1} MB", store.used_bytes as f64 / 1e6));
            vec![size.store_each().map_or("-".into(), |bytes| format!("**{bytes:.0} bytes**")), all]
        },
    );
    text + "\nWhat Redis says that it has allocated (`used_memory`): key, value, time to live and their share of its tables. *For\n\
            each* is what came to it since the server's first answers, divided by the callers; each server had a Redis of its own,\n\
            with nothing in it.\n"
}

fn own(results: &Results) -> String {
    let mut text = String::from(
        "| | callers | set aside | resident by callers | used of it by keys | keys | forgotten alive |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for row in &results.rows {
        for (size, own) in row.sizes.iter().filter_map(|size| Some((size, size.own.as_ref()?))) {
            let forgotten = match own.forgotten() {
                0 => "0".into(),
                some => format!("**{some}**"),
            };
            text += &format!(
                "| {} | {} | {:.0} MiB | {:.0} bytes | **{:.1} bytes** | {} | {forgotten} |\n",
                row.title,
                thousands(size.callers),
                own.set_aside_bytes as f64 / f64::from(1 << 20),
                size.all_each(),
                own.bytes_per_key(),
                u32::try_from(own.keys).map_or_else(|_| own.keys.to_string(), thousands),
            );
        }
    }
    text + "\nThe table with its free slots and what is in use of the arena, by the keys that are there: `tidegate_counter_bytes` less\n\
            `tidegate_counter_arena_bytes`, and `tidegate_counter_arena_used_bytes`, by `tidegate_keys_live` (`docs/metrics.md`). A\n\
            quarter of `counters.memory` is slots, whatever counts in them: a bucket needs no more than its slot, and the arena stays\n\
            empty. A node that evicted a key alive, or did not remember a charge, is started again with twice as much, as are those\n\
            after it that count by the same algorithm; only the one that forgot nobody is in the other tables. Keys that are charged\n\
            all the time need more: `docs/counters.md`, and `bench/core.md` measures it.\n"
}

fn left_out(results: &Results) -> String {
    let mut text = String::new();
    let one_line = |reason: &str| reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let stopped = results.rows.iter().filter_map(|row| Some((&row.title, row.stopped.as_ref()?)));
    let missing = results.missing.iter().map(|missing| (&missing.title, &missing.reason));
    for (what, reasons) in
        [("Asked for no more", stopped.collect::<Vec<_>>()), ("Missing", missing.collect())]
    {
        if !reasons.is_empty() {
            text += &format!("\n## {what}\n\n");
        }
        for (title, reason) in reasons {
            text += &format!("- **{title}**: {}\n", one_line(reason));
        }
    }
    text
}

fn how(results: &Results) -> String {
    let mut text = format!(
        "- Rules, requests and servers are those of [the comparison](field.md): there, as here, everybody has two limits, and was\n  \
         seen refusing at both before. All callers ask in an order that no cache can guess, 256 calls in flight; the last of them\n  \
         ask for a few callers again.\n\
         - Who counts in its own memory is told at its start how many will come, so it is started anew for each size, and all of them\n  \
         ask. Who counts in Redis is told nothing: the same process goes on, and only the callers that are more ask.\n\
         - Ours has the least `counters.memory` of which three slots in five, or fewer, are for so many keys. nginx has two zones of\n  \
         256 bytes for each caller, of which it uses what it is seen to; throttlecrab-server and Limitador are told to have room for\n  \
         twice as many callers.\n\
         - The default algorithm keeps a charge for the hour of its window. A bucket that is full again is forgotten, by a node of\n  \
         ours and by nginx: so for `token_bucket` a caller asks for half of its limit, which lasts for half an hour. nginx knows no\n  \
         such requests.\n\
         - Who would leave the machine less than {:.0} GB of memory is asked for no more, and named; so is who takes longer than {} min\n  \
         for a size.\n",
        LEFT_BYTES_MIN as f64 / 1e9,
        results.asked_max_s / 60,
    );
    for row in results.rows.iter().filter(|row| row.peer == "nginx") {
        for size in row.sizes.iter().filter(|size| size.asked_ms > NGINX_REMEMBERS_MS) {
            text += &format!(
                "- nginx forgets who has not asked for a minute and has nothing used. {} callers took {:.0} s, so it has not had\n  \
                 all of them at once: its figure for them is too small.\n",
                thousands(size.callers),
                size.asked_ms as f64 / 1e3,
            );
        }
    }
    text += "\n| | version | started by, for the most callers |\n|---|---|---|\n";
    for row in &results.rows {
        text += &format!("| {} | {} | `{}` |\n", row.title, row.version, row.command);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::results::{Missing, Own, StoreSize};
    use super::*;
    use crate::machine::Machine;
    use crate::plan::Extent;

    #[test]
    fn the_published_page_is_made_from_the_published_numbers() {
        let [json, page] = crate::pages::read(["memory.json", "memory.md"]);
        let results: Results = serde_json::from_str(&json).expect("raw numbers");
        let again = "make it again: cargo xtask bench memory --write";
        assert_eq!(markdown(&results), page, "{again}");
        assert_eq!(results.json().expect("JSON"), json, "{again}");
    }

    fn size(callers: u32, rss_bytes: u64) -> Size {
        Size { callers, asked_ms: 61_000, rss_start_bytes: 10_000_000, rss_bytes, ..Size::default() }
    }

    fn row(peer: &str, sizes: Vec<Size>) -> Row {
        let title = format!("Title of {peer}");
        Row { peer: peer.into(), title, algorithm: "some window".into(), sizes, ..Row::default() }
    }

    fn results() -> Results {
        let own = Own {
            set_aside_bytes: 16 << 20,
            arena_bytes: 12 << 20,
            arena_used_bytes: 3_200_000,
            keys: 100_000,
            evicted_live: 0,
            unremembered: 0,
        };
        let store = StoreSize { used_start_bytes: 1_000_000, used_bytes: 21_000_000, keys: 100_000 };
        let stopped = Some("after 250000 of 1000000 callers: the machine\nhas none left".into());
        Results {
            extent: Extent::Quick,
            machine: Machine { cores: 2, ..Machine::default() },
            took_s: 61,
            asked_max_s: 360,
            sizes: vec![100_000, 1_000_000],
            rows: vec![
                row(
                    "tidegate",
                    vec![
                        Size {
                            own: Some(Own { evicted_live: 3, keys: 99_997, ..own }),
                            ..size(100_000, 40_000_000)
                        },
                        Size { own: Some(own), ..size(100_000, 50_000_000) },
                    ],
                ),
                row("redis", vec![Size { store: Some(store), ..size(100_000, 20_000_000) }]),
                row("nginx", vec![size(100_000, 22_900_000), size(1_000_000, 139_000_000)]),
                Row { stopped, ..row("limitador", vec![size(100_000, 125_300_000)]) },
            ],
            missing: vec![Missing { title: "gubernator".into(), reason: "the registry\nsays no".into() }],
        }
    }

    #[test]
    fn a_row_has_every_size_and_whoever_stopped_is_named() {
        let page = markdown(&results());
        for part in [
            "It took 2 min.",
            "| | counts by | 100 000: grew by | 100 000, all of it | 1 000 000: grew by | 1 000 000, all of it |\n",
            "\n|---|---|--:|--:|--:|--:|\n",
            "| Title of tidegate | some window | - | **500** | - | - |",
            "| Title of redis | some window | 100 | **410** | - | - |",
            "| Title of nginx | some window | 129 | **229** | 129 | **139** |",
            "| Title of nginx | 10.0 MB | 22.9 MB | 61.0 s | 10.0 MB | 139.0 MB | 61.0 s |",
            "| Title of limitador | some window | 1153 | **1253** | - | - |",
            "| Title of redis | **200 bytes** | 21.0 MB | - | - |",
            "\nTitle of tidegate takes **400** for each of 100 000 with less room, and forgets 3 of them (below).\n",
            "named; so is who takes longer than 6 min\n",
            "| Title of tidegate | 100 000 | 16 MiB | 400 bytes | **73.9 bytes** | 99 997 | **3** |",
            "| Title of tidegate | 100 000 | 16 MiB | 500 bytes | **73.9 bytes** | 100 000 | 0 |",
            "- **Title of limitador**: after 250000 of 1000000 callers: the machine has none left\n",
            "- **gubernator**: the registry says no\n",
            "1 000 000 callers took 61 s, so it has not had\n  all of them at once",
            "A quick run",
        ] {
            assert!(page.contains(part), "{part}\n\n{page}");
        }
    }

    #[test]
    fn raw_numbers_read_back_as_they_were_written() {
        let json = results().json().expect("JSON");
        let again: Results = serde_json::from_str(&json).expect("raw numbers");
        assert_eq!(again.json().expect("JSON"), json);
    }
}
