//! How a node follows what is kept: all of it once, then change by change, each entry by itself. It is never older than it was: what
//! comes is applied in the order of revisions, and what cannot be read now is read later, while decisions go on with what there is.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_clock::Clock;
use tokio::time::sleep;

use crate::audit::HASH_BYTES;
use crate::error::Result;
use crate::last_good::{Known, LastGood, Line};
use crate::model::{Change, Head, Kind, Quota, Revision, RuleState, SnapshotPage, Tier};
use crate::store::ControlStore;

/// So many changes are read at once.
const CHANGES_PAGE: usize = 500;
/// If there are more, everything is read again.
const CHANGES_MAX: u64 = 10_000;
/// How long to wait before a store that did not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);
/// How often it is looked whether there is something new, should nobody tell. The store polls by itself more often.
const LOOK_EVERY: Duration = Duration::from_secs(4);
/// How often it is looked whether a state has ended, whatever its instant was thought to be: the clock may be set, or another state come.
const LOOK_FOR_ENDS: Duration = Duration::from_millis(250);
/// How long to wait before a file that could not be written is tried again; twice as long each time, up to the longest, since all of the
/// database is read for it.
const KEEP_AGAIN_MIN: Duration = Duration::from_secs(5);
const KEEP_AGAIN_MAX: Duration = Duration::from_secs(60);

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
    sink: Arc<S>,
    clock: Clock,
    last_good: Option<LastGood>,
    /// While the file cannot be written.
    again: Option<Again>,
    tiers: BTreeMap<String, Tier>,
    rules: BTreeMap<String, String>,
    states: Arc<States<S>>,
    revision: Revision,
    /// The hash of that row of the audit trail, if it is known: a database that was put back may be at the same revision, by other rows.
    hash: Option<[u8; HASH_BYTES]>,
    /// Has everything been told once?
    loaded: bool,
    /// Did the store answer the last time? Not known before the first.
    hears: Option<bool>,
}

/// When a file that could not be written is tried again.
struct Again {
    at_us: u64,
    waited: Duration,
}

impl<S: Sink> Follow<S> {
    /// Nothing is known yet. With a file, what becomes known is kept in it.
    pub fn new(sink: S, clock: Clock, last_good: Option<LastGood>) -> Self {
        let sink = Arc::new(sink);
        let states = Arc::new(States { sink: sink.clone(), clock: clock.clone(), all: Mutex::default() });
        Self {
            sink,
            clock,
            last_good,
            again: None,
            tiers: BTreeMap::new(),
            rules: BTreeMap::new(),
            states,
            revision: 0,
            hash: None,
            loaded: false,
            hears: None,
        }
    }

    /// Tells what the last run knew, until the store says more. Says whether there was anything. If edits are missing in it, the node is
    /// not ready by it: it would be older than it was.
    pub fn load_last_good(&mut self) -> bool {
        let Some(file) = &mut self.last_good else { return false };
        let (sink, tiers, rules, mut states) =
            (&self.sink, &mut self.tiers, &mut self.rules, self.states.all());
        let mut tell = |line| match line {
            Line::Quota(quota) => sink.quota(&quota),
            Line::NoQuota(api_key) => sink.no_quota(&api_key),
            Line::Tier(tier) => drop(tiers.insert(tier.name.clone(), tier)),
            Line::NoTier(name) => drop(tiers.remove(&name)),
            Line::Rule { id, document } => drop(rules.insert(id, document)),
            Line::NoRule(id) => drop(rules.remove(&id)),
            Line::State(state) => drop(states.insert(state.rule.clone(), state)),
            Line::NoState(rule) => drop(states.remove(&rule)),
        };
        let read = match file.read(&mut tell) {
            Ok(None) => file.read_aside(&mut tell).map(|known| known.map(|known| (known, true))),
            read => read.map(|known| known.map(|known| (known, false))),
        };
        drop(states);
        match read {
            Ok(Some((known, false))) => {
                tracing::info!(revision = known.0, "what the control plane knew in the last run is in force");
                self.tell_all(known);
                true
            }
            Ok(Some(((revision, _), true))) => {
                let why = "what the control plane knew in the last run is in force without its last edits, which could not be kept";
                tracing::warn!(revision, "{why}: the node is not ready until it hears of the database");
                // As if nothing had been told: everything is read again, and with it the file is mended.
                self.tell_others();
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
            }
        }
    }

