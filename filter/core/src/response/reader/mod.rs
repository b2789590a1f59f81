//! Reads a response while it passes through the proxy: its token counts, the first output of the model, and
//! errors.
//!
//! The first token of a response is in the first event that carries output. A comment and an event of
//! bookkeeping, such as `response.created` or `message_start`, come before the server's engine has begun. An
//! event that is not known to be bookkeeping counts as output, so servers of other kinds have a first token
//! too.
//!
//! Only these and a few chunks are kept of a response, so a response or a line of it may have any length.

mod error;
mod messages;
mod scanner;
mod words;

pub use error::ResponseError;
use memchr::{memchr, memrchr};
use messages::MessageReader;
use scanner::{Found, Scanner};
use words::Words;

use super::usage::Usage;
use crate::request::body::ResponseMessage;
use crate::request::stored::StoredId;

/// The beginning of a line with data in a stream of events.
const DATA: &[u8] = b"data:";

/// Maximum size of the chunks that are kept to be read together, in bytes: some 20 events of a token.
const MAX_KEPT_CHUNKS: usize = 4096;

/// Minimum size of a part that is searched for lines that matter, in bytes: to begin a search costs as much
/// as to read some events.
const MIN_SEARCHED: usize = 1024;

/// Reads one response.
#[derive(Clone, Debug)]
pub struct ResponseReader {
    scanner: Scanner,
    encoding: BodyEncoding,
    usage: Usage,
    found: Found,
    /// Whether the id of the response is read, and has not come.
    reads_id: bool,
    /// Chunks that have come and are not read yet.
    kept: Vec<u8>,
}

#[derive(Clone, Debug)]
enum BodyEncoding {
    /// One JSON text.
    Json,
    /// Lines of events.
    Events(Line),
    /// Messages of gRPC.
    Messages(Box<MessageReader>),
}

/// The line of a stream of events that is being read.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// Only this many bytes of the line were received; they are the beginning of [`DATA`].
    Begins(usize),
    Data,
    /// A comment, the name of an event or an empty line.
    Other,
}

/// Whether a response of this `content-type` is a stream of events.
pub fn is_stream(content_type: &[u8]) -> bool {
    is_of_type(content_type, b"text/event-stream")
}

/// Whether this media type, in any case, is before the parameters of a `content-type`.
fn is_of_type(content_type: &[u8], media_type: &[u8]) -> bool {
    let parts = content_type.trim_ascii_start().split_at_checked(media_type.len());
    parts.is_some_and(|(beginning, rest)| {
        beginning.eq_ignore_ascii_case(media_type)
            && matches!(rest.trim_ascii_start().first(), None | Some(b';'))
    })
}

impl ResponseReader {
    /// A reader for a response of this `content-type` and `content-encoding`. `None` if the response is
    /// neither JSON nor a stream of events, or is compressed.
    pub fn new(content_type: &[u8], content_encoding: Option<&[u8]>) -> Option<Self> {
        let is_plain = content_encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity"));
        let encoding = if is_stream(content_type) {
            BodyEncoding::Events(Line::Begins(0))
        } else if is_of_type(content_type, b"application/json") {
            BodyEncoding::Json
        } else {
            return None;
        };
        is_plain.then(|| Self::of(encoding))
    }

    /// A reader for a response of gRPC, whose usage is in messages of this type.
    pub fn of_messages(message: ResponseMessage) -> Self {
        Self::of(BodyEncoding::Messages(Box::new(MessageReader::new(message))))
    }

    fn of(encoding: BodyEncoding) -> Self {
        let (usage, found) = (Usage::default(), Found::default());
        Self { scanner: Scanner::default(), encoding, usage, found, reads_id: false, kept: Vec::new() }
    }

    /// Reads the [id](Self::take_id) of the response, too.
    #[must_use]
    pub fn with_id(self) -> Self {
        Self { scanner: Scanner::with_id(), reads_id: true, ..self }
    }

    /// Keeps the next chunk of the response, which is read with later ones: at their end, or when they are
    /// many. This costs a small part of reading each, where nothing waits for its content.
    pub fn keep_chunk(&mut self, chunk: &[u8]) {
        if self.kept.len() + chunk.len() > MAX_KEPT_CHUNKS {
            self.read_kept();
        }
        if chunk.len() > MAX_KEPT_CHUNKS { self.read(chunk) } else { self.kept.extend_from_slice(chunk) }
    }

    /// Whether no chunk waits to be read.
    pub fn keeps_no_chunk(&self) -> bool {
        self.kept.is_empty()
    }

