//! Lines on their way into packets, and what each of them says was sent.

use std::fmt::Write;
use std::sync::Arc;

use super::super::ReferenceStats;
use super::super::sums::Cell;
use super::super::table::ReferenceKind;
use super::{StatsdDialect, StatsdProtocol, StatsdSettings};

/// What a packet may hold without being taken apart on its way through usual networks; the reference has the same number.
const PACKET_BYTES_MAX: usize = 1_432;
/// What is written to a connection at once.
const WRITE_BYTES_MAX: usize = 1 << 16;

/// Lines that are not sent yet. Beside what fills a packet there is one line at most.
pub(super) struct Batch<'c> {
    settings: Arc<StatsdSettings>,
    stats: Arc<ReferenceStats>,
    datagrams: bool,
    bytes_max: usize,
    text: String,
    /// For each line where it ends, without its line feed, and what is sent with it.
    marks: Vec<(usize, Mark<'c>)>,
    name: String,
    /// Where the last line begins.
    last: usize,
    /// How long the packet is that was handed out.
    out: usize,
}

/// What is sent with a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark<'c> {
    /// A number, as it is now.
    Cell(&'c Cell, u64),
    /// So many calls of a class of durations.
    Calls { method: usize, class: usize, calls: u64 },
}

impl<'c> Batch<'c> {
    pub(super) fn new(settings: Arc<StatsdSettings>, stats: Arc<ReferenceStats>) -> Self {
        let datagrams = settings.protocol == StatsdProtocol::Udp;
        let bytes_max = if datagrams { PACKET_BYTES_MAX } else { WRITE_BYTES_MAX };
        let (text, name, marks) = (String::new(), String::new(), Vec::new());
        Self { settings, stats, datagrams, bytes_max, text, marks, name, last: 0, out: 0 }
    }

    /// Adds a line that speaks for so many of its kind.
    pub(super) fn line(
        &mut self,
        write_name: impl FnOnce(&mut String),
        value: u64,
        kind: ReferenceKind,
        speaks_for: u64,
        marks: &[Mark<'c>],
    ) {
        self.last = self.text.len();
        self.name.clear();
        write_name(&mut self.name);
        let (dialect, tags) = (&self.settings.dialect, &self.stats.tags);
        let made_over = match dialect {
            StatsdDialect::Plain => None,
            StatsdDialect::Dog(mogrifiers) => mogrifiers.iter().find_map(|one| one.made_over(&self.name)),
        };
        let (name, own_tags) = match &made_over {
            Some((name, own_tags)) => (name.as_str(), own_tags.as_slice()),
            None => (self.name.as_str(), &[][..]),
        };
        let text = &mut self.text; // Which takes whatever is written.
        text.push_str(name);
        if matches!(dialect, StatsdDialect::Plain) {
            text.push_str(&tags.suffix);
        }
        let _ = write!(text, ":{value}|{}", kind.statsd());
        if speaks_for > 1 {
            // Down in its last place, so that who takes the whole part of its inverse comes to the same number.
            let _ = write!(text, "|@0.{:012}", 1_000_000_000_000 / speaks_for);
        }
        if matches!(dialect, StatsdDialect::Dog(_)) {
            let mut before = "|#";
            for pair in tags.pairs.iter().chain(own_tags) {
                text.extend([before, pair]);
                before = ",";
            }
        }
        self.marks.extend(marks.iter().map(|mark| (text.len(), *mark)));
        text.push('\n');
    }

    /// What is to be sent now: a packet that is full, or `all` that there is.
    pub(super) fn packet(&mut self, all: bool) -> Option<&[u8]> {
        let end = match self.text.len() {
            0 => return None,
            bytes if bytes > self.bytes_max && self.last > 0 => self.last,
            bytes if bytes > self.bytes_max || all => bytes,
            _ => return None,
        };
        self.out = end;
        // In a packet lines are joined by line feeds; on a connection each has one.
        Some(&self.text.as_bytes()[..if self.datagrams { end - 1 } else { end }])
    }

    /// So much of the packet was taken: what was sent with that. The packet is gone, taken or not.
    pub(super) fn taken(&mut self, bytes: usize) -> impl Iterator<Item = Mark<'c>> {
        let out = self.out;
        let of_packet = self.marks.iter().take_while(|(end, _)| *end < out).count();
        let behind = self.marks.split_off(of_packet);
        let of_packet = std::mem::replace(&mut self.marks, behind);
        self.marks.iter_mut().for_each(|(end, _)| *end -= out);
        self.text.drain(..out);
        self.last = 0;
        of_packet.into_iter().filter(move |(end, _)| *end <= bytes).map(|(_, mark)| mark)
    }
}