    /// Ends states at their instants, for as long as it is asked to. It runs beside all else: a store that is away or hangs, from the first
    /// moment on perhaps, keeps none from ending.
    pub fn end_states(&self) -> impl Future<Output = Infallible> + use<S> {
        let states = self.states.clone();
        async move {
            let mut looked_us = states.now_us();
            loop {
                sleep(states.next_end()).await;
                let now_us = states.now_us();
                if states.any_ended(looked_us, now_us) {
                    states.tell();
                }
                looked_us = now_us;
            }
        }
    }

    /// Tells everything that is new.
    async fn catch_up(&mut self, store: &ControlStore) -> Result<()> {
        let mut took_all = false;
        loop {
            let changes = store.changes_since(self.revision, CHANGES_PAGE).await?;
            // After a start from the file, or a while without the store, the changes are enough, unless they are many; or the file is of
            // the version before, and cannot tell whether they are of the same trail.
            let is_far = changes.head.saturating_sub(self.revision) > CHANGES_MAX;
            let knows_nothing = !self.loaded || (!took_all && (is_far || self.hash.is_none()));
            let is_other = self.hash.is_some() && changes.since.is_some() && changes.since != self.hash;
            // Once: in a trail that somebody spoiled, no row may fit.
            let was_put_back = changes.head < self.revision
                || (is_other && !took_all)
                || changes.changes.iter().any(|change| change.kind == Kind::Database);
            if was_put_back && self.loaded {
                tracing::warn!(
                    was = self.revision,
                    is = changes.head,
                    "the control plane's database was restored from a backup or put back: all of it is read again"
                );
            }
            if was_put_back || knows_nothing {
                self.take_all(store).await?;
                took_all = true;
                continue;
            }
            self.hash = changes.since.or(self.hash);
            let Some(last) = changes.changes.last() else { break };
            self.take(store, &changes.changes, (last.seq, last.hash)).await?;
        }
        self.sink.heard();
        if let Some(file) = &mut self.last_good {
            file.tidy_up();
        }
        self.keep_again(store).await;
        Ok(())
    }

    /// Writes the file anew if it could not be written, and it is time. Whoever follows is level with the store, whatever becomes of this.
    async fn keep_again(&mut self, store: &ControlStore) {
        let is_broken = |file: &Option<LastGood>| file.as_ref().is_some_and(LastGood::is_broken);
        if !is_broken(&self.last_good) {
            self.again = None;
            return;
        }
        let wait = match &self.again {
            None => KEEP_AGAIN_MIN,
            Some(again) if self.clock.now_us() < again.at_us => return,
            Some(Again { waited, .. }) => {
                let longer = waited.saturating_mul(2).min(KEEP_AGAIN_MAX);
                if let Err(error) = self.keep_all(store).await {
                    tracing::debug!(%error, "the control plane's database could not be read for its file");
                }
                longer
            }
        };
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let at_us = self.clock.now_us().saturating_add(wait_us);
        self.again = is_broken(&self.last_good).then_some(Again { at_us, waited: wait });
    }

    /// Reads everything for the file alone: what is told is new already. The file may be newer by what has just come, and that will come
    /// again.
    async fn keep_all(&mut self, store: &ControlStore) -> Result<()> {
        let Some(kept) = &mut self.last_good else { return Ok(()) };
        let mut snapshot = store.snapshot().await?;
        let Head { seq, hash } = snapshot.head();
        let Some(mut file) = kept.rewrite((seq, Some(hash))) else { return Ok(()) };
        while !file.has_failed()
            && let Some(page) = snapshot.next().await?
        {
            lines(page).iter().for_each(|line| file.add(line));
        }
        kept.replace(file);
        Ok(())
    }

