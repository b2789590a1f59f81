//! A timer, because clusters of modules have none on Envoy's main thread.

use core::time::Duration;
use std::io;

use crate::agent::Thread;
use crate::watchers::Wake;

/// Wakes its owner once, unless it is dropped before.
#[derive(Debug)]
pub(super) struct Timer {
    due: Duration,
    _thread: Thread,
}

impl Timer {
    /// A timer that is due at a time, on [`clock`](crate::clock).
    pub(super) fn start(due: Duration, now: Duration, wake: Wake) -> io::Result<Self> {
        let thread = Thread::start("epp-timer", move |stop| {
            stop.wait(due.saturating_sub(now));
            if !stop.is_stopped() {
                wake();
            }
        });
        Ok(Self { due, _thread: thread? })
    }

    /// When it is due.
    pub(super) fn due(&self) -> Duration {
        self.due
    }
}
