//! The status of the agent as Envoy Gateway's extension server, for `metrics-agent doctor`, and the marks
//! that it leaves in Envoy's configuration.

use serde::{Deserialize, Serialize};

/// The name of the filter, of its cluster and of their settings.
pub const NAME: &str = "endpoint-picker";

/// The key of the mark in a route's `filter_metadata`.
pub const MARK: &str = "endpoint-picker";

/// The response to requests to pools while Envoy AI Gateway's server is called after ours.
pub const WRONG_ORDER: &str = "Envoy AI Gateway's extension server is called after the endpoint picker's: enter it before the endpoint picker in \
                                      extensionManagers of Envoy Gateway";

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
