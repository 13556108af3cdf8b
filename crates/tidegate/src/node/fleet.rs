//! The counters that a fleet shares: which store, the secret that its nodes have in common, and how many of them there are.
//!
//! The secret is in the store. A node offers its own, and adopts what is there; it does so again at every heartbeat, so that a store that
//! was emptied gets the secret in use back, and nodes that could not ask at their start join the others: until then `on_store_failure`
//! answers, since by another secret they would find other counters. With each heartbeat a node says that it is there, and learns who else
//! is: what it may spend alone is its part of that, and a control plane in a file is not for several. And it looks whether the store is one
//! that forgets.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tidegate_config::{DropIn, OtherStore, StoreAuth, StoreSettings};
use tidegate_core::Secret;
use tidegate_counters::{
    CircuitSettings, Login, Password, RedisCounters, RedisSettings, RedisStore, StoreTls, Unavailable,
    UrlError,
};
use tidegate_server::Node;
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::data::FleetSecret;

/// How long a node that starts waits for the store. After that it starts with its own secret: it is to serve within a second.
const START_MAX: Duration = Duration::from_millis(400);
/// How often the secret is offered again, a tenth more or less, so that not all nodes do it at once.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The same until the store has answered for the first time: nothing is counted there before.
const FIRST_HEARTBEAT: Duration = Duration::from_millis(250);
/// Decisions that found their counters by the names of before have asked for them by then: that is one turn of a thread.
const RENAMED: Duration = Duration::from_millis(20);
/// Between two offers of a node that waits for the store.
const OFFER_PAUSE: Duration = Duration::from_millis(50);
/// Others are there once they were seen at so many heartbeats in a row: the store tells of a node that has ended, perhaps the one before
/// this in the same place, for 30 s more.
const SEEN_IN_A_ROW: u32 = 5;
/// How long one offer may take.
const OFFER_MAX: Duration = Duration::from_secs(2);

/// What the settings say about the store; none is in memory.
pub(crate) fn settings(said: &StoreSettings) -> Result<Option<RedisSettings>, UrlError> {
    let Some(url) = &said.url else { return Ok(None) };
    let of_url = RedisSettings::of_url(url)?;
    let tls_said = said.tls_ca.is_some() || said.tls_certificate.is_some();
    if tls_said && of_url.tls.is_none() {
        let what = "store.tls is set, but the URL does not ask for TLS".into();
        return Err(UrlError { what });
    }
    let tls = of_url.tls.map(|_| StoreTls {
        ca: said.tls_ca.clone(),
        certificate: said.tls_certificate.clone(),
        any_name: said.tls_any_name,
    });
    Ok(Some(RedisSettings {
        tls,
        user: said.user.clone().or(of_url.user),
        password: said.password_file.clone().map(Password::File).or(of_url.password),
        prefix: said.prefix.clone(),
        timeout: said.timeout,
        connect_timeout: said.connect_timeout,
        in_flight_max: said.in_flight,
        circuit: CircuitSettings {
            failures: said.circuit_failures,
            within: said.circuit_within,
            open_for: said.circuit_open_for,
        },
        reference_prefix: said.reference_prefix.clone(),
        ..of_url
    }))
}

/// The same for a node that stands in for envoyproxy/ratelimit: the main store, and the one of limits per second, if they have their own.
pub(super) fn drop_in_settings(
    main: RedisSettings,
    said: &StoreSettings,
    drop_in: &DropIn,
) -> Result<(RedisSettings, Option<RedisSettings>), UrlError> {
    let login =
        |auth: &StoreAuth| Login { user: auth.user.clone(), password: Password::Text(auth.password.clone()) };
    let other = |other: &OtherStore| -> Result<Option<RedisSettings>, UrlError> {
        let connect_timeout = other.connect_timeout.unwrap_or(said.connect_timeout);
        let encrypted = RedisSettings::of_url(&other.url)?.tls.is_some();
        let (tls_ca, tls_certificate) = match encrypted {
            true => (said.tls_ca.clone(), said.tls_certificate.clone()),
            false => (None, None),
        };
        let said = StoreSettings {
            url: Some(other.url.clone()),
            connect_timeout,
            tls_ca,
            tls_certificate,
            ..said.clone()
        };
        let settings = settings(&said)?;
        let sentinel_login = other.sentinel_auth.as_ref().map(login);
        let remembers_denials = drop_in.local_cache;
        Ok(settings.map(|settings| RedisSettings { sentinel_login, remembers_denials, ..settings }))
    };
    let per_second = drop_in.per_second.as_ref().map(other).transpose()?.flatten();
    let sentinel_login = drop_in.sentinel_auth.as_ref().map(login);
    Ok((RedisSettings { sentinel_login, remembers_denials: drop_in.local_cache, ..main }, per_second))
}

/// Offers a secret to the store, and gives the one that holds; if the store does not answer, why.
pub(super) fn agree(store: &Arc<RedisStore>, own: Secret) -> io::Result<Result<Secret, Unavailable>> {
    let (runtime, tasks) = (runtime()?, LocalSet::new());
    let store = store.clone();
    let until = Instant::now() + start_max().unwrap_or(START_MAX);
    let agreed = tasks.block_on(&runtime, async move {
        loop {
            let offered = timeout_at(until, store.counters().agree_on_secret(own)).await;
            match offered.unwrap_or_else(|_| Err(too_late())) {
                // Only where a test wants it to wait.
                Err(_) if start_max().is_some() && Instant::now() < until => sleep(OFFER_PAUSE).await,
                agreed => return agreed,
            }
        }
    });
    Ok(agreed)
}

