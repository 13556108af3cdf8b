//! The limiters that others use in Rust, each as its documentation says, and the bench without any.

use std::collections::HashMap;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use limitador::limit::{Context, Expression, Limit, Namespace};
use throttlecrab::PeriodicStore;
use tidegate_clock::Clock;

use crate::keys::{Draws, spell};
use crate::subject::{AMOUNT, Shape, Subject, USED};

/// A key that no number spells.
pub(crate) const CHECKED: &str = "checked";

/// governor's keyed limiter on its concurrent map. It reads its own clock at each check.
pub(crate) struct Governor {
    limiter: DefaultKeyedRateLimiter<String>,
}

impl Governor {
    pub(crate) fn new() -> Self {
        let amount = NonZeroU32::new(AMOUNT).unwrap_or(NonZeroU32::MIN);
        Self { limiter: RateLimiter::dashmap(Quota::per_minute(amount)) }
    }
}

impl Subject for Governor {
    fn fill(&self, keys: u32) {
        let used = NonZeroU32::new(USED).unwrap_or(NonZeroU32::MIN);
        let mut key = String::new();
        for index in 0..keys {
            spell(index, &mut key);
            black_box(self.limiter.check_key_n(&key, used).is_ok());
        }
    }

    fn run(&self, draws: Draws<'_>, _shape: Shape) -> u64 {
        let mut key = String::new();
        let mut refused = 0;
        for (_, text) in draws.iter() {
            copy(text, &mut key);
            refused += u64::from(black_box(self.limiter.check_key(&key)).is_err());
        }
        refused
    }

    fn refuses_at_its_limit(&self) -> bool {
        let key = CHECKED.to_string();
        let admitted = (0..2 * AMOUNT).filter(|_| self.limiter.check_key(&key).is_ok()).count();
        is_about(admitted, AMOUNT)
    }
}

/// throttlecrab's library. It wants `&mut`, so several threads share it under a lock, as its documentation shows.
///
/// Its periodic store, with room for all keys from the start and no cleanup while we measure: of its three stores the fastest on
/// this load. The adaptive one goes through all keys after every 100 000 writes.
pub(crate) struct Throttlecrab {
    limiter: Mutex<throttlecrab::RateLimiter<PeriodicStore>>,
    clock: Clock,
}

impl Throttlecrab {
    pub(crate) fn new(keys: u32) -> Self {
        let store =
            PeriodicStore::builder().capacity(keys as usize).cleanup_interval(Duration::from_secs(86_400));
        Self { limiter: Mutex::new(throttlecrab::RateLimiter::new(store.build())), clock: Clock::real() }
    }

    fn is_admitted(
        &self,
        limiter: &mut throttlecrab::RateLimiter<PeriodicStore>,
        key: &str,
        cost: u32,
    ) -> bool {
        let now = SystemTime::UNIX_EPOCH + Duration::from_micros(self.clock.now_us());
        let amount = i64::from(AMOUNT);
        black_box(limiter.rate_limit(key, amount, amount, 60, i64::from(cost), now))
            .is_ok_and(|(admitted, _)| admitted)
    }
}

impl Subject for Throttlecrab {
    fn fill(&self, keys: u32) {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = String::new();
        for index in 0..keys {
            spell(index, &mut key);
            self.is_admitted(&mut limiter, &key, USED);
        }
    }

    fn run(&self, draws: Draws<'_>, shape: Shape) -> u64 {
        let mut key = String::new();
        let mut refused = 0;
        let mut alone = shape.alone.then(|| self.limiter.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, text) in draws.iter() {
            copy(text, &mut key);
            let admitted = match &mut alone {
                Some(limiter) => self.is_admitted(limiter, &key, 1),
                None => {
                    let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
                    self.is_admitted(&mut limiter, &key, 1)
                }
            };
            refused += u64::from(!admitted);
        }
        refused
    }

    fn refuses_at_its_limit(&self) -> bool {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let admitted = (0..2 * AMOUNT).filter(|_| self.is_admitted(&mut limiter, CHECKED, 1)).count();
        is_about(admitted, AMOUNT)
    }
}

/// Limitador's library on its storage in memory, with room for all keys. It counts in fixed windows.
///
/// A limit finds whom it is about by an expression over what is known of the request, which is what its own server asks too.
pub(crate) struct Limitador {
    limiter: limitador::RateLimiter,
    namespace: Namespace,
}

impl Limitador {
    pub(crate) fn new(keys: u32) -> Self {
        let limiter = limitador::RateLimiter::new(u64::from(keys) + 1);
        let Ok(user) = Expression::parse("user") else { unreachable!("a name is an expression") };
        let namespace = Namespace::from("bench");
        limiter.add_limit(Limit::new(namespace.clone(), AMOUNT.into(), 60, [], [user]));
        Self { limiter, namespace }
    }

    fn is_admitted(&self, key: &str, cost: u32) -> bool {
        let context = Context::from(HashMap::from([("user".to_owned(), key.to_owned())]));
        let checked = self.limiter.check_rate_limited_and_update(&self.namespace, &context, cost.into());
        black_box(checked).is_ok_and(|result| !result.limited)
    }
}

impl Subject for Limitador {
    fn fill(&self, keys: u32) {
        let mut key = String::new();
        for index in 0..keys {
            spell(index, &mut key);
            self.is_admitted(&key, USED);
        }
    }

    fn run(&self, draws: Draws<'_>, _shape: Shape) -> u64 {
        draws.iter().map(|(_, text)| u64::from(!self.is_admitted(text, 1))).sum()
    }

    fn refuses_at_its_limit(&self) -> bool {
        let admitted = (0..2 * AMOUNT).filter(|_| self.is_admitted(CHECKED, 1)).count();
        is_about(admitted, AMOUNT)
    }
}

/// What everybody does with a key before asking.
#[inline]
pub(crate) fn copy(text: &str, key: &mut String) {
    key.clear();
    key.push_str(text);
}

/// Were as many admitted as a limit holds? Two more are a refill meanwhile.
pub(crate) fn is_about(admitted: usize, capacity: u32) -> bool {
    (capacity as usize..=capacity as usize + 2).contains(&admitted)
}

/// The bench without a limiter.
pub(crate) struct Nothing;

impl Subject for Nothing {
    fn fill(&self, _keys: u32) {}

    fn run(&self, draws: Draws<'_>, _shape: Shape) -> u64 {
        let mut key = String::new();
        for (_, text) in draws.iter() {
            copy(text, &mut key);
            black_box(&key);
        }
        0
    }

    fn refuses_at_its_limit(&self) -> bool {
        true // It has no limit to refuse at, and no ratio is made of it.
    }
}
