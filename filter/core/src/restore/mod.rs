//! The client's model name, put back into answers of a model that took its place.
//!
//! As in the reference it is a replacement of bytes, `"model":"TARGET"` by `"model":"CLIENT'S"`, wherever it stands,
//! in plain and in streamed answers alike, with or without one blank after the colon. Unlike the reference it is
//! found however the answer is cut into chunks, and names are escaped as JSON wants it.

use crate::policy::quoted;

/// What stands before the name.
const KEY: &[u8] = br#""model":"#;

/// Bytes of a client's name that are put back. A short event of a stream must not become one of megabytes because the
/// client called the model so.
const LONGEST_NAME: usize = 4096;

/// Puts the client's name back into one answer, chunk by chunk.
#[derive(Clone, Debug)]
pub struct Restore {
    /// With quotes.
    target: Vec<u8>,
    /// With quotes.
    name: Vec<u8>,
    /// The end of the last chunk, if more bytes could make it what is looked for: always a part of that, so bounded.
    held: Vec<u8>,
}

/// What stands at some place of a chunk.
enum Sight {
    /// What is looked for, with the name between these offsets.
    Name { from: usize, to: usize },
    /// The beginning of what is looked for, cut off by the chunk's end.
    Beginning,
    /// Something else.
    Other,
}

impl Restore {
    /// For an answer in which `target` is to be called `name`. `None` if there is nothing to do, or `name` is longer
    /// than 4096 bytes.
    pub fn new(target: &str, name: &str) -> Option<Self> {
        let is_needed = target != name && !target.is_empty() && !name.is_empty();
        (is_needed && name.len() <= LONGEST_NAME).then(|| Self {
            target: quoted(target),
            name: quoted(name),
            held: Vec::new(),
        })
    }

    /// What to send in place of this chunk; `None`: the chunk as it is.
    ///
    /// Bytes are held back only where the chunk ends within what is looked for, and only those; they come with the
    /// next chunk. The last one leaves nothing behind.
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
        while let Some(quote) = text[at..].iter().position(|&byte| byte == b'"') {
            let start = at + quote;
            match self.sight(&text[start..]) {
                Sight::Name { from, to } => {
                    out.extend_from_slice(&text[done..start + from]);
                    out.extend_from_slice(&self.name);
                    done = start + to;
                    at = done;
                }
                Sight::Beginning if !is_last => {
                    end = start;
                    break;
                }
                _ => at = start + 1,
            }
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

    /// What stands at the beginning of this text.
    ///
    /// A quote inside the key or the name is never followed by the key, so looking from every quote stays linear.
    fn sight(&self, text: &[u8]) -> Sight {
        let after_key = match eat(text, KEY) {
            Ok(after) => after,
            Err(sight) => return sight,
        };
        let value = after_key.strip_prefix(b" ").unwrap_or(after_key);
        match eat(value, &self.target) {
            Ok(after) => Sight::Name { from: text.len() - value.len(), to: text.len() - after.len() },
            Err(sight) => sight,
        }
    }
}

/// What comes after `expected`, with which the text should begin.
fn eat<'t>(text: &'t [u8], expected: &[u8]) -> Result<&'t [u8], Sight> {
    text.strip_prefix(expected)
        .ok_or_else(|| if expected.starts_with(text) { Sight::Beginning } else { Sight::Other })
}

#[cfg(test)]
mod tests;
