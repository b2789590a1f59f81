//! Lists of subscribers: callbacks and other values that are there until their owner drops its subscription.

use core::fmt;
use std::sync::Arc;

use super::sync::Mutex;

/// The subscribers of one subject, the oldest first.
pub(crate) struct Subscribers<T>(Mutex<SubscriberList<T>>);

struct SubscriberList<T> {
    last_number: u64,
    entries: Vec<(u64, T)>,
}

impl<T> Default for Subscribers<T> {
    fn default() -> Self {
        Self(Mutex::new(SubscriberList { last_number: 0, entries: Vec::new() }))
    }
}

impl<T> fmt::Debug for Subscribers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subscribers")
    }
}

impl<T> Subscribers<T> {
    /// Adds a subscriber.
    pub(crate) fn add(self: &Arc<Self>, subscriber: T) -> Subscription<T> {
        let mut list = self.0.lock();
        list.last_number += 1;
        let number = list.last_number;
        list.entries.push((number, subscriber));
        Subscription { subscribers: Arc::clone(self), number }
    }

    /// Calls a function with every subscriber. A subscription that is dropped meanwhile waits for its end.
    pub(crate) fn for_each(&self, run: impl FnMut(&T)) {
        self.0.lock().entries.iter().map(|(_, subscriber)| subscriber).for_each(run);
    }

    /// Whether a condition holds for every subscriber.
    pub(crate) fn all(&self, condition: impl FnMut(&T) -> bool) -> bool {
        self.0.lock().entries.iter().map(|(_, subscriber)| subscriber).all(condition)
    }
}

/// A subscriber's place in the list, which it has until this value is dropped. It is not called any more when
/// the drop returns.
pub(crate) struct Subscription<T> {
    subscribers: Arc<Subscribers<T>>,
    number: u64,
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subscription").field(&self.number).finish()
    }
}

impl<T> Subscription<T> {
    /// Number of this subscriber, which no other one of the list has had.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether this subscriber is the oldest.
    pub(crate) fn is_oldest(&self) -> bool {
        self.subscribers.0.lock().entries.first().is_some_and(|(oldest, _)| *oldest == self.number)
    }

    /// Changes the subscriber.
    pub(crate) fn update(&self, change: impl FnOnce(&mut T)) {
        let mut list = self.subscribers.0.lock();
        if let Some((_, subscriber)) = list.entries.iter_mut().find(|(number, _)| *number == self.number) {
            change(subscriber);
        }
    }
}

impl<T> Drop for Subscription<T> {
    fn drop(&mut self) {
        self.subscribers.0.lock().entries.retain(|(number, _)| *number != self.number);
    }
}
