//! The client's model name, put back into answers of a model that took its place.
//!
//! As in the EPP it is a replacement of bytes, `"model":"TARGET"` by `"model":"CLIENT'S"`, wherever it stands,
//! in plain and in streamed answers alike. Unlike in the EPP any blanks may stand around the colon, the server may
//! escape its name in any way that JSON allows, the name is found however the answer is cut into chunks, and the client's name
//! is escaped as JSON wants it.

use memchr::memchr;

use crate::json::{Match, match_literal, quoted};

/// What stands before the colon.
const KEY: &[u8] = br#""model""#;

/// Bytes of a client's name that are put back. A short event of a stream must not become one of megabytes because the
/// client called the model so.
const LONGEST_NAME: usize = 4096;

/// Puts the client's name back into one answer, chunk by chunk.
#[derive(Clone, Debug)]
pub struct Restore {
    target: String,
    /// With quotes.
    name: Vec<u8>,
    place: Place,
    /// The end of the last chunk, if it is the beginning of the target's name: at most its longest spelling, so bounded.
    held: Vec<u8>,
}

/// What stands before the next byte.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// So many bytes of the key.
    Key(usize),
    /// The key and some blanks.
    KeyAndBlanks,
    /// The key, the colon, and blanks around it.
    Colon,
}

impl Place {
    /// The place after `byte`, which does not begin the value of the key.
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Self::Key(matched), _) if KEY.get(matched) == Some(&byte) => Self::Key(matched + 1),
            // The quote at the end of one key may be the one at the beginning of the next.
            (Self::Key(matched), _) if matched == KEY.len() && byte == KEY[1] => Self::Key(2),
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
    /// For an answer in which `target` is to be called `name`. `None` if there is nothing to do, or `name` is longer
    /// than 4096 bytes.
    pub fn new(target: &str, name: &str) -> Option<Self> {
        let is_needed = target != name && !target.is_empty() && !name.is_empty();
        (is_needed && name.len() <= LONGEST_NAME).then(|| Self {
            target: target.to_owned(),
            name: quoted(name),
            place: Place::Key(0),
            held: Vec::new(),
        })
    }

    /// What to send in place of this chunk; `None`: the chunk as it is.
    ///
    /// Bytes are held back only where the chunk ends within the target's name, and only those; they come with the next
    /// chunk. The last one leaves nothing behind.
    pub fn chunk(&mut self, chunk: &[u8], is_last: bool) -> Option<Vec<u8>> {
        let mut held = core::mem::take(&mut self.held);
        let was_holding = !held.is_empty();
        let text = if was_holding {
            held.extend_from_slice(chunk);
            &held
        } else {
            chunk
        };

        let mut out = Vec::new();
        // Text before `done` is in `out`, text from `end` on is held back.
        let (mut done, mut end) = (0, text.len());
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            match (self.place, byte) {
                (Place::Key(0), _) => {
                    let Some(quote) = text.get(at..).and_then(|rest| memchr(b'"', rest)) else { break };
                    at += quote + 1;
                    self.place = Place::Key(1);
                    continue;
                }
                (Place::Colon, b'"') => match match_literal(&text[at..], &self.target) {
                    Match::Whole(length) => {
                        out.extend_from_slice(&text[done..at]);
                        out.extend_from_slice(&self.name);
                        at += length;
                        done = at;
                        self.place = Place::Key(0);
                        continue;
                    }
                    Match::Beginning if !is_last => {
                        end = at;
                        break;
                    }
                    Match::Beginning | Match::None => {}
                },
                _ => {}
            }
            self.place = self.place.after(byte);
            at += 1;
        }
        if !was_holding && done == 0 && end == text.len() {
            return None;
        }
        out.extend_from_slice(&text[done..end]);
        self.held = text[end..].to_vec();
        Some(out)
    }

    /// Whether bytes are held back.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }
}

#[cfg(test)]
mod tests;
