//! A chat as vLLM prepares it for a template, whichever API it came by.

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::Deserialize;

use crate::Unrendered;
use crate::room::{MADE_OBJECT, TemplateRoom};
use crate::source::ContentFormat;

/// The beginning of a line by which a client of Anthropic's API is billed. It differs in each request, so
/// vLLM leaves it out of system messages.
pub(crate) const BILLING_HEADER: &str = "x-anthropic-billing-header";

/// A chat.
#[derive(Default)]
pub(crate) struct Chat {
    pub(crate) messages: Vec<Message>,
    /// As [`Function::tool`] makes them; `None`: the request has no tools.
    pub(crate) tools: Option<Vec<Value>>,
    pub(crate) documents: Option<Value>,
    pub(crate) reasoning_effort: Option<String>,
    /// Variables that the client gives the template, in their order.
    pub(crate) variables: Vec<(String, Value)>,
    /// Whether the text ends where the response begins.
    pub(crate) adds_generation_prompt: bool,
}

/// A message of a chat.
#[derive(Default)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) content: Option<Content>,
    pub(crate) name: Option<Value>,
    pub(crate) reasoning: Option<String>,
    pub(crate) tool_calls: Vec<Call>,
    pub(crate) tool_call_id: Option<Value>,
    /// The tools of a developer message.
    pub(crate) tools: Option<Value>,
}

impl Message {
    /// A message that is a text.
    pub(crate) fn text(role: &str, text: String) -> Self {
        Self { role: role.to_owned(), content: Some(Content::Text(text)), ..Self::default() }
    }
}

/// The content of a message.
pub(crate) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

/// A part of a message.
pub(crate) enum Part {
    Text(String),
    /// A part whose text is null, which vLLM leaves out.
    Empty,
    /// Any other, such as an image.
    Other,
}

impl Part {
    /// The part of this kind whose field of its kind has this text.
    pub(crate) fn of(kind: Option<&str>, text: Option<String>, refusal: Option<String>) -> Self {
        let text = match kind {
            Some("text" | "input_text" | "output_text") => text,
            Some("refusal") => refusal,
            _ => return Self::Other,
        };
        text.map_or(Self::Empty, Self::Text)
    }
}

/// The properties of a template that decide how messages are prepared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Preparation {
    pub(crate) content: ContentFormat,
    /// Whether the template has the role `developer`. Otherwise such messages become system messages.
    pub(crate) has_developers: bool,
}

/// A function that a model may call, as a request defines it.
#[derive(Deserialize)]
pub(crate) struct Function {
    pub(crate) name: Value,
    pub(crate) description: Option<Value>,
    pub(crate) parameters: Option<Value>,
    pub(crate) strict: Option<Value>,
    pub(crate) defer_loading: Option<Value>,
}

impl Function {
    /// The tool as vLLM's types print it: `description` and `parameters` are there in any case, and others
    /// only if they are set.
    pub(crate) fn tool(self, defer_loading: Option<Value>) -> Value {
        let none = || Value::from(());
        let mut function = vec![
            ("name", self.name),
            ("description", self.description.unwrap_or_else(none)),
            ("parameters", self.parameters.unwrap_or_else(none)),
        ];
        function.extend(self.strict.map(|strict| ("strict", strict)));
        let defer = self.defer_loading.or_else(|| defer_loading.clone());
        function.extend(defer.map(|defer| ("defer_loading", defer)));
        let mut tool = vec![("type", Value::from("function")), ("function", Value::from_pairs(function))];
        tool.extend(defer_loading.map(|defer| ("defer_loading", defer)));
        Value::from_pairs(tool)
    }
}

