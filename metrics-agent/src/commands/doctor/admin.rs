//! A client of Envoy's admin interface.

use std::collections::BTreeSet;
use std::fmt::Display;

use bytes::Bytes;
use hyper::{StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::commands::agent_client::FetchError;
use crate::commands::client_credentials::ClientCredentials;
use crate::commands::exchange;

/// The admin interface of a running Envoy.
#[derive(Debug)]
pub struct EnvoyAdmin {
    url: Uri,
}

impl EnvoyAdmin {
    /// The admin interface at this URL.
    pub fn new(url: Uri) -> Self {
        Self { url }
    }

    /// The configuration in force.
    pub(super) async fn config_dump(&self) -> Result<Bytes, FetchError> {
        self.get("/config_dump").await
    }

    /// The clusters with their hosts.
    pub(super) async fn clusters(&self) -> Result<Bytes, FetchError> {
        self.get("/clusters?format=json").await
    }

    /// The statistics of the filter and of these clusters. Those of all clusters would be many megabytes in a large gateway.
    pub(super) async fn statistics(&self, clusters: &BTreeSet<String>) -> Result<Bytes, FetchError> {
        let clusters: Vec<_> = clusters.iter().map(|name| escaped(name)).collect();
        let filter = format!(
            r"endpoint_picker|^cluster\.({})\.(upstream_rq_\d+|update_rejected)$",
            clusters.join("|")
        );
        self.get(&format!("/stats?filter={}", utf8_percent_encode(&filter, NON_ALPHANUMERIC))).await
    }

    /// The error of a response that is not what Envoy sends.
    pub(super) fn unreadable(&self, path: &str, reason: &impl Display) -> FetchError {
        FetchError(format!("{} (--envoy-admin): the response to {path} cannot be read: {reason}", self.url))
    }

    async fn get(&self, path: &str) -> Result<Bytes, FetchError> {
        let failed = |problem: String| FetchError(format!("{} (--envoy-admin): {problem}", self.url));
        let none = ClientCredentials::default();
        let (status, body) = exchange::get(&self.url, &none, path).await.map_err(failed)?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        Err(failed(format!("{path} returned {status}; is it Envoy's admin interface?")))
    }
}

/// A name as a regular expression.
fn escaped(name: &str) -> String {
    let escape = |c: char| if c.is_alphanumeric() { c.to_string() } else { format!("\\{c}") };
    name.chars().map(escape).collect()
}
