//! What all entrances of a node share: the rules in force, the counters, the time, and what is told to operators. A [`Core`] is one
//! thread's hand on it.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher as _, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use tidegate_clock::Clock;
use tidegate_config::LiveRules;
use tidegate_core::{
    Ask, Book, Descriptor, Fate, Found, GrantedBy, Key, Limit, Micros, OnStoreFailure, Plan, Query, Quotas,
    Role, Rule, Tag, Verdict,
};
use tidegate_counters::{
    CircuitState, Counters as _, Hand, Memory, Mode, RedisStats, STORE_TIMES_US, Stats, Store, Unavailable,
};
use tidegate_telemetry::reference::{ReferenceNames, ReferenceStats};
use tidegate_telemetry::{
    Build, Gauges, InternalCall, LimitSource, Metrics, Place, Reason, Refusal, RefusalLog, RuleMetrics,
    StoreGauges, StoreServer, TopKeys, trace_id_of,
};
use tokio::sync::Semaphore;

use crate::control::ControlStatus;
use crate::decide::{Answered, Asks, By, Decision, Room, Terms, ask, decide_planned, refusing};
use crate::internal_call::{InternalCalls, Refused};
use crate::ledger::Ledger;
use crate::net::Places;
use crate::policy::{self, StoreFailures};
use crate::receipts::Receipts;
use crate::reply::PolicyNames;
use crate::reply::body::BodyStyle;
use crate::reply::headers::Dialect;
use crate::stand_in::StandIn;
use crate::waiting::{at_once, caught, unbroken};
use crate::xds::XdsStatus;

/// What a key takes in the table, as far as it is the same for all.
const SLOT_BYTES: u64 = 16;
/// How many rooms a thread keeps. More decisions may wait at the same time; their rooms are not kept.
const ROOMS_MAX: usize = 64;
/// How much a thread may do later, when nobody waits for it any more. What comes then is left undone.
const LATER_MAX: usize = 1_024;

/// What is answered until the first rules came, in the words of envoyproxy/ratelimit. Without rules nothing is known of any request, and to
/// let all pass would be to switch limits off.
pub(crate) const NO_RULES: &str = "no rate limit configuration loaded";

/// The rules in force, with what is worked out once for each of them.
#[derive(Debug)]
pub struct InForce {
    /// The rules.
    pub book: Book,
    /// What is known about callers beside them. One for all books: it changes entry by entry.
    pub quotas: Arc<Quotas>,
    /// What callers are told they are called.
    pub names: PolicyNames,
    /// Where they are counted.
    pub metrics: RuleMetrics,
    /// What the reference server calls them, where this node stands in for it.
    pub reference: Option<ReferenceNames>,
}

impl InForce {
    /// Works it out; rules that were there before go on counting.
    pub fn new(book: Book, cores: usize, before: Option<&Self>) -> Self {
        let names = PolicyNames::of(&book);
        let metrics = RuleMetrics::of(&book, cores, before.map(|before| &before.metrics));
        let quotas = before.map(|before| before.quotas.clone()).unwrap_or_default();
        Self { book, quotas, names, metrics, reference: None }
    }

    /// The same, with what is known about callers.
    #[must_use]
    pub fn with_quotas(self, quotas: &Arc<Quotas>) -> Self {
        Self { quotas: quotas.clone(), ..self }
    }

    /// What requests are decided by at a time.
    #[inline]
    pub(crate) fn at(&self, now: Micros) -> By<'_> {
        By { book: &self.book, callers: self.quotas.at(now) }
    }

    /// What counts for a request at a time.
    pub(crate) fn plan<'b>(&'b self, query: &Query<'_>, now: Micros, plan: &mut Plan<'b>) {
        self.at(now).plan(query, plan);
    }

    /// The same, counted by the reference server's names too.
    #[must_use]
    pub fn with_reference_stats(self, stats: &Arc<ReferenceStats>) -> Self {
        Self { reference: Some(ReferenceNames::of(stats, &self.book)), ..self }
    }
}

