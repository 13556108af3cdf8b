//! Costs that are known only at the end: reported after a look, or reserved and settled.

use crate::envoy::Door;
use crate::figures::tell;
use crate::rig::{Counters, Needs};

#[tokio::test]
async fn what_is_reported_at_the_end_closes_the_door_for_the_next() {
    let Some(rig) = Needs::memory().start().await else { return };
    // The first leaves 300, so that the second passes, and is charged past the limit.
    for (status, used) in [(200, 700), (200, 1_400), (429, 1_400), (429, 1_400)] {
        assert_eq!(rig.get(Door::Closed, "/tokens?cost=700", "alice").await.status, status);
        rig.until_used("tokens", "alice", used).await;
    }
    tell("what_is_reported_at_the_end_closes_the_door_for_the_next", "2 of 4 pass: 1400 of 1000 charged");
}

#[tokio::test]
async fn a_reservation_is_settled_at_its_true_cost_on_memory() {
    settled(Counters::Memory, "a_reservation_is_settled_at_its_true_cost_on_memory").await;
}

#[tokio::test]
async fn a_reservation_is_settled_at_its_true_cost_on_redis() {
    settled(Counters::Redis, "a_reservation_is_settled_at_its_true_cost_on_redis").await;
}

async fn settled(counters: Counters, test: &str) {
    // Whichever node settles it need not be the one that made it.
    let nodes = if counters == Counters::Redis { 2 } else { 1 };
    let Some(rig) = Needs::of(counters).nodes(nodes).start().await else { return };
    let ask = async |path: &str, estimate: &str| {
        let headers = [("x-api-key", "alice"), ("x-estimate", estimate)];
        rig.get_with(Door::Closed, path, &headers).await.status
    };
    assert_eq!(ask("/reserved?cost=37", "400").await, 200);
    rig.until_used("reserved", "alice", 37).await;
    assert_eq!(ask("/reserved?cost=63", "900").await, 200, "it fits beside 37");
    rig.until_used("reserved", "alice", 100).await;
    assert_eq!(ask("/reserved?cost=1", "901").await, 429, "it does not fit beside 100");
    assert_eq!(
        rig.get(Door::Closed, "/reserved", "alice").await.status,
        200,
        "a default estimate, which stays"
    );
    rig.until_used("reserved", "alice", 200).await;

    // Estimates that are too low are settled past the limit, and then nobody passes.
    let mut passed = 0;
    for (status, used) in [(200, 600), (200, 1_000), (429, 1_000)] {
        assert_eq!(ask("/reserved?cost=400", "10").await, status);
        passed += u64::from(status == 200);
        rig.until_used("reserved", "alice", used).await;
    }
    let low = async |cost: u32| {
        let headers = [("x-api-key", "bob"), ("x-estimate", "100")];
        rig.get_with(Door::Closed, &format!("/reserved?cost={cost}"), &headers).await.status
    };
    for (status, used) in [(200, 400), (200, 800), (200, 1_200), (429, 1_200)] {
        assert_eq!(low(400).await, status);
        passed += u64::from(status == 200);
        rig.until_used("reserved", "bob", used).await;
    }
    let event =
        async |event: &str| rig.metric("ratelimit_reservations_total", &format!(r#"event="{event}""#)).await;
    let events = (event("made").await, event("settled").await, event("missed").await);
    assert_eq!(events, (passed + 3, passed + 3, 0), "who was refused settles nothing");
    tell(
        test,
        &format!("{} made and settled; estimates of 100 for 400 end refused at 1200 of 1000", events.0),
    );
}
