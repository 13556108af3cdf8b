//! Who may do what: bearer tokens, `tg_<prefix>_<secret>`. The database has a keyed hash of each; the text is shown once, to whoever
//! made it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::hmac;
use ring::rand::SecureRandom as _;
use tidegate_clock::Clock;
use tidegate_core::{Ask, Limit, Micros, State, Verdict};
use tokio::time::Instant;

use super::problem::Problem;
use crate::error::{Error, Result};
use crate::model::{NewToken, Scope, Token, Who};
use crate::store::ControlStore;

/// Characters of a prefix, and of a secret: hexadecimal digits of 4 and 32 bytes.
const PREFIX: usize = 8;
const SECRET: usize = 64;

/// How long a token that was checked is taken for good. It is worth nothing at most this long after it was revoked elsewhere.
const CHECKED_FOR_US: u64 = 500_000;
/// So many checked tokens are remembered.
const CHECKED_MAX: usize = 1024;

/// A refusal is told this long after it was asked for, however it came about: nobody learns from its time whether a prefix is one, or how
/// much of a secret is right.
const REFUSED_AFTER: Duration = Duration::from_millis(25);

/// Addresses whose failed tries are counted. Those that find no place are counted together.
const PEERS_MAX: usize = 4096;
const TRIES_WINDOW: Micros = Micros::from_secs(60);

/// The text of a token. Nothing shows it but [`Secret::reveal`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// For the one who made it, once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Secret(…)")
    }
}

/// Makes an admin's token if the store has no token at all: exactly one, however many nodes start together. Returns its text, to be printed
/// once.
pub async fn bootstrap(store: &ControlStore) -> Result<Option<Secret>> {
    if !store.tokens(None, 1).await?.items.is_empty() {
        return Ok(None);
    }
    // All nodes find the same prefix, and the store takes a prefix once.
    let key = hash_key(store).await?;
    let prefix = hex(&hmac::sign(&key, b"bootstrap").as_ref()[..PREFIX / 2]);
    let who = Who::new("bootstrap", "");
    let wish = Wish { name: "bootstrap".into(), scope: Scope::Admin, tenant: None, expires_at: None };
    match create_with(store, &who, &key, prefix, wish).await {
        Ok((_, secret)) => Ok(Some(secret)),
        Err(Error::Invalid { field, .. }) if field == "prefix" => Ok(None),
        Err(error) => Err(error),
    }
}

/// A token to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// For people, and for the audit trail.
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// The only domain that it may do this to.
    pub tenant: Option<String>,
    /// Until when, in microseconds since 1970; for good without.
    pub expires_at: Option<i64>,
}

/// Makes a token. Its text is nowhere else.
pub async fn create(store: &ControlStore, who: &Who, wish: Wish) -> Result<(Token, Secret)> {
    let key = hash_key(store).await?;
    for _ in 0..8 {
        let prefix = hex(&random::<{ PREFIX / 2 }>()?);
        match create_with(store, who, &key, prefix, wish.clone()).await {
            Err(Error::Invalid { field, .. }) if field == "prefix" => {}
            done => return done,
        }
    }
    Err(Error::unavailable("no prefix was free"))
}

async fn create_with(
    store: &ControlStore,
    who: &Who,
    key: &hmac::Key,
    prefix: String,
    wish: Wish,
) -> Result<(Token, Secret)> {
    let text = format!("tg_{prefix}_{}", hex(&random::<{ SECRET / 2 }>()?));
    let Wish { name, scope, tenant, expires_at } = wish;
    let new = NewToken { prefix, hash: hash(key, &text), scope, tenant, name, expires_at };
    let token = store.create_token(who, new).await?;
    Ok((token, Secret(text)))
}

async fn hash_key(store: &ControlStore) -> Result<hmac::Key> {
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &store.token_key().await?))
}

fn hash(key: &hmac::Key, text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(hmac::sign(key, text.as_bytes()).as_ref());
    hash
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = ring::rand::SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::unavailable("the machine has no random numbers"))?;
    Ok(bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Who asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) scope: Scope,
    pub(crate) tenant: Option<String>,
}

