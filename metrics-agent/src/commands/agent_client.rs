//! What commands get from a running agent, or from files that hold its answers.

mod exchange;

use core::fmt;

use bytes::Bytes;
use hyper::{StatusCode, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::api::pools::status::PoolStatus;
use crate::commands::credentials::Shown;

/// Largest answer, or file, that is read.
pub(super) const MAX_BYTES: usize = 64 * 1024 * 1024;

/// An agent to ask.
#[derive(Clone, Debug)]
pub struct Agent {
    /// Where it is.
    pub url: Uri,
    /// What it is shown, and asked to show.
    pub shown: Shown,
}

impl Agent {
    /// A pool as people see it; without a name the only one there is.
    pub async fn status(&self, pool: Option<&str>) -> Result<PoolStatus, FetchError> {
        let path = self.path_of(pool).await?;
        let bytes = self.get(&path).await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            let problem = format!("no status of a pool: {error}; is it an agent of this version?");
            FetchError(format!("{} answered {problem}", self.url))
        })
    }

    /// A pool as filters get it; without a name the only one there is.
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

    async fn only_pool(&self) -> Result<String, FetchError> {
        #[derive(serde::Deserialize)]
        struct List {
            pools: Vec<String>,
        }
        let url = &self.url;
        let bytes = self.get("/v1/pools").await?;
        let list: List = serde_json::from_slice(&bytes)
            .map_err(|error| FetchError(format!("{url} answered no list of pools: {error}")))?;
        match <[String; 1]>::try_from(list.pools) {
            Ok([name]) => Ok(name),
            Err(names) if names.is_empty() => Err(FetchError(format!("{url} has no pools yet"))),
            Err(names) => Err(FetchError(format!("--pool is needed; allowed: {}", names.join(", ")))),
        }
    }

    async fn get(&self, path: &str) -> Result<Bytes, FetchError> {
        let failed = |problem: String| FetchError(format!("{} (--agent): {problem}", self.url));
        let (status, body) = exchange::get(&self.url, &self.shown, path, MAX_BYTES).await.map_err(failed)?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        let text = String::from_utf8_lossy(&body);
        let error = serde_json::from_slice::<serde_json::Value>(&body).ok();
        let reason = error.as_ref().and_then(|error| error["error"].as_str()).unwrap_or(text.trim());
        Err(failed(format!("{path} was answered {status}: {reason}")))
    }
}

/// A pool's name as one segment of a path.
fn in_path(name: &str) -> String {
    const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(name, ESCAPED).to_string()
}

/// Why there is nothing to show.
#[derive(Debug)]
pub struct FetchError(pub(super) String);

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for FetchError {}
