//! Writing JSON text as the EPP's encoder does, as far as it is kept; all of it is counted.

use std::borrow::Cow;

use super::Fault;
use super::field::Scope;
use crate::json::{Reader, Str};
use crate::prompt::Text;

/// A JSON text being put together.
pub(super) struct JsonText {
    out: Vec<u8>,
    end: usize,
    bytes: u64,
}

impl JsonText {
    /// An empty text of which `limit` bytes will be kept.
    pub(super) fn new(limit: usize) -> Self {
        Self { out: Vec::new(), end: limit, bytes: 0 }
    }

    /// Appends JSON as it is.
    pub(super) fn json(&mut self, json: &str) {
        self.bytes += put(&mut self.out, self.end, json.as_bytes());
    }

    /// Appends JSON of which only a beginning may be at hand; behind that nothing more is kept.
    pub(super) fn part(&mut self, json: &Text<'_>) {
        put(&mut self.out, self.end, &json.kept);
        if (json.kept.len() as u64) < json.bytes {
            self.end = self.out.len();
        }
        self.bytes += json.bytes;
    }

    /// Appends a string.
    pub(super) fn string(&mut self, text: &str) {
        self.bytes += string(&mut self.out, self.end, text.as_bytes());
    }

    /// Nothing has been appended.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends JSON as it is but for blanks between its parts, and with `<`, `>`, `&`, U+2028 and U+2029 escaped.
    pub(super) fn compact(&mut self, json: &str) {
        let mut in_string = false;
        let mut after_backslash = false;
        let mut plain = 0;
        for (at, letter) in json.char_indices() {
            let replacement = match letter {
                ' ' | '\n' | '\r' | '\t' if !in_string => "",
                '<' => "\\u003c",
                '>' => "\\u003e",
                '&' => "\\u0026",
                '\u{2028}' => "\\u2028",
                '\u{2029}' => "\\u2029",
                _ => {
                    in_string ^= letter == '"' && !after_backslash;
                    after_backslash = letter == '\\' && !after_backslash;
                    continue;
                }
            };
            self.json(&json[plain..at]);
            self.json(replacement);
            plain = at + letter.len_utf8();
        }
        self.json(&json[plain..]);
    }

    pub(super) fn finish(self) -> Text<'static> {
        Text { kept: Cow::Owned(self.out), bytes: self.bytes }
    }
}

/// A string as JSON, or nothing for null and the empty one; anything else breaks `rule`.
pub(super) struct JsonField<'s, 'c, 'a> {
    pub(super) scope: &'s Scope<'c, 'a>,
    pub(super) rule: &'static str,
}

impl<'a> Reader<'a> for JsonField<'_, '_, 'a> {
    type Value = Option<Text<'a>>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field(self.rule));
        None
    }

    fn null(self) -> Self::Value {
        None
    }

    fn string(self, value: Str<'a, '_>) -> Self::Value {
        (!value.is_empty()).then(|| {
            let mut json = JsonText::new(self.scope.options.keep_bytes);
            json.string(&value);
            json.finish()
        })
    }
}

/// Appends what fits of `bytes`; gives the length of all of it.
pub(super) fn put(out: &mut Vec<u8>, end: usize, bytes: &[u8]) -> u64 {
    let room = end.saturating_sub(out.len());
    if room > 0 {
        out.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
    bytes.len() as u64
}

/// Appends a string with its quotes, as `put` does.
pub(super) fn string(out: &mut Vec<u8>, end: usize, text: &[u8]) -> u64 {
    let mut length = put(out, end, b"\"");
    let mut plain = 0;
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let (escape, width) = match byte {
            b'"' => (*b"\\\"\0\0\0\0", 1),
            b'\\' => (*b"\\\\\0\0\0\0", 1),
            0x08 => (*b"\\b\0\0\0\0", 1),
            0x0c => (*b"\\f\0\0\0\0", 1),
            b'\n' => (*b"\\n\0\0\0\0", 1),
            b'\r' => (*b"\\r\0\0\0\0", 1),
            b'\t' => (*b"\\t\0\0\0\0", 1),
            0..0x20 | b'<' | b'>' | b'&' => {
                let hex = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
                ([b'\\', b'u', b'0', b'0', hex(byte >> 4), hex(byte & 15)], 1)
            }
            0xe2 if text[at..].starts_with("\u{2028}".as_bytes()) => (*b"\\u2028", 3),
            0xe2 if text[at..].starts_with("\u{2029}".as_bytes()) => (*b"\\u2029", 3),
            _ => {
                at += 1;
                continue;
            }
        };
        length += put(out, end, &text[plain..at]);
        let size = if escape[2] == 0 { 2 } else { 6 };
        length += put(out, end, &escape[..size]);
        at += width;
        plain = at;
    }
    length += put(out, end, &text[plain..]);
    length + put(out, end, b"\"")
}
