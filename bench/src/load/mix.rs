//! Requests of every kind that clients send: the mix of `make chaos` and `make soak`.

use super::request::{AnswerKind, RequestSpec};
use bytes::Bytes;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use futures_util::stream;
use reqwest::{Body, Client};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;

/// The header that identifies a request to the servers.
pub(crate) const ID: &str = "x-test-id";
/// No client waits longer for a whole answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// More than the mebibyte of a body that the picker waits for.
const LARGE: usize = 1_500_000;
/// Conversations that come again.
const CONVERSATIONS: usize = 50;

/// Draws requests to one stack: over new connections, kept ones, and HTTP/2.
pub(crate) struct RequestMix {
    url: String,
    clients: [Client; 3],
    prompt_bytes: usize,
}

impl RequestMix {
    /// Requests to the proxy of a stack, with prompts of about this many bytes.
    pub(crate) fn new(stack: &Stack, prompt_bytes: usize) -> Self {
        let clients = [client::http1(), client::http1_keep_alive(), client::h2c()];
        Self { url: stack.url(""), clients, prompt_bytes }
    }

    /// One of the mix. Of 40 requests, one has no body, 11 are streamed chats, one has a body that the picker does not wait
    /// for, one sends its body slowly, and the rest are chats.
    pub(crate) fn draw(&self, id: u64, rng: &mut SplitMix64) -> RequestSpec {
        let (client, url) = (&self.clients[rng.below(self.clients.len())], &self.url);
        let kind = rng.below(40);
        if kind == 0 {
            let builder = client.get(format!("{url}/v1/models")).header(ID, id);
            return RequestSpec { builder, answer: AnswerKind::Models, deadline: DEADLINE };
        }
        let is_streamed = kind < 12;
        // Half belong to a conversation that some server has cached, half are new to all.
        let number = if rng.below(2) == 0 { id } else { rng.below(CONVERSATIONS) as u64 };
        let sentence = format!("Conversation {number} goes on. ");
        let bytes = if kind == 38 { LARGE } else { self.prompt_bytes };
        let prompt = format!("{} And {id}?", sentence.repeat(bytes / sentence.len()));
        let mut body = client::chat(&prompt);
        body["stream"] = json!(is_streamed);
        let builder = client.post(format!("{url}/v1/chat/completions")).header(ID, id);
        let builder = if kind == 39 { builder.body(slowly(&body)) } else { builder.json(&body) };
        let answer = if is_streamed { AnswerKind::Stream } else { AnswerKind::Completion };
        RequestSpec { builder, answer, deadline: DEADLINE }
    }
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
