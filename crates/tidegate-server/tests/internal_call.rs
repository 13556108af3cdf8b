//! Calls that come from inside are known by their signature, and by nothing else.

use std::time::Duration;

use proptest::prelude::*;
use tidegate_server::{InternalCalls, MAX_AGE_DEFAULT, Refused, SECRETS_MAX, SecretsError, Verified, sign};

const SECRET: &[u8] = b"0123456789abcdef";
const NOW_S: u64 = 1_700_000_000;
const NOW_US: u64 = NOW_S * 1_000_000;

fn calls() -> InternalCalls {
    InternalCalls::new(vec![SECRET.to_vec()], MAX_AGE_DEFAULT).expect("a good secret")
}

/// As another program would sign it: `printf 't=1700000000,n=billing' | openssl dgst -sha256 -hmac 0123456789abcdef`.
#[test]
fn others_can_sign_too() {
    let header = "t=1700000000,n=billing,s=96c27edbf8fbb9063786df388f2f6b5bc6750f5cdf974689de686b2b3ddd018a";
    assert_eq!(sign(SECRET, Some("billing"), NOW_S), header);
    assert_eq!(calls().verify(header, NOW_US), Ok(Verified { name: Some("billing"), at_s: NOW_S }));
}

#[test]
fn a_signature_is_good_for_a_minute_in_both_directions() {
    let calls = calls();
    for (at_s, verified) in [
        (NOW_S, Ok(())),
        (NOW_S - 60, Ok(())),
        (NOW_S + 60, Ok(())),
        (NOW_S - 61, Err(Refused::Stale)),
        (NOW_S + 61, Err(Refused::Stale)),
        (0, Err(Refused::Stale)),
        (u64::MAX, Err(Refused::Stale)),
    ] {
        assert_eq!(calls.verify(&sign(SECRET, None, at_s), NOW_US).map(|_| ()), verified, "{at_s}");
    }
}

#[test]
fn what_is_no_such_header_is_malformed() {
    let calls = calls();
    let good = sign(SECRET, None, NOW_S);
    let (signed, signature) = good.split_once(",s=").expect("a signature");
    let long = "n".repeat(65);
    for header in [
        "",
        "true",
        "t=1700000000",
        ",s=",
        &format!("{signed},s="),
        &format!("{signed},s={signature}00"),
        &format!("{signed},s={}", signature.to_uppercase()),
        &format!("{signed},s={}", &signature[..62]),
        &format!("{signed},s={}", "é".repeat(32)),
        &format!(" {good}"),
        &format!("{good} "),
        &format!("{good},n=late"),
        &sign(SECRET, Some(""), NOW_S),
        &sign(SECRET, Some("a b"), NOW_S),
        &sign(SECRET, Some("a,n=b"), NOW_S),
        &sign(SECRET, Some("a,s=b"), NOW_S),
        &sign(SECRET, Some(&long), NOW_S),
        &good.replace("t=", "t=0"),
        &good.replace("t=", "t=+"),
        &good.replace("t=", "t=-"),
        &good.replace("t=", "t=99999999999"),
        &good.replace("t=", "T="),
    ] {
        assert_eq!(calls.verify(header, NOW_US), Err(Refused::Malformed), "{header}");
    }
}