/// In builds for tests a variable may say how long a node that starts waits for the store, so that a test can see that it would notice.
fn start_max() -> Option<Duration> {
    of_tests("TIDEGATE_DEBUG_START_MAX_MS")
}

/// Likewise how often it offers the secret and shows up.
fn heartbeat() -> Duration {
    of_tests("TIDEGATE_DEBUG_HEARTBEAT_MS").unwrap_or(HEARTBEAT)
}

fn of_tests(variable: &str) -> Option<Duration> {
    let said = if cfg!(debug_assertions) { std::env::var(variable).ok() } else { None };
    said.and_then(|said| said.parse().ok()).map(Duration::from_millis)
}

/// Goes on offering the secret for as long as the node lives, on a thread where no decision waits. `agreed` says whether the store has
/// answered already.
pub(super) fn follow(
    node: &Arc<Node>,
    store: &Arc<RedisStore>,
    agreed: bool,
    kept: FleetSecret,
) -> io::Result<()> {
    let (runtime, node, store) = (runtime()?, Arc::downgrade(node), store.clone());
    let thread = std::thread::Builder::new().name("heartbeat".into());
    // It ends with the node; nobody has to wait for that.
    thread.spawn(move || LocalSet::new().block_on(&runtime, beat(node, store, agreed, kept)))?;
    Ok(())
}

async fn beat(node: Weak<Node>, store: Arc<RedisStore>, mut agreed: bool, mut kept: FleetSecret) {
    let (hand, id) = (store.counters(), RandomState::new().hash_one(0_u8));
    // A process that decides nothing spends nothing alone: it is no node that the limits are shared with.
    let shows_up = node.upgrade().is_some_and(|node| node.decides);
    let mut others = Others::default();
    if agreed && shows_up {
        others.saw(show_up(&hand, id).await);
    }
    loop {
        sleep(if agreed { about(heartbeat()) } else { FIRST_HEARTBEAT }).await;
        let Some(node) = node.upgrade() else { return };
        let offered = timeout(OFFER_MAX, hand.agree_on_secret(node.rules.secret())).await;
        match offered.unwrap_or_else(|_| Err(too_late())) {
            Ok(secret) => {
                kept.keep(secret);
                if node.rules.rekey(secret, |in_force| &in_force.book) {
                    tracing::warn!(
                        "the fleet has another secret, which is in use now: counters go on as the fleet's"
                    );
                    sleep(RENAMED).await;
                }
                if !agreed {
                    store.knows_secret(true);
                    tracing::info!(store = store.place(), "the store answers");
                }
                agreed = true;
                if shows_up {
                    let nodes = others.saw(show_up(&hand, id).await);
                    tell_misplaced(&node, nodes);
                }
            }
            Err(why) => {
                if node.failures.line(&why, node.now()).is_some() {
                    tracing::warn!(%why, store = store.place(), "the secret of the fleet cannot be looked up; trying again");
                }
            }
        }
    }
}

/// Says once that a control plane that is for one node is not for these.
fn tell_misplaced(node: &Node, nodes: u32) {
    let Some(control) = &node.control else { return };
    if control.sees_nodes(nodes)
        && let Some(why) = control.misplaced()
    {
        tracing::warn!(why, "the control plane's database does not fit the fleet");
    }
}

/// Who else is there, and not for a moment only.
#[derive(Default)]
struct Others {
    in_a_row: u32,
    nodes: u32,
}

impl Others {
    /// So many nodes were seen, if that could be asked; gives how many there are for sure, this one included.
    fn saw(&mut self, nodes: Option<u32>) -> u32 {
        if let Some(nodes) = nodes {
            self.nodes = nodes;
            self.in_a_row = if nodes > 1 { self.in_a_row.saturating_add(1) } else { 0 };
        }
        if self.in_a_row >= SEEN_IN_A_ROW { self.nodes } else { 1 }
    }
}

/// Says that this node is there, and looks at how the store is set up. Gives how many nodes there are, if that is known.
async fn show_up(hand: &RedisCounters, id: u64) -> Option<u32> {
    let nodes = hand.join(id).await;
    if let Err(why) = &nodes {
        tracing::debug!(%why, "how many nodes share the store is not known");
    }
    for warning in hand.survey().await {
        tracing::warn!(warning, "the store may forget limits");
    }
    nodes.ok()
}

fn too_late() -> Unavailable {
    Unavailable { why: "no answer in time".into() }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn about(time: Duration) -> Duration {
    let lot = RandomState::new().hash_one(0_u8) % 201; // Keyed anew each time.
    time.mul_f64(0.9 + lot as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_those_that_stay() {
        let mut others = Others::default();
        // The one before this in its place was seen for a while after its end.
        for nodes in [2, 2, 2, 2, 1] {
            assert_eq!(others.saw(Some(nodes)), 1);
        }
        let seen: Vec<u32> =
            [Some(2), Some(3), None, Some(3), Some(3), Some(3), Some(4), None, Some(1), Some(2)]
                .map(|nodes| others.saw(nodes))
                .into();
        assert_eq!(seen, [1, 1, 1, 1, 1, 3, 4, 4, 1, 1]);
    }
}
