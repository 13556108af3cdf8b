//! All counters as a file, with their states in the portable form: a graceful stop writes one, the next start loads it.
//!
//! ```text
//! head     magic 8 · version 1 · bits of the set's number 1 · label 16 · written at 7
//! record   1 · set 4 · tag 5 · heat 1 · class 8 · dead at 7 · length 4 · the state
//! end      0 · number of records 8 · checksum of everything before it 8
//! ```
//!
//! A file is read to its end and checked before anything of it is loaded, so that a file that is refused has changed nothing.

use std::hash::Hasher;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use siphasher::sip::SipHasher13;
use tidegate_core::{Class, Micros, PORTABLE_VERSION, State};

use super::Memory;
use super::keep::{By, Held};
use super::slot::{Heat, TAG_BITS};
use super::sync::{AtomicU64, Ordering};
use super::table::{Home, SET_BITS_MAX, spots};

const MAGIC: [u8; 8] = *b"tidegate";
/// Changes with this layout, with that of a class and with that of the states.
const VERSION: u8 = 1 << 4 | PORTABLE_VERSION;
const RECORD: u8 = 1;
const END: u8 = 0;
/// The longest state there is has 220 kB.
const STATE_BYTES_MAX: usize = 1 << 20;
/// A table with this many more bits of sets than the one that was written loads each state as often as it may be meant.
const GROWN_MAX: u32 = 3;

/// What was loaded from a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// Counters that count again.
    pub keys: u64,
    /// Counters that were dead by now.
    pub dead: u64,
    /// Counters that there was no room for, or that had been touched already.
    pub left_out: u64,
}

/// Why a snapshot is not loaded. Nothing is lost but its counts.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Something else.
    #[error("this is no snapshot of counters: it was not loaded, counting starts at zero")]
    Foreign,
    /// Written by another release.
    #[error(
        "the snapshot has version {found:#x}, this release reads {VERSION:#x}: it was not loaded, counting starts at zero"
    )]
    Version {
        /// The version found.
        found: u8,
    },
    /// Its keys are not ours.
    #[error(
        "the snapshot was written under another secret, so its keys mean nothing here: it was not loaded, counting starts at zero"
    )]
    OtherLabel,
    /// Its keys cannot be told apart in a table so much larger.
    #[error(
        "the snapshot was written by a table of 2^{found} sets and cannot be spread over 2^{sets}: it was not loaded, counting \
         starts at zero; grow the memory in smaller steps to keep counts"
    )]
    TooSmall {
        /// Bits of the number of a set in the snapshot.
        found: u32,
        /// And here.
        sets: u32,
    },
    /// It ends too early.
    #[error("the snapshot is cut: it was not loaded, counting starts at zero")]
    Cut,
    /// Something in it is wrong.
    #[error("the snapshot is damaged ({what}): it was not loaded, counting starts at zero")]
    Damaged {
        /// What.
        what: &'static str,
    },
    /// It cannot be read or written.
    #[error("the snapshot cannot be read or written: {0}")]
    Io(io::Error),
}

impl From<io::Error> for SnapshotError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Cut } else { Self::Io(error) }
    }
}

/// While it lives no key moves to its other set.
struct StandStill<'a>(&'a AtomicU64);

impl<'a> StandStill<'a> {
    fn new(snapshots: &'a AtomicU64) -> Self {
        snapshots.fetch_add(1, Ordering::Relaxed);
        Self(snapshots)
    }
}

impl Drop for StandStill<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One counter in a snapshot.
struct Record {
    set: usize,
    tag: u64,
    heat: Heat,
    class: Class,
    dead_at: Micros,
    state: State,
}

impl Memory {
    /// Writes all counters that are alive at `now`. `label` says whose keys they are: something that changes with the secret.
    ///
    /// Counters are locked one set at a time and never while something is written: what is asked meanwhile goes on, and is in the
    /// snapshot or not. Says how many were written.
    pub fn write_snapshot(&self, out: impl Write, label: &[u8; 16], now: Micros) -> io::Result<u64> {
        let mut out = Summed { inner: BufWriter::new(out), sum: checksum() };
        out.write_all(&MAGIC)?;
        out.write_all(&[VERSION, self.table.set_bits() as u8])?;
        out.write_all(label)?;
        out.write_all(&now.get().to_le_bytes()[..7])?;
        let (mut written, mut bytes) = (0_u64, Vec::new());
        let _standing_still = StandStill::new(&self.snapshots);
        for set in 0..self.table.sets() {
            bytes.clear();
            let locked = self.table.set(set).lock();
            for found in spots(set).map(|spot| self.read(spot)).filter(|found| !found.tag.is_empty()) {
                let dead_at = self.dead_at(&found);
                let mut state = State::default();
                let Some(class) = self.load(&found, &mut state).filter(|_| dead_at >= now) else { continue };
                bytes.push(RECORD);
                bytes.extend_from_slice(&(set as u32).to_le_bytes());
                bytes.extend_from_slice(&found.tag.key_tag().to_le_bytes()[..5]);
                bytes.push(found.tag.heat().level());
                bytes.extend_from_slice(&class.bits().to_le_bytes());
                bytes.extend_from_slice(&dead_at.get().to_le_bytes()[..7]);
                let length_at = bytes.len();
                bytes.extend_from_slice(&[0; 4]);
                state.write_portable(&mut bytes);
                let length = (bytes.len() - length_at - 4) as u32;
                bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
                written += 1;
            }
            drop(locked);
            out.write_all(&bytes)?;
        }
        out.write_all(&[END])?;
        out.write_all(&written.to_le_bytes())?;
        let sum = out.sum.finish();
        out.inner.write_all(&sum.to_le_bytes())?;
        out.inner.flush()?;
        Ok(written)
    }

