//! The course of one stream through the responses of several servers.

use core::num::NonZeroU64;
use std::sync::Arc;

use endpoint_picker::response::usage::is_stream;

use super::budget::{Budget, KeptBytes};
use super::event::{Event, Identity, OtherOutput, TokensBefore};
use super::lines::{self, DONE, Events};
use super::request::{ResumableRequest, StreamApi, Unresumable};

/// Why a client's stream is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The response is not a plain stream of events.
    NotEvents,
    /// An event is of an unknown form, or larger than a stream may keep.
    UnreadableEvent,
    /// A tool call has begun.
    ToolCall,
    /// The server separates reasoning from text, and would begin with reasoning again.
    Reasoning,
    /// Other output than text.
    OtherOutput,
    /// Request and text are larger than a stream may keep, or all streams together.
    TooLarge,
    /// The text is complete, and the usage that the client awaits is lost.
    UsageLost,
    /// It has been resumed as often as is allowed.
    TooManyResumptions,
    /// The server that was to continue the response, or the picker, refused.
    Refused,
    /// The client reads so slowly that too much is held for it.
    SlowClient,
    /// The proxy could not send the request.
    NotSent,
}

impl Cut {
    /// The value of the metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotEvents => "not_events",
            Self::UnreadableEvent => "unreadable_event",
            Self::ToolCall => "tool_call",
            Self::Reasoning => "reasoning",
            Self::OtherOutput => "other_output",
            Self::TooLarge => "too_large",
            Self::UsageLost => "usage_lost",
            Self::TooManyResumptions => "too_many_resumptions",
            Self::Refused => "refused",
            Self::SlowClient => "slow_client",
            Self::NotSent => "not_sent",
        }
    }

    /// All reasons, in the order of their declaration.
    pub(super) const ALL: [Self; 11] = [
        Self::NotEvents,
        Self::UnreadableEvent,
        Self::ToolCall,
        Self::Reasoning,
        Self::OtherOutput,
        Self::TooLarge,
        Self::UsageLost,
        Self::TooManyResumptions,
        Self::Refused,
        Self::SlowClient,
        Self::NotSent,
    ];
}

/// The next step when a server's response has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The client's response ends too, after these bytes.
    Complete(Vec<u8>),
    /// A request with this body continues the response.
    Resume(Vec<u8>),
    /// The client's stream is cut.
    Cut(Cut),
}

/// The part of the response that the client has.
#[derive(Debug, Default)]
struct Sent {
    identity: Option<Identity>,
    text: String,
    /// Tokens of the text. Unless the server reports them in each event, an event with text counts as one.
    tokens: u64,
    /// Tokens at the end of the text that are only blanks.
    blank_tokens: u64,
    prompt_tokens: Option<NonZeroU64>,
    has_role: bool,
    has_usage: bool,
    progress: Progress,
}

/// How much of the response the client has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    /// A part of the text.
    #[default]
    Text,
    /// The whole text, with the reason of its end.
    WholeText,
    /// All, with the marker of the end.
    Done,
}

/// The response that is received now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Its head is awaited.
    Awaited,
    /// It passes unchanged.
    Passes,
    /// It is read event by event.
    Events,
}

/// One stream.
#[derive(Debug)]
pub struct Resumption {
    request: ResumableRequest,
    kept: KeptBytes,
    max_resumptions: u32,
    resumptions: u32,
    sent: Sent,
    part: Part,
    events: Events,
    /// The reason why the stream will not be resumed.
    obstacle: Option<Cut>,
    before: TokensBefore,
    /// Blanks at the end of the text that the server generates again: templates remove them from the last message.
    repeated: String,
}

impl Resumption {
    /// The course of a request, before its first response.
    ///
    /// # Errors
    /// The budget has no room for the request.
    pub fn new(
        request: ResumableRequest,
        budget: &Arc<Budget>,
        max_resumptions: u32,
    ) -> Result<Self, Unresumable> {
        let mut kept = KeptBytes::new(budget);
        if !kept.grow(request.body().len()) {
            return Err(Unresumable::TooLarge);
        }
        Ok(Self {
            request,
            kept,
            max_resumptions,
            resumptions: 0,
            sent: Sent::default(),
            part: Part::Awaited,
            events: Events::default(),
            obstacle: None,
            before: TokensBefore::default(),
            repeated: String::new(),
        })
    }

    /// The body of the first request.
    pub fn body(&self) -> &[u8] {
        self.request.body()
    }

    /// The number of times that the stream has been resumed.
    pub fn resumptions(&self) -> u32 {
        self.resumptions
    }

