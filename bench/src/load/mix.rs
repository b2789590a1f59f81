//! Requests of every kind that clients send: the mix of `make chaos` and `make soak`.

use super::request::{Elsewhere, RequestSpec, ResponseKind};
use super::senders::Sender;
use bytes::Bytes;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use futures_util::stream;
use reqwest::{Body, Client, RequestBuilder};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The header that identifies a request to the servers.
pub(crate) const ID: &str = "x-test-id";
/// No client waits longer for a complete response.
const DEADLINE: Duration = Duration::from_secs(10);

/// More than the mebibyte of a body that the picker waits for.
const LARGE: usize = 1_500_000;
/// Conversations that come again.
const CONVERSATIONS: usize = 50;

/// Draws requests to proxies, each to one of them: over new connections, kept ones, and HTTP/2.
pub(crate) struct RequestMix {
    proxies: Vec<MixedProxy>,
    clients: [Client; 3],
    prompt_bytes: usize,
    senders: Option<fn(&mut SplitMix64) -> Sender>,
}

/// A proxy that gets requests.
#[derive(Clone, Debug)]
pub(crate) struct MixedProxy {
    /// Without a path.
    pub(crate) url: String,
    /// While it is, requests to it that get no response are sent to another proxy.
    pub(crate) is_killed: Arc<AtomicBool>,
}

/// One request of the mix, to whatever proxy.
enum MixedBody {
    Models,
    Whole(Value),
    /// In five chunks, over half a second.
    Slow(Value),
}

impl RequestMix {
    /// Requests to these proxies, with prompts of about this many bytes.
    pub(crate) fn new(proxies: Vec<MixedProxy>, prompt_bytes: usize) -> Self {
        let clients = [client::http1(), client::http1_keep_alive(), client::h2c()];
        Self { proxies, clients, prompt_bytes, senders: None }
    }

    /// Requests to the proxy of a stack.
    pub(crate) fn to(stack: &Stack, prompt_bytes: usize) -> Self {
        Self::new(vec![MixedProxy::of(stack)], prompt_bytes)
    }

    /// Each request is of a sender that is drawn like this.
    pub(crate) fn with_senders(mut self, senders: fn(&mut SplitMix64) -> Sender) -> Self {
        self.senders = Some(senders);
        self
    }

    /// One of the mix. Of 40 requests, one has no body, 11 are streamed chats, one has a body that the picker
    /// does not wait for, one sends its body slowly, and the rest are chats.
    pub(crate) fn draw(&self, id: u64, rng: &mut SplitMix64) -> RequestSpec {
        let client = &self.clients[rng.below(self.clients.len())];
        let proxy = rng.below(self.proxies.len());
        let sender = self.senders.map(|draw| draw(rng));
        let (body, response) = self.draw_body(id, rng);
        let to = |proxy: &MixedProxy| {
            let builder = body.request(client, &proxy.url).header(ID, id);
            let headers = sender.iter().flat_map(|sender| sender.headers());
            headers.fold(builder, |builder, (name, value)| builder.header(name, value))
        };
        let (first, others) = (&self.proxies[proxy], self.proxies.iter().cycle().skip(proxy + 1));
        let elsewhere = others.take(self.proxies.len() - 1).next();
        let elsewhere =
            elsewhere.map(|other| Elsewhere { builder: to(other), is_killed: Arc::clone(&first.is_killed) });
        RequestSpec { builder: to(first), elsewhere, response, deadline: DEADLINE }
    }

    fn draw_body(&self, id: u64, rng: &mut SplitMix64) -> (MixedBody, ResponseKind) {
        let kind = rng.below(40);
        if kind == 0 {
            return (MixedBody::Models, ResponseKind::Models);
        }
        let is_streamed = kind < 12;
        // Half belong to a conversation that some server has cached, half are new to all.
        let number = if rng.below(2) == 0 { id } else { rng.below(CONVERSATIONS) as u64 };
        let sentence = format!("Conversation {number} goes on. ");
        let bytes = if kind == 38 { LARGE } else { self.prompt_bytes };
        let prompt = format!("{} And {id}?", sentence.repeat(bytes / sentence.len()));
        let mut body = client::chat(&prompt);
        body["stream"] = json!(is_streamed);
        let response = if is_streamed { ResponseKind::Stream } else { ResponseKind::Completion };
        (if kind == 39 { MixedBody::Slow(body) } else { MixedBody::Whole(body) }, response)
    }
}

impl MixedProxy {
    /// The proxy of a stack.
    pub(crate) fn of(stack: &Stack) -> Self {
        Self { url: stack.url(""), is_killed: Arc::default() }
    }
}

impl MixedBody {
    fn request(&self, client: &Client, url: &str) -> RequestBuilder {
        let chat = || client.post(format!("{url}/v1/chat/completions"));
        match self {
            Self::Models => client.get(format!("{url}/v1/models")),
            Self::Whole(body) => chat().json(body),
            Self::Slow(body) => chat().body(slowly(body)),
        }
    }
}

/// The body in five chunks, over half a second.
fn slowly(body: &Value) -> Body {
    let text = body.to_string().into_bytes();
    let pieces: Vec<Bytes> = text.chunks(text.len().div_ceil(5)).map(Bytes::copy_from_slice).collect();
    Body::wrap_stream(stream::unfold(pieces.into_iter(), async |mut pieces| {
        let piece = pieces.next()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        Some((Ok::<_, Infallible>(piece), pieces))
    }))
}
