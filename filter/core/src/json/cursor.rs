//! Reads a JSON text as `serde_json` does, and faster where most of the text is in long strings.
//!
//! A [`Cursor`] reads the structure of a text, strings without escapes and small integers. Every other string and number it gives to
//! `serde_json`. It refuses the same texts; [`read`](super::read) has `serde_json` name the reason.

use core::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Number, Result};

use super::MOST_NESTED;
use super::string::end_of_string;

/// Bytes of a string that are looked at together.
const BLOCK: usize = 32;

/// Digits of an integer that is surely below 2⁶⁴.
const SAFE_DIGITS: usize = 19;

/// A place in a JSON text.
pub(super) struct Cursor<'a> {
    text: &'a str,
    /// The offset of what is read next.
    at: usize,
    /// Arrays and objects that are open there.
    depth: usize,
}

fn malformed() -> Error {
    Error::custom("malformed JSON")
}

impl<'a> Cursor<'a> {
    /// The beginning of a text.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    /// Refuses anything but blanks behind the value that was read.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.next().is_some() { Err(malformed()) } else { Ok(()) }
    }

    /// Moves behind blanks. Returns the byte there; `None` at the end of the text.
    fn next(&mut self) -> Option<u8> {
        loop {
            let byte = self.text.as_bytes().get(self.at).copied()?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Moves behind this byte, with blanks before it.
    fn pass(&mut self, byte: u8) -> Result<()> {
        if self.next() != Some(byte) {
            return Err(malformed());
        }
        self.at += 1;
        Ok(())
    }

    fn pass_literal(&mut self, literal: &str) -> Result<()> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(literal) {
            return Err(malformed());
        }
        self.at += literal.len();
        Ok(())
    }

    /// Reads an array or an object with `read`, up to its end.
    fn nested<T>(&mut self, end: u8, read: impl FnOnce(Items<'_, 'a>) -> Result<T>) -> Result<T> {
        if self.depth >= MOST_NESTED {
            return Err(malformed());
        }
        self.at += 1;
        self.depth += 1;
        let value = read(Items { cursor: self, end, is_first: true })?;
        self.depth -= 1;
        self.pass(end)?;
        Ok(value)
    }

    fn string<V: Visitor<'a>>(&mut self, visitor: V) -> Result<V::Value> {
        let start = self.at + 1;
        let contents = self.text.as_bytes().get(start..).unwrap_or_default();
        let length = plain_length(contents);
        match contents.get(length) {
            Some(b'"') => {
                self.at = start + length + 1;
                visitor.visit_borrowed_str(self.text.get(start..start + length).ok_or_else(malformed)?)
            }
            Some(b'\\') => {
                let end = end_of_string(self.text.as_bytes(), start + length).ok_or_else(malformed)?;
                self.escaped_string(end, visitor)
            }
            // A control character, or the end of the text.
            _ => Err(malformed()),
        }
    }

    /// Reads a string up to the offset behind its closing quote.
    fn escaped_string<V: Visitor<'a>>(&mut self, end: usize, visitor: V) -> Result<V::Value> {
        let string = self.text.get(self.at..end).ok_or_else(malformed)?;
        self.at = end;
        let mut visitor = Some(visitor);
        let mut value = None;
        let mut visit = |text: &str| value = visitor.take().map(|visitor| visitor.visit_str(text));
        serde_json::Deserializer::from_str(string).deserialize_str(Unescaped(&mut visit))?;
        value.ok_or_else(malformed)?
    }

    fn number<V: Visitor<'a>>(&mut self, visitor: V) -> Result<V::Value> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let number = rest.get(..rest.bytes().take_while(is_part).count()).ok_or_else(malformed)?;
        self.at += number.len();
        let is_safe = number.len() <= SAFE_DIGITS && number.bytes().all(|byte| byte.is_ascii_digit());
        if is_safe && (number.len() == 1 || !number.starts_with('0')) {
            return visitor.visit_u64(number.bytes().fold(0, |n, digit| n * 10 + u64::from(digit - b'0')));
        }
        let number: Number = serde_json::from_str(number)?;
        if let Some(unsigned) = number.as_u64() {
            visitor.visit_u64(unsigned)
        } else if let Some(negative) = number.as_i64() {
            visitor.visit_i64(negative)
        } else {
            visitor.visit_f64(number.as_f64().ok_or_else(malformed)?)
        }
    }
}

/// Bytes before the first quote, backslash or control character.
fn plain_length(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks();
    let start = blocks.iter().take_while(|block| is_plain(block)).count() * BLOCK;
    let is_plain = |byte: &&u8| !matches!(byte, b'"' | b'\\' | 0..0x20);
    start + bytes.iter().skip(start).take_while(is_plain).count()
}

/// Whether no byte is a quote, a backslash or a control character. Eight bytes are looked at together.
fn is_plain(block: &[u8; BLOCK]) -> bool {
    const EACH: u64 = u64::MAX / 255;
    // The subtraction sets the first bit of a byte below `limit`, and of bytes that have it set themselves.
    let below = |limit: u8, word: u64| word.wrapping_sub(EACH * u64::from(limit)) & !word;
    let (words, _) = block.as_chunks();
    let marks = words.iter().fold(0, |marks, word| {
        let word = u64::from_le_bytes(*word);
        let quote = below(1, word ^ (EACH * u64::from(b'"')));
        let backslash = below(1, word ^ (EACH * u64::from(b'\\')));
        marks | below(0x20, word) | quote | backslash
    });
    marks & (EACH << 7) == 0
}

