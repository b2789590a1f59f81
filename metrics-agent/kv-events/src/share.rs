//! The share of the agent that a server may take, with all its connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Mutex, MutexGuard};

/// Maximum number of bytes that the connections to one server hold together, of messages that have not
/// arrived completely or are applied.
pub(super) const MAX_BYTES: usize = 32 << 20;

/// The bytes and the turn that all connections to a server have together.
#[derive(Debug, Default)]
pub(super) struct ServerShare {
    bytes: AtomicUsize,
    applying: Mutex<()>,
}

impl ServerShare {
    /// Waits until no other connection applies a message: read, a message takes some times its bytes.
    pub(super) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.applying.lock().await
    }
}

/// The bytes of a connection.
#[derive(Debug)]
pub(super) struct HeldBytes {
    share: Arc<ServerShare>,
    bytes: usize,
}

impl HeldBytes {
    /// None yet.
    pub(super) fn new(share: Arc<ServerShare>) -> Self {
        Self { share, bytes: 0 }
    }

    /// Holds this number from now on. Returns false if all connections together would hold too many.
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        let others_and = |sum: usize| {
            let sum = sum.saturating_sub(self.bytes).saturating_add(bytes);
            (sum <= MAX_BYTES || bytes <= self.bytes).then_some(sum)
        };
        let is_allowed =
            self.share.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, others_and).is_ok();
        if is_allowed {
            self.bytes = bytes;
        }
        is_allowed
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_hold_a_number_of_bytes_together() {
        let share = Arc::<ServerShare>::default();
        let mut held = [(); 3].map(|()| HeldBytes::new(Arc::clone(&share)));
        assert!(held[0].set(MAX_BYTES / 2) && held[1].set(MAX_BYTES / 2));
        assert!(!held[2].set(1) && !held[0].set(MAX_BYTES / 2 + 1));
        assert!(held[0].set(MAX_BYTES / 2 - 1) && held[2].set(1), "the first one holds less");
        drop(held);
        assert_eq!(share.bytes.load(Ordering::Relaxed), 0);
    }
}
