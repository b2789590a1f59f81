//! How far behind the store an agent is.

use core::time::Duration;

use parking_lot::Mutex;

/// How far an agent has read the stream of one pool.
#[derive(Debug)]
pub(in crate::sharing) struct Progress {
    state: Mutex<State>,
    /// The time for which the store may hold a read back.
    read_wait: Duration,
}

#[derive(Clone, Copy, Debug)]
struct State {
    is_connected: bool,
    /// When nothing was left to read, on the agent's clock.
    read_all: Duration,
}

impl Progress {
    /// Nothing has been read at `now`.
    pub(in crate::sharing) fn new(now: Duration, read_wait: Duration) -> Self {
        Self { state: Mutex::new(State { is_connected: false, read_all: now }), read_wait }
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        self.state.lock().is_connected = is_connected;
    }

    /// Notes that nothing is left to read.
    pub(super) fn has_read_all(&self, now: Duration) {
        self.state.lock().read_all = now;
    }

    /// Whether changes are exchanged with the store.
    pub(in crate::sharing) fn is_connected(&self) -> bool {
        self.state.lock().is_connected
    }

    /// The time for which entries may have waited to be read. A read that the store holds back shows that there are none.
    pub(in crate::sharing) fn behind(&self, now: Duration) -> Duration {
        let State { is_connected, read_all } = *self.state.lock();
        let allowed = if is_connected { self.read_wait } else { Duration::ZERO };
        now.saturating_sub(read_all).saturating_sub(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_waits_is_not_behind_and_one_that_does_not_end_is() {
        let seconds = Duration::from_secs;
        let progress = Progress::new(seconds(10), seconds(1));
        assert_eq!((progress.is_connected(), progress.behind(seconds(13))), (false, seconds(3)));
        progress.set_connected(true);
        progress.has_read_all(seconds(13));
        assert_eq!((progress.is_connected(), progress.behind(seconds(14))), (true, Duration::ZERO));
        assert_eq!(progress.behind(seconds(18)), seconds(4), "the store does not answer");
        progress.set_connected(false);
        assert_eq!(progress.behind(seconds(18)), seconds(5));
    }
}
