//! The client's model name, put back into responses of a model that took its place.
//!
//! Bytes are replaced: `"model":"TARGET"` by `"model":"CLIENT'S"`, in plain and in streamed responses, where
//! APIs have the name: at the top level of a JSON object, in its `response` (the events of OpenAI's
//! responses), and in its `message` (those of Anthropic's messages). At any other place the text is the
//! model's, such as the input of a tool. The EPP replaces it there too, and misses what is found here: there
//! may be blanks around the colon, the server may spell its name with any escapes of JSON, the name is found
//! however the response is cut into chunks, and the client's name is escaped as JSON requires.

use memchr::{memchr, memchr3};

use crate::json::{Match, OpenString, match_literal, quoted};

/// Maximum length of a name that is put back, in bytes: a client's name of megabytes must not be repeated in
/// every event of a stream.
const MAX_NAME_LENGTH: usize = 4096;

/// Puts the client's name back into one response, chunk by chunk.
#[derive(Clone, Debug)]
pub struct Restore {
    target: String,
    /// The client's name, with quotes.
    name: Vec<u8>,
    /// The number of objects around the next byte.
    depth: u32,
    /// Whether the object at depth 2 is the value of [`ModelKey::Holder`].
    is_held_object: bool,
    position: JsonPosition,
    /// The end of the last chunk, if it is the beginning of the target's name. Never longer than the longest
    /// spelling of that name.
    held: Vec<u8>,
}

/// A key that leads to the name of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelKey {
    /// `model`.
    Model,
    /// `response` or `message`, whose object has the name.
    Holder,
}

/// The place of the next byte.
#[derive(Clone, Copy, Debug)]
enum JsonPosition {
    /// In no string, and not behind a key.
    Between,
    /// In a string that may be a key.
    Key(KeyText),
    /// In another string.
    Text(OpenString),
    /// Behind the key, and maybe blanks.
    AfterKey(ModelKey),
    /// Behind the key, the colon, and maybe blanks around it.
    AfterColon(ModelKey),
}

/// The beginning of a string that may be a key.
#[derive(Clone, Copy, Debug, Default)]
struct KeyText {
    bytes: [u8; KeyText::LONGEST],
    length: usize,
}

impl KeyText {
    /// The length of the longest key.
    const LONGEST: usize = 8;

    /// The text with one more byte; `None` if it is longer than every key.
    fn with(mut self, byte: u8) -> Option<Self> {
        *self.bytes.get_mut(self.length)? = byte;
        self.length += 1;
        Some(self)
    }

    /// The key, at this depth.
    fn key(&self, depth: u32) -> Option<ModelKey> {
        match self.bytes.get(..self.length)? {
            b"model" => Some(ModelKey::Model),
            b"response" | b"message" if depth == 1 => Some(ModelKey::Holder),
            _ => None,
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl Restore {
    /// Replaces `target` by `name` in a response. `None` if the names are equal, one is empty, or `name` is
    /// longer than 4096 bytes.
    pub fn new(target: &str, name: &str) -> Option<Self> {
        let is_needed = target != name && !target.is_empty() && !name.is_empty();
        (is_needed && name.len() <= MAX_NAME_LENGTH).then(|| Self {
            target: target.to_owned(),
            name: quoted(name),
            depth: 0,
            is_held_object: false,
            position: JsonPosition::Between,
            held: Vec::new(),
        })
    }

    /// The bytes to send in place of this chunk; `None`: the chunk as it is.
    ///
    /// If the chunk ends within the target's name, the beginning of the name is held back and sent with the
    /// next chunk. The last chunk holds nothing back.
    pub fn chunk(&mut self, chunk: &[u8], is_last: bool) -> Option<Vec<u8>> {
        let mut held = core::mem::take(&mut self.held);
        let was_holding = !held.is_empty();
        let text = if was_holding {
            // These bytes begin with the quote of the name, and `position` is still the one before it.
            held.extend_from_slice(chunk);
            &held
        } else {
            chunk
        };

        let mut out = Vec::new();
        // The text before `done` is in `out`, the text from `end` on is held back.
        let (mut done, mut end) = (0, text.len());
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            let rest = text.get(at..).unwrap_or_default();
            // The next position, and the number of bytes before it.
            let (position, length) = match self.position {
                JsonPosition::Between => {
                    let Some(found) = self.next_of_structure(rest) else { break };
                    (self.enter(rest.get(found).copied()), found + 1)
                }
                JsonPosition::Text(mut open) => match open.end(rest) {
                    Some(length) => (JsonPosition::Between, length),
                    None => (JsonPosition::Text(open), rest.len()),
                },
                JsonPosition::Key(text) if byte == b'"' => {
                    (text.key(self.depth).map_or(JsonPosition::Between, JsonPosition::AfterKey), 1)
                }
                JsonPosition::Key(text) => match text.with(byte).filter(|_| byte != b'\\') {
                    Some(text) => (JsonPosition::Key(text), 1),
                    None => (JsonPosition::Text(OpenString::default()), 0),
                },
                JsonPosition::AfterKey(key) if byte == b':' => (JsonPosition::AfterColon(key), 1),
                JsonPosition::AfterKey(_) | JsonPosition::AfterColon(_) if is_blank(byte) => {
                    (self.position, 1)
                }
                JsonPosition::AfterColon(ModelKey::Holder) if byte == b'{' => {
                    (self.depth, self.is_held_object) = (2, true);
                    (JsonPosition::Between, 1)
                }
                JsonPosition::AfterColon(ModelKey::Model) if byte == b'"' => {
                    match match_literal(rest, &self.target) {
                        Match::Whole(length) => {
                            out.extend_from_slice(text.get(done..at).unwrap_or_default());
                            out.extend_from_slice(&self.name);
                            done = at + length;
                            (JsonPosition::Between, length)
                        }
                        // The name may end in the next chunk: until then it is not known whether these bytes
                        // are replaced.
                        Match::Beginning if !is_last => {
                            end = at;
                            break;
                        }
                        Match::Beginning | Match::None => (JsonPosition::Text(OpenString::default()), 1),
                    }
                }
                JsonPosition::AfterKey(_) | JsonPosition::AfterColon(_) => (JsonPosition::Between, 0),
            };
            self.position = position;
            at += length;
        }
        // Most chunks are passed on as they are, without a copy.
        if !was_holding && done == 0 && end == text.len() {
            return None;
        }
        out.extend_from_slice(text.get(done..end).unwrap_or_default());
        self.held = text.get(end..).unwrap_or_default().to_vec();
        Some(out)
    }

    /// The offset of the next byte that begins a string, or begins or ends an object. Outside of objects
    /// there are no strings: the lines of an event are not JSON.
    fn next_of_structure(&self, text: &[u8]) -> Option<usize> {
        if self.depth == 0 { memchr(b'{', text) } else { memchr3(b'"', b'{', b'}', text) }
    }

    /// The position behind such a byte.
    fn enter(&mut self, byte: Option<u8>) -> JsonPosition {
        match byte {
            Some(b'{') => {
                self.depth = self.depth.saturating_add(1);
                self.is_held_object &= self.depth != 2;
            }
            Some(b'}') => self.depth -= 1,
            _ if self.depth == 1 || self.depth == 2 && self.is_held_object => {
                return JsonPosition::Key(KeyText::default());
            }
            _ => return JsonPosition::Text(OpenString::default()),
        }
        JsonPosition::Between
    }

    /// Whether bytes are held back.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }
}

#[cfg(test)]
mod tests;
