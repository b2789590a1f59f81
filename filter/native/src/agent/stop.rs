//! Ends a thread: asks it to stop, and interrupts its waits.

use core::time::Duration;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Shared between a thread and its owner.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_stopped: bool,
    /// The connections of the thread.
    connections: Option<ureq::Agent>,
}

impl Stop {
    /// Whether the thread is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.lock().is_stopped
    }

    /// Waits for this long, or until the thread is to end.
    pub(crate) fn wait(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut state = self.lock();
        while !state.is_stopped {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Has [`Self::stop`] interrupt the requests of these connections, too.
    pub(super) fn interrupts(&self, connections: &ureq::Agent) {
        let mut state = self.lock();
        state.connections = Some(connections.clone());
        if state.is_stopped {
            connections.clone().shutdown();
        }
    }

    /// Asks the thread to end. A request that waits for an answer fails at once; one that still connects takes its time.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        self.changed.notify_all();
        if let Some(connections) = state.connections.take() {
            connections.shutdown();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
