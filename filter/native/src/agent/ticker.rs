//! A thread that wakes the users of a pool, because a filter configuration has no timer.

use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::thread::Thread;
use crate::users::Users;

/// Time between two calls of the configuration that polls.
const TICK: Duration = Duration::from_millis(20);

/// Time between two calls of every configuration.
const SECOND: Duration = Duration::from_secs(1);

/// Starts a thread that wakes the first user at every tick.
pub(crate) fn start(users: Arc<Users>) -> io::Result<Thread> {
    Thread::start("epp-ticker", move |stop| {
        let mut seconds = Seconds::default();
        while !stop.is_stopped() {
            seconds.wake(&users);
            users.wake_first();
            stop.wait(TICK);
        }
    })
}

/// Wakes every user once a second.
#[derive(Default)]
pub(super) struct Seconds {
    last: Option<Instant>,
}

impl Seconds {
    /// Wakes every user if a second has passed since it last did. To be called often.
    pub(super) fn wake(&mut self, users: &Users) {
        if self.last.is_none_or(|last| last.elapsed() >= SECOND) {
            self.last = Some(Instant::now());
            users.wake_all();
        }
    }
}
