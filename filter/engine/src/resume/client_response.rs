//! The one response that the client of a stream has, made of the events of several responses.

use core::num::NonZeroU64;

use super::event::{Event, Identity, TokensBefore};
use super::lines::{self, DONE};
use super::request::StreamApi;

/// The part of the response that the client has.
#[derive(Debug, Default)]
pub(super) struct ClientResponse {
    identity: Option<Identity>,
    text: String,
    /// Tokens of the text. Unless the server reports them in each event, an event with text counts as one.
    tokens: u64,
    /// Tokens at the end of the text that are only blanks.
    blank_tokens: u64,
    prompt_tokens: Option<NonZeroU64>,
    has_role: bool,
    has_usage: bool,
    progress: ResponseProgressOfClient,
    /// Tokens before the response that is received now; `None` during the first one.
    before: Option<TokensBefore>,
    /// Blanks at the end of the text that the server generates again: templates remove them from the last
    /// message.
    repeated: String,
}

/// Progress of the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum ResponseProgressOfClient {
    /// A part of the text.
    #[default]
    Text,
    /// The whole text, with the reason of its end.
    WholeText,
    /// All, with the marker of the end.
    Done,
}

impl ClientResponse {
    /// Writes an event with this data for the client: unchanged if it is of the first response, and otherwise
    /// as a part of that response. Returns the text that is new to the client.
    pub(super) fn add<'e>(
        &mut self,
        event: &[u8],
        data: &[u8],
        read: &'e Event<'_>,
        out: &mut Vec<u8>,
    ) -> &'e str {
        let text = self.without_repeated(read.text());
        match (&self.identity, self.before) {
            (Some(identity), Some(before)) => {
                let keeps_role = !self.has_role;
                if let Some(event) = identity.continue_with(data, text, before, keeps_role) {
                    out.extend(lines::event(&event));
                }
            }
            (Some(_), None) => out.extend(event),
            (None, _) => {
                self.identity = Identity::read(data);
                out.extend(event);
            }
        }
        self.count(read, text);
        text
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

    fn count(&mut self, read: &Event<'_>, text: &str) {
        self.has_role |= read.has_role();
        if read.is_finish() {
            self.progress = self.progress.max(ResponseProgressOfClient::WholeText);
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
        self.count_tokens(text, new);
    }

    /// Counts this many tokens of this text.
    fn count_tokens(&mut self, text: &str, tokens: u64) {
        self.tokens = self.tokens.saturating_add(tokens);
        let is_blank = text.trim_start().is_empty();
        self.blank_tokens = if is_blank { self.blank_tokens.saturating_add(tokens) } else { 0 };
    }

    /// The client has got an event of the first response with this text and nothing else that matters.
    pub(super) fn add_plain(&mut self, text: &str) {
        self.count_tokens(text, 1);
    }

    /// Keeps text that the client got, for a later continuation.
    pub(super) fn keep(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Frees the text of a response that will not be continued.
    pub(super) fn forget_text(&mut self) {
        self.text = String::new();
    }

    /// The client has the marker of the end.
    pub(super) fn finish(&mut self) {
        self.progress = ResponseProgressOfClient::Done;
    }

    pub(super) fn is_done(&self) -> bool {
        self.progress == ResponseProgressOfClient::Done
    }

    /// Whether the client has the whole text.
    pub(super) fn is_whole_text(&self) -> bool {
        self.progress >= ResponseProgressOfClient::WholeText
    }

    pub(super) fn has_usage(&self) -> bool {
        self.has_usage
    }

    /// The text for the next request, and its tokens. Blanks at the end of a message are generated again.
    pub(super) fn text(&self, api: StreamApi) -> (&str, u64) {
        match api {
            StreamApi::Chat => (self.text.trim_end(), self.tokens.saturating_sub(self.blank_tokens)),
            StreamApi::Completions => (self.text.as_str(), self.tokens),
        }
    }

    /// The next response continues the [text](Self::text).
    pub(super) fn begin_continuation(&mut self, api: StreamApi) {
        let (text, tokens) = self.text(api);
        let blanks = self.text.get(text.len()..).unwrap_or_default().to_owned();
        self.repeated = blanks;
        self.before = Some(TokensBefore { prompt: self.prompt_tokens, text: tokens });
        self.tokens = tokens;
        self.blank_tokens = 0;
    }

    /// The end of a response whose text is complete: the marker of the end, and before it the client's limit
    /// as the reason, unless the client has a reason.
    pub(super) fn last_events(&self, api: StreamApi) -> Vec<u8> {
        let is_chat = api == StreamApi::Chat;
        let finish = self.identity.as_ref().filter(|_| !self.is_whole_text());
        let mut last = finish.map(|identity| lines::event(&identity.at_limit(is_chat))).unwrap_or_default();
        last.extend(lines::event(DONE));
        last
    }
}
