//! A request whose response can be continued by another server.

use std::borrow::Cow;

use hashbrown::HashSet;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::api::StreamApi;
use super::unresumable::{Unresumable, obstacle};

/// A request whose response can be continued.
#[derive(Debug)]
pub struct ResumableRequest {
    api: StreamApi,
    body: Vec<u8>,
    max_tokens: Option<u64>,
    /// The response ends with an event that has the usage.
    has_usage: bool,
    /// A server can continue a text. Otherwise it generates the whole response again.
    continues_text: bool,
    needs_seed: bool,
}

/// The members of an object, in their order and as they are written.
type Members<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct ResponseFormat<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

impl ResumableRequest {
    /// Reads the whole body of a request.
    pub fn read(api: StreamApi, body: Vec<u8>) -> Result<Self, Unresumable> {
        let mut max_tokens: Option<u64> = None;
        let mut has_usage = false;
        let mut continues = false;
        let mut text = None;
        let mut has_grammar = false;
        let mut has_agent = api.has_types();
        let mut is_sampled = true;
        let members = members(&body)?;
        if !members.iter().any(|(name, value)| name == "stream" && value.get() == "true") {
            return Err(Unresumable::NotStreamed);
        }
        for (name, value) in members {
            if let Some(obstacle) = obstacle(&name, value) {
                return Err(obstacle);
            }
            match &*name {
                "stream_options" => {
                    let options: Option<StreamOptions> = read(value)?;
                    has_usage = options.and_then(|options| options.include_usage).unwrap_or(false);
                }
                "max_tokens" | "max_completion_tokens" => {
                    let limit: Option<u64> = read(value)?;
                    max_tokens = max_tokens.into_iter().chain(limit).min();
                }
                "continue_final_message" => continues = value.get() == "true",
                "seed" => is_sampled = false,
                "temperature" => is_sampled &= read::<Option<f64>>(value)? != Some(0.0),
                _ if name == api.prompt() => text = Some(value),
                _ => {}
            }
            has_grammar |= is_grammar(&name, value);
            has_agent |= AGENT_FIELDS.contains(&&*name) && !matches!(value.get(), "null" | "[]" | "{}");
        }
        let text = text.ok_or(Unresumable::Unreadable)?;
        match api {
            StreamApi::Chat => messages(text, continues).map(drop)?,
            StreamApi::Completions => read::<String>(text).map(drop)?,
            StreamApi::Responses | StreamApi::Messages => {}
        }
        if api == StreamApi::Completions && max_tokens.is_none() {
            return Err(Unresumable::NoLimit);
        }
        let needs_seed = is_sampled && (has_grammar || has_agent);
        let continues_text = !has_grammar && !api.has_types();
        Ok(Self { api, body, max_tokens, has_usage, continues_text, needs_seed })
    }

    /// The API.
    pub fn api(&self) -> StreamApi {
        self.api
    }

    /// The body as the client has sent it.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether another server can continue a text of the response, in place of generating all of it again.
    pub(super) fn continues_text(&self) -> bool {
        self.continues_text
    }

    /// Whether servers generate equal responses only with a seed, and the client has set none.
    pub fn needs_seed(&self) -> bool {
        self.needs_seed
    }

    /// Sets the seed of a request that [needs one](Self::needs_seed). Returns the number of bytes added.
    pub fn set_seed(&mut self, seed: u32) -> usize {
        let before = self.body.len();
        add_seed(&mut self.body, seed);
        self.body.len() - before
    }

    /// Frees the body of a request that will not be sent again.
    pub(super) fn forget_body(&mut self) {
        self.body = Vec::new();
    }

    /// The client's limit on generated tokens.
    pub(super) fn max_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    /// Whether the response ends with an event that has the usage.
    pub(super) fn has_usage(&self) -> bool {
        self.has_usage
    }

