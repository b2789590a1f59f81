//! Finds usage in a JSON text that comes in chunks, and keeps nothing else of it.

use super::{Usage, read_usage};
use crate::json::OpenString;

/// A longer `usage` is not read. OpenAI's, with all details, takes 400 bytes.
const MAX_USAGE_LENGTH: usize = 8192;

/// Length of the longest key that matters.
const MAX_KEY_LENGTH: usize = "response".len();

/// One JSON text as far as it was received. The text is not validated: for text that is not JSON the result is unspecified.
#[derive(Clone, Debug, Default)]
pub(super) struct Scanner {
    /// Objects and arrays that are open.
    depth: usize,
    /// The string that is open.
    string: Option<OpenString>,
    /// The last string as it is spelled; of a longer one than [`MAX_KEY_LENGTH`], the beginning.
    word: Word,
    /// The key of the value that comes next.
    key: Key,
    /// The usage of the object at depth 2 is its parent's.
    is_inner: bool,
    usage_text: Option<UsageText>,
    usage: Option<Usage>,
}

/// The keys that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Key {
    Usage,
    /// The key of an object that may have usage: in the last event of a response, the first of a message.
    Inner,
    #[default]
    Other,
}

/// The text of a usage object as far as it was received.
#[derive(Clone, Debug)]
struct UsageText {
    /// The depth outside of it.
    depth: usize,
    bytes: Vec<u8>,
}

impl Scanner {
    /// Reads the next chunk of the text.
    pub(super) fn read(&mut self, mut text: &[u8]) {
        while let Some((&byte, rest)) = text.split_first() {
            let (part, after) = if let Some(string) = &mut self.string {
                let end = string.end(text);
                let (part, after) = text.split_at_checked(end.unwrap_or(text.len())).unwrap_or((text, &[]));
                self.word.push(part);
                if end.is_some() {
                    self.string = None;
                }
                (part, after)
            } else {
                self.outside_of_strings(byte);
                (core::slice::from_ref(&byte), rest)
            };
            // After the depth has changed, so that a usage object is kept with both of its braces.
            self.keep(part);
            text = after;
        }
    }

    /// Ends the text. `None` if it has no usage, or is cut off.
    pub(super) fn finish(self) -> Option<Usage> {
        self.usage.filter(|_| self.depth == 0)
    }

    fn outside_of_strings(&mut self, byte: u8) {
        // A key belongs to the next value only, so any byte but a blank ends it.
        let key = core::mem::take(&mut self.key);
        match byte {
            b'"' => {
                self.string = Some(OpenString::default());
                self.word = Word::default();
            }
            b':' => self.key = self.word.key(),
            b' ' | b'\t' | b'\r' | b'\n' => self.key = key,
            b'{' | b'[' => {
                let is_usages_place = self.depth == 1 || self.depth == 2 && self.is_inner;
                if byte == b'{' && key == Key::Usage && is_usages_place && self.usage_text.is_none() {
                    self.usage_text = Some(UsageText { depth: self.depth, bytes: Vec::new() });
                }
                // Other objects and arrays at this depth reset it: usage in them is not the response's.
                if self.depth == 1 {
                    self.is_inner = byte == b'{' && key == Key::Inner;
                }
                self.depth += 1;
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// Keeps these bytes if they belong to a usage object, and reads the object when they are its last.
    fn keep(&mut self, bytes: &[u8]) {
        let Some(UsageText { depth, bytes: text }) = &mut self.usage_text else { return };
        // One byte more shows that the text is too long.
        text.extend(bytes.iter().take((MAX_USAGE_LENGTH + 1).saturating_sub(text.len())));
        if self.depth > *depth {
            return;
        }
        if text.len() <= MAX_USAGE_LENGTH {
            self.usage.get_or_insert_default().merge(read_usage(text));
        }
        self.usage_text = None;
    }
}

/// The beginning of a string, long enough for the longest key that matters and the closing quote.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    bytes: [u8; MAX_KEY_LENGTH + 1],
    length: usize,
}

impl Word {
    fn push(&mut self, bytes: &[u8]) {
        for (slot, &byte) in self.bytes.iter_mut().skip(self.length).zip(bytes) {
            *slot = byte;
            self.length += 1;
        }
    }

    /// A key that is spelled with escapes does not matter.
    fn key(&self) -> Key {
        match self.bytes.get(..self.length) {
            Some(br#"usage""#) => Key::Usage,
            Some(br#"response""# | br#"message""#) => Key::Inner,
            _ => Key::Other,
        }
    }
}