impl Caller {
    /// May they have to do with things of this domain?
    pub(crate) fn minds(&self, domain: Option<&str>) -> bool {
        self.tenant.as_deref().is_none_or(|tenant| domain == Some(tenant))
    }
}

/// Looks at everybody's token.
pub(crate) struct Doorman {
    store: ControlStore,
    clock: Clock,
    /// None until it was read. A restore puts another in its place.
    key: Mutex<Option<hmac::Key>>,
    checked: Mutex<HashMap<[u8; 32], Checked>>,
    tries: Mutex<Tries>,
}

#[derive(Clone)]
struct Checked {
    caller: Caller,
    expires_at: Option<i64>,
    until_us: u64,
}

impl Doorman {
    pub(crate) fn new(store: ControlStore, clock: Clock, failed_per_minute: Limit) -> Self {
        let tries = Tries { limit: failed_per_minute, of: HashMap::new(), swept_us: 0 };
        Self {
            store,
            clock,
            key: Mutex::new(None),
            checked: Mutex::new(HashMap::new()),
            tries: Mutex::new(tries),
        }
    }

    /// Who is it? Somebody without a token, or with one that is worth nothing, is refused; too many refusals are refused unseen.
    pub(crate) async fn admit(
        &self,
        headers: &HeaderMap,
        peer: Option<IpAddr>,
    ) -> std::result::Result<Caller, Problem> {
        let begun = Instant::now();
        let Some(text) = bearer(headers)? else {
            let detail =
                "send `Authorization: Bearer tg_…`; the first one is printed at the first start of a node";
            return Err(Problem::unauthorized(detail, "Bearer realm=\"tidegate\""));
        };
        let key = self.key().await.map_err(unseen)?;
        if let Some(caller) = self.remembered(&hash(&key, text)) {
            return Ok(caller);
        }
        self.may_try(peer)?;
        let mut checked = self.check(&key, text).await.map_err(unseen)?;
        if checked.is_err()
            && let Some(key) = self.another_key().await.map_err(unseen)?
        {
            checked = self.check(&key, text).await.map_err(unseen)?;
        }
        // Many may have been looked at together: what those after the last try would be told is told to nobody, good or bad.
        let told = match checked {
            Ok(token) => self.may_try(peer).map(|()| self.remember(text, token)),
            Err(detail) => self.failed(peer).and_then(|()| {
                Err(Problem::unauthorized(detail, "Bearer realm=\"tidegate\", error=\"invalid_token\""))
            }),
        };
        if told.is_err() {
            tokio::time::sleep_until(begun + REFUSED_AFTER).await;
        }
        told
    }

