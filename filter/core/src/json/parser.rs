//! The parser: one pass over the text, which calls a [`Reader`] for each value.

use super::number::short_integer;
use super::scan::plain_length;
use super::string::escaped_unit;
use super::value::{Reader, Str};
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
    lone_surrogates: usize,
    fault: Option<Fault>,
}

/// The first fault of a text, with the words and the place that `serde_json` gives it.
struct Fault {
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
        self.fault = Some(Fault { cause, bytes });
        Malformed
    }

    /// The message about the fault that was noted.
    pub(super) fn message(self) -> String {
        let Some(Fault { cause, bytes }) = self.fault else { return String::new() };
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
    fn token(&mut self) -> u8 {
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
    fn unexpected(&mut self, cause: &'static str, at_end: &'static str) -> Malformed {
        let is_end = self.at >= self.text.len();
        self.refuse(if is_end { at_end } else { cause }, 0)
    }

    #[inline]
    pub(super) fn value<R: Reader<'a>>(&mut self, reader: R) -> Result<R::Value> {
        let first = self.token();
        self.value_of(first, reader)
    }

    /// Reads the value that begins with the next byte, `first`.
    fn value_of<R: Reader<'a>>(&mut self, first: u8, reader: R) -> Result<R::Value> {
        match first {
            b'"' => self.string(reader),
            b'0'..=b'9' | b'-' => Ok(reader.number(self.number()?)),
            b'[' => {
                self.open()?;
                let value = reader.array(Array { parser: &mut *self, is_first: true })?;
                self.close(b']')?;
                Ok(value)
            }
            b'{' => {
                self.open()?;
                let value = reader.object(Object { parser: &mut *self, is_first: true })?;
                self.close(b'}')?;
                Ok(value)
            }
            b't' => self.word("true").map(|()| reader.boolean(true)),
            b'f' => self.word("false").map(|()| reader.boolean(false)),
            b'n' => self.word("null").map(|()| reader.null()),
            _ => Err(self.unexpected("expected value", "EOF while parsing a value")),
        }
    }

    /// Reads past the value of which nothing is needed but its text, in which unpaired surrogates may be.
    pub(super) fn text_of<R: Reader<'a>>(&mut self, reader: R) -> Result<(&'a str, bool)> {
        self.token();
        let (start, lone_surrogates) = (self.at, self.lone_surrogates);
        self.value(reader)?;
        let text = self.text.get(start..self.at).unwrap_or_default();
        Ok((text, self.lone_surrogates > lone_surrogates))
    }

    /// Refuses anything but blanks.
    pub(super) fn end(&mut self) -> Result<()> {
        self.token();
        if self.at < self.text.len() { Err(self.refuse("trailing characters", 0)) } else { Ok(()) }
    }

    fn open(&mut self) -> Result<()> {
        let Some(levels) = self.levels.checked_sub(1) else {
            return Err(self.refuse("recursion limit exceeded", 0));
        };
        self.levels = levels;
        self.at += 1;
        Ok(())
    }

    fn close(&mut self, bracket: u8) -> Result<()> {
        self.levels += 1;
        // A reader reads to the end of its array or object.
        if self.token() != bracket {
            return Err(self.refuse("trailing characters", 0));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads this word, of which the first letter was found.
    fn word(&mut self, word: &'static str) -> Result<()> {
        for letter in word.bytes() {
            match self.peek(0) {
                Some(found) if found == letter => self.at += 1,
                _ => return Err(self.unexpected("expected ident", "EOF while parsing a value")),
            }
        }
        Ok(())
    }

    /// Gives `reader` the string behind the opening quote, which is the next byte.
    #[inline]
    fn string<R: Reader<'a>>(&mut self, reader: R) -> Result<R::Value> {
        let rest = self.text.as_bytes().get(self.at + 1..).unwrap_or_default();
        let length = plain_length(rest);
        if rest.get(length) == Some(&b'"') {
            let start = self.at + 1;
            let text = self.text.get(start..start + length).unwrap_or_default();
            self.at = start + length + 1;
            return Ok(reader.string(Str::in_text(text)));
        }
        Ok(reader.string(self.string_with_escapes(length)?))
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

/// An array while it is read.
pub(crate) struct Array<'p, 'a> {
    parser: &'p mut Parser<'a>,
    is_first: bool,
}

impl<'a> Array<'_, 'a> {
    /// The next element if it is an integer between commas or brackets without blanks, as in lists of thousands; `None`
    /// if it is to be read as any other.
    #[inline]
    pub(super) fn integer(&mut self) -> Option<u64> {
        let Parser { text, at, .. } = self.parser;
        let rest = text.as_bytes().get(*at..)?.strip_prefix(b",").filter(|_| !self.is_first)?;
        let (integer, length) = short_integer(rest)?;
        matches!(rest.get(length), Some(b',' | b']')).then(|| {
            *at += 1 + length;
            integer
        })
    }

    /// Reads the next element.
    #[inline]
    pub(super) fn element<R: Reader<'a>>(&mut self, reader: R) -> Result<Option<R::Value>> {
        let Self { parser, is_first } = self;
        let mut first = parser.token();
        if first == b']' {
            return Ok(None);
        }
        if *is_first && parser.at < parser.text.len() {
            *is_first = false;
        } else if first == b',' {
            parser.at += 1;
            first = parser.token();
            if first == b']' {
                return Err(parser.refuse("trailing comma", 0));
            }
        } else {
            return Err(parser.unexpected("expected `,` or `]`", "EOF while parsing a list"));
        }
        parser.value_of(first, reader).map(Some)
    }
}

