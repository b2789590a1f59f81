//! A chat request as vLLM prepares it for a template.

use core::fmt;

use minijinja::Value;
use minijinja::value::ValueKind;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::Unrendered;
use crate::source::ContentFormat;

/// The members of a request that a template can see.
#[derive(Deserialize)]
pub(crate) struct ChatRequest {
    messages: Vec<Message>,
    tools: Option<Vec<Value>>,
    documents: Option<Value>,
    reasoning_effort: Option<Value>,
    chat_template: Option<IgnoredAny>,
    chat_template_kwargs: Option<Members>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
}

/// An object, its members in their order.
struct Members(Vec<(String, Value)>);

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
    name: Option<Value>,
    reasoning: Option<String>,
    reasoning_content: Option<String>,
    tool_calls: Option<Vec<Value>>,
    tool_call_id: Option<Value>,
    tools: Option<Value>,
}

enum Content {
    Text(String),
    /// `None`: a part that is not text.
    Parts(Vec<Option<String>>),
}

impl ChatRequest {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Unrendered> {
        let request: Self =
            serde_json::from_slice(body).map_err(|error| Unrendered::Body(error.to_string()))?;
        if request.chat_template.is_some() {
            return Err(Unrendered::Unsupported("chat_template"));
        }
        if request.continue_final_message == Some(true) {
            return Err(Unrendered::Unsupported("continue_final_message"));
        }
        Ok(request)
    }

