//! What single values mean: flags, numbers, percentages, addresses. Pure: text in, value or complaint out.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::IpNet;

use crate::codes::Code;
use crate::diagnostic::quoted;

/// Why a text is not what it should be. The reader adds the place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wrong {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Wrong {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), help: None }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A share, in hundredths of a percent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Percent {
    /// From 0 to 10 000.
    pub basis_points: u32,
}

/// A range of addresses: those that share the first `prefix` bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cidr {
    /// The first of them.
    pub address: IpAddr,
    /// How many bits they share.
    pub prefix: u8,
}

impl Cidr {
    /// As a network; none if the prefix is longer than the address.
    pub fn network(self) -> Option<IpNet> {
        IpNet::new(self.address, self.prefix).ok()
    }
}

/// The words of YAML 1.1, in any case: what Go's reader takes, which the reference is read by.
const FLAGS: [(&str, bool); 8] = [
    ("true", true),
    ("false", false),
    ("yes", true),
    ("no", false),
    ("on", true),
    ("off", false),
    ("y", true),
    ("n", false),
];

pub(crate) fn flag(text: &str) -> Result<bool, Wrong> {
    let known = FLAGS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
    known.map(|(_, value)| *value).ok_or_else(|| {
        Wrong::new(Code::NotAFlag, format!("{} is neither true nor false", quoted(text)))
            .help("write `true` or `false`")
    })
}

/// Every spelling of a flag, for the schema.
pub(crate) fn flag_words() -> impl Iterator<Item = &'static str> {
    FLAGS.iter().map(|(word, _)| *word)
}

pub(crate) fn whole(text: &str, min: u64, max: u64) -> Result<u64, Wrong> {
    let number = digits(text)?;
    if number >= u128::from(min) && number <= u128::from(max) {
        return Ok(number as u64);
    }
    let side = if number < u128::from(min) { "small" } else { "large" };
    let message = format!("{} is too {side}: it has to be from {min} to {max}", quoted(text));
    Err(Wrong::new(Code::OutOfRange, message))
}

pub(crate) fn signed(text: &str, min: i64, max: i64) -> Result<i64, Wrong> {
    let trimmed = text.trim();
    let size = digits(trimmed.strip_prefix('-').unwrap_or(trimmed))?;
    let size = i128::try_from(size).unwrap_or(i128::MAX);
    let number = if trimmed.starts_with('-') { -size } else { size };
    i64::try_from(number).ok().filter(|number| (min..=max).contains(number)).ok_or_else(|| {
        let side = if number < i128::from(min) { "small" } else { "large" };
        let message = format!("{} is too {side}: it has to be from {min} to {max}", quoted(text));
        Wrong::new(Code::OutOfRange, message)
    })
}

/// What sizes end in.
const SIZES: [(&str, u64); 8] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("b", 1),
];

pub(crate) fn bytes(text: &str, min: u64, max: u64) -> Result<u64, Wrong> {
    let lower = text.trim().to_ascii_lowercase();
    let unit = SIZES.iter().find_map(|(end, size)| Some((lower.strip_suffix(end)?, *size)));
    let (number, size) = unit.unwrap_or((&lower, 1));
    let number = digits(number.trim_end()).map_err(|_| {
        Wrong::new(Code::BadSize, format!("{} is not a size", quoted(text)))
            .help("write a whole number with a unit: `512KiB`, `32MiB`, `2GiB`")
    })?;
    let bytes = number.saturating_mul(u128::from(size));
    if bytes < u128::from(min) || bytes > u128::from(max) {
        let side = if bytes < u128::from(min) { "small" } else { "large" };
        let message = format!("{} is too {side}: it has to be from {min} to {max} bytes", quoted(text));
        return Err(Wrong::new(Code::OutOfRange, message));
    }
    Ok(bytes as u64)
}

