//! Redirects.

use super::*;

/// A cluster, and a key whose slot belongs to its first node, on the way to the second.
async fn half_moved(keys: &[&str]) -> (Cluster, u16) {
    let cluster = Cluster::ready().await;
    let slot = cluster.slot("{b}");
    let (from, to) = (cluster.owner(slot), other(&cluster, slot));
    for key in keys {
        cluster.nodes[from].ask::<()>(&format!("SET {key} 0"));
    }
    cluster.nodes[to].ask::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", cluster.id(from)));
    cluster.nodes[from].ask::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", cluster.id(to)));
    (cluster, slot)
}

fn other(cluster: &Cluster, slot: u16) -> usize {
    (cluster.owner(slot) + 1) % 3
}

/// What a node holds of a slot that is not its own yet.
fn asked(node: &Redis, key: &str) -> u64 {
    let mut connection = redis::Client::open(node.url()).unwrap().get_connection().unwrap();
    redis::cmd("ASKING").exec(&mut connection).unwrap();
    redis::cmd("GET").arg(key).query::<Option<u64>>(&mut connection).unwrap().unwrap_or(0)
}

#[test]
fn slots_that_moved_are_followed_and_remembered() {
    run(async {
        let cluster = Cluster::ready().await;
        let wires = wires(&cluster.url());
        for key in ["a", "b", "c", "d"] {
            assert_eq!(wires.call(cluster.slot(key), &add(&[key]), soon()).await, Ok(Value::Int(1)), "{key}");
        }
        assert_eq!((count(&wires, "moved"), wires.servers.stats().refreshes), (0, 1));
        assert_eq!(connections(&wires), 3, "one to each primary");

        let slot = cluster.slot("new");
        let (from, to) = (cluster.owner(slot), other(&cluster, slot));
        let id = cluster.id(to);
        for node in [to, from] {
            cluster.nodes[node].ask::<()>(&format!("CLUSTER SETSLOT {slot} NODE {id}"));
        }
        assert_eq!(wires.call(slot, &add(&["new"]), soon()).await, Ok(Value::Int(1)));
        assert_eq!(wires.call(slot, &add(&["new"]), soon()).await, Ok(Value::Int(2)));
        assert_eq!(
            (count(&wires, "moved"), wires.servers.stats().redirects),
            (1, 1),
            "asked there at once the second time"
        );
        until("the map was read again", || wires.servers.stats().refreshes == 2).await;
        assert_eq!(connections(&wires), 3);
    });
}

#[test]
fn one_at_a_time_reads_the_map_and_once_a_second() {
    let servers = Servers::new(RedisSettings::of_url("redis+cluster://h").unwrap());
    let from = Instant::now();
    let first = servers.start_refresh().expect("nobody else does");
    assert!(servers.start_refresh().is_none());
    assert!(first.from() <= from, "at once");
    first.begins();
    drop(first);
    let second = servers.start_refresh().expect("the first one is done, though it failed");
    assert!(second.from() > from + Duration::from_millis(990));
    let one = Servers::new(RedisSettings::of_url("redis://h").unwrap());
    assert!(one.start_refresh().is_none(), "there is nothing to read");
}

#[test]
fn threads_share_one_map() {
    let cluster = run(Cluster::ready());
    let keys = ["a", "b", "c", "d"].map(|key| (key, cluster.slot(key)));
    let mut settings = RedisSettings::of_url(&cluster.url()).unwrap();
    settings.connect_timeout = Duration::from_secs(5);
    let servers = Servers::new(settings);
    let all_done = std::sync::Barrier::new(4);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                run(async {
                    let wires = Wires::new(servers.clone());
                    for (key, slot) in keys {
                        assert!(wires.call(slot, &add(&[key]), soon()).await.is_ok());
                    }
                    all_done.wait();
                    assert_eq!(connections(&wires), 4 * 3, "each thread has its own to each primary");
                    all_done.wait();
                });
            });
        }
    });
    let stats = servers.stats();
    assert_eq!((stats.refreshes, stats.redirects), (1, 0));
    assert!(stats.servers.iter().all(|server| server.connections == 0), "closed with the threads");
}

#[test]
fn keys_that_left_before_their_slot_are_asked_for() {
    run(async {
        let (cluster, slot) = half_moved(&["{b}here"]).await;
        let wires = wires(&cluster.url());
        let (from, to) = (cluster.owner(slot), other(&cluster, slot));
        assert_eq!(wires.call(slot, &add(&["{b}there"]), soon()).await, Ok(Value::Int(1)));
        assert_eq!(wires.call(slot, &add(&["{b}there"]), soon()).await, Ok(Value::Int(2)));
        assert_eq!(wires.call(slot, &add(&["{b}here"]), soon()).await, Ok(Value::Int(1)));
        assert_eq!((count(&wires, "ask"), count(&wires, "moved")), (2, 0), "the map stays");
        assert_eq!(asked(&cluster.nodes[to], "{b}there"), 2);
        assert_eq!(cluster.nodes[from].number("{b}here"), 1);
    });
}

