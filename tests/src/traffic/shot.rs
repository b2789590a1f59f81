//! One request, and what became of it.

use crate::client;
use crate::model_server::SERVED_BY;
use crate::stack::Stack;
use bytes::Bytes;
use endpoint_picker::rng::{Rng, SplitMix64};
use futures_util::stream;
use reqwest::{Body, Client, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

/// Names a request to the servers.
pub(crate) const ID: &str = "x-test-id";
/// Nobody waits longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The picker waits for a mebibyte of a body at most.
const LARGE: usize = 1_500_000;
/// The first requests begin them.
const CONVERSATIONS: usize = 50;

/// What went wrong, as the client saw it.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// Another status than 200; from a server if it was not Envoy's.
    Status { status: u16, server: Option<String>, text: String },
    /// The answer began and broke off.
    CutOff { server: Option<String>, reason: String },
    /// There was no answer.
    NoAnswer(String),
    /// It took too long.
    Timeout,
    /// The answer was not the one to this request.
    Wrong(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |server: &Option<String>| server.clone().unwrap_or_else(|| "Envoy".to_owned());
        match self {
            Self::Status { status, server, text } => write!(f, "{status} from {}: {text}", by(server)),
            Self::CutOff { server, reason } => write!(f, "the answer of {} broke off: {reason}", by(server)),
            Self::NoAnswer(reason) => write!(f, "no answer: {reason}"),
            Self::Timeout => write!(f, "no answer within {PATIENCE:?}"),
            Self::Wrong(text) => write!(f, "not the answer: {text}"),
        }
    }
}

/// Where requests come from: new connections, kept ones, and HTTP/2.
pub(crate) struct Range {
    url: String,
    clients: [Client; 3],
    prompt_bytes: usize,
}

/// What is sent.
pub(crate) struct Shot {
    builder: RequestBuilder,
    is_streamed: bool,
    is_post: bool,
}

impl Range {
    /// Aims at the proxy of a stack, with prompts of about so many bytes.
    pub(crate) fn new(stack: &Stack, prompt_bytes: usize) -> Self {
        let clients = [client::http1(), client::http1_keep_alive(), client::h2c()];
        Self { url: stack.url(""), clients, prompt_bytes }
    }

    /// Some request of the mix: mostly chats, a quarter of them streamed, some that come slowly, some without a body, some with
    /// one that is longer than the picker waits for.
    pub(crate) fn shot(&self, id: u64, rng: &mut SplitMix64) -> Shot {
        let (client, url) = (&self.clients[rng.below(self.clients.len())], &self.url);
        let kind = rng.below(40);
        if kind == 0 {
            let builder = client.get(format!("{url}/v1/models")).header(ID, id);
            return Shot { builder, is_streamed: false, is_post: false };
        }
        let is_streamed = kind < 12;
        // Half belong to a conversation that some server has cached, half are new to all.
        let number = if rng.below(2) == 0 { id } else { rng.below(CONVERSATIONS) as u64 };
        let said = format!("Conversation {number} goes on. ");
        let bytes = if kind == 38 { LARGE } else { self.prompt_bytes };
        let prompt = format!("{} And {id}?", said.repeat(bytes / said.len()));
        let mut body = client::chat(&prompt);
        body["stream"] = json!(is_streamed);
        let builder = client.post(format!("{url}/v1/chat/completions")).header(ID, id);
        let builder = if kind == 39 { builder.body(slowly(&body)) } else { builder.json(&body) };
        Shot { builder, is_streamed, is_post: true }
    }
}

impl Shot {
    /// Sends it and looks at the whole answer.
    pub(crate) async fn fire(self) -> Result<(), Trouble> {
        let Self { builder, is_streamed, is_post } = self;
        let exchange = async {
            let response = builder.send().await.map_err(|error| Trouble::NoAnswer(format!("{error:?}")))?;
            let (status, server) = (response.status(), server_of(&response));
            let body = response.text().await;
            let body = body
                .map_err(|error| Trouble::CutOff { server: server.clone(), reason: format!("{error:?}") })?;
            if status != StatusCode::OK {
                return Err(Trouble::Status { status: status.as_u16(), server, text: body });
            }
            let is_whole = match (is_post, is_streamed) {
                (true, true) => body.ends_with("data: [DONE]\n\n"),
                (true, false) => {
                    serde_json::from_str::<Value>(&body).is_ok_and(|it| it["choices"].is_array())
                }
                (false, _) => serde_json::from_str::<Value>(&body).is_ok_and(|it| it["data"].is_array()),
            };
            if is_whole { Ok(()) } else { Err(Trouble::Wrong(body)) }
        };
        tokio::time::timeout(PATIENCE, exchange).await.unwrap_or(Err(Trouble::Timeout))
    }
}

fn server_of(response: &Response) -> Option<String> {
    Some(response.headers().get(SERVED_BY)?.to_str().ok()?.to_owned())
}

/// The body in five pieces, over half a second.
fn slowly(body: &Value) -> Body {
    let text = body.to_string().into_bytes();
    let pieces: Vec<Bytes> = text.chunks(text.len().div_ceil(5)).map(Bytes::copy_from_slice).collect();
    Body::wrap_stream(stream::unfold(pieces.into_iter(), async |mut pieces| {
        let piece = pieces.next()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        Some((Ok::<_, Infallible>(piece), pieces))
    }))
}
