//! Times and windows as text: an integer and a unit.

/// The units, largest first, so that printing takes the first that divides.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// Prints with the largest unit that divides.
pub fn print(us: u64) -> String {
    if us == 0 {
        return "0s".to_owned();
    }
    let (unit, size) =
        UNITS.iter().find(|(_, size)| us.is_multiple_of(*size)).expect("one microsecond divides every time");
    format!("{}{unit}", us / size)
}

/// Reads what [`print()`] writes, and any other whole number of a unit.
pub fn parse(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*size)
}
