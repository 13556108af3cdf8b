//! Requests whose counters are on three servers of a cluster: all are charged or none, as far as replies arrive.
//!
//! A healthy cluster is no proof of that, so connections are cut at every place, one at a time: before a call arrives, after it was carried
//! out, within its reply.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tidegate_core::{Ask, Limit, Role};
use tidegate_testbed::{Cluster, Kind, Proxy};

use crate::support::{
    Counter, HOUR, PATIENT, ask, cluster, comes_to, every_algorithm, nothing_lives_for_ever, one_on_each,
    store, used, with,
};

/// A plain cluster for tests that break nothing.
static PLAIN: LazyLock<Cluster> = LazyLock::new(|| cluster(Kind::Redis, 0));

/// One behind proxies, for one test at a time: what is counted and cut there is counted over all.
static BROKEN: LazyLock<Mutex<Cluster>> = LazyLock::new(|| {
    let cluster =
        Cluster::start_behind_proxies(Kind::Redis, 3, 0, 5_000).unwrap_or_else(|error| panic!("{error}"));
    for proxy in cluster.proxies() {
        proxy.count_only(&["EVALSHA", "EVAL"]);
    }
    Mutex::new(cluster)
});

fn broken() -> MutexGuard<'static, Cluster> {
    BROKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
enum Cut {
    BeforeCall,
    AfterCall,
    WithinReply,
}

impl Cut {
    const ALL: [Self; 3] = [Self::BeforeCall, Self::AfterCall, Self::WithinReply];

    /// Cuts at the n-th call from now.
    fn at(self, proxy: &Proxy, n: u64) {
        match self {
            Self::BeforeCall => proxy.cut_before_command(n),
            Self::AfterCall => proxy.cut_after_command(n),
            Self::WithinReply => proxy.truncate_reply(n, 7),
        }
    }

    fn is_carried_out(self) -> bool {
        !matches!(self, Self::BeforeCall)
    }
}

