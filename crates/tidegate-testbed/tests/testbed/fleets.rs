//! Clusters and sentinels: they form, move slots, and change their primary.

use tidegate_testbed::{Client, Cluster, Kind, Reply, Sentinels, slot_of};

const NODE_TIMEOUT_MS: u32 = 2000;

fn ok<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|reason| panic!("{reason}"))
}

fn set(cluster: &Cluster, key: &str) {
    assert_eq!(cluster.command_on(key, &["SET", key, "1"]), Reply::Status("OK".into()), "{key}");
}

fn get(cluster: &Cluster, place: usize, key: &str) -> Reply {
    cluster.servers()[place].command(&["GET", key])
}

#[test]
fn a_cluster_of_each_kind_forms_moves_a_slot_and_changes_its_primary() {
    for kind in Kind::ALL {
        let cluster = ok(Cluster::start(kind, 3, 1, NODE_TIMEOUT_MS));
        assert_eq!(cluster.servers().len(), 6);
        assert_eq!([0, 6000, 16_383].map(|slot| ok(cluster.place_of(slot))), [0, 1, 2]);
        let keys = ["b", "c", "{a}1", "{a}2", "{a}3"];
        keys.iter().for_each(|key| set(&cluster, key));
        cluster.command_on("c", &["PEXPIRE", "c", "60000"]);
        let sorted = |mut keys: Vec<Vec<u8>>| {
            keys.sort();
            keys
        };
        assert_eq!(sorted(cluster.keys()), keys.map(|key| key.as_bytes().to_vec()));
        assert_eq!(sorted(cluster.immortal_keys(&["b"])), [b"{a}1", b"{a}2", b"{a}3"]);

        let slot = slot_of("{a}1");
        let from = ok(cluster.place_of(slot));
        let to = (from + 1) % 3;
        ok(cluster.begin_move(slot, from, to));
        let moved = ok(cluster.move_one_key(slot, from, to)).expect("a key");
        let moved = String::from_utf8(moved).expect("a text");
        // Half moved: what is not there is asked for at the new place, some here and some there is too much to ask.
        let error = |reply: &Reply| reply.error().unwrap_or_default().to_string();
        let asked = error(&get(&cluster, from, &moved));
        assert_eq!(asked, format!("ASK {slot} {}", cluster.servers()[to].address()));
        assert!(error(&get(&cluster, to, &moved)).starts_with("MOVED "));
        let torn = cluster.servers()[from].command(&["MGET", "{a}1", "{a}2", "{a}3"]);
        assert!(error(&torn).starts_with("TRYAGAIN"), "{torn:?}");
        for key in &keys[2..] {
            assert_eq!(cluster.command_on(key, &["GET", key]).text().as_deref(), Some("1"), "followed");
        }
        while ok(cluster.move_one_key(slot, from, to)).is_some() {}
        ok(cluster.finish_move(slot, from, to));
        assert_eq!(ok(cluster.place_of(slot)), to);
        assert_eq!(get(&cluster, to, &moved).text().as_deref(), Some("1"));
        assert!(error(&get(&cluster, from, &moved)).starts_with("MOVED "));
        ok(cluster.move_slot(slot, to, from));
        assert_eq!(ok(cluster.place_of(slot)), from);

        let replica = 3 + from;
        ok(cluster.failover(replica));
        assert_eq!(ok(cluster.place_of(slot)), replica);
        assert_eq!(sorted(cluster.keys()).len(), keys.len(), "nothing is lost");
    }
}

#[test]
fn a_cluster_behind_proxies_sends_everybody_through_them() {
    let cluster = ok(Cluster::start_behind_proxies(Kind::Redis, 3, 1, NODE_TIMEOUT_MS));
    let (key, wrong) = ("a", (ok(cluster.place_of(slot_of("a"))) + 1) % 3);
    cluster.proxies().iter().for_each(|proxy| proxy.count_only(&["GET"]));
    // What the replicas said was counted before.
    let before = cluster.proxies()[wrong].counts().commands;
    let mut client = ok(Client::connect(cluster.proxies()[wrong].address()));
    let reply = ok(client.command(&["GET", key]));
    let right = cluster.proxies()[ok(cluster.place_of(slot_of(key)))].address();
    assert_eq!(reply.error(), Some(format!("MOVED {} {right}", slot_of(key)).as_str()));
    assert_eq!(cluster.proxies()[wrong].counts().commands, before + 1);
    assert!(cluster.url().contains(&right.to_string()));
    assert!(!cluster.url().contains(&cluster.servers()[0].address().to_string()));
    // Replicas come the same way, and a write reaches them.
    set(&cluster, key);
    let (place, waits) = (ok(cluster.place_of(slot_of(key))), ["WAIT", "1", "5000"]);
    let mut client = ok(cluster.servers()[place].client());
    ok(client.command(&["SET", key, "2"]));
    assert_eq!(ok(client.command(&waits)), Reply::Integer(1));
}

#[test]
fn a_replica_takes_over_from_a_primary_that_was_killed() {
    let cluster = ok(Cluster::start(Kind::Redis, 3, 1, NODE_TIMEOUT_MS));
    cluster.servers()[0].kill();
    ok(cluster.wait_promoted(3));
    assert_eq!(ok(cluster.place_of(0)), 3);
}

#[test]
fn sentinels_of_each_kind_change_the_primary() {
    for kind in Kind::ALL {
        let all = ok(Sentinels::start(kind, 1000));
        assert_eq!(ok(all.primary_place()), 0);
        assert!(all.url().starts_with("redis+sentinel://127.0.0.1:") && all.url().ends_with("/tide"));
        ok(all.failover());
        assert_eq!(ok(all.primary_place()), 1);
        assert_eq!(all.primary().command(&["SET", "a", "1"]), Reply::Status("OK".into()));
        if kind == Kind::Valkey {
            continue; // It is slow to wait for; once is enough.
        }
        all.servers()[1].kill();
        ok(all.wait_failover_from(1));
        assert_eq!(ok(all.primary_place()), 0);
    }
}
