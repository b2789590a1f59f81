//! One request of a load, and the check of its response.

use endpoint_picker_model_server::SERVED_BY;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The header with the reason why the picker answered a request itself.
const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";

/// A request, and the response that it should get.
pub struct RequestSpec {
    /// The request.
    pub builder: RequestBuilder,
    /// Where it is sent again when its proxy was killed before a response began, as by a load balancer in
    /// front of the proxies.
    pub elsewhere: Option<Elsewhere>,
    /// The kind of response that it should get.
    pub response: ResponseKind,
    /// Time limit of the whole response.
    pub deadline: Duration,
}

/// The same request to another proxy.
pub struct Elsewhere {
    /// The request.
    pub builder: RequestBuilder,
    /// Whether the first proxy is killed.
    pub is_killed: Arc<AtomicBool>,
}

/// Form of a complete response.
#[derive(Clone, Copy, Debug)]
pub enum ResponseKind {
    /// One JSON object with `choices`.
    Completion,
    /// Server-sent events that end with `[DONE]`.
    Stream,
    /// The list of models.
    Models,
}

/// Why a request was not served, as the client saw it.
#[derive(Clone, Debug)]
pub enum FailureKind {
    /// Another status than 200.
    Status {
        /// The status.
        status: u16,
        /// The server that sent it; `None`: Envoy.
        server: Option<String>,
        /// The picker's reason, if it names one.
        dropped: Option<String>,
        /// The body.
        text: String,
    },
    /// The response broke off.
    CutOff {
        /// The server that sent it; `None`: Envoy.
        server: Option<String>,
        /// The proxy's address.
        proxy: Option<SocketAddr>,
        /// The client's error.
        reason: String,
    },
    /// No response began.
    NoResponse(String),
    /// The response was not complete within this time.
    Timeout(Duration),
    /// The response has another form than the one that was requested.
    Malformed(String),
}

impl RequestSpec {
    /// Sends it and checks the whole response. Returns the time of the first byte of its body.
    pub async fn send(self) -> Result<Instant, FailureKind> {
        let Self { builder, elsewhere, response, deadline } = self;
        let exchange = async {
            match (attempt(builder, response).await, elsewhere) {
                (Err(FailureKind::NoResponse(_)), Some(Elsewhere { builder, is_killed }))
                    if is_killed.load(Ordering::Relaxed) =>
                {
                    attempt(builder, response).await
                }
                (result, _) => result,
            }
        };
        tokio::time::timeout(deadline, exchange).await.unwrap_or(Err(FailureKind::Timeout(deadline)))
    }
}

/// Sends a request once.
async fn attempt(builder: RequestBuilder, kind: ResponseKind) -> Result<Instant, FailureKind> {
    let mut response = builder.send().await.map_err(|error| FailureKind::NoResponse(format!("{error:?}")))?;
    let (status, proxy) = (response.status(), response.remote_addr());
    let server = header(&response, SERVED_BY);
    let (mut first_byte, mut body) = (None, Vec::new());
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                first_byte.get_or_insert_with(Instant::now);
                body.extend_from_slice(&chunk);
            }
            Ok(None) => break,
            Err(error) => return Err(FailureKind::CutOff { server, proxy, reason: format!("{error:?}") }),
        }
    }
    if status != StatusCode::OK {
        let (dropped, text) =
            (header(&response, DROPPED_REASON), String::from_utf8_lossy(&body).into_owned());
        return Err(FailureKind::Status { status: status.as_u16(), server, dropped, text });
    }
    first_byte
        .filter(|_| kind.is_whole(&body))
        .ok_or_else(|| FailureKind::Malformed(String::from_utf8_lossy(&body).into_owned()))
}

impl ResponseKind {
    fn is_whole(self, body: &[u8]) -> bool {
        let has_list = |field: &str| {
            serde_json::from_slice::<Value>(body).is_ok_and(|response| response[field].is_array())
        };
        match self {
            Self::Completion => has_list("choices"),
            Self::Stream => body.ends_with(b"data: [DONE]\n\n"),
            Self::Models => has_list("data"),
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |server: &Option<String>| server.clone().unwrap_or_else(|| "Envoy".to_owned());
        match self {
            Self::Status { status, server, text, .. } => write!(f, "{status} from {}: {text}", by(server)),
            Self::CutOff { server, reason, .. } => {
                write!(f, "the response of {} broke off: {reason}", by(server))
            }
            Self::NoResponse(reason) => write!(f, "no response: {reason}"),
            Self::Timeout(deadline) => write!(f, "no complete response within {deadline:?}"),
            Self::Malformed(text) => write!(f, "malformed response: {text}"),
        }
    }
}

fn header(response: &Response, name: &str) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.to_owned())
}
