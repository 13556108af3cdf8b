//! What a user of the store has to be allowed: as much as the documents say, and no more.

use tidegate_core::{Ask, Secret};
use tidegate_counters::{Batch, Counters as _};
use tidegate_testbed::{Kind, Reply, Server};

use crate::support::{
    Counter, HOUR, PATIENT, ask, cluster, every_algorithm, now, one_on_each, server, store, troubles, used,
    with,
};

/// What nodes tell each other about.
const NEWS: &str = "control";

/// The command that the documents show, with a password.
fn shown() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md");
    let text = std::fs::read_to_string(path).expect("the document");
    let line = text.lines().find(|line| line.starts_with("ACL SETUSER ")).expect("the command");
    line.replace(">…", ">word").split_whitespace().map(String::from).collect()
}

/// Does all that a node does to a store, as the user of the documents. The servers keep a list of what they refused.
fn is_enough(servers: &[&Server], url: &str, counters_on: &[Counter], is_replicated: bool) {
    for server in servers {
        assert_eq!(server.command(&shown()).error(), None);
    }
    let store = store(&url.replacen("://", "://tidegate:word@", 1), PATIENT);
    with(&store, async |counters| {
        assert!(counters.agree_on_secret(Secret::new([7; 16])).await.is_ok());
        assert_eq!(counters.join(1).await, Ok(1));
        for (number, (name, limit)) in every_algorithm(10, HOUR).into_iter().enumerate() {
            let takes: Vec<_> =
                counters_on.iter().map(|counter| counter.beside(number as u32).charge(&limit, 1)).collect();
            let told = ask(counters, &takes).await.unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(told.admitted, "{name}");
            let one = counters_on[0].beside(number as u32);
            assert_eq!(used(counters, one, &limit).await, 1, "{name}");
            let given_back =
                ask(counters, &[one.take(&limit, Ask::Refund { units: 1, receipt: None })]).await;
            assert!(given_back.is_ok(), "{name}: {given_back:?}");
            assert!(counters.reset(one.key, one.tag).await.is_ok(), "{name}");
            if is_replicated {
                let mut batch = Batch::new();
                batch.push([one.charge(&limit, 1)]);
                batch.replicate();
                counters.take(&mut batch, now()).await;
                assert_eq!(batch.failure(0), None, "{name}");
            }
        }
        counters.survey().await;
        let mut ears = counters.hear_news(NEWS).await.unwrap_or_else(|why| panic!("{why:?}"));
        assert_eq!(counters.tell_news(NEWS, "7").await, Ok(1));
        assert_eq!(tokio::time::timeout(PATIENT, ears.hear()).await, Ok(Ok(())));
    });
    let stats = store.stats();
    assert!(stats.servers.iter().any(|server| server.evicted_keys.is_some()), "{stats:?}");
    assert_eq!((troubles(&store, "auth"), stats.disagreements), (0, 0));
    for server in servers {
        assert_eq!(server.command(&["ACL", "LOG"]), Reply::Array(Vec::new()), "something was refused");
    }
}

#[test]
fn the_rights_that_the_documents_ask_for_are_enough() {
    for kind in Kind::ALL {
        let one = server(kind);
        is_enough(&[&one], &one.url(), &[Counter::of(1), Counter::of(2)], false);
        let cluster = cluster(kind, 1);
        let servers: Vec<&Server> = cluster.servers().iter().collect();
        is_enough(&servers, &cluster.url(), &one_on_each(&cluster, 0), true);
    }
}

#[test]
fn edits_are_told_and_heard_of_by_the_rights_for_that_and_nothing_else_is() {
    for kind in Kind::ALL {
        let server = server(kind);
        for (left_out, about, tells, hears) in [
            ("", NEWS, true, true),
            ("+publish", NEWS, false, true),
            ("+subscribe", NEWS, true, false),
            ("&tg:control", NEWS, false, false),
            ("", "other", false, false),
        ] {
            server.command(&["ACL", "DELUSER", "tidegate"]);
            let words: Vec<String> = shown().into_iter().filter(|word| word != left_out).collect();
            assert_eq!(words.len(), shown().len() - usize::from(!left_out.is_empty()), "{left_out}");
            assert_eq!(server.command(&words).error(), None);
            let store = store(&server.url().replacen("://", "://tidegate:word@", 1), PATIENT);
            let can = with(&store, async |counters| {
                (counters.tell_news(about, "7").await.is_ok(), counters.hear_news(about).await.is_ok())
            });
            assert_eq!(can, (tells, hears), "{kind:?} about {about}, without {left_out:?}");
        }
    }
}
