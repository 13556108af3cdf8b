//! How much memory the machine has left. One that runs out ends whom it likes.

/// Who would leave less is asked for no more.
pub(crate) const LEFT_BYTES_MIN: u64 = 2_000_000_000;

/// Says no where less is left.
pub(crate) fn is_enough() -> Result<(), String> {
    let path = "/proc/meminfo";
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    enough(left_bytes(&text).ok_or_else(|| format!("{path} does not tell what is left"))?)
}

fn enough(left_bytes: u64) -> Result<(), String> {
    if left_bytes >= LEFT_BYTES_MIN {
        return Ok(());
    }
    let [left, min] = [left_bytes, LEFT_BYTES_MIN].map(|bytes| bytes as f64 / 1e9);
    Err(format!("the machine has {left:.1} GB of memory left, and {min:.1} are to stay"))
}

/// The line `MemAvailable:   1234 kB`.
fn left_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_read_from_what_linux_writes() {
        assert_eq!(left_bytes("MemTotal: 99 kB\nMemAvailable:   19531250 kB\n"), Some(20_000_000_000));
        assert_eq!(left_bytes("MemTotal: 99 kB\n"), None);
    }

    #[test]
    fn nobody_grows_where_less_than_two_gigabytes_are_left() {
        assert_eq!(enough(2_000_000_000), Ok(()));
        let reason = enough(1_900_000_000).expect_err("too little");
        assert!(reason.contains("has 1.9 GB of memory left, and 2.0 are to stay"), "{reason}");
    }
}