    /// The same steps for whatever is sent: one look by a prefix, one comparison of hashes in constant time. Only who knows the secret is
    /// told what became of it.
    async fn check(&self, key: &hmac::Key, text: &str) -> Result<std::result::Result<Token, &'static str>> {
        let prefix = prefix(text);
        let found = self.store.token_by_prefix(prefix.unwrap_or("none")).await?;
        let stored = found.as_ref().map_or([0; 32], |token| token.hash);
        let is_equal = hmac::verify(key, text.as_bytes(), &stored).is_ok();
        Ok(match found {
            Some(token) if is_equal && prefix.is_some() => self.worth(token),
            _ => Err("the token is not known here"),
        })
    }

    fn worth(&self, token: Token) -> std::result::Result<Token, &'static str> {
        if token.revoked_at.is_some() {
            return Err("the token was revoked");
        }
        if self.is_past(token.expires_at) {
            return Err("the token has expired");
        }
        Ok(token)
    }

    fn is_past(&self, expires_at: Option<i64>) -> bool {
        let now = i64::try_from(self.clock.wall_now_us()).unwrap_or(i64::MAX);
        expires_at.is_some_and(|at| at <= now)
    }

    async fn key(&self) -> Result<hmac::Key> {
        let known = locked(&self.key).clone();
        if let Some(key) = known {
            return Ok(key);
        }
        let key = hash_key(&self.store).await?;
        Ok(locked(&self.key).get_or_insert(key).clone())
    }

    /// The key, if it is not the one that was known: then the database was restored from another's backup, with the tokens of that.
    async fn another_key(&self) -> Result<Option<hmac::Key>> {
        let key = hash_key(&self.store).await?;
        let mut known = locked(&self.key);
        let is_same = |other: &hmac::Key| hash(other, "") == hash(&key, "");
        if known.as_ref().is_some_and(is_same) {
            return Ok(None);
        }
        *known = Some(key.clone());
        locked(&self.checked).clear();
        Ok(Some(key))
    }

    /// What stands for an identifier in logs.
    pub(crate) fn alias(&self, of: &str) -> String {
        let alias = |key: &hmac::Key| hex(&hmac::sign(key, of.as_bytes()).as_ref()[..8]);
        locked(&self.key).as_ref().map_or_else(|| "?".into(), alias)
    }

    fn remembered(&self, hash: &[u8; 32]) -> Option<Caller> {
        let now_us = self.clock.now_us();
        let checked = locked(&self.checked).get(hash).cloned()?;
        (now_us < checked.until_us && !self.is_past(checked.expires_at)).then_some(checked.caller)
    }

    fn remember(&self, text: &str, token: Token) -> Caller {
        let Token { id, name, scope, tenant, expires_at, .. } = token;
        let caller = Caller { id, name, scope, tenant };
        let now_us = self.clock.now_us();
        let hash = locked(&self.key).as_ref().map(|key| hash(key, text));
        let mut checked = locked(&self.checked);
        if checked.len() >= CHECKED_MAX {
            checked.retain(|_, one| now_us < one.until_us);
        }
        if let Some(hash) = hash.filter(|_| checked.len() < CHECKED_MAX) {
            let until_us = now_us.saturating_add(CHECKED_FOR_US);
            checked.insert(hash, Checked { caller: caller.clone(), expires_at, until_us });
        }
        caller
    }

    /// A token was revoked here: at once.
    pub(crate) fn forget(&self, id: &str) {
        locked(&self.checked).retain(|_, one| one.caller.id != id);
    }

    fn may_try(&self, peer: Option<IpAddr>) -> std::result::Result<(), Problem> {
        let now = Micros::new(self.clock.now_us());
        too_many(locked(&self.tries).wait(place(peer), now))
    }

    /// Counts a failed try, if there was one left.
    fn failed(&self, peer: Option<IpAddr>) -> std::result::Result<(), Problem> {
        let now = Micros::new(self.clock.now_us());
        too_many(locked(&self.tries).failed(place(peer), now))
    }
}

fn too_many(wait: Option<Micros>) -> std::result::Result<(), Problem> {
    let Some(wait) = wait else { return Ok(()) };
    let seconds = wait.get().div_ceil(1_000_000).max(1);
    Err(Problem::too_many("too many tokens from this address were worth nothing", seconds))
}

/// Who has shown nothing yet is not told how the database is doing.
fn unseen(_: Error) -> Problem {
    Problem::unavailable("tokens cannot be looked at now")
}

/// Failed tries, judged by the law that everybody else is.
struct Tries {
    limit: Limit,
    of: HashMap<IpAddr, State>,
    swept_us: u64,
}

/// Where those are counted who find no place of their own, or have no address.
const TOGETHER: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

impl Tries {
    /// How long until this one may try again; none is now.
    fn wait(&mut self, peer: IpAddr, now: Micros) -> Option<Micros> {
        let is_full = self.of.len() >= PEERS_MAX;
        let known = if is_full && !self.of.contains_key(&peer) { TOGETHER } else { peer };
        wait(&self.limit.show(self.of.get_mut(&known)?, Ask::Charge { cost: 1 }, now))
    }

    /// Counts one; if there was none left, how long until there is.
    fn failed(&mut self, peer: IpAddr, now: Micros) -> Option<Micros> {
        if self.of.len() >= PEERS_MAX && !self.of.contains_key(&peer) {
            self.sweep(now);
        }
        let is_full = self.of.len() >= PEERS_MAX;
        let known = if is_full && !self.of.contains_key(&peer) { TOGETHER } else { peer };
        let limit = &self.limit;
        let state = self.of.entry(known).or_insert_with(|| limit.state());
        wait(&limit.step(state, Ask::Charge { cost: 1 }, now))
    }

