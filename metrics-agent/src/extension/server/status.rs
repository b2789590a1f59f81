//! Envoy Gateway's calls, for `metrics-agent doctor`.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Connections and calls of Envoy Gateway since the start of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Connections now.
    pub connections: usize,
    /// Why the last TLS handshake failed; absent: it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_handshake: Option<String>,
    /// Calls of each hook.
    pub calls: HookCalls,
    /// The largest numbers of messages of one translation.
    pub largest_translation: TranslationParts,
}

/// Numbers of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of the hooks")]
pub struct HookCalls {
    pub route: u64,
    pub endpoints: u64,
    pub translation: u64,
}

/// Numbers of messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names of the messages")]
pub struct TranslationParts {
    pub listeners: usize,
    pub routes: usize,
    pub clusters: usize,
}

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