#[test]
fn a_half_moved_slot_charges_nothing_or_all() {
    run(async {
        let (cluster, slot) = half_moved(&["{b}1", "{b}2"]).await;
        let wires = wires(&cluster.url());
        let (from, to) = (cluster.owner(slot), other(&cluster, slot));
        let port = cluster.nodes[to].port;
        let migrate = |key: &str| {
            // `""` cannot be said by words that are split: MIGRATE host port key db timeout.
            cluster.nodes[from].ask::<String>(&format!("MIGRATE 127.0.0.1 {port} {key} 0 5000"));
        };
        migrate("{b}2");
        let result = wires.call(slot, &add(&["{b}1", "{b}2"]), soon()).await;
        assert!(matches!(&result, Err(CallFailed::NotDone(why)) if why.contains("TRYAGAIN")), "{result:?}");
        assert_eq!(count(&wires, "tryagain"), 4, "once, and three times again");
        assert_eq!((cluster.nodes[from].number("{b}1"), asked(&cluster.nodes[to], "{b}2")), (0, 0));
        migrate("{b}1");
        assert_eq!(wires.call(slot, &add(&["{b}1", "{b}2"]), soon()).await, Ok(Value::Int(2)));
        assert_eq!((asked(&cluster.nodes[to], "{b}1"), asked(&cluster.nodes[to], "{b}2")), (1, 1));
    });
}

#[test]
fn a_dead_primary_does_not_delay_the_others() {
    run(async {
        let mut cluster = Cluster::ready().await;
        let wires = wires(&cluster.url());
        let keys: Vec<(String, u16)> =
            (0..12).map(|at| format!("k{at}")).map(|key| (key.clone(), cluster.slot(&key))).collect();
        for (key, slot) in &keys {
            assert!(wires.call(*slot, &add(&[key]), soon()).await.is_ok());
        }
        let dead = 1;
        cluster.nodes[dead].kill();
        until("its connection is closed", || connections(&wires) == 2).await;
        for (key, slot) in &keys {
            let is_dead = cluster.owner(*slot) == dead;
            let until = if is_dead { Instant::now() + Duration::from_secs(1) } else { soon() };
            let result = wires.call(*slot, &add(&[key]), until).await;
            match is_dead {
                true => assert!(matches!(result, Err(CallFailed::NotDone(_))), "{key}: {result:?}"),
                false => assert_eq!(result, Ok(Value::Int(2)), "{key}"),
            }
        }
        assert!(keys.iter().any(|(_, slot)| cluster.owner(*slot) == dead));
    });
}

#[test]
fn a_failover_is_followed() {
    run(async {
        let cluster = Cluster::ready().await;
        let bus = free_port().to_string();
        let replica = Redis::start(&[
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            &bus,
            "--cluster-node-timeout",
            "5000",
        ]);
        cluster.nodes[0].ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {} {bus}", replica.port));
        let (slot, id) = (cluster.slot("k"), cluster.id(cluster.owner(cluster.slot("k"))));
        until("the replica knows its primary", || {
            replica.try_ask::<()>(&format!("CLUSTER REPLICATE {id}")).is_ok()
        })
        .await;
        let wires = wires(&cluster.url());
        assert_eq!(wires.call(slot, &add(&["k"]), soon()).await, Ok(Value::Int(1)));
        until("the replica has the key", || {
            replica.ask::<String>("INFO replication").contains("master_link_status:up")
        })
        .await;
        until("all nodes know the replica", || {
            cluster
                .nodes
                .iter()
                .all(|node| node.ask::<String>("CLUSTER NODES").contains(&format!("slave {id} ")))
        })
        .await;
        let is_ready = || replica.ask::<String>("CLUSTER INFO").contains("cluster_state:ok");
        let begun = Cell::new(None::<Instant>);
        until("it is a primary", || {
            if replica.ask::<String>("INFO replication").contains("role:master") {
                return is_ready();
            }
            // Servers give a failover up after five seconds.
            let is_due = begun.get().is_none_or(|begun| begun.elapsed() > Duration::from_secs(6));
            if is_due && replica.try_ask::<()>("CLUSTER FAILOVER").is_ok() {
                begun.set(Some(Instant::now()));
            }
            false
        })
        .await;
        // Old primary or new, whoever is asked: nothing fails.
        assert_eq!(wires.call(slot, &add(&["k"]), soon()).await, Ok(Value::Int(2)));
        assert_eq!(count(&wires, "moved") + count(&wires, "readonly"), 1);
        assert_eq!(replica.number("k"), 2);
    });
}

#[test]
fn a_url_of_the_other_kind_is_told() {
    run(async {
        let single = Redis::start(&[]);
        let wires_of_single = wires(&single.url().replace("redis://", "redis+cluster://"));
        let result = wires_of_single.call(0, &add(&["k"]), soon()).await;
        assert!(
            matches!(&result, Err(CallFailed::NotDone(why)) if why.contains("write redis:// in")),
            "{result:?}"
        );

        let cluster = Cluster::ready().await;
        let slot = cluster.slot("k");
        let wires = wires(&cluster.nodes[other(&cluster, slot)].url());
        let result = wires.call(slot, &add(&["k"]), soon()).await;
        assert!(
            matches!(&result, Err(CallFailed::NotDone(why)) if why.contains("write redis+cluster:// in")),
            "{result:?}"
        );
    });
}
