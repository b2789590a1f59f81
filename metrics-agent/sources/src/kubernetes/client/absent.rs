//! The client of a build without the feature `kubernetes`: there is none.

use core::convert::Infallible;
use core::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::Method;

use super::error::ApiError;
use super::{ConnectError, Lines};

/// The body of a response.
pub type ResponseBody = Empty<Bytes>;

/// A client of the API server.
#[derive(Clone, Debug)]
pub struct Client(Infallible);

#[allow(missing_docs, clippy::unused_async, reason = "as in the other build")]
impl Client {
    pub async fn connect() -> Result<Self, ConnectError> {
        let problem = "this build of the agent has no client for Kubernetes (cargo feature `kubernetes`)";
        Err(ConnectError(problem.to_owned()))
    }

    pub fn namespace(&self) -> &str {
        match self.0 {}
    }

    pub async fn get(&self, _: &str, _: usize) -> Result<Bytes, ApiError> {
        match self.0 {}
    }

    pub async fn lines(&self, _: &str, _: Duration) -> Result<Lines<ResponseBody>, ApiError> {
        match self.0 {}
    }

    pub async fn send(&self, _: Method, _: &str, _: &'static str, _: Vec<u8>) -> Result<Bytes, ApiError> {
        match self.0 {}
    }
}
