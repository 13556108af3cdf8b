//! Values that are not ours, or that another version wrote: they are left as they are, and their requests fail.

use tidegate_core::Ask;
use tidegate_counters::Take;
use tidegate_testbed::{Kind, Server};

use crate::support::{Counter, HOUR, PATIENT, ask, every_algorithm, server, store, used, with};

/// Fails the request, says why, and leaves the value, byte for byte.
fn is_left_as_it_is(server: &Server, name: &str, takes: &[Take<'_>], what: &str) {
    let dump = || server.command(&["DUMP", name]);
    let (before, life) = (dump(), server.command(&["PEXPIRETIME", name]));
    with(&store(&server.url(), PATIENT), async |counters| {
        let told = ask(counters, takes).await;
        let why = told.map(|told| format!("{told:?}")).expect_err(what);
        assert!(!why.why.is_empty(), "{what}");
        for take in takes {
            let counter = Counter { key: take.key, tag: take.tag };
            if counter.name() != name {
                assert_eq!(used(counters, counter, take.limit).await, 0, "{what}: another was charged");
            }
        }
    });
    assert_eq!((dump(), server.command(&["PEXPIRETIME", name])), (before, life), "{what}: it was touched");
}

fn left_as_they_are(kind: Kind) {
    let server = server(kind);
    for (at, (algorithm, limit)) in every_algorithm(5, HOUR).into_iter().enumerate() {
        let counter = Counter::of(at as u32);
        let name = counter.name();
        let others = [counter.beside(1), counter.beside(2)];
        let charge = |counter: Counter| counter.charge(&limit, 1);
        let check = |what: &str| {
            let what = format!("{kind:?}, {algorithm}, {what}");
            is_left_as_it_is(&server, &name, &[charge(counter)], &format!("{what}, alone"));
            let three = [charge(others[0]), charge(counter), charge(others[1])];
            is_left_as_it_is(&server, &name, &three, &format!("{what}, of three"));
            let shadow = counter.take_as(&limit, Ask::Charge { cost: 1 }, tidegate_core::Role::Shadow);
            is_left_as_it_is(&server, &name, &[charge(others[0]), shadow], &format!("{what}, as a shadow"));
        };
        // A state of ours, of a version that is not known: its fifth byte is the version and the form.
        with(&store(&server.url(), PATIENT), async |counters| {
            assert!(ask(counters, &[charge(counter)]).await.expect("it answers").admitted);
        });
        let version = server.command(&["GETRANGE", &name, "4", "4"]).text().unwrap_or_default();
        let unknown = version.bytes().next().map(|byte| byte.wrapping_add(0x10) & 0x7f).expect("a version");
        server.command(&[b"SETRANGE", name.as_bytes(), b"4", &[unknown][..]]);
        check("an unknown version");
        for (what, value) in
            [("a text", &b"hello, somebody else"[..]), ("a number", b"17"), ("one byte", b"\x11")]
        {
            server.command(&[b"SET", name.as_bytes(), value, b"PX", b"3600000"]);
            check(what);
        }
        for words in [["RPUSH", &name, "a", "b"], ["HSET", &name, "a", "b"]] {
            server.command(&["DEL", &name]);
            server.command(&words);
            server.command(&["PEXPIRE", &name, "3600000"]);
            // Where a request has several, what is no string is not seen: only a script that reads them one by one would see it.
            let what = format!("{kind:?}, {algorithm}, {}", words[0]);
            is_left_as_it_is(&server, &name, &[charge(counter)], &what);
        }
    }
}

#[test]
fn what_somebody_else_wrote_into_redis_is_left_as_it_is() {
    left_as_they_are(Kind::Redis);
}

#[test]
fn what_somebody_else_wrote_into_valkey_is_left_as_it_is() {
    left_as_they_are(Kind::Valkey);
}
