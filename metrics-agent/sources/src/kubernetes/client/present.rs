//! The client, over kube's connections and credentials.

use core::error::Error;
use core::fmt::Write;
use core::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Method, Request, Response};
use kube::config::{Config, KubeConfigOptions};
use rustls::crypto::ring;
use tokio::time::timeout;

use super::error::ApiError;
use super::{ConnectError, Lines};

/// The body of a response.
pub type ResponseBody = kube::client::Body;

/// Maximum time until a response begins, and until it ends unless it is a watch. A connection that broke
/// without notice costs this time at most.
const RESPONSE_LIMIT: Duration = Duration::from_secs(15);

/// Maximum time for a connection and its handshakes.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Maximum number of bytes of a response with an error, or to a written object.
const MAX_SHORT_RESPONSE: usize = 4 * 1024 * 1024;

/// A client of the API server. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    inner: kube::Client,
    namespace: String,
}

impl core::fmt::Debug for Client {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Client").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Client {
    /// Reads the configuration: the file that `KUBECONFIG` names, otherwise the pod's `ServiceAccount`,
    /// otherwise `~/.kube/config`. Tokens and authorities in files are read again when they change. Nothing
    /// is sent yet.
    pub async fn connect() -> Result<Self, ConnectError> {
        // kube takes the process's provider; it fails only when there is one already.
        let _ = ring::default_provider().install_default();
        let mut config = config().await?;
        config.connect_timeout = Some(CONNECT_LIMIT);
        // Watches retry by themselves.
        config.default_retry = false;
        let namespace = config.default_namespace.trim().to_owned();
        let inner = kube::Client::try_from(config)
            .map_err(|error| ConnectError(format!("no client for Kubernetes: {}", with_sources(&error))))?;
        Ok(Self { inner, namespace })
    }

    /// The pod's namespace, or the one of the kubeconfig's context.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Reads this path; a response of more than `max_bytes` is an error.
    pub async fn get(&self, path: &str, max_bytes: usize) -> Result<Bytes, ApiError> {
        within_limit(async {
            let response = self.response_to(request(Method::GET, path, None, Vec::new())?).await?;
            read(response.into_body(), max_bytes).await
        })
        .await
    }

    /// Watches this path; the API server has to end the response within `limit`.
    pub async fn lines(&self, path: &str, limit: Duration) -> Result<Lines<ResponseBody>, ApiError> {
        let response = self.response_to(request(Method::GET, path, None, Vec::new())?);
        Ok(Lines::new(within_limit(response).await?.into_body(), limit))
    }

    /// Writes an object, and returns the response.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Vec<u8>,
    ) -> Result<Bytes, ApiError> {
        within_limit(async {
            let response = self.response_to(request(method, path, Some(content_type), body)?).await?;
            read(response.into_body(), MAX_SHORT_RESPONSE).await
        })
        .await
    }

    async fn response_to(&self, request: Request<Vec<u8>>) -> Result<Response<ResponseBody>, ApiError> {
        let sent = self.inner.send(request.map(ResponseBody::from)).await;
        let response = sent.map_err(|error| match error {
            // Its own text has no reason.
            kube::Error::Service(error) => ApiError::Connection(with_sources(error.as_ref())),
            error => ApiError::Connection(with_sources(&error)),
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = read(response.into_body(), MAX_SHORT_RESPONSE).await.unwrap_or_default();
        Err(ApiError::of_response(status.as_u16(), &body))
    }
}

async fn config() -> Result<Config, ConnectError> {
    let in_cluster = match std::env::var_os("KUBECONFIG") {
        Some(_) => None,
        None => match Config::incluster() {
            Ok(config) => return Ok(config),
            Err(error) => Some(error),
        },
    };
    let found = Config::from_kubeconfig(&KubeConfigOptions::default()).await;
    found.map_err(|error| {
        let mut text = format!("no configuration for Kubernetes: kubeconfig: {}", with_sources(&error));
        if let Some(error) = in_cluster {
            let _ = write!(text, "; ServiceAccount of a pod: {}", with_sources(&error));
        }
        ConnectError(text)
    })
}

fn request(
    method: Method,
    path: &str,
    content_type: Option<&'static str>,
    body: Vec<u8>,
) -> Result<Request<Vec<u8>>, ApiError> {
    let mut request = Request::builder().method(method).uri(path).header(ACCEPT, "application/json");
    if let Some(content_type) = content_type {
        request = request.header(CONTENT_TYPE, content_type);
    }
    request.body(body).map_err(|error| ApiError::Malformed(format!("request to {path:?}: {error}")))
}

async fn within_limit<T>(response: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    timeout(RESPONSE_LIMIT, response).await.unwrap_or(Err(ApiError::Timeout(RESPONSE_LIMIT)))
}

async fn read(body: ResponseBody, max_bytes: usize) -> Result<Bytes, ApiError> {
    match Limited::new(body, max_bytes).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::TooLarge(max_bytes)),
        Err(error) => Err(ApiError::Connection(with_sources(error.as_ref()))),
    }
}

/// An error and its sources, whose messages often say more than its own.
fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            let _ = write!(text, ": {cause}");
        }
        source = error.source();
    }
    text
}
