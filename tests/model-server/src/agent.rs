//! Streams of agents' requests: reasoning, text and tool calls, as vLLM sends them.
//!
//! Each word and each end of a part follows from everything before it. A sampled request without a seed gets
//! other words each time.

use super::protocol::MODEL;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh64::{Xxh64, xxh64};

const WORDS: [&str; 8] = [" the", " quick", " brown", " fox", " jumps", " über", " \"lazy\"", "\n"];

/// Maximum number of tokens of a response.
const MAX_TOKENS: usize = 4000;

/// One of this many words ends a part.
const STOPS: u64 = 24;

/// Numbers of this process, none twice.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Tokens of one kind, or the beginning of a tool call.
#[derive(Clone)]
enum Part {
    Reasoning(String),
    Text(String),
    Call(String),
    Arguments(String),
}

/// A response before it is written as events.
struct Generation {
    parts: Vec<Part>,
    tokens: usize,
    is_at_limit: bool,
}

/// The words that are generated one after another.
struct Chain {
    before: Xxh64,
    left: usize,
}

/// Whether a request is one of an agent.
pub(crate) fn is_agents(request: &Value) -> bool {
    request["tools"].as_array().is_some_and(|tools| !tools.is_empty()) || has_reasoning(request)
}

fn has_reasoning(request: &Value) -> bool {
    ["reasoning", "reasoning_effort", "thinking"].iter().any(|name| !request[*name].is_null())
}

/// The events of the streamed response to a request with this path, and the number of its tokens.
pub fn events(path: &str, request: &Value, server: &str) -> (Vec<String>, usize) {
    let prompt = &request[if path == "/v1/responses" { "input" } else { "messages" }];
    let generation = Generation::of(request, prompt);
    let stream = Stream {
        server: server.to_owned(),
        model: request["model"].as_str().unwrap_or(MODEL).to_owned(),
        usage: (prompt.to_string().len().div_ceil(4), generation.tokens),
        events: Vec::new(),
    };
    let events = match path {
        "/v1/responses" => stream.responses(&generation),
        "/v1/messages" => stream.messages(&generation),
        _ => stream.chat(&generation, request["stream_options"]["include_usage"] == true),
    };
    (events, generation.tokens)
}

impl Chain {
    fn add(&mut self, text: &str) {
        self.before.update(text.as_bytes());
    }

    /// A number that follows from everything before.
    fn choice(&self, count: usize) -> usize {
        usize::try_from(self.before.digest() >> 40).unwrap_or_default() % count.max(1)
    }

    fn words(&mut self, mut may_stop: bool) -> Vec<&'static str> {
        let mut words = Vec::new();
        while self.left > 0 && !(may_stop && self.before.digest().is_multiple_of(STOPS)) {
            let word = WORDS[self.choice(WORDS.len())];
            self.add(word);
            words.push(word);
            self.left -= 1;
            may_stop = true;
        }
        words
    }
}

impl Generation {
    fn of(request: &Value, prompt: &Value) -> Self {
        let mut messages = prompt.as_array().cloned().unwrap_or_else(|| vec![prompt.clone()]);
        let open = if request["continue_final_message"] == true { messages.pop() } else { None };
        let text = open.as_ref().and_then(|message| message["content"].as_str()).unwrap_or_default();
        let limits = ["max_completion_tokens", "max_output_tokens", "max_tokens"];
        let limit = limits.iter().find_map(|name| request[*name].as_u64());
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MAX_TOKENS).min(MAX_TOKENS);
        let mut chain = Chain { before: Xxh64::new(0), left: limit };
        chain.add(&Value::from(messages).to_string());
        if request["temperature"] != 0 {
            chain.add(&match &request["seed"] {
                // No seed is written so: with the number alone, the eighth request had the words of seed 7.
                Value::Null => format!("request {}", COUNT.fetch_add(1, Ordering::Relaxed)),
                seed => seed.to_string(),
            });
        }
        let mut parts = Vec::new();
        if open.is_none() && has_reasoning(request) {
            parts.extend(chain.words(false).into_iter().map(|word| Part::Reasoning(word.to_owned())));
            chain.add("</think>");
        }
        chain.add(text);
        parts.extend(chain.words(!text.is_empty()).into_iter().map(|word| Part::Text(word.to_owned())));
        let names: Vec<&str> = request["tools"].as_array().map_or(Vec::new(), |tools| {
            tools
                .iter()
                .filter_map(|tool| tool["name"].as_str().or(tool["function"]["name"].as_str()))
                .collect()
        });
        for _ in 0..if names.is_empty() { 0 } else { 1 + chain.choice(2) } {
            if chain.left == 0 {
                break;
            }
            let name = names[chain.choice(names.len())];
            parts.extend([Part::Call(name.to_owned()), Part::Arguments("{\"q\":\"".to_owned())]);
            chain.add(name);
            let words = chain.words(false);
            let escaped = words.into_iter().map(|word| word.replace('"', "\\\"").replace('\n', "\\n"));
            parts.extend(escaped.map(Part::Arguments));
            if chain.left > 0 {
                parts.push(Part::Arguments("\"}".to_owned()));
            }
        }
        Self { parts, tokens: limit - chain.left, is_at_limit: chain.left == 0 }
    }

    /// The parts with this many tokens of one kind together, as a server sends them that is busy.
    fn together(&self, count: usize) -> Vec<Part> {
        let mut together: Vec<Part> = Vec::new();
        let mut left = 0;
        for part in &self.parts {
            let joined = match (together.last_mut(), part) {
                (Some(Part::Reasoning(last)), Part::Reasoning(new))
                | (Some(Part::Text(last)), Part::Text(new))
                | (Some(Part::Arguments(last)), Part::Arguments(new))
                    if left > 0 =>
                {
                    last.push_str(new);
                    true
                }
                _ => false,
            };
            if joined {
                left -= 1;
            } else {
                together.push(part.clone());
                left = count - 1;
            }
        }
        together
    }

    fn calls(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, Part::Call(_))).count()
    }
}

