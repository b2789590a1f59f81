//! Writes JSON text as the EPP's encoder does. Keeps a beginning of the text and counts the rest.

use core::ops::Range;
use std::borrow::Cow;

use memchr::memchr_iter;

use crate::json::{Decimal, EXACT, MAX_NUMBER_LENGTH, Number, write_float};
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

    /// Appends JSON of which only a beginning may have been kept. Behind one that is cut, nothing more is
    /// kept.
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
#[inline]
pub(super) fn push_up_to(out: &mut Vec<u8>, end: usize, bytes: &[u8]) -> u64 {
    if out.len() + bytes.len() <= end {
        out.extend_from_slice(bytes);
    } else if let Some(room @ 1..) = end.checked_sub(out.len()) {
        out.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }
    bytes.len() as u64
}

/// Appends a string with its quotes, as [`push_up_to`] does; returns its length with quotes and escapes.
pub(super) fn push_string_up_to(out: &mut Vec<u8>, end: usize, text: &[u8]) -> u64 {
    if out.len() >= end {
        return string_length(text);
    }
    // Room for a string without escapes.
    let room = end - out.len();
    out.reserve(room.min(text.len() + 2));
    let mut next = text.iter().position(|&byte| may_be_escaped(byte));
    if next.is_none() && text.len() + 2 <= room {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
        return text.len() as u64 + 2;
    }
    let mut length = push_up_to(out, end, b"\"");
    let mut rest = text;
    while let Some(plain) = next {
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
        next = rest.iter().position(|&byte| may_be_escaped(byte));
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
    match number {
        Number::Unsigned(0..10) => 1,
        Number::Unsigned(integer @ 0..=EXACT) => digits(integer),
        Number::Negative(integer) if integer.unsigned_abs() <= EXACT => 1 + digits(integer.unsigned_abs()),
        Number::Decimal(decimal) => decimal_length(decimal),
        Number::Unsigned(_) | Number::Negative(_) | Number::Float(_) => {
            write_go_number(number, &mut [0; MAX_NUMBER_LENGTH]).len() as u64
        }
    }
}

/// The number of digits of an integer.
fn digits(integer: u64) -> u64 {
    u64::from(integer.checked_ilog10().unwrap_or_default()) + 1
}

/// The length of a number that [`NumberBuffer::decimal`] writes.
fn decimal_length(decimal: Decimal) -> u64 {
    let (Decimal { is_negative, integer, exponent }, first) = in_fewest_digits(decimal);
    let count = digits(integer);
    let zeros = |power: i16| u64::from(power.unsigned_abs());
    let point = |fraction: u64| fraction + u64::from(fraction > 0);
    u64::from(is_negative)
        + match first {
            _ if integer == 0 => 1,
            // Zeros up to the first digit, one of them before the point.
            -6..0 => zeros(first) + 1 + count,
            0..21 if exponent >= 0 => count + zeros(exponent),
            0..21 => count + 1,
            _ => 1 + point(count - 1) + 2 + digits(zeros(first)),
        }
}

/// The number without zeros at the end of its digits, and the power of ten of its first digit.
fn in_fewest_digits(mut decimal: Decimal) -> (Decimal, i16) {
    let Decimal { integer, exponent, .. } = &mut decimal;
    while *integer > 0 && integer.is_multiple_of(10) {
        *integer /= 10;
        *exponent += 1;
    }
    let first = *exponent + i16::try_from(digits(*integer)).unwrap_or_default() - 1;
    (decimal, first)
}

/// How a character is escaped.
enum Escape {
    /// A backslash and this letter.
    Short(u8),
    /// `\u` and the four digits of this UTF-16 unit.
    Unit(u16),
}

/// The escape of the character that `text` begins with, and the bytes of that character. `None` if it needs
/// no escape.
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

/// Writes a number into `buffer` as Go writes a double: with the fewest digits, and an exponent below 1e-6
/// and from 1e21 on. Returns the part that it takes.
pub(super) fn write_go_number(number: Number, buffer: &mut [u8; MAX_NUMBER_LENGTH]) -> &[u8] {
    let decimal = |integer: u64, is_negative| Decimal { is_negative, integer, exponent: 0 };
    let decimal = match number {
        Number::Unsigned(integer @ 0..=EXACT) => decimal(integer, false),
        Number::Negative(integer) if integer.unsigned_abs() <= EXACT => decimal(integer.unsigned_abs(), true),
        Number::Decimal(decimal) => decimal,
        // Go and `serde_json` write these alike.
        Number::Float(number) if number != 0.0 && !GO_IN_FULL.contains(&number.abs()) => {
            return write_float(number, buffer);
        }
        Number::Unsigned(_) | Number::Negative(_) | Number::Float(_) => fewest_digits(number.as_f64()),
    };
    let mut text = NumberBuffer { bytes: buffer, length: 0 };
    text.decimal(decimal);
    let NumberBuffer { bytes, length } = text;
    bytes.get(..length).unwrap_or_default()
}

/// The sizes that Go writes without an exponent.
const GO_IN_FULL: Range<f64> = 1e-6..1e21;

/// The fewest digits that are this double.
fn fewest_digits(number: f64) -> Decimal {
    let mut buffer = [0; MAX_NUMBER_LENGTH];
    let (mut integer, mut exponent, mut places) = (0_u64, 0_i16, 0);
    let mut bytes = write_float(number, &mut buffer).iter();
    // A point and an exponent are each written once at most, in this order.
    while let Some(&byte) = bytes.next() {
        match byte {
            b'0'..=b'9' => {
                integer = integer * 10 + u64::from(byte - b'0');
                exponent -= places;
            }
            b'.' => places = 1,
            b'e' => {
                let is_negative = bytes.as_slice().first() == Some(&b'-');
                let digits = bytes.by_ref().filter(|byte| byte.is_ascii_digit());
                let size = digits.fold(0, |size, digit| size * 10 + i16::from(digit - b'0'));
                exponent += if is_negative { -size } else { size };
            }
            _ => {}
        }
    }
    Decimal { is_negative: number.is_sign_negative(), integer, exponent }
}

/// A text of up to [`MAX_NUMBER_LENGTH`] bytes that is being written.
struct NumberBuffer<'b> {
    bytes: &'b mut [u8; MAX_NUMBER_LENGTH],
    length: usize,
}