/// Requests of three takes, one after the other; the n-th call to one of the servers is cut. The request that meets it fails; its own
/// counter there is charged if the call arrived, and never twice, and the other two are given back. All others are admitted and charged on
/// all three.
#[test]
fn a_request_that_is_cut_on_one_of_three_servers_fails_and_is_never_charged_twice() {
    let cluster = broken();
    let limit = Limit::sliding_window(1_000, HOUR).expect("a limit");
    let (mut from, mut sums) = (0, [0; 3]);
    for (place, n) in (0..3).flat_map(|place| (1..=3).map(move |n| (place, n))) {
        for cut in Cut::ALL {
            let what = format!("{cut:?} {n} on server {place}");
            let three = one_on_each(&cluster, from);
            from += 100;
            with(&store(&cluster.url(), PATIENT), async |counters| {
                // Connected everywhere, and the script is known.
                let warm = one_on_each(&cluster, 90_000).map(|counter| counter.charge(&limit, 1));
                assert!(ask(counters, &warm).await.expect("nothing is cut yet").admitted);
                cut.at(&cluster.proxies()[place], n);
                let takes = three.map(|counter| counter.charge(&limit, 1));
                let mut admitted = 0;
                for request in 1..=4 {
                    match ask(counters, &takes).await {
                        Ok(told) => {
                            assert!(told.admitted && request != n, "{what}: {told:?}");
                            admitted += 1;
                        }
                        Err(why) => assert_eq!(request, n, "{what}: {why}"),
                    }
                }
                assert_eq!(admitted, 3, "{what}");
                for (at, counter) in three.into_iter().enumerate() {
                    let failed = u64::from(at == place && cut.is_carried_out());
                    comes_to(counters, counter, &limit, admitted + failed, &format!("{what}, counter {at}"))
                        .await;
                    let charged = used(counters, counter, &limit).await;
                    sums[0] += admitted;
                    sums[1] += charged;
                    sums[2] += admitted + 1;
                }
            });
        }
    }
    assert!(sums[0] <= sums[1] && sums[1] <= sums[2], "admitted ≤ charged ≤ admitted + in flight: {sums:?}");
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

/// The counter on one server is full, so what the other two charged is given back. On one of these the call or the giving back is cut: it
/// is charged once at most; on the third nothing stays. It is refused all the same: a refusal is known.
#[test]
fn a_refused_request_that_is_cut_leaves_one_charge_at_most_where_it_was_cut() {
    let cluster = broken();
    let limit = Limit::sliding_window(10, HOUR).expect("a limit");
    let mut from = 10_000;
    for (full, place) in (0..3).flat_map(|full| (0..3).map(move |place| (full, place))) {
        for (n, cut) in (1..=2).flat_map(|n| Cut::ALL.map(|cut| (n, cut))) {
            if full == place && n > 1 {
                continue; // Nothing is given back there.
            }
            let what = format!("{full} is full, {cut:?} {n} on server {place}");
            let three = one_on_each(&cluster, from);
            from += 100;
            with(&store(&cluster.url(), PATIENT), async |counters| {
                let warm = one_on_each(&cluster, 90_000).map(|counter| counter.charge(&limit, 0));
                assert!(ask(counters, &warm).await.is_ok(), "nothing is cut yet");
                let fills = [three[full].charge(&limit, 10)];
                assert!(ask(counters, &fills).await.expect("it answers").admitted);
                cut.at(&cluster.proxies()[place], n);
                let takes = three.map(|counter| counter.charge(&limit, 1));
                let told = ask(counters, &takes).await;
                if full == place {
                    // Nobody said that it is refused.
                    assert!(told.is_err(), "{what}: {told:?}");
                } else {
                    let told = told.unwrap_or_else(|why| panic!("{what}: {why}"));
                    assert!(!told.admitted, "{what}");
                }
                for (at, counter) in three.into_iter().enumerate() {
                    let left = match at {
                        _ if at == full => 10,
                        _ if full == place => 0, // Who wants an error where the store is silent is charged nowhere else.
                        // The call was carried out and its reply lost, or the giving back never arrived.
                        _ if at == place => u64::from(cut.is_carried_out() == (n == 1)),
                        _ => 0,
                    };
                    // Straight to its server: what is cut is counted on the other way.
                    let straight = store(&cluster.servers()[at].url(), PATIENT).counters();
                    comes_to(&straight, counter, &limit, left, &what).await;
                }
            });
        }
    }
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

/// One of three is full: refused, and the other two are given back whatever they count by; what they show is as if nothing had been.
#[test]
fn what_others_charged_for_a_refused_request_is_given_back_by_every_algorithm() {
    let cluster = &*PLAIN;
    let brim = Limit::fixed_window(1, HOUR).expect("a limit");
    for (turn, (name, limit)) in every_algorithm(10, HOUR).into_iter().enumerate() {
        for full in 0..3 {
            let three = one_on_each(cluster, 20_000 + (turn * 3 + full) as u32 * 100);
            with(&store(&cluster.url(), PATIENT), async |counters| {
                assert!(ask(counters, &[three[full].charge(&brim, 1)]).await.expect("it answers").admitted);
                let others: Vec<Counter> = (0..3).filter(|at| *at != full).map(|at| three[at]).collect();
                for counter in &others {
                    assert!(ask(counters, &[counter.charge(&limit, 3)]).await.expect("it answers").admitted);
                }
                let takes = [0, 1, 2].map(|at| three[at].charge(if at == full { &brim } else { &limit }, 1));
                let told = ask(counters, &takes).await.unwrap_or_else(|why| panic!("{name}: {why}"));
                assert!(!told.admitted, "{name}");
                for (at, answer) in told.answers.iter().enumerate() {
                    let verdict = answer.verdict;
                    assert_eq!(verdict.admitted(), at != full, "{name}: {verdict:?}");
                    assert_eq!(verdict.remaining, if at == full { 0 } else { 7 }, "{name}: {verdict:?}");
                    assert_eq!(verdict.applied, 0, "{name}: {verdict:?}");
                }
                for counter in others {
                    comes_to(counters, counter, &limit, 3, name).await;
                }
            });
        }
    }
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

/// Roles on three servers: what each take asks for, who is full, and what is charged in the end.
#[test]
fn roles_mean_the_same_on_three_servers_as_on_one() {
    let cluster = &*PLAIN;
    let limit = Limit::sliding_window(1, HOUR).expect("a limit");
    let (e, s, q) = (Role::Enforce, Role::Shadow, Role::Quota);
    let cases = [
        ("of a quota one passes", [e, q, q], [false, true, false], true, [1, 0, 1]),
        ("of a quota both pass", [e, q, q], [false, false, false], true, [1, 1, 1]),
        ("of a quota none passes", [e, q, q], [false, true, true], false, [0, 0, 0]),
        ("a quota passes, and another take refuses", [e, q, q], [true, false, false], false, [0, 0, 0]),
        ("only a quota", [q, q, q], [true, true, false], true, [0, 0, 1]),
        ("a shadow is full", [e, s, s], [false, true, false], true, [1, 0, 1]),
        ("shadows of a refused request", [e, s, s], [true, true, false], false, [0, 0, 0]),
        ("only shadows", [s, s, s], [true, false, true], true, [0, 1, 0]),
        ("a shadow and a quota", [s, q, e], [true, false, false], true, [0, 1, 1]),
        ("a shadow, and no quota passes", [s, q, e], [false, true, false], false, [0, 0, 0]),
    ];
    for (turn, (what, roles, full, admitted, charged)) in cases.into_iter().enumerate() {
        let three = one_on_each(cluster, 40_000 + turn as u32 * 100);
        with(&store(&cluster.url(), PATIENT), async |counters| {
            for (counter, _) in three.iter().zip(full).filter(|(_, full)| *full) {
                assert!(ask(counters, &[counter.charge(&limit, 1)]).await.expect("it answers").admitted);
            }
            let takes = [0, 1, 2].map(|at| three[at].take_as(&limit, Ask::Charge { cost: 1 }, roles[at]));
            let told = ask(counters, &takes).await.unwrap_or_else(|why| panic!("{what}: {why}"));
            assert_eq!(told.admitted, admitted, "{what}");
            for (at, answer) in told.answers.iter().enumerate() {
                assert_eq!(answer.verdict.admitted(), !full[at], "{what}: {answer:?}");
                let shown = u32::from(!full[at]) - charged[at] as u32;
                assert_eq!(answer.verdict.remaining, shown, "{what}: {answer:?}");
            }
            for at in 0..3 {
                comes_to(counters, three[at], &limit, charged[at] + u64::from(full[at]), what).await;
            }
        });
    }
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}

/// Places of a limit of concurrency that a refused request took are released; those that its caller held before stay.
#[test]
fn places_of_a_refused_request_are_released_and_those_held_before_stay() {
    let cluster = &*PLAIN;
    let (places, brim) =
        (Limit::concurrency(5, HOUR).expect("a limit"), Limit::fixed_window(1, HOUR).expect("a limit"));
    let three = one_on_each(cluster, 60_000);
    with(&store(&cluster.url(), PATIENT), async |counters| {
        assert!(ask(counters, &[three[2].charge(&brim, 1)]).await.expect("it answers").admitted);
        let held = three[1].take(&places, Ask::Acquire { id: 7, cost: 2 });
        assert!(ask(counters, &[held]).await.expect("it answers").admitted);
        let takes = [
            three[0].take(&places, Ask::Acquire { id: 7, cost: 2 }),
            three[1].take(&places, Ask::Acquire { id: 7, cost: 2 }),
            three[2].charge(&brim, 1),
        ];
        assert!(!ask(counters, &takes).await.expect("it answers").admitted);
        comes_to(counters, three[0], &places, 0, "it took them for nothing").await;
        // What is given back goes out before this is asked.
        assert!(
            ask(counters, &[three[1].take(&places, Ask::Renew { id: 7 })])
                .await
                .expect("it answers")
                .admitted
        );
        assert_eq!(used(counters, three[1], &places).await, 2);
    });
    nothing_lives_for_ever(cluster.immortal_keys(&[]));
}