/// A whole number of any size that fits; what does not is as large as can be.
pub(crate) fn digits(text: &str) -> Result<u128, Wrong> {
    let trimmed = text.trim();
    let unsigned = trimmed.strip_prefix('+').unwrap_or(trimmed);
    let (radix, body) = match unsigned.get(..2) {
        Some("0x" | "0X") => (16, &unsigned[2..]),
        Some("0o" | "0O") => (8, &unsigned[2..]),
        Some("0b" | "0B") => (2, &unsigned[2..]),
        _ => (10, unsigned),
    };
    let is_number = |body: &str, radix: u32| {
        let neat = !body.starts_with('_') && !body.ends_with('_') && !body.contains("__");
        neat && !body.is_empty() && body.chars().all(|letter| letter.is_digit(radix) || letter == '_')
    };
    if !is_number(body, radix) {
        return Err(not_a_number(text, trimmed, is_number));
    }
    if radix == 10 && body.len() > 1 && body.starts_with('0') {
        let without = body.trim_start_matches(['0', '_']);
        let without = if without.is_empty() { "0" } else { without };
        return Err(Wrong::new(
            Code::NotANumber,
            format!("{} begins with a zero, which some readers of YAML take for octal", quoted(text)),
        )
        .help(format!("write {}", quoted(without))));
    }
    let letters = body.chars().filter_map(|letter| letter.to_digit(radix));
    Ok(letters
        .fold(0_u128, |sum, digit| sum.saturating_mul(u128::from(radix)).saturating_add(u128::from(digit))))
}

fn not_a_number(text: &str, trimmed: &str, is_number: impl Fn(&str, u32) -> bool) -> Wrong {
    let wrong = |why: &str| Wrong::new(Code::NotANumber, format!("{} {why}", quoted(text)));
    if trimmed.strip_prefix('-').is_some_and(|rest| is_number(rest, 10)) {
        return Wrong::new(Code::OutOfRange, format!("{} is negative", quoted(text)))
            .help("write a number from 0 up");
    }
    let parts: Vec<&str> = trimmed.splitn(3, '.').collect();
    if let [before, after] = parts[..]
        && is_number(before, 10)
        && after.chars().all(|letter| letter.is_ascii_digit())
    {
        return wrong("is not a whole number").help(format!("write {}", quoted(before)));
    }
    if trimmed.contains(',') && trimmed.chars().all(|letter| letter.is_ascii_digit() || letter == ',') {
        return wrong("is not a number").help(format!("write {}", quoted(&trimmed.replace(',', "_"))));
    }
    wrong("is not a whole number").help("write digits only, e.g. `1000`")
}

pub(crate) fn percent(text: &str) -> Result<Percent, Wrong> {
    let number = text.trim().strip_suffix('%').unwrap_or(text.trim()).trim_end();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let wrong = || {
        Wrong::new(Code::BadPercent, format!("{} is not a percentage", quoted(text)))
            .help("write a number from 0 to 100 with at most two decimals, e.g. `25%` or `0.5%`")
    };
    if whole.is_empty()
        || whole.len() > 9
        || !all_digits(whole)
        || !all_digits(decimals)
        || number.ends_with('.')
    {
        return Err(wrong());
    }
    if decimals.len() > 2 {
        return Err(wrong());
    }
    let hundredths = format!("{decimals:0<2}");
    let points = whole.parse::<u32>().unwrap_or(u32::MAX).saturating_mul(100);
    let basis_points = points.saturating_add(hundredths.parse().unwrap_or(0));
    if basis_points > 10_000 {
        return Err(Wrong::new(Code::OutOfRange, format!("{} is more than 100%", quoted(text))));
    }
    Ok(Percent { basis_points })
}

/// Where to listen. Names are not looked up, but for the one that everybody knows; no address, or `*`, is every address of the machine.
pub(crate) fn socket(text: &str) -> Result<SocketAddr, Wrong> {
    let port_of = |start: &str| text.strip_prefix(start).and_then(|port| port.parse::<u16>().ok());
    let local = port_of("localhost:").map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let all = port_of("*:").or(port_of(":")).map(|port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
    local.or(all).or(text.parse().ok()).ok_or_else(|| {
        Wrong::new(Code::BadSocket, format!("{} is not an address and a port", quoted(text)))
            .help("write e.g. `127.0.0.1:8080` for this machine alone, `0.0.0.0:8080` or `[::]:8080` for all that can reach it")
    })
}

/// Where a node listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListenAt {
    /// At an address.
    Tcp(SocketAddr),
    /// At a socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for ListenAt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix(path) => write!(out, "{UNIX}{}", path.display()),
        }
    }
}

