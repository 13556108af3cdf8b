//! No step allocates: a decision costs no trip to the allocator, whatever the algorithm.

use tidegate_core::{Ask, Calendar, Limit, LimitError, Micros, Unit, Weekday};

#[test]
fn no_step_allocates() -> Result<(), LimitError> {
    let minute = Micros::from_secs(60);
    let limits = [
        Limit::fixed_window(100, minute)?,
        Limit::sliding_window_counter(100, minute)?,
        Limit::sub_window(100, minute, None, false)?,
        Limit::sliding_log(100, minute)?,
        Limit::token_bucket(100, minute, Some(20))?,
        Limit::sliding_window(100, minute)?,
        Limit::sliding_window_strict(100, minute)?,
        Limit::concurrency(100, minute)?,
        Limit::calendar(100, Calendar::new(Unit::Day, "America/New_York", Weekday::Monday)?)?,
    ];
    for limit in limits {
        let mut state = limit.state();
        let counted = allocation_counter::measure(|| {
            for tenth in 0..5_000_u64 {
                let now = Micros::from_millis(1_800_000_000_000 + 100 * tenth);
                let verdict = limit.step(&mut state, Ask::Charge { cost: 1 + tenth % 3 }, now);
                limit.step(&mut state, Ask::Acquire { id: tenth % 50, cost: 1 }, now);
                limit.step(&mut state, Ask::Refund { units: tenth % 2, receipt: verdict.receipt() }, now);
                limit.show(&mut state, Ask::Peek, now);
            }
        });
        assert_eq!(counted.count_total, 0, "{limit} allocates");
    }
    Ok(())
}