    /// The head of a response has arrived. False if the response cannot continue the stream; the client gets the head of the first one.
    pub fn head(&mut self, status: &[u8], content_type: &[u8], is_encoded: bool) -> bool {
        let is_readable = status == b"200" && is_stream(content_type) && !is_encoded;
        self.part = if is_readable { Part::Events } else { Part::Passes };
        is_readable || self.resumptions == 0
    }

    /// A chunk of a response has arrived. Returns the bytes for the client.
    pub fn chunk(&mut self, chunk: &[u8]) -> Vec<u8> {
        if self.part != Part::Events {
            return chunk.to_vec();
        }
        let mut out = Vec::with_capacity(chunk.len());
        let mut events = core::mem::take(&mut self.events);
        events.push(chunk, |event| self.event(event, &mut out));
        let is_too_long = events.partial() > self.kept.limit();
        if is_too_long {
            self.give_up(Cut::UnreadableEvent);
        }
        if is_too_long || (self.obstacle.is_some() && self.resumptions == 0) {
            // Nothing is read of the response any more.
            out.extend(events.take_partial());
            self.part = Part::Passes;
        }
        self.events = events;
        out
    }

    fn give_up(&mut self, cut: Cut) {
        self.obstacle.get_or_insert(cut);
        self.sent.text = String::new();
        self.request.forget_body();
        self.kept.release();
    }

    fn event(&mut self, event: &[u8], out: &mut Vec<u8>) {
        if self.obstacle.is_some() && self.resumptions == 0 {
            return out.extend(event);
        }
        let Some(data) = lines::data(event) else { return out.extend(event) };
        if data == DONE.as_bytes() {
            self.sent.progress = Progress::Done;
            return out.extend(event);
        }
        let Some(read) = Event::read(data) else {
            self.give_up(Cut::UnreadableEvent);
            return out.extend(event);
        };
        let text = self.without_repeated(read.text());
        self.pass(event, data, text, out);
        self.count(&read, text);
    }

