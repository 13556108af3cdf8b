//! What calendar quotas used, in SQL: written down within a second, and given back to counters that are found empty because the store
//! lost them.
//!
//! Exactly one charge finds a counter empty, so exactly one node restores it: by charging what SQL says was used, on top of what was
//! charged since. What is given back is what was written down, so at most the last second's charges are missing. Until then, nothing that
//! was charged since is written down by this node: SQL is still to say what there was before.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Weak;
use std::time::Duration;

use tidegate_control::{ControlStore, Spending, Usage};
use tidegate_core::{Ask, Charge, Micros, Policy, Role};
use tidegate_counters::{Batch, Counters as _, Hand, Mode, Take};
use tidegate_server::{Fresh, Ledger, Node, Reset, Spent};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// How often it is written down.
const EVERY: Duration = Duration::from_millis(400);
/// How long to wait before SQL that did not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// So much may wait for SQL.
const WAITING_MAX: usize = 1 << 18;
/// So many rows are written at once: a round that is short of time has at least written some.
const ROWS: usize = 2_000;
/// How often periods that nobody needs any more are forgotten, and how long they are kept after they began: two months.
const FORGET_EVERY: Duration = Duration::from_secs(3_600);
const KEPT_US: i64 = 62 * 86_400_000_000;
/// What other nodes saw is in SQL after this.
const OTHERS_US: i64 = 1_000_000;

/// A counter and a period.
type Place = (u128, i64);

/// See above.
pub(super) struct Calendars {
    node: Weak<Node>,
    hand: Hand,
    resets: mpsc::Receiver<Reset>,
    /// What is not written down yet, by counter and period.
    waiting: HashMap<Place, Spending>,
    /// What was found empty and not yet looked up in SQL.
    fresh: HashMap<Place, Empty>,
    /// Does SQL answer? It is told when that changes.
    answers: bool,
    /// Could a counter not be restored the last time? It is told when that begins.
    is_stuck: bool,
}

/// A counter that was found empty.
struct Empty {
    fresh: Fresh,
    /// So much was given back of it since it was last written down: a counter of which all was given back is empty, and not lost.
    given_back: i64,
    /// What it held when it was first tried to restore it.
    tried_at: Option<u64>,
}

impl Calendars {
    /// On the thread that calls, whose hand on the counters is used.
    pub(super) fn new(node: Weak<Node>, hand: Hand, resets: mpsc::Receiver<Reset>) -> Self {
        Self {
            node,
            hand,
            resets,
            waiting: HashMap::new(),
            fresh: HashMap::new(),
            answers: true,
            is_stuck: false,
        }
    }

    /// For as long as the node lives.
    pub(super) async fn run(mut self, store: ControlStore) {
        let mut forgotten = None;
        while let Some(node) = self.node.upgrade() {
            let Some(ledger) = &node.ledger else { return };
            self.gather(ledger);
            let result = self.round(&node, ledger, &store).await;
            self.tell(&result.err());
            if self.answers && forgotten.is_none_or(|at: Instant| at.elapsed() > FORGET_EVERY) {
                forgotten = Some(Instant::now());
                let _ = store.forget_usage_before(wall(&node) - KEPT_US).await; // Another time.
            }
            let pause = match (self.answers, self.fresh.is_empty() || self.is_stuck) {
                (false, _) => RETRY,
                (true, true) => EVERY,
                (true, false) => Duration::ZERO, // Others wait for what they had.
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = ledger.hurried() => {}
                Some(reset) = self.resets.recv() => self.reset(reset, &node, ledger, &store).await,
            }
        }
    }

    /// Takes what the threads that decide have seen.
    fn gather(&mut self, ledger: &Ledger) {
        let seen = ledger.take();
        let mut left_out = 0;
        for spent in &seen.spent {
            let key = (spent.key.bits(), spent.period);
            let is_full = self.waiting.len() >= WAITING_MAX && !self.waiting.contains_key(&key);
            left_out += usize::from(is_full);
            if !is_full {
                self.note(spending(spent));
            }
        }
        for fresh in seen.fresh {
            let place = (fresh.key.bits(), fresh.period);
            let is_full = self.fresh.len() >= WAITING_MAX;
            match self.fresh.entry(place) {
                Entry::Occupied(_) => {} // It will have back what it had, whatever it was found empty for.
                Entry::Vacant(_) if is_full => left_out += 1,
                Entry::Vacant(empty) => {
                    let given_back = self.waiting.get(&place).map_or(0, |spending| spending.given_back);
                    empty.insert(Empty { fresh, given_back, tried_at: None });
                }
            }
        }
        ledger.left_out(left_out);
    }

    fn note(&mut self, spending: Spending) {
        let key = (spending.usage.key, spending.usage.period_start);
        self.waiting.entry(key).and_modify(|known| *known = known.and(&spending)).or_insert(spending);
    }

    async fn round(&mut self, node: &Node, ledger: &Ledger, store: &ControlStore) -> Result<(), String> {
        let restored = self.restore(node, ledger, store).await;
        let is_due = |(place, _): &(&Place, &Spending)| !self.fresh.contains_key(*place);
        let due: Vec<Spending> = self.waiting.iter().filter(is_due).map(|(_, spending)| *spending).collect();
        let mut written = 0;
        for rows in due.chunks(ROWS) {
            if let Err(error) = store.flush_usage(rows).await {
                ledger.written(self.waiting.len(), written);
                return Err(error.to_string());
            }
            for row in rows {
                self.waiting.remove(&(row.usage.key, row.usage.period_start));
            }
            written += rows.len();
        }
        ledger.written(self.waiting.len(), written);
        restored
    }

