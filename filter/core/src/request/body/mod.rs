//! The fields of a request body on which the decision depends, read in one pass and without a tree.
//!
//! The [path](Parsers::api) determines the [`Api`] of a body, [`Body::read`] reads it. Strings without
//! escapes are borrowed from the body. Rules, field names and messages are the EPP's, with three intended
//! differences: bodies that are not UTF-8 are refused instead of repaired, nesting is limited to 127 levels,
//! and field names must have the exact spelling.

mod beginning;
mod canonical;
mod error;
mod field;
mod form;
mod format;
mod json_text;
mod message;
mod object;
mod parsers;
mod read_body;

use core::ops::Range;
use std::borrow::Cow;

use crate::json;
use crate::request::prompt::{Media, Prompt, VideoHints};
use crate::request::session::SessionName;
use crate::request::stored::ServerState;
pub use error::{BodyError, Fault};
use form::{Boundary, is_form};
pub use format::Api;
pub use message::ResponseMessage;
pub use parsers::{Parser, Parsers, opens_tunnel, request_path};
pub use read_body::ReadBody;

/// How bodies are read.
#[derive(Clone, Copy, Debug)]
pub struct Options<'h> {
    /// Bytes of the prompt that are kept for hashing; the rest is only counted.
    pub keep_bytes: usize,
    /// How images, videos and audio are counted.
    pub media: Media,
    /// Properties of this request's videos, from its headers.
    pub video: VideoHints,
    /// The request's content type, by which a body is a form or JSON.
    pub content_type: Option<&'h str>,
    /// Whether a body that the EPP refuses is refused. If not, the model and as much as possible of the
    /// prompt is read of every body that a server can read.
    pub refuses_as_epp: bool,
}

impl Options<'_> {
    /// The boundary of the parts, if the body of a request to `api` is a form.
    fn boundary(&self, api: Api) -> Option<Result<Boundary<'_>, BodyError>> {
        let content_type =
            self.content_type.filter(|content_type| api.rules().may_be_form && is_form(content_type));
        content_type.map(Boundary::of)
    }

    /// Whether the body is JSON by its content type. Servers take one without a type for JSON.
    pub fn is_declared_json(&self) -> bool {
        let Some(content_type) = self.content_type else { return true };
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        matches!(&*kind, "application/json" | "text/json") || kind.ends_with("+json")
    }
}

impl Default for Options<'_> {
    /// Keeps 131 072 tokens, the default of the EPP's prefix producer, and refuses as the EPP does.
    fn default() -> Self {
        let keep_bytes = 131_072 * crate::request::prompt::BYTES_PER_TOKEN;
        Self {
            keep_bytes,
            media: Media::default(),
            video: VideoHints::default(),
            content_type: None,
            refuses_as_epp: true,
        }
    }
}

/// The fields of a request body on which the decision depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body<'a> {
    /// The client's model; `None` if it is missing, empty or not a string.
    pub model: Option<Cow<'a, str>>,
    /// The offsets of the value of the last top-level `model` in the body, with the quotes if it is a string.
    /// `None` if there is no such member, or its key is spelled with escapes; to name a model in such a body,
    /// add a member at its end: the last of several counts. In a form, the offsets of the value of its field.
    pub model_span: Option<Range<usize>>,
    /// The same for the value of the last top-level `priority`.
    pub priority_span: Option<Range<usize>>,
    /// Whether the body is a form and not JSON.
    pub is_form: bool,
    /// Whether the client requests a streamed response.
    pub stream: bool,
    /// The client's limit on generated tokens.
    pub max_output_tokens: Option<u64>,
    /// Prefixes of requests with different salts do not match.
    pub cache_salt: Option<Cow<'a, str>>,
    /// The state at a server that the request needs or leaves.
    pub state: ServerState,
    /// The name of the session that it belongs to.
    pub session: Option<SessionName>,
    /// The prompt.
    pub prompt: Prompt<'a>,
    /// Whether it lacks the prompt that bodies of its API have. The EPP refuses such a body.
    pub lacks_prompt: bool,
}

