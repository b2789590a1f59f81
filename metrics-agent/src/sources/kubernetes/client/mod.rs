//! A client of the API server.
//!
//! kube reads credentials and speaks TLS. Requests, limits and the reading of answers are here, because an answer's size depends on
//! objects that anyone in the cluster may write.

#[cfg(not(feature = "kubernetes"))]
mod absent;
mod error;
mod lines;
#[cfg(feature = "kubernetes")]
mod present;

use core::fmt;

#[cfg(not(feature = "kubernetes"))]
pub use absent::{AnswerBody, Client};
pub(crate) use error::Status;
pub use error::{ApiError, Reason};
pub use lines::Lines;
#[cfg(feature = "kubernetes")]
pub use present::{AnswerBody, Client};

/// Why there is no client: no usable configuration. An API server that cannot be reached is not a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError(String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (--kubernetes)", self.0)
    }
}

impl core::error::Error for ConnectError {}
