//! The book that is in force, and how it is replaced while requests are decided: loaded and compiled aside, then swapped by one pointer.
//! Rules with an error in them change nothing.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::{Handle, Signals};
use tidegate_core::{Book, DomainDraft, RuleState, Secret};

use crate::load::{Fingerprint, Loaded, RuleFiles, load_marked};
use crate::watch::Watch;

/// Rules that can be loaded again. What is in force is made of the book, `T`: the book alone, or with what somebody keeps beside it.
pub struct LiveRules<T = Book> {
    files: RuleFiles,
    in_force: ArcSwap<T>,
    make: Box<Make<T>>,
    /// One load at a time, so that an older one cannot end last.
    loading: Mutex<Last>,
    loads: AtomicU64,
    failures: AtomicU64,
    last_failed: AtomicBool,
}

/// What the last load left behind.
struct Last {
    /// The texts that were loaded beside the files.
    texts: Texts,
    /// Those that were grafted onto them.
    added: Texts,
    /// What the files looked like.
    seen: Fingerprint,
    /// What keys are hashed under.
    secret: Secret,
    /// Rules that somebody put in another state than they were written in, by where they came from or by id.
    states: HashMap<Box<str>, RuleState>,
}

impl Last {
    /// A new book of what was loaded, as it is to be put in force.
    fn book(&self, domains: Vec<DomainDraft>) -> Book {
        let book = Book::new(domains, self.secret);
        if self.states.is_empty() { book } else { book.with_states(&self.states) }
    }
}

/// Texts by name.
type Texts = Vec<(String, Arc<str>)>;

/// Makes what is in force of a new book, and of what was in force before.
type Make<T> = dyn Fn(Book, Option<&T>) -> T + Send + Sync;

impl LiveRules {
    /// Loads the rules for the first time. Without any that are valid there is nothing to be live; what is wrong comes back.
    pub fn start(files: RuleFiles, secret: Secret) -> Result<(Arc<Self>, Loaded), Box<Loaded>> {
        Self::start_with(files, secret, |book, _| book)
    }
}