    /// The body of the request that continues a response of which the client has this text, of this many
    /// tokens.
    pub fn continuation(&self, text: &str, tokens: u64) -> Result<Vec<u8>, Unresumable> {
        if text.is_empty() {
            return Ok(self.body.clone());
        }
        let members = members(&self.body)?;
        let continues =
            members.iter().any(|(name, value)| name == "continue_final_message" && value.get() == "true");
        let mut object = Vec::with_capacity(members.len() + 2);
        for (name, value) in members {
            let value = match &*name {
                "max_tokens" | "max_completion_tokens" | "min_tokens" => {
                    let Some(limit) = read::<Option<u64>>(value)? else { continue };
                    // Servers refuse a limit of 0.
                    let minimum = u64::from(name != "min_tokens");
                    written(&limit.saturating_sub(tokens).max(minimum))?
                }
                "messages" if self.api == StreamApi::Chat => with_text(value, text, continues)?,
                "prompt" if self.api == StreamApi::Completions => written(&(read::<String>(value)? + text))?,
                "continue_final_message" | "add_generation_prompt" if self.api == StreamApi::Chat => continue,
                _ => Cow::Borrowed(value),
            };
            object.push((name, value));
        }
        if self.api == StreamApi::Chat {
            object.push(("add_generation_prompt".into(), written(&false)?));
            object.push(("continue_final_message".into(), written(&true)?));
        }
        serde_json::to_vec(&OrderedObject(object)).map_err(|_| Unresumable::Unreadable)
    }
}

/// Adds a seed to the body of a request that has none.
pub fn add_seed(body: &mut Vec<u8>, seed: u32) {
    if let Some(begin) = body.iter().position(|&byte| byte == b'{') {
        body.splice(begin..=begin, format!("{{\"seed\":{seed},").into_bytes());
    }
}

/// Members of a request whose response may have tool calls or reasoning.
const AGENT_FIELDS: [&str; 6] =
    ["tools", "reasoning", "reasoning_effort", "include_reasoning", "thinking", "chat_template_kwargs"];

/// Whether this member has the response follow a grammar, which a server would begin again behind a text.
fn is_grammar(name: &str, value: &RawValue) -> bool {
    match name {
        "response_format" if value.get() != "null" => {
            serde_json::from_str(value.get()).map_or(true, |format: ResponseFormat<'_>| format.kind != "text")
        }
        "guided_json" | "guided_regex" | "guided_choice" | "guided_grammar" | "structured_outputs"
        | "structural_tag" | "regex" | "ebnf" | "json_schema" => value.get() != "null",
        _ => false,
    }
}

fn read<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Result<T, Unresumable> {
    serde_json::from_str(value.get()).map_err(|_| Unresumable::Unreadable)
}

fn written<'a>(value: &impl Serialize) -> Result<Cow<'a, RawValue>, Unresumable> {
    to_raw_value(value).map(Cow::Owned).map_err(|_| Unresumable::Unreadable)
}

/// An object whose members keep their order and their spelling.
struct OrderedObject<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl Serialize for OrderedObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The members of the object that is the whole text. A name that is repeated is refused: servers do not agree
/// which of the values counts.
fn members(json: &[u8]) -> Result<Members<'_>, Unresumable> {
    struct MembersVisitor;
    impl<'de> serde::de::Visitor<'de> for MembersVisitor {
        type Value = Members<'de>;

        fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(MemberName(name)) = map.next_key()? {
                members.push((name, map.next_value()?));
            }
            Ok(members)
        }
    }
    #[derive(Deserialize)]
    struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

    let text = core::str::from_utf8(json).map_err(|_| Unresumable::Unreadable)?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let members = serde::Deserializer::deserialize_map(&mut deserializer, MembersVisitor)
        .and_then(|members| deserializer.end().map(|()| members))
        .map_err(|_| Unresumable::Unreadable)?;
    let is_unique = {
        let mut names = HashSet::with_capacity(members.len());
        members.iter().all(|(name, _)| names.insert(&**name))
    };
    if is_unique { Ok(members) } else { Err(Unresumable::Unreadable) }
}

