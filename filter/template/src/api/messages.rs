//! Anthropic's messages.

use minijinja::Value;
use serde::Deserialize;

use super::{ObjectMembers, TextOrList};
use crate::Unrendered;
use crate::chat::{BILLING_HEADER, Call, Chat, Content, Function, Message, Part};

/// The members of a request that a template can see.
#[derive(Deserialize)]
pub(crate) struct Request {
    messages: Vec<AnthropicMessage>,
    system: Option<TextOrList<MessageBlock>>,
    tools: Option<Vec<MessagesTool>>,
    thinking: Option<Thinking>,
    output_config: Option<OutputConfig>,
    chat_template_kwargs: Option<ObjectMembers>,
}

#[derive(Deserialize)]
struct AnthropicMessage {
    role: String,
    content: TextOrList<MessageBlock>,
}

/// A block of a message, with the members of all types.
#[derive(Deserialize)]
struct MessageBlock {
    r#type: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    tool_use_id: Option<String>,
    name: Option<String>,
    input: Option<Value>,
    content: Option<TextOrList<ResultBlock>>,
}

#[derive(Deserialize)]
struct ResultBlock {
    r#type: String,
    text: Option<String>,
}

#[derive(Deserialize)]
struct MessagesTool {
    name: Value,
    description: Option<Value>,
    input_schema: ObjectMembers,
    strict: Option<Value>,
    defer_loading: Option<Value>,
}

#[derive(Deserialize)]
struct Thinking {
    r#type: String,
}

#[derive(Deserialize)]
struct OutputConfig {
    effort: Option<String>,
}

/// How the server changes requests, which it finds by its template.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adaptation {
    /// Whether all system messages are joined to the first, because the template refuses others.
    pub(crate) merges_systems: bool,
    /// The effort of a request that disables thinking.
    pub(crate) disabled_effort: &'static str,
}

/// The chat of a request.
pub(crate) fn read(request: Request, adaptation: Adaptation) -> Result<Chat, Unrendered> {
    let Request { messages, system, tools, thinking, output_config, chat_template_kwargs } = request;
    let mut systems: Vec<String> = match system {
        None => Vec::new(),
        Some(TextOrList::Text(text)) => vec![text],
        Some(TextOrList::List(blocks)) => system_texts(blocks)?,
    };
    let mut chat = Vec::new();
    for AnthropicMessage { role, content } in messages {
        if role == "system" {
            let text = match content {
                TextOrList::Text(text) => Some(text).filter(|text| !text.starts_with(BILLING_HEADER)),
                TextOrList::List(blocks) => Some(system_texts(blocks)?.concat()),
            };
            let text = text.filter(|text| !text.is_empty());
            if adaptation.merges_systems {
                systems.extend(text);
            } else {
                chat.extend(text.map(|text| Message::text("system", text)));
            }
            continue;
        }
        match content {
            TextOrList::Text(text) => chat.push(Message::text(&role, text)),
            TextOrList::List(blocks) => push_blocks(role, blocks, &mut chat)?,
        }
    }
    let system = systems.concat();
    if !system.is_empty() {
        chat.insert(0, Message::text("system", system));
    }
    let effort = output_config.and_then(|config| config.effort);
    let is_disabled = thinking.is_some_and(|thinking| thinking.r#type == "disabled");
    Ok(Chat {
        messages: chat,
        tools: tools.map(|tools| tools.into_iter().map(tool).collect()),
        documents: None,
        reasoning_effort: if is_disabled { Some(adaptation.disabled_effort.to_owned()) } else { effort },
        variables: chat_template_kwargs.unwrap_or_default().variables()?,
        adds_generation_prompt: true,
    })
}

/// The texts of a system message. A block with the header has none.
fn system_texts(blocks: Vec<MessageBlock>) -> Result<Vec<String>, Unrendered> {
    if blocks.iter().any(|block| block.r#type.starts_with("tool_")) {
        return Err(Unrendered::Unsupported("a change of tools"));
    }
    let texts = blocks.into_iter().filter(|block| block.r#type == "text").filter_map(|block| block.text);
    Ok(texts.filter(|text| !text.is_empty() && !text.starts_with(BILLING_HEADER)).collect())
}

/// Adds the message of these blocks. Results of tools become messages before it.
fn push_blocks(role: String, blocks: Vec<MessageBlock>, chat: &mut Vec<Message>) -> Result<(), Unrendered> {
    let (mut texts, mut tool_calls, mut reasoning) = (Vec::new(), Vec::new(), None::<String>);
    for block in blocks {
        match block.r#type.as_str() {
            "text" => texts.extend(block.text.filter(|text| !text.is_empty())),
            "thinking" => {
                if let Some(thinking) = block.thinking {
                    reasoning.get_or_insert_default().push_str(&thinking);
                }
            }
            "redacted_thinking" | "tool_reference" => {}
            "tool_use" => tool_calls.push(tool_use(block)?),
            "tool_result" if role == "user" => chat.push(Message {
                role: "tool".to_owned(),
                content: Some(Content::Text(result(block.content)?)),
                tool_call_id: Some(block.tool_use_id.unwrap_or_default().into()),
                ..Message::default()
            }),
            "tool_result" => match block.content {
                None => texts.push("Tool result: ".to_owned()),
                Some(TextOrList::Text(text)) => texts.push(format!("Tool result: {text}")),
                Some(TextOrList::List(_)) => return Err(Unrendered::Content),
            },
            _ => return Err(Unrendered::Content),
        }
    }
    let content = (!texts.is_empty()).then(|| Content::Parts(texts.into_iter().map(Part::Text).collect()));
    if role != "user" || content.is_some() {
        chat.push(Message { role, content, reasoning, tool_calls, ..Message::default() });
    }
    Ok(())
}

fn tool_use(block: MessageBlock) -> Result<Call, Unrendered> {
    // The server would make one of the time.
    let id = block.id.filter(|id| !id.is_empty()).ok_or(Unrendered::Unsupported("a tool_use without id"))?;
    let input = block.input.unwrap_or_default();
    let name = Value::from(block.name.unwrap_or_default());
    Ok(Call::of(id, [("arguments", input), ("name", name)]))
}

/// The text of a tool's result.
fn result(content: Option<TextOrList<ResultBlock>>) -> Result<String, Unrendered> {
    let blocks = match content {
        None => return Ok(String::new()),
        Some(TextOrList::Text(text)) => return Ok(text),
        Some(TextOrList::List(blocks)) => blocks,
    };
    if blocks.iter().any(|block| matches!(block.r#type.as_str(), "image" | "tool_reference")) {
        return Err(Unrendered::Content);
    }
    let texts = blocks.into_iter().filter(|block| block.r#type == "text");
    Ok(texts.map(|block| block.text.unwrap_or_default()).collect::<Vec<_>>().join("\n"))
}

fn tool(tool: MessagesTool) -> Value {
    let MessagesTool { name, description, input_schema: ObjectMembers(mut schema), strict, defer_loading } =
        tool;
    if !schema.iter().any(|(name, _)| name == "type") {
        schema.push(("type".to_owned(), "object".into()));
    }
    let parameters = Some(Value::from_pairs(schema));
    Function { name, description, parameters, strict, defer_loading }.tool(None)
}