    /// Reads the next chunk of the response, and those that were kept before.
    pub fn read_chunk(&mut self, chunk: &[u8]) {
        self.read_kept();
        self.read(chunk);
    }

    fn read_kept(&mut self) {
        if !self.kept.is_empty() {
            let mut kept = core::mem::take(&mut self.kept);
            self.read(&kept);
            kept.clear();
            self.kept = kept;
        }
    }

    fn read(&mut self, chunk: &[u8]) {
        match &mut self.encoding {
            BodyEncoding::Json => self.scanner.read(chunk),
            BodyEncoding::Events(_) => self.read_lines(chunk),
            BodyEncoding::Messages(reader) => reader.read(chunk, &mut self.usage, &mut self.found),
        }
    }

    /// Whether output of the model has come. A response that is one JSON text is output, unless it begins
    /// with an error.
    pub fn has_output(&self) -> bool {
        match self.encoding {
            BodyEncoding::Json => {
                self.error().is_none() && (self.found.has_output || self.scanner.has_begun())
            }
            BodyEncoding::Events(_) | BodyEncoding::Messages(_) => self.found.has_output,
        }
    }

    /// The id of the response, when it has come, once: a member of the text or, in an event, of its
    /// `response`.
    pub fn take_id(&mut self) -> Option<StoredId> {
        let id = self.found.stored.or(self.scanner.found().stored).filter(|_| self.reads_id);
        self.reads_id &= id.is_none();
        id
    }

    /// Whether the id may still come: in a text until its end, in a stream until its first output.
    pub fn awaits_id(&self) -> bool {
        self.reads_id && (matches!(self.encoding, BodyEncoding::Json) || !self.has_output())
    }

    /// The first error in the response.
    pub fn error(&self) -> Option<ResponseError> {
        self.found.error.or(self.scanner.found().error)
    }

    fn read_lines(&mut self, chunk: &[u8]) {
        let mut words = None;
        let mut rest = self.pass_lines(chunk, chunk, &mut words);
        while let Some(line) = memchr(b'\n', rest).and_then(|end| rest.get(..end)) {
            self.read_part_of_line(line);
            self.end_text();
            self.encoding = BodyEncoding::Events(Line::Begins(0));
            rest = self.pass_lines(chunk, rest.get(line.len() + 1..).unwrap_or_default(), &mut words);
        }
        // The rest is a line that the next chunk continues.
        self.read_part_of_line(rest);
    }

    /// Passes over the first whole lines of the rest of a chunk, as far as nothing in them matters: most
    /// events are output, of which nothing matters after the first.
    fn pass_lines<'c>(&self, chunk: &'c [u8], rest: &'c [u8], words: &mut Option<Words<'c>>) -> &'c [u8] {
        let is_between = matches!(self.encoding, BodyEncoding::Events(Line::Begins(0)));
        if !is_between || !self.found.has_output || self.reads_id || chunk.len() < MIN_SEARCHED {
            return rest;
        }
        let words = words.get_or_insert_with(|| Words::of(chunk));
        let passed = memrchr(b'\n', words.before(rest)).map_or(0, |end| end + 1);
        rest.get(passed..).unwrap_or_default()
    }

    /// Ends the response, whose last line may lack its end.
    pub fn end(&mut self) {
        self.read_kept();
        let has_output = self.has_output();
        self.end_text();
        self.found.has_output |= has_output;
    }

    /// Ends the response and returns its usage.
    pub fn finish(mut self) -> Usage {
        self.end();
        self.usage
    }

    fn read_part_of_line(&mut self, mut part: &[u8]) {
        let BodyEncoding::Events(line) = &mut self.encoding else { return };
        if let Line::Begins(received) = *line {
            let missing = DATA.get(received..).unwrap_or_default();
            *line = if let Some(text) = part.strip_prefix(missing) {
                part = text;
                Line::Data
            } else if missing.starts_with(part) {
                Line::Begins(received + part.len())
            } else {
                Line::Other
            };
        }
        if let Line::Data = line {
            self.scanner.read(part);
        }
    }

    /// Ends a JSON text, whose usage counts if the text was complete.
    fn end_text(&mut self) {
        // The end of a line without data. A scanner is large to replace.
        if self.scanner.is_unread() {
            return;
        }
        let next = if self.reads_id { Scanner::with_id() } else { Scanner::default() };
        let (usage, found) = core::mem::replace(&mut self.scanner, next).finish();
        if let Some(usage) = usage {
            self.usage.merge(usage);
        }
        self.found.merge(found);
    }
}
