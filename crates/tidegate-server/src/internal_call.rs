//! Calls that come from inside, and can show it: a header, signed under a secret that only our own services know.
//!
//! ```text
//! x-internal-call: t=1700000000,n=billing,s=96c2…
//! ```
//!
//! `t` is the time in Unix seconds, `n` the name of the caller, which may be left out, and `s` the HMAC-SHA256, in lower-case
//! hexadecimal digits, of everything before `,s=`. So a shell can sign:
//! `printf 't=%s' "$(date +%s)" | openssl dgst -sha256 -hmac "$secret"`.
//!
//! It says who calls and when, not what: whoever sees it can use it until it is stale, so it is to go over TLS.

use std::fmt::Write;
use std::time::Duration;

use ring::hmac;

/// How many secrets may be valid at the same time.
pub const SECRETS_MAX: usize = 16;
/// The shortest secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;
/// How old a signature may be unless somebody says otherwise.
pub const MAX_AGE_DEFAULT: Duration = Duration::from_secs(60);
/// The longest name of a caller.
const NAME_MAX: usize = 64;
/// The length of a signature.
const SIGNATURE_BYTES: usize = 32;

/// Tells internal calls from those that only say so. Several secrets are valid at once, so that one can be replaced while calls come: add
/// the new one everywhere, sign with it, remove the old one.
#[derive(Debug)]
pub struct InternalCalls {
    secrets: Vec<hmac::Key>,
    max_age_s: u64,
}

/// A call that is from inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verified<'h> {
    /// Who calls, if it said so.
    pub name: Option<&'h str>,
    /// When it was signed, in Unix seconds.
    pub at_s: u64,
}

/// Why a call is taken for one from outside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Not the form of such a header.
    #[error("not of the form `t=<unix seconds>,n=<name>,s=<signature>`")]
    Malformed,
    /// From too long ago, or from too far in the future.
    #[error("signed too long ago, or the clocks differ")]
    Stale,
    /// Not signed under any of the secrets.
    #[error("not signed under a secret that is valid")]
    Wrong,
}

/// Secrets that cannot be used. Says nothing of what they are.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretsError {
    /// There is none.
    #[error("there is no secret: write one per line, at least {SECRET_BYTES_MIN} bytes long")]
    None,
    /// There are too many.
    #[error("there are {count} secrets, at most {SECRETS_MAX} may be valid at once: remove the oldest")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// One is short enough to be guessed.
    #[error(
        "the secret in line {line} has {bytes} bytes, at least {SECRET_BYTES_MIN} are needed: `openssl rand -hex 32` makes one"
    )]
    TooShort {
        /// Where, from 1.
        line: usize,
        /// How long it is.
        bytes: usize,
    },
    /// After `hex:` there is something else.
    #[error("the secret in line {line} begins with `hex:`, but pairs of hexadecimal digits do not follow")]
    NotHex {
        /// Where, from 1.
        line: usize,
    },
}

impl InternalCalls {
    /// By the text of a file: a secret in each line, as it is or, after `hex:`, in hexadecimal digits. Empty lines and those that begin
    /// with `#` are nothing.
    pub fn of_text(text: &str, max_age: Duration) -> Result<Self, SecretsError> {
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let secrets = lines.map(|(at, line)| match line.strip_prefix("hex:") {
            Some(digits) => Ok((at + 1, of_hex(digits.trim()).ok_or(SecretsError::NotHex { line: at + 1 })?)),
            None => Ok((at + 1, line.as_bytes().to_vec())),
        });
        Self::of_lines(&secrets.collect::<Result<Vec<_>, _>>()?, max_age)
    }

    /// By these secrets. Signatures are good for `max_age`, and may be ahead by as much where clocks differ.
    pub fn new(secrets: Vec<Vec<u8>>, max_age: Duration) -> Result<Self, SecretsError> {
        Self::of_lines(&(1..).zip(secrets).collect::<Vec<_>>(), max_age)
    }

    fn of_lines(secrets: &[(usize, Vec<u8>)], max_age: Duration) -> Result<Self, SecretsError> {
        match secrets.len() {
            0 => return Err(SecretsError::None),
            count if count > SECRETS_MAX => return Err(SecretsError::TooMany { count }),
            _ => {}
        }
        if let Some((line, secret)) = secrets.iter().find(|(_, secret)| secret.len() < SECRET_BYTES_MIN) {
            return Err(SecretsError::TooShort { line: *line, bytes: secret.len() });
        }
        let secrets = secrets.iter().map(|(_, secret)| hmac::Key::new(hmac::HMAC_SHA256, secret));
        Ok(Self { secrets: secrets.collect(), max_age_s: max_age.as_secs() })
    }

    /// Is this the header of a call from inside, at this wall time?
    pub fn verify<'h>(&self, header: &'h str, wall_now_us: u64) -> Result<Verified<'h>, Refused> {
        let (signed, verified, signature) = parse(header).ok_or(Refused::Malformed)?;
        if (wall_now_us / 1_000_000).abs_diff(verified.at_s) > self.max_age_s {
            return Err(Refused::Stale);
        }
        // Compares in constant time, so that nobody finds a signature digit by digit.
        let fits = |secret: &hmac::Key| hmac::verify(secret, signed.as_bytes(), &signature).is_ok();
        if self.secrets.iter().any(fits) { Ok(verified) } else { Err(Refused::Wrong) }
    }
}

/// The header of a call from inside, signed at `at_s`. A name has letters, digits and `._-`; one that has others makes a header that
/// nobody accepts.
pub fn sign(secret: &[u8], name: Option<&str>, at_s: u64) -> String {
    let mut header = format!("t={at_s}");
    if let Some(name) = name {
        header += ",n=";
        header += name;
    }
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), header.as_bytes());
    header += ",s=";
    for byte in signature.as_ref() {
        _ = write!(header, "{byte:02x}"); // A text takes whatever is written.
    }
    header
}

/// What is signed, what that says, and the signature. Every header has one spelling only, so that none can be changed and stay valid.
fn parse(header: &str) -> Option<(&str, Verified<'_>, [u8; SIGNATURE_BYTES])> {
    let (signed, digits) = header.split_once(",s=")?;
    let (at, name) = match signed.split_once(",n=") {
        Some((at, name)) => (at, Some(name)),
        None => (signed, None),
    };
    let at = at.strip_prefix("t=")?;
    let plain = at.bytes().all(|byte| byte.is_ascii_digit()) && (at == "0" || !at.starts_with('0'));
    let at_s = at.parse().ok().filter(|_| plain)?;
    let named = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed)
    };
    let lower = !digits.bytes().any(|byte| byte.is_ascii_uppercase());
    if !name.is_none_or(named) || !lower || digits.len() != 2 * SIGNATURE_BYTES {
        return None;
    }
    let mut signature = [0; SIGNATURE_BYTES];
    for (byte, pair) in signature.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = of_digits(pair)?;
    }
    Some((signed, Verified { name, at_s }, signature))
}

/// The bytes that a text of hexadecimal digits stands for.
fn of_hex(digits: &str) -> Option<Vec<u8>> {
    digits.as_bytes().chunks(2).map(of_digits).collect()
}

fn of_digits(pair: &[u8]) -> Option<u8> {
    let &[high, low] = pair else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}