/// What an entrance adds to its answers.
#[derive(Clone, Debug, Default)]
pub struct ReplyStyle {
    /// The headers.
    pub headers: Vec<Dialect>,
    /// The body of a refusal; none sends none.
    pub body: Option<BodyStyle>,
    /// Rule, mode and bound as metadata, for the proxy's logs.
    pub metadata: bool,
}

/// A node: shared by its threads.
pub struct Node {
    /// Is it asked for decisions? One that is not tells of its health, and no more.
    pub decides: bool,
    /// The rules.
    pub rules: Arc<LiveRules<InForce>>,
    /// The server that they come from, if they come from one.
    pub xds: Option<Arc<XdsStatus>>,
    /// What the control plane keeps, if there is one.
    pub control: Option<Arc<ControlStatus>>,
    /// What calendars were charged, where it is written down.
    pub ledger: Option<Ledger>,
    /// The counters.
    pub store: Store,
    /// What went wrong with them, for the log and for whoever asks.
    pub failures: StoreFailures,
    /// The time.
    pub clock: Clock,
    /// What is counted for operators.
    pub metrics: Arc<Metrics>,
    /// Refusals, some of them.
    pub refusals: RefusalLog,
    /// Who is refused most.
    pub top: TopKeys,
    /// Charges that can be given back or settled.
    pub receipts: Receipts,
    /// Who is told apart as one of us; swapped when the secrets change.
    pub internal_calls: Option<ArcSwap<InternalCalls>>,
    /// The domain that internal calls are counted in; without one they are not counted.
    pub internal_domain: Option<String>,
    /// The domain of requests that do not name one.
    pub default_domain: Option<String>,
    /// What is answered when a decision fails and no rule says otherwise.
    pub on_failure: OnStoreFailure,
    /// How long an answer may take, whatever the store does.
    pub deadline: Duration,
    /// How RLS answers.
    pub rls: ReplyStyle,
    /// How HTTP answers.
    pub http: ReplyStyle,
    /// Is it on its way out?
    pub draining: AtomicBool,
    /// The connections that are open: to RLS, to HTTP.
    pub places: [Arc<Places>; 2],
    /// When it started, and when the rules in force were loaded, by the wall clock.
    pub started_us: u64,
    /// See above.
    pub reloaded_us: AtomicU64,
    /// What is running.
    pub build: Build,
    /// What it does otherwise because it stands in for envoyproxy/ratelimit.
    pub stand_in: Option<StandIn>,
    /// Turns at what takes long and is no decision.
    pub aside: Semaphore,
    /// For tests: is called with each request before it is planned, and may panic.
    pub fault: Option<fn(&Query<'_>)>,
}

impl Node {
    /// What probes are told: ready, and with a connection to its store where the place that it stands in asks for one.
    pub fn is_well(&self) -> bool {
        let is_connected = match &self.store {
            Store::Memory(_) => true,
            Store::Redis(redis) => redis.stats().connections() > 0,
        };
        let needs_store = self.stand_in.as_ref().is_some_and(|stand_in| stand_in.health_needs_store);
        self.is_ready() && (is_connected || !needs_store)
    }

    /// Is it ready for requests?
    pub fn is_ready(&self) -> bool {
        self.unready().is_none()
    }

    /// Why it is not, in a few words.
    pub fn unready(&self) -> Option<&'static str> {
        if self.draining.load(Ordering::Relaxed) {
            Some("draining")
        } else if !self.rules.is_loaded() {
            Some(NO_RULES)
        } else if self.control.as_ref().is_some_and(|control| !control.is_loaded()) {
            Some("quotas not loaded yet")
        } else {
            None
        }
    }

    /// The domain of a request that does not name one: the one that was set, or the only one there is.
    pub fn default_domain<'a>(&'a self, book: &'a Book) -> Option<&'a str> {
        let mut domains = book.domains();
        let only = domains.next().filter(|_| domains.next().is_none());
        self.default_domain.as_deref().or(only.map(|domain| domain.name()))
    }

