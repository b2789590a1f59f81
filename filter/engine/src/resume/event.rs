//! One event of a streamed response: its text, and the same event as part of an earlier response.

use core::num::NonZeroU64;
use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// The members of a response that its events repeat.
const IDENTITY: [&str; 3] = ["id", "created", "model"];

/// The fields of an event that a resumption depends on.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Event<'e> {
    #[serde(default, borrow)]
    choices: Vec<Choice<'e>>,
    #[serde(default)]
    usage: Option<EventUsage>,
    #[serde(default)]
    error: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct Choice<'e> {
    #[serde(default, borrow)]
    delta: Option<Delta<'e>>,
    #[serde(default, borrow)]
    text: Option<EventText<'e>>,
    #[serde(default, borrow)]
    finish_reason: Option<EventText<'e>>,
}

/// A string, which is borrowed from the event unless it is written with escapes.
#[derive(Debug, Deserialize)]
struct EventText<'e>(#[serde(borrow)] Cow<'e, str>);

#[derive(Debug, Deserialize)]
struct Delta<'e> {
    #[serde(default)]
    role: Option<IgnoredAny>,
    #[serde(default, borrow)]
    content: Option<EventText<'e>>,
    #[serde(default, borrow)]
    reasoning: Option<EventText<'e>>,
    #[serde(default, borrow)]
    reasoning_content: Option<EventText<'e>>,
    #[serde(default)]
    tool_calls: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    function_call: Option<IgnoredAny>,
    #[serde(default, borrow)]
    refusal: Option<EventText<'e>>,
    #[serde(default)]
    audio: Option<IgnoredAny>,
}

/// The usage in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct EventUsage {
    #[serde(default)]
    pub(super) prompt_tokens: u64,
    #[serde(default)]
    pub(super) completion_tokens: u64,
}

/// Output in an event that a text cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OtherOutput {
    ToolCall,
    Reasoning,
    Error,
    Other,
}

impl<'e> Event<'e> {
    /// Reads the data of an event; `None` if it is of another form.
    pub(super) fn read(data: &'e [u8]) -> Option<Self> {
        // Serde reads a list as the fields in their order.
        serde_json::from_slice(data).ok().filter(|_| data.starts_with(b"{"))
    }

    /// Its text; empty if it has none.
    pub(super) fn text(&self) -> &str {
        self.text_of_choice().map(|EventText(text)| &**text).unwrap_or_default()
    }

    fn text_of_choice(&self) -> Option<&EventText<'e>> {
        let choice = self.choices.first()?;
        match &choice.delta {
            Some(delta) => delta.content.as_ref(),
            None => choice.text.as_ref(),
        }
    }

    /// Its text as a part of its data, if it has text without escapes and nothing else that a resumption
    /// depends on.
    pub(super) fn plain_text(&self) -> Option<&'e str> {
        let is_plain = self.usage.is_none() && !self.is_finish() && self.other_output().is_none();
        match self.text_of_choice()? {
            EventText(Cow::Borrowed(text)) if is_plain && !text.is_empty() => Some(*text),
            EventText(_) => None,
        }
    }

    /// Whether it has the role of the message.
    pub(super) fn has_role(&self) -> bool {
        self.choices.iter().any(|choice| choice.delta.as_ref().is_some_and(|delta| delta.role.is_some()))
    }

    /// Whether the text is complete. Some servers write an empty reason until then.
    pub(super) fn is_finish(&self) -> bool {
        self.choices
            .iter()
            .any(|choice| choice.finish_reason.as_ref().is_some_and(|EventText(reason)| !reason.is_empty()))
    }

    pub(super) fn usage(&self) -> Option<EventUsage> {
        self.usage
    }

    /// Output that is not text.
    pub(super) fn other_output(&self) -> Option<OtherOutput> {
        if self.error.is_some() {
            return Some(OtherOutput::Error);
        }
        let has =
            |text: &Option<EventText<'_>>| text.as_ref().is_some_and(|EventText(text)| !text.is_empty());
        self.choices.iter().filter_map(|choice| choice.delta.as_ref()).find_map(|delta| {
            let calls = delta.tool_calls.as_ref().is_some_and(|calls| !calls.is_empty());
            match () {
                () if calls || delta.function_call.is_some() => Some(OtherOutput::ToolCall),
                () if has(&delta.reasoning) || has(&delta.reasoning_content) => Some(OtherOutput::Reasoning),
                () if has(&delta.refusal) || delta.audio.is_some() => Some(OtherOutput::Other),
                () => None,
            }
        })
    }
}

