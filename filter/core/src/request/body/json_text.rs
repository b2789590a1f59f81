//! Writes JSON text as the EPP's encoder does. Keeps a beginning of the text and counts the rest.

use std::borrow::Cow;

use memchr::memchr_iter;

use crate::json::{MAX_NUMBER_LENGTH, Number, write_number};
use crate::request::prompt::Text;

/// A JSON text that is being written.
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
        self.bytes += push_up_to(&mut self.out, self.end, json.as_bytes());
    }

    /// Appends JSON of which only a beginning may have been kept. Behind one that is cut, nothing more is kept.
    pub(super) fn part(&mut self, json: &Text<'_>) {
        push_up_to(&mut self.out, self.end, &json.kept);
        if (json.kept.len() as u64) < json.bytes {
            self.end = self.out.len();
        }
        self.bytes += json.bytes;
    }

    /// Appends a string.
    pub(super) fn string(&mut self, text: &str) {
        self.bytes += push_string_up_to(&mut self.out, self.end, text.as_bytes());
    }

    /// Whether nothing has been appended.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends JSON without the blanks between its tokens, and with `<`, `>`, `&`, U+2028 and U+2029 escaped.
    pub(super) fn compact(&mut self, json: &str) {
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
    pub(super) fn finish(self) -> Text<'static> {
        Text { kept: Cow::Owned(self.out), bytes: self.bytes }
    }
}

/// Appends the part of `bytes` that fits before `end`; returns the length of all of `bytes`.
pub(super) fn push_up_to(out: &mut Vec<u8>, end: usize, bytes: &[u8]) -> u64 {
    if let Some(room @ 1..) = end.checked_sub(out.len()) {
        out.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }
    bytes.len() as u64
}

/// Appends a string with its quotes, as [`push_up_to`] does; returns its length with quotes and escapes.
pub(super) fn push_string_up_to(out: &mut Vec<u8>, end: usize, text: &[u8]) -> u64 {
    if out.len() >= end {
        return string_length(text);
    }
    let mut length = push_up_to(out, end, b"\"");
    let mut rest = text;
    while let Some(plain) = rest.iter().position(|&byte| may_be_escaped(byte)) {
        let (before, from_here) = rest.split_at_checked(plain).unwrap_or_default();
        length += push_up_to(out, end, before);
        let first = from_here.first().copied().unwrap_or_default();
        let escaped = match escape(first, from_here) {
            Some((Escape::Short(letter), escaped)) => {
                length += push_up_to(out, end, &[b'\\', letter]);
                escaped
            }
            Some((Escape::Unit(unit), escaped)) => {
                let [a, b, c, d] = [12, 8, 4, 0].map(|shift| hexadecimal(unit >> shift & 0xf));
                length += push_up_to(out, end, &[b'\\', b'u', a, b, c, d]);
                escaped
            }
            None => {
                length += push_up_to(out, end, &[first]);
                1
            }
        };
        rest = from_here.get(escaped..).unwrap_or_default();
    }
    length += push_up_to(out, end, rest);
    length + push_up_to(out, end, b"\"")
}

/// The first byte of U+2028 and U+2029.
const SEPARATOR: u8 = 0xe2;

/// Bytes that a string grows by for each byte that is escaped; 3 for the first byte of U+2028 and U+2029,
/// which begins others too.
const GROWTH: [u8; 256] = {
    let mut growth = [0; 256];
    let mut byte = 0;
    while byte < growth.len() {
        #[expect(clippy::cast_possible_truncation, reason = "below 256")]
        #[expect(clippy::indexing_slicing, reason = "at compile time")]
        let () = growth[byte] = match byte as u8 {
            b'"' | b'\\' | 0x08 | 0x0c | b'\n' | b'\r' | b'\t' => 1,
            0..0x20 | b'<' | b'>' | b'&' => 5,
            SEPARATOR => 3,
            _ => 0,
        };
        byte += 1;
    }
    growth
};

fn growth(byte: u8) -> u8 {
    GROWTH.get(usize::from(byte)).copied().unwrap_or_default()
}

fn may_be_escaped(byte: u8) -> bool {
    growth(byte) > 0
}

/// The length of a string with its quotes and escapes.
pub(super) fn string_length(text: &[u8]) -> u64 {
    let bytes: u64 = text.iter().map(|&byte| u64::from(growth(byte))).sum();
    let mut length = 2 + text.len() as u64 + bytes;
    if bytes > 0 {
        for at in memchr_iter(SEPARATOR, text) {
            if escape(SEPARATOR, text.get(at..).unwrap_or_default()).is_none() {
                length -= u64::from(growth(SEPARATOR));
            }
        }
    }
    length
}

