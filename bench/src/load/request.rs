//! One request of a load, and how its answer is checked.

use endpoint_picker_model_server::SERVED_BY;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;
use std::fmt;
use std::time::{Duration, Instant};

/// A request, the answer that it should get, and how long that may take.
pub(crate) struct RequestSpec {
    pub(crate) builder: RequestBuilder,
    pub(crate) answer: AnswerKind,
    pub(crate) deadline: Duration,
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
    /// Another status than 200. Without a server it is Envoy's.
    Status { status: u16, server: Option<String>, text: String },
    /// The answer began and broke off.
    CutOff { server: Option<String>, reason: String },
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
        let Self { builder, answer, deadline } = self;
        let exchange = async {
            let mut response =
                builder.send().await.map_err(|error| FailureKind::NoAnswer(format!("{error:?}")))?;
            let (status, server) = (response.status(), server_of(&response));
            let (mut first_byte, mut body) = (None, Vec::new());
            loop {
                match response.chunk().await {
                    Ok(Some(chunk)) => {
                        first_byte.get_or_insert_with(Instant::now);
                        body.extend_from_slice(&chunk);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        return Err(FailureKind::CutOff { server, reason: format!("{error:?}") });
                    }
                }
            }
            if status != StatusCode::OK {
                let text = String::from_utf8_lossy(&body).into_owned();
                return Err(FailureKind::Status { status: status.as_u16(), server, text });
            }
            first_byte
                .filter(|_| answer.is_whole(&body))
                .ok_or_else(|| FailureKind::Malformed(String::from_utf8_lossy(&body).into_owned()))
        };
        tokio::time::timeout(deadline, exchange).await.unwrap_or(Err(FailureKind::Timeout(deadline)))
    }
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
            Self::Status { status, server, text } => write!(f, "{status} from {}: {text}", by(server)),
            Self::CutOff { server, reason } => write!(f, "the answer of {} broke off: {reason}", by(server)),
            Self::NoAnswer(reason) => write!(f, "no answer: {reason}"),
            Self::Timeout(deadline) => write!(f, "no whole answer within {deadline:?}"),
            Self::Malformed(text) => write!(f, "malformed answer: {text}"),
        }
    }
}

fn server_of(response: &Response) -> Option<String> {
    Some(response.headers().get(SERVED_BY)?.to_str().ok()?.to_owned())
}
