//! The tokens of a JSON text, in one pass over it.

use super::scan::plain_length;
use super::string::{Str, escaped_unit};
use super::{MAX_NESTED, Malformed, Result};

/// A JSON text while it is parsed.
pub(crate) struct Parser<'a> {
    pub(super) text: &'a str,
    /// The offset of the next byte.
    pub(super) at: usize,
    /// The levels of arrays and objects that may still be opened.
    levels: usize,
    /// The string that was read last, if it is spelled with escapes.
    unescaped: String,
    /// The number of unpaired surrogates so far.
    pub(super) lone_surrogates: usize,
    fault: Option<ParseFault>,
}

/// The first fault of a text, with the words and the place that `serde_json` gives it.
struct ParseFault {
    cause: &'static str,
    /// The number of bytes up to the fault, with the byte at fault.
    bytes: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, levels: MAX_NESTED, unescaped: String::new(), lone_surrogates: 0, fault: None }
    }

    /// Notes the fault of a byte at this offset behind the next one.
    #[cold]
    pub(super) fn refuse(&mut self, cause: &'static str, offset: usize) -> Malformed {
        let bytes = self.text.len().min(self.at + offset + 1);
        self.fault = Some(ParseFault { cause, bytes });
        Malformed
    }

    /// The message about the fault that was noted.
    pub(super) fn message(self) -> String {
        let Some(ParseFault { cause, bytes }) = self.fault else { return String::new() };
        let before = self.text.as_bytes().get(..bytes).unwrap_or_default();
        let line = 1 + memchr::memchr_iter(b'\n', before).count();
        let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        format!("{cause} at line {line} column {column}")
    }

    pub(super) fn peek(&self, offset: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + offset).copied()
    }

    /// The next byte that is not a blank, which becomes the next byte; 0 at the end of the text.
    #[inline]
    pub(super) fn token(&mut self) -> u8 {
        match self.peek(0) {
            Some(byte) if byte > b' ' => byte,
            _ => self.token_behind_blanks(),
        }
    }

    fn token_behind_blanks(&mut self) -> u8 {
        while let Some(byte) = self.peek(0) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return byte;
            }
            self.at += 1;
        }
        0
    }

    /// Notes that the next byte is at fault, or else the end of the text.
    #[cold]
    pub(super) fn unexpected(&mut self, cause: &'static str, at_end: &'static str) -> Malformed {
        let is_end = self.at >= self.text.len();
        self.refuse(if is_end { at_end } else { cause }, 0)
    }

    /// Refuses anything but blanks.
    pub(super) fn end(&mut self) -> Result<()> {
        self.token();
        if self.at < self.text.len() { Err(self.refuse("trailing characters", 0)) } else { Ok(()) }
    }

    pub(super) fn open(&mut self) -> Result<()> {
        let Some(levels) = self.levels.checked_sub(1) else {
            return Err(self.refuse("recursion limit exceeded", 0));
        };
        self.levels = levels;
        self.at += 1;
        Ok(())
    }

    pub(super) fn close(&mut self, bracket: u8) -> Result<()> {
        self.levels += 1;
        // A reader reads to the end of its array or object.
        if self.token() != bracket {
            return Err(self.refuse("trailing characters", 0));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads this word, of which the first letter was found.
    pub(super) fn word(&mut self, word: &'static str) -> Result<()> {
        for letter in word.bytes() {
            match self.peek(0) {
                Some(found) if found == letter => self.at += 1,
                _ => return Err(self.unexpected("expected ident", "EOF while parsing a value")),
            }
        }
        Ok(())
    }

    /// Reads a string: the next byte is its opening quote.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Str<'a, '_>> {
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        let length = plain_length(rest.as_bytes());
        if rest.as_bytes().get(length) == Some(&b'"') {
            self.at += 1 + length + 1;
            return Ok(Str::in_text(rest.get(..length).unwrap_or_default()));
        }
        self.string_with_escapes(length)
    }

    /// Reads a string of which this number of bytes is plain.
    #[inline(never)]
    fn string_with_escapes(&mut self, length: usize) -> Result<Str<'a, '_>> {
        self.unescaped.clear();
        let mut plain = self.at + 1;
        self.at = plain + length;
        loop {
            self.unescaped.push_str(self.text.get(plain..self.at).unwrap_or_default());
            // Where escapes follow each other, a scan would cost more than it saves.
            while self.peek(0) == Some(b'\\') {
                let letter = self.escape()?;
                self.unescaped.push(letter);
            }
            if self.peek(0) == Some(b'"') {
                self.at += 1;
                return Ok(Str::copied(&self.unescaped));
            }
            plain = self.at;
            self.at += plain_length(self.text.as_bytes().get(plain..).unwrap_or_default());
            if self.at == plain {
                let cause = "control character (\\u0000-\\u001F) found while parsing a string";
                return Err(self.unexpected(cause, "EOF while parsing a string"));
            }
        }
    }

    /// Reads an escape. Half a surrogate pair is read as U+FFFD.
    #[inline]
    fn escape(&mut self) -> Result<char> {
        let letter = match self.peek(1) {
            Some(letter @ (b'"' | b'\\' | b'/')) => char::from(letter),
            Some(b'n') => '\n',
            Some(b't') => '\t',
            Some(b'r') => '\r',
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'u') => return self.escaped_character(),
            _ => return Err(self.not_an_escape(1)),
        };
        self.at += 2;
        Ok(letter)
    }

    /// Reads `\uXXXX`, and the second half of a pair.
    fn escaped_character(&mut self) -> Result<char> {
        let escaped = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let Some(unit) = escaped_unit(escaped) else { return Err(self.not_an_escape(5)) };
        self.at += 6;
        if let Some(character) = char::from_u32(unit.into()) {
            return Ok(character);
        }
        let second = escaped_unit(escaped.get(6..).unwrap_or_default());
        let pair = second.and_then(|second| char::decode_utf16([unit, second]).next()?.ok());
        if pair.is_some() {
            self.at += 6;
        } else {
            self.lone_surrogates += 1;
        }
        Ok(pair.unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// Notes that the next byte begins an escape that is none, with its last byte at this offset.
    #[cold]
    fn not_an_escape(&mut self, last: usize) -> Malformed {
        let is_cut = self.peek(last).is_none();
        self.refuse(if is_cut { "EOF while parsing a string" } else { "invalid escape" }, last)
    }
}