    /// Domains that settings name and no rule file has: whoever is counted there is not limited.
    pub fn missing_domains<'a>(&'a self, book: &Book) -> Vec<(&'static str, &'a str)> {
        let named = [
            ("http.default_domain", self.default_domain.as_deref()),
            ("internal.domain", self.internal_domain.as_deref()),
        ];
        let named = named.into_iter().filter_map(|(setting, domain)| Some((setting, domain?)));
        named.filter(|(_, named)| book.domains().all(|domain| domain.name() != *named)).collect()
    }

    /// What is wrong where quotas name no domain, and there is none that they are about.
    pub fn lost_quotas(&self, book: &Book) -> Option<&'static str> {
        let may_have = self.control.as_ref().is_some_and(|control| control.may_have_unnamed());
        let are_lost = may_have && book.domains().next().is_some() && self.default_domain(book).is_none();
        are_lost.then_some(
            "quotas that name no domain hold nowhere: there are several domains, and http.default_domain names none",
        )
    }

    /// What it knows of itself, for metrics.
    pub(crate) fn gauges(&self) -> Gauges {
        let (stats, store) = match &self.store {
            Store::Memory(memory) => (memory.stats(), None),
            Store::Redis(redis) => (Stats::default(), Some(redis.stats())),
        };
        let places_expired = store.as_ref().map_or(stats.places_expired, |store| store.places_expired);
        let store = store.map(store_gauges);
        let (loads, failures) = self.rules.counts();
        Gauges {
            keys_live: stats.keys,
            keys_capacity: stats.slots,
            keys_expired: stats.expired,
            evicted_live: stats.evicted_live,
            evicted_refused: stats.evicted_refused,
            unremembered: stats.unremembered,
            places_expired,
            counter_bytes: stats.slots * SLOT_BYTES + stats.arena_bytes,
            arena_bytes: stats.arena_bytes,
            arena_used_bytes: stats.arena_used,
            rules: self.rules.in_force().book.rules().len() as u64,
            reloaded_at: Micros::new(self.reloaded_us.load(Ordering::Relaxed)),
            reload_successful: !self.rules.last_load_failed() && self.rules.left_out().is_empty(),
            reloads: loads + failures,
            reload_failures: failures,
            connections: [0, 1].map(|at: usize| self.places[at].taken() as u64),
            started_at: Micros::new(self.started_us),
            build: self.build,
            store,
            xds: self.xds.as_ref().map(|xds| xds.gauges()),
            calendars: self.ledger.as_ref().map(Ledger::gauges),
            control: self.control.as_ref().map(|control| {
                let quotas = &self.rules.in_force().quotas;
                control.gauges((quotas.len(), quotas.bytes()), self.clock.wall_now_us())
            }),
            refusals_file: self.refusals.file_counts(),
            audit_sink: self.control.as_ref().and_then(|control| control.sink()),
        }
    }

    /// Makes a counter as if never touched, in the store and, if it is one of a calendar, where that is written down; says whether there
    /// was one.
    pub async fn reset(
        &self,
        hand: &Hand,
        key: Key,
        tag: Tag,
        limit: Option<&Limit>,
    ) -> Result<bool, Unavailable> {
        let forget = async || match (&self.ledger, limit) {
            (Some(ledger), Some(limit)) => {
                ledger.reset(key, limit, self.wall_now()).await.map_err(|why| Unavailable {
                    why: format!("what the calendar has used cannot be reset in the database: {why}"),
                })
            }
            _ => Ok(()),
        };
        // Before, so that whoever finds the counter empty does not restore it; and after, for what was charged in between.
        forget().await?;
        let was_stored = hand.reset(key, tag).await?;
        forget().await?;
        Ok(was_stored)
    }

    /// The time that people's clocks show. A store that others count in too is told this one, which they have in common.
    pub(crate) fn wall_now(&self) -> Micros {
        Micros::new(self.clock.wall_now_us())
    }

    /// The time by which is counted.
    #[inline]
    pub fn now(&self) -> Micros {
        Micros::new(self.clock.now_us())
    }
}

/// The header of calls that come from inside.
pub const INTERNAL_CALL: &str = "x-internal-call";

/// The header that says which trace a request belongs to.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Anybody.
    Outside,
    /// One of us, and has shown it.
    Internal,
}

