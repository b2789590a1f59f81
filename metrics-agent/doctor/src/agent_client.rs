//! A client of a running agent's API.

use bytes::Bytes;
use hyper::{StatusCode, Uri};
use metrics_agent_status::extension::ServerStatus;
use metrics_agent_status::pool::{PoolStatus, RefusedObjects};
use metrics_agent_support::client::credentials::ClientCredentials;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::fetch::{self, FetchError};

/// An agent's response to `/v1/pools`.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct PoolList {
    /// The agent's version; empty for an agent that does not give it.
    #[serde(default)]
    pub version: String,
    /// The names of the pools.
    pub pools: Vec<String>,
    /// The refused objects; none for an agent that does not give them.
    #[serde(default)]
    pub refused: RefusedObjects,
    /// Envoy Gateway's calls; `None`: the agent is not its extension server, or older.
    #[serde(default)]
    pub extension: Option<ServerStatus>,
}

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    /// The URL of its API.
    pub url: Uri,
    /// Credentials for the requests.
    pub credentials: ClientCredentials,
}

impl Agent {
    /// The status of a pool; without a name, of the only pool.
    pub async fn status(&self, pool: Option<&str>) -> Result<PoolStatus, FetchError> {
        let path = self.path_of(pool).await?;
        let bytes = self.get(&path).await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let problem = format!("is not a pool's status: {error}; is it an agent of this version?");
            FetchError(format!("the response of {} {problem}", self.url))
        })
    }

    /// The snapshot of a pool; without a name, of the only pool.
    pub async fn snapshot(&self, pool: Option<&str>) -> Result<Bytes, FetchError> {
        let path = self.path_of(pool).await?;
        self.get(&format!("{path}/snapshot")).await
    }

    async fn path_of(&self, pool: Option<&str>) -> Result<String, FetchError> {
        let name = match pool {
            Some(name) => name.to_owned(),
            None => self.only_pool().await?,
        };
        Ok(format!("/v1/pools/{}", in_path(&name)))
    }

    /// The version and the pools.
    pub async fn pools(&self) -> Result<PoolList, FetchError> {
        let url = &self.url;
        let bytes = self.get("/v1/pools").await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| FetchError(format!("the response of {url} is not a list of pools: {error}")))
    }

    async fn only_pool(&self) -> Result<String, FetchError> {
        let url = &self.url;
        match <[String; 1]>::try_from(self.pools().await?.pools) {
            Ok([name]) => Ok(name),
            Err(names) if names.is_empty() => Err(FetchError(format!("{url} has no pools yet"))),
            Err(names) => Err(FetchError(format!("--pool is required; allowed: {}", names.join(", ")))),
        }
    }

    async fn get(&self, path: &str) -> Result<Bytes, FetchError> {
        let failed = |problem: String| FetchError(format!("{} (--agent): {problem}", self.url));
        let (status, body) = fetch::get(&self.url, &self.credentials, path).await.map_err(failed)?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        let text = String::from_utf8_lossy(&body);
        let error = serde_json::from_slice::<serde_json::Value>(&body).ok();
        let reason = error.as_ref().and_then(|error| error["error"].as_str()).unwrap_or(text.trim());
        Err(failed(format!("{path} returned {status}: {reason}")))
    }
}

/// A pool's name as a path segment.
fn in_path(name: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(name, ESCAPED).to_string()
}
