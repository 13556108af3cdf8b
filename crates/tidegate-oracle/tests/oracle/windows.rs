//! Fixed window, two windows, sub-windows.

use super::check;

#[test]
fn fixed_window_lets_two_limits_through_around_a_boundary() {
    check(
        "limit fixed_window 100/1m
         at 59s charge 100
         at 59s charge 1
         at 61s charge 100
         at 61s charge 1
         at 61s peek",
        &[
            "admitted remaining=0 reset=1s reset_after=1s applied=100 over=0 under=0",
            "rate_limited retry=1s reset=1s applied=0",
            "admitted remaining=0 reset=59s over=100 under=0",
            "rate_limited retry=59s",
            "rate_limited retry=59s",
        ],
    );
}

#[test]
fn fixed_window_shows_the_windows_end_while_there_is_room() {
    check(
        "limit fixed_window 10/1m
         at 10s peek
         at 10s charge 4
         at 10s charge 11
         at 10s charge 0",
        &[
            "admitted remaining=10 reset=50s reset_after=0s",
            "admitted remaining=6 reset=50s reset_after=50s",
            "cost_exceeds_limit remaining=6 retry=- reset=50s",
            "admitted remaining=6 applied=0",
        ],
    );
}

#[test]
fn fixed_window_refunds_reach_one_window_back() {
    check(
        "limit fixed_window 10/1m
         at 50s charge 6
         at 61s charge 5
         at 62s refund 9 of #0
         at 63s refund 3
         at 63s refund 9
         at 130s refund 1 of #0",
        &[
            "remaining=4",
            "remaining=5 over=6",
            "admitted remaining=5 applied=-6 over=0",
            "remaining=8 applied=-3",
            "remaining=10 applied=-2",
            "remaining=10 applied=0",
        ],
    );
}

#[test]
fn two_windows_84_before_36_now_15_s_in() {
    // 84 · 45/60 = 63 of the last minute still count. One more fits until 84 · (60 − x)/60 ≤ 62, x = 15.714286 s.
    check(
        "limit sliding_window_counter 100/1m
         at 59s charge 84
         at 75s charge 36
         at 75s charge 1
         at 75s charge 1
         at 75714285us peek
         at 75714286us peek",
        &[
            "admitted remaining=16 reset=61s reset_after=61s over=0 under=0",
            "admitted remaining=1 reset_after=105s over=21 under=63",
            "admitted remaining=0 reset=714286us",
            "rate_limited retry=714286us reset=714286us reset_after=105s",
            "rate_limited retry=1us",
            "admitted remaining=1",
        ],
    );
}

#[test]
fn two_windows_round_the_fading_part_up() {
    // 85 · 45/60 = 63.75, so 36 more make 100 and nothing fits.
    check(
        "limit sliding_window_counter 100/1m
         at 59s charge 85
         at 75s charge 36
         at 75s charge 1",
        &["remaining=15", "admitted remaining=0", "rate_limited"],
    );
}

#[test]
fn sub_windows_fade_the_oldest_part() {
    // Parts of 10 s. At 64 s part 0 has 6 s left: ⌈8 · 6/10⌉ = 5.
    check(
        "limit sub_window 20/1m k=6
         at 3s charge 8
         at 12s charge 4
         at 64s peek
         at 64s charge 12
         at 70s peek
         at 79s peek
         at 80s peek",
        &[
            "remaining=12 reset_after=67s",
            "remaining=8",
            "remaining=11 reset_after=16s over=3 under=5",
            "rate_limited retry=1s",
            "remaining=16 over=0 under=4",
            "remaining=19 over=3 under=1",
            "remaining=20 over=0 under=0 reset_after=0s",
        ],
    );
}

#[test]
fn strict_sub_windows_count_the_oldest_part_whole() {
    check(
        "limit sub_window 20/1m k=6 strict
         at 3s charge 8
         at 64s peek
         at 64s charge 13
         at 69999999us peek
         at 70s peek",
        &[
            "remaining=12 reset_after=67s",
            "remaining=12 over=0 under=8",
            "rate_limited retry=6s",
            "remaining=12",
            "remaining=20",
        ],
    );
}

#[test]
fn sub_window_refunds_go_to_the_part_that_was_charged() {
    check(
        "limit sub_window 20/1m k=6
         at 3s charge 8
         at 12s charge 4
         at 13s refund 9
         at 14s refund 5 of #0
         at 65s refund 2 of #0
         at 71s refund 1 of #0",
        &[
            "remaining=12",
            "remaining=8",
            "remaining=12 applied=-4",
            "remaining=17 applied=-5",
            "remaining=19 applied=-2",
            "applied=0",
        ],
    );
}

#[test]
fn sub_windows_are_sixty_unless_sixty_does_not_divide() {
    // 1 min: parts of 1 s, so at 60.5 s half of the 2 units counts. 7 s = 56 parts of 125 ms.
    check(
        "limit sub_window 4/1m
         at 0s charge 2
         at 60500ms peek
         at 61s peek",
        &["remaining=2", "remaining=3", "remaining=4"],
    );
    check(
        "limit sub_window 4/7s
         at 0s charge 4
         at 7s peek
         at 7063ms peek
         at 7125ms peek",
        &["remaining=0", "remaining=0", "remaining=2", "remaining=4"],
    );
}