/// What is known of a request besides what it asks.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// When it came.
    pub came: Micros,
    /// Its `traceparent`.
    pub trace: Option<&'a str>,
    /// How long the caller waits, if it says so.
    pub patience: Option<Duration>,
}

impl Asker<'_> {
    /// One that came then, of whom nothing else is known.
    pub fn at(came: Micros) -> Self {
        Self { came, trace: None, patience: None }
    }
}

/// What came of a request.
pub enum Decided<'d> {
    /// It was decided by its limits.
    Counted(&'d Decision<'d>, &'d InForce),
    /// The decision failed; this is what the rules say to that.
    ByPolicy(OnStoreFailure),
}

/// The plan of a request that will be decided soon, and the room for that.
pub(crate) struct Ahead<'r> {
    room: Box<Room>,
    pub(crate) plan: Plan<'r>,
}

/// One thread's hand on a node.
pub struct Core {
    /// Which thread.
    pub number: usize,
    /// The node.
    pub node: Arc<Node>,
    /// Its hand on the counters.
    pub(crate) hand: Hand,
    /// Rooms that no decision uses now.
    #[expect(
        clippy::vec_box,
        reason = "they are handed on with each decision, and moving one costs as much as a small one"
    )]
    rooms: RefCell<Vec<Box<Room>>>,
    /// How much is done later.
    laters: Cell<usize>,
    /// Bytes of messages that are not whole yet.
    pub(crate) gathered: Cell<usize>,
    ids: RandomState,
    next_id: Cell<u64>,
}

impl Core {
    /// The hand of a thread.
    pub fn new(number: usize, node: Arc<Node>) -> Self {
        Self {
            number,
            hand: node.store.hand(),
            node,
            rooms: RefCell::new(vec![Box::default()]),
            laters: Cell::new(0),
            gathered: Cell::new(0),
            ids: RandomState::new(),
            next_id: Cell::new(0),
        }
    }

    /// An id that nobody guesses, for what a caller is to give back.
    pub fn fresh_id(&self) -> u64 {
        let next = self.next_id.get();
        self.next_id.set(next.wrapping_add(1));
        self.ids.hash_one(next)
    }

    /// Who asks, by the header that says so. What cannot be verified counts for nothing, and is counted.
    pub fn standing(&self, header: Option<&[u8]>) -> Standing {
        let (Some(header), Some(calls)) = (header, &self.node.internal_calls) else {
            return Standing::Outside;
        };
        let verified = std::str::from_utf8(header).map_err(|_| Refused::Malformed);
        let verified =
            verified.and_then(|text| calls.load().verify(text, self.node.clock.wall_now_us()).map(|_| ()));
        let (standing, result) = match verified {
            Ok(()) => (Standing::Internal, InternalCall::Verified),
            Err(Refused::Malformed) => (Standing::Outside, InternalCall::Malformed),
            Err(Refused::Stale) => (Standing::Outside, InternalCall::Stale),
            Err(Refused::Wrong) => (Standing::Outside, InternalCall::Wrong),
        };
        self.node.metrics.core(self.number).internal_call(result);
        standing
    }

