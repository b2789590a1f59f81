//! Places for requests that wait for news. Those of clients that may write are apart, so that others cannot
//! take them.

use tokio::sync::{Semaphore, SemaphorePermit};

use super::access::Right;

/// The places of both kinds of clients.
#[derive(Debug)]
pub struct Waiters {
    writers: Semaphore,
    readers: Semaphore,
}

impl Waiters {
    /// This number of places for each kind of clients.
    pub fn new(max: usize) -> Self {
        Self { writers: Semaphore::new(max), readers: Semaphore::new(max) }
    }

    /// A place for a request of a client with this right; `None`: all are taken, and the request must not
    /// wait.
    pub(super) fn place(&self, right: Right) -> Option<SemaphorePermit<'_>> {
        let places = match right {
            Right::Write => &self.writers,
            Right::Read => &self.readers,
        };
        places.try_acquire().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_do_not_take_the_places_of_clients_that_may_write() {
        let waiters = Waiters::new(2);
        let readers = [Right::Read; 3].map(|right| waiters.place(right));
        assert_eq!(readers.each_ref().map(Option::is_some), [true, true, false]);
        let writers = [Right::Write; 3].map(|right| waiters.place(right));
        assert_eq!(writers.each_ref().map(Option::is_some), [true, true, false]);
        drop(readers);
        assert!(waiters.place(Right::Read).is_some() && waiters.place(Right::Write).is_none());
    }
}
