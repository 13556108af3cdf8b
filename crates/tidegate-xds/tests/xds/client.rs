//! A client beside a server that does what servers do, and what none should: what each is told, and what comes of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tidegate_clock::Stopwatch;
use tidegate_xds::{Any, ClientSettings, DiscoveryResponse, TYPE_URL, Update};
use tokio::io::AsyncReadExt as _;

use crate::support::server::{Asked, XdsServer, domain, framed, limited, response};
use crate::support::subscriber::{Following, Told, settings, until};

const SECOND: i32 = 1;

fn names(update: &Update) -> Vec<&str> {
    update.rules.iter().map(|rule| &*rule.name).collect()
}

/// Waits for an answer to a response of this version, and gives it.
async fn answered(server: &XdsServer, what: &str, fits: impl Fn(&Asked) -> bool) -> Asked {
    until(what, || server.asked().into_iter().find(&fits)).await
}

#[tokio::test]
async fn a_client_says_who_it_is_and_accepts_what_it_put_in_force() {
    let server = XdsServer::start().await;
    let mut settings = settings(server.address);
    settings.node_metadata = vec![("zone".into(), "eu".into()), ("team".into(), "a".into())];
    settings.headers = vec![("x-token".into(), "secret".into()), ("x-token".into(), "other".into())];
    let client = Following::start(settings);
    // A server without anything to say says nothing, and is waited for.
    let first = answered(&server, "a subscription", |_| true).await;
    let request = &first.request;
    assert_eq!((&*request.version_info, &*request.response_nonce, &*request.type_url), ("", "", TYPE_URL));
    assert_eq!((request.resource_names.len(), &request.error_detail), (0, &None));
    let node = request.node.as_ref().expect("a node");
    assert_eq!(node.id, "test-node");
    let metadata = node.metadata.as_ref().expect("metadata");
    let kind = |text: &str| Some(prost_types::value::Kind::StringValue(text.into()));
    assert_eq!((&metadata.fields["zone"].kind, &metadata.fields["team"].kind), (&kind("eu"), &kind("a")));
    let tokens: Vec<_> = first.headers.get_all("x-token").iter().collect();
    assert_eq!(tokens, ["secret", "other"]);

    server.set("v1", &[domain("b", vec![limited("k", 1, SECOND)]), domain("a", Vec::new())]);
    let answer = answered(&server, "an answer", |asked| asked.request.version_info == "v1").await;
    assert_eq!((answer.request.response_nonce.as_str(), answer.error()), ("nonce-1", None));
    assert_eq!(answer.request.type_url, TYPE_URL);
    assert_eq!(names(&client.updates()[0]), ["a", "b"]);
    assert_eq!(client.events(), [Told::Connected, Told::Accepted("v1".into())]);

    // No rules are rules too.
    server.set("v2", &[]);
    answered(&server, "an answer", |asked| asked.request.version_info == "v2").await;
    assert_eq!(client.updates()[1], Update { version: "v2".into(), rules: Vec::new() });
}

#[tokio::test]
async fn nothing_is_accepted_before_it_is_in_force_and_of_what_comes_meanwhile_only_the_last_counts() {
    let server = XdsServer::start().await;
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let client = Following::judging(settings(server.address), move |_| {
        let _ = may_go_on.lock().map(|wait| wait.recv_timeout(Duration::from_secs(30)));
        Ok(())
    });
    server.set("v1", &[domain("a", Vec::new())]);
    until("the first is judged", || (client.versions() == ["v1"]).then_some(())).await;
    assert_eq!(server.asked().len(), 1, "it is not in force, so it is not accepted");
    // In one piece: when the first of them has come, all have.
    let frames = [("v2", "b"), ("v3", "c"), ("v4", "d")].map(|(version, name)| {
        let message =
            DiscoveryResponse { nonce: version.into(), ..response(version, &[domain(name, Vec::new())]) };
        framed(&message.encode_to_vec())
    });
    server.send_raw(&frames.concat().into());
    go_on.send(()).expect("it waits");
    answered(&server, "the first is accepted", |asked| asked.request.version_info == "v1").await;
    // The one that is judged now is the last, or the first of them where that came after all.
    until("the next is judged", || client.versions().get(1).cloned()).await;
    go_on.send(()).and_then(|()| go_on.send(())).expect("it waits");
    let last = answered(&server, "the last is accepted", |asked| asked.request.version_info == "v4").await;
    assert_eq!(last.request.response_nonce, "v4");
    assert!(!client.versions().contains(&"v3".into()), "{:?}", client.versions());
}

