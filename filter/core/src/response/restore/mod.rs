//! The client's model name, put back into responses of a model that took its place.
//!
//! As in the EPP, bytes are replaced: `"model":"TARGET"` by `"model":"CLIENT'S"`, anywhere in plain and in streamed responses.
//! Unlike in the EPP, there may be blanks around the colon, the server may spell its name with any escapes of JSON, the name is
//! found however the response is cut into chunks, and the client's name is escaped as JSON requires.

use memchr::memchr;

use crate::json::{Match, match_literal, quoted};

/// The key before the colon.
const KEY: &[u8] = br#""model""#;

/// Maximum length of a name that is put back, in bytes: a client's name of megabytes must not be repeated in every event of a stream.
const MAX_NAME_LENGTH: usize = 4096;

/// Puts the client's name back into one response, chunk by chunk.
#[derive(Clone, Debug)]
pub struct Restore {
    target: String,
    /// The client's name, with quotes.
    name: Vec<u8>,
    position: Position,
    /// The end of the last chunk, if it is the beginning of the target's name. Never longer than the longest spelling of that
    /// name.
    held: Vec<u8>,
}

/// The part of the pattern that ends before the next byte.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// This many bytes of the key.
    Key(usize),
    /// The key and some blanks.
    KeyAndBlanks,
    /// The key, the colon, and blanks around it.
    Colon,
}

impl Position {
    /// The position behind `byte`, which does not begin the value of the key.
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Key(matched), _) if KEY.get(matched) == Some(&byte) => Self::Key(matched + 1),
            // The quote at the end of one key may be the one at the beginning of the next.
            (Self::Key(matched), _) if matched == KEY.len() && KEY.get(1) == Some(&byte) => Self::Key(2),
            (Self::Key(matched), b':') if matched == KEY.len() => Self::Colon,
            (Self::Key(matched), b' ' | b'\t' | b'\n' | b'\r') if matched == KEY.len() => Self::KeyAndBlanks,
            (Self::KeyAndBlanks, b':') => Self::Colon,
            (Self::KeyAndBlanks | Self::Colon, b' ' | b'\t' | b'\n' | b'\r') => self,
            (_, b'"') => Self::Key(1),
            _ => Self::Key(0),
        }
    }
}

impl Restore {
    /// Replaces `target` by `name` in a response. `None` if the names are equal, one is empty, or `name` is longer than 4096
    /// bytes.
    pub fn new(target: &str, name: &str) -> Option<Self> {
        let is_needed = target != name && !target.is_empty() && !name.is_empty();
        (is_needed && name.len() <= MAX_NAME_LENGTH).then(|| Self {
            target: target.to_owned(),
            name: quoted(name),
            position: Position::Key(0),
            held: Vec::new(),
        })
    }

    /// The bytes to send in place of this chunk; `None`: the chunk as it is.
    ///
    /// If the chunk ends within the target's name, the beginning of the name is held back and sent with the next chunk. The
    /// last chunk holds nothing back.
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
            match (self.position, byte) {
                // Outside of a key, only a quote matters: the bytes before it are skipped at once.
                (Position::Key(0), _) => {
                    let Some(quote) = text.get(at..).and_then(|rest| memchr(b'"', rest)) else { break };
                    at += quote + 1;
                    self.position = Position::Key(1);
                    continue;
                }
                (Position::Colon, b'"') => {
                    match match_literal(text.get(at..).unwrap_or_default(), &self.target) {
                        Match::Whole(length) => {
                            out.extend_from_slice(text.get(done..at).unwrap_or_default());
                            out.extend_from_slice(&self.name);
                            at += length;
                            done = at;
                            self.position = Position::Key(0);
                            continue;
                        }
                        // The name may end in the next chunk: until then it is not known whether these bytes are replaced.
                        Match::Beginning if !is_last => {
                            end = at;
                            break;
                        }
                        Match::Beginning | Match::None => {}
                    }
                }
                _ => {}
            }
            self.position = self.position.after(byte);
            at += 1;
        }
        // Most chunks are passed on as they are, without a copy.
        if !was_holding && done == 0 && end == text.len() {
            return None;
        }
        out.extend_from_slice(text.get(done..end).unwrap_or_default());
        self.held = text.get(end..).unwrap_or_default().to_vec();
        Some(out)
    }

    /// Whether bytes are held back.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }
}

#[cfg(test)]
mod tests;
