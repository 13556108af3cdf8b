//! The fixed words that labels are made of.

use tidegate_core::{OnStoreFailure, Outcome};

/// An enum whose variants each have a word. The number of a variant is its place among the words.
macro_rules! words {
    ($(#[$about:meta])* $seen:vis $name:ident { $($(#[$each:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        $seen enum $name {
            $($(#[$each])* $variant,)+
        }

        impl $name {
            /// All of them, in order.
            $seen const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// Their words, in the same order.
            $seen const WORDS: &'static [&'static str] = &[$($word,)+];

            /// Its word.
            $seen const fn word(self) -> &'static str {
                Self::WORDS[self as usize]
            }
        }
    };
}

words! {
    /// An entrance for decisions.
    pub Server {
        /// Envoy's rate limit service, by gRPC.
        Rls = "rls",
        /// The plain check, by HTTP.
        Http = "http",
    }
}

words! {
    /// What became of a request to a server.
    pub RequestOutcome {
        /// It may go on.
        Admitted = "admitted",
        /// It may not, by a limit.
        Refused = "refused",
        /// It could not be understood.
        Invalid = "invalid",
        /// It got no answer from a limit: something here went wrong, and policy decided.
        Failed = "failed",
    }
}

words! {
    /// What said how much a limit is.
    pub LimitSource {
        /// An override of the caller's own.
        Override = "override",
        /// The control plane's word on the caller's tier.
        ApiTier = "api_tier",
        /// What the rule says for the caller's tier.
        RuleTier = "rule_tier",
        /// What the rule says for everybody else.
        Rule = "rule",
        /// The request itself.
        Request = "request",
    }
}

words! {
    /// Why a limit refused.
    pub Reason {
        /// It does not fit now.
        RateLimited = "rate_limited",
        /// It can never fit.
        CostExceedsLimit = "cost_exceeds_limit",
        /// The places that were to be kept are not held any more.
        NotHeld = "not_held",
    }
}

impl Reason {
    /// Why this is a refusal, if it is one.
    pub const fn of(outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Admitted => None,
            Outcome::RateLimited => Some(Self::RateLimited),
            Outcome::CostExceedsLimit => Some(Self::CostExceedsLimit),
            Outcome::NotHeld => Some(Self::NotHeld),
        }
    }

    /// The outcome that it is the reason of.
    pub(crate) const fn outcome(self) -> Outcome {
        match self {
            Self::RateLimited => Outcome::RateLimited,
            Self::CostExceedsLimit => Outcome::CostExceedsLimit,
            Self::NotHeld => Outcome::NotHeld,
        }
    }
}

words! {
    /// What became of a call that said it comes from inside.
    pub InternalCall {
        /// It does.
        Verified = "verified",
        /// What it says cannot be read.
        Malformed = "malformed",
        /// It was signed too long ago.
        Stale = "stale",
        /// It was not signed by one of us.
        Wrong = "wrong",
    }
}

words! {
    /// What became of places of concurrency limits.
    pub Place {
        /// Taken.
        Taken = "taken",
        /// Given back by its holder, or by the node because nobody read the answer that told its id.
        Released = "released",
        /// Was to be given back and was not held: it had expired, or was given back before. Counted in releases.
        Missed = "missed",
        /// Not given back in time. Counted by the store, when they are cleared away.
        Expired = "expired",
    }
}

words! {
    /// What became of reservations.
    pub Reservation {
        /// Made: an estimate was charged, and an id told.
        Made = "made",
        /// Made into what it came to.
        Settled = "settled",
        /// Was to be settled and was not there: it had been settled before, or was reserved too long ago.
        Missed = "missed",
    }
}

words! {
    /// Why a connection was not served.
    pub ConnectionRefused {
        /// There are as many as there may be.
        TooMany = "too_many",
        /// TLS could not be agreed on.
        Handshake = "handshake",
        /// The node is about to stop.
        Draining = "draining",
    }
}

words! {
    /// What a limit itself said to a take.
    pub(crate) Said {
        /// It fits.
        Allowed = "allowed",
        /// It does not.
        Refused = "refused",
        /// It does not, and the limit is in shadow.
        ShadowRefused = "shadow_refused",
        /// Nothing: policy answered for it.
        Degraded = "degraded",
    }
}

words! {
    /// What a key that was forgotten for want of room was doing.
    pub(crate) Evicted {
        /// It counted.
        Live = "live",
        /// It was being refused.
        Refused = "refused",
    }
}

words! {
    /// What became of rules that came from an xDS server.
    pub(crate) XdsUpdate {
        /// They are in force.
        Accepted = "accepted",
        /// Those before stay.
        Rejected = "rejected",
    }
}

words! {
    /// What became of a call of the admin API.
    pub AdminCall {
        /// It was carried out, or there was nothing to do.
        Done = "done",
        /// It had no token that is worth anything, or not enough of one.
        Unauthorized = "unauthorized",
        /// Its token was not even looked at.
        Throttled = "throttled",
        /// What it asked cannot be done.
        Refused = "refused",
        /// It could not be answered: the database is away, or something broke.
        Failed = "failed",
    }
}

impl AdminCall {
    /// What a status of HTTP says became of it.
    pub const fn of(status: u16) -> Self {
        match status {
            0..=399 => Self::Done,
            401 | 403 => Self::Unauthorized,
            429 => Self::Throttled,
            400..=499 => Self::Refused,
            _ => Self::Failed,
        }
    }
}

words! {
    /// What is answered when nothing can be counted.
    pub(crate) Policy {
        /// Go on.
        Allow = "allow",
        /// Stop.
        Deny = "deny",
        /// By a share of the limit.
        Local = "local",
        /// An error.
        Error = "error",
    }
}

impl From<OnStoreFailure> for Policy {
    fn from(policy: OnStoreFailure) -> Self {
        match policy {
            OnStoreFailure::Allow => Self::Allow,
            OnStoreFailure::Deny => Self::Deny,
            OnStoreFailure::Local => Self::Local,
            OnStoreFailure::Error => Self::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_reason() {
        assert_eq!(Reason::of(Outcome::Admitted), None);
        for reason in Reason::ALL {
            assert_eq!(Reason::of(reason.outcome()), Some(*reason));
        }
    }
}
