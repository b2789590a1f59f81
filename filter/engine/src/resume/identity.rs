//! An event of a later response as a part of the first one.

use core::num::NonZeroU64;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::event::{EventUsage, NewOutput};

/// The members of a response that its events repeat.
const IDENTITY: [&str; 3] = ["id", "created", "model"];

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

    /// The event as part of the response with this identity: without the role, with this output in place of
    /// its own, and with the usage of the whole. `None` if nothing is left of it. An event that [`Value`]
    /// cannot represent, such as one with a number beyond all floats, is unchanged.
    pub(super) fn continue_with(
        &self,
        data: &[u8],
        new: &NewOutput<'_>,
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
            if let Some(reason) = choice.get_mut("finish_reason").filter(|_| !new.is_finish) {
                *reason = Value::Null;
            }
            let is_empty = if let Some(delta) = choice.get_mut("delta").and_then(Value::as_object_mut) {
                if !keeps_role {
                    delta.remove("role");
                }
                keep_new_texts(delta, new);
                keep_new_calls(delta, &new.calls);
                delta.values().all(|value| value.is_null() || value.as_str() == Some(""))
            } else {
                if let Some(value) = choice.get_mut("text").filter(|value| value.is_string()) {
                    *value = new.text.into();
                }
                new.text.is_empty()
            };
            if is_empty && !new.is_finish && usage.is_none() {
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

fn keep_new_texts(delta: &mut Map<String, Value>, new: &NewOutput<'_>) {
    let texts = [("content", new.text), ("reasoning", new.reasoning), ("reasoning_content", new.reasoning)];
    for (name, text) in texts {
        if let Some(value) = delta.get_mut(name).filter(|value| value.is_string()) {
            *value = text.into();
        }
    }
}

/// Removes the parts of tool calls that the client has from an event.
fn keep_new_calls(delta: &mut Map<String, Value>, new: &[(bool, &str)]) {
    let Some(calls) = delta.get_mut("tool_calls").and_then(Value::as_array_mut) else { return };
    let mut each = new.iter();
    calls.retain_mut(|call| {
        let &(begins, arguments) = each.next().unwrap_or(&(false, ""));
        let Some(call) = call.as_object_mut() else { return false };
        if !begins {
            call.remove("id");
            call.remove("type");
        }
        if let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) {
            if !begins {
                function.remove("name");
            }
            if let Some(value) = function.get_mut("arguments").filter(|value| value.is_string()) {
                *value = arguments.into();
            }
        }
        begins || !arguments.is_empty()
    });
    if calls.is_empty() {
        delta.remove("tool_calls");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::event::Event;
    use super::super::transcript::{DifferentOutput, Transcript};
    use super::*;

    fn text(text: &str) -> NewOutput<'_> {
        NewOutput { text, ..NewOutput::default() }
    }

    fn read(event: &Value) -> Event<'static> {
        Event::read(event.to_string().leak().as_bytes()).unwrap()
    }

    #[test]
    fn a_repeated_event_keeps_only_its_new_output() {
        let mut client = Transcript::default();
        let call = |index: u64, id: &str, name: Option<&str>, arguments: &str| {
            let mut function = json!({"arguments": arguments});
            if let Some(name) = name {
                function["name"] = name.into();
            }
            json!({"index": index, "id": id, "type": "function", "function": function})
        };
        let calls = |calls: &[Value]| json!({"choices": [{"delta": {"tool_calls": calls}}]});
        let first = read(&calls(&[call(0, "a", Some("f"), "{\"x")]));
        first.new_output("", &mut client, false).unwrap();
        client.repeat();
        let event = calls(&[call(0, "b", Some("f"), "{\"x\": 1}"), call(1, "c", Some("g"), "")]);
        let again = read(&event);
        let new = again.new_output("", &mut client, false).unwrap();
        let whole = Identity::read(b"{}").unwrap().continue_with(
            event.to_string().as_bytes(),
            &new,
            TokensBefore::default(),
            false,
        );
        let expected =
            calls(&[json!({"index": 0, "function": {"arguments": "\": 1}"}}), call(1, "c", Some("g"), "")]);
        assert_eq!(whole.unwrap().parse::<Value>().unwrap(), expected);
        for other in [
            calls(&[call(0, "b", Some("g"), "")]),
            calls(&[call(1, "b", Some("f"), "")]),
            json!({"choices": [{"delta": {"content": "x"}}]}),
            json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
        ] {
            client.repeat();
            let other = read(&other);
            assert_eq!(other.new_output(other.text(), &mut client, false).unwrap_err(), DifferentOutput);
        }
    }

    #[test]
    fn an_event_gets_the_identity_and_the_usage_of_the_whole_response() {
        let first =
            br#"{"id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}"#;
        let identity = Identity::read(first).unwrap();
        let event = json!({
            "id": "b", "object": "chat.completion.chunk", "created": 2, "model": "n",
            "system_fingerprint": "f",
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": " x"}, "finish_reason": null}],
            "usage": {
                "prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11, "prompt_tokens_details": null,
            },
        });
        let before = TokensBefore { prompt: None, text: 4 };
        let whole = identity.continue_with(event.to_string().as_bytes(), &text("x"), before, false).unwrap();
        let expected = json!({
            "id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "system_fingerprint": "f",
            "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": null}],
            "usage": {
                "prompt_tokens": 6, "completion_tokens": 5, "total_tokens": 11, "prompt_tokens_details": null,
            },
        });
        assert_eq!(whole.parse::<Value>().unwrap(), expected);
        let known = TokensBefore { prompt: NonZeroU64::new(7), text: 4 };
        let whole = identity.continue_with(event.to_string().as_bytes(), &text("x"), known, true).unwrap();
        let whole = whole.parse::<Value>().unwrap();
        assert_eq!(whole["usage"]["total_tokens"], 12);
        assert_eq!(whole["choices"][0]["delta"]["role"], "assistant");
    }

    #[test]
    fn an_event_without_anything_new_is_dropped() {
        let identity = Identity::read(b"{}").unwrap();
        let continued = |event: &Value| {
            let read = read(event);
            let new = read.new_output("", &mut Transcript::default(), false).unwrap();
            identity.continue_with(event.to_string().as_bytes(), &new, TokensBefore::default(), false)
        };
        for empty in [
            json!({"choices": [{"delta": {"role": "assistant", "content": ""}}]}),
            json!({"choices": [{"text": "", "finish_reason": null}]}),
        ] {
            assert_eq!(continued(&empty), None);
        }
        assert!(continued(&json!({"choices": [{"delta": {}, "finish_reason": "stop"}]})).is_some());
        assert!(continued(&json!({"choices": [], "usage": {"prompt_tokens": 1}})).is_some());
        let event = r#"{"choices": [{"text": "x"}], "time": 1e999}"#;
        assert_eq!(Event::read(event.as_bytes()).unwrap().text(), "x");
        let whole = identity.continue_with(event.as_bytes(), &text("x"), TokensBefore::default(), false);
        assert_eq!(whole.as_deref(), Some(event), "its text is not lost");
    }
}