    /// Decides a request, and shows what came of it to `view`. Whatever breaks on the way, `view` is shown an answer: then it is what the
    /// rules say about stores that cannot answer.
    ///
    /// Dropped while it waits for the store, the request may have been charged.
    pub async fn decide<R>(
        &self,
        query: &Query<'_>,
        asks: &Asks<'_>,
        asker: &Asker<'_>,
        view: impl FnMut(Decided<'_>) -> R,
    ) -> R {
        match &self.hand {
            Hand::Memory(memory) => {
                self.decide_now(memory, &self.node.rules.in_force(), None, query, asks, asker, view)
            }
            // In a place of its own: whoever counts in memory does not carry it along.
            Hand::Redis(_) => Box::pin(self.decide_later(self.in_force(), query, asks, asker, view)).await,
        }
    }

    /// The same on counters in memory: nothing waits. By a plan that was made ahead, if there is one.
    #[expect(clippy::too_many_arguments, reason = "all of it is different for each call")]
    pub(crate) fn decide_now<R>(
        &self,
        memory: &Memory,
        in_force: &InForce,
        ahead: Option<Ahead<'_>>,
        query: &Query<'_>,
        asks: &Asks<'_>,
        asker: &Asker<'_>,
        mut view: impl FnMut(Decided<'_>) -> R,
    ) -> R {
        let now = asker.came;
        let decided = catch_unwind(AssertUnwindSafe(|| {
            let Ahead { mut room, plan } = ahead.unwrap_or_else(|| {
                let by = in_force.at(now);
                let mut ahead = self.begin_ahead(&by, query);
                by.finish_plan(query, &mut ahead.plan);
                ahead
            });
            let result = decide_planned(plan, memory, asks, now, &mut room, |decision| {
                self.tell(decision, in_force, query, asker);
                view(Decided::Counted(decision, in_force))
            });
            self.keep(room);
            result
        }));
        decided.unwrap_or_else(|_| view(Decided::ByPolicy(self.broken(in_force, query))))
    }

    /// Begins the plan of a request that will be decided soon.
    #[inline]
    pub(crate) fn begin_ahead<'r>(&self, by: &By<'r>, query: &Query<'_>) -> Ahead<'r> {
        self.fault(query);
        let mut room = self.room();
        let mut plan = room.plan();
        by.begin_plan(query, &mut plan);
        Ahead { room, plan }
    }

    /// The same on counters elsewhere: while one decision waits, others go on.
    pub(crate) async fn decide_later<R>(
        &self,
        in_force: Arc<InForce>,
        query: &Query<'_>,
        asks: &Asks<'_>,
        asker: &Asker<'_>,
        mut view: impl FnMut(Decided<'_>) -> R,
    ) -> R {
        // In steps, each of which may break, and not as a future that is caught as a whole: it would be moved as often as it is handed on,
        // and there may be thousands. All that is kept while one waits stands here.
        let broken = || Decided::ByPolicy(self.broken(&in_force, query));
        let mut room = self.room();
        let (mut plan, mut batch) = (room.plan(), room.batch());
        let now = self.node.wall_now();
        let terms = Terms { now, patience: self.patience(asker), otherwise: self.node.on_failure };
        let planned = || {
            self.fault(query);
            in_force.plan(query, now, &mut plan);
            refusing(&plan)
        };
        // Without names of their own, by which both would be kept twice.
        let refusing = match unbroken(planned) {
            Ok(refusing) => refusing,
            Err(_) => return view(broken()),
        };
        let mut asking =
            match unbroken(|| ask(&self.hand, &plan, asks, refusing.as_ref(), &terms, &mut batch)) {
                Ok(asking) => asking,
                Err(_) => return view(broken()),
            };
        if let Some(asking) = &mut asking
            && caught(pin!(asking.wait())).await.is_err()
        {
            return view(broken());
        }
        let viewed = unbroken(|| {
            if let Some(asking) = asking {
                self.hand.judge(&mut batch, asking);
            }
            Answered::of(&plan, &batch, asks, |answered| {
                view(match answered {
                    Answered::Decided { decision, trouble } => {
                        self.tell(decision, &in_force, query, asker);
                        if let Some(why) = trouble {
                            self.degraded(decision.degraded(), why, query);
                        }
                        Decided::Counted(decision, &in_force)
                    }
                    Answered::Not { plan, why } => {
                        for take in plan.takes() {
                            in_force.metrics.count(self.number, take.rule, take.role, &Verdict::BLANK, true);
                        }
                        self.degraded(Some(OnStoreFailure::Error), why, query);
                        Decided::ByPolicy(OnStoreFailure::Error)
                    }
                })
            })
        });
        let Ok(result) = viewed else { return view(broken()) };
        let batch = batch.recycle();
        room.keep(plan.recycle(), batch);
        self.keep(room);
        result
    }

    /// The rules in force, for a decision that waits. Not as a guard: those are for a moment.
    pub(crate) fn in_force(&self) -> Arc<InForce> {
        Guard::into_inner(self.node.rules.in_force())
    }

    /// How long a decision may take from now on: until the node's deadline, or well before the caller gives up.
    fn patience(&self, asker: &Asker<'_>) -> Duration {
        let node = &self.node;
        let whole = asker.patience.map_or(node.deadline, |patience| node.deadline.min(patience * 3 / 4));
        whole.saturating_sub(Duration::from_micros(node.now().minus(asker.came).get()))
    }

    /// Does a decision wait for somebody else?
    pub(crate) fn waits(&self) -> bool {
        matches!(self.hand, Hand::Redis(_))
    }

    /// Does something that nobody waits for: at once if it can, else when it can. There is a bound to it.
    pub(crate) fn later(self: &Rc<Self>, work: impl Future<Output = ()> + 'static) {
        let mut work = Box::pin(work);
        if at_once(work.as_mut()).is_some() || self.laters.get() >= LATER_MAX {
            return;
        }
        self.laters.set(self.laters.get() + 1);
        let core = self.clone();
        tokio::task::spawn_local(async move {
            work.await;
            core.laters.set(core.laters.get() - 1);
        });
    }

    /// A room, out of those that are kept: a panic leaves no half-filled one behind.
    fn room(&self) -> Box<Room> {
        self.rooms.borrow_mut().pop().unwrap_or_default()
    }

    fn keep(&self, room: Box<Room>) {
        let mut rooms = self.rooms.borrow_mut();
        if rooms.len() < ROOMS_MAX {
            rooms.push(room);
        }
    }

    fn fault(&self, query: &Query<'_>) {
        if let Some(fault) = self.node.fault {
            fault(query);
        }
    }

    /// A decision panicked: counts and tells it, and says what is answered.
    #[cold]
    fn broken(&self, in_force: &InForce, query: &Query<'_>) -> OnStoreFailure {
        let found = catch_unwind(AssertUnwindSafe(|| {
            let mut plan = Plan::new();
            in_force.plan(query, self.node.now(), &mut plan);
            policy::of_plan(&plan)
        }));
        let policy = found.ok().flatten().unwrap_or(self.node.on_failure);
        self.node.metrics.core(self.number).internal_error(policy);
        tracing::error!(domain = query.domain, ?policy, "a decision failed; answered by policy");
        policy
    }

    /// The store did not answer some of a request, or all of it: counts and tells it. `acted` is the policy that decided, if one had to.
    #[cold]
    fn degraded(&self, acted: Option<OnStoreFailure>, why: &Unavailable, query: &Query<'_>) {
        let node = &*self.node;
        if let Some(policy) = acted {
            node.metrics.core(self.number).store_failure(policy);
        }
        if let Some(left_out) = node.failures.line(why, node.now()) {
            let (why, left_out) = (&why.why, Some(left_out).filter(|count| *count > 0));
            let (domain, policy) = (query.domain, acted.map(OnStoreFailure::name));
            tracing::warn!(domain, policy, why, left_out, "the store did not answer; answered by policy");
        }
    }

    /// What became of places, which are leaked if nobody gives them back.
    fn count_places(&self, ask: Ask, applied: i64) {
        let (event, count) = match (ask, applied) {
            (Ask::Release { .. }, 0) => (Place::Missed, 1),
            (Ask::Release { .. }, _) => (Place::Released, applied.unsigned_abs()),
            _ => (Place::Taken, applied.unsigned_abs()),
        };
        self.node.metrics.core(self.number).places(event, count);
    }

    /// What operators are told of a decision.
    fn tell(&self, decision: &Decision<'_>, in_force: &InForce, query: &Query<'_>, asker: &Asker<'_>) {
        let (node, metrics, now) = (&*self.node, &in_force.metrics, asker.came);
        let tagged = node.store.wants_tags();
        for (at, (take, answer)) in decision.plan.takes().iter().zip(decision.answers).enumerate() {
            if !decision.is_meant(at) || !decision.is_asked(at) {
                continue;
            }
            let degraded = matches!(answer.mode, Mode::Degraded(_));
            metrics.count(self.number, take.rule, take.role, &answer.verdict, degraded);
            if let Some(ledger) = &node.ledger
                && !degraded
            {
                let limit = decision.plan.limit(take);
                ledger.note(self.number, take.key, take.tag, limit, &answer.verdict, &node.clock);
            }
            if let ask @ (Ask::Acquire { .. } | Ask::Release { .. }) = decision.ask(at)
                && !degraded
            {
                self.count_places(ask, answer.verdict.applied);
            }
            let Some(reason) = Reason::of(answer.verdict.outcome) else { continue };
            let refusal = || {
                let found = decision.plan.found().iter().find(|found| found.fate == Fate::Counted(at));
                Refusal {
                    domain: query.domain,
                    rule: take.rule.map(|rule| &*rule.id),
                    key: take.key,
                    tag: tagged.then_some(take.tag),
                    caller: caller_of(&in_force.book, query, found.and_then(|found| found.descriptor)),
                    reason,
                    state: role_word(take.role),
                    limit: decision.plan.limit(take),
                    source: source_of(take.rule, found),
                    tier: take.rule.and_then(|rule| rule.tier.as_deref()),
                    remaining: answer.verdict.remaining,
                    retry_after: answer.verdict.retry_after,
                    trace_id: asker.trace.and_then(trace_id_of),
                }
            };
            if take.role == Role::Shadow {
                node.refusals.shadow_refused(self.number, now, refusal);
            } else if !decision.admitted && (take.role != Role::Quota || !decision.quota_passes()) {
                node.refusals.refused(self.number, now, refusal);
                let tag = tagged.then_some(take.tag);
                node.top.refused(self.number, now, metrics.mark(take.rule), take.key, tag);
            }
        }
        if decision.plan.found().iter().any(|found| found.fate == Fate::RefundIgnored) {
            node.metrics.core(self.number).refund_ignored();
        }
    }
}

/// Who asked, keyed-hashed: the caller that this descriptor names, else the first that any does.
pub(crate) fn caller_of(book: &Book, query: &Query<'_>, descriptor: Option<usize>) -> Option<Key> {
    let domain = book.domain(query.domain)?;
    let of = |descriptor: &Descriptor| {
        domain
            .caller(query.entries.get(descriptor.entries.clone())?)
            .map(|name| book.caller_key(query.domain, name))
    };
    let named = descriptor.and_then(|at| query.descriptors.get(at)).and_then(of);
    named.or_else(|| query.descriptors.iter().find_map(of))
}

/// What a refusal means.
fn role_word(role: Role) -> &'static str {
    match role {
        Role::Enforce => "enforce",
        Role::Shadow => "shadow",
        Role::Quota => "quota",
    }
}

/// What said how much a limit is.
fn source_of(rule: Option<&Rule>, found: Option<&Found<'_>>) -> LimitSource {
    match (found.and_then(|found| found.granted), rule) {
        (Some((_, GrantedBy::Override)), _) => LimitSource::Override,
        (Some((_, GrantedBy::Tier)), _) => LimitSource::ApiTier,
        (None, Some(rule)) if rule.tier.is_some() => LimitSource::RuleTier,
        (None, Some(_)) => LimitSource::Rule,
        (None, None) => LimitSource::Request,
    }
}

/// What is known of a store, in the words of metrics.
fn store_gauges(stats: RedisStats) -> StoreGauges {
    let servers = stats.servers.into_iter().map(|server| StoreServer {
        address: server.address,
        connections: server.connections,
        calls: server
            .calls
            .into_iter()
            .map(|(op, times)| (op, times.counts.to_vec(), times.sum_us))
            .collect(),
        circuit: server.circuit.state as u32,
        opened: server.circuit.opened,
        modes: CircuitState::ALL.map(|(state, word)| (word, server.circuit.spent[state as usize])).to_vec(),
        evicted_keys: server.evicted_keys,
    });
    StoreGauges {
        servers: servers.collect(),
        times_us: &STORE_TIMES_US,
        errors: stats.errors,
        redirects: stats.redirects,
        refreshes: stats.refreshes,
        remembered_denials: stats.remembered_denials,
        disagreements: stats.disagreements,
        in_flight: stats.in_flight,
        nodes: stats.nodes,
    }
}
