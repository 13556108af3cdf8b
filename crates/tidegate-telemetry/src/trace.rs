//! The id of the trace that a request belongs to, as W3C Trace Context writes it in the header `traceparent`.

/// `00-` trace `-` parent `-` flags: what every version begins with.
const BYTES_MIN: usize = 55;

/// The id of the trace, if the header is as it must be. Anybody may have sent it.
pub fn trace_id_of(traceparent: &str) -> Option<&str> {
    let bytes = traceparent.as_bytes();
    let fields = [(0, 2), (3, 35), (36, 52), (53, 55)];
    let hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_hex = |(from, to): (usize, usize)| bytes.get(from..to).is_some_and(|field| field.iter().all(hex));
    let dashes = [2, 35, 52].iter().all(|at| bytes.get(*at) == Some(&b'-'));
    // A later version may have more behind, after a dash.
    let ends = match bytes.get(BYTES_MIN) {
        None => true,
        Some(next) => *next == b'-' && !bytes.starts_with(b"00"),
    };
    if !dashes || !ends || !fields.into_iter().all(is_hex) || bytes.starts_with(b"ff") {
        return None;
    }
    // All zeroes mean that there is none.
    let is_set = |id: &&str| id.bytes().any(|byte| byte != b'0');
    traceparent.get(36..52).filter(is_set)?;
    traceparent.get(3..35).filter(is_set)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn only_a_whole_traceparent_has_a_trace_id() {
        for good in [
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-will-be",
        ] {
            assert_eq!(trace_id_of(good), Some(TRACE), "{good}");
        }
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 ",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e47\n6-00f067aa0ba902b7-01",
            " 0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "é0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-é4bf92f3577b34da6a3ce929d0e0e47-00f067aa0ba902b7-01",
        ] {
            assert_eq!(trace_id_of(bad), None, "{bad}");
        }
    }

    proptest! {
        #![proptest_config(crate::proof::config(256))]

        /// Good ones, most of them with one letter changed: what is wholly random is never nearly good.
        #[test]
        fn whatever_is_sent_the_id_is_32_hex_digits_or_nothing(
            good in "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}",
            at in 0..80_usize,
            letter in any::<char>(),
        ) {
            let changed: String =
                good.chars().enumerate().map(|(place, one)| if place == at { letter } else { one }).collect();
            let id = trace_id_of(&changed);
            let is_id = |id: &str| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
            prop_assert!(id.is_none_or(is_id), "{:?} of {:?}", id, changed);
            if at >= good.len() && !good.starts_with("ff") {
                prop_assert_eq!(id, good.get(3..35));
            }
        }
    }
}
