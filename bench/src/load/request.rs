//! One request of a load, and how its answer is checked.

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

/// A request, the answer that it should get, and how long that may take.
pub(crate) struct RequestSpec {
    pub(crate) builder: RequestBuilder,
    /// Where it is sent again when its proxy was killed before an answer began, as by a load balancer in front of the proxies.
    pub(crate) elsewhere: Option<Elsewhere>,
    pub(crate) answer: AnswerKind,
    pub(crate) deadline: Duration,
}

/// The same request to another proxy.
pub(crate) struct Elsewhere {
    pub(crate) builder: RequestBuilder,
    /// Whether the first proxy is killed.
    pub(crate) is_killed: Arc<AtomicBool>,
}

/// How a whole answer looks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnswerKind {
    /// One JSON object with `choices`.
    Completion,
    /// Server-sent events that end with `[DONE]`.
    Stream,
    /// The list of models.
    Models,
}

/// Why a request was not served, as the client saw it.
#[derive(Clone, Debug)]
pub(crate) enum FailureKind {
    /// Another status than 200. Without a server it is Envoy's. `dropped` is the picker's reason, if it names one.
    Status { status: u16, server: Option<String>, dropped: Option<String>, text: String },
    /// The answer began and broke off.
    CutOff { server: Option<String>, proxy: Option<SocketAddr>, reason: String },
    /// There was no answer.
    NoAnswer(String),
    /// The answer was not there within this time.
    Timeout(Duration),
    /// The answer has another form than the one that was requested.
    Malformed(String),
}

impl RequestSpec {
    /// Sends it and checks the whole answer; returns the moment at which the first byte of its body came.
    pub(crate) async fn send(self) -> Result<Instant, FailureKind> {
        let Self { builder, elsewhere, answer, deadline } = self;
        let exchange = async {
            match (attempt(builder, answer).await, elsewhere) {
                (Err(FailureKind::NoAnswer(_)), Some(Elsewhere { builder, is_killed }))
                    if is_killed.load(Ordering::Relaxed) =>
                {
                    attempt(builder, answer).await
                }
                (result, _) => result,
            }
        };
        tokio::time::timeout(deadline, exchange).await.unwrap_or(Err(FailureKind::Timeout(deadline)))
    }
}

/// Sends a request once.
async fn attempt(builder: RequestBuilder, answer: AnswerKind) -> Result<Instant, FailureKind> {
    let mut response = builder.send().await.map_err(|error| FailureKind::NoAnswer(format!("{error:?}")))?;
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
        .filter(|_| answer.is_whole(&body))
        .ok_or_else(|| FailureKind::Malformed(String::from_utf8_lossy(&body).into_owned()))
}

impl AnswerKind {
    fn is_whole(self, body: &[u8]) -> bool {
        let has_list =
            |field: &str| serde_json::from_slice::<Value>(body).is_ok_and(|answer| answer[field].is_array());
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
                write!(f, "the answer of {} broke off: {reason}", by(server))
            }
            Self::NoAnswer(reason) => write!(f, "no answer: {reason}"),
            Self::Timeout(deadline) => write!(f, "no whole answer within {deadline:?}"),
            Self::Malformed(text) => write!(f, "malformed answer: {text}"),
        }
    }
}

fn header(response: &Response, name: &str) -> Option<String> {
    Some(response.headers().get(name)?.to_str().ok()?.to_owned())
}
