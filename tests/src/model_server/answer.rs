//! Answers in the shapes of the OpenAI API.

use super::typed_events;
use super::{CLAIM_ENCODING, CLAIM_HEADER, MODEL, ReceivedRequest, SERVED_BY, Shared, lock};
use bytes::Bytes;
use http_body_util::channel::{Channel, Sender};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh64::xxh64;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

const DEFAULT_MAX_TOKENS: u64 = 16;
/// No server is asked for more by a test; a hostile number must not fill its memory.
const TOKENS_LIMIT: u64 = 100_000;
/// Answers are the same at every hour.
const CREATED: u64 = 1_700_000_000;
const WORDS: [&str; 8] = ["The", " quick", " brown", " fox", " jumps", " over", " lazy", " dogs"];

/// A completion that was asked for.
struct Job {
    id: String,
    is_chat: bool,
    model: String,
    prompt: Vec<u8>,
    max_tokens: u64,
    include_usage: bool,
}

pub(super) async fn answer(shared: Arc<Shared>, request: ReceivedRequest, pause: Duration) -> Response<Body> {
    let mut response = match (&request.method, request.uri.path()) {
        (&Method::POST, "/v1/chat/completions") => complete(shared.clone(), &request, true, pause).await,
        (&Method::POST, "/v1/completions") => complete(shared.clone(), &request, false, pause).await,
        (&Method::POST, path @ ("/v1/responses" | "/v1/messages")) => typed_events::answer(path, &request),
        (&Method::GET, "/v1/models") => {
            let model = json!({"id": MODEL, "object": "model", "created": CREATED, "owned_by": "demo"});
            json_body(StatusCode::OK, &json!({"object": "list", "data": [model]}))
        }
        (&Method::GET | &Method::HEAD, path) => {
            let headers: Map<String, Value> = request
                .headers
                .iter()
                .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()))
                .collect();
            json_body(StatusCode::OK, &json!({"path": path, "headers": headers}))
        }
        (method, path) => error(StatusCode::NOT_FOUND, &format!("no such route: {method} {path}")),
    };
    let name = HeaderValue::from_str(&shared.name).expect("a server's name is fit for a header");
    response.headers_mut().insert(SERVED_BY, name);
    if let Some(claim) = request.headers.get(CLAIM_ENCODING) {
        response.headers_mut().insert(CONTENT_ENCODING, claim.clone());
    }
    for claim in request.headers.get_all(CLAIM_HEADER) {
        let name = HeaderName::from_bytes(claim.as_bytes()).expect("the test names a header");
        response.headers_mut().insert(name, claim.clone());
    }
    response
}

pub(super) fn metrics(shared: &Shared) -> Response<Body> {
    const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
    if let Some(text) = lock(&shared.metrics_text).clone() {
        return body(TYPE, text);
    }
    let metrics = match &shared.engine {
        Some(engine) => engine.metrics(),
        None => lock(&shared.metrics).clone(),
    };
    body(TYPE, metrics.to_text(MODEL))
}

/// The same body in pieces of at most `size` bytes, with a pause before each.
pub(super) fn cut(mut body: Body, size: usize, pause: Duration) -> Body {
    let (mut sender, receiver) = Channel::new(1);
    tokio::spawn(async move {
        while let Some(Ok(frame)) = body.frame().await {
            let mut data = frame.into_data().unwrap_or_default();
            while !data.is_empty() {
                tokio::time::sleep(pause).await;
                if sender.send_data(data.split_to(size.min(data.len()))).await.is_err() {
                    return;
                }
            }
        }
    });
    receiver.boxed_unsync()
}

pub(super) fn error(status: StatusCode, message: &str) -> Response<Body> {
    let kind = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
    json_body(
        status,
        &json!({"error": {"message": message, "type": kind, "param": null, "code": status.as_u16()}}),
    )
}