/// The members that all events of a response repeat, from its first event.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    members: Vec<(&'static str, Value)>,
    object: Value,
}

/// The tokens of a response that came before the one that continues it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TokensBefore {
    /// Tokens of the request, if a response has reported them.
    pub(super) prompt: Option<NonZeroU64>,
    /// Tokens of the text.
    pub(super) text: u64,
}

impl TokensBefore {
    /// The usage of the whole response. `part` is the usage in the continuation, whose prompt has the text
    /// before.
    fn sum(self, part: EventUsage) -> EventUsage {
        EventUsage {
            prompt_tokens: self
                .prompt
                .map_or_else(|| part.prompt_tokens.saturating_sub(self.text), NonZeroU64::get),
            completion_tokens: part.completion_tokens.saturating_add(self.text),
        }
    }
}

impl Identity {
    /// Reads it from the data of an event.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let event: Map<String, Value> = serde_json::from_slice(data).ok()?;
        let members =
            IDENTITY.into_iter().filter_map(|name| Some((name, event.get(name)?.clone()))).collect();
        Some(Self { members, object: event.get("object").cloned().unwrap_or_default() })
    }

    /// The event as part of the response with this identity: without the role, with this text in place of its
    /// own, and with the usage of the whole. `None` if nothing is left of it. An event that [`Value`] cannot
    /// represent, such as one with a number beyond all floats, is unchanged.
    pub(super) fn continue_with(
        &self,
        data: &[u8],
        text: &str,
        before: TokensBefore,
        keeps_role: bool,
    ) -> Option<String> {
        let Ok(mut event) = serde_json::from_slice::<Map<String, Value>>(data) else {
            return Some(String::from_utf8_lossy(data).into_owned());
        };
        for (name, value) in &self.members {
            event.insert((*name).to_owned(), value.clone());
        }
        let usage = event.get("usage").and_then(|usage| EventUsage::deserialize(usage).ok());
        if let (Some(usage), Some(Value::Object(written))) = (usage, event.get_mut("usage")) {
            let EventUsage { prompt_tokens, completion_tokens } = before.sum(usage);
            for (name, count) in [
                ("prompt_tokens", prompt_tokens),
                ("completion_tokens", completion_tokens),
                ("total_tokens", prompt_tokens.saturating_add(completion_tokens)),
            ] {
                written.insert(name.to_owned(), count.into());
            }
        }
        let choice =
            event.get_mut("choices").and_then(|choices| choices.get_mut(0)).and_then(Value::as_object_mut);
        if let Some(choice) = choice {
            let is_finish =
                choice.get("finish_reason").and_then(Value::as_str).is_some_and(|reason| !reason.is_empty());
            let is_empty = match choice.get_mut("delta").and_then(Value::as_object_mut) {
                Some(delta) => {
                    if !keeps_role {
                        delta.remove("role");
                    }
                    if let Some(content) = delta.get_mut("content").filter(|content| content.is_string()) {
                        *content = text.into();
                    }
                    delta.values().all(|value| value.is_null() || value.as_str() == Some(""))
                }
                None => choice.get("text").is_none_or(|text| text.as_str() == Some("")),
            };
            if is_empty && !is_finish && usage.is_none() {
                return None;
            }
        }
        Some(Value::Object(event).to_string())
    }

    /// The event that ends the text at the client's limit.
    pub(super) fn at_limit(&self, is_chat: bool) -> String {
        let choice = if is_chat {
            serde_json::json!({"index": 0, "delta": {}, "finish_reason": "length"})
        } else {
            serde_json::json!({"index": 0, "text": "", "finish_reason": "length"})
        };
        let members = self.members.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let mut event: Map<String, Value> = members.collect();
        event.insert("object".to_owned(), self.object.clone());
        event.insert("choices".to_owned(), Value::Array(vec![choice]));
        Value::Object(event).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(event: &Value) -> Event<'static> {
        Event::read(event.to_string().leak().as_bytes()).unwrap()
    }

    #[test]
    fn the_text_of_chats_and_completions_is_read() {
        let chat = read(
            &json!({"choices": [{"delta": {"role": "assistant", "content": "a"}, "finish_reason": null}]}),
        );
        assert_eq!((chat.text(), chat.has_role(), chat.is_finish()), ("a", true, false));
        let text = read(&json!({"choices": [{"text": "b", "finish_reason": "stop"}]}));
        assert_eq!((text.text(), text.has_role(), text.is_finish()), ("b", false, true));
        let empty = read(&json!({"choices": [{"text": "b", "finish_reason": ""}]}));
        assert!(!empty.is_finish());
        let usage = read(&json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}));
        assert_eq!(usage.usage(), Some(EventUsage { prompt_tokens: 3, completion_tokens: 4 }));
        assert_eq!((usage.text(), usage.other_output()), ("", None));
        for other in ["[]", "1", "{\"choices\": 1}", r#"{"choices": [{"delta": {"content": "\ud800"}}]}"#] {
            assert!(Event::read(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn output_other_than_text_is_found() {
        let of = |delta: Value| read(&json!({"choices": [{"delta": delta}]})).other_output();
        assert_eq!(of(json!({"tool_calls": [{}]})), Some(OtherOutput::ToolCall));
        assert_eq!(of(json!({"tool_calls": [], "reasoning": "", "refusal": null})), None);
        assert_eq!(of(json!({"function_call": {}})), Some(OtherOutput::ToolCall));
        assert_eq!(of(json!({"reasoning_content": "hm"})), Some(OtherOutput::Reasoning));
        assert_eq!(of(json!({"refusal": "no"})), Some(OtherOutput::Other));
        assert_eq!(read(&json!({"error": {"message": "x"}})).other_output(), Some(OtherOutput::Error));
    }

    #[test]
    fn an_event_gets_the_identity_and_the_usage_of_the_whole_response() {
        let first =
            br#"{"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}"#;
        let identity = Identity::read(first).unwrap();
        let event = json!({
            "id": "b", "object": "chat.completion.chunk", "created": 2, "model": "n", "system_fingerprint": "f",
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": " x"}, "finish_reason": null}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11, "prompt_tokens_details": null},
        });
        let before = TokensBefore { prompt: None, text: 4 };
        let whole = identity.continue_with(event.to_string().as_bytes(), "x", before, false).unwrap();
        let expected = json!({
            "id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": "f",
            "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": null}],
            "usage": {"prompt_tokens": 6, "completion_tokens": 5, "total_tokens": 11, "prompt_tokens_details": null},
        });
        assert_eq!(whole.parse::<Value>().unwrap(), expected);
        let known = TokensBefore { prompt: NonZeroU64::new(7), text: 4 };
        let whole = identity.continue_with(event.to_string().as_bytes(), "x", known, true).unwrap();
        let whole = whole.parse::<Value>().unwrap();
        assert_eq!(whole["usage"]["total_tokens"], 12);
        assert_eq!(whole["choices"][0]["delta"]["role"], "assistant");
    }

    #[test]
    fn an_event_without_anything_new_is_dropped() {
        let identity = Identity::read(b"{}").unwrap();
        let continued = |event: Value, text| {
            identity.continue_with(event.to_string().as_bytes(), text, TokensBefore::default(), false)
        };
        assert_eq!(
            continued(json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]}), ""),
            None
        );
        assert_eq!(continued(json!({"choices": [{"text": "", "finish_reason": null}]}), ""), None);
        assert!(continued(json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}), "").is_some());
        assert!(continued(json!({"choices": [], "usage": {"prompt_tokens": 1}}), "").is_some());
        let event = r#"{"choices": [{"text": "x"}], "time": 1e999}"#;
        assert_eq!(Event::read(event.as_bytes()).unwrap().text(), "x");
        let whole = identity.continue_with(event.as_bytes(), "x", TokensBefore::default(), false);
        assert_eq!(whole.as_deref(), Some(event), "its text is not lost");
    }
}
