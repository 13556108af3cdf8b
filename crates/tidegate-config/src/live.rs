//! The book that is in force, and how it is replaced while requests are decided: loaded and compiled aside, then swapped by one pointer.
//! Files with an error in them change nothing; of rules that are grafted onto them, one with an error keeps no other away.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};
use signal_hook::consts::SIGHUP;
use signal_hook::iterator::{Handle, Signals};
use tidegate_core::{Book, DomainDraft, RuleState, Secret};

use crate::fit::{Fit, Texts, fit, mark_new};
use crate::load::{FileTexts, Fingerprint, LeftOut, Loaded, RuleFiles, load_again, load_marked};
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
    /// Which of the texts to be grafted are not in force.
    left_out: ArcSwap<Vec<LeftOut>>,
}

/// What the last load left behind.
struct Last {
    /// The texts that were loaded beside the files.
    texts: Texts,
    /// What the files said that are in force: by now they may be broken.
    said: FileTexts,
    /// Those that are to be grafted onto them. What cannot be now is tried with every load: a file may be repaired.
    wanted: Texts,
    /// Those that are.
    grafted: Texts,
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
        let (mut loaded, seen, said) = load_marked(&files);
        let Some(said) = said.filter(|_| loaded.is_valid()) else { return Err(Box::new(loaded)) };
        let book = Book::new(std::mem::take(&mut loaded.domains), secret);
        let mut live = Self::new(files, secret, book, make);
        let last = live.loading.get_mut().unwrap_or_else(PoisonError::into_inner);
        (last.seen, last.said, last.grafted) = (seen, said, last.wanted.clone());
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
        Arc::new(Self::new(files, secret, Book::new(Vec::new(), secret), make))
    }

    /// The same, whose files are loaded later.
    pub fn start_later(
        files: RuleFiles,
        secret: Secret,
        make: impl Fn(Book, Option<&T>) -> T + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self::new(files, secret, Book::new(Vec::new(), secret), make))
    }

    fn new(
        mut files: RuleFiles,
        secret: Secret,
        book: Book,
        make: impl Fn(Book, Option<&T>) -> T + Send + Sync + 'static,
    ) -> Self {
        let last = Last {
            texts: std::mem::take(&mut files.texts),
            said: FileTexts::default(),
            wanted: std::mem::take(&mut files.added),
            grafted: Texts::new(),
            seen: Fingerprint::new(),
            secret,
            states: HashMap::new(),
        };
        Self {
            files,
            in_force: ArcSwap::from_pointee(make(book, None)),
            make: Box::new(make),
            loading: Mutex::new(last),
            loads: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            last_failed: AtomicBool::new(false),
            left_out: ArcSwap::default(),
        }
    }

    /// What is in force. Held for one request: whoever holds it longer keeps an old one alive.
    #[inline]
    pub fn in_force(&self) -> Guard<Arc<T>> {
        self.in_force.load()
    }

    /// Loads the rules again and, if there is no error in them, puts them in force. Counters are found by the rules' ids, so they go on
    /// where those stay the same. Of what is to be grafted, what could not be before may be left out again; with files that do not go
    /// together with what is in force of it, all stays.
    pub fn reload(&self) -> Loaded {
        let mut last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let texts = last.texts.clone();
        self.load_files(texts, &mut last)
    }

    /// Loads other texts in place of those before, and the files again. If there is an error in them, the ones before stay, and are what
    /// [`Self::reload`] loads.
    pub fn replace(&self, texts: Vec<(String, Arc<str>)>) -> Loaded {
        let mut last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        self.load_files(texts, &mut last)
    }

    /// Grafts these texts, in place of those before, onto all others as they are in force; none if they are the ones before. Those that
    /// do not go together with the others are left out, and tried again with every load. Where there are no others yet, they wait for
    /// those: alone they are not all rules.
    pub fn replace_added(&self, added: Vec<(String, Arc<str>)>) -> Option<Loaded> {
        let mut last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if last.wanted == added {
            return None;
        }
        let before = std::mem::replace(&mut last.wanted, added);
        if !self.is_loaded() {
            return None;
        }
        let files = self.files_with(last.texts.clone(), &last);
        let fit = fit(&files, &last.said, load_again(&files, &last.said), &last.grafted, false);
        Some(match fit {
            Ok(mut fit) => {
                mark_new(&mut fit.loaded, &before, &last.wanted, &self.left_out.load());
                self.put_in_force(fit, &mut last)
            }
            // What is in force was valid without them, so this is not to be expected.
            Err(loaded) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                self.last_failed.store(true, Ordering::Relaxed);
                *loaded
            }
        })
    }

    /// What would come of [`Self::replace_added`]: loads, and puts nothing in force.
    pub fn try_added(&self, added: Vec<(String, Arc<str>)>) -> Loaded {
        let last = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let files = RuleFiles { added, ..self.files_with(last.texts.clone(), &last) };
        let (said, grafted, before) = (last.said.clone(), last.grafted.clone(), last.wanted.clone());
        drop(last);
        match fit(&files, &said, load_again(&files, &said), &grafted, false) {
            Ok(mut fit) => {
                mark_new(&mut fit.loaded, &before, &files.added, &self.left_out.load());
                fit.loaded
            }
            Err(loaded) => *loaded,
        }
    }

    fn files_with(&self, texts: Texts, last: &Last) -> RuleFiles {
        RuleFiles { texts, added: last.wanted.clone(), ..self.files.clone() }
    }

    fn load_files(&self, texts: Texts, last: &mut Last) -> Loaded {
        let files = self.files_with(texts, last);
        let (loaded, seen, said) = load_marked(&files);
        last.seen = seen;
        let fit = match said {
            Some(said) => fit(&files, &said, loaded, &last.grafted, true).map(|fit| (fit, said)),
            None => Err(Box::new(loaded)),
        };
        self.last_failed.store(fit.is_err(), Ordering::Relaxed);
        match fit {
            Ok((mut fit, said)) => {
                mark_new(&mut fit.loaded, &files.added, &files.added, &self.left_out.load());
                (last.texts, last.said) = (files.texts, said);
                self.put_in_force(fit, last)
            }
            Err(loaded) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                *loaded
            }
        }
    }

    fn put_in_force(&self, fit: Fit, last: &mut Last) -> Loaded {
        let Fit { mut loaded, grafted } = fit;
        last.grafted = grafted;
        let book = last.book(std::mem::take(&mut loaded.domains));
        self.left_out.store(Arc::new(loaded.left_out.clone()));
        self.in_force.store(Arc::new((self.make)(book, Some(&self.in_force.load()))));
        self.loads.fetch_add(1, Ordering::Relaxed);
        if !loaded.left_out.is_empty() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
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

    /// Which of the texts that are to be grafted are not in force, and why.
    pub fn left_out(&self) -> Arc<Vec<LeftOut>> {
        self.left_out.load_full()
    }

    /// Had the last load of the files errors, so that what is in force is older than they are?
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
