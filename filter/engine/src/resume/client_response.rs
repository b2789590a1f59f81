//! The one response that the client of a stream has, made of the events of several responses.

use core::num::NonZeroU64;

use super::api::StreamApi;
use super::event::{Event, NewOutput};
use super::identity::{Identity, TokensBefore};
use super::lines::{self, DONE};
use super::transcript::{DifferentOutput, Place, Transcript};
use super::typed_event::{TypedEvent, TypedIdentity, TypedOutput};

/// The part of the response that the client has.
#[derive(Debug, Default)]
pub(super) struct ClientResponse {
    identity: Option<Identity>,
    typed: TypedIdentity,
    /// The text behind which the current generation begins.
    text_before: String,
    /// The output of the current generation.
    output: Transcript,
    /// Tokens of the text. Unless the server reports them in each event, an event with text counts as one.
    tokens: u64,
    /// Tokens at the end of the text that are only blanks.
    blank_tokens: u64,
    prompt_tokens: Option<NonZeroU64>,
    has_role: bool,
    has_usage: bool,
    progress: ResponseProgressOfClient,
    /// Tokens before the current generation; `None` during the first response.
    before: Option<TokensBefore>,
    /// Blanks at the end of the text that the server generates again: templates remove them from the last
    /// message.
    repeated: String,
}

/// Progress of the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum ResponseProgressOfClient {
    /// A part of the output.
    #[default]
    Part,
    /// The whole output, with the reason of its end.
    Whole,
    /// All, with the marker of the end.
    Done,
}

impl ClientResponse {
    /// Writes an event with this data for the client: unchanged if it is of the first response, and otherwise
    /// as a part of that response. Returns the bytes that are kept of its new output.
    pub(super) fn add(
        &mut self,
        event: &[u8],
        data: &[u8],
        read: &Event<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize, DifferentOutput> {
        let text = self.without_repeated(read.text());
        let (has_finish, was_repeating) = (self.is_whole(), self.is_repeating());
        let before = self.output.bytes();
        let new = read.new_output(text, &mut self.output, has_finish)?;
        match (&self.identity, self.before) {
            _ if was_repeating && self.output.bytes() == before && !new.is_finish => {}
            (Some(identity), Some(before)) => {
                let keeps_role = !self.has_role;
                if let Some(event) = identity.continue_with(data, &new, before, keeps_role) {
                    out.extend(lines::event(&event));
                }
            }
            (Some(_), None) => out.extend(event),
            (None, _) => {
                self.identity = Identity::read(data);
                out.extend(event);
            }
        }
        self.count(read, &new);
        Ok(self.output.bytes() - before)
    }

    /// The same for an event with a type, which has this output.
    pub(super) fn add_typed(
        &mut self,
        event: &[u8],
        data: &[u8],
        read: &TypedEvent<'_>,
        output: &TypedOutput<'_>,
        out: &mut Vec<u8>,
    ) -> Result<usize, DifferentOutput> {
        let before = self.output.bytes();
        let (text, is_new) = match output {
            TypedOutput::Text(place, text) => {
                let new = self.output.text(*place, text)?;
                (Some(new), !new.is_empty())
            }
            TypedOutput::Event(place) => (None, self.output.event(*place)?),
            TypedOutput::Ping | TypedOutput::Other => (None, true),
        };
        if !is_new {
            self.typed.repeat(read);
            return Ok(0);
        }
        let kept = if self.before.is_some() {
            self.typed.continue_with(data, read, text, out)
        } else {
            out.extend(event);
            self.typed.add(read)
        };
        let progress = match () {
            () if read.is_end() => ResponseProgressOfClient::Done,
            () if read.is_finish() => ResponseProgressOfClient::Whole,
            () => ResponseProgressOfClient::Part,
        };
        self.progress = self.progress.max(progress);
        Ok(kept + self.output.bytes() - before)
    }

    /// The text without the blanks at its beginning that the client has already.
    fn without_repeated<'t>(&mut self, text: &'t str) -> &'t str {
        if self.repeated.is_empty() {
            return text;
        }
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