async fn complete(
    shared: Arc<Shared>,
    request: &ReceivedRequest,
    is_chat: bool,
    pause: Duration,
) -> Response<Body> {
    let asked: Value = match serde_json::from_slice(&request.body) {
        Ok(asked @ Value::Object(_)) => asked,
        Ok(_) => return error(StatusCode::BAD_REQUEST, "the body is not a JSON object"),
        Err(reason) => return error(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {reason}")),
    };
    let job = Job::new(&asked, is_chat, &request.body);
    if asked["stream"] == true {
        let (sender, receiver) = Channel::new(1);
        // The task ends when the client does, because nobody receives its chunks any more.
        tokio::spawn(async move { job.stream(&shared, sender, pause).await });
        let mut response = Response::new(receiver.boxed_unsync());
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        return response;
    }
    tokio::time::sleep(pause).await;
    if let Some(engine) = &shared.engine {
        let mut work = engine.submit(&job.model, &job.prompt, job.max_tokens);
        while work.tokens().await.is_some() {}
    }
    json_body(StatusCode::OK, &job.whole())
}

impl Job {
    fn new(asked: &Value, is_chat: bool, body: &[u8]) -> Self {
        let prompt = if is_chat { &asked["messages"] } else { &asked["prompt"] };
        let max_tokens = [&asked["max_completion_tokens"], &asked["max_tokens"]];
        Self {
            id: format!("{}-{:016x}", if is_chat { "chatcmpl" } else { "cmpl" }, xxh64(body, 0)),
            is_chat,
            model: asked["model"].as_str().unwrap_or(MODEL).to_owned(),
            prompt: prompt
                .as_str()
                .map_or_else(|| prompt.to_string().into_bytes(), |text| text.as_bytes().to_vec()),
            max_tokens: max_tokens
                .iter()
                .find_map(|n| n.as_u64())
                .unwrap_or(DEFAULT_MAX_TOKENS)
                .clamp(1, TOKENS_LIMIT),
            include_usage: asked["stream_options"]["include_usage"] == true,
        }
    }

    fn words(&self) -> impl Iterator<Item = &'static str> + use<> {
        let count = usize::try_from(self.max_tokens).unwrap_or(usize::MAX);
        WORDS.into_iter().cycle().take(count)
    }

    fn usage(&self) -> Value {
        let prompt_tokens = self.prompt.len().div_ceil(4) as u64;
        json!({
            "prompt_tokens": prompt_tokens,
            "completion_tokens": self.max_tokens,
            "total_tokens": prompt_tokens + self.max_tokens,
        })
    }

    fn whole(&self) -> Value {
        let text: String = self.words().collect();
        let choice = if self.is_chat {
            json!({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "length"})
        } else {
            json!({"index": 0, "text": text, "logprobs": null, "finish_reason": "length"})
        };
        let object = if self.is_chat { "chat.completion" } else { "text_completion" };
        let mut answer = self.envelope(object, &json!([choice]));
        answer["usage"] = self.usage();
        answer
    }

    async fn stream(self, shared: &Shared, mut sender: Sender<Bytes>, pause: Duration) {
        let mut work =
            shared.engine.as_ref().map(|engine| engine.submit(&self.model, &self.prompt, self.max_tokens));
        let mut chunks: Vec<Value> = self.words().map(|word| self.piece(Some(word))).collect();
        chunks.push(self.piece(None));
        if self.include_usage {
            let mut chunk = self.envelope(self.chunk_object(), &json!([]));
            chunk["usage"] = self.usage();
            chunks.push(chunk);
        }
        let events = chunks.iter().map(Value::to_string).chain(["[DONE]".to_owned()]);
        let mut events = events.map(|event| format!("data: {event}\n\n"));
        loop {
            // The timer counts in milliseconds: no pause would still be one.
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            // Tokens that come together are written together; each comes by itself where no time passes.
            let count = match &mut work {
                Some(work) => {
                    work.tokens().await.map_or(usize::MAX, |new| usize::try_from(new).unwrap_or(usize::MAX))
                }
                None => 1,
            };
            let piece: String = events.by_ref().take(count).collect();
            if piece.is_empty() || sender.send_data(Bytes::from(piece)).await.is_err() {
                break;
            }
        }
    }

    fn chunk_object(&self) -> &'static str {
        if self.is_chat { "chat.completion.chunk" } else { "text_completion" }
    }

    /// One streamed word, or the end of the text.
    fn piece(&self, word: Option<&str>) -> Value {
        let finish = if word.is_some() { Value::Null } else { json!("length") };
        let choice = match (self.is_chat, word) {
            (true, Some(word)) => {
                json!({"index": 0, "delta": {"role": "assistant", "content": word}, "finish_reason": finish})
            }
            (true, None) => json!({"index": 0, "delta": {}, "finish_reason": finish}),
            (false, word) => json!({"index": 0, "text": word.unwrap_or_default(), "finish_reason": finish}),
        };
        self.envelope(self.chunk_object(), &json!([choice]))
    }

    fn envelope(&self, object: &str, choices: &Value) -> Value {
        json!({"id": self.id, "object": object, "created": CREATED, "model": self.model, "choices": choices})
    }
}

pub(super) fn json_body(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = body("application/json", value.to_string());
    *response.status_mut() = status;
    response
}

pub(super) fn body(content_type: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
