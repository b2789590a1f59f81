//! The memory for requests and texts that may have to be sent again.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use super::request::Unresumable;

/// Limits on the bytes that streams keep, each and all together, and the bytes in use.
#[derive(Debug)]
pub struct Budget {
    per_stream: usize,
    total: usize,
    used: AtomicUsize,
}

impl Budget {
    /// A budget of this many bytes for each stream, and for all.
    pub fn new(per_stream: usize, total: usize) -> Arc<Self> {
        Arc::new(Self { per_stream, total, used: AtomicUsize::new(0) })
    }

    /// Bytes that all streams keep now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// The bytes that a stream keeps, until it is dropped.
#[derive(Debug)]
pub struct KeptBytes {
    budget: Arc<Budget>,
    bytes: usize,
}

impl KeptBytes {
    /// Takes room for the body of a request.
    ///
    /// # Errors
    /// One of the limits would be exceeded.
    pub fn of_body(budget: &Arc<Budget>, bytes: usize) -> Result<Self, Unresumable> {
        let mut kept = Self { budget: Arc::clone(budget), bytes: 0 };
        if kept.grow(bytes) { Ok(kept) } else { Err(Unresumable::TooLarge) }
    }

    /// The limit of a stream.
    pub(super) fn limit(&self) -> usize {
        self.budget.per_stream
    }

    /// Adds bytes. False, and no change, if one of the limits would be exceeded.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let Budget { per_stream, total, ref used } = *self.budget;
        let own = self.bytes.saturating_add(bytes);
        if own > per_stream {
            return false;
        }
        let add = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= total);
        if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return false;
        }
        self.bytes = own;
        true
    }

    /// Returns all bytes to the budget.
    pub(super) fn release(&mut self) {
        let bytes = core::mem::take(&mut self.bytes);
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_and_all_together_have_a_limit() {
        let budget = Budget::new(10, 15);
        let mut one = KeptBytes::of_body(&budget, 7).unwrap();
        assert!(one.grow(3) && !one.grow(1), "the limit of a stream");
        assert_eq!(KeptBytes::of_body(&budget, 6).unwrap_err(), Unresumable::TooLarge);
        let mut two = KeptBytes::of_body(&budget, 5).unwrap();
        assert!(!two.grow(1), "the limit of all");
        assert_eq!(budget.used(), 15);
        drop(one);
        assert!(two.grow(5));
        two.release();
        assert_eq!(budget.used(), 0);
        assert!(!two.grow(usize::MAX));
    }
}
