//! Work by several threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Computes items of a list, whose order is that of their numbers.
pub fn in_parallel<T: Send>(threads: usize, items: usize, compute: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(items));
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let item = next.fetch_add(1, Ordering::Relaxed);
                    if item >= items {
                        break;
                    }
                    let computed = compute(item);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((item, computed));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(item, _)| *item);
    done.into_iter().map(|(_, computed)| computed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_in_their_order() {
        assert_eq!(
            in_parallel(3, 100, |item| item * item),
            (0..100).map(|item| item * item).collect::<Vec<_>>()
        );
    }
}
