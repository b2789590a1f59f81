//! Events with types, of `/v1/responses` and `/v1/messages`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::lines;
use super::transcript::Place;

/// Items and content blocks that a server generates. Others are the work of its own tools.
const GENERATED: [&str; 8] = [
    "message",
    "reasoning",
    "function_call",
    "custom_tool_call",
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
];

/// The fields of an event that a resumption depends on.
#[derive(Debug, Deserialize)]
pub(super) struct TypedEvent<'e> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'e, str>,
    #[serde(default)]
    sequence_number: Option<u64>,
    #[serde(default)]
    index: Option<i64>,
    #[serde(default)]
    output_index: Option<i64>,
    #[serde(default)]
    content_index: Option<i64>,
    #[serde(default)]
    summary_index: Option<i64>,
    #[serde(default, borrow)]
    delta: Option<&'e RawValue>,
    #[serde(default, borrow)]
    text: Option<&'e RawValue>,
    #[serde(default, borrow)]
    arguments: Option<&'e RawValue>,
    #[serde(default, borrow)]
    input: Option<&'e RawValue>,
    #[serde(default, borrow)]
    item: Option<Part<'e>>,
    #[serde(default, borrow)]
    content_block: Option<Part<'e>>,
    /// A response; an error's message is a text.
    #[serde(default, borrow)]
    response: Option<&'e RawValue>,
    #[serde(default, borrow)]
    message: Option<&'e RawValue>,
}

/// An item of a response, or a content block of a message.
#[derive(Debug, Deserialize)]
struct Part<'e> {
    #[serde(default, borrow, rename = "type")]
    kind: Option<Cow<'e, str>>,
    #[serde(default, borrow)]
    id: Option<Cow<'e, str>>,
    #[serde(default, borrow)]
    call_id: Option<Cow<'e, str>>,
    #[serde(default, borrow)]
    name: Option<Cow<'e, str>>,
}

/// A response or message.
#[derive(Debug, Default, Deserialize)]
struct WholeMessage<'e> {
    #[serde(default, borrow)]
    id: Option<Cow<'e, str>>,
    #[serde(default, borrow)]
    created_at: Option<&'e RawValue>,
}

impl<'e> WholeMessage<'e> {
    fn read(value: Option<&'e RawValue>) -> Self {
        value.and_then(|value| serde_json::from_str(value.get()).ok()).unwrap_or_default()
    }
}

/// The delta of a message.
#[derive(Debug, Deserialize)]
struct MessageDelta<'e> {
    #[serde(default, borrow, rename = "type")]
    kind: Option<Cow<'e, str>>,
    #[serde(default, borrow)]
    text: Option<Cow<'e, str>>,
    #[serde(default, borrow)]
    thinking: Option<Cow<'e, str>>,
    #[serde(default, borrow)]
    partial_json: Option<Cow<'e, str>>,
    #[serde(default, borrow)]
    stop_reason: Option<Cow<'e, str>>,
}

/// The output of an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TypedOutput<'e> {
    /// More of the text at this place.
    Text(Place, Cow<'e, str>),
    /// Something else, which each generation of the response has.
    Event(Place),
    /// A sign of life.
    Ping,
    /// An error, or the work of a tool of the server.
    Other,
}

impl<'e> TypedEvent<'e> {
    /// Reads the data of an event; `None` if it is of another form.
    pub(super) fn read(data: &'e [u8]) -> Option<Self> {
        // Serde reads a list as the fields in their order.
        serde_json::from_slice(data).ok().filter(|_| data.starts_with(b"{"))
    }

    /// Its number in the stream.
    pub(super) fn sequence_number(&self) -> Option<u64> {
        self.sequence_number
    }

    /// The time at which the response was created.
    pub(super) fn created_at(&self) -> Option<&'e RawValue> {
        WholeMessage::read(self.response).created_at
    }

    /// Whether the client has all but the marker of the end.
    pub(super) fn is_finish(&self) -> bool {
        self.kind == "message_delta"
    }

    /// Whether it is the last one.
    pub(super) fn is_end(&self) -> bool {
        matches!(
            &*self.kind,
            "response.completed" | "response.incomplete" | "response.failed" | "message_stop"
        )
    }

    /// The ids that it introduces.
    pub(super) fn ids(&self) -> impl Iterator<Item = Cow<'e, str>> {
        let (whole, part) = match &*self.kind {
            "response.created" => (WholeMessage::read(self.response), None),
            "message_start" => (WholeMessage::read(self.message), None),
            "response.output_item.added" => (WholeMessage::default(), self.item.as_ref()),
            "content_block_start" => (WholeMessage::default(), self.content_block.as_ref()),
            _ => (WholeMessage::default(), None),
        };
        let of_part = part.map(|part| [part.id.clone(), part.call_id.clone()]);
        core::iter::once(whole.id).chain(of_part.into_iter().flatten()).flatten()
    }

    /// Its output; `None` if its delta is of another form.
    pub(super) fn output(&self) -> Option<TypedOutput<'e>> {
        let part = self.item.as_ref().or(self.content_block.as_ref());
        let is_foreign =
            part.and_then(|part| part.kind.as_deref()).is_some_and(|kind| !GENERATED.contains(&kind));
        if is_foreign || self.kind == "error" {
            return Some(TypedOutput::Other);
        }
        if self.kind == "ping" {
            return Some(TypedOutput::Ping);
        }
        let numbers = (self.index, self.output_index, self.content_index, self.summary_index);
        let mut extra = None;
        if let Some(delta) = self.delta {
            if delta.get().starts_with('"') {
                let text = serde_json::from_str::<TextOfDelta<'e>>(delta.get()).ok()?;
                return Some(TypedOutput::Text(Place::of((&self.kind, numbers)), text.0));
            }
            let delta_of_message = serde_json::from_str::<MessageDelta<'e>>(delta.get()).ok()?;
            let MessageDelta { kind, text, thinking, partial_json, stop_reason } = delta_of_message;
            if let Some(text) = text.or(thinking).or(partial_json) {
                return Some(TypedOutput::Text(Place::of((kind, numbers)), text));
            }
            // A signature differs each time.
            extra = if kind.as_deref() == Some("signature_delta") { kind } else { stop_reason.or(kind) };
        }
        let raw = |value: Option<&'e RawValue>| value.map(RawValue::get);
        let values = (raw(self.text), raw(self.arguments), raw(self.input), extra);
        let part = part.map(|part| (part.kind.as_deref(), part.name.as_deref()));
        Some(TypedOutput::Event(Place::of((&self.kind, numbers, values, part))))
    }
}

