//! Finds usage, output, errors and the id in a JSON text that comes in chunks, and keeps nothing else of it.

use super::error::{ResponseError, read_error};
use crate::json::OpenString;
use crate::request::stored::{MAX_ID_LENGTH, StoredId};
use crate::response::usage::{Usage, read_usage};

/// A longer `usage` or `error` is not read. OpenAI's usage, with all details, takes 400 bytes.
const MAX_KEPT_LENGTH: usize = 8192;

/// Length of the longest string that matters, a `type` of the responses API.
const MAX_WORD_LENGTH: usize = "response.code_interpreter_call_code.delta".len();

/// One JSON text as far as it was received, or several in a row. The text is not validated: for text that is
/// not JSON the result is unspecified.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner {
    /// The first byte that is not a blank.
    first: Option<u8>,
    /// Objects and arrays that are open.
    depth: usize,
    /// The string that is open.
    string: Option<OpenString>,
    /// The key that the open string is the value of.
    value_of: ScannedKey,
    /// The id of the response, as far as it was received; `None`: it is not wanted.
    id: Option<Vec<u8>>,
    /// The last string as it is spelled; of a longer one than [`MAX_WORD_LENGTH`], the beginning.
    word: Word,
    /// The key of the value that comes next.
    key: ScannedKey,
    /// The key of the object or array at depth 2.
    parent: ScannedKey,
    kept: Option<KeptText>,
    usage: Option<Usage>,
    event: OuterObject,
    /// An outermost object has ended.
    has_object: bool,
    found: Found,
}

/// The findings in a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Found {
    /// An object of the text carries output of the model.
    pub(super) has_output: bool,
    /// The first error.
    pub(super) error: Option<ResponseError>,
    /// The id of the response, if it is wanted.
    pub(super) stored: Option<StoredId>,
}

impl Found {
    pub(super) fn merge(&mut self, later: Self) {
        self.has_output |= later.has_output;
        self.error = self.error.or(later.error);
        self.stored = self.stored.or(later.stored);
    }
}

/// The keys that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScannedKey {
    Usage,
    /// The key of an object that may have usage or an error: in the last event of a response, the first of a
    /// message.
    Inner,
    Choices,
    Error,
    FinishReason,
    Id,
    Type,
    #[default]
    Other,
}

/// The outermost object as far as it was received.
#[derive(Clone, Copy, Debug, Default)]
struct OuterObject {
    kind: EventKind,
    /// Whether it has `choices`, and whether one is in them.
    choices: Option<bool>,
    is_error: bool,
    /// It has a member that is not an error.
    has_member: bool,
}

/// The meaning of an event by its `type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EventKind {
    /// It has no type, or an unknown one: any event that is not known to be bookkeeping counts as output.
    #[default]
    Unknown,
    /// It announces output, or keeps the connection alive.
    Bookkeeping,
    /// It ends the response in place of output.
    Failed,
}

/// The text of an object as far as it was received.
#[derive(Clone, Debug)]
struct KeptText {
    /// [`ScannedKey::Usage`] or [`ScannedKey::Error`].
    key: ScannedKey,
    /// The depth outside of it.
    depth: usize,
    bytes: Vec<u8>,
}

impl Scanner {
    /// A scanner that reads the id of the response, too.
    pub(super) fn with_id() -> Self {
        Self { id: Some(Vec::new()), ..Self::default() }
    }