    /// The variables of the template. Those of `chat_template_kwargs` replace others of the same name.
    pub(crate) fn context<const N: usize>(
        self,
        content: ContentFormat,
        special: [(&'static str, Value); N],
    ) -> Result<Value, Unrendered> {
        let messages: Result<Vec<Value>, Unrendered> =
            self.messages.into_iter().map(|message| message.prepare(content)).collect();
        let tools = match self.tools {
            Some(tools) if !tools.is_empty() => Value::from(tools.iter().map(tool).collect::<Vec<_>>()),
            Some(_) | None => Value::from(()),
        };
        let or_none = |value: Option<Value>| value.unwrap_or_else(|| Value::from(()));
        let mut variables: Vec<(String, Value)> = vec![
            ("messages".to_owned(), Value::from(messages?)),
            ("tools".to_owned(), tools),
            ("documents".to_owned(), or_none(self.documents)),
            ("add_generation_prompt".to_owned(), Value::from(self.add_generation_prompt.unwrap_or(true))),
        ];
        variables.extend(special.map(|(name, value)| (name.to_owned(), value)));
        variables.extend(self.reasoning_effort.map(|effort| ("reasoning_effort".to_owned(), effort)));
        // Of several with a name the last one counts.
        variables.extend(self.chat_template_kwargs.into_iter().flat_map(|Members(members)| members));
        Ok(Value::from_pairs(variables))
    }
}

impl Message {
    fn prepare(self, format: ContentFormat) -> Result<Value, Unrendered> {
        let Self { role, content, name, reasoning, reasoning_content, tool_calls, tool_call_id, tools } =
            self;
        let content = match content {
            None => match format {
                ContentFormat::String => Value::from(""),
                ContentFormat::Parts => Value::from(Vec::<Value>::new()),
            },
            Some(Content::Text(text)) => match format {
                ContentFormat::String => Value::from(text),
                ContentFormat::Parts => Value::from(vec![part(text)]),
            },
            Some(Content::Parts(parts)) => {
                let texts: Option<Vec<String>> = parts.into_iter().collect();
                let texts = texts.ok_or(Unrendered::Content)?;
                match format {
                    ContentFormat::String => Value::from(texts.join("\n")),
                    ContentFormat::Parts => Value::from(texts.into_iter().map(part).collect::<Vec<_>>()),
                }
            }
        };
        let mut members = vec![("role", Value::from(role.as_str())), ("content", content)];
        match role.as_str() {
            "assistant" => {
                if let Some(calls) = tool_calls.filter(|calls| !calls.is_empty()) {
                    let calls: Result<Vec<Value>, Unrendered> = calls.iter().map(tool_call).collect();
                    members.push(("tool_calls", Value::from(calls?)));
                }
                if let Some(reasoning) = reasoning.or(reasoning_content) {
                    members.push(("reasoning", Value::from(reasoning.as_str())));
                    members.push(("reasoning_content", Value::from(reasoning)));
                }
            }
            "tool" => members.extend(tool_call_id.map(|id| ("tool_call_id", id))),
            "developer" => members.push(("tools", tools.unwrap_or_else(|| Value::from(())))),
            _ => {}
        }
        members.extend(name.filter(|name| name.kind() == ValueKind::String).map(|name| ("name", name)));
        Ok(Value::from_pairs(members))
    }
}

fn part(text: String) -> Value {
    Value::from_pairs([("type", Value::from("text")), ("text", Value::from(text))])
}

/// A tool as vLLM's types print it: `description` and `parameters` are there in any case, in this order.
fn tool(tool: &Value) -> Value {
    let function = member(tool, "function").unwrap_or_default();
    let none = || Value::from(());
    let mut members = vec![("name".to_owned(), member(&function, "name").unwrap_or_else(none))];
    members.push(("description".to_owned(), member(&function, "description").unwrap_or_else(none)));
    members.push(("parameters".to_owned(), member(&function, "parameters").unwrap_or_else(none)));
    members.extend(others(&function, &["name", "description", "parameters"]));
    let kind = member(tool, "type").unwrap_or_else(|| Value::from("function"));
    let mut outer = vec![("type".to_owned(), kind), ("function".to_owned(), Value::from_pairs(members))];
    outer.extend(others(tool, &["type", "function"]));
    Value::from_pairs(outer)
}

/// A call with its arguments as an object. A client sends them as the text of one.
fn tool_call(call: &Value) -> Result<Value, Unrendered> {
    let Some(function) = member(call, "function") else { return Ok(call.clone()) };
    let given = member(&function, "arguments").unwrap_or_default();
    let arguments = match given.as_str() {
        Some("") => Value::from_pairs([] as [(&str, Value); 0]),
        Some(text) => serde_json::from_str(text).map_err(|error| {
            Unrendered::Body(format!("the arguments of a tool call are not JSON: {error}"))
        })?,
        None if given.is_true() => given,
        None => Value::from_pairs([] as [(&str, Value); 0]),
    };
    let with = |of: &Value, name: &str, value: Value| {
        let mut members: Vec<(String, Value)> = others(of, &[]).collect();
        match members.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => members.push((name.to_owned(), value)),
        }
        Value::from_pairs(members)
    };
    Ok(with(call, "function", with(&function, "arguments", arguments)))
}

/// A member of an object, if it is there.
fn member(object: &Value, name: &str) -> Option<Value> {
    object.get_attr(name).ok().filter(|value| !value.is_undefined())
}

/// The members of an object but for these.
fn others<'a>(object: &'a Value, but: &'a [&str]) -> impl Iterator<Item = (String, Value)> + 'a {
    let names = object.try_iter().into_iter().flatten();
    let names = names.filter_map(|name| name.as_str().map(str::to_owned));
    names.filter(move |name| !but.contains(&name.as_str())).map(move |name| {
        let value = member(object, &name).unwrap_or_default();
        (name, value)
    })
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrParts;
        impl<'de> Visitor<'de> for TextOrParts {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array of parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Content, E> {
                Ok(Content::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Content, A::Error> {
                let mut parts = Vec::new();
                while let Some(Part(text)) = sequence.next_element()? {
                    parts.push(text);
                }
                Ok(Content::Parts(parts))
            }
        }
        deserializer.deserialize_any(TextOrParts)
    }
}

/// The text of a part; `None` if it is another part.
struct Part(Option<String>);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextPart;
        impl<'de> Visitor<'de> for TextPart {
            type Value = Part;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part of a message")
            }

            fn visit_str<E>(self, text: &str) -> Result<Part, E> {
                Ok(Part(Some(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Part, A::Error> {
                let (mut is_text, mut text) = (false, None);
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "type" => {
                            let kind: Value = map.next_value()?;
                            is_text = matches!(kind.as_str(), Some("text" | "input_text" | "output_text"));
                        }
                        "text" => text = map.next_value::<Value>()?.as_str().map(str::to_owned),
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Part(text.filter(|_| is_text)))
            }
        }
        deserializer.deserialize_any(TextPart)
    }
}
