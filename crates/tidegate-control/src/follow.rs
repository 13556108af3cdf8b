//! How a node follows what is kept: all of it once, then change by change, each entry by itself. It is never older than it was: what
//! comes is applied in the order of revisions, and what cannot be read now is read later, while decisions go on with what there is.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tidegate_clock::Clock;
use tokio::time::sleep;

use crate::error::Result;
use crate::last_good::{LastGood, Line};
use crate::model::{Change, Kind, Quota, Revision, RuleState, SnapshotPage, Tier};
use crate::store::ControlStore;

/// So many changes are read at once.
const CHANGES_PAGE: usize = 500;
/// If there are more, everything is read again.
const CHANGES_MAX: u64 = 10_000;
/// How long to wait before a store that did not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// How often it is looked whether there is something new, should nobody tell. The store polls by itself more often.
const LOOK_EVERY: Duration = Duration::from_secs(4);

/// Who is told what is kept.
pub trait Sink: Send + Sync + 'static {
    /// This holds for a key.
    fn quota(&self, quota: &Quota);
    /// Nothing is kept about a key any more.
    fn no_quota(&self, api_key: &str);
    /// All quotas will be told now, also those that were before.
    fn quotas_begin(&self);
    /// All quotas have been told: about a key that was not among them nothing is kept any more.
    fn quotas_end(&self);
    /// These are the tiers.
    fn tiers(&self, tiers: &BTreeMap<String, Tier>);
    /// These are the rules by API: ids and documents.
    fn rules(&self, rules: &BTreeMap<String, String>);
    /// These rules are in another state now.
    fn states(&self, states: &[RuleState]);
    /// All that was kept at some revision has been told; the first time, the node is ready for it.
    fn is_at(&self, revision: Revision);
    /// The store answered: what is known is what is kept.
    fn heard(&self);
    /// The store did not answer: what is known may be old.
    fn heard_nothing(&self);
}

/// What is known so far, and who is told.
pub struct Follow<S> {
    sink: S,
    clock: Clock,
    last_good: Option<LastGood>,
    tiers: BTreeMap<String, Tier>,
    rules: BTreeMap<String, String>,
    states: BTreeMap<String, RuleState>,
    revision: Revision,
    /// Has everything been told once?
    loaded: bool,
    /// Did the store answer the last time? Not known before the first.
    hears: Option<bool>,
}

impl<S: Sink> Follow<S> {
    /// Nothing is known yet. With a file, what becomes known is kept in it.
    pub fn new(sink: S, clock: Clock, last_good: Option<LastGood>) -> Self {
        Self {
            sink,
            clock,
            last_good,
            tiers: BTreeMap::new(),
            rules: BTreeMap::new(),
            states: BTreeMap::new(),
            revision: 0,
            loaded: false,
            hears: None,
        }
    }

    /// Tells what the last run knew, until the store says more. Says whether there was anything.
    pub fn load_last_good(&mut self) -> bool {
        let Some(file) = &mut self.last_good else { return false };
        let (sink, tiers, rules, states) = (&self.sink, &mut self.tiers, &mut self.rules, &mut self.states);
        let read = file.read(|line| match line {
            Line::Quota(quota) => sink.quota(&quota),
            Line::NoQuota(api_key) => sink.no_quota(&api_key),
            Line::Tier(tier) => drop(tiers.insert(tier.name.clone(), tier)),
            Line::NoTier(name) => drop(tiers.remove(&name)),
            Line::Rule { id, document } => drop(rules.insert(id, document)),
            Line::NoRule(id) => drop(rules.remove(&id)),
            Line::State(state) => drop(states.insert(state.rule.clone(), state)),
            Line::NoState(rule) => drop(states.remove(&rule)),
        });
        match read {
            Ok(Some(revision)) => {
                tracing::info!(revision, "what the control plane knew in the last run is in force");
                self.tell_all(revision);
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::warn!(%error, "what the control plane knew in the last run cannot be read");
                false
            }
        }
    }

    /// Follows a store for as long as it is asked to.
    pub async fn run(&mut self, store: &ControlStore) {
        let mut wakeups = store.wakeups();
        loop {
            let wait = match self.catch_up(store).await {
                Ok(()) => {
                    if self.hears.replace(true) != Some(true) {
                        tracing::info!(revision = self.revision, "the control plane's database is followed");
                    }
                    LOOK_EVERY
                }
                Err(error) => {
                    self.sink.heard_nothing();
                    if self.hears.replace(false) != Some(false) {
                        tracing::warn!(%error, "the control plane's database does not answer: decisions go on with what is known");
                    }
                    RETRY
                }
            };
            tokio::select! {
                _ = wakeups.changed(), if wait == LOOK_EVERY => {}
                () = sleep(wait) => {}
                () = sleep(self.next_expiry()) => self.tell_states(),
            }
        }
    }

