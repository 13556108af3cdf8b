//! What the judge says about a request.

use crate::spec::{Algorithm, Calendar, Spec, Unit};

/// Everything about one request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Judged {
    /// Is there such a domain?
    pub known: bool,
    /// Is the whole request exempt?
    pub exempt: bool,
    /// Is it refused before anything is counted?
    pub refused: bool,
    /// The rules found: those of the first descriptor, of the second and so on, then those that always count.
    pub found: Vec<Found>,
    /// The counters to ask, each once.
    pub asks: Vec<Asked>,
}

/// A rule that counts for a request, or would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The descriptor that found it; none where it always counts.
    pub descriptor: Option<usize>,
    /// The rule and the tier that it is for; none where the request brought its limit.
    pub rule: Option<(RuleName, Option<String>)>,
    /// What became of it.
    pub fate: Fate,
}

/// What becomes of a rule that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fate {
    /// Counted, by the ask with this number.
    Counted(usize),
    /// It says that there is no limit.
    Unlimited,
    /// Another one replaces it.
    Replaced,
    /// It is switched off.
    Disabled,
    /// Whoever asks is exempt from it.
    Exempt,
    /// A refund where there are none.
    RefundIgnored,
    /// The request brought a limit that cannot be counted.
    Impossible,
}

/// One counter, asked once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Which.
    pub counter: Counter,
    /// The name under which a place is held.
    pub lease: Option<String>,
    /// The units asked for.
    pub cost: i128,
    /// The limit it is judged by.
    pub spec: Spec,
    /// What a refusal means.
    pub role: Role,
}

/// What makes a counter this one and no other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counter {
    /// Of a rule.
    Rule {
        /// The rule.
        name: RuleName,
        /// How it counts.
        shape: Shape,
        /// What its path leaves open, from the top.
        open: Vec<Open>,
    },
    /// Of a limit that came with a request.
    Own {
        /// The domain.
        domain: String,
        /// How it counts.
        shape: Shape,
        /// The entries of the descriptor.
        entries: Vec<(String, String)>,
    },
    /// Of a limit that a caller was granted where there is no rule.
    Granted {
        /// The domain.
        domain: String,
        /// How it counts.
        shape: Shape,
        /// The entries that lead there.
        entries: Vec<(String, String)>,
    },
}

/// A rule by its place, whatever the text of its id.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleName {
    /// Its domain.
    pub domain: String,
    /// The keys and values on the way to it.
    pub path: Vec<(String, Option<String>)>,
    /// Which of the limits there.
    pub limit: LimitName,
}

/// A limit among those of one descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LimitName {
    /// By its name.
    Name(String),
    /// By algorithm and window.
    Window(String, u64),
    /// By algorithm and unit of a calendar; concurrency has none.
    Unit(String, Option<String>),
    /// The one that does not limit.
    Unlimited,
}

/// What changes a counter when a limit changes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// The algorithm.
    pub algorithm: String,
    /// The window, where there is one.
    pub window_us: u64,
    /// Into how many parts the window is cut.
    pub sub_windows: u32,
    /// Does it admit too little rather than too much?
    pub strict: bool,
    /// Unit, zone and first day of a week.
    pub calendar: Option<(String, String, String)>,
}

/// Something that a path leaves open: at which level, and what the request says there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Open {
    /// A key with a wildcard.
    Key(usize, String),
    /// A value.
    Value(usize, String),
}

/// What a refusal means for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Refused.
    Enforce,
    /// Refused, unless another of the group has room.
    Quota,
    /// Nothing.
    Shadow,
    /// By a lot that the caller draws: `Shadow`, or refused.
    EnforceOrShadow,
    /// By a lot that the caller draws: `Shadow`, or one of the group.
    QuotaOrShadow,
}

impl LimitName {
    pub(crate) fn of(name: Option<&str>, spec: Option<&Spec>) -> Self {
        match (name, spec) {
            (Some(name), _) => Self::Name(name.to_owned()),
            (None, None) => Self::Unlimited,
            (None, Some(spec)) => {
                let algorithm = spec.algorithm.name().to_owned();
                match (spec.algorithm, &spec.calendar) {
                    (Algorithm::Concurrency, _) => Self::Unit(algorithm, None),
                    (Algorithm::Calendar, Some(Calendar { unit, .. })) => {
                        Self::Unit(algorithm, Some(unit_word(*unit)))
                    }
                    _ => Self::Window(algorithm, spec.window_us),
                }
            }
        }
    }
}

impl Shape {
    pub(crate) fn of(spec: &Spec) -> Self {
        let is_places = spec.algorithm == Algorithm::Concurrency;
        let calendar = spec.calendar.as_ref().map(|calendar| {
            let week_start = format!("{:?}", calendar.week_start);
            (unit_word(calendar.unit), calendar.zone.clone(), week_start)
        });
        let largest = || (1..=60).rev().find(|parts| spec.window_us.is_multiple_of(u64::from(*parts)));
        let sub_windows = match spec.algorithm {
            Algorithm::SubWindow => spec.sub_windows.or_else(largest).unwrap_or(1),
            _ => 1,
        };
        Self {
            algorithm: spec.algorithm.name().to_owned(),
            window_us: if is_places { 0 } else { spec.window_us },
            sub_windows,
            strict: spec.strict,
            calendar,
        }
    }
}

fn unit_word(unit: Unit) -> String {
    format!("{unit:?}").to_lowercase()
}