impl ListenAt {
    /// The address, if it is at one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

/// What the path of a socket stands behind.
const UNIX: &str = "unix:";

/// Where to listen, which may be a socket. How long its path may be, only the system's calls say; see [`check_socket_path`].
pub(crate) fn listen(text: &str) -> Result<ListenAt, Wrong> {
    let Some(path) = text.strip_prefix(UNIX) else { return socket(text).map(ListenAt::Tcp) };
    let wrong = |message: &str| {
        Wrong::new(Code::BadSocket, format!("{} {message}", quoted(text)))
            .help("write the path of a file that is to be the socket, e.g. `unix:/run/tidegate/rls.sock`")
    };
    match path {
        "" => Err(wrong("names no socket")),
        // It has no file, so nobody's rights are asked: whoever has an account here could spend everybody's limits.
        path if path.starts_with('@') => {
            Err(wrong("is a socket without a file, which anybody on this machine may call"))
        }
        path => Ok(ListenAt::Unix(path.into())),
    }
}

/// Bytes of a socket's path: what the system's structure has room for, without the zero behind it.
const SOCKET_PATH_BYTES_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// Is the path, with the folder that it is meant from, one that the system can take?
pub(crate) fn check_socket_path(path: &Path) -> Result<(), Wrong> {
    let bytes = path.as_os_str().len();
    if bytes <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let message =
        format!("the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes, and this one {bytes}");
    Err(Wrong::new(Code::BadSocket, message).help("choose a shorter one, e.g. below `/run`"))
}

pub(crate) fn cidr(text: &str) -> Result<Cidr, Wrong> {
    let wrong = |message: String| Wrong::new(Code::BadCidr, message);
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| {
        wrong(format!("{} is not an address or a range of addresses", quoted(text)))
            .help("write e.g. `10.0.0.0/8` or `2001:db8::/32`")
    })?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        None => bits,
        Some(digits) => match digits.parse::<u8>() {
            Ok(prefix) if prefix <= bits && digits.bytes().all(|byte| byte.is_ascii_digit()) => prefix,
            _ => return Err(wrong(format!("the prefix of {} has to be from 0 to {bits}", quoted(text)))),
        },
    };
    let first = first_address(address, prefix);
    if first != address {
        let message = format!("{} has bits behind its prefix", quoted(text));
        return Err(wrong(message)
            .help(format!("write `{first}/{prefix}` for the range, or `{address}` for one address")));
    }
    Ok(Cidr { address, prefix })
}

