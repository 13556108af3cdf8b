//! The divisions of products that interpolation needs, exact for any operands.

/// ⌈a·b / c⌉, for c > 0.
#[inline]
pub(crate) fn mul_div_up(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product.div_ceil(c), // Nearly always: a limit's own products are below 2^52.
        None => saturate((u128::from(a) * u128::from(b)).div_ceil(u128::from(c))),
    }
}

/// ⌊a·b / c⌋, for c > 0.
#[inline]
pub(crate) fn mul_div_down(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => saturate(u128::from(a) * u128::from(b) / u128::from(c)),
    }
}

/// a·b / c to the nearest, halves up, for c > 0.
#[inline]
pub(crate) fn mul_div_nearest(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) if (product | c) < 1 << 62 => (2 * product + c) / (2 * c),
        _ => saturate((2 * u128::from(a) * u128::from(b) + u128::from(c)) / (2 * u128::from(c))),
    }
}

/// The greatest common divisor; 0 only of 0 and 0.
pub(crate) fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn saturate(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_products_divide_exactly() {
        assert_eq!(mul_div_up(u64::MAX, 7, 7), u64::MAX);
        assert_eq!(mul_div_down(u64::MAX, 7, 8), (u128::from(u64::MAX) * 7 / 8) as u64);
        assert_eq!(mul_div_nearest(u64::MAX, 3, 4), (u128::from(u64::MAX) * 3 / 4) as u64); // …,25
        assert_eq!(mul_div_nearest(u64::MAX - 1, 3, 4), (u128::from(u64::MAX) * 3 / 4) as u64); // …,5
        assert_eq!((mul_div_up(10, 3, 4), mul_div_down(10, 3, 4)), (8, 7));
        assert_eq!(
            (mul_div_nearest(3, 3, 4), mul_div_nearest(10, 1, 4), mul_div_nearest(1, 1, 3)),
            (2, 3, 0)
        );
    }
}
