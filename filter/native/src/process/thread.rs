//! A thread that ends with its owner.

use core::time::Duration;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// A thread that runs until this value is dropped. Dropping it stops the thread and waits for its end.
#[derive(Debug)]
pub(crate) struct Thread {
    stop: Arc<Stop>,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts a thread. `run` returns soon after it was stopped; it is unparked then.
    pub(crate) fn start(name: &str, run: impl FnOnce(&Arc<Stop>) + Send + 'static) -> io::Result<Self> {
        let stop = Arc::<Stop>::default();
        let own = Arc::clone(&stop);
        let handle = thread::Builder::new().name(name.to_owned()).spawn(move || run(&own))?;
        Ok(Self { stop, handle: Some(handle) })
    }

    /// The thread, for calls that unpark it; `None` at its end.
    pub(crate) fn handle(&self) -> Option<&thread::Thread> {
        self.handle.as_ref().map(JoinHandle::thread)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.stop();
        let Some(handle) = self.handle.take() else { return };
        // It may be parked.
        handle.thread().unpark();
        if handle.join().is_err() {
            log::error!("a thread of the endpoint picker had panicked");
        }
    }
}

/// Ends a thread: asks it to stop, and interrupts its waits. Shared between the thread and its owner.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    state: Mutex<ThreadState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ThreadState {
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
    pub(crate) fn interrupts(&self, connections: &ureq::Agent) {
        let mut state = self.lock();
        state.connections = Some(connections.clone());
        // The stop came first, when there were no connections to interrupt.
        if state.is_stopped {
            connections.clone().shutdown();
        }
    }

    /// Asks the thread to end. A request that waits for a response fails at once; one that still connects
    /// runs into its timeout.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        self.changed.notify_all();
        if let Some(connections) = state.connections.take() {
            connections.shutdown();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ThreadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