impl NumberBuffer<'_> {
    fn put(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }

    fn put_all(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.put(byte);
        }
    }

    fn zeros(&mut self, count: i16) {
        for _ in 0..count {
            self.put(b'0');
        }
    }

    fn decimal(&mut self, decimal: Decimal) {
        let (Decimal { is_negative, integer, exponent }, first) = in_fewest_digits(decimal);
        if is_negative {
            self.put(b'-');
        }
        if integer == 0 {
            return self.put(b'0');
        }
        let mut buffer = [0; MAX_DIGITS];
        let digits = write_digits(integer, &mut buffer);
        match first {
            -6..0 => {
                self.put_all(b"0.");
                self.zeros(-1 - first);
                self.put_all(digits);
            }
            0..21 => {
                let whole = usize::try_from(first + 1).unwrap_or_default().min(digits.len());
                let (whole, fraction) = digits.split_at_checked(whole).unwrap_or_default();
                self.put_all(whole);
                self.zeros(exponent);
                self.fraction(fraction);
            }
            _ => {
                let (one, fraction) = digits.split_at_checked(1).unwrap_or_default();
                self.put_all(one);
                self.fraction(fraction);
                self.put(b'e');
                self.put(if first < 0 { b'-' } else { b'+' });
                self.put_all(write_digits(first.unsigned_abs().into(), &mut buffer));
            }
        }
    }

    fn fraction(&mut self, digits: &[u8]) {
        if !digits.is_empty() {
            self.put(b'.');
            self.put_all(digits);
        }
    }
}

/// Maximum number of digits of an integer of 64 bits.
const MAX_DIGITS: usize = 20;

/// Writes an integer to the end of `buffer`; returns the part that it takes.
fn write_digits(mut integer: u64, buffer: &mut [u8; MAX_DIGITS]) -> &[u8] {
    let mut at = MAX_DIGITS;
    for place in buffer.iter_mut().rev() {
        let [digit, ..] = (integer % 10).to_le_bytes();
        *place = b'0' + digit;
        at -= 1;
        integer /= 10;
        if integer == 0 {
            break;
        }
    }
    buffer.get(at..).unwrap_or_default()
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

    #[test]
    fn a_number_is_written_from_its_digits_as_from_its_double() {
        let integers = [0, 1, 9, 10, 25, 400, 12_345, 1_200_000, 123_456_789_012_345, 999_999_999_999_999];
        for exponent in -300..=293 {
            for integer in integers {
                for is_negative in [false, true] {
                    let number = Number::Decimal(Decimal { is_negative, integer, exponent });
                    let mut buffers = [[0; MAX_NUMBER_LENGTH]; 2];
                    let [first, second] = &mut buffers;
                    let written = write_go_number(number, first);
                    let sign = if is_negative { "-" } else { "" };
                    let double: f64 = format!("{sign}{integer}e{exponent}").parse().unwrap();
                    assert_eq!(double.to_bits(), number.as_f64().to_bits(), "{number:?}");
                    assert_eq!(core::str::from_utf8(written), Ok(&*plain(double)), "{number:?}");
                    assert_eq!(written, write_go_number(Number::Float(double), second), "{number:?}");
                    assert_eq!(written.len() as u64, go_number_length(number), "{number:?}");
                }
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