    /// Those whose tries are forgotten leave; looked for once a second, because it takes a look at all.
    fn sweep(&mut self, now: Micros) {
        if now.get() < self.swept_us.saturating_add(1_000_000) {
            return;
        }
        self.swept_us = now.get();
        let limit = &self.limit;
        self.of.retain(|_, state| limit.used(state, now) > 0);
    }
}

fn wait(verdict: &Verdict) -> Option<Micros> {
    (!verdict.admitted()).then(|| verdict.retry_after.unwrap_or(TRIES_WINDOW))
}

/// Who shares one count: an address, or a network of IPv6 that one customer has.
fn place(peer: Option<IpAddr>) -> IpAddr {
    match peer.map(|peer| peer.to_canonical()) {
        None => TOGETHER,
        Some(v4 @ IpAddr::V4(_)) => v4,
        Some(IpAddr::V6(v6)) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & !u128::from(u64::MAX))),
    }
}

fn bearer(headers: &HeaderMap) -> std::result::Result<Option<&str>, Problem> {
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let Some(first) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        return Err(Problem::bad_request("Authorization", "there are several"));
    }
    let said = first.to_str().unwrap_or_default();
    match said.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Ok(None),
    }
}

/// Of a text that looks like a token.
fn prefix(text: &str) -> Option<&str> {
    let (prefix, secret) = text.strip_prefix("tg_")?.split_once('_')?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (prefix.len() == PREFIX && secret.len() == SECRET && digits(prefix) && digits(secret)).then_some(prefix)
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit() -> Limit {
        Limit::sliding_window(10, TRIES_WINDOW).expect("a limit")
    }

    #[test]
    fn failed_tries_are_counted_by_address_and_forgotten() {
        let mut tries = Tries { limit: limit(), of: HashMap::new(), swept_us: 0 };
        let at = |seconds: u64| Micros::from_secs(1_000 + seconds);
        let (one, other) = (place("10.0.0.1".parse().ok()), place("10.0.0.2".parse().ok()));
        for _ in 0..10 {
            assert_eq!(tries.wait(one, at(0)), None);
            assert_eq!(tries.failed(one, at(0)), None);
        }
        assert!(tries.failed(one, at(0)).is_some(), "of those that were looked at together, too");
        let wait = tries.wait(one, at(0)).expect("ten are enough");
        assert!(wait > Micros::ZERO && wait <= Micros::from_secs(63), "{wait}");
        assert_eq!(tries.wait(other, at(0)), None);
        assert_eq!(tries.wait(one, at(64)), None);
        let network = |said: &str| place(said.parse().ok());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), one);
    }

    #[test]
    fn a_million_addresses_take_no_more_room_than_some() {
        let mut tries = Tries { limit: limit(), of: HashMap::new(), swept_us: 0 };
        let peer = |number: u32| IpAddr::V4(number.into());
        for number in 0..20_000 {
            tries.failed(peer(number), Micros::from_secs(1_000));
        }
        assert!(tries.of.len() <= PEERS_MAX + 1, "{}", tries.of.len());
        assert!(tries.wait(peer(99_999), Micros::from_secs(1_000)).is_some(), "all others share one count");
        assert_eq!(tries.wait(peer(7), Micros::from_secs(1_000)), None, "who is known has its own");
        for number in 0..100 {
            tries.failed(peer(30_000 + number), Micros::from_secs(2_000));
        }
        assert!(tries.of.len() <= 102, "those that are forgotten leave: {}", tries.of.len());
    }

    #[test]
    fn a_secret_is_not_shown_by_accident() {
        let secret = Secret("tg_01234567_canary".into());
        assert!(!format!("{secret:?}").contains("canary"));
        assert_eq!(secret.reveal(), "tg_01234567_canary");
    }

    #[test]
    fn what_looks_like_a_token() {
        let secret = "0".repeat(SECRET);
        assert_eq!(prefix(&format!("tg_01234567_{secret}")), Some("01234567"));
        for odd in ["", "tg_", "tg_01234567_", "tg_0123456_00", "xx_01234567_00", "tg_0123456ü_00"] {
            assert_eq!(prefix(odd), None, "{odd}");
        }
    }
}
