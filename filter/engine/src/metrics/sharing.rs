//! Counts of the messages by which proxies share changes.

use core::ops::AddAssign;

/// Counts of exchanged messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingCounts {
    /// Messages of this proxy that the agent took.
    pub sent: u64,
    /// Messages of other proxies.
    pub received: u64,
    /// Received messages that were skipped: of another version, or malformed.
    pub unreadable: u64,
    /// Syncs that failed.
    pub failed: u64,
}

impl AddAssign for SharingCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { sent, received, unreadable, failed } = other;
        self.sent += sent;
        self.received += received;
        self.unreadable += unreadable;
        self.failed += failed;
    }
}
