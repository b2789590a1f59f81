//! The request's place in the queue in front of the pool.

use core::time::Duration;

use endpoint_picker::flow_control::Ticket;

/// The request's place in the queue. Nothing of its body is kept: it stays with the proxy, and is read again when the request goes on.
#[derive(Debug, Default)]
pub(super) struct QueuePlace {
    /// From its entry to its end.
    pub(super) ticket: Option<Ticket>,
    /// When its head arrived.
    pub(super) received: Option<Duration>,
    pub(super) step: Step,
    /// The whole body has arrived, before or while it waits.
    pub(super) has_whole_body: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    /// It has not asked to go on.
    #[default]
    Before,
    /// It waits.
    Waits { since: Duration },
    /// Its wait is over, after this time.
    Over(Duration),
}

impl QueuePlace {
    /// Whether the request waits.
    pub(super) fn waits(&self) -> bool {
        matches!(self.step, Step::Waits { .. })
    }

    /// How long the request has waited; `None`: flow control is off, or it waits still.
    pub(super) fn waited(&self) -> Option<Duration> {
        match self.step {
            Step::Over(waited) => Some(waited),
            Step::Before | Step::Waits { .. } => None,
        }
    }

    /// Whether the request has not asked to go on yet.
    pub(super) fn is_before(&self) -> bool {
        self.step == Step::Before
    }

    /// The wait is over, if the request waits.
    pub(super) fn end_wait(&mut self, now: Duration) {
        if let Step::Waits { since } = self.step {
            self.step = Step::Over(now.saturating_sub(since));
        }
    }
}
