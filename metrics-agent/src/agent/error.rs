//! Why the agent ended.

use core::fmt;

use crate::credentials::CredentialError;
use crate::publish::eds::EdsError;
use crate::runtime::tasks::TaskEnded;
use crate::sources::kubernetes::ConnectError;

/// Why the agent ended, or did not start.
#[derive(Debug)]
pub enum AgentError {
    /// The EDS file cannot be written.
    Eds(EdsError),
    /// A file of certificates, keys or tokens cannot be used.
    Credentials(CredentialError),
    /// No configuration for a cluster.
    Kubernetes(ConnectError),
    /// One of its tasks ended.
    Task(TaskEnded),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eds(error) => error.fmt(f),
            Self::Credentials(error) => error.fmt(f),
            Self::Kubernetes(error) => error.fmt(f),
            Self::Task(ended) => ended.fmt(f),
        }
    }
}

impl core::error::Error for AgentError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Eds(error) => error.source(),
            Self::Credentials(error) => error.source(),
            Self::Kubernetes(error) => error.source(),
            Self::Task(ended) => ended.source(),
        }
    }
}
