//! Requests to the agent and its responses.

use core::fmt;
use core::time::Duration;

use crate::proxy::ProxyError;

/// The shell's number of a request to the agent.
pub type CallId = u64;

/// The `:authority` of requests to the agent: every agent allows it, whatever the proxy calls its cluster.
pub const AUTHORITY: &str = "metrics-agent";

/// The `content-type` of a body for the agent.
pub const CONTENT_TYPE: &str = "application/x-protobuf";

/// Bytes of the reason for a refusal that are logged.
const MAX_REASON: usize = 256;

/// A path of a pool in the agent's API. The slash of `namespace/name` is encoded, so that the pool is one
/// segment.
pub(crate) fn path_of_pool(pool: &str, resource: &str) -> String {
    format!("/v1/pools/{}/{resource}", pool.replace('/', "%2F"))
}

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

/// A response of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentResponse {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl AgentResponse {
    /// The response, if it is the agent's. A proxy that cannot reach the agent responds itself, without a
    /// `date` header; an agent sets that header.
    ///
    /// # Errors
    /// The agent sent no response, for the reason in the body.
    pub fn of_agent(self, is_dated: bool) -> Result<Self, CallError> {
        if self.status < 500 || is_dated {
            return Ok(self);
        }
        Err(CallError::NoResponse(self.reason()))
    }

    /// The reason for a refusal: the beginning of the body.
    pub(crate) fn reason(mut self) -> String {
        self.body.truncate(MAX_REASON);
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Why a request to the agent has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The proxy refused a call.
    Proxy(ProxyError),
    /// The proxy has no cluster of this name.
    NoCluster(String),
    /// The agent sent no response, for this reason; empty if the proxy does not give one.
    NoResponse(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proxy(error) => error.fmt(f),
            Self::NoCluster(name) => write!(f, "the proxy has no cluster {name:?} (agentCluster)"),
            Self::NoResponse(reason) if reason.is_empty() => f.write_str("the agent did not answer"),
            Self::NoResponse(reason) => write!(f, "the agent did not answer: {reason}"),
        }
    }
}

impl core::error::Error for CallError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Proxy(error) => Some(error),
            Self::NoCluster(_) | Self::NoResponse(_) => None,
        }
    }
}

impl From<ProxyError> for CallError {
    fn from(error: ProxyError) -> Self {
        Self::Proxy(error)
    }
}
