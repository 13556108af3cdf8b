//! What a node's metrics say of the counters in its memory (docs/metrics.md).

use super::results::Own;

/// From a page of metrics.
pub(crate) fn own(page: &str) -> Result<Own, String> {
    Ok(Own {
        set_aside_bytes: value(page, "tidegate_counter_bytes")?,
        arena_bytes: value(page, "tidegate_counter_arena_bytes")?,
        arena_used_bytes: value(page, "tidegate_counter_arena_used_bytes")?,
        keys: value(page, "tidegate_keys_live")?,
        evicted_live: value(page, "tidegate_counter_evictions_total{kind=\"live\"}")?
            + value(page, "tidegate_counter_evictions_total{kind=\"refused\"}")?,
        unremembered: value(page, "tidegate_charges_unremembered_total")?,
    })
}

/// Of a row, by all that stands before its value.
fn value(page: &str, row: &str) -> Result<u64, String> {
    let mut values = page.lines().filter_map(|line| line.strip_prefix(row)?.strip_prefix(' '));
    let value = values.next().and_then(|value| value.split(' ').next()?.parse().ok());
    value.ok_or_else(|| format!("the metrics have no number for {row}"))
}

impl Own {
    /// The table with its free slots, and what is used of the arena, for each key.
    pub(crate) fn bytes_per_key(&self) -> f64 {
        let slots = self.set_aside_bytes.saturating_sub(self.arena_bytes);
        (slots + self.arena_used_bytes) as f64 / self.keys.max(1) as f64
    }

    /// How many callers are missing, as it says itself.
    pub(crate) fn forgotten(&self) -> u64 {
        self.evicted_live + self.unremembered
    }

    /// Are there as many keys as callers, but for those?
    pub(crate) fn accounts_for(&self, callers: u32) -> Result<(), String> {
        let (keys, forgotten) = (self.keys, self.forgotten());
        if keys + forgotten >= u64::from(callers) {
            return Ok(());
        }
        Err(format!(
            "{callers} callers have asked; the node says that it has {keys} keys, and has forgotten {forgotten}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# TYPE tidegate_keys_live gauge
tidegate_keys_live 1000
tidegate_keys_capacity 2048
tidegate_counter_evictions_total{kind=\"live\"} 0
tidegate_counter_evictions_total{kind=\"refused\"} 0
tidegate_charges_unremembered_total 0
tidegate_counter_bytes 1048000
tidegate_counter_arena_bytes 1015232
tidegate_counter_arena_used_bytes 32000
";

    #[test]
    fn bytes_of_a_key_are_its_share_of_the_slots_and_what_it_has_of_the_arena() {
        let own = own(PAGE).expect("numbers");
        assert_eq!((own.keys, own.arena_used_bytes), (1_000, 32_000));
        assert_eq!(own.bytes_per_key(), 32.768 + 32.0);
        let reason = super::own("").expect_err("nothing");
        assert!(reason.contains("tidegate_counter_bytes"), "{reason}");
    }

    #[test]
    fn whoever_asked_is_there_or_was_forgotten() {
        let own = own(PAGE).expect("numbers");
        for (own, callers, accounts) in [
            (own, 1_000, true),
            (own, 1_001, false),
            (Own { evicted_live: 1, ..own }, 1_001, true),
            (Own { unremembered: 1, ..own }, 1_001, true),
        ] {
            assert_eq!(own.accounts_for(callers).is_ok(), accounts, "{own:?}");
        }
        let refused = PAGE.replace("\"refused\"} 0", "\"refused\"} 7");
        assert_eq!(super::own(&refused).expect("numbers").forgotten(), 7);
    }
}
