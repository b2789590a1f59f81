//! Envoy Gateway's calls, for `metrics-agent doctor`.

use std::sync::Arc;

use metrics_agent_status::extension::ServerStatus;
use parking_lot::Mutex;

/// The status that the server keeps. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedStatus(Arc<Mutex<ServerStatus>>);

impl SharedStatus {
    /// The status now.
    pub fn now(&self) -> ServerStatus {
        self.0.lock().clone()
    }

    /// Changes it.
    pub(super) fn update(&self, change: impl FnOnce(&mut ServerStatus)) {
        change(&mut self.0.lock());
    }

    /// Counts a connection until the value is dropped.
    pub(super) fn connected(&self) -> Connected {
        self.update(|status| {
            status.connections += 1;
            status.failed_handshake = None;
        });
        Connected(self.clone())
    }
}

/// A connection of Envoy Gateway.
pub(super) struct Connected(SharedStatus);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.update(|status| status.connections = status.connections.saturating_sub(1));
    }
}