fn first_address(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said<T: std::fmt::Debug>(result: Result<T, Wrong>) -> String {
        match result {
            Ok(value) => format!("{value:?}"),
            Err(wrong) => format!("{}: {}; {}", wrong.code, wrong.message, wrong.help.unwrap_or_default()),
        }
    }

    #[test]
    fn whole_numbers_are_read_as_people_write_them() {
        for (text, expected) in [
            ("100", "100"),
            ("1_000", "1000"),
            ("0x10", "16"),
            ("+5", "5"),
            ("0", "0"),
            ("", "not-a-number: `` is not a whole number; write digits only, e.g. `1000`"),
            ("-5", "out-of-range: `-5` is negative; write a number from 0 up"),
            ("1.5", "not-a-number: `1.5` is not a whole number; write `1`"),
            ("1,000", "not-a-number: `1,000` is not a number; write `1_000`"),
            (
                "010",
                "not-a-number: `010` begins with a zero, which some readers of YAML take for octal; write `10`",
            ),
            ("1001", "out-of-range: `1001` is too large: it has to be from 0 to 1000; "),
            (
                "99999999999999999999999999999999999999999999",
                "out-of-range: `99999999999999999999999999999999999999999999` is too large: it has to be from 0 to 1000; ",
            ),
            ("1e3", "not-a-number: `1e3` is not a whole number; write digits only, e.g. `1000`"),
            ("_1", "not-a-number: `_1` is not a whole number; write digits only, e.g. `1000`"),
        ] {
            assert_eq!(said(whole(text, 0, 1_000)), expected, "{text}");
        }
    }

    #[test]
    fn whole_numbers_may_be_negative_where_that_means_something() {
        for (text, expected) in [
            ("-5", "-5"),
            ("5", "5"),
            ("-0", "0"),
            ("-1_000", "-1000"),
            ("-1001", "out-of-range: `-1001` is too small: it has to be from -1000 to 1000; "),
            ("1001", "out-of-range: `1001` is too large: it has to be from -1000 to 1000; "),
            ("--5", "out-of-range: `-5` is negative; write a number from 0 up"),
            ("-1.5", "not-a-number: `1.5` is not a whole number; write `1`"),
        ] {
            assert_eq!(said(signed(text, -1_000, 1_000)), expected, "{text}");
        }
        assert!(signed(&format!("-{}", "9".repeat(60)), i64::MIN, i64::MAX).is_err());
    }

    #[test]
    fn percentages_are_hundredths_of_a_percent() {
        for (text, expected) in [
            ("25%", Some(2_500)),
            ("25", Some(2_500)),
            ("0.5%", Some(50)),
            ("12.25 %", Some(1_225)),
            ("100%", Some(10_000)),
        ] {
            assert_eq!(percent(text).ok().map(|percent| percent.basis_points), expected, "{text}");
        }
        for text in ["", "%", ".5", "5.", "1.234%", "101%", "-1%", "1/4", "99999999999%", "5%%"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_of_addresses_begin_where_they_say() {
        for text in ["10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "::/0", "0.0.0.0/0", "::1"] {
            assert!(cidr(text).is_ok(), "{text}");
        }
        for text in ["10.1.2.3/8", "10.0.0.0/33", "10.0.0.0/+8", "10.0.0/8", "x", "", "::1/0", "10.0.0.0/8/8"]
        {
            assert!(cidr(text).is_err(), "{text}");
        }
        let help = cidr("10.1.2.3/8").err().and_then(|wrong| wrong.help).unwrap_or_default();
        assert_eq!(help, "write `10.0.0.0/8` for the range, or `10.1.2.3` for one address");
    }

    #[test]
    fn sockets_are_addresses_with_ports() {
        for (text, expected) in [
            ("127.0.0.1:8080", Some("127.0.0.1:8080")),
            ("[::1]:0", Some("[::1]:0")),
            ("localhost:80", Some("127.0.0.1:80")),
            ("*:80", Some("0.0.0.0:80")),
            (":80", Some("0.0.0.0:80")),
            ("8080", None),
            ("example.com:80", None),
            ("127.0.0.1:65536", None),
            ("127.0.0.1", None),
            ("", None),
        ] {
            assert_eq!(socket(text).ok().map(|socket| socket.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_node_may_listen_at_a_socket() {
        let at = |text: &str| listen(text).map(|at| at.to_string()).map_err(|wrong| wrong.message);
        for text in ["127.0.0.1:80", "unix:/run/a.sock", "unix:beside.sock"] {
            assert_eq!(at(text).as_deref(), Ok(text));
        }
        assert_eq!(listen(":80").ok().and_then(|at| at.address()).map(|at| at.port()), Some(80));
        for text in ["unix:", "unix:@hidden", "/run/a.sock", "unix"] {
            assert!(at(text).is_err(), "{text}");
        }
        let path = |bytes: usize| check_socket_path(Path::new(&"a".repeat(bytes))).is_ok();
        assert!(path(SOCKET_PATH_BYTES_MAX) && !path(SOCKET_PATH_BYTES_MAX + 1));
    }

    #[test]
    fn flags_are_the_words_of_yaml_1_1() {
        for (text, expected) in [
            ("true", Some(true)),
            ("NO", Some(false)),
            ("On", Some(true)),
            ("n", Some(false)),
            ("1", None),
            ("ture", None),
        ] {
            assert_eq!(flag(text).ok(), expected, "{text}");
        }
    }
}