impl<T: Send + Sync + 'static> LiveRules<T> {
    /// The same, with something beside the book. `make` is given each new book, and what was in force before.
    pub fn start_with(
        files: RuleFiles,
        secret: Secret,
        make: impl Fn(Book, Option<&T>) -> T + Send + Sync + 'static,
    ) -> Result<(Arc<Self>, Loaded), Box<Loaded>> {
        let (mut loaded, seen) = load_marked(&files);
        if !loaded.is_valid() {
            return Err(Box::new(loaded));
        }
        let book = Book::new(std::mem::take(&mut loaded.domains), secret);
        let live = Self::new(files, seen, secret, book, make);
        live.loads.store(1, Ordering::Relaxed);
        Ok((Arc::new(live), loaded))
    }

    /// The same where rules will come later, by [`Self::replace`]: until then there are none, and [`Self::is_loaded`] says so. `files` says
    /// what holds for them.
    pub fn start_empty(
        files: RuleFiles,
        secret: Secret,
        make: impl Fn(Book, Option<&T>) -> T + Send + Sync + 'static,
    ) -> Arc<Self> {
        let files = RuleFiles { paths: Vec::new(), texts: Vec::new(), ..files };
        Arc::new(Self::new(files, Fingerprint::new(), secret, Book::new(Vec::new(), secret), make))
    }

    /// The same, whose files are loaded later.
    pub fn start_later(
        files: RuleFiles,
        secret: Secret,
        make: impl Fn(Book, Option<&T>) -> T + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self::new(files, Fingerprint::new(), secret, Book::new(Vec::new(), secret), make))
    }

    fn new(
        mut files: RuleFiles,
        seen: Fingerprint,
        secret: Secret,
        book: Book,
        make: impl Fn(Book, Option<&T>) -> T + Send + Sync + 'static,
    ) -> Self {
        let (texts, added) = (std::mem::take(&mut files.texts), std::mem::take(&mut files.added));
        Self {
            files,
            in_force: ArcSwap::from_pointee(make(book, None)),
            make: Box::new(make),
            loading: Mutex::new(Last { texts, added, seen, secret, states: HashMap::new() }),
            loads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            last_failed: AtomicBool::new(false),
        }
    }

    /// What is in force. Held for one request: whoever holds it longer keeps an old one alive.
    #[inline]
    pub fn in_force(&self) -> Guard<Arc<T>> {
        self.in_force.load()
    }

    /// Loads the rules again and, if there is no error in them, puts them in force. Counters are found by the rules' ids, so they go on
    /// where those stay the same.
    pub fn reload(&self) -> Loaded {
        let mut last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let (texts, added) = (last.texts.clone(), last.added.clone());
        self.load_with(texts, added, &mut last)
    }

    /// Loads other texts in place of those before, and the files again. If there is an error in them, the ones before stay, and are what
    /// [`Self::reload`] loads.
    pub fn replace(&self, texts: Vec<(String, Arc<str>)>) -> Loaded {
        let mut last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let added = last.added.clone();
        self.load_with(texts, added, &mut last)
    }

    /// The same for the texts that are grafted onto all others; none if they are the ones before. Where there are no others yet, they wait
    /// for those: alone they are not all rules.
    pub fn replace_added(&self, added: Vec<(String, Arc<str>)>) -> Option<Loaded> {
        let mut last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if last.added == added {
            return None;
        }
        if !self.is_loaded() {
            last.added = added;
            return None;
        }
        let texts = last.texts.clone();
        Some(self.load_with(texts, added, &mut last))
    }

    /// What would come of [`Self::replace_added`]: loads, and puts nothing in force.
    pub fn try_added(&self, added: Vec<(String, Arc<str>)>) -> Loaded {
        let last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let files = RuleFiles { texts: last.texts.clone(), added, ..self.files.clone() };
        drop(last);
        load_marked(&files).0
    }

    fn load_with(&self, texts: Texts, added: Texts, last: &mut Last) -> Loaded {
        let files = RuleFiles { texts, added, ..self.files.clone() };
        let mut loaded;
        (loaded, last.seen) = load_marked(&files);
        if loaded.is_valid() {
            (last.texts, last.added) = (files.texts, files.added);
            let book = last.book(std::mem::take(&mut loaded.domains));
            self.in_force.store(Arc::new((self.make)(book, Some(&self.in_force.load()))));
            self.loads.fetch_add(1, Ordering::Relaxed);
        } else {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        self.last_failed.store(!loaded.is_valid(), Ordering::Relaxed);
        loaded
    }

    /// Puts the rules that are in force, whose book `book_of` knows, under another secret; says whether it was another. Counters start
    /// afresh.
    pub fn rekey(&self, secret: Secret, book_of: impl FnOnce(&T) -> &Book) -> bool {
        let mut last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if last.secret == secret {
            return false;
        }
        last.secret = secret;
        let before = self.in_force.load();
        let book = book_of(&before).under(secret);
        self.in_force.store(Arc::new((self.make)(book, Some(&before))));
        true
    }

    /// Puts rules, by where they came from or by id, in another state than they were written in, and all others back; also those that are
    /// loaded later. Works whatever the files say by now. Says whether anything changed.
    pub fn set_states(
        &self,
        states: HashMap<Box<str>, RuleState>,
        book_of: impl FnOnce(&T) -> &Book,
    ) -> bool {
        let mut last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if last.states == states {
            return false;
        }
        last.states = states;
        let before = self.in_force.load();
        let book = book_of(&before).with_states(&last.states);
        self.in_force.store(Arc::new((self.make)(book, Some(&before))));
        true
    }

    /// What keys are hashed under.
    pub fn secret(&self) -> Secret {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner).secret
    }

    /// Have rules ever been put in force?
    #[inline]
    pub fn is_loaded(&self) -> bool {
        self.loads.load(Ordering::Relaxed) > 0
    }

    /// How often rules were put in force, the first time included, and how often they had errors.
    pub fn counts(&self) -> (u64, u64) {
        (self.loads.load(Ordering::Relaxed), self.failures.load(Ordering::Relaxed))
    }

    /// Had the last load errors, so that what is in force is older than the files?
    pub fn last_load_failed(&self) -> bool {
        self.last_failed.load(Ordering::Relaxed)
    }

    /// Reloads whenever the files may have changed or the process gets a SIGHUP, until what comes back is dropped. `told` is shown what
    /// came of it.
    pub fn follow(
        self: &Arc<Self>,
        mut told: impl FnMut(&Self, &Loaded) + Send + 'static,
    ) -> std::io::Result<Following> {
        let live = self.clone();
        let following = Following::start(self.files.paths.clone(), move || {
            let loaded = live.reload();
            told(&live, &loaded);
        })?;
        // Nobody told of what changed between the last load and the watch.
        let last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if last.seen != self.files.fingerprint() {
            following.nudge();
        }
        drop(last);
        Ok(following)
    }
}

/// Changes are followed while this lives.
#[derive(Debug)]
pub struct Following {
    watch: Arc<Watch>,
    signals: Handle,
}

impl Following {
    /// Calls `on_change` when something below one of the paths may have changed, or on a SIGHUP.
    pub fn start(paths: Vec<PathBuf>, on_change: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let watch = Arc::new(Watch::start(paths, on_change)?);
        let mut signals = Signals::new([SIGHUP])?;
        let handle = signals.handle();
        let nudged = Arc::downgrade(&watch);
        std::thread::Builder::new().name("hangup".into()).spawn(move || {
            for _ in signals.forever() {
                if let Some(watch) = nudged.upgrade() {
                    watch.nudge();
                }
            }
        })?;
        Ok(Self { watch, signals: handle })
    }

    /// As if something had changed.
    pub fn nudge(&self) {
        self.watch.nudge();
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.signals.close();
    }
}