/// Calls a function with the text of a string.
struct Unescaped<'f>(&'f mut dyn FnMut(&str));

impl Visitor<'_> for Unescaped<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> core::result::Result<(), E> {
        (self.0)(text);
        Ok(())
    }
}

impl<'a> Deserializer<'a> for &mut Cursor<'a> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value> {
        match self.next().ok_or_else(malformed)? {
            b'"' => self.string(visitor),
            b'{' => self.nested(b'}', |members| visitor.visit_map(members)),
            b'[' => self.nested(b']', |elements| visitor.visit_seq(elements)),
            b'-' | b'0'..=b'9' => self.number(visitor),
            b'n' => {
                self.pass_literal("null")?;
                visitor.visit_unit()
            }
            b't' => {
                self.pass_literal("true")?;
                visitor.visit_bool(true)
            }
            b'f' => {
                self.pass_literal("false")?;
                visitor.visit_bool(false)
            }
            _ => Err(malformed()),
        }
    }

    forward_to_deserialize_any! {
        <V: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// The elements of an array, or the members of an object.
struct Items<'c, 'a> {
    cursor: &'c mut Cursor<'a>,
    /// The byte behind the last one.
    end: u8,
    is_first: bool,
}

impl Items<'_, '_> {
    /// Moves to the next item. False: there is none.
    fn next(&mut self) -> Result<bool> {
        if self.cursor.next() == Some(self.end) {
            return Ok(false);
        }
        if !core::mem::take(&mut self.is_first) {
            self.cursor.pass(b',')?;
        }
        Ok(true)
    }
}

impl<'a> SeqAccess<'a> for Items<'_, 'a> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        if self.next()? { seed.deserialize(&mut *self.cursor).map(Some) } else { Ok(None) }
    }
}

impl<'a> MapAccess<'a> for Items<'_, 'a> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        if !self.next()? {
            return Ok(None);
        }
        if self.cursor.next() != Some(b'"') {
            return Err(malformed());
        }
        seed.deserialize(&mut *self.cursor).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'a>>(&mut self, seed: V) -> Result<V::Value> {
        self.cursor.pass(b':')?;
        seed.deserialize(&mut *self.cursor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;
    #[cfg(all(target_family = "wasm", target_os = "unknown"))]
    use crate::test;

    /// The value of a text; `None` if it is refused.
    fn read(text: &str) -> Option<Value> {
        let mut cursor = Cursor::new(text);
        let value = Value::deserialize(&mut cursor).ok()?;
        cursor.end().is_ok().then_some(value)
    }

    fn assert_same(text: &str) {
        assert_eq!(read(text), serde_json::from_str(text).ok(), "{text}");
    }

    const TOKENS: [&str; 42] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        " ",
        "\t",
        "\n",
        "\r",
        "\x0b",
        "\"",
        "\\",
        "null",
        "true",
        "false",
        "nul",
        "0",
        "00",
        "7",
        "-",
        "-0",
        "-1",
        "1.5",
        "1.",
        ".5",
        "1e5",
        "1e999",
        "+1",
        "9999999999999999999",
        "18446744073709551616",
        "-9223372036854775809",
        "\"\"",
        "\"a\"",
        "\"\\n\"",
        "\"\\u00e9\\u20\"",
        "\"\\ud800\"",
        "\"\x1f\"",
        "\"é\u{7f}€\"",
        "\"12345678\x00\"",
        "\"\\\\\"",
        "\"\\\"",
    ];

    #[test]
    fn each_token_is_read_alone_and_as_an_item_as_serde_json_does() {
        for token in TOKENS {
            for text in [
                token.to_owned(),
                format!("[{token}]"),
                format!("{{\"a\" : {token} }}"),
                format!("{{{token}:1}}"),
            ] {
                assert_same(&text);
            }
        }
    }

    #[test]
    fn as_many_levels_are_read_as_by_serde_json() {
        for depth in [1, MOST_NESTED, MOST_NESTED + 1] {
            assert_same(&("[".repeat(depth) + &"]".repeat(depth)));
            assert_same(&("{\"a\":".repeat(depth) + "1" + &"}".repeat(depth)));
        }
        assert_eq!(read(&"[".repeat(1_000_000)), None);
    }

    #[test]
    fn a_control_character_is_found_at_every_place() {
        for length in 0..80 {
            let text = "é\u{7f}\u{80} ~".repeat(20);
            let (before, behind) = text.split_at(text.floor_char_boundary(length));
            for control in ["\0", "\x1f", " "] {
                assert_same(&format!("\"{before}{control}{behind}\""));
            }
        }
    }

    proptest! {
        #[test]
        fn any_tokens_are_read_as_by_serde_json(tokens in vec(select(&TOKENS[..]), 0..12)) {
            assert_same(&tokens.concat());
            assert_same(&format!("[{}]", tokens.join(",")));
        }

        #[test]
        fn a_text_with_a_changed_byte_is_read_as_by_serde_json(at in 0..200_usize, byte in select(&b"{}[],:\"\\ 01-e.n\x00"[..])) {
            let whole = r#"{"model": "m\u0020", "n": [1, -2, 3.5e1, {}, [], null], "messages":[{"role":"user","content":"a long text, é, \n"}],"stream": true }"#;
            let mut text = whole.as_bytes().to_vec();
            if let Some(place) = text.get_mut(at) {
                *place = byte;
            }
            if let Ok(text) = core::str::from_utf8(&text) {
                assert_same(text);
            }
        }
    }
}