    /// Tells everything that is new.
    async fn catch_up(&mut self, store: &ControlStore) -> Result<()> {
        if self.hears != Some(true) {
            let head = store.changes_since(self.revision, 1).await?.head;
            // After a start from the file, or a while without the store, the changes are enough, unless they are many.
            let is_near = head.checked_sub(self.revision).is_some_and(|behind| behind <= CHANGES_MAX);
            if !self.loaded || !is_near {
                self.take_all(store).await?;
            }
        }
        loop {
            let changes = store.changes_since(self.revision, CHANGES_PAGE).await?;
            if changes.head < self.revision {
                tracing::warn!(
                    was = self.revision,
                    is = changes.head,
                    "the control plane's database was put back to an older state: all of it is read again"
                );
                self.take_all(store).await?;
                continue;
            }
            let Some(last) = changes.changes.last().map(|change| change.seq) else { break };
            self.take(store, &changes.changes, last).await?;
        }
        self.sink.heard();
        Ok(())
    }

    /// Reads what has changed as it is now, up to a revision, and tells it. Not before the file has it: what was in force once is so after
    /// a start without the store, too.
    async fn take(&mut self, store: &ControlStore, changes: &[Change], revision: Revision) -> Result<()> {
        let of = |kind: Kind| -> Vec<&str> {
            let mut seen = HashSet::new();
            let subjects = changes.iter().filter(|change| change.kind == kind).map(|change| &*change.subject);
            subjects.filter(|subject| seen.insert(*subject)).collect()
        };
        let mut keys = of(Kind::Quota);
        let there = if keys.is_empty() { Vec::new() } else { store.quotas_of(&keys).await? };
        keys.retain(|key| there.iter().all(|quota| quota.value.api_key != **key));
        let gone = keys;
        there.iter().for_each(|quota| self.keep(Line::Quota(quota.value.clone())));
        gone.iter().for_each(|key| self.keep(Line::NoQuota((*key).to_owned())));
        let (tiers, rules, states) = (of(Kind::Tier), of(Kind::Rule), of(Kind::RuleState));
        for name in &tiers {
            match found(store.tier(name).await)? {
                Some(tier) => {
                    self.keep(Line::Tier(tier.value.clone()));
                    self.tiers.insert((*name).to_owned(), tier.value);
                }
                None => {
                    self.tiers.remove(*name);
                    self.keep(Line::NoTier((*name).to_owned()));
                }
            }
        }
        for id in &rules {
            match found(store.rule(id).await)? {
                Some(rule) => {
                    self.keep(Line::Rule { id: rule.id.clone(), document: rule.document.clone() });
                    self.rules.insert(rule.id, rule.document);
                }
                None => {
                    self.rules.remove(*id);
                    self.keep(Line::NoRule((*id).to_owned()));
                }
            }
        }
        for rule in &states {
            match found(store.rule_state(rule).await)? {
                Some(state) => {
                    self.keep(Line::State(state.value.clone()));
                    self.states.insert((*rule).to_owned(), state.value);
                }
                None => {
                    self.states.remove(*rule);
                    self.keep(Line::NoState((*rule).to_owned()));
                }
            }
        }
        if let Some(file) = &mut self.last_good {
            file.end_of(revision);
        }
        there.iter().for_each(|quota| self.sink.quota(&quota.value));
        gone.iter().for_each(|key| self.sink.no_quota(key));
        if !tiers.is_empty() {
            self.sink.tiers(&self.tiers);
        }
        if !rules.is_empty() {
            self.sink.rules(&self.rules);
        }
        // What a state is about may be a rule that has just come.
        if !states.is_empty() || !rules.is_empty() {
            self.tell_states();
        }
        self.revision = revision;
        self.sink.is_at(revision);
        if let Some(file) = &mut self.last_good {
            file.tidy_up();
        }
        Ok(())
    }

