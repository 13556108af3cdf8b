//! Requests to the rules of an input, made of its own words: planned without a panic, by equal books in the same way, and
//! every limit can be asked.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tidegate_core::{Book, Descriptor, Entry, Micros, OwnLimit, Plan, Query, Rule};

const QUERIES: usize = 4;
const WORDS_MAX: usize = 64;
const WORD_CHARS_MAX: usize = 40;
/// What rules treat apart, and what wildcards may trip over.
const WORDS: &[&str] =
    &["", "*", "a", "tier", "pro", "api_key", "remote_address", "10.1.2.3", "::ffff:10.1.2.3", "é|#:"];
const COSTS: &[i64] = &[1, 1, 1, 0, -1, 1_000, i64::MAX, i64::MIN];

pub(crate) fn check(book: &Book, equal: &Book, bytes: &[u8]) {
    let mut dice = Dice::of(bytes);
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(WORDS_MAX * WORD_CHARS_MAX)]).into_owned();
    let words = text.split(|letter: char| " \n\t:,{}[]\"'".contains(letter)).filter(|word| !word.is_empty());
    let short = words.filter(|word| word.len() <= WORD_CHARS_MAX).take(WORDS_MAX);
    let words: Vec<&str> = short.chain(WORDS.iter().copied()).collect();
    let (mut plan, mut other) = (Plan::new(), Plan::new());
    for _ in 0..QUERIES {
        let filled = Filled::draw(book, &words, &mut dice);
        let entries: Vec<Entry<'_>> =
            filled.entries.iter().map(|(key, value)| Entry { key, value }).collect();
        let query = Query {
            domain: &filled.domain,
            entries: &entries,
            descriptors: &filled.descriptors,
            lease: Some("fresh"),
        };
        book.plan(&query, &mut plan);
        equal.plan(&query, &mut other);
        assert_eq!(shown(&plan), shown(&other), "equal books plan differently");
        for take in plan.takes() {
            let limit = plan.limit(take);
            let mut state = limit.state();
            for _ in 0..2 {
                limit.step(&mut state, take.ask, Micros::new(dice.number() >> dice.below(64)));
            }
        }
    }
}

/// A request.
#[derive(Default)]
struct Filled {
    domain: String,
    entries: Vec<(String, String)>,
    descriptors: Vec<Descriptor>,
}

impl Filled {
    /// One whose descriptors follow the paths of rules, or nearly.
    fn draw(book: &Book, words: &[&str], dice: &mut Dice) -> Self {
        let mut filled = Self::default();
        for _ in 0..1 + dice.below(3) {
            let start = filled.entries.len();
            if let Some(rule) = dice.pick(book.rules()) {
                filled.domain = rule.domain.to_string();
                filled.follow(rule, words, dice);
            }
            for _ in 0..dice.below(3) {
                filled.entries.push((dice.word(words), dice.word(words)));
            }
            let (amount, window) = (dice.number() >> dice.below(64), dice.number() >> dice.below(64));
            let limit = dice.one_in(8).then(|| OwnLimit { amount, window: Micros::new(window) });
            let cost = dice.pick(COSTS).copied().unwrap_or(1);
            filled.descriptors.push(Descriptor {
                entries: start..filled.entries.len(),
                cost,
                limit,
                own_cost: false,
            });
        }
        filled
    }

    fn follow(&mut self, rule: &Rule, words: &[&str], dice: &mut Dice) {
        for level in rule.path.iter() {
            let key = level.key.replace('*', &dice.word(words));
            let value = level.value.as_deref().unwrap_or("*").replace('*', &dice.word(words));
            self.entries.push((key, value));
        }
        for key in rule.said.lease_id.iter().chain(&rule.said.reservation_id) {
            self.entries.push((key.to_string(), dice.word(words)));
        }
        if let Some(tier) = &rule.tier {
            self.entries.push(("tier".into(), tier.to_string()));
        }
    }
}

/// All that a plan says, to be compared.
fn shown(plan: &Plan<'_>) -> String {
    let takes = plan.takes().iter().map(|take| {
        let id = take.rule.map(|rule| &rule.id);
        format!("{} {:?} {:?} {id:?} {:?}\n", take.key, take.ask, take.role, plan.limit(take))
    });
    let fates: Vec<_> = plan.found().iter().map(|found| (found.descriptor, found.fate)).collect();
    format!("{}{fates:?} {} {}", takes.collect::<String>(), plan.exempt(), plan.refused())
}

/// Numbers that depend on the input alone.
struct Dice(u64);

impl Dice {
    fn of(bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self(hasher.finish())
    }

    /// SplitMix64.
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        let at = self.below(list.len().max(1) as u64);
        list.get(at as usize)
    }

    fn word(&mut self, words: &[&str]) -> String {
        self.pick(words).map_or_else(String::new, |word| word.to_string())
    }
}
