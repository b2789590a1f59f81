//! A request that can be resumed.

use super::Verdict;
use crate::proxy::Resume;

/// A request that can be resumed.
pub(super) struct Entrant {
    resume: Resume,
    priority: i32,
    state: State,
}

/// What a request is resumed for, or waits for.
#[derive(Debug)]
pub(super) enum State {
    Waiting,
    /// It is resumed, and has not asked why yet.
    Resumed(Verdict),
    /// It went on, and may be evicted.
    InFlight,
}

impl Entrant {
    pub(super) fn new(resume: Resume, priority: i32, state: State) -> Self {
        Self { resume, priority, state }
    }

    pub(super) fn priority(&self) -> i32 {
        self.priority
    }

    pub(super) fn waits(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    /// Resumes the request, which asks for the verdict then.
    pub(super) fn resume(&mut self, verdict: Verdict) {
        self.state = State::Resumed(verdict);
        (self.resume)();
    }

    /// The verdict, once. After it the request is in flight.
    pub(super) fn take_verdict(&mut self) -> Option<Verdict> {
        match core::mem::replace(&mut self.state, State::InFlight) {
            State::Resumed(verdict) => Some(verdict),
            state @ (State::Waiting | State::InFlight) => {
                self.state = state;
                None
            }
        }
    }
}