    fn count(&mut self, read: &Event<'_>, output: &NewOutput<'_>) {
        self.has_role |= read.has_role();
        if read.is_finish() {
            self.progress = self.progress.max(ResponseProgressOfClient::Whole);
        }
        let mut new = u64::from(!read.text().is_empty());
        if let Some(usage) = read.usage() {
            let before = self.before.map_or(0, |before| before.text);
            new = before.saturating_add(usage.completion_tokens).saturating_sub(self.tokens);
            if self.before.is_none() {
                self.prompt_tokens = NonZeroU64::new(usage.prompt_tokens).or(self.prompt_tokens);
            }
            self.has_usage = true;
        }
        self.count_tokens(output.text, new);
    }

    /// Counts this many tokens of this text.
    fn count_tokens(&mut self, text: &str, tokens: u64) {
        self.tokens = self.tokens.saturating_add(tokens);
        let is_blank = text.trim_start().is_empty();
        self.blank_tokens = if is_blank { self.blank_tokens.saturating_add(tokens) } else { 0 };
    }

    /// The client has got an event of the first response with this text and nothing else that matters.
    pub(super) fn add_plain(&mut self, text: &str) -> Result<(), DifferentOutput> {
        self.count_tokens(text, 1);
        self.output.text(Place::TEXT, text).map(drop)
    }

    /// Frees the output of a response that will not be continued.
    pub(super) fn forget_output(&mut self) {
        self.text_before = String::new();
        self.output.forget();
    }

    /// Whether the client has output that the current response has not repeated yet.
    pub(super) fn is_repeating(&self) -> bool {
        self.output.is_repeating()
    }

    /// The client has the marker of the end.
    pub(super) fn finish(&mut self) {
        self.progress = ResponseProgressOfClient::Done;
    }

    pub(super) fn is_done(&self) -> bool {
        self.progress == ResponseProgressOfClient::Done
    }

    /// Whether the client has the whole output.
    pub(super) fn is_whole(&self) -> bool {
        self.progress >= ResponseProgressOfClient::Whole
    }

    pub(super) fn has_usage(&self) -> bool {
        self.has_usage
    }

    /// Whether the client has no other output than text.
    pub(super) fn has_only_text(&self) -> bool {
        self.output.only_text().is_some()
    }

    /// The number of the client's last event, where events have numbers.
    pub(super) fn sequence_number(&self) -> Option<u64> {
        self.typed.sequence_number()
    }

    /// Tokens of the client's text that are not generated again if its text is continued.
    pub(super) fn tokens(&self, api: StreamApi) -> u64 {
        self.tokens.saturating_sub(if api == StreamApi::Chat { self.blank_tokens } else { 0 })
    }

    /// The text for the request of the current generation, and its tokens.
    pub(super) fn text_before(&self, api: StreamApi) -> (&str, u64) {
        let text = match api {
            // Blanks at the end of a message are generated again.
            StreamApi::Chat => self.text_before.trim_end(),
            StreamApi::Completions | StreamApi::Responses | StreamApi::Messages => &self.text_before,
        };
        (text, self.before.map_or(0, |before| before.text))
    }

    /// The next response continues the text.
    pub(super) fn continue_text(&mut self, api: StreamApi) {
        self.text_before.push_str(self.output.only_text().unwrap_or_default());
        self.output.clear();
        self.before = Some(TokensBefore { prompt: self.prompt_tokens, text: self.tokens(api) });
        self.generate_again(api);
    }

    /// The next response has the output of the current generation again.
    pub(super) fn generate_again(&mut self, api: StreamApi) {
        let before = *self.before.get_or_insert(TokensBefore { prompt: self.prompt_tokens, text: 0 });
        let (text, _) = self.text_before(api);
        self.repeated = self.text_before.get(text.len()..).unwrap_or_default().to_owned();
        (self.tokens, self.blank_tokens) = (before.text, 0);
        self.output.repeat();
        self.typed.begin_again();
    }

    /// The end of a response whose output is whole: the marker of the end, and before it the client's limit
    /// as the reason, unless the client has a reason.
    pub(super) fn last_events(&self, api: StreamApi) -> Vec<u8> {
        if api.has_types() {
            return lines::typed_event("message_stop", &r#"{"type":"message_stop"}"#);
        }
        let is_chat = api == StreamApi::Chat;
        let finish = self.identity.as_ref().filter(|_| !self.is_whole());
        let mut last = finish.map(|identity| lines::event(&identity.at_limit(is_chat))).unwrap_or_default();
        last.extend(lines::event(DONE));
        last
    }
}
