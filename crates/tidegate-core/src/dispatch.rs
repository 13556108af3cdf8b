//! A limit is asked about a state: finds the law for the one and the view of the other. Start at [`Limit::step`].

use crate::calendar::Quota;
use crate::limit::Kind;
use crate::packed::SLACK;
use crate::state::View;
use crate::step::{self, Law};
use crate::{Ask, Limit, Micros, State, Verdict};

/// Runs one expression with the limit's law and the view of a state that has the limit's shape.
macro_rules! with_law {
    ($limit:expr, $state:expr, $now:expr, |$law:ident, $view:ident| $body:expr) => {
        match ($limit.kind(), $limit.fitted($state).view()) {
            (Kind::Fixed($law), View::Windows(mut $view)) => $body,
            (Kind::Sub($law), View::Windows(mut $view)) => $body,
            (Kind::Cells($law), View::Cells(mut $view)) => $body,
            (Kind::Log($law), View::Log(mut $view)) => $body,
            (Kind::Bucket { law: $law, .. }, View::Level(mut $view)) => $body,
            (Kind::Concurrency(limit), View::Places(mut $view)) => {
                let $law = &limit.law();
                $body
            }
            (Kind::Calendar { amount, calendar }, View::Spent(mut $view)) => {
                let $law = &Quota::at(*amount, calendar, $view, $now);
                $body
            }
            _ => unreachable!("a fitted state has the limit's shape"),
        }
    };
}

impl Limit {
    /// An untouched counter for this limit, with all the room that it will ever need.
    pub fn state(&self) -> State {
        State::of(self.kind())
    }

    /// Judges `ask` at `now` and carries it out.
    pub fn step(&self, state: &mut State, ask: Ask, now: Micros) -> Verdict {
        if let (Kind::Concurrency(law), View::Places(mut places)) = (self.kind(), self.fitted(state).view()) {
            return law.step(&mut places, ask, now);
        }
        with_law!(self, state, now, |law, view| step::step(law, self.charge(), &mut view, ask, now))
    }

    /// Judges `ask` at `now` and carries nothing out (but the repair of a broken clock's times): what a take shows in a request that
    /// was refused elsewhere. Refunds, settlements and releases pass.
    pub fn show(&self, state: &mut State, ask: Ask, now: Micros) -> Verdict {
        if let (Kind::Concurrency(law), View::Places(mut places)) = (self.kind(), self.fitted(state).view()) {
            return law.show(&mut places, ask, now);
        }
        with_law!(self, state, now, |law, view| step::show(law, &mut view, ask, now))
    }

    /// Units in use at `now`, as the algorithm estimates them: rounded up, by the cell log to the nearest.
    pub fn used(&self, state: &mut State, now: Micros) -> u64 {
        with_law!(self, state, now, |law, view| {
            law.repair(&mut view, now);
            law.used(law.see(&view, now))
        })
    }

    /// Until when a store has to keep the state that a verdict was just given on: as [`Limit::keep_for`] says, but mostly from the
    /// verdict alone.
    pub fn kept_until(&self, state: &mut State, verdict: &Verdict, now: Micros) -> Micros {
        match self.kind() {
            // Their bound needs what no other number does, or they end when a calendar says.
            Kind::Fixed(_) | Kind::Calendar { .. } => now.plus(self.keep_for(state, now)),
            _ => verdict.at.max(now.plus(verdict.reset_after)).plus(SLACK),
        }
    }

    /// How long a store has to keep the state: until nothing in it can change an answer, and 5 s more, so that a clock set back by
    /// less finds its counts.
    pub fn keep_for(&self, state: &mut State, now: Micros) -> Micros {
        with_law!(self, state, now, |law, view| {
            law.repair(&mut view, now);
            let seen = law.see(&view, now);
            let clock_behind = law.at(seen).minus(now);
            law.keep_for(&view, seen).max(clock_behind).plus(SLACK)
        })
    }
}
