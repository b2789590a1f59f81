//! OpenAI's responses.

use minijinja::Value;
use serde::Deserialize;

use super::{ObjectMembers, TextOrList};
use crate::Unrendered;
use crate::chat::{Call, Chat, Content, Function, Message, Part};

/// The members of a request that a template can see.
#[derive(Deserialize)]
pub(crate) struct Request {
    input: TextOrList<ResponsesItem>,
    instructions: Option<String>,
    previous_response_id: Option<String>,
    reasoning: Option<Reasoning>,
    tools: Option<Vec<Tool>>,
    chat_template_kwargs: Option<ObjectMembers>,
}

/// An item, with the members of all types.
#[derive(Deserialize)]
struct ResponsesItem {
    r#type: Option<String>,
    role: Option<String>,
    status: Option<String>,
    content: Option<TextOrList<ItemPart>>,
    call_id: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    arguments: Option<String>,
    output: Option<TextOrList<ItemPart>>,
    #[serde(default)]
    summary: Vec<ItemPart>,
    encrypted_content: Option<String>,
}

#[derive(Deserialize)]
struct ItemPart {
    r#type: Option<String>,
    text: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize)]
struct Reasoning {
    effort: Option<String>,
}

#[derive(Deserialize)]
struct Tool {
    r#type: String,
    name: Option<Value>,
    description: Option<Value>,
    parameters: Option<Value>,
    strict: Option<Value>,
    defer_loading: Option<Value>,
}

/// The chat of a request.
pub(crate) fn read(request: Request) -> Result<Chat, Unrendered> {
    if request.previous_response_id.is_some() {
        return Err(Unrendered::Unsupported("previous_response_id"));
    }
    let mut messages = Vec::new();
    let instructions = request.instructions.filter(|text| !text.is_empty());
    messages.extend(instructions.map(|text| Message::text("system", text)));
    match request.input {
        TextOrList::Text(input) => messages.push(Message::text("user", input)),
        TextOrList::List(items) => {
            let is_open = |item: &ResponsesItem| {
                matches!(item.kind(), "message" | "reasoning")
                    && matches!(item.status.as_deref(), Some("in_progress" | "incomplete"))
            };
            if items.last().is_some_and(is_open) {
                return Err(Unrendered::Unsupported("a last message that is continued"));
            }
            // Items continue messages of the input only.
            let mut input = Vec::new();
            items.into_iter().try_for_each(|item| item.push(&mut input))?;
            messages.append(&mut input);
        }
    }
    Ok(Chat {
        messages,
        tools: tools(request.tools.unwrap_or_default())?,
        documents: None,
        reasoning_effort: request.reasoning.and_then(|reasoning| reasoning.effort),
        variables: request.chat_template_kwargs.unwrap_or_default().variables()?,
        adds_generation_prompt: true,
    })
}

impl ResponsesItem {
    fn kind(&self) -> &str {
        self.r#type.as_deref().unwrap_or("message")
    }

    /// Adds the item to the last message, if it continues it, or as a message.
    fn push(self, messages: &mut Vec<Message>) -> Result<(), Unrendered> {
        let last = messages.last_mut().filter(|message| message.role == "assistant");
        let mut new = Message { role: "assistant".to_owned(), ..Message::default() };
        match (self.kind(), self.role.as_deref()) {
            ("function_call", _) => {
                let call = self.call()?;
                if let Some(last) = last {
                    last.tool_calls.push(call);
                } else {
                    new.tool_calls.push(call);
                    messages.push(new);
                }
            }
            ("function_call_output", _) => messages.push(Message {
                role: "tool".to_owned(),
                content: self.output.map(Content::from),
                tool_call_id: self.call_id.map(Value::from),
                ..Message::default()
            }),
            ("reasoning", _) => {
                if self.encrypted_content.is_some_and(|content| !content.is_empty()) {
                    return Err(Unrendered::Unsupported("encrypted_content"));
                }
                let own = match self.content {
                    Some(TextOrList::List(parts)) => parts.into_iter().next(),
                    Some(TextOrList::Text(_)) | None => None,
                };
                let part = own.or_else(|| self.summary.into_iter().next());
                let reasoning = part.and_then(|part| part.text).unwrap_or_default();
                match last.filter(|last| last.reasoning.is_none()) {
                    Some(last) => last.reasoning = Some(reasoning),
                    None => messages.push(Message { reasoning: Some(reasoning), ..new }),
                }
            }
            ("message", Some("assistant")) => {
                let content = self.content.map(Content::from);
                // The server reads the first part only.
                let content = match content {
                    Some(Content::Parts(parts)) => match parts.into_iter().next() {
                        Some(Part::Text(text)) => Some(Content::Text(text)),
                        Some(Part::Empty) | None => None,
                        Some(Part::Other) => return Err(Unrendered::Content),
                    },
                    content => content,
                };
                match last.filter(|last| last.content.is_none() && content.is_some()) {
                    Some(last) => last.content = content,
                    None => messages.push(Message { content, ..new }),
                }
            }
            ("message", Some(role)) => messages.push(Message {
                role: role.to_owned(),
                content: self.content.map(Content::from),
                ..Message::default()
            }),
            _ => return Err(Unrendered::Unsupported("an item of the input")),
        }
        Ok(())
    }

    fn call(self) -> Result<Call, Unrendered> {
        if self.namespace.is_some_and(|namespace| !namespace.is_empty()) {
            return Err(Unrendered::Unsupported("a namespace of tools"));
        }
        let function = [
            ("name", Value::from(self.name.unwrap_or_default())),
            ("arguments", Value::from(self.arguments.unwrap_or_default())),
        ];
        Ok(Call::of(self.call_id.unwrap_or_default(), function))
    }
}

impl From<ItemPart> for Part {
    fn from(part: ItemPart) -> Self {
        Self::of(part.r#type.as_deref(), part.text, part.refusal)
    }
}

/// The functions among the tools; `None`: the request has no tools. The server runs other tools itself.
fn tools(tools: Vec<Tool>) -> Result<Option<Vec<Value>>, Unrendered> {
    if tools.is_empty() {
        return Ok(None);
    }
    if tools.iter().any(|tool| matches!(tool.r#type.as_str(), "namespace" | "custom")) {
        return Err(Unrendered::Unsupported("a namespace of tools, or a custom tool"));
    }
    let functions = tools.into_iter().filter(|tool| tool.r#type == "function");
    let functions = functions.map(|Tool { name, description, parameters, strict, defer_loading, .. }| {
        Function { name: name.unwrap_or_default(), description, parameters, strict, defer_loading }.tool(None)
    });
    Ok(Some(functions.collect()))
}
