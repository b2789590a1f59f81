//! Memory that many requests need at the same time, with limits for each and for all together.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// Bytes in use, of all budgets that share them.
#[derive(Debug, Default)]
pub struct UsedBytes(AtomicUsize);

impl UsedBytes {
    /// Bytes that are kept now.
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Limits on the bytes that requests keep, each and all together, and the bytes in use.
#[derive(Debug)]
pub struct Budget {
    each: usize,
    total: usize,
    used: Arc<UsedBytes>,
}

impl Budget {
    /// A budget of this many bytes for each request, and for all.
    pub fn new(each: usize, total: usize) -> Arc<Self> {
        Self::of(Arc::default(), each, total)
    }

    /// The same, where other budgets use a part of the bytes for all.
    pub fn of(used: Arc<UsedBytes>, each: usize, total: usize) -> Arc<Self> {
        Arc::new(Self { each, total, used })
    }

    /// Bytes that all requests keep now, with those of other budgets that share them.
    pub fn used(&self) -> usize {
        self.used.get()
    }
}

/// The bytes that a request keeps, until it is dropped.
#[derive(Debug)]
pub struct KeptBytes {
    budget: Arc<Budget>,
    bytes: usize,
}

impl KeptBytes {
    /// No bytes yet.
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: 0 }
    }

    /// The limit of a request.
    pub fn limit(&self) -> usize {
        self.budget.each
    }

    /// Adds bytes. False, and no change, if one of the limits would be exceeded.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let Budget { each, total, ref used } = *self.budget;
        let own = self.bytes.saturating_add(bytes);
        if own > each {
            return false;
        }
        let add = |used: usize| used.checked_add(bytes).filter(|&sum| sum <= total);
        if used.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return false;
        }
        self.bytes = own;
        true
    }

    /// Keeps this many bytes from now on. False, and no change, if one of the limits would be exceeded.
    pub fn set(&mut self, bytes: usize) -> bool {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            return more == 0 || self.grow(more);
        }
        self.budget.used.0.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        self.bytes = bytes;
        true
    }

    /// Returns all bytes to the budget.
    pub fn release(&mut self) {
        self.set(0);
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

    fn kept(budget: &Arc<Budget>, bytes: usize) -> Option<KeptBytes> {
        let mut kept = KeptBytes::new(budget);
        kept.grow(bytes).then_some(kept)
    }

    #[test]
    fn each_request_and_all_together_have_a_limit() {
        let budget = Budget::new(10, 15);
        let mut one = kept(&budget, 7).unwrap();
        assert!(one.grow(3) && !one.grow(1), "the limit of a request");
        assert!(kept(&budget, 6).is_none());
        let mut two = kept(&budget, 5).unwrap();
        assert!(!two.grow(1), "the limit of all");
        assert_eq!(budget.used(), 15);
        drop(one);
        assert!(two.grow(5));
        two.release();
        assert_eq!(budget.used(), 0);
        assert!(!two.grow(usize::MAX));
    }

    #[test]
    fn a_number_of_bytes_is_set_up_and_down() {
        let budget = Budget::new(usize::MAX, 100);
        let (mut one, mut two) = (KeptBytes::new(&budget), KeptBytes::new(&budget));
        assert!(one.set(60) && two.set(40) && !two.set(41) && two.set(40));
        assert_eq!(budget.used(), 100);
        assert!(one.set(10) && two.set(90));
        drop((one, two));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn budgets_share_the_bytes_for_all() {
        let used = Arc::<UsedBytes>::default();
        let [small, large] = [50, 100].map(|total| Budget::of(Arc::clone(&used), 1_000, total));
        let first = kept(&large, 60).unwrap();
        assert!(kept(&small, 1).is_none());
        assert!(kept(&large, 40).is_some());
        drop(first);
        assert!(kept(&small, 50).is_some());
        assert_eq!(used.get(), 0);
    }
}
