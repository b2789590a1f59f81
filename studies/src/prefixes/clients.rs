//! The clients: each sends the next question of a conversation when it has read the whole response to the
//! last one.

use super::conversations::{Conversation, Conversations};
use super::prediction::Prediction;
use anyhow::{Context, Result, ensure};
use futures_util::future::join_all;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// Requests at a time.
const CLIENTS: usize = 4;
/// A response that takes longer has failed.
const DEADLINE: Duration = Duration::from_mins(2);
/// Attempts of a request, and the time between two.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// The header that asks for the explanation, its value, and the header with the explanation.
pub(super) const WHY: (&str, &str) = ("x-why", "the-study-reads-explanations");
const EXPLANATION: &str = "x-endpoint-picker-explanation";

/// All clients of a run, in one task.
#[derive(Debug)]
pub(super) struct Clients {
    http: Client,
    proxy: SocketAddr,
    conversations: RefCell<Conversations>,
    outcomes: RefCell<Outcomes>,
}

/// The results of the requests.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    pub(super) served: Vec<Served>,
    /// Reasons of the requests that no attempt served.
    pub(super) failures: Vec<String>,
    /// Times of the attempts that were repeated.
    pub(super) repeated: Vec<Instant>,
}

/// A request that was served.
#[derive(Clone, Debug)]
pub(super) struct Served {
    /// When its last attempt was sent.
    pub(super) sent: Instant,
    pub(super) first_token: Duration,
    /// Tokens of the prompt, and those that the server had cached.
    pub(super) prompt: u64,
    pub(super) cached: u64,
    /// `None`: no rules picked the server.
    pub(super) prediction: Option<Prediction>,
}

impl Clients {
    pub(super) fn new(proxy: SocketAddr, seed: u64) -> Result<Self> {
        let http = Client::builder().no_proxy().http1_only().build()?;
        let conversations = Conversations::new(seed).into();
        Ok(Self { http, proxy, conversations, outcomes: RefCell::default() })
    }

    /// Sends this number of requests, and reads all responses.
    pub(super) async fn send(&self, requests: usize) {
        let rest = Cell::new(requests);
        self.send_while(|| rest.replace(rest.get().saturating_sub(1)) > 0).await;
    }

    /// Sends requests while this is true, and reads all responses.
    pub(super) async fn send_while(&self, is_on: impl Fn() -> bool) {
        let client = async || {
            while is_on() {
                self.send_one().await;
            }
        };
        join_all((0..CLIENTS).map(|_| client())).await;
    }

    pub(super) fn into_outcomes(self) -> Outcomes {
        self.outcomes.into_inner()
    }

    async fn send_one(&self) {
        // There are more conversations than clients.
        let Some(conversation) = self.conversations.borrow_mut().take() else { return };
        for attempt in 1..=ATTEMPTS {
            let sent = Instant::now();
            let result = timeout(DEADLINE, self.attempt(&conversation)).await;
            match result.unwrap_or_else(|_| Err(anyhow::anyhow!("not complete after {DEADLINE:?}"))) {
                Ok((served, response)) => {
                    let mut conversations = self.conversations.borrow_mut();
                    conversations.continue_with(conversation, &response, served.prompt);
                    self.outcomes.borrow_mut().served.push(served);
                    return;
                }
                Err(reason) if attempt == ATTEMPTS => {
                    self.outcomes.borrow_mut().failures.push(format!("{reason:#}"));
                }
                Err(_) => self.outcomes.borrow_mut().repeated.push(sent),
            }
            sleep(PAUSE).await;
        }
        self.conversations.borrow_mut().put_back(conversation);
    }