impl<'a> Body<'a> {
    /// Reads the body of a request to `api` from its bytes. Of a body of gRPC only the first message is read.
    pub fn read_bytes(bytes: &'a [u8], api: Api, options: &Options<'_>) -> Result<Self, BodyError> {
        if let Some(messages) = &api.rules().messages {
            return messages.read_whole(bytes, api, options);
        }
        if let Some(boundary) = options.boundary(api) {
            return form::read(bytes, &boundary?);
        }
        let is_empty = api.rules().may_be_form && without_mark(bytes).is_empty();
        if api == Api::Raw || is_empty || has_no_model(bytes, api, options) {
            return Ok(Self::default());
        }
        Self::read(utf8(bytes)?, api, options)
    }

    /// Reads the first message of a body to `api`, which [is the request](Api::reads_first_message), from its
    /// beginning: at least its [prefix](crate::grpc::Prefix). `None` if the part that has arrived lacks the
    /// prompt, or `api` is another one.
    pub fn read_beginning(
        beginning: &'a [u8],
        api: Api,
        options: &Options<'_>,
    ) -> Option<Result<Self, BodyError>> {
        match api.rules().messages.as_ref()?.read(beginning, api, options) {
            Err(BodyError::Invalid { .. } | BodyError::NoMessage) => None,
            read => Some(read),
        }
    }

    /// Reads the body of a request to `api`, which is JSON. The body of a request to [`Api::Raw`] is not
    /// read. Half a surrogate pair is read as U+FFFD.
    pub fn read(text: &'a str, api: Api, options: &Options<'_>) -> Result<Self, BodyError> {
        if let Some(messages) = &api.rules().messages {
            return messages.read_whole(text.as_bytes(), api, options);
        }
        let mark = text.strip_prefix(BYTE_ORDER_MARK).filter(|_| !options.refuses_as_epp);
        let Some(rest) = mark else { return Self::read_json(text, api, options) };
        Self::read_json(rest, api, options).map(|body| body.behind(text.len() - rest.len()))
    }

    fn read_json(text: &'a str, api: Api, options: &Options<'_>) -> Result<Self, BodyError> {
        let mut read = api.read(text, options);
        // Texts with numbers that are not JSON are rare: only a refused body is searched for them.
        if let Err(BodyError::NotAnObject { .. }) = read
            && !options.refuses_as_epp
            && let Some(text) = json::with_finite_numbers(text)
        {
            read = api.read(&text, options).map(Body::into_owned);
        }
        read
    }

    /// The same body behind this number of bytes.
    fn behind(self, bytes: usize) -> Self {
        let moved = |span: Option<Range<usize>>| span.map(|span| span.start + bytes..span.end + bytes);
        Self { model_span: moved(self.model_span), priority_span: moved(self.priority_span), ..self }
    }

    fn into_owned(self) -> Body<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Body {
            model: self.model.map(owned),
            model_span: self.model_span,
            priority_span: self.priority_span,
            is_form: self.is_form,
            stream: self.stream,
            max_output_tokens: self.max_output_tokens,
            cache_salt: self.cache_salt.map(owned),
            state: self.state,
            session: self.session,
            prompt: self.prompt.into_owned(),
            lacks_prompt: self.lacks_prompt,
        }
    }
}

/// Completes the beginning of a body whose rest was not received yet, so that it can be read. `None` if there
/// is nothing to read yet, or if the bytes are not of the API's format, or nested too deep.
///
/// A body that is malformed in another way stays malformed.
pub fn complete(beginning: Vec<u8>, api: Api, options: &Options<'_>) -> Option<Vec<u8>> {
    match options.boundary(api) {
        Some(boundary) => form::complete(beginning, &boundary.ok()?),
        None => beginning::complete(beginning).map(String::into_bytes),
    }
}

/// The mark that some clients write before a text in UTF-8.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Whether a body of any type that begins with these bytes names no model, because it is neither JSON nor a
/// form. Some servers read JSON of any content type, so a text that begins like an object counts as JSON.
pub fn has_no_model(beginning: &[u8], api: Api, options: &Options<'_>) -> bool {
    let may_be_other =
        api.rules().may_be_form && options.boundary(api).is_none() && !options.is_declared_json();
    may_be_other && without_mark(beginning).first().is_some_and(|&first| first != b'{')
}

/// The text of a body behind blanks and the mark of its encoding.
fn without_mark(body: &[u8]) -> &[u8] {
    body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body).trim_ascii_start()
}

fn utf8(body: &[u8]) -> Result<&str, BodyError> {
    // This search does not find the place of a fault.
    simdutf8::basic::from_utf8(body).or_else(|_| {
        core::str::from_utf8(body).map_err(|error| BodyError::NotUtf8 { offset: error.valid_up_to() })
    })
}