    /// Gives counters that were empty what SQL says was used of them, some at a time.
    async fn restore(&mut self, node: &Node, ledger: &Ledger, store: &ControlStore) -> Result<(), String> {
        let some: Vec<Place> = self.fresh.keys().take(ROWS).copied().collect();
        if some.is_empty() {
            return Ok(());
        }
        let keys: Vec<u128> = some.iter().map(|(key, _)| *key).collect();
        let known = store.usage_of(&keys).await.map_err(|error| error.to_string())?;
        let known: HashMap<Place, Spending> =
            known.into_iter().map(|known| ((known.usage.key, known.usage.period_start), known)).collect();
        let mut restored = 0_u64;
        let mut trouble = None;
        for place in some {
            if let (Some(empty), Some(known)) = (self.fresh.get_mut(&place), known.get(&place)) {
                match give(node, &self.hand, empty, known).await {
                    Ok(Some(spent)) => {
                        restored += 1;
                        ledger.restored();
                        self.note(spending(&spent));
                    }
                    Ok(None) => {}
                    Err(why) => {
                        trouble = Some(why);
                        break;
                    }
                }
            }
            self.fresh.remove(&place);
        }
        // A line for all of them: a store that was emptied has lost everybody's.
        if restored > 0 {
            tracing::warn!(restored, "counters of calendars were empty, and have again what was used");
        }
        let was_stuck = std::mem::replace(&mut self.is_stuck, trouble.is_some());
        if let Some(why) = trouble.filter(|_| !was_stuck) {
            tracing::warn!(
                why,
                "counters of calendars are empty and cannot be restored now; it is tried again"
            );
        }
        Ok(())
    }

    async fn reset(&mut self, reset: Reset, node: &Node, ledger: &Ledger, store: &ControlStore) {
        ledger.forget(reset.key);
        self.waiting.remove(&(reset.key.bits(), reset.period));
        self.fresh.retain(|(key, _), _| *key != reset.key.bits());
        let done = store.reset_usage(&[(reset.key.bits(), reset.period)], wall(node)).await;
        let _ = reset.done.send(done.map_err(|error| error.to_string())); // Whoever does not wait any more does not need it.
    }

    fn tell(&mut self, error: &Option<String>) {
        let answers = error.is_none();
        if std::mem::replace(&mut self.answers, answers) != answers {
            match error {
                Some(why) => {
                    tracing::error!(why, "what calendars use cannot be written down; it is kept until it can")
                }
                None => tracing::info!("what calendars use is written down again"),
            }
        }
    }
}

/// Charges a counter what was used before it was lost; none if it has that already.
async fn give(
    node: &Node,
    hand: &Hand,
    empty: &mut Empty,
    known: &Spending,
) -> Result<Option<Spent>, String> {
    let used = known.usage.used.saturating_sub(empty.given_back);
    let Some(used) = u64::try_from(used).ok().filter(|used| *used > 0) else { return Ok(None) };
    let is_shared = matches!(hand, Hand::Redis(_));
    let now = if is_shared { Micros::new(node.clock.wall_now_us()) } else { node.now() };
    let fresh = &empty.fresh;
    if !fresh.is_of(now) {
        return Ok(None); // That period is over.
    }
    let held =
        hand.inspect(fresh.key, fresh.tag, &fresh.limit, now).await.map_err(|error| error.to_string())?;
    // If SQL speaks of a time when the counter was lost already, or another node may have seen all of it given back, what it holds may be
    // what SQL says. And one that was charged at an attempt that got no answer has it.
    let of_before_us = known.at.saturating_add(if is_shared { OTHERS_US } else { 0 });
    let is_of_before = of_before_us < count(fresh.at_us);
    let has_it = match empty.tried_at {
        Some(tried_at) => held.used >= tried_at.saturating_add(used),
        None => !is_of_before && held.used >= used,
    };
    if has_it {
        return Ok(None);
    }
    empty.tried_at.get_or_insert(held.used);
    let always = fresh.limit.clone().charging(Charge::Always).map_err(|error| error.to_string())?;
    let mut batch = Batch::new();
    batch.push([Take {
        key: fresh.key,
        tag: fresh.tag,
        name: None,
        limit: &always,
        ask: Ask::Charge { cost: used },
        role: Role::Enforce,
        policy: Policy::STRICT,
    }]);
    hand.take(&mut batch, now).await;
    if let Some(why) = batch.failure(0) {
        return Err(why.to_string());
    }
    let answer = batch.answers(0).first().filter(|answer| !matches!(answer.mode, Mode::Degraded(_)));
    let verdict = answer.ok_or_else(|| "the store did not answer".to_owned())?.verdict;
    let used = u64::from(verdict.limit.saturating_sub(verdict.remaining)) + u64::from(verdict.debt);
    let at_us = node.clock.wall_now_us();
    Ok(Some(Spent { key: fresh.key, period: fresh.period, used, given_back: 0, at_us }))
}

fn spending(spent: &Spent) -> Spending {
    let usage = Usage { key: spent.key.bits(), period_start: spent.period, used: count(spent.used) };
    Spending { usage, given_back: count(spent.given_back), at: count(spent.at_us) }
}

fn wall(node: &Node) -> i64 {
    count(node.clock.wall_now_us())
}

fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