    async fn attempt(&self, conversation: &Conversation) -> Result<(Served, String)> {
        let (path, body) = conversation.request();
        let url = format!("http://{}{path}", self.proxy);
        let request = self.http.post(url).header(WHY.0, WHY.1).json(&body);
        let sent = Instant::now();
        let mut response = request.send().await.context("no response")?;
        ensure!(response.status() == StatusCode::OK, "{} {}", response.status(), response.text().await?);
        let explanation = response.headers().get(EXPLANATION).and_then(|text| text.to_str().ok());
        let prediction = explanation.and_then(Prediction::read);
        let (mut first, mut body) = (None, Vec::new());
        while let Some(chunk) = response.chunk().await.context("the response broke off")? {
            first.get_or_insert_with(Instant::now);
            body.extend_from_slice(&chunk);
        }
        let Events { text, prompt, cached } = Events::read(&String::from_utf8(body)?)?;
        let first_token = first.context("an empty response")? - sent;
        Ok((Served { sent, first_token, prompt, cached, prediction }, text))
    }
}

impl Served {
    /// Values for the report of the run, which began at this instant.
    pub(super) fn report(&self, begin: Instant) -> Value {
        let Self { sent, first_token, prompt, cached, prediction } = self;
        let seconds = |time: Duration| (time.as_secs_f64() * 1e4).round() / 1e4;
        json!({
            "sent": seconds(*sent - begin), "first_token": seconds(*first_token), "prompt_tokens": prompt, "cached_tokens": cached,
            "predicted": prediction.as_ref().map(Prediction::report),
        })
    }
}

/// The parts of a streamed response.
#[derive(Debug, Default, PartialEq)]
struct Events {
    text: String,
    prompt: u64,
    cached: u64,
}

impl Events {
    fn read(body: &str) -> Result<Self> {
        let mut events = Self::default();
        let (mut has_usage, mut is_whole) = (false, false);
        for data in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
            if data == "[DONE]" {
                is_whole = true;
                continue;
            }
            let event: Value = serde_json::from_str(data).with_context(|| format!("an event: {data}"))?;
            // The events of `/v1/responses` have a type.
            let (text, usage, tokens) = match event["type"].as_str() {
                None => (&event["choices"][0]["delta"]["content"], &event["usage"], "prompt_tokens"),
                Some("response.output_text.delta") => (&event["delta"], &Value::Null, ""),
                Some(_) => (&Value::Null, &event["response"]["usage"], "input_tokens"),
            };
            is_whole |= event["type"] == "response.completed";
            events.text.push_str(text.as_str().unwrap_or_default());
            if let Some(prompt) = usage[tokens].as_u64() {
                (events.prompt, has_usage) = (prompt, true);
                // Some versions leave it out if it is 0.
                let cached = &usage[format!("{tokens}_details")]["cached_tokens"];
                events.cached = cached.as_u64().unwrap_or_default();
            }
        }
        ensure!(is_whole && has_usage, "a response without an end or without usage: {body}");
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_usage_of_a_stream_are_read() {
        let body = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"usage\":null}\n\n\
            data: {\"choices\":[{\"delta\":{\"content\":\" bad\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\" bed\"}}]}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":700,\"prompt_tokens_details\":{\"cached_tokens\":640}}}\n\ndata: [DONE]\n\n";
        let expected = Events { text: " bad bed".to_owned(), prompt: 700, cached: 640 };
        assert_eq!(Events::read(body).unwrap(), expected);
        assert!(Events::read(body.trim_end_matches("data: [DONE]\n\n")).is_err());
    }

    #[test]
    fn text_and_usage_of_a_response_of_the_newer_api_are_read() {
        let body = "data: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n\
            data: {\"type\":\"response.output_text.delta\",\"delta\":\" bad\"}\n\n\
            data: {\"type\":\"response.output_text.done\",\"text\":\" bad\"}\n\n\
            data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":700,\
            \"input_tokens_details\":{\"cached_tokens\":640}}}}\n\n";
        let expected = Events { text: " bad".to_owned(), prompt: 700, cached: 640 };
        assert_eq!(Events::read(body).unwrap(), expected);
    }
}
