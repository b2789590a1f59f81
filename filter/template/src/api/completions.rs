//! OpenAI's chat completions.

use core::fmt;

use minijinja::Value;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::{ObjectMembers, TextOrList};
use crate::Unrendered;
use crate::chat::{Call, Chat, Content, Function, Message, Part, member};

/// The members of a request that a template can see.
#[derive(Deserialize)]
pub(crate) struct Request {
    messages: Vec<RequestMessage>,
    tools: Option<Vec<ChatTool>>,
    documents: Option<Value>,
    reasoning_effort: Option<String>,
    chat_template: Option<IgnoredAny>,
    chat_template_kwargs: Option<ObjectMembers>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
}

#[derive(Deserialize)]
struct ChatTool {
    function: Function,
    defer_loading: Option<Value>,
}

#[derive(Deserialize)]
struct RequestMessage {
    role: String,
    content: Option<TextOrList<Part>>,
    name: Option<Value>,
    reasoning: Option<String>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<Value>>,
    tool_call_id: Option<Value>,
    tools: Option<Value>,
}

/// The chat of a request.
pub(crate) fn read(request: Request) -> Result<Chat, Unrendered> {
    if request.chat_template.is_some() {
        return Err(Unrendered::Unsupported("chat_template"));
    }
    if request.continue_final_message == Some(true) {
        return Err(Unrendered::Unsupported("continue_final_message"));
    }
    let message = |message: RequestMessage| Message {
        role: message.role,
        content: message.content.map(Content::from),
        name: message.name,
        reasoning: message.reasoning.or(message.reasoning_content),
        tool_calls: message.tool_calls.unwrap_or_default().into_iter().map(validated).collect(),
        tool_call_id: message.tool_call_id,
        tools: message.tools,
    };
    let tool = |tool: ChatTool| tool.function.tool(tool.defer_loading);
    Ok(Chat {
        messages: request.messages.into_iter().map(message).collect(),
        tools: request.tools.map(|tools| tools.into_iter().map(tool).collect()),
        documents: request.documents,
        reasoning_effort: request.reasoning_effort,
        variables: request.chat_template_kwargs.unwrap_or_default().variables()?,
        adds_generation_prompt: request.add_generation_prompt.unwrap_or(true),
    })
}

/// The members of a call that the types of vLLM have.
#[expect(clippy::needless_pass_by_value, reason = "each call is dropped when the next one is made")]
fn validated(call: Value) -> Call {
    let function = member(&call, "function").map(|function| {
        let present = ["arguments", "name"].into_iter();
        present.filter_map(|name| Some((name, member(&function, name)?))).collect()
    });
    Call { id: member(&call, "id"), function, kind: member(&call, "type") }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextPart;
        impl<'de> Visitor<'de> for TextPart {
            type Value = Part;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part of a message")
            }

            fn visit_str<E>(self, text: &str) -> Result<Part, E> {
                Ok(Part::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
                let (mut kind, mut text, mut refusal) = (None, None, None);
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "type" => kind = map.next_value::<Value>()?.as_str().map(str::to_owned),
                        "text" => text = map.next_value::<Value>()?.as_str().map(str::to_owned),
                        "refusal" => refusal = map.next_value::<Value>()?.as_str().map(str::to_owned),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Part::of(kind.as_deref(), text, refusal))
            }
        }
        deserializer.deserialize_any(TextPart)
    }
}