#[tokio::test]
async fn what_is_wrong_is_rejected_with_the_reason_and_the_last_good_version() {
    let server = XdsServer::start().await;
    server.insist();
    let judged = Arc::new(AtomicUsize::new(0));
    let counted = judged.clone();
    let client = Following::judging(settings(server.address), move |update| {
        counted.fetch_add(1, Ordering::Relaxed);
        match update.version.as_str() {
            "bad" => Err(format!("a: no good{}", "ä".repeat(10_000))),
            "broken" => panic!("a panic that the test wants"),
            _ => Ok(()),
        }
    });
    server.set("v1", &[domain("a", Vec::new())]);
    answered(&server, "v1 is accepted", |asked| asked.request.version_info == "v1").await;
    let watch = Stopwatch::start();
    server.set("bad", &[domain("b", Vec::new())]);
    let rejected = answered(&server, "a rejection", |asked| asked.error().is_some()).await;
    assert_eq!((&*rejected.request.version_info, &*rejected.request.response_nonce), ("v1", "nonce-2"));
    assert_eq!(rejected.request.error_detail.as_ref().map(|status| status.code), Some(3));
    let why = rejected.error().unwrap_or_default();
    assert!(why.starts_with("a: no goodä") && why.len() < 5_000, "{} bytes", why.len());
    // The server insists. It is told again, in peace; nobody has to judge it again.
    answered(&server, "more rejections", |asked| asked.request.response_nonce == "nonce-5").await;
    assert!(watch.elapsed() >= Duration::from_millis(5 + 10 + 20), "half of each wait at least");
    assert_eq!(judged.load(Ordering::Relaxed), 2);
    let rejections =
        |client: &Following| client.events().iter().filter(|told| matches!(told, Told::Rejected(..))).count();
    assert_eq!(rejections(&client), 1, "once for each change");
    // A panic is no good either, and the client outlives it.
    server.set("broken", &[domain("c", Vec::new())]);
    let why = "the rules could not be loaded: the node failed at it";
    answered(&server, "a rejection", |asked| asked.error() == Some(why)).await;
    server.set("v3", &[domain("d", Vec::new())]);
    answered(&server, "v3 is accepted", |asked| asked.request.version_info == "v3").await;
    assert_eq!(rejections(&client), 2);
    assert_eq!(client.ends(), [], "all of it on one stream");
}

#[tokio::test]
async fn resources_that_cannot_be_read_are_rejected_and_the_stream_goes_on() {
    let server = XdsServer::start().await;
    let client = Following::start(settings(server.address));
    let other = "type.googleapis.com/envoy.config.listener.v3.Listener";
    let of = |type_url: &str, value: &[u8]| Any { type_url: type_url.into(), value: value.to_vec() };
    let with = |resources| DiscoveryResponse { resources, ..response("v0", &[]) };
    for (response, why, type_url) in [
        (
            DiscoveryResponse { type_url: other.into(), ..with(Vec::new()) },
            "resources of type `type.goo",
            other,
        ),
        (with(vec![of(other, &[])]), "resource 1 is of type `type.goo", TYPE_URL),
        (with(vec![of(TYPE_URL, &[]), of(TYPE_URL, &[0xff, 0xff])]), "resource 2 cannot be read", TYPE_URL),
        (
            response("v0", &[domain("a", vec![limited("k", 1, 0)])]),
            "a: invalid rate limit unit 'UNKNOWN'",
            TYPE_URL,
        ),
    ] {
        server.set_response(response);
        let fits = |asked: &Asked| asked.error().is_some_and(|told| told.starts_with(why));
        let rejected = answered(&server, why, fits).await;
        assert_eq!((&*rejected.request.type_url, &*rejected.request.version_info), (type_url, ""));
    }
    assert_eq!(client.versions(), [""; 0], "nobody was asked to judge that");
    server.set("v1", &[domain("a", Vec::new())]);
    answered(&server, "v1 is accepted", |asked| asked.request.version_info == "v1").await;
    assert_eq!(client.ends(), []);
}

#[tokio::test]
async fn a_server_without_rules_that_calls_them_by_no_version_is_heard_too() {
    let server = XdsServer::start().await;
    let address = server.address;
    server.set("", &[]);
    let settled_after = Duration::from_millis(50);
    let client = Following::start(ClientSettings { settled_after, ..settings(address) });
    until("nothing is accepted", || (client.versions() == [""]).then_some(())).await;
    let answer = answered(&server, "an answer", |asked| asked.request.response_nonce == "nonce-1").await;
    assert_eq!((&*answer.request.version_info, answer.error()), ("", None));
    server.set("1", &[domain("a", Vec::new())]);
    until("rules come", || (client.versions() == ["", "1"]).then_some(())).await;
    assert!(client.events().contains(&Told::Connected));
    // After a restart it has none again, and those before are gone.
    server.stop().await;
    let server = XdsServer::at(address, None).await;
    server.set("", &[]);
    until("nothing is accepted", || (client.versions() == ["", "1", ""]).then_some(())).await;
    assert_eq!(client.updates()[2].rules, []);
}

#[tokio::test]
async fn a_response_that_was_answered_is_not_answered_again() {
    let server = XdsServer::start().await;
    let client = Following::start(settings(server.address));
    let echo = |version: &str| DiscoveryResponse { nonce: "n".into(), ..response(version, &[]) };
    server.set_response(echo("v1"));
    answered(&server, "it is accepted", |asked| asked.request.version_info == "v1").await;
    server.set_response(echo("v2"));
    server.set("v3", &[]);
    answered(&server, "v3 is accepted", |asked| asked.request.version_info == "v3").await;
    let versions: Vec<_> = server.asked().into_iter().map(|asked| asked.request.version_info).collect();
    assert_eq!(versions, ["", "v1", "v3"]);
    assert_eq!(client.versions(), ["v1"], "nothing changed after that");
}

