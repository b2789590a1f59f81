//! Finds usage in a JSON text that comes in pieces, and keeps nothing else of it.

use super::{Usage, fields};

/// A longer `usage` is not read. OpenAI's, with all details, takes 400 bytes.
const LONGEST_USAGE: usize = 8192;

/// The longest key that matters.
const LONGEST_KEY: usize = "response".len();

/// One JSON text so far. The text is not checked: what is no JSON has no usage, or any.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner {
    /// Objects and arrays that are open.
    depth: usize,
    place: Place,
    /// The last string's bytes, if it can be a key that matters, and one more if it is too long for that.
    word: Vec<u8>,
    /// What the value that comes now is of.
    value_of: Key,
    /// The object at depth 2 is one whose usage is its parent's.
    is_inner: bool,
    kept: Option<Kept>,
    usage: Option<Usage>,
}

/// Where the text stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Between,
    String,
    Backslash,
}

/// What is looked for, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Key {
    Usage,
    /// Of an object that may have usage: in the last event of a response, the first of a message.
    Inner,
    #[default]
    Other,
}

/// A usage object so far.
#[derive(Clone, Debug)]
struct Kept {
    /// Outside of it.
    depth: usize,
    bytes: Vec<u8>,
}

impl Scanner {
    /// The text goes on.
    pub(super) fn read(&mut self, mut text: &[u8]) {
        while let Some(&byte) = text.first() {
            let length = match self.place {
                Place::Between => {
                    self.between(byte);
                    1
                }
                Place::String => {
                    let plain = text.iter().position(|&byte| byte == b'"' || byte == b'\\');
                    self.in_string(&text[..plain.unwrap_or(text.len())]);
                    match plain.map(|at| text[at]) {
                        Some(b'"') => self.place = Place::Between,
                        Some(_) => self.place = Place::Backslash,
                        None => {}
                    }
                    plain.map_or(text.len(), |at| at + 1)
                }
                Place::Backslash => {
                    self.place = Place::String;
                    // Keys that matter have no escapes.
                    self.in_string(&[byte; LONGEST_KEY + 1]);
                    1
                }
            };
            self.keep(&text[..length]);
            text = &text[length..];
        }
    }

    /// The text has ended. `None` if it has no usage, or is cut off.
    pub(super) fn finish(self) -> Option<Usage> {
        self.usage.filter(|_| self.depth == 0)
    }

    fn between(&mut self, byte: u8) {
        let value_of = core::mem::take(&mut self.value_of);
        match byte {
            b'"' => {
                self.place = Place::String;
                self.word.clear();
            }
            b':' => {
                self.value_of = match &*self.word {
                    b"usage" => Key::Usage,
                    b"response" | b"message" => Key::Inner,
                    _ => Key::Other,
                }
            }
            b' ' | b'\t' | b'\r' | b'\n' => self.value_of = value_of,
            b'{' | b'[' => {
                let is_usages_place = self.depth == 1 || self.depth == 2 && self.is_inner;
                if byte == b'{' && value_of == Key::Usage && is_usages_place && self.kept.is_none() {
                    self.kept = Some(Kept { depth: self.depth, bytes: Vec::new() });
                }
                if self.depth == 1 {
                    self.is_inner = byte == b'{' && value_of == Key::Inner;
                }
                self.depth += 1;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn in_string(&mut self, bytes: &[u8]) {
        let room = LONGEST_KEY + 1 - self.word.len();
        self.word.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Keeps these bytes if they are of a usage object, and reads it when they are its last.
    fn keep(&mut self, bytes: &[u8]) {
        let Some(Kept { depth, bytes: kept }) = &mut self.kept else { return };
        if kept.len() <= LONGEST_USAGE {
            kept.extend_from_slice(&bytes[..bytes.len().min(LONGEST_USAGE + 1 - kept.len())]);
        }
        if self.depth > *depth {
            return;
        }
        if kept.len() <= LONGEST_USAGE {
            self.usage.get_or_insert_default().merge(fields::read(kept));
        }
        self.kept = None;
    }
}