/// An object while it is read.
pub(crate) struct Object<'p, 'a> {
    parser: &'p mut Parser<'a>,
    is_first: bool,
}

impl<'a> Object<'_, 'a> {
    /// Reads the key of the next member.
    #[inline]
    pub(super) fn key<R: Reader<'a>>(&mut self, reader: R) -> Result<Option<R::Value>> {
        let Self { parser, is_first } = self;
        let mut at_end = "EOF while parsing an object";
        match parser.token() {
            b'}' => return Ok(None),
            b',' if !*is_first => {
                parser.at += 1;
                at_end = "EOF while parsing a value";
                if parser.token() == b'}' {
                    return Err(parser.refuse("trailing comma", 0));
                }
            }
            _ if *is_first => *is_first = false,
            _ => return Err(parser.unexpected("expected `,` or `}`", at_end)),
        }
        if parser.peek(0) != Some(b'"') {
            return Err(parser.unexpected("key must be a string", at_end));
        }
        parser.string(reader).map(Some)
    }

    /// The parser at the value of the member whose key was just read.
    #[inline]
    pub(super) fn at_value(&mut self) -> Result<&mut Parser<'a>> {
        if self.parser.token() != b':' {
            return Err(self.parser.unexpected("expected `:`", "EOF while parsing an object"));
        }
        self.parser.at += 1;
        Ok(&mut *self.parser)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    use serde_json::{Map, Value};

    use super::*;
    use crate::json::string::without_lone_surrogates;
    use crate::json::{Number, element, key, read, value};
    use crate::test;

    /// Reads a value into a tree.
    struct Tree;

    impl<'a> Reader<'a> for Tree {
        type Value = Value;

        fn other(self) -> Value {
            unreachable!("each type has a method")
        }

        fn null(self) -> Value {
            Value::Null
        }

        fn boolean(self, value: bool) -> Value {
            value.into()
        }

        fn number(self, value: Number) -> Value {
            match value {
                Number::Unsigned(number) => number.into(),
                Number::Negative(number) => number.into(),
                Number::Decimal(_) | Number::Float(_) => value.as_f64().into(),
            }
        }

        fn string(self, value: Str<'a, '_>) -> Value {
            assert!(value.in_body().is_none_or(|text| text == &*value));
            (*value).to_owned().into()
        }

        fn array(self, mut array: Array<'_, 'a>) -> Result<Value> {
            let mut elements = Vec::new();
            while let Some(element) = element(&mut array, Self)? {
                elements.push(element);
            }
            Ok(elements.into())
        }

        fn object(self, mut object: Object<'_, 'a>) -> Result<Value> {
            let mut members = Map::new();
            while let Some(name) = key(&mut object)? {
                members.insert((*name).to_owned(), value(&mut object, Self)?);
            }
            Ok(members.into())
        }
    }

    /// Compares the parser with `serde_json`, which gets no half of a surrogate pair: value or message. Texts
    /// distinguish -0 and 0, and integers and floats.
    fn compare(text: &str) {
        let paired = without_lone_surrogates(text);
        let expected = serde_json::from_str::<Value>(paired.as_deref().unwrap_or(text));
        let expected = expected.map(|value| value.to_string()).map_err(|error| error.to_string());
        let found = read(text, Tree).map(|value| value.to_string());
        // `serde_json` may find this within a number already.
        let is_too_great = |read: &core::result::Result<String, String>| {
            read.as_ref().is_err_and(|message| message.starts_with("number out of range"))
        };
        if !is_too_great(&found) || !is_too_great(&expected) {
            assert_eq!(found, expected, "{text}");
        }
    }

    fn runner(seed: u8, cases: u32) -> TestRunner {
        TestRunner::new_with_rng(
            Config::with_cases(cases),
            TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]),
        )
    }

    const PARTS: [&str; 63] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        " ",
        "\n",
        "\t",
        "\r",
        "\0",
        "\u{1f}",
        "\u{b}",
        "é",
        "😀",
        "0",
        "1",
        "9",
        "-",
        "+",
        ".",
        "e",
        "E",
        "u",
        "n",
        "true",
        "false",
        "null",
        "nul",
        "tru",
        "x",
        "\"a\":",
        "\"é\":",
        "\"\\n\":",
        "\"a\"",
        "\"\"",
        "\"\\u00e9\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "\"\\ud83d\\n\"",
        "\"\\ud83d\\ud83d\\ude00\"",
        "\"\\u00g9\"",
        "\"\\u00\"",
        "\\u0",
        "\\ud800",
        "\"\\x\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "[1,",
        "1]",
        "{\"a\":1",
        "\"b\":2}",
        "1.5",
        "-0",
        "-0.0",
        "1e5",
        "1E-5",
        "0.1",
        "1e400",
        "18446744073709551616",
        "[]",
    ];

    #[test]
    fn any_text_has_the_value_or_the_message_of_serde_json() {
        let run = runner(0x15, 6_000).run(&vec(select(PARTS.to_vec()), 0..12), |parts| {
            compare(&parts.concat());
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{error}"));
    }

    /// JSON with all its parts.
    const WHOLE: &str = r#" { "model" : "é😀 and a long text that is read in blocks, with an \u00e9scape in it, \ud83d\ude00",
        "n" : [ 0, -1, 1.5, -2.5e-3, 1E+10, 18446744073709551615, -9223372036854775808, true, false, null ],
        "o" : { "" : { } , "\n" : [ ] , "long name of a member that is read in blocks" : [ [ { "a" : "\"\\" } ] ] } } "#;

    #[test]
    fn a_text_that_is_cut_or_changed_anywhere_has_the_value_or_the_message_of_serde_json() {
        for end in (0..=WHOLE.len()).filter(|&end| WHOLE.is_char_boundary(end)) {
            compare(&WHOLE[..end]);
        }
        let inputs = (any::<Index>(), 0..3_usize, select(PARTS.to_vec()));
        let run = runner(0x16, 3_000).run(&inputs, |(at, removed, part)| {
            let letters: Vec<char> = WHOLE.chars().collect();
            let at = at.index(letters.len());
            let rest = letters.get(at + removed..).unwrap_or_default();
            compare(
                &letters[..at]
                    .iter()
                    .copied()
                    .chain(part.chars())
                    .chain(rest.iter().copied())
                    .collect::<String>(),
            );
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn any_number_has_the_value_of_serde_json() {
        let whole = (select(vec!["", "-"]), any::<u64>(), any::<u64>(), 0..24_usize);
        let fraction = (any::<u64>(), 0..24_usize);
        let exponent =
            (select(vec!["", "e", "E+", "e-"]), select(vec![2, 23, 400, 99_999, u64::MAX]), any::<u64>());
        let run = runner(0x17, 6_000).run(&(whole, fraction, exponent), |(whole, fraction, exponent)| {
            let (sign, number, more, length) = whole;
            let (digits, places) = fraction;
            let mut text = format!("{sign}{number}{more}");
            text.truncate(sign.len() + length.max(1));
            if places > 0 {
                text += ".";
                text += &format!("{digits:024}")[24 - places..];
            }
            let (mark, limit, number) = exponent;
            if !mark.is_empty() {
                text += mark;
                text += &(number % limit).to_string();
            }
            compare(&text);
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{error}"));
        for text in
            ["9007199254740993", "9007199254740993.0", "1e22", "1e23", "123456789012345e22", "0e400", "-0e-1"]
        {
            compare(text);
        }
    }

    #[test]
    fn levels_are_read_up_to_the_limit_of_serde_json() {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), ("[[],", "]")] {
            for levels in [MAX_NESTED - 1, MAX_NESTED, MAX_NESTED + 1, 200] {
                compare(&(open.repeat(levels) + "1" + &close.repeat(levels)));
            }
        }
    }
}