    /// Reads the next chunk of the text.
    pub(super) fn read(&mut self, text: &[u8]) {
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            let start = at;
            if let Some(string) = &mut self.string {
                let rest = text.get(at..).unwrap_or_default();
                let end = string.end(rest);
                let part = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
                at += part.len();
                self.word.push(part);
                if self.value_of == ScannedKey::Id {
                    self.push_id(part);
                }
                if end.is_some() {
                    self.string = None;
                    self.end_string();
                }
            } else {
                at += 1;
                self.outside_of_strings(byte);
            }
            // After the depth has changed, so that an object is kept with both of its braces.
            if self.kept.is_some() {
                self.keep(text.get(start..at).unwrap_or_default());
            }
        }
    }

    /// Whether a text that is not one of many events has begun with something else than an error.
    pub(super) fn has_begun(&self) -> bool {
        match self.first {
            Some(b'{') => self.has_object || self.event.has_member,
            Some(_) => true,
            None => false,
        }
    }

    /// Whether nothing but blanks was read.
    pub(super) fn is_unread(&self) -> bool {
        self.first.is_none() && self.string.is_none()
    }

    /// The findings so far.
    pub(super) fn found(&self) -> Found {
        self.found
    }

    /// Ends the text. Returns its usage, unless there is none or it is cut off, and its findings.
    pub(super) fn finish(self) -> (Option<Usage>, Found) {
        let mut found = self.found;
        // Text without objects is of an unknown form, unless it is `[DONE]`.
        found.has_output |=
            !self.has_object && self.first.is_some_and(|first| first != b'{' && first != b'[');
        (self.usage.filter(|_| self.depth == 0), found)
    }

    fn outside_of_strings(&mut self, byte: u8) {
        // A key belongs to the next value only, so any byte but a blank ends it.
        let key = core::mem::take(&mut self.key);
        match byte {
            b'"' => {
                self.string = Some(OpenString::default());
                self.value_of = key;
                self.word.length = 0;
            }
            b':' => {
                self.key = self.word.key();
                self.event.has_member |= self.depth == 1 && self.key != ScannedKey::Error;
            }
            b' ' | b'\t' | b'\r' | b'\n' => {
                self.key = key;
                return;
            }
            b'{' | b'[' => self.open(byte, key),
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 && byte == b'}' {
                    self.end_object();
                }
            }
            _ => {}
        }
        self.first = self.first.or(Some(byte));
    }

    fn open(&mut self, byte: u8, key: ScannedKey) {
        if byte == b'{' && matches!(key, ScannedKey::Usage | ScannedKey::Error) && self.is_responses_place() {
            self.kept.get_or_insert(KeptText { key, depth: self.depth, bytes: Vec::new() });
        }
        // Of any other object or array at this depth nothing matters.
        if self.depth == 1 {
            self.parent = key;
            if key == ScannedKey::Choices {
                self.event.choices.get_or_insert(false);
            }
        } else if self.depth == 2 && self.parent == ScannedKey::Choices {
            self.event.choices = Some(true);
        }
        // A list of objects is one of events.
        self.found.has_output |= byte == b'{' && self.depth == 1 && self.first == Some(b'[');
        self.depth += 1;
    }

    /// Whether a member at this place is one of the response.
    fn is_responses_place(&self) -> bool {
        self.depth == 1 || self.depth == 2 && self.parent == ScannedKey::Inner
    }

    fn end_string(&mut self) {
        let word = self.word.spelled();
        match core::mem::take(&mut self.value_of) {
            ScannedKey::Type if self.depth == 1 => self.event.kind = EventKind::of(word),
            ScannedKey::Error if self.is_responses_place() && word != b"\"" => {
                self.note(ResponseError::Server);
            }
            ScannedKey::FinishReason
                if self.depth == 3 && self.parent == ScannedKey::Choices && word == b"error\"" =>
            {
                self.note(ResponseError::Server);
            }
            ScannedKey::Id => self.end_id(),
            ScannedKey::Usage
            | ScannedKey::Inner
            | ScannedKey::Choices
            | ScannedKey::Error
            | ScannedKey::FinishReason
            | ScannedKey::Type
            | ScannedKey::Other => {}
        }
    }

    /// Takes a part of the value of an `id`, which may end with the closing quote.
    #[cold]
    #[inline(never)]
    fn push_id(&mut self, part: &[u8]) {
        let is_place = self.is_responses_place();
        if let Some(id) = self.id.as_mut().filter(|_| is_place && self.found.stored.is_none()) {
            // One byte more shows that the id is too long, besides its quote.
            let room = (MAX_ID_LENGTH + 2).saturating_sub(id.len());
            id.extend(part.iter().take(room));
        }
    }

    /// Notes the id. One with escapes does not count: servers make none.
    #[cold]
    #[inline(never)]
    fn end_id(&mut self) {
        let Some(id) = self.id.as_mut().map(core::mem::take) else { return };
        let id = id.strip_suffix(b"\"").and_then(|id| core::str::from_utf8(id).ok());
        if let Some(id) = id.filter(|id| !id.contains('\\')).and_then(StoredId::of) {
            self.found.stored.get_or_insert(id);
        }
    }

    fn note(&mut self, error: ResponseError) {
        self.event.is_error = true;
        self.found.error.get_or_insert(error);
    }

    /// Ends an outermost object.
    fn end_object(&mut self) {
        let OuterObject { kind, choices, is_error, .. } = core::mem::take(&mut self.event);
        match kind {
            _ if is_error => {}
            EventKind::Failed => {
                self.found.error.get_or_insert(ResponseError::Server);
            }
            EventKind::Bookkeeping => {}
            EventKind::Unknown => self.found.has_output |= choices != Some(false),
        }
        self.has_object = true;
        self.parent = ScannedKey::Other;
    }

    /// Keeps these bytes of an object, and reads the object when they are its last.
    fn keep(&mut self, bytes: &[u8]) {
        let Some(kept) = &mut self.kept else { return };
        // One byte more shows that the text is too long.
        let room = (MAX_KEPT_LENGTH + 1).saturating_sub(kept.bytes.len());
        kept.bytes.extend(bytes.iter().take(room));
        if self.depth > kept.depth {
            return;
        }
        let Some(KeptText { key, bytes, .. }) = self.kept.take() else { return };
        let text = Some(&*bytes).filter(|text| text.len() <= MAX_KEPT_LENGTH);
        if key == ScannedKey::Error {
            self.note(text.map_or(ResponseError::Server, read_error));
        } else if let Some(text) = text {
            self.usage.get_or_insert_default().merge(read_usage(text));
        }
    }
}