/// A string, which is borrowed from the event unless it is written with escapes.
#[derive(Deserialize)]
struct TextOfDelta<'e>(#[serde(borrow)] Cow<'e, str>);

/// The ids, numbers and time of a response as the client has them.
#[derive(Debug, Default)]
pub(super) struct TypedIdentity {
    /// In the order in which events introduced them.
    ids: Vec<String>,
    /// The number of them for which the current response has introduced its own.
    repeated: usize,
    /// Ids of the current response, and the client's ids in their place.
    renamed: Vec<(String, String)>,
    sequence_number: Option<u64>,
    created_at: Option<Value>,
}

impl TypedIdentity {
    /// The number of the client's last event.
    pub(super) fn sequence_number(&self) -> Option<u64> {
        self.sequence_number
    }

    /// The client gets an event of the first response. Returns the bytes that are kept of it.
    pub(super) fn add(&mut self, event: &TypedEvent<'_>) -> usize {
        self.sequence_number = event.sequence_number().or(self.sequence_number);
        if self.created_at.is_none() && self.ids.is_empty() {
            self.created_at = event.created_at().and_then(|time| serde_json::from_str(time.get()).ok());
        }
        self.introduce(event)
    }

    fn introduce(&mut self, event: &TypedEvent<'_>) -> usize {
        let before = self.ids.len();
        self.ids.extend(event.ids().map(Cow::into_owned));
        self.repeated = self.ids.len();
        self.ids.get(before..).unwrap_or_default().iter().map(String::len).sum()
    }

    /// The current response has an event that the client has got of an earlier one.
    pub(super) fn repeat(&mut self, event: &TypedEvent<'_>) {
        for id in event.ids() {
            let known = self.ids.get(self.repeated);
            self.renamed.extend(known.map(|known| (id.into_owned(), known.clone())));
            self.repeated += 1;
        }
    }

    /// The response is generated again.
    pub(super) fn begin_again(&mut self) {
        self.repeated = 0;
        self.renamed.clear();
    }

    /// Writes an event of a later response as a part of the client's, with this text in place of its own.
    /// Returns the bytes that are kept of it.
    pub(super) fn continue_with(
        &mut self,
        data: &[u8],
        event: &TypedEvent<'_>,
        text: Option<&str>,
        out: &mut Vec<u8>,
    ) -> usize {
        let Ok(mut value) = serde_json::from_slice::<Value>(data) else {
            // A number beyond all floats.
            out.extend(lines::typed_event(&event.kind, &String::from_utf8_lossy(data)));
            return 0;
        };
        for name in ["text", "thinking", "partial_json"] {
            if let (Some(text), Some(delta)) = (text, value.pointer_mut(&format!("/delta/{name}"))) {
                *delta = text.into();
            }
        }
        if let (Some(text), Some(delta)) = (text, value.get_mut("delta").filter(|delta| delta.is_string())) {
            *delta = text.into();
        }
        if let (Some(number), Some(last)) = (value.get_mut("sequence_number"), self.sequence_number) {
            *number = last.saturating_add(1).into();
            self.sequence_number = Some(last.saturating_add(1));
        }
        if let (Some(time), Some(first)) = (value.pointer_mut("/response/created_at"), &self.created_at) {
            *time = first.clone();
        }
        if !self.renamed.is_empty() {
            rename(&mut value, &self.renamed);
        }
        out.extend(lines::typed_event(&event.kind, &value));
        self.introduce(event)
    }
}

fn rename(value: &mut Value, renamed: &[(String, String)]) {
    match value {
        Value::String(text) => {
            if let Some((_, known)) = renamed.iter().find(|(id, _)| id == text) {
                known.clone_into(text);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rename(value, renamed)),
        Value::Object(members) => members.values_mut().for_each(|value| rename(value, renamed)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