/// A stream of events of one server.
struct Stream {
    server: String,
    model: String,
    usage: (usize, usize),
    events: Vec<String>,
}

impl Stream {
    /// An id that no other response has.
    fn id(&self, prefix: &str) -> String {
        format!("{prefix}-{}-{:x}", self.server, COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// Tokens in an event.
    fn size(&self) -> usize {
        1 + usize::try_from(xxh64(self.server.as_bytes(), 0) % 3).unwrap_or_default()
    }

    fn chat(mut self, generation: &Generation, includes_usage: bool) -> Vec<String> {
        let (id, model) = (self.id("chatcmpl"), self.model.clone());
        let event = |choices: &Value| {
            let object = "chat.completion.chunk";
            json!({"id": id, "object": object, "created": 1, "model": model, "choices": choices})
        };
        let choice = |delta: Value, finish: Option<&str>| json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
        let mut events = vec![event(&choice(json!({"role": "assistant", "content": ""}), None))];
        let mut calls = 0;
        for part in generation.together(self.size()) {
            let delta = match part {
                Part::Reasoning(text) => json!({"reasoning": text}),
                Part::Text(text) => json!({"content": text}),
                Part::Call(name) => {
                    calls += 1;
                    let call = json!({"index": calls - 1, "id": self.id("call"), "type": "function",
                        "function": {"name": name, "arguments": ""}});
                    json!({"tool_calls": [call]})
                }
                Part::Arguments(text) => {
                    json!({"tool_calls": [{"index": calls - 1, "function": {"arguments": text}}]})
                }
            };
            events.push(event(&choice(delta, None)));
        }
        let reason = match calls {
            _ if generation.is_at_limit => "length",
            0 => "stop",
            _ => "tool_calls",
        };
        events.push(event(&choice(json!({}), Some(reason))));
        if includes_usage {
            let mut last = event(&json!([]));
            let (input, output) = self.usage;
            last["usage"] =
                json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
            events.push(last);
        }
        self.events.extend(events.iter().map(|event| format!("data: {event}\n\n")));
        self.events.push("data: [DONE]\n\n".to_owned());
        self.events
    }

    /// Adds an event with a type, which is its member too.
    fn add(&mut self, kind: &str, mut event: Value) {
        event["type"] = kind.into();
        self.events.push(format!("event: {kind}\ndata: {event}\n\n"));
    }

    fn messages(mut self, generation: &Generation) -> Vec<String> {
        let message = json!({"id": self.id("msg"), "type": "message", "role": "assistant", "content": [],
            "model": self.model, "usage": {"input_tokens": self.usage.0, "output_tokens": 0}});
        self.add("message_start", json!({"message": message}));
        let mut open: Option<&str> = None;
        let mut index = 0;
        for part in generation.together(self.size()) {
            let (kind, block) = match &part {
                Part::Reasoning(_) => ("thinking", json!({"type": "thinking", "thinking": ""})),
                Part::Text(_) => ("text", json!({"type": "text", "text": ""})),
                Part::Call(name) => {
                    ("call", json!({"type": "tool_use", "id": self.id("toolu"), "name": name, "input": {}}))
                }
                Part::Arguments(_) => ("tool_use", json!({})),
            };
            if open != Some(kind) && kind != "tool_use" {
                if open.is_some() {
                    self.add("content_block_stop", json!({"index": index}));
                    index += 1;
                }
                self.add("content_block_start", json!({"index": index, "content_block": block}));
            }
            open = Some(kind);
            let delta = match part {
                Part::Reasoning(text) => json!({"type": "thinking_delta", "thinking": text}),
                Part::Text(text) => json!({"type": "text_delta", "text": text}),
                Part::Arguments(text) => json!({"type": "input_json_delta", "partial_json": text}),
                Part::Call(_) => continue,
            };
            self.add("content_block_delta", json!({"index": index, "delta": delta}));
        }
        if open.is_some() {
            self.add("content_block_stop", json!({"index": index}));
        }
        let reason = match generation.calls() {
            _ if generation.is_at_limit => "max_tokens",
            0 => "end_turn",
            _ => "tool_use",
        };
        let usage = json!({"input_tokens": self.usage.0, "output_tokens": self.usage.1});
        self.add("message_delta", json!({"delta": {"stop_reason": reason}, "usage": usage}));
        self.add("message_stop", json!({}));
        self.events.push("data: [DONE]\n\n".to_owned());
        self.events
    }

    fn responses(mut self, generation: &Generation) -> Vec<String> {
        let created = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut whole = json!({"id": self.id("resp"), "object": "response", "created_at": created,
            "status": "in_progress", "model": self.model, "output": [], "usage": null});
        self.add("response.created", json!({"response": whole}));
        self.add("response.in_progress", json!({"response": whole}));
        // The kind of the open item, the item, and its text.
        let mut open: Option<(&str, Value, String)> = None;
        let mut output = Vec::new();
        for part in generation.together(self.size()) {
            let (kind, item) = match &part {
                Part::Reasoning(_) => {
                    ("reasoning", json!({"type": "reasoning", "id": self.id("rs"), "summary": []}))
                }
                Part::Text(_) => (
                    "message",
                    json!({"type": "message", "id": self.id("msg"), "role": "assistant", "content": []}),
                ),
                Part::Call(name) => (
                    "function_call",
                    json!({"type": "function_call", "id": self.id("fc"), "call_id": self.id("call"),
                        "name": name, "arguments": ""}),
                ),
                Part::Arguments(_) => ("function_call", Value::Null),
            };
            let continues = open.as_ref().is_some_and(|(last, ..)| *last == kind);
            if !continues || matches!(part, Part::Call(_)) {
                if let Some(item) = open.take() {
                    output.push(self.close(item, output.len()));
                }
                self.open(kind, &item, output.len());
                open = Some((kind, item, String::new()));
            }
            let (Part::Reasoning(text) | Part::Text(text) | Part::Arguments(text)) = part else { continue };
            let Some((_, item, so_far)) = &mut open else { continue };
            so_far.push_str(&text);
            let mut delta = json!({"output_index": output.len(), "item_id": item["id"], "delta": text});
            let name = match kind {
                "reasoning" => "response.reasoning_text.delta",
                "message" => "response.output_text.delta",
                _ => "response.function_call_arguments.delta",
            };
            if kind != "function_call" {
                delta["content_index"] = 0.into();
            }
            self.add(name, delta);
        }
        if let Some(item) = open {
            output.push(self.close(item, output.len()));
        }
        let (input, tokens) = self.usage;
        whole["status"] = if generation.is_at_limit { "incomplete" } else { "completed" }.into();
        whole["output"] = output.into();
        whole["usage"] =
            json!({"input_tokens": input, "output_tokens": tokens, "total_tokens": input + tokens});
        let last = if generation.is_at_limit { "response.incomplete" } else { "response.completed" };
        self.add(last, json!({"response": whole}));
        self.numbered()
    }

    fn open(&mut self, kind: &str, item: &Value, index: usize) {
        self.add("response.output_item.added", json!({"output_index": index, "item": item}));
        if let Some(part) = part_kind(kind) {
            let part = json!({"type": part, "text": ""});
            let added =
                json!({"output_index": index, "item_id": item["id"], "content_index": 0, "part": part});
            self.add("response.content_part.added", added);
        }
    }

    /// Ends an item. Returns it whole.
    fn close(&mut self, (kind, mut item, text): (&str, Value, String), index: usize) -> Value {
        let mut done = json!({"output_index": index, "item_id": item["id"]});
        if let Some(part) = part_kind(kind) {
            done["content_index"] = 0.into();
            done["text"] = text.clone().into();
            self.add(&format!("response.{part}.done"), done.clone());
            done["text"].take();
            done["part"] = json!({"type": part, "text": text});
            self.add("response.content_part.done", done.clone());
            item["content"] = json!([done["part"]]);
        } else {
            done["arguments"] = text.clone().into();
            self.add("response.function_call_arguments.done", done);
            item["arguments"] = text.into();
        }
        self.add("response.output_item.done", json!({"output_index": index, "item": item}));
        item
    }

    /// The events with their numbers.
    fn numbered(self) -> Vec<String> {
        let number = |(number, event): (usize, String)| {
            event.replacen("data: {", &format!("data: {{\"sequence_number\":{number},"), 1)
        };
        self.events.into_iter().enumerate().map(number).collect()
    }
}

/// The kind of an item's part; tool calls have none.
fn part_kind(kind: &str) -> Option<&'static str> {
    match kind {
        "reasoning" => Some("reasoning_text"),
        "message" => Some("output_text"),
        _ => None,
    }
}
