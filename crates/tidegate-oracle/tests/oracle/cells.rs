//! Cell log. With 100/1m a cell holds up to 5 units and less than 3 s.

use tidegate_oracle::{Answer, run};

use super::check;

#[test]
fn only_the_cell_at_the_edge_is_estimated() {
    // At 61 s the edge is at 1 s, in the middle of a cell of 3 units from 0 s to 2 s: 1 + ⌈1 · 1/2⌉ = 2.
    let script = "
         at 0s charge 1
         at 1s charge 1
         at 2s charge 1
         at 3s charge 1
         at 61s peek
         at 62s peek
         at 63s peek";
    check(
        &format!("limit sliding_window 100/1m {script}"),
        &[
            "remaining=99 reset_after=1m over=0 under=0",
            "remaining=98",
            "remaining=97",
            "remaining=96",
            "remaining=97 reset_after=2s over=0 under=1",
            "remaining=99 over=0 under=0",
            "remaining=100 reset_after=0s",
        ],
    );
    check(
        &format!("limit sliding_window 100/1m strict {script}"),
        &[
            "remaining=99",
            "remaining=98",
            "remaining=97",
            "remaining=96",
            "remaining=96 reset_after=2s over=0 under=2",
            "remaining=99",
            "remaining=100",
        ],
    );
}

#[test]
fn a_charge_fills_the_newest_cell_first() {
    // Cells (0 s, 1 s, 5 units) and (1 s, 1 s, 5). With the edge at 0.5 s: 1 + 3 · 0.5, rounded to 3, and 5.
    // A moment later it is nearer to 2.
    check(
        "limit sliding_window 100/1m
         at 0s charge 3
         at 1s charge 7
         at 60500ms peek
         at 60500ms charge 93
         at 61s peek",
        &[
            "remaining=97",
            "remaining=90",
            "remaining=92 over=1 under=2",
            "rate_limited retry=1us",
            "remaining=100",
        ],
    );
}

#[test]
fn refunds_widen_the_bound() {
    check(
        "limit sliding_window 100/1m
         at 0s charge 3
         at 1s charge 7
         at 2s refund 1 of #1
         at 60500ms peek
         at 60500ms refund 99
         at 60500ms peek",
        &[
            "remaining=97",
            "remaining=90",
            "remaining=91 applied=-1",
            "remaining=93 over=2 under=3",
            // Whole cells are given back, the part that has left the window too: 5 + 4.
            "remaining=100 applied=-9 over=0 under=0",
            "remaining=100 over=0 under=0",
        ],
    );
}

#[test]
fn a_refund_merges_cells_that_fit_together() {
    // Cells of 5, 5 and 5 units at 0 s, 1 s and 2 s shrink to 1, 1 and 5; the first two become one of 2 units from 0 s
    // to 1 s, of which 1 counts with the edge at 0.5 s.
    check(
        "limit sliding_window 100/1m
         at 0s charge 5
         at 1s charge 5
         at 2s charge 5
         at 2s refund 4 of #0
         at 2s refund 4 of #1
         at 60500ms peek
         at 61s peek",
        &[
            "remaining=95",
            "remaining=90",
            "remaining=85",
            "applied=-4",
            "remaining=93 applied=-4",
            "remaining=94 over=1 under=1",
            "remaining=95",
        ],
    );
}

#[test]
fn small_limits_are_exact() {
    check(
        "limit sliding_window 3/1m
         at 0s charge 1
         at 1s charge 1
         at 2s charge 1
         at 3s charge 2
         at 61s charge 2",
        &[
            "remaining=2",
            "remaining=1",
            "remaining=0 reset=58s",
            "rate_limited retry=58s",
            "admitted remaining=0",
        ],
    );
}

/// Charges every millisecond while the limit doubles: 160 cells by the time it is 2560, and then some.
fn crowd(charges_at_2560: u64) -> Vec<Answer> {
    let mut script = String::new();
    let mut now_ms = 0;
    let doubling = [(40, 2, 20), (80, 4, 20), (160, 8, 20), (320, 16, 20), (640, 32, 20), (1280, 64, 20)];
    for (amount, cost, charges) in
        [(20, 1, 40)].into_iter().chain(doubling).chain([(2560, 128, charges_at_2560)])
    {
        script += &format!("limit sliding_window {amount}/1m charge=always\n");
        for _ in 0..charges {
            script += &format!("at {now_ms}ms charge {cost}\n");
            now_ms += 1;
        }
    }
    script += "at 60010ms peek\n";
    run(&script.parse().expect("a script"))
}

#[test]
fn the_164th_cell_merges_the_others_first() {
    // With 163 cells every unit of the first 39 ms has a cell of its own. Merged, 40 · 1 + 20 · 2 + 12 · 4 = 128 units
    // share one from 0 to 71 ms: with the edge at 10 ms it counts 1 + 126 · 61/71 ≈ 109 of between 1 and 127.
    let separate = crowd(3).pop().expect("an answer");
    assert_eq!((separate.over, separate.under), (0, 0));
    let merged = crowd(4).pop().expect("an answer");
    assert_eq!((merged.over, merged.under), (18, 108));
}
