//! Requests, packed for the scripts, which read field by field what is written here.

use tidegate_core::{Ask, Charge, Limit, Micros, Numbers, Role};

use crate::Take;

/// More than any limit holds, and what six bytes do: a larger cost is refused all the same.
const COST_MAX: u64 = (1 << 48) - 1;

/// What is asked, in the script's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Peek,
    Charge,
    Look,
    Refund,
    Force,
    Acquire,
    Renew,
    Release,
}

/// Appends integers, least byte first.
struct Packer<'o>(&'o mut Vec<u8>);

impl Packer<'_> {
    fn put(&mut self, value: u64, bytes: usize) {
        self.0.extend_from_slice(&value.to_le_bytes()[..bytes]);
    }
}

/// Starts a call: the time and one more, or zero for the store's own; the number of requests is written at the end.
pub(super) fn start(told: u64, out: &mut Vec<u8>) {
    let mut out = Packer(out);
    out.put(told, 7);
    out.put(0, 2);
}

/// Writes how many requests there are.
pub(super) fn finish(requests: u16, out: &mut [u8]) {
    if let Some(count) = out.get_mut(7..9) {
        count.copy_from_slice(&requests.to_le_bytes());
    }
}

/// Adds a request. `number` says which counter of the call a take is on; `around` is about the store's time: a calendar's periods are told
/// around it. Gives the laws that it needs.
pub(super) fn request(
    takes: &[Take<'_>],
    mut number: impl FnMut(&Take<'_>) -> u16,
    around: Micros,
    out: &mut Vec<u8>,
) -> Laws {
    let (start, mut laws) = (out.len(), Laws::default());
    let mut packer = Packer(out);
    packer.put(takes.len() as u64, 2);
    packer.put(0, 4);
    for one in takes {
        laws.0 |= take(one, number(one), around, out).0;
    }
    let bytes = ((out.len() - start) as u32).to_le_bytes();
    out[start + 2..start + 6].copy_from_slice(&bytes);
    laws
}

/// Which laws a call needs, a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Laws(pub(super) u8);

fn take(take: &Take<'_>, key: u16, around: Micros, out: &mut Vec<u8>) -> Laws {
    let start = out.len();
    let limit = take.limit;
    let numbers = limit.numbers();
    let (word, units, of) = word(&take.ask, matches!(numbers, Numbers::Places { .. }));
    let law = law(&numbers);
    let mut out = Packer(out);
    out.put(0, 1);
    out.put(key.into(), 2);
    out.put(word as u64, 1);
    out.put(flags(take, of.is_some()), 1);
    out.put(law, 1);
    out.put(units.min(COST_MAX), 6);
    out.put(limit.amount().into(), 4);
    out.put(limit.capacity().into(), 4);
    out.put(limit.kept_max().unwrap_or_default().get(), 7);
    if let Some(of) = of {
        out.put(of.get(), 7);
    }
    match numbers {
        Numbers::Fixed { window_us } | Numbers::Log { window_us } => out.put(window_us, 7),
        Numbers::Parted { k, width, tick, strict } => {
            out.put(k.into(), 2);
            out.put(width, 7);
            out.put(tick.us(), 4);
            out.put(strict.into(), 1);
        }
        Numbers::Level { burst, window, tick } => {
            out.put(burst.into(), 4);
            out.put(window, 7);
            out.put(tick.exponent().into(), 1);
        }
        Numbers::Cells { window, tick, strict } => {
            out.put(window, 7);
            out.put(tick.us(), 4);
            out.put(strict.into(), 1);
        }
        Numbers::Places { ttl_us } => {
            out.put(ttl_us, 7);
            out.put(holder(&take.ask), 8);
        }
        Numbers::Calendar(calendar) => {
            let current = calendar.period(around);
            let next = calendar.period(current.end);
            let before = calendar.period(current.start.minus(Micros::new(1)));
            let last = calendar.period(next.end);
            for period in [before, current, next, last] {
                out.put(period.id.into(), 4);
                out.put(period.start.get(), 7);
            }
            out.put(last.end.get(), 7);
        }
    }
    out.0[start] = (out.0.len() - start) as u8; // At most 85.
    Laws(1 << (law - 1))
}

/// Is it carried out in a refused request too?
pub(super) fn stays(ask: &Ask, limit: &Limit) -> bool {
    matches!(ask, Ask::Refund { .. } | Ask::Settle { .. } | Ask::Release { .. })
        || limit.charge() == Charge::Always
}

fn flags(take: &Take<'_>, of: bool) -> u64 {
    let role = match take.role {
        Role::Enforce => 0,
        Role::Shadow => 1,
        Role::Quota => 2,
    };
    let always = take.limit.charge() == Charge::Always;
    role | u64::from(always) << 2 | u64::from(stays(&take.ask, take.limit)) << 3 | u64::from(of) << 4
}

/// Its place in the script's table of laws.
fn law(numbers: &Numbers<'_>) -> u64 {
    match numbers {
        Numbers::Fixed { .. } => 1,
        Numbers::Parted { .. } => 2,
        Numbers::Level { .. } => 3,
        Numbers::Cells { .. } => 4,
        Numbers::Log { .. } => 5,
        Numbers::Places { .. } => 6,
        Numbers::Calendar(_) => 7,
    }
}

/// What is asked, for how many units, and of which charge. Only places can be held; elsewhere what is about them is a charge, or nothing.
fn word(ask: &Ask, places: bool) -> (Word, u64, Option<Micros>) {
    let refund = |units, of| if units == 0 { (Word::Look, 0, None) } else { (Word::Refund, units, of) };
    match *ask {
        Ask::Peek | Ask::Charge { cost: 0 } => (Word::Peek, 0, None),
        Ask::Acquire { cost: 0, .. } if !places => (Word::Peek, 0, None),
        Ask::Acquire { cost, .. } if places => (Word::Acquire, cost, None),
        Ask::Charge { cost } | Ask::Acquire { cost, .. } => (Word::Charge, cost, None),
        Ask::Renew { .. } if places => (Word::Renew, 0, None),
        Ask::Release { .. } if places => (Word::Release, 0, None),
        Ask::Refund { units, receipt } if !places => {
            let units = receipt.map_or(units, |receipt| units.min(receipt.units));
            refund(units, receipt.map(|receipt| receipt.at))
        }
        Ask::Settle { receipt, actual } if !places => match actual.checked_sub(receipt.units) {
            None | Some(0) => refund(receipt.units - actual, Some(receipt.at)),
            Some(more) => (Word::Force, more, None),
        },
        Ask::Renew { .. } | Ask::Release { .. } | Ask::Refund { .. } | Ask::Settle { .. } => {
            (Word::Look, 0, None)
        }
    }
}

/// Whose places it is about.
fn holder(ask: &Ask) -> u64 {
    match *ask {
        Ask::Acquire { id, .. } | Ask::Renew { id } | Ask::Release { id } => id,
        _ => Ask::ANONYMOUS,
    }
}