    /// Loads a snapshot that was written under the same label. A counter that has been touched since the start stays as it is.
    pub fn load_snapshot(
        &self,
        input: impl Read + Seek,
        label: &[u8; 16],
        now: Micros,
    ) -> Result<Loaded, SnapshotError> {
        let mut input = Summed { inner: BufReader::new(input), sum: checksum() };
        let set_bits = self.read_head(&mut input, label)?;
        while read_record(&mut input, set_bits)?.is_some() {}
        input.inner.seek(SeekFrom::Start(0))?;
        input.sum = checksum();
        self.read_head(&mut input, label)?;
        let mut loaded = Loaded::default();
        while let Some(record) = read_record(&mut input, set_bits)? {
            if record.dead_at < now {
                loaded.dead += 1;
            } else if self.load_record(record, set_bits, now) {
                loaded.keys += 1;
            } else {
                loaded.left_out += 1;
            }
        }
        Ok(loaded)
    }

    /// Reads the head; says how many bits its sets have.
    fn read_head(&self, input: &mut Summed<impl Read>, label: &[u8; 16]) -> Result<u32, SnapshotError> {
        let magic = input.bytes::<8>().map_err(|error| match SnapshotError::from(error) {
            SnapshotError::Cut => SnapshotError::Foreign,
            other => other,
        })?;
        if magic != MAGIC {
            return Err(SnapshotError::Foreign);
        }
        let [version, set_bits] = input.bytes()?;
        if version != VERSION {
            return Err(SnapshotError::Version { found: version });
        }
        let set_bits = u32::from(set_bits);
        if set_bits == 0 || set_bits > SET_BITS_MAX {
            return Err(SnapshotError::Damaged { what: "a table of no size" });
        }
        if input.bytes::<16>()? != *label {
            return Err(SnapshotError::OtherLabel);
        }
        input.bytes::<7>()?; // When it was written: for people.
        let sets = self.table.set_bits();
        if sets > set_bits + GROWN_MAX {
            return Err(SnapshotError::TooSmall { found: set_bits, sets });
        }
        Ok(set_bits)
    }

    /// Puts a counter of a table with 2^`set_bits` sets where it belongs here; says whether there was room.
    fn load_record(&self, mut record: Record, set_bits: u32, now: Micros) -> bool {
        let here = self.table.set_bits();
        if let Some(smaller) = set_bits.checked_sub(here) {
            return self.load_at(record.set >> smaller, &mut record, now);
        }
        // The bits that tell its set here were not kept: put it into each set that it may be from. Nobody asks for the wrong ones.
        let larger = here - set_bits;
        let first = record.set << larger;
        let left_out = (0..1 << larger).filter(|bits| !self.load_at(first | bits, &mut record, now));
        left_out.count() == 0
    }

    fn load_at(&self, set: usize, record: &mut Record, now: Micros) -> bool {
        let home = Home { tag: record.tag, first: set, second: self.table.other(set, record.tag) };
        let locked = self.table.lock_all(home.sets());
        let is_there = locked.numbers().iter().any(|set| self.table.find(*set, home.tag).is_some());
        let by = By::Class { class: record.class, dead_at: record.dead_at };
        let held = Held { sets: locked.numbers(), pinned: &[], now };
        !is_there && self.insert(home, by, &mut record.state, record.heat, held).is_some()
    }
}

/// Reads the next record; at the end, checks that it is one.
fn read_record(input: &mut Summed<impl Read>, set_bits: u32) -> Result<Option<Record>, SnapshotError> {
    let damaged = |what| SnapshotError::Damaged { what };
    match input.bytes()? {
        [RECORD] => {}
        [END] => {
            input.bytes::<8>()?;
            let sum = input.sum.finish();
            let is_right = u64::from_le_bytes(input.bytes()?) == sum;
            return if is_right { Ok(None) } else { Err(damaged("its checksum is wrong")) };
        }
        _ => return Err(damaged("something that is no record")),
    }
    let set = u32::from_le_bytes(input.bytes()?) as usize;
    if set >> set_bits != 0 {
        return Err(damaged("a set that the table did not have"));
    }
    let tag = number(&input.bytes::<5>()?);
    if tag == 0 || tag >> TAG_BITS != 0 {
        return Err(damaged("a tag that no key has"));
    }
    let [heat] = input.bytes()?;
    let class = Class::of_bits(u64::from_le_bytes(input.bytes()?));
    let dead_at = Micros::new(number(&input.bytes::<7>()?));
    let length = u32::from_le_bytes(input.bytes()?) as usize;
    if length > STATE_BYTES_MAX {
        return Err(damaged("a state that is too long"));
    }
    let mut bytes = vec![0; length];
    input.read_exact(&mut bytes)?;
    let class = class.ok_or(damaged("a class that no limit has"))?;
    let state = class.from_portable(&bytes).map_err(|_| damaged("a state that no limit has"))?;
    let heat = Heat::of_level(heat).ok_or(damaged("an unknown heat"))?;
    Ok(Some(Record { set, tag, heat, class, dead_at, state }))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Not against anybody who means harm, who would write a right one; against a disk.
fn checksum() -> SipHasher13 {
    SipHasher13::new_with_key(b"tidegate-counter")
}

/// A file whose bytes are summed as they go by.
struct Summed<F> {
    inner: F,
    sum: SipHasher13,
}

impl<F: Write> Summed<F> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.write(bytes);
        self.inner.write_all(bytes)
    }
}

impl<F: Read> Summed<F> {
    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.sum.write(bytes);
        Ok(())
    }
}