    /// Reads what has changed as it is now, up to a revision, and tells it. Not before the file has it: what was in force once is so after
    /// a start without the store, too.
    async fn take(&mut self, store: &ControlStore, changes: &[Change], known: Known) -> Result<()> {
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
                    self.states.all().insert((*rule).to_owned(), state.value);
                }
                None => {
                    self.states.all().remove(*rule);
                    self.keep(Line::NoState((*rule).to_owned()));
                }
            }
        }
        if let Some(file) = &mut self.last_good {
            file.end_of(known);
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
            self.states.tell();
        }
        (self.revision, self.hash) = known;
        self.sink.is_at(self.revision);
        Ok(())
    }

    /// Reads everything, and forgets what is not there any more.
    async fn take_all(&mut self, store: &ControlStore) -> Result<()> {
        let mut snapshot = store.snapshot().await?;
        let Head { seq, hash } = snapshot.head();
        let known = (seq, Some(hash));
        let (mut tiers, mut rules, mut states) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        self.sink.quotas_begin();
        let mut file = self.last_good.as_mut().and_then(|file| file.rewrite(known));
        while let Some(page) = snapshot.next().await? {
            for line in lines(page) {
                if let Some(file) = &mut file {
                    file.add(&line);
                }
                match line {
                    Line::Tier(tier) => drop(tiers.insert(tier.name.clone(), tier)),
                    Line::Rule { id, document } => drop(rules.insert(id, document)),
                    Line::State(state) => drop(states.insert(state.rule.clone(), state)),
                    Line::Quota(quota) => self.sink.quota(&quota),
                    // There is nothing in a snapshot that is not there.
                    Line::NoTier(_) | Line::NoRule(_) | Line::NoState(_) | Line::NoQuota(_) => {}
                }
            }
        }
        if let (Some(file), Some(kept)) = (file, &mut self.last_good) {
            kept.replace(file);
        }
        self.sink.quotas_end();
        (self.tiers, self.rules) = (tiers, rules);
        *self.states.all() = states;
        self.tell_all(known);
        Ok(())
    }

    fn keep(&mut self, line: Line) {
        if let Some(file) = &mut self.last_good {
            file.add(&line);
        }
    }

    fn tell_all(&mut self, known: Known) {
        self.tell_others();
        (self.revision, self.hash) = known;
        self.loaded = true;
        self.sink.is_at(self.revision);
    }

    /// Tells all but the quotas, which are told one by one as they are read.
    fn tell_others(&self) {
        self.sink.tiers(&self.tiers);
        self.sink.rules(&self.rules);
        self.states.tell();
    }
}

/// The kill switches: some end at an instant.
struct States<S> {
    sink: Arc<S>,
    clock: Clock,
    all: Mutex<BTreeMap<String, RuleState>>,
}

impl<S: Sink> States<S> {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, RuleState>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells those that hold now.
    fn tell(&self) {
        let now = self.now_us();
        let holds = |state: &&RuleState| state.expires_at.is_none_or(|end| now < end);
        let states: Vec<RuleState> = self.all().values().filter(holds).cloned().collect();
        self.sink.states(&states);
    }

    /// Has one ended after the first of these moments, up to the second?
    fn any_ended(&self, after_us: i64, to_us: i64) -> bool {
        self.all().values().filter_map(|state| state.expires_at).any(|end| after_us < end && end <= to_us)
    }

    /// How long until the next one ends.
    fn next_end(&self) -> Duration {
        let now = self.now_us();
        let ends = self.all().values().filter_map(|state| state.expires_at).filter(|end| *end > now).min();
        let wait = ends.map_or(u64::MAX, |end| u64::try_from(end - now).unwrap_or(0));
        // A long sleep would be wrong after the machine slept, after somebody set its clock, and where another comes.
        Duration::from_micros(wait.saturating_add(1_000)).min(LOOK_FOR_ENDS)
    }

    fn now_us(&self) -> i64 {
        i64::try_from(self.clock.wall_now_us()).unwrap_or(i64::MAX)
    }
}