    /// The text without the blanks at its beginning that the client has already.
    fn without_repeated<'t>(&mut self, text: &'t str) -> &'t str {
        let mut rest = text.chars();
        let mut repeated = self.repeated.chars();
        while let (Some(expected), Some(letter)) = (repeated.clone().next(), rest.clone().next())
            && expected == letter
        {
            repeated.next();
            rest.next();
        }
        let rest = rest.as_str();
        self.repeated = if rest.is_empty() { repeated.as_str().to_owned() } else { String::new() };
        rest
    }

    fn pass(&mut self, event: &[u8], data: &[u8], text: &str, out: &mut Vec<u8>) {
        match &self.sent.identity {
            Some(identity) if self.resumptions > 0 => {
                let keeps_role = !self.sent.has_role;
                if let Some(event) = identity.continue_with(data, text, self.before, keeps_role) {
                    out.extend(lines::event(&event));
                }
            }
            Some(_) => out.extend(event),
            None => {
                self.sent.identity = Identity::read(data);
                out.extend(event);
            }
        }
    }

    fn count(&mut self, read: &Event, text: &str) {
        let sent = &mut self.sent;
        sent.has_role |= read.has_role();
        if read.is_finish() {
            sent.progress = sent.progress.max(Progress::WholeText);
        }
        let mut new = u64::from(!read.text().is_empty());
        if let Some(usage) = read.usage() {
            let tokens = self.before.text.saturating_add(usage.completion_tokens);
            new = tokens.saturating_sub(sent.tokens);
            if self.resumptions == 0 {
                sent.prompt_tokens = NonZeroU64::new(usage.prompt_tokens).or(sent.prompt_tokens);
            }
            sent.has_usage = true;
        }
        sent.tokens = sent.tokens.saturating_add(new);
        let is_blank = text.trim().is_empty();
        sent.blank_tokens = if is_blank { sent.blank_tokens.saturating_add(new) } else { 0 };
        if let Some(other) = read.other_output() {
            return self.give_up(match other {
                OtherOutput::ToolCall => Cut::ToolCall,
                OtherOutput::Reasoning => Cut::Reasoning,
                OtherOutput::Error | OtherOutput::Other => Cut::OtherOutput,
            });
        }
        if self.obstacle.is_none() && !text.is_empty() {
            if self.kept.grow(text.len()) {
                self.sent.text.push_str(text);
            } else {
                self.give_up(Cut::TooLarge);
            }
        }
    }

    /// The response has ended: with a reset, or in the server's own way.
    pub fn end(&mut self, is_reset: bool) -> End {
        match core::mem::replace(&mut self.part, Part::Awaited) {
            Part::Awaited => {
                return End::Cut(if self.resumptions == 0 { Cut::NotSent } else { Cut::Refused });
            }
            Part::Passes if is_reset => return End::Cut(self.obstacle.unwrap_or(Cut::NotEvents)),
            Part::Passes => return End::Complete(Vec::new()),
            Part::Events => {}
        }
        let held = self.events.take_partial();
        match () {
            () if self.sent.progress == Progress::Done => End::Complete(Vec::new()),
            // The server has ended the response as it wanted to.
            () if self.obstacle.is_some() && !is_reset => End::Complete(held),
            () if self.obstacle.is_some() => End::Cut(self.obstacle.unwrap_or(Cut::OtherOutput)),
            () => self.next(),
        }
    }

    fn next(&mut self) -> End {
        let Sent { ref identity, ref text, tokens, blank_tokens, .. } = self.sent;
        let is_chat = self.request.api() == StreamApi::Chat;
        // Blanks at the end of a message are generated again.
        let (kept, blanks, tokens) = if is_chat {
            let kept = text.trim_end();
            (kept, text.get(kept.len()..).unwrap_or_default(), tokens.saturating_sub(blank_tokens))
        } else {
            (text.as_str(), "", tokens)
        };
        let is_at_limit = self.request.max_tokens().is_some_and(|limit| tokens >= limit);
        let is_whole = self.sent.progress >= Progress::WholeText;
        if is_whole || is_at_limit {
            if self.request.has_usage() && !self.sent.has_usage {
                return End::Cut(Cut::UsageLost);
            }
            let finish = identity.as_ref().filter(|_| !is_whole);
            let mut last =
                finish.map(|identity| lines::event(&identity.at_limit(is_chat))).unwrap_or_default();
            last.extend(lines::event(DONE));
            return End::Complete(last);
        }
        if self.resumptions >= self.max_resumptions {
            return End::Cut(Cut::TooManyResumptions);
        }
        let Ok(body) = self.request.continuation(kept, tokens) else { return End::Cut(Cut::UnreadableEvent) };
        self.resumptions += 1;
        self.repeated = blanks.to_owned();
        self.before = TokensBefore { prompt: self.sent.prompt_tokens, text: tokens };
        self.sent.tokens = tokens;
        self.sent.blank_tokens = 0;
        End::Resume(body)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stream(api: StreamApi, fields: &Value) -> Resumption {
        let mut body =
            json!({"stream": true, "prompt": "p", "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let request = ResumableRequest::read(api, body.to_string().into_bytes()).unwrap();
        let mut stream = Resumption::new(request, &Budget::new(1000, 2000), 2).unwrap();
        assert!(stream.head(b"200", b"text/event-stream; charset=utf-8", false));
        stream
    }

    fn chat(fields: &Value) -> Resumption {
        stream(StreamApi::Chat, fields)
    }

    fn event(id: &str, delta: &Value, finish: Option<&str>) -> String {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let event = json!({"id": id, "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
        format!("data: {event}\n\n")
    }

    fn word(id: &str, word: &str) -> String {
        event(id, &json!({"content": word}), None)
    }

    fn usage(id: &str, prompt: u64, completion: u64) -> String {
        let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion});
        format!("data: {}\n\n", json!({"id": id, "choices": [], "usage": usage}))
    }

    const END: &str = "data: [DONE]\n\n";

    fn pass(stream: &mut Resumption, text: &str) -> String {
        String::from_utf8(stream.chunk(text.as_bytes())).unwrap()
    }

    /// The next request, after a reset.
    fn resumed(stream: &mut Resumption) -> Value {
        let End::Resume(body) = stream.end(true) else { panic!("not resumed") };
        assert!(stream.head(b"200", b"text/event-stream", false));
        serde_json::from_slice(&body).unwrap()
    }

    /// The events of a response, `[DONE]` as null.
    fn events(text: &str) -> Vec<Value> {
        let data = text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap());
        data.map(|data| if data == "[DONE]" { Value::Null } else { data.parse().unwrap() }).collect()
    }

    #[test]
    fn a_whole_response_passes_byte_for_byte() {
        let mut stream = chat(&json!({}));
        let text = format!(": ping\n\n{}{}{END}", word("a", "x"), event("a", &json!({}), Some("stop")));
        for chunk in text.as_bytes().chunks(7).map(<[u8]>::to_vec).collect::<Vec<_>>() {
            stream.chunk(&chunk);
        }
        assert_eq!(stream.end(false), End::Complete(vec![]));
        let mut stream = chat(&json!({}));
        assert_eq!(pass(&mut stream, &text), text);
        assert_eq!(stream.end(true), End::Complete(vec![]), "a reset behind the end");
    }

    #[test]
    fn a_cut_stream_continues_as_one_response() {
        let mut stream = chat(&json!({"max_tokens": 5, "stream_options": {"include_usage": true}}));
        let role = event("a", &json!({"role": "assistant", "content": ""}), None);
        let mut client = pass(&mut stream, &format!("{role}{}{}", word("a", "The"), word("a", " quick")));
        // The half of an event does not reach the client.
        assert_eq!(pass(&mut stream, &word("a", " lost")[..40]), "");
        let body = resumed(&mut stream);
        assert_eq!(body["max_tokens"], 3);
        assert_eq!(body["messages"][1], json!({"role": "assistant", "content": "The quick"}));
        let role = event("b", &json!({"role": "assistant", "content": ""}), None);
        client += &pass(&mut stream, &(role + &word("b", " brown")));
        let body = resumed(&mut stream);
        assert_eq!(
            (&body["max_tokens"], &body["messages"][1]["content"]),
            (&json!(2), &json!("The quick brown"))
        );
        let rest =
            [word("c", " fox"), event("c", &json!({}), Some("stop")), usage("c", 13, 1), END.to_owned()];
        client += &pass(&mut stream, &rest.concat());
        assert_eq!((stream.end(false), stream.resumptions()), (End::Complete(vec![]), 2));
        let all = events(&client);
        let text: String =
            all.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
        assert_eq!(text, "The quick brown fox");
        assert_eq!(all.last(), Some(&Value::Null));
        assert!(all.iter().filter(|event| event.is_object()).all(|event| event["id"] == "a"), "{client}");
        assert_eq!(client.matches("role").count(), 1, "{client}");
        let sums = json!({"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14});
        assert_eq!(all[all.len() - 2]["usage"], sums);
    }

    #[test]
    fn completions_continue_behind_the_prompt() {
        let mut stream = stream(StreamApi::Completions, &json!({}));
        let word =
            |id, text| format!("data: {}\n\n", json!({"id": id, "choices": [{"index": 0, "text": text}]}));
        let client = pass(&mut stream, &word("a", "x "));
        let body = resumed(&mut stream);
        assert_eq!(body["prompt"], "px ");
        let client = client + &pass(&mut stream, &word("b", "y"));
        let all = events(&client);
        assert_eq!((&all[1]["id"], &all[1]["choices"][0]["text"]), (&json!("a"), &json!("y")));
    }

    #[test]
    fn blanks_at_the_end_of_a_message_are_not_repeated() {
        for (again, expected) in [("\n\nb", "b"), ("\nb", "b"), ("b", "b"), ("\n\n\nb", "\nb")] {
            let mut stream = chat(&json!({"max_tokens": 9}));
            pass(&mut stream, &[word("a", "a"), word("a", "\n\n")].concat());
            let body = resumed(&mut stream);
            assert_eq!((&body["max_tokens"], &body["messages"][1]["content"]), (&json!(8), &json!("a")));
            let mut text = String::new();
            for part in again.split_inclusive('\n') {
                let client = pass(&mut stream, &word("b", part));
                text += events(&client)
                    .first()
                    .map_or("", |event| event["choices"][0]["delta"]["content"].as_str().unwrap());
            }
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_response_that_was_cut_before_its_text_is_requested_again() {
        let mut stream = chat(&json!({}));
        let before = pass(&mut stream, &event("a", &json!({"role": "assistant", "content": ""}), None));
        let body = resumed(&mut stream);
        assert_eq!(body["messages"].as_array().unwrap().len(), 1);
        let after = pass(&mut stream, &event("b", &json!({"role": "assistant", "content": "x"}), None));
        assert_eq!((before + &after).matches("role").count(), 1);
        assert_eq!(events(&after)[0]["id"], "a");
    }

    #[test]
    fn an_end_without_the_marker_is_a_cut() {
        let mut stream = chat(&json!({}));
        pass(&mut stream, &word("a", "x"));
        assert!(matches!(stream.end(false), End::Resume(_)));
    }

    #[test]
    fn a_complete_text_only_gets_its_end() {
        let mut stream = chat(&json!({}));
        pass(&mut stream, &event("a", &json!({"content": "x"}), Some("stop")));
        assert_eq!(stream.end(true), End::Complete(END.into()));

        let mut stream = chat(&json!({"max_tokens": 1}));
        pass(&mut stream, &word("a", "x"));
        let End::Complete(last) = stream.end(true) else { panic!("not complete") };
        let all = events(core::str::from_utf8(&last).unwrap());
        assert_eq!((&all[0]["id"], &all[0]["choices"][0]["finish_reason"]), (&json!("a"), &json!("length")));
        assert_eq!(all[1], Value::Null);

        let mut stream = chat(&json!({"stream_options": {"include_usage": true}}));
        pass(&mut stream, &event("a", &json!({"content": "x"}), Some("stop")));
        assert_eq!(stream.end(true), End::Cut(Cut::UsageLost));
    }

    #[test]
    fn usage_in_each_event_counts_the_tokens() {
        let options = json!({"max_tokens": 10, "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
        let mut stream = chat(&options);
        let with_usage = |id: &str, text: &str, prompt: u64, completion: u64| {
            let mut event = events(&word(id, text)).remove(0);
            event["usage"] =
                json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": 0});
            format!("data: {event}\n\n")
        };
        pass(&mut stream, &with_usage("a", "x y z", 7, 3));
        assert_eq!(resumed(&mut stream)["max_tokens"], 7);
        let client = pass(&mut stream, &with_usage("b", " a", 11, 1));
        let sums = json!({"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11});
        assert_eq!(events(&client)[0]["usage"], sums);
    }

    #[test]
    fn other_streams_are_cut_with_the_reason() {
        let cut = |text: &str| {
            let mut stream = chat(&json!({}));
            assert_eq!(pass(&mut stream, text), text);
            let End::Cut(cut) = stream.end(true) else { panic!("not cut: {text}") };
            cut
        };
        assert_eq!(cut(&event("a", &json!({"tool_calls": [{}]}), None)), Cut::ToolCall);
        assert_eq!(cut(&event("a", &json!({"reasoning_content": "hm"}), None)), Cut::Reasoning);
        assert_eq!(cut("data: {\"error\": {}}\n\ndata: x"), Cut::OtherOutput);
        assert_eq!(cut("data: x\n\nrest"), Cut::UnreadableEvent);
        assert_eq!(cut(&word("a", &"x".repeat(1000))), Cut::TooLarge);
        assert_eq!(cut(&"x".repeat(1001)), Cut::UnreadableEvent);

        let mut stream = chat(&json!({}));
        pass(&mut stream, &event("a", &json!({"tool_calls": [{}]}), None));
        assert!(stream.body().is_empty(), "a body that will not be sent again is not kept");

        let mut stream = chat(&json!({}));
        assert!(stream.head(b"503", b"text/event-stream", false));
        assert_eq!(pass(&mut stream, "{"), "{");
        assert_eq!(stream.end(true), End::Cut(Cut::NotEvents));

        let mut stream = chat(&json!({}));
        pass(&mut stream, &word("a", "x"));
        assert!(matches!(stream.end(true), End::Resume(_)));
        assert!(!stream.head(b"503", b"application/json", false), "a refusal continues nothing");
        let mut stream = chat(&json!({}));
        for _ in 0..2 {
            pass(&mut stream, &word("a", "x"));
            resumed(&mut stream);
        }
        assert_eq!(stream.end(true), End::Cut(Cut::TooManyResumptions));

        let mut stream = chat(&json!({}));
        pass(&mut stream, &word("a", "x"));
        resumed(&mut stream);
        let long = "x".repeat(1001);
        assert_eq!(pass(&mut stream, &long), long, "an event that is too long is not held");
        assert_eq!(pass(&mut stream, "y"), "y");
        assert_eq!(stream.end(true), End::Cut(Cut::UnreadableEvent));
    }

    #[test]
    fn what_is_kept_returns_to_the_budget() {
        let budget = Budget::new(1000, 100);
        let body = json!({"stream": true, "messages": [{"role": "user", "content": "hi"}]}).to_string();
        let request = || ResumableRequest::read(StreamApi::Chat, body.clone().into_bytes()).unwrap();
        let mut first = Resumption::new(request(), &budget, 1).unwrap();
        assert_eq!(Resumption::new(request(), &budget, 1).unwrap_err(), Unresumable::TooLarge);
        first.head(b"200", b"text/event-stream", false);
        first.chunk(word("a", "four").as_bytes());
        assert_eq!(budget.used(), body.len() + 4);
        drop(first);
        assert_eq!(budget.used(), 0);
    }
}