/// The length of a number that [`write_go_number`] writes.
pub(super) fn go_number_length(number: Number) -> u64 {
    let digits = |integer: u64| u64::from(integer.checked_ilog10().unwrap_or_default()) + 1;
    match number {
        Number::Unsigned(0..10) => 1,
        Number::Unsigned(integer @ 0..=EXACT) => digits(integer),
        Number::Negative(integer) if integer.unsigned_abs() <= EXACT => 1 + digits(integer.unsigned_abs()),
        Number::Unsigned(_) | Number::Negative(_) | Number::Float(_) => {
            write_go_number(number, &mut [0; MAX_NUMBER_LENGTH]).len() as u64
        }
    }
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
        SEPARATOR => {
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

/// The greatest integer up to which every one is a float of 64 bits.
const EXACT: u64 = 1 << 53;

/// Writes a number into `buffer`; returns the part that it takes.
pub(super) fn write_go_number(number: Number, buffer: &mut [u8; MAX_NUMBER_LENGTH]) -> &[u8] {
    let number = match number {
        Number::Unsigned(0..=EXACT) => number,
        Number::Negative(integer) if integer.unsigned_abs() <= EXACT => number,
        Number::Unsigned(_) | Number::Negative(_) | Number::Float(_) => Number::Float(number.as_f64()),
    };
    // `serde_json` writes the same digits and exponents as Go, but some exponents of numbers for which Go needs none, and `.0`.
    let mut length = write_number(number, buffer).len();
    let text = buffer.get(..length).unwrap_or_default();
    match text {
        [.., b'.', b'0'] => length -= 2,
        [digits @ .., b'e', b'+', b'1', power @ b'6'..=b'9'] => {
            length = in_full(buffer, digits.len(), usize::from(power - b'0') + 10);
        }
        [digits @ .., b'e', b'+', b'2', b'0'] => length = in_full(buffer, digits.len(), 20),
        [digits @ .., b'e', b'-', b'6'] => length = in_full_below_one(buffer, digits.len()),
        _ => {}
    }
    buffer.get(..length).unwrap_or_default()
}

/// Writes the number in the first `length` bytes, one digit of it before the point and 16 at most behind, times ten to the power of
/// `exponent`, which is at least 16; returns the new length.
fn in_full(buffer: &mut [u8; MAX_NUMBER_LENGTH], length: usize, exponent: usize) -> usize {
    let first = usize::from(buffer.first() == Some(&b'-'));
    let end = first + 1 + exponent;
    if let Some(fraction) = buffer.get_mut(first + 1..=end) {
        let digits = length.saturating_sub(first + 2);
        fraction.rotate_left(1);
        fraction.get_mut(digits..).unwrap_or_default().fill(b'0');
    }
    end
}

/// Writes the number in the first `length` bytes, one digit of it before the point, divided by a million; returns the new length.
fn in_full_below_one(buffer: &mut [u8; MAX_NUMBER_LENGTH], length: usize) -> usize {
    const ZEROS: &[u8] = b"0.00000";
    let mut number = *buffer;
    let digits = number.get_mut(..length).unwrap_or_default();
    let sign = digits.iter().take_while(|&&byte| byte == b'-').count();
    let mut end = sign;
    let digits = digits.iter().skip(sign).filter(|&&byte| byte != b'.');
    for (place, byte) in buffer.iter_mut().skip(sign).zip(ZEROS.iter().chain(digits)) {
        *place = *byte;
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    /// The rule in its simplest form: the fewest digits and Go's choice of an exponent.
    #[test]
    fn a_length_that_is_only_counted_is_that_of_the_text() {
        let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
        let texts = ["", "a", "\u{2028}", "a\u{2029}<", "\u{2027}", "“”", "\n\n", "e\u{301}", "😀"];
        for text in bytes.chain(texts.map(|text| text.as_bytes().to_vec())) {
            let mut out = Vec::new();
            assert_eq!(push_string_up_to(&mut out, 100, &text), out.len() as u64, "{text:?}");
            assert_eq!(push_string_up_to(&mut Vec::new(), 0, &text), out.len() as u64, "{text:?}");
        }
        for number in [0, 1, 9, 10, 99, 100, EXACT - 1, EXACT, EXACT + 1, u64::MAX] {
            for number in [
                Number::Unsigned(number),
                Number::Negative(-1 - (number / 2).cast_signed()),
                Number::Float(number as f64),
            ] {
                let length = write_go_number(number, &mut [0; MAX_NUMBER_LENGTH]).len() as u64;
                assert_eq!(go_number_length(number), length, "{number:?}");
            }
        }
    }

    fn plain(number: f64) -> String {
        match number.abs() {
            0.0 | 1e-6..1e21 => number.to_string(),
            size if size < 1e-6 => format!("{number:e}"),
            _ => format!("{number:e}").replace('e', "e+"),
        }
    }

    #[test]
    fn a_float_of_any_size_is_written_as_go_writes_it() {
        let digits =
            ["0", "1", "2.5", "7.25", "9.99", "1.000000000000001", "1.2345678901234567", "9.999999999999999"];
        for exponent in -324..=308 {
            for digits in digits {
                for sign in ["", "-"] {
                    let number: f64 = format!("{sign}{digits}e{exponent}").parse().unwrap();
                    if number.is_finite() {
                        let mut buffer = [0; MAX_NUMBER_LENGTH];
                        let written = write_go_number(Number::Float(number), &mut buffer);
                        assert_eq!(core::str::from_utf8(written), Ok(&*plain(number)));
                    }
                }
            }
        }
    }

    #[test]
    fn an_integer_is_written_as_the_float_that_it_is_for_go() {
        for (number, expected) in [
            (Number::Unsigned(0), "0"),
            (Number::Unsigned(EXACT), "9007199254740992"),
            (Number::Unsigned(EXACT + 1), "9007199254740992"),
            (Number::Unsigned(u64::MAX), "18446744073709552000"),
            (Number::Negative(-12), "-12"),
            (Number::Negative(-9_007_199_254_740_993), "-9007199254740992"),
            (Number::Negative(i64::MIN), "-9223372036854776000"),
        ] {
            let mut buffer = [0; MAX_NUMBER_LENGTH];
            let written = write_go_number(number, &mut buffer);
            assert_eq!(core::str::from_utf8(written), Ok(expected), "{number:?}");
        }
    }
}