    /// Reads everything, and forgets what is not there any more.
    async fn take_all(&mut self, store: &ControlStore) -> Result<()> {
        let mut snapshot = store.snapshot().await?;
        let (mut tiers, mut rules, mut states) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        self.sink.quotas_begin();
        let mut file = self.last_good.as_mut().and_then(|file| file.rewrite(snapshot.revision()));
        let mut keep = |line: Line| {
            if let Some(file) = &mut file {
                file.add(&line);
            }
        };
        while let Some(page) = snapshot.next().await? {
            match page {
                SnapshotPage::Tiers(page) => {
                    for tier in page {
                        keep(Line::Tier(tier.value.clone()));
                        tiers.insert(tier.value.name.clone(), tier.value);
                    }
                }
                SnapshotPage::Rules(page) => {
                    for rule in page {
                        keep(Line::Rule { id: rule.id.clone(), document: rule.document.clone() });
                        rules.insert(rule.id, rule.document);
                    }
                }
                SnapshotPage::RuleStates(page) => {
                    for state in page {
                        keep(Line::State(state.value.clone()));
                        states.insert(state.value.rule.clone(), state.value);
                    }
                }
                SnapshotPage::Quotas(page) => {
                    for quota in page {
                        self.sink.quota(&quota.value);
                        keep(Line::Quota(quota.value));
                    }
                }
            }
        }
        let revision = snapshot.revision();
        if let (Some(file), Some(kept)) = (file, &mut self.last_good) {
            kept.replace(file);
        }
        self.sink.quotas_end();
        (self.tiers, self.rules, self.states) = (tiers, rules, states);
        self.tell_all(revision);
        Ok(())
    }

    fn keep(&mut self, line: Line) {
        if let Some(file) = &mut self.last_good {
            file.add(&line);
        }
    }

    fn tell_all(&mut self, revision: Revision) {
        self.sink.tiers(&self.tiers);
        self.sink.rules(&self.rules);
        self.tell_states();
        self.revision = revision;
        self.loaded = true;
        self.sink.is_at(revision);
    }

    /// Tells the states that hold now.
    fn tell_states(&self) {
        let now = self.now_us();
        let holds = |state: &&RuleState| state.expires_at.is_none_or(|end| now < end);
        let states: Vec<RuleState> = self.states.values().filter(holds).cloned().collect();
        self.sink.states(&states);
    }

    /// How long until the next state ends.
    fn next_expiry(&self) -> Duration {
        let now = self.now_us();
        let ends = self.states.values().filter_map(|state| state.expires_at).filter(|end| *end > now);
        let wait = ends.min().map_or(u64::MAX, |end| u64::try_from(end - now).unwrap_or(0));
        // A long sleep would be wrong after the machine slept, and after somebody set its clock.
        Duration::from_micros(wait.saturating_add(1_000)).min(LOOK_EVERY)
    }

    fn now_us(&self) -> i64 {
        i64::try_from(self.clock.wall_now_us()).unwrap_or(i64::MAX)
    }
}

/// What is not there is no trouble.
fn found<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(crate::error::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Mutex;

    use super::*;
    use crate::{Options, Who};

    /// Looks, whenever it is told of a key, whether the file speaks of it already.
    struct Looks {
        file: PathBuf,
        seen: Mutex<Vec<(String, bool)>>,
    }

    impl Looks {
        fn look(&self, what: &str, line: &str) {
            // Up to the last whole revision: what stands behind it counts for nothing.
            let text = std::fs::read_to_string(&self.file).unwrap_or_default();
            let whole = text.rfind("{\"revision\"").map_or("", |at| &text[..at]);
            self.seen.lock().expect("a list").push((what.into(), whole.contains(line)));
        }
    }

    impl Sink for Looks {
        fn quota(&self, quota: &Quota) {
            self.look("quota", &format!("{{\"quota\":{{\"api_key\":\"{}\"", quota.api_key));
        }

        fn no_quota(&self, api_key: &str) {
            self.look("no quota", &format!("{{\"no_quota\":\"{api_key}\"}}"));
        }

        fn quotas_begin(&self) {}
        fn quotas_end(&self) {}
        fn tiers(&self, _: &BTreeMap<String, Tier>) {}
        fn rules(&self, _: &BTreeMap<String, String>) {}
        fn states(&self, _: &[RuleState]) {}
        fn is_at(&self, _: Revision) {}
        fn heard(&self) {}
        fn heard_nothing(&self) {}
    }

    #[tokio::test]
    async fn an_edit_is_told_only_once_the_file_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("last-good");
        let store = ControlStore::open(&Options::sqlite(folder.path().join("db"))).await.expect("a store");
        let sink = Looks { file: file.clone(), seen: Mutex::default() };
        let mut follow = Follow::new(sink, Clock::real(), Some(LastGood::new(&file, "db")));
        follow.catch_up(&store).await.expect("nothing yet");
        let who = Who::new("test", "");
        let quota = Quota { tier: Some("pro".into()), ..Quota::of("alice") };
        store.put_quota(&who, quota, None).await.expect("written");
        follow.catch_up(&store).await.expect("the edit");
        store.delete_quota(&who, "alice", None).await.expect("deleted");
        follow.catch_up(&store).await.expect("its end");
        let seen = follow.sink.seen.lock().expect("a list").clone();
        assert_eq!(seen, [("quota".to_owned(), true), ("no quota".to_owned(), true)]);
        store.close().await;
    }
}
