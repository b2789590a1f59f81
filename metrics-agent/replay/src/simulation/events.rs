//! The event loop.

use std::collections::BTreeMap;
use std::time::Duration;

/// Events in the order of their times. Events of one time come in the order in which they were planned.
#[derive(Debug)]
pub struct Events<E> {
    planned: BTreeMap<(Duration, u64), E>,
    count: u64,
    now: Duration,
}

impl<E> Events<E> {
    /// No events, at this time.
    pub fn new(now: Duration) -> Self {
        Self { planned: BTreeMap::new(), count: 0, now }
    }

    /// The time of the last event.
    pub fn now(&self) -> Duration {
        self.now
    }

    /// Plans an event.
    pub fn plan(&mut self, after: Duration, event: E) {
        self.count += 1;
        self.planned.insert((self.now + after, self.count), event);
    }

    /// Takes the next event; its time becomes the current time.
    pub fn pop(&mut self) -> Option<E> {
        let ((now, _), event) = self.planned.pop_first()?;
        self.now = now;
        Some(event)
    }
}
