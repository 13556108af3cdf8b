//! What was answered, and whether that is right. The record is only added to; all that is told about a run is computed from it.

use std::collections::BTreeMap;

/// One call of a client, from the moment it was sent to the moment its answer was there, in microseconds of the rig's watch.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Event {
    /// Which key of the rig.
    pub(crate) key: usize,
    /// Which node was asked.
    pub(crate) node: usize,
    pub(crate) cost: u64,
    pub(crate) sent_us: u64,
    pub(crate) received_us: u64,
    pub(crate) answer: Answer,
    /// The first node that was asked was lost before it answered, and another was asked.
    pub(crate) is_retried: bool,
}

/// What a client was told.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Answer {
    /// Go on, or stop.
    Decided { admitted: bool, by: By, remaining: u32 },
    /// A status of gRPC that is an error.
    Failed(i32),
    /// The connection ended, or there was none.
    Broken,
    /// Nothing came while the client waited, and it waits long.
    Missing,
}

/// How an answer was made, as its metadata say.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum By {
    /// By the store.
    Exact,
    /// By a policy, which is named; without metadata it is not.
    Policy(String),
}

impl Event {
    pub(crate) fn took_us(&self) -> u64 {
        self.received_us - self.sent_us
    }

    pub(crate) fn is_admitted(&self) -> bool {
        matches!(self.answer, Answer::Decided { admitted: true, .. })
    }

    /// Did the store decide?
    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.answer, Answer::Decided { by: By::Exact, .. })
    }

    /// The policy that decided.
    pub(crate) fn policy(&self) -> Option<&str> {
        match &self.answer {
            Answer::Decided { by: By::Policy(policy), .. } => Some(policy),
            _ => None,
        }
    }

    /// Was there no decision?
    pub(crate) fn is_error(&self) -> bool {
        !matches!(self.answer, Answer::Decided { .. })
    }
}

/// Every call of a run, and beside them those to a node whose store is well: what these took, the machine took.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) events: Vec<Event>,
    /// Calls to the control, in the order in which they were sent.
    pub(crate) control: Vec<Control>,
    /// From when to when the clients themselves were held up, one after the other. Nobody may have called the control just then.
    pub(crate) pauses: Vec<(u64, u64)>,
}

/// A call to the control: when it was sent, when it was answered, and whether by its store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Control {
    pub(crate) sent_us: u64,
    pub(crate) received_us: u64,
    pub(crate) is_exact: bool,
}

/// Times of some calls.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Times {
    pub(crate) count: usize,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) max_us: u64,
}

impl Times {
    pub(crate) fn of(mut all: Vec<u64>) -> Self {
        all.sort_unstable();
        let at = |share: f64| {
            let place = (all.len() as f64 * share).ceil() as usize;
            all.get(place.saturating_sub(1)).copied().unwrap_or(0)
        };
        Self { count: all.len(), p50_us: at(0.5), p99_us: at(0.99), max_us: at(1.0) }
    }
}

/// A call to the control takes about a millisecond. Where one takes longer than this, the machine was busy with something else.
const DISTURBED_US: u64 = 5_000;

/// How far around a call the control is looked at. It is called every few milliseconds.
const AROUND_US: u64 = 8_000;

impl Record {
    /// What a call took beyond what calls to the control took at the same time.
    pub(crate) fn blamed_us(&self, event: &Event) -> u64 {
        event.took_us().saturating_sub(self.control_us(event))
    }

    /// Was the machine itself held up meanwhile?
    pub(crate) fn is_disturbed(&self, event: &Event) -> bool {
        self.control_us(event) > DISTURBED_US
    }

    /// Was it at any moment of this time?
    pub(crate) fn is_disturbed_between(&self, from_us: u64, to_us: u64) -> bool {
        self.control_between(from_us, to_us) > DISTURBED_US
    }

    /// The longest of the calls to the control, and of the pauses of the clients, that overlap with a call, or nearly.
    fn control_us(&self, event: &Event) -> u64 {
        self.control_between(event.sent_us, event.received_us)
    }

    fn control_between(&self, from_us: u64, to_us: u64) -> u64 {
        let (first_us, last_us) = (from_us.saturating_sub(AROUND_US), to_us + AROUND_US);
        // Answers do not come in order, but none takes longer than a client waits, so a bound of that far back finds all.
        let from = self.control.partition_point(|call| call.sent_us + CONTROL_MAX_US < first_us);
        let near = self.control[from..].iter().take_while(|call| call.sent_us <= last_us);
        let near = near.filter(|call| call.received_us >= first_us);
        let longest_us = near.map(|call| call.received_us - call.sent_us).max().unwrap_or(0);
        let from = self.pauses.partition_point(|(_, to_us)| *to_us < first_us);
        let near = self.pauses[from..].iter().take_while(|(from_us, _)| *from_us <= last_us);
        near.map(|(from_us, to_us)| to_us - from_us).max().unwrap_or(0).max(longest_us)
    }

