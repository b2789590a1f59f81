//! The requests: kinds of streams as agents ask for them.

use crate::words::words;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_model_server::MODEL;
use serde_json::{Value, json};
use std::fmt;

/// Tokens of a response: the model ends none before.
const TOKENS: u64 = 200;
const PROMPT_WORDS: usize = 60;

/// A kind of streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    Chat,
    ChatReasoning,
    ChatTool,
    Responses,
    ResponsesReasoning,
    ResponsesTool,
    MessagesReasoning,
    MessagesTool,
}

impl StreamKind {
    pub(super) const ALL: [Self; 8] = [
        Self::Chat,
        Self::ChatReasoning,
        Self::ChatTool,
        Self::Responses,
        Self::ResponsesReasoning,
        Self::ResponsesTool,
        Self::MessagesReasoning,
        Self::MessagesTool,
    ];

    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat | Self::ChatReasoning | Self::ChatTool => "/v1/chat/completions",
            Self::Responses | Self::ResponsesReasoning | Self::ResponsesTool => "/v1/responses",
            Self::MessagesReasoning | Self::MessagesTool => "/v1/messages",
        }
    }

    /// A request with a prompt of these words.
    pub(super) fn request(self, rng: &mut SplitMix64) -> Value {
        let prompt = words(rng, PROMPT_WORDS);
        let mut request = json!({"model": MODEL, "stream": true, "temperature": 0});
        let messages = json!([{"role": "user", "content": prompt}]);
        let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        let of_api = match self.path() {
            "/v1/chat/completions" => json!({
                "messages": messages, "max_tokens": TOKENS,
                "stream_options": {"include_usage": true, "continuous_usage_stats": true},
            }),
            "/v1/responses" => json!({"input": prompt, "max_output_tokens": TOKENS, "store": false}),
            _ => json!({"messages": messages, "max_tokens": TOKENS}),
        };
        let of_kind = match self {
            Self::Chat | Self::Responses => json!({}),
            Self::ChatReasoning => {
                json!({"reasoning_effort": "high", "chat_template_kwargs": {"thinking": true}})
            }
            Self::ResponsesReasoning => {
                json!({"reasoning": {"effort": "medium"}, "chat_template_kwargs": {"thinking": true}})
            }
            Self::ChatTool => json!({
                "tools": [{"type": "function", "function": {"name": "read", "parameters": schema}}],
                "tool_choice": {"type": "function", "function": {"name": "read"}},
            }),
            Self::ResponsesTool => json!({
                "tools": [{"type": "function", "name": "read", "parameters": schema}],
                "tool_choice": {"type": "function", "name": "read"},
            }),
            // vLLM takes no budget of thinking below 1024 tokens.
            Self::MessagesReasoning => json!({"chat_template_kwargs": {"thinking": true}}),
            Self::MessagesTool => json!({
                "tools": [{"name": "read", "input_schema": schema}],
                "tool_choice": {"type": "tool", "name": "read"},
            }),
        };
        for part in [of_api, of_kind] {
            if let (Value::Object(request), Value::Object(part)) = (&mut request, part) {
                request.extend(part);
            }
        }
        request
    }
}

impl fmt::Display for StreamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chat => "chat",
            Self::ChatReasoning => "chat, reasoning",
            Self::ChatTool => "chat, a tool call",
            Self::Responses => "responses",
            Self::ResponsesReasoning => "responses, reasoning",
            Self::ResponsesTool => "responses, a tool call",
            Self::MessagesReasoning => "messages, reasoning",
            Self::MessagesTool => "messages, a tool call",
        })
    }
}