impl EventKind {
    /// The kind of an event of this type, which is spelled with the closing quote.
    fn of(spelled: &[u8]) -> Self {
        let is_responses = spelled.starts_with(b"response.");
        let is_end = |suffix: &[u8]| spelled.ends_with(suffix);
        match spelled {
            b"error\"" | b"response.failed\"" => Self::Failed,
            b"ping\""
            | b"message_start\""
            | b"message_stop\""
            | b"content_block_start\""
            | b"content_block_stop\"" => Self::Bookkeeping,
            _ if is_responses => {
                let is_output = is_end(b".delta\"") || is_end(b".done\"") || is_end(b".partial_image\"");
                let is_last = is_end(b".completed\"") || is_end(b".incomplete\"");
                if is_output || is_last { Self::Unknown } else { Self::Bookkeeping }
            }
            _ => Self::Unknown,
        }
    }
}

/// The beginning of a string, long enough for the longest string that matters and the closing quote.
#[derive(Clone, Copy, Debug)]
struct Word {
    bytes: [u8; MAX_WORD_LENGTH + 1],
    length: usize,
}

impl Default for Word {
    fn default() -> Self {
        Self { bytes: [0; MAX_WORD_LENGTH + 1], length: 0 }
    }
}

impl Word {
    fn push(&mut self, bytes: &[u8]) {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let length = room.len().min(bytes.len());
        if let (Some(room), Some(bytes)) = (room.get_mut(..length), bytes.get(..length)) {
            room.copy_from_slice(bytes);
        }
        self.length += length;
    }

    fn spelled(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    /// A key that is spelled with escapes does not matter.
    fn key(&self) -> ScannedKey {
        match self.spelled() {
            br#"usage""# => ScannedKey::Usage,
            br#"response""# | br#"message""# => ScannedKey::Inner,
            br#"choices""# => ScannedKey::Choices,
            br#"error""# => ScannedKey::Error,
            br#"finish_reason""# => ScannedKey::FinishReason,
            br#"type""# => ScannedKey::Type,
            br#"id""# => ScannedKey::Id,
            _ => ScannedKey::Other,
        }
    }
}