#[test]
fn secrets_are_read_from_lines() {
    let age = MAX_AGE_DEFAULT;
    let text = "# rotated on Mondays\n\n  0123456789abcdef  \r\nhex:000102030405060708090a0b0c0d0e0F\n";
    let calls = InternalCalls::of_text(text, age).expect("two secrets");
    let hex: Vec<u8> = (0..16).collect();
    for secret in [SECRET, &hex] {
        assert!(calls.verify(&sign(secret, None, NOW_S), NOW_US).is_ok());
    }
    assert_eq!(calls.verify(&sign(b"# rotated on Mondays", None, NOW_S), NOW_US), Err(Refused::Wrong));

    let many = "0123456789abcdef\n".repeat(SECRETS_MAX + 1);
    for (text, wrong, said) in [
        ("\n# none\n", SecretsError::None, "there is no secret: write one per line, at least 16 bytes long"),
        (
            "\n0123456789abcde\n",
            SecretsError::TooShort { line: 2, bytes: 15 },
            "the secret in line 2 has 15 bytes, at least 16 are needed: `openssl rand -hex 32` makes one",
        ),
        (
            "0123456789abcdef\nhex:0123456789abcdef0123456789abcd\n",
            SecretsError::TooShort { line: 2, bytes: 15 },
            "the secret in line 2 has 15 bytes, at least 16 are needed: `openssl rand -hex 32` makes one",
        ),
        (
            "hex:0123456789abcdef0123456789abcdef0\n",
            SecretsError::NotHex { line: 1 },
            "the secret in line 1 begins with `hex:`, but pairs of hexadecimal digits do not follow",
        ),
        (
            "hex:0123456789abcdef 0123456789abcdef\n",
            SecretsError::NotHex { line: 1 },
            "the secret in line 1 begins with `hex:`, but pairs of hexadecimal digits do not follow",
        ),
        (
            &many,
            SecretsError::TooMany { count: SECRETS_MAX + 1 },
            "there are 17 secrets, at most 16 may be valid at once: remove the oldest",
        ),
    ] {
        let refused = InternalCalls::of_text(text, age).map(|_| ());
        assert_eq!(refused.as_ref().map_err(ToString::to_string), Err(said.to_owned()));
        assert_eq!(refused, Err(wrong));
    }
    assert_eq!(InternalCalls::new(vec![], age).map(|_| ()), Err(SecretsError::None));
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?}", calls());
    assert!(!shown.contains("0123456789abcdef") && !shown.contains("48, 49, 50"), "{shown}");
}

proptest! {
    #[test]
    fn whatever_byte_is_changed_the_call_is_refused(
        name in prop::option::of("[A-Za-z0-9._-]{1,64}"),
        at in any::<prop::sample::Index>(),
        byte in 0_u8..128,
    ) {
        let header = sign(SECRET, name.as_deref(), NOW_S);
        prop_assert_eq!(calls().verify(&header, NOW_US), Ok(Verified { name: name.as_deref(), at_s: NOW_S }));
        let at = at.index(header.len());
        let mut changed = header.clone().into_bytes();
        changed[at] = byte;
        let changed = String::from_utf8(changed).expect("ASCII");
        prop_assert_eq!(calls().verify(&changed, NOW_US).is_ok(), changed == header);
        // Nor may any be left out.
        let shorter = format!("{}{}", &header[..at], &header[at + 1..]);
        prop_assert!(calls().verify(&shorter, NOW_US).is_err());
    }

    #[test]
    fn a_secret_is_valid_while_it_is_listed(
        secrets in prop::collection::hash_set(prop::collection::vec(any::<u8>(), 16..80), 2..=SECRETS_MAX),
        age_s in 0_u64..1_000,
    ) {
        let secrets: Vec<Vec<u8>> = secrets.into_iter().collect();
        let age = Duration::from_secs(age_s);
        let all = InternalCalls::new(secrets.clone(), age).expect("long enough");
        let less = InternalCalls::new(secrets[1..].to_vec(), age).expect("long enough");
        for (at, secret) in secrets.iter().enumerate() {
            let header = sign(secret, Some("a"), NOW_S - age_s);
            prop_assert!(all.verify(&header, NOW_US).is_ok());
            let left = if at == 0 { Err(Refused::Wrong) } else { Ok(()) };
            prop_assert_eq!(less.verify(&header, NOW_US).map(|_| ()), left);
        }
    }

    #[test]
    fn no_text_does_harm(header in any::<String>(), signed in "[tns=,0-9a-f]{0,90}") {
        prop_assert!(calls().verify(&header, NOW_US).is_err());
        prop_assert!(calls().verify(&signed, NOW_US).is_err());
    }
}