#[tokio::test]
async fn garbage_ends_a_stream_and_the_next_one_is_good() {
    let server = XdsServer::start().await;
    let client = Following::start(settings(server.address));
    let subscribed = |count: usize| {
        let server = &server;
        async move {
            let there =
                || (server.asked().iter().filter(|asked| asked.stream == count).count() > 0).then_some(());
            until("a subscription", there).await;
        }
    };
    subscribed(1).await;
    let huge = response("v1", &[domain(&"x".repeat(2 << 20), Vec::new())]);
    let huge = framed(&huge.encode_to_vec());
    for (bytes, why) in [
        (Bytes::from_static(&[0, 0, 0, 0, 3, 0xff, 0xff, 0xff]), "decode"),
        (huge, "xds.message_bytes_max"),
        (Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]), "xds.message_bytes_max"),
        (Bytes::from_static(&[7, 0, 0, 0, 0]), "compression"),
    ] {
        let ends = client.ends().len();
        server.send_raw(&bytes);
        let (told, _) = until("the stream ends", || client.ends().get(ends).cloned()).await;
        assert!(told.contains(why), "{told}");
        subscribed(ends + 2).await;
    }
    server.set("v1", &[domain("a", Vec::new())]);
    answered(&server, "v1 is accepted", |asked| asked.request.version_info == "v1").await;
}

#[tokio::test]
async fn waits_grow_while_a_server_is_away_and_are_short_again_after_a_good_stream() {
    let server = XdsServer::start().await;
    let address = server.address;
    server.set("v1", &[domain("a", Vec::new())]);
    let client = Following::start(settings(address));
    answered(&server, "v1 is accepted", |asked| asked.request.version_info == "v1").await;
    server.stop().await;
    let ends = until("it tries again and again", || Some(client.ends()).filter(|ends| ends.len() >= 7)).await;
    let bounds = [10, 20, 40, 80, 160, 160, 160];
    for ((why, wait), bound_ms) in ends.iter().zip(bounds) {
        let bound = Duration::from_millis(bound_ms);
        assert!(bound / 2 <= *wait && *wait <= bound, "{wait:?} of {bound:?} after: {why}");
    }
    assert!(ends[6].0.starts_with("cannot connect: "), "{}", ends[6].0);

    // The server is back, and has counted from the start: its first version is other rules.
    let server = XdsServer::at(address, None).await;
    server.set("v1", &[domain("b", Vec::new())]);
    let answer = answered(&server, "v1 is accepted", |asked| asked.request.version_info == "v1").await;
    assert_eq!((answer.stream, server.asked()[0].request.version_info.as_str()), (1, ""));
    let updates = client.updates();
    assert_eq!(updates.iter().map(names).collect::<Vec<_>>(), [["a"], ["b"]]);
    let ends = client.ends().len();
    server.stop().await;
    let (_, wait) = until("it is away again", || client.ends().get(ends).cloned()).await;
    assert!(wait <= Duration::from_millis(10), "{wait:?}");

    // What did not change is accepted, and not judged again.
    let server = XdsServer::at(address, None).await;
    server.set("v9", &[domain("b", Vec::new())]);
    answered(&server, "v9 is accepted", |asked| asked.request.version_info == "v9").await;
    assert_eq!(client.versions(), ["v1", "v1"]);
    // A rejection on a new stream still names what is in force.
    server.set("bad", &[domain("c", vec![limited("k", 1, 0)])]);
    let rejected = answered(&server, "a rejection", |asked| asked.error().is_some()).await;
    assert_eq!(rejected.request.version_info, "v9");
}

#[tokio::test]
async fn a_server_that_ends_every_stream_is_asked_less_and_less() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("an address");
    let address = listener.local_addr().expect("an address");
    let hangs_up = tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let client = Following::start(settings(address));
    let ends = until("it tries", || Some(client.ends()).filter(|ends| ends.len() >= 5)).await;
    assert!(ends[4].1 >= Duration::from_millis(80), "{ends:?}");
    hangs_up.abort();
}

#[tokio::test]
async fn a_server_that_hangs_is_noticed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("an address");
    let address = listener.local_addr().expect("an address");
    let mut settings = settings(address);
    settings.keepalive = (Duration::from_millis(50), Duration::from_millis(100));
    // Takes every byte, and answers none: not even a ping.
    let silent = tokio::spawn(async move {
        let mut open = tokio::task::JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            open.spawn(async move {
                let mut bytes = [0; 1_024];
                while let Ok(1..) = stream.read(&mut bytes).await {}
            });
        }
    });
    let client = Following::start(settings);
    let (why, _) = until("it is noticed", || client.ends().first().cloned()).await;
    assert!(why.contains("keep-alive timed out"), "{why}");
    silent.abort();
}