/// A page of everything, as the file has it.
fn lines(page: SnapshotPage) -> Vec<Line> {
    match page {
        SnapshotPage::Tiers(page) => page.into_iter().map(|tier| Line::Tier(tier.value)).collect(),
        SnapshotPage::Rules(page) => {
            page.into_iter().map(|rule| Line::Rule { id: rule.id, document: rule.document }).collect()
        }
        SnapshotPage::RuleStates(page) => page.into_iter().map(|state| Line::State(state.value)).collect(),
        SnapshotPage::Quotas(page) => page.into_iter().map(|quota| Line::Quota(quota.value)).collect(),
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

    use tidegate_clock::ManualClock;
    use tidegate_testbed::Disk;

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
            let whole = text.rfind("{\"at\"").map_or("", |at| &text[..at]);
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

    /// What a node has in force, and the revision by which it is ready.
    #[derive(Default)]
    struct Node {
        tiers: Mutex<BTreeMap<String, String>>,
        ready_at: Mutex<Option<Revision>>,
    }

    impl Node {
        fn has(&self, key: &str) -> Option<String> {
            self.tiers.lock().expect("a map").get(key).cloned()
        }

        fn ready_at(&self) -> Option<Revision> {
            *self.ready_at.lock().expect("a number")
        }
    }

    impl Sink for Node {
        fn quota(&self, quota: &Quota) {
            let tier = quota.tier.clone().unwrap_or_default();
            self.tiers.lock().expect("a map").insert(quota.api_key.clone(), tier);
        }

        fn no_quota(&self, api_key: &str) {
            self.tiers.lock().expect("a map").remove(api_key);
        }

        fn is_at(&self, revision: Revision) {
            *self.ready_at.lock().expect("a number") = Some(revision);
        }

        fn quotas_begin(&self) {}
        fn quotas_end(&self) {}
        fn tiers(&self, _: &BTreeMap<String, Tier>) {}
        fn rules(&self, _: &BTreeMap<String, String>) {}
        fn states(&self, _: &[RuleState]) {}
        fn heard(&self) {}
        fn heard_nothing(&self) {}
    }

    /// Row 33. What cannot be kept is in force all the same, and is kept when there is room again, by the node that runs.
    #[tokio::test]
    async fn edits_of_a_full_disk_are_kept_once_there_is_room() {
        const SECOND_US: u64 = 1_000_000;
        let folder = tempfile::tempdir().expect("a folder");
        let disk = match Disk::mount(1) {
            Ok(disk) => disk,
            Err(reason) => {
                println!("not looked at, since this needs a disk that can be filled: {reason}");
                return;
            }
        };
        let path = disk.folder().join("last-good");
        let store = ControlStore::open(&Options::sqlite(folder.path().join("db"))).await.expect("a store");
        let put = async |key: &str, tier: &str| {
            let quota = Quota { tier: Some(tier.into()), ..Quota::of(key) };
            store.put_quota(&Who::new("test", ""), quota, None).await.expect("written").now.version
        };
        let hand = ManualClock::at(1_000 * SECOND_US);
        let begin = || Follow::new(Node::default(), Clock::from(&hand), Some(LastGood::new(&path, "db")));
        // A start while the database is away.
        let restarted = || {
            let mut follow = begin();
            follow.load_last_good();
            follow.sink
        };
        let is_broken = |follow: &Follow<Node>| follow.last_good.as_ref().is_some_and(LastGood::is_broken);
        let waits = |follow: &Follow<Node>| follow.again.as_ref().map(|again| again.waited.as_secs());

        let mut follow = begin();
        let kept = put("alice", "kept").await;
        follow.catch_up(&store).await.expect("all of it");
        assert_eq!(restarted().ready_at(), Some(kept));

        disk.fill().expect("full");
        // The file's last page has room for some.
        for edit in 0..200 {
            put("alice", &format!("lost-{edit}")).await;
            follow.catch_up(&store).await.expect("an edit");
            assert_eq!(follow.sink.has("alice"), Some(format!("lost-{edit}")), "it is in force");
            if is_broken(&follow) {
                break;
            }
        }
        assert_eq!((is_broken(&follow), waits(&follow)), (true, Some(5)));
        let old = restarted();
        assert!(old.has("alice").is_some(), "what there is, is better than nothing");
        assert_eq!(old.ready_at(), None, "but it is not what the node had");

        // It is not tried before it is time; then it waits longer each time, up to a minute, and leaves nothing on the disk.
        hand.advance(5 * SECOND_US - 1);
        follow.catch_up(&store).await.expect("nothing new");
        assert_eq!(waits(&follow), Some(5));
        hand.advance(1);
        for waited in [10, 20, 40, 60, 60] {
            follow.catch_up(&store).await.expect("nothing new");
            assert_eq!((is_broken(&follow), waits(&follow)), (true, Some(waited)));
            assert!(!path.with_extension("part").exists());
            put("alice", &format!("after-{waited}")).await;
            follow.catch_up(&store).await.expect("an edit");
            assert_eq!(follow.sink.has("alice"), Some(format!("after-{waited}")));
            hand.advance(waited * SECOND_US);
        }

        // A start by what was put aside follows, whether or not it can keep what it knows.
        let mut other = begin();
        other.load_last_good();
        other.catch_up(&store).await.expect("all of it");
        assert_eq!((other.sink.has("alice"), is_broken(&other)), (Some("after-60".into()), true));

        disk.empty();
        follow.catch_up(&store).await.expect("nothing new");
        assert_eq!((is_broken(&follow), waits(&follow)), (false, None));
        let again = restarted();
        assert_eq!(again.has("alice").as_deref(), Some("after-60"));
        assert_eq!(again.ready_at(), Some(store.revision().await.expect("a revision")));
        assert!(!path.with_extension("old").exists());
        let last = put("bob", "added").await;
        follow.catch_up(&store).await.expect("an edit");
        let again = restarted();
        assert_eq!((again.has("bob").as_deref(), again.ready_at()), (Some("added"), Some(last)));
        store.close().await;
    }
}