/// The messages of a chat, and the members of the last message if the client has it continued.
fn messages(list: &RawValue, continues: bool) -> Result<(Vec<&RawValue>, Option<Members<'_>>), Unresumable> {
    let messages: Vec<&RawValue> = read(list)?;
    let last = messages.last().ok_or(Unresumable::Unreadable)?;
    let last = if continues { Some(members(last.get().as_bytes())?) } else { None };
    if let Some(members) = &last {
        let content = members.iter().find(|(name, _)| name == "content").ok_or(Unresumable::Unreadable)?;
        read::<String>(content.1).map(drop)?;
    }
    Ok((messages, last))
}

/// The messages with the text of the response: at the end of the last message if the client has it continued,
/// and as one more message otherwise.
fn with_text<'a>(list: &'a RawValue, text: &str, continues: bool) -> Result<Cow<'a, RawValue>, Unresumable> {
    let (mut messages, last) = messages(list, continues)?;
    let message = if let Some(last) = last {
        messages.pop();
        let mut object = Vec::with_capacity(last.len());
        for (name, value) in last {
            let value = if name == "content" {
                written(&(read::<String>(value)? + text))?
            } else {
                Cow::Borrowed(value)
            };
            object.push((name, value));
        }
        written(&OrderedObject(object))?
    } else {
        written(&serde_json::json!({"role": "assistant", "content": text}))?
    };
    messages.push(&message);
    written(&messages)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn chat(fields: &str) -> Result<ResumableRequest, Unresumable> {
        let body =
            format!(r#"{{"messages": [{{"role": "user", "content": "hi"}}], "stream": true{fields}}}"#);
        ResumableRequest::read(StreamApi::Chat, body.into_bytes())
    }

    fn continued(request: &ResumableRequest, text: &str, tokens: u64) -> Value {
        serde_json::from_slice(&request.continuation(text, tokens).unwrap()).unwrap()
    }

    #[test]
    fn a_chat_continues_with_the_text_as_the_last_message() {
        let request =
            chat(r#", "max_tokens": 10, "min_tokens": 2, "seed": 1, "add_generation_prompt": true"#).unwrap();
        assert_eq!((request.max_tokens(), request.has_usage()), (Some(10), false));
        let expected = json!({
            "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a \"b\"\n"}],
            "stream": true, "max_tokens": 7, "min_tokens": 0, "seed": 1,
            "add_generation_prompt": false, "continue_final_message": true,
        });
        assert_eq!(continued(&request, "a \"b\"\n", 3), expected);
        // Before the first text the request is the same.
        assert_eq!(request.continuation("", 0).unwrap(), request.body());
    }

    #[test]
    fn a_message_that_the_client_has_continued_gets_the_text_at_its_end() {
        let body = r#"{"messages": [{"role": "user", "content": "hi"}, {"content": "so ", "role": "assistant", "x": 1.50}],
            "continue_final_message": true, "stream": true}"#;
        let request = ResumableRequest::read(StreamApi::Chat, body.into()).unwrap();
        let whole = String::from_utf8(request.continuation("far", 1).unwrap()).unwrap();
        // All else is written as the client wrote it.
        assert!(whole.contains(r#"{"content":"so far","role":"assistant","x":1.50}"#), "{whole}");
        let without_text = body.replace("\"so \"", "[]");
        let refused = ResumableRequest::read(StreamApi::Chat, without_text.into()).unwrap_err();
        assert_eq!(refused, Unresumable::Unreadable);
    }

    #[test]
    fn a_completion_continues_behind_the_prompt() {
        let body = r#"{"prompt": "once", "stream": true, "max_tokens": 2, "stream_options": {"include_usage": true}}"#;
        let request = ResumableRequest::read(StreamApi::Completions, body.into()).unwrap();
        assert!(request.has_usage());
        let expected = json!({"prompt": "once upon", "stream": true, "max_tokens": 1, "stream_options": {"include_usage": true}});
        assert_eq!(continued(&request, " upon", 5), expected);
    }

    #[test]
    fn requests_whose_response_another_server_cannot_continue_are_refused() {
        use Unresumable::*;
        for (fields, reason) in [
            (r#", "stream": true"#, Unreadable),
            (r#", "n": 2"#, SeveralChoices),
            (r#", "best_of": 3"#, SeveralChoices),
            (r#", "use_beam_search": true"#, SeveralChoices),
            (r#", "logprobs": true"#, TokenDetails),
            (r#", "logprobs": 0"#, TokenDetails),
            (r#", "top_logprobs": 5"#, TokenDetails),
            (r#", "return_token_ids": true"#, TokenDetails),
            (r#", "previous_response_id": "resp_1""#, StoredState),
            (r#", "conversation": {"id": "conv_1"}"#, StoredState),
            (r#", "background": true"#, StoredState),
            (r#", "include": ["message.output_text.logprobs"]"#, TokenDetails),
            (r#", "temperature": "hot""#, Unreadable),
            (r#", "echo": true"#, OtherField),
            (r#", "suffix": "x""#, OtherField),
            (r#", "max_tokens": -1"#, Unreadable),
            (r#", "stream_options": 1"#, Unreadable),
            ("} ", Unreadable),
        ] {
            assert_eq!(chat(fields).unwrap_err(), reason, "{fields}");
        }
        for fields in [
            r#", "n": 1, "best_of": null, "logprobs": false, "top_logprobs": 0, "echo": false"#,
            r#", "response_format": {"type": "text"}, "guided_json": null, "max_tokens": null, "stream_options": null"#,
            r#", "tools": [{"type": "function"}], "unknown": {}"#,
            r#", "response_format": 1, "previous_response_id": null, "background": false"#,
        ] {
            chat(fields).unwrap();
        }
        let read = |api, body: &str| ResumableRequest::read(api, body.into()).unwrap_err();
        for body in [r#"{"messages": [1], "stream": false}"#, r#"{"n": 2, "stream": null}"#, "{}"] {
            assert_eq!(read(StreamApi::Chat, body), NotStreamed, "{body}");
        }
        for body in ["[]", "", "{", r#"{"stream": true}"#, r#"{"messages": [], "stream": true}"#] {
            assert_eq!(read(StreamApi::Chat, body), Unreadable, "{body}");
        }
        let list = r#"{"prompt": ["a", "b"], "stream": true}"#;
        assert_eq!(read(StreamApi::Completions, list), Unreadable);
        let unlimited = r#"{"prompt": "a", "stream": true, "max_tokens": null}"#;
        assert_eq!(read(StreamApi::Completions, unlimited), NoLimit);
    }

    #[test]
    fn a_response_that_is_generated_again_needs_a_seed_if_it_is_sampled() {
        for (fields, continues_text, needs_seed) in [
            ("", true, false),
            (r#", "tools": [], "temperature": 1"#, true, false),
            (r#", "tools": [{"type": "function"}]"#, true, true),
            (r#", "tools": [{"type": "function"}], "temperature": 0.0"#, true, false),
            (r#", "tools": [{"type": "function"}], "temperature": 0.5, "seed": 1"#, true, false),
            (r#", "reasoning_effort": "low""#, true, true),
            (r#", "response_format": {"type": "text"}, "guided_json": null"#, true, false),
            (r#", "response_format": {"type": "json_object"}"#, false, true),
            (r#", "guided_regex": "a""#, false, true),
        ] {
            let request = chat(fields).unwrap();
            assert_eq!(
                (request.continues_text(), request.needs_seed()),
                (continues_text, needs_seed),
                "{fields}"
            );
        }
        let typed = |api, body: &str| ResumableRequest::read(api, body.into()).unwrap();
        let mut response = typed(StreamApi::Responses, r#" {"input": "hi", "stream": true}"#);
        assert!(response.needs_seed() && !response.continues_text());
        assert_eq!(response.set_seed(7), r#""seed":7,"#.len());
        assert_eq!(response.body(), br#" {"seed":7,"input": "hi", "stream": true}"#);
        assert!(typed(StreamApi::Messages, r#"{"messages": [], "stream": true}"#).needs_seed());
    }
}
