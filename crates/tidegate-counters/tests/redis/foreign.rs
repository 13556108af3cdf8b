//! Values that are not ours, or that another version wrote: they are left as they are, and their requests fail.

use tidegate_core::{Ask, PortableError};
use tidegate_counters::Take;
use tidegate_testbed::{Kind, Reply, Server};

use crate::support::{
    Counter, HOUR, PATIENT, ask, every_algorithm, nothing_lives_for_ever, server, store, used, with,
};

/// Fails the request, says why, and leaves the value, byte for byte. Gives why.
fn is_left_as_it_is(server: &Server, name: &str, takes: &[Take<'_>], what: &str) -> String {
    let dump = || server.command(&["DUMP", name]);
    let (before, life) = (dump(), server.command(&["PEXPIRETIME", name]));
    let why = with(&store(&server.url(), PATIENT), async |counters| {
        let told = ask(counters, takes).await;
        let why = told.map(|told| format!("{told:?}")).expect_err(what).why;
        assert!(!why.is_empty(), "{what}");
        for take in takes {
            let counter = Counter { key: take.key, tag: take.tag };
            if counter.name() != name {
                assert_eq!(used(counters, counter, take.limit).await, 0, "{what}: another was charged");
            }
        }
        why
    });
    assert_eq!((dump(), server.command(&["PEXPIRETIME", name])), (before, life), "{what}: it was touched");
    why
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
        // A part of it, and more than all of it: the script sees that, and breaks off nowhere.
        let Reply::Bytes(whole) = server.command(&["GET", &name]) else { panic!("it is there") };
        let longer = [&whole[..], &[0]].concat();
        let twice = [&whole[..], &whole[whole.len().min(5)..]].concat();
        for value in (1..whole.len()).map(|bytes| &whole[..bytes]).chain([&longer[..], &twice[..]]) {
            let wrong = limit.from_portable(value.get(4..).unwrap_or_default());
            if !matches!(wrong, Err(PortableError::WrongLength { .. } | PortableError::Empty)) {
                continue; // A list of another length is a list.
            }
            server.command(&[b"SET", name.as_bytes(), value, b"PX", b"3600000"]);
            let what = format!("{kind:?}, {algorithm}, {} of {} bytes", value.len(), whole.len());
            let why = is_left_as_it_is(&server, &name, &[charge(counter)], &what);
            assert!(why.contains("another version"), "{what}: {why}");
        }
        server.command(&[b"SET", name.as_bytes(), &whole[..], b"PX", b"3600000"]);
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
    nothing_lives_for_ever(server.immortal_keys(&[]));
}

#[test]
fn what_somebody_else_wrote_into_redis_is_left_as_it_is() {
    left_as_they_are(Kind::Redis);
}

#[test]
fn what_somebody_else_wrote_into_valkey_is_left_as_it_is() {
    left_as_they_are(Kind::Valkey);
}
