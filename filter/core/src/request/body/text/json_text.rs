//! Writes JSON text as the EPP's encoder does. Keeps a beginning of the text and counts the rest.

use std::borrow::Cow;

use crate::request::prompt::Text;

/// A JSON text that is being written.
pub(in crate::request::body) struct JsonText {
    out: Vec<u8>,
    end: usize,
    bytes: u64,
}

impl JsonText {
    /// An empty text of which `limit` bytes will be kept.
    pub(in crate::request::body) fn new(limit: usize) -> Self {
        Self { out: Vec::new(), end: limit, bytes: 0 }
    }

    /// Appends JSON as it is.
    pub(in crate::request::body) fn json(&mut self, json: &str) {
        self.bytes += put(&mut self.out, self.end, json.as_bytes());
    }

    /// Appends JSON of which only a beginning may have been kept. Behind one that is cut, nothing more is kept.
    pub(in crate::request::body) fn part(&mut self, json: &Text<'_>) {
        put(&mut self.out, self.end, &json.kept);
        if (json.kept.len() as u64) < json.bytes {
            self.end = self.out.len();
        }
        self.bytes += json.bytes;
    }

    /// Appends a string.
    pub(in crate::request::body) fn string(&mut self, text: &str) {
        self.bytes += string(&mut self.out, self.end, text.as_bytes());
    }

    /// Whether nothing has been appended.
    pub(in crate::request::body) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends JSON without the blanks between its tokens, and with `<`, `>`, `&`, U+2028 and U+2029 escaped.
    pub(in crate::request::body) fn compact(&mut self, json: &str) {
        let mut in_string = false;
        let mut after_backslash = false;
        // The text before `done` is written.
        let mut done = 0;
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
            self.json(json.get(done..at).unwrap_or_default());
            self.json(replacement);
            done = at + letter.len_utf8();
        }
        self.json(json.get(done..).unwrap_or_default());
    }

    /// The kept part of the text, and its whole length.
    pub(in crate::request::body) fn finish(self) -> Text<'static> {
        Text { kept: Cow::Owned(self.out), bytes: self.bytes }
    }
}

/// Appends the part of `bytes` that fits before `end`; returns the length of all of `bytes`.
pub(in crate::request::body) fn put(out: &mut Vec<u8>, end: usize, bytes: &[u8]) -> u64 {
    let room = end.saturating_sub(out.len());
    out.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    bytes.len() as u64
}

/// Appends a string with its quotes, as `put` does; returns its length with quotes and escapes.
pub(in crate::request::body) fn string(out: &mut Vec<u8>, end: usize, text: &[u8]) -> u64 {
    let mut length = put(out, end, b"\"");
    let mut rest = text;
    let mut plain = 0;
    while let Some(from_here @ [first, ..]) = rest.get(plain..) {
        let Some((escape, escaped)) = escape(*first, from_here) else {
            plain += 1;
            continue;
        };
        length += put(out, end, rest.get(..plain).unwrap_or_default());
        length += match escape {
            Escape::Short(letter) => put(out, end, &[b'\\', letter]),
            Escape::Unit(unit) => {
                let [a, b, c, d] = [12, 8, 4, 0].map(|shift| hexadecimal(unit >> shift & 0xf));
                put(out, end, &[b'\\', b'u', a, b, c, d])
            }
        };
        rest = from_here.get(escaped..).unwrap_or_default();
        plain = 0;
    }
    length += put(out, end, rest);
    length + put(out, end, b"\"")
}

/// How a character is escaped.
enum Escape {
    /// A backslash and this letter.
    Short(u8),
    /// `\u` and the four digits of this UTF-16 unit.
    Unit(u16),
}

/// The escape of the character that `text` begins with, and the bytes of that character. `None` if it needs no escape.
fn escape(first: u8, text: &[u8]) -> Option<(Escape, usize)> {
    let escape = match first {
        b'"' | b'\\' => Escape::Short(first),
        0x08 => Escape::Short(b'b'),
        0x0c => Escape::Short(b'f'),
        b'\n' => Escape::Short(b'n'),
        b'\r' => Escape::Short(b'r'),
        b'\t' => Escape::Short(b't'),
        0..0x20 | b'<' | b'>' | b'&' => Escape::Unit(first.into()),
        0xe2 => {
            let separators = [(0x2028, "\u{2028}"), (0x2029, "\u{2029}")];
            let unit = separators.into_iter().find(|(_, separator)| text.starts_with(separator.as_bytes()));
            return unit.map(|(unit, separator)| (Escape::Unit(unit), separator.len()));
        }
        _ => return None,
    };
    Some((escape, 1))
}

fn hexadecimal(digit: u16) -> u8 {
    let [.., digit] = digit.to_be_bytes();
    if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }
}
