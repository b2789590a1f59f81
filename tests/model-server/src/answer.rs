//! Answers in the shapes of the OpenAI API.

use super::agent;
use super::body::{Body, body, error, json_body};
use super::event_stream::{self, send_events};
use super::protocol::{CLAIM_ENCODING, CLAIM_HEADER, MODEL, SERVED_BY, SERVED_MODEL};
use super::request::ReceivedRequest;
use super::state::{State, lock};
use super::stored;
use super::typed_events;
use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::channel::{Channel, Sender};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use xxhash_rust::xxh64::{Xxh64, xxh64};

const DEFAULT_MAX_TOKENS: u64 = 16;
/// More than any test requests; a hostile number must not fill the memory.
const TOKENS_LIMIT: u64 = 100_000;
/// Maximum length of the name of a model in the response's header, in bytes.
const MAX_MODEL_IN_HEADER: usize = 256;
/// A fixed time, so that equal requests get equal responses.
const CREATED: u64 = 1_700_000_000;
/// The tokens of texts. One is a blank, and one has a letter of several bytes.
const WORDS: [&str; 8] = [" the", " quick", " brown", " fox", " jumps", " über", " lazy", "\n"];

/// The parameters of a requested completion.
struct Completion {
    id: String,
    is_chat: bool,
    model: String,
    prompt: Vec<u8>,
    /// Everything before the text. It determines the first word.
    context: Xxh64,
    max_tokens: u64,
    include_usage: bool,
}

/// A chat as the tokens before its response: the last message is open if the response continues it.
fn chat_context(messages: &Value, continues_last: bool) -> Xxh64 {
    let mut context = Xxh64::new(0);
    let mut add = |role: &str, content: &Value, is_open: bool| {
        let content = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        for part in [role, "\0", &content, if is_open { "" } else { "\0" }] {
            context.update(part.as_bytes());
        }
    };
    let messages = messages.as_array().map_or(&[][..], Vec::as_slice);
    for (index, message) in messages.iter().enumerate() {
        let is_open = continues_last && index + 1 == messages.len();
        add(message["role"].as_str().unwrap_or_default(), &message["content"], is_open);
    }
    if !continues_last {
        add("assistant", &json!(""), true);
    }
    context
}

pub(crate) async fn answer(shared: Arc<State>, request: ReceivedRequest, pause: Duration) -> Response<Body> {
    let mut response = match (&request.method, request.uri.path()) {
        (&Method::POST, "/v1/chat/completions") => complete(shared.clone(), &request, true, pause).await,
        (&Method::POST, "/v1/completions") => complete(shared.clone(), &request, false, pause).await,
        (&Method::POST, path @ ("/v1/responses" | "/v1/messages")) => {
            typed_events::answer(shared.clone(), path, &request, pause)
        }
        (&Method::POST, "/v1/conversations") => json_body(
            StatusCode::OK,
            &json!({"id": stored::store(&shared, "conv"), "object": "conversation"}),
        ),
        (method, path) if stored::id_in(path).is_some() => stored::answer(&shared, method, path),
        (&Method::GET, "/v1/models") => {
            let model = json!({"id": MODEL, "object": "model", "created": CREATED, "owned_by": "demo"});
            json_body(StatusCode::OK, &json!({"object": "list", "data": [model]}))
        }
        (&Method::GET, "/kv_event_sources") => json_body(StatusCode::OK, &lock(&shared.kv_event_sources)),
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

/// Whether a request is answered by its own path also where all others get completions.
pub(crate) fn is_known(request: &ReceivedRequest) -> bool {
    request.method != Method::POST || matches!(request.uri.path(), "/v1/messages" | "/v1/responses")
}

pub(crate) fn metrics(shared: &State) -> Response<Body> {
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

async fn complete(
    shared: Arc<State>,
    request: &ReceivedRequest,
    is_chat: bool,
    pause: Duration,
) -> Response<Body> {
    let request_json: Value = match serde_json::from_slice(&request.body) {
        Ok(request_json @ Value::Object(_)) => request_json,
        Ok(_) => return error(StatusCode::BAD_REQUEST, "the body is not a JSON object"),
        Err(reason) => return error(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {reason}")),
    };
    if is_chat && request_json["stream"] == true && agent::is_agents(&request_json) {
        return event_stream::agents(shared, request.uri.path(), &request_json, pause);
    }
    let completion = Completion::new(&request_json, is_chat, &request.body);
    let model = HeaderValue::from_str(&completion.model);
    let mut response = if request_json["stream"] == true {
        let (sender, receiver) = Channel::new(1);
        // The task ends when the client does, because sending a chunk fails then.
        tokio::spawn(async move { completion.stream(&shared, sender, pause).await });
        let mut response = Response::new(receiver.boxed_unsync());
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        response
    } else {
        tokio::time::sleep(pause).await;
        if let Some(engine) = &shared.engine {
            let mut work = engine.submit(&completion.model, &completion.prompt, completion.max_tokens);
            while work.tokens().await.is_some() {}
        }
        json_body(StatusCode::OK, &completion.whole())
    };
    // A name that is long, or has a line break in it, is for the body alone: proxies limit their headers.
    if let Some(model) = model.ok().filter(|model| model.len() <= MAX_MODEL_IN_HEADER) {
        response.headers_mut().insert(SERVED_MODEL, model);
    }
    response
}

impl Completion {
    fn new(request_json: &Value, is_chat: bool, body: &[u8]) -> Self {
        let prompt = if is_chat { &request_json["messages"] } else { &request_json["prompt"] };
        let prompt_text = || {
            prompt.as_str().map_or_else(|| prompt.to_string().into_bytes(), |text| text.as_bytes().to_vec())
        };
        let context = if is_chat {
            chat_context(prompt, request_json["continue_final_message"] == true)
        } else {
            let mut context = Xxh64::new(0);
            context.update(&prompt_text());
            context
        };
        let max_tokens = [&request_json["max_completion_tokens"], &request_json["max_tokens"]];
        Self {
            id: format!("{}-{:016x}", if is_chat { "chatcmpl" } else { "cmpl" }, xxh64(body, 0)),
            is_chat,
            model: request_json["model"].as_str().unwrap_or(MODEL).to_owned(),
            prompt: prompt_text(),
            context,
            max_tokens: max_tokens
                .iter()
                .find_map(|n| n.as_u64())
                .unwrap_or(DEFAULT_MAX_TOKENS)
                .clamp(1, TOKENS_LIMIT),
            include_usage: request_json["stream_options"]["include_usage"] == true,
        }
    }

    /// The words of the text. Each follows from everything before it, as those of a real model with a
    /// temperature of 0, so a text that another server continues is the same only if nothing is lost and
    /// nothing is added.
    fn words(&self) -> impl Iterator<Item = &'static str> + use<> {
        let count = usize::try_from(self.max_tokens).unwrap_or(usize::MAX);
        let mut context = self.context.clone();
        let next = move || {
            let choice = context.digest() % WORDS.len() as u64;
            let word = WORDS[usize::try_from(choice).expect("less than the number of words")];
            context.update(word.as_bytes());
            word
        };
        core::iter::repeat_with(next).take(count)
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

    async fn stream(self, shared: &State, sender: Sender<Bytes>, pause: Duration) {
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
        let events = events.map(|event| format!("data: {event}\n\n"));
        send_events(events, &mut work, sender, pause).await;
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
