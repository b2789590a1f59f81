//! Requests to the agent and its answers.

use core::time::Duration;

/// The proxy's number of a request to the agent.
pub type CallId = u32;

/// The `:authority` of requests to the agent: every agent allows it, whatever the proxy calls its cluster.
pub const AUTHORITY: &str = "metrics-agent";

/// The `content-type` of a body for the agent.
pub const CONTENT_TYPE: &str = "application/x-protobuf";

/// A request to send to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRequest {
    /// The path with its query.
    pub path: String,
    /// The body of a POST; `None` for a GET.
    pub body: Option<Vec<u8>>,
    /// The time that the request may take.
    pub timeout: Duration,
}

/// The agent's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAnswer {
    /// The status; `None` if the agent did not answer.
    pub status: Option<u16>,
    /// The body.
    pub body: Vec<u8>,
}
