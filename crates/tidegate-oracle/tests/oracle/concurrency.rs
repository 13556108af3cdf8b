//! Places held for a time.

use super::check;

#[test]
fn places_are_held_renewed_released_and_expire() {
    check(
        "limit concurrency 2 ttl=60s
         at 0s acquire 7 cost 1
         at 10s acquire 7 cost 1
         at 20s acquire 8 cost 1
         at 20s acquire 9 cost 1
         at 20s release 7
         at 20s release 7
         at 20s renew 7
         at 70s renew 8
         at 130s renew 8
         at 130s peek",
        &[
            "admitted remaining=1 applied=1 reset=1m reset_after=1m",
            "admitted remaining=1 applied=0 reset_after=1m",
            "admitted remaining=0 applied=1 reset=50s reset_after=1m",
            "rate_limited retry=50s reset=50s applied=0",
            "admitted remaining=1 applied=-1 reset=1m",
            "admitted remaining=1 applied=0",
            "not_held remaining=1 retry=- reset=1m",
            "admitted remaining=1 reset_after=1m",
            "not_held remaining=2 reset=0s",
            "admitted remaining=2 over=0 under=0",
        ],
    );
}

#[test]
fn a_plain_charge_takes_a_place_that_only_expires() {
    check(
        "limit concurrency 3 ttl=10s
         at 0s charge 2
         at 0s release 0
         at 0s refund 2 of #0
         at 0s settle #0 as 1
         at 0s settle #0 as 3
         at 1s acquire 5 cost 2
         at 1s acquire 5 cost 4
         at 10s acquire 5 cost 2",
        &[
            "admitted remaining=1",
            "remaining=1 applied=0",
            "admitted remaining=1 applied=0",
            "admitted remaining=1 applied=0",
            "admitted remaining=1 applied=0 forgiven=0",
            "rate_limited retry=9s",
            "cost_exceeds_limit retry=- reset=10s",
            "admitted remaining=1 applied=2",
        ],
    );
}

#[test]
fn a_held_place_stays_held_when_the_limit_falls_to_nothing() {
    check(
        "limit concurrency 3 ttl=10s
         at 0s acquire 5 cost 2
         limit concurrency 0 ttl=20s
         at 1s acquire 5 cost 2
         at 1s acquire 6 cost 1
         at 20s renew 5
         at 40s renew 5",
        &[
            "admitted",
            "admitted applied=0 remaining=0 reset=20s reset_after=20s",
            "rate_limited retry=- reset=20s",
            "admitted reset=20s",
            "not_held reset=20s reset_after=0s",
        ],
    );
}
