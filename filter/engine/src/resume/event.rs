//! One event of a streamed chat or completion, and its output that is new to the client.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::transcript::{DifferentOutput, Place, Transcript};

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
    #[serde(default, borrow)]
    tool_calls: Option<Vec<ToolCall<'e>>>,
    #[serde(default)]
    function_call: Option<IgnoredAny>,
    #[serde(default, borrow)]
    refusal: Option<EventText<'e>>,
    #[serde(default)]
    audio: Option<IgnoredAny>,
}

/// A part of a tool call. The first one has the name.
#[derive(Debug, Deserialize)]
struct ToolCall<'e> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default, borrow)]
    function: Option<FunctionDelta<'e>>,
}

#[derive(Debug, Deserialize)]
struct FunctionDelta<'e> {
    #[serde(default, borrow)]
    name: Option<EventText<'e>>,
    #[serde(default, borrow)]
    arguments: Option<EventText<'e>>,
}

/// The usage in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct EventUsage {
    #[serde(default)]
    pub(super) prompt_tokens: u64,
    #[serde(default)]
    pub(super) completion_tokens: u64,
}

/// The output of an event that the client does not have.
#[derive(Debug, Default)]
pub(super) struct NewOutput<'t> {
    pub(super) reasoning: &'t str,
    pub(super) text: &'t str,
    /// One for each part of a tool call: whether it begins a call, and the arguments.
    pub(super) calls: Vec<(bool, &'t str)>,
    /// It has the reason of the end.
    pub(super) is_finish: bool,
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
        let has_more =
            self.has_other_output() || !self.reasoning().is_empty() || !self.tool_calls().is_empty();
        let is_plain = self.usage.is_none() && !self.is_finish() && !has_more;
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

    /// The reasoning, under one of its names.
    fn reasoning(&self) -> &str {
        let delta = self.choices.first().and_then(|choice| choice.delta.as_ref());
        let names = delta.map(|delta| [&delta.reasoning, &delta.reasoning_content]);
        let mut texts = names.into_iter().flatten().flatten().map(|EventText(text)| &**text);
        texts.find(|text| !text.is_empty()).unwrap_or_default()
    }

    fn tool_calls(&self) -> &[ToolCall<'e>] {
        let delta = self.choices.first().and_then(|choice| choice.delta.as_ref());
        delta.and_then(|delta| delta.tool_calls.as_deref()).unwrap_or_default()
    }

    /// The output that is new to a client that has this much, with `text` in place of its text.
    pub(super) fn new_output<'t>(
        &'t self,
        text: &'t str,
        client: &mut Transcript,
        has_finish: bool,
    ) -> Result<NewOutput<'t>, DifferentOutput> {
        let reasoning = client.text(Place::REASONING, self.reasoning())?;
        let text = client.text(Place::TEXT, text)?;
        let mut calls = Vec::with_capacity(self.tool_calls().len());
        for ToolCall { index, function } in self.tool_calls() {
            let of = |text: Option<&'t EventText<'e>>| text.map_or("", |EventText(text)| &**text);
            let (name, arguments) = match function {
                Some(function) => (of(function.name.as_ref()), of(function.arguments.as_ref())),
                None => ("", ""),
            };
            let begins = !name.is_empty() && client.event(Place::of(("call", index, name)))?;
            calls.push((begins, client.text(Place::of(("arguments", index)), arguments)?));
        }
        if self.is_finish() && client.is_repeating() {
            return Err(DifferentOutput);
        }
        Ok(NewOutput { reasoning, text, calls, is_finish: self.is_finish() && !has_finish })
    }

    /// Whether it has an error, or output that is neither text, reasoning nor a tool call.
    pub(super) fn has_other_output(&self) -> bool {
        self.error.is_some()
            || self.choices.iter().filter_map(|choice| choice.delta.as_ref()).any(|delta| {
                let is_refusal = delta.refusal.as_ref().is_some_and(|EventText(text)| !text.is_empty());
                is_refusal || delta.function_call.is_some() || delta.audio.is_some()
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
        assert_eq!((usage.text(), usage.has_other_output()), ("", false));
        for other in ["[]", "1", "{\"choices\": 1}", r#"{"choices": [{"delta": {"content": "\ud800"}}]}"#] {
            assert!(Event::read(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn errors_and_unknown_output_are_found() {
        let of = |delta: Value| read(&json!({"choices": [{"delta": delta}]})).has_other_output();
        assert!(!of(json!({"tool_calls": [{}], "reasoning": "hm", "refusal": null})));
        assert!(of(json!({"function_call": {}})));
        assert!(of(json!({"refusal": "no"})));
        assert!(read(&json!({"error": {"message": "x"}})).has_other_output());
    }
}