/// A call of a function. Members that are not there are `None`.
pub(crate) struct Call {
    pub(crate) id: Option<Value>,
    /// Its members in the order in which templates print them.
    pub(crate) function: Option<Vec<(&'static str, Value)>>,
    pub(crate) kind: Option<Value>,
}

impl Call {
    /// A call with all members.
    pub(crate) fn of(id: String, function: [(&'static str, Value); 2]) -> Self {
        Self { id: Some(id.into()), function: Some(function.into()), kind: Some("function".into()) }
    }

    /// The call with its arguments as an object. A client sends them as the text of one; anything else
    /// becomes an empty object.
    fn value(self, room: &TemplateRoom) -> Result<Value, Unrendered> {
        let Self { id, mut function, kind } = self;
        if let Some(function) = &mut function {
            match function.iter_mut().find(|(name, _)| *name == "arguments") {
                Some((_, arguments)) => *arguments = object(arguments, room)?,
                None => function.push(("arguments", Value::from_pairs([] as [(&str, Value); 0]))),
            }
        }
        let function = function.map(Value::from_pairs);
        let members = [("id", id), ("function", function), ("type", kind)];
        Ok(Value::from_pairs(members.into_iter().filter_map(|(name, value)| Some((name, value?)))))
    }
}

/// The object that these arguments are, or their text is; an empty one if they are something else.
fn object(arguments: &Value, room: &TemplateRoom) -> Result<Value, Unrendered> {
    let parsed = match arguments.as_str().map(|text| room.read(text.as_bytes())) {
        Some(Err(Unrendered::Large)) => return Err(Unrendered::Large),
        Some(parsed) => parsed.ok(),
        None => Some(arguments.clone()),
    };
    let object = parsed.filter(|arguments: &Value| arguments.kind() == ValueKind::Map);
    Ok(object.unwrap_or_else(|| Value::from_pairs([] as [(&str, Value); 0])))
}

impl Chat {
    /// The variables of the template. Variables of the client replace `special`, and members of the request
    /// that are set replace both.
    pub(crate) fn context<const N: usize>(
        self,
        preparation: Preparation,
        special: [(&'static str, Value); N],
        room: &TemplateRoom,
    ) -> Result<Value, Unrendered> {
        let Self { messages, tools, documents, reasoning_effort, variables, adds_generation_prompt } = self;
        let prepared: Result<Vec<PreparedMessage>, Unrendered> =
            messages.into_iter().map(|message| message.prepare(preparation.content, room)).collect();
        let mut prepared = prepared?;
        if !preparation.has_developers && prepared.iter().any(|message| message.role == "developer") {
            prepared = without_developers(prepared);
        }
        let thinks = reasoning_effort.as_ref().map(|effort| effort != "none");
        let thinks = thinks.filter(|_| !variables.iter().any(|(name, _)| name == "enable_thinking"));
        let mut context: Vec<(String, Value)> = Vec::new();
        // Of several with a name the last one counts.
        let mut set = |name: &str, value: Value| context.push((name.to_owned(), value));
        for (name, value) in special {
            set(name, value);
        }
        set("tools", tools.map_or(Value::from(()), Value::from));
        set("documents", Value::from(()));
        for (name, value) in variables {
            set(&name, value);
        }
        if let Some(thinks) = thinks {
            set("enable_thinking", Value::from(thinks));
        }
        if let Some(documents) = documents {
            set("documents", documents);
        }
        if let Some(effort) = reasoning_effort {
            set("reasoning_effort", Value::from(effort));
        }
        set("messages", prepared.into_iter().map(Value::from).collect());
        set("add_generation_prompt", Value::from(adds_generation_prompt));
        Ok(Value::from_pairs(context))
    }
}

/// A message with the text of its content.
struct PreparedMessage {
    role: String,
    texts: Vec<String>,
    /// Whether the template reads the texts as parts, and not joined.
    are_parts: bool,
    members: Vec<(&'static str, Value)>,
}

impl Message {
    fn prepare(self, format: ContentFormat, room: &TemplateRoom) -> Result<PreparedMessage, Unrendered> {
        let Self { role, content, name, reasoning, tool_calls, tool_call_id, tools } = self;
        let parts = match content {
            None => Vec::new(),
            Some(Content::Text(text)) => vec![Part::Text(text)],
            Some(Content::Parts(parts)) => parts,
        };
        let mut texts = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Part::Text(text) if role == "system" => texts.extend(without_billing_header(text)),
                Part::Text(text) => texts.push(text),
                Part::Empty => {}
                Part::Other => return Err(Unrendered::Content),
            }
        }
        let mut members: Vec<(&str, Value)> = Vec::new();
        match role.as_str() {
            "assistant" => {
                if !tool_calls.is_empty() {
                    room.take(MADE_OBJECT.saturating_mul(tool_calls.len()))?;
                    let calls: Result<Vec<Value>, _> =
                        tool_calls.into_iter().map(|call| call.value(room)).collect();
                    members.push(("tool_calls", Value::from(calls?)));
                }
                if let Some(reasoning) = reasoning {
                    let reasoning = Value::from(reasoning);
                    members.push(("reasoning", reasoning.clone()));
                    members.push(("reasoning_content", reasoning));
                }
            }
            "tool" => members.extend(tool_call_id.map(|id| ("tool_call_id", id))),
            "developer" => members.push(("tools", tools.unwrap_or_else(|| Value::from(())))),
            _ => {}
        }
        members.extend(name.filter(|name| name.kind() == ValueKind::String).map(|name| ("name", name)));
        let are_parts = format == ContentFormat::Parts && role != "tool";
        if are_parts {
            room.take(MADE_OBJECT.saturating_mul(texts.len()))?;
        }
        Ok(PreparedMessage { role, texts, are_parts, members })
    }
}

impl From<PreparedMessage> for Value {
    fn from(message: PreparedMessage) -> Self {
        let PreparedMessage { role, texts, are_parts, members } = message;
        let content: Self = if are_parts {
            let part =
                |text: String| Self::from_pairs([("type", Self::from("text")), ("text", Self::from(text))]);
            texts.into_iter().map(part).collect()
        } else {
            match <[String; 1]>::try_from(texts) {
                Ok([text]) => Self::from(text),
                Err(texts) => Self::from(texts.join("\n")),
            }
        };
        Self::from_pairs([("role", Self::from(role)), ("content", content)].into_iter().chain(members))
    }
}

/// A system message's text without its first line, if that is the header; `None`: nothing is left.
fn without_billing_header(text: String) -> Option<String> {
    if !text.starts_with(BILLING_HEADER) {
        return Some(text);
    }
    text.split_once('\n').map(|(_, rest)| rest.to_owned()).filter(|rest| !rest.is_empty())
}

/// The messages with system messages in place of developer messages, and all system messages joined to the
/// first.
fn without_developers(mut messages: Vec<PreparedMessage>) -> Vec<PreparedMessage> {
    for message in &mut messages {
        if message.role == "developer" {
            "system".clone_into(&mut message.role);
            message.members.retain(|(name, _)| *name != "tools");
        }
    }
    if !messages.iter().skip(1).any(|message| message.role == "system") {
        return messages;
    }
    let (systems, others): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| message.role == "system");
    let texts = systems.into_iter().map(|message| message.texts.join("\n"));
    let texts: Vec<_> = texts.filter(|text| !text.is_empty()).collect();
    let joined = PreparedMessage {
        role: "system".to_owned(),
        texts: vec![texts.join("\n\n")],
        are_parts: false,
        members: Vec::new(),
    };
    core::iter::once(joined).chain(others).collect()
}

/// A member of an object, if it is there.
pub(crate) fn member(object: &Value, name: &str) -> Option<Value> {
    object.get_attr(name).ok().filter(|value| !value.is_undefined())
}