    /// Times of calls that are chosen, as clients saw them.
    pub(crate) fn times<'e>(&self, events: impl Iterator<Item = &'e Event>) -> Times {
        Times::of(events.map(Event::took_us).collect())
    }

    /// The same without what the machine took: ranks of calls during which it was not held up, the longest of all.
    pub(crate) fn blamed<'e>(&self, events: impl Iterator<Item = &'e Event> + Clone) -> Times {
        let max_us = events.clone().map(|event| self.blamed_us(event)).max().unwrap_or(0);
        let calm = events.filter(|event| !self.is_disturbed(event));
        Times { max_us, ..Times::of(calm.map(|event| self.blamed_us(event)).collect()) }
    }
}

/// How long a call to the control may be on its way and still be found.
const CONTROL_MAX_US: u64 = 2_000_000;

/// The most units that were admitted in any interval of so many microseconds. A call is counted only where no place between its sending
/// and its answer lies outside: it has the benefit of the doubt.
pub(crate) fn most_in_any(window_us: u64, admitted: &[&Event]) -> u64 {
    let mut most = 0;
    for first in admitted {
        let end = first.sent_us + window_us;
        let inside =
            admitted.iter().filter(|event| event.sent_us >= first.sent_us && event.received_us < end);
        most = most.max(inside.map(|event| event.cost).sum());
    }
    most
}

/// Events by key.
pub(crate) fn by_key<'e>(events: impl Iterator<Item = &'e Event>) -> BTreeMap<usize, Vec<&'e Event>> {
    let mut all: BTreeMap<usize, Vec<&Event>> = BTreeMap::new();
    for event in events {
        all.entry(event.key).or_default().push(event);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(sent_us: u64, received_us: u64) -> Event {
        let answer = Answer::Decided { admitted: true, by: By::Exact, remaining: 0 };
        Event { key: 0, node: 0, cost: 1, sent_us, received_us, answer, is_retried: false }
    }

    #[test]
    fn an_interval_counts_only_what_must_lie_in_it() {
        let all = [event(0, 10), event(5, 20), event(90, 99), event(95, 101)];
        let all: Vec<&Event> = all.iter().collect();
        // From 0 to 100: the last may have been decided at 100 or later, so three are certain.
        assert_eq!(most_in_any(100, &all), 3);
        assert_eq!(most_in_any(101, &all), 3);
        assert_eq!(most_in_any(102, &all), 4);
        assert_eq!(most_in_any(16, &all), 2, "the last two are the densest");
    }

    #[test]
    fn what_the_control_took_at_the_same_time_is_not_blamed() {
        let call = |(sent_us, received_us)| Control { sent_us, received_us, is_exact: true };
        let control = [(0, 300), (50_000, 90_000), (200_000, 200_300)].map(call).to_vec();
        let record = Record { control, ..Record::default() };
        assert_eq!(record.blamed_us(&event(60_000, 110_000)), 10_000, "the machine slept for 40 ms");
        assert_eq!(record.blamed_us(&event(205_000, 235_000)), 29_700);
        assert_eq!(record.blamed_us(&event(120_000, 150_000)), 30_000, "nobody else waited");
        let all = [event(60_000, 110_000), event(120_000, 150_000), event(205_000, 206_000)];
        let times = record.blamed(all.iter());
        assert_eq!((times.count, times.p99_us, times.max_us), (2, 30_000, 30_000));
    }

    #[test]
    fn nor_is_what_held_up_the_clients() {
        let control = [(0, 300), (1_000_500, 1_001_000)];
        let control =
            control.map(|(sent_us, received_us)| Control { sent_us, received_us, is_exact: true }).to_vec();
        let pauses = vec![(400, 900_000), (950_000, 960_000)];
        let record = Record { control, pauses, ..Record::default() };
        let asleep = event(300, 900_700);
        assert!(record.is_disturbed(&asleep), "the control was called before and after");
        assert_eq!(record.blamed_us(&asleep), 800);
        assert!(
            record.is_disturbed(&event(930_000, 955_000)) && !record.is_disturbed(&event(910_000, 930_000))
        );
        assert!(!record.is_disturbed(&event(970_000, 980_000)));
    }

    #[test]
    fn times_are_ranks() {
        let times = Times::of((1..=200).rev().collect());
        assert_eq!(times, Times { count: 200, p50_us: 100, p99_us: 198, max_us: 200 });
        assert_eq!(Times::of(Vec::new()), Times::default());
    }
}
