//! Reading and writing JSON text: the one module that does for request bodies and responses.

mod name;
mod number;
mod parser;
mod scan;
mod string;
#[cfg(test)]
mod tests;
mod value;

use core::ops::Range;

use parser::Parser;

pub(crate) use name::Name;
pub(crate) use number::{Decimal, EXACT, Number};

pub(crate) use string::{
    Match, OpenString, Str, end_of_string, escaped_unit, match_literal, with_finite_numbers,
};
pub(crate) use value::{
    Array, Object, Pass, Reader, element, key, next_number, pass_array, pass_object, raw_value, value,
};

/// The text is not JSON; the parser has noted the fault.
pub(crate) struct Malformed;

/// A value that was read, unless the text is not JSON.
pub(crate) type Result<T> = core::result::Result<T, Malformed>;

/// Maximum number of levels of arrays and objects in each other: the limit of `serde_json`.
pub(crate) const MAX_NESTED: usize = 127;

/// Reads the whole of `text`. Refuses text that is not JSON, anything but blanks after the value, and nesting
/// deeper than [`MAX_NESTED`], each with the message of `serde_json`. Half a surrogate pair is read as
/// U+FFFD.
pub(crate) fn read<'a, R: Reader<'a>>(text: &'a str, reader: R) -> core::result::Result<R::Value, String> {
    let mut parser = Parser::new(text);
    let read = parser.value(reader).and_then(|value| parser.end().map(|()| value));
    read.map_err(|Malformed| parser.message())
}

/// Maximum length of a number that is written: it has a sign, 17 digits, a point, and five zeros behind it or
/// an exponent of three digits.
pub(crate) const MAX_NUMBER_LENGTH: usize = 32;

/// Writes a finite double into `buffer` with the fewest digits; returns the part that it takes.
pub(crate) fn write_float(number: f64, buffer: &mut [u8; MAX_NUMBER_LENGTH]) -> &[u8] {
    let mut left = &mut buffer[..];
    let written = serde_json::to_writer(&mut left, &number);
    debug_assert!(written.is_ok(), "{number}");
    let length = MAX_NUMBER_LENGTH - left.len();
    buffer.get(..length).unwrap_or_default()
}

/// The text as a JSON string, with its quotes.
pub(crate) fn quoted(text: &str) -> Vec<u8> {
    serde_json::Value::from(text).to_string().into_bytes()
}

/// The offsets of the value of the member whose key is `name`. `None` if `name` is a copy and not the part of
/// `text` between the key's quotes.
pub(crate) fn span_of_member(text: &str, name: &str) -> Option<Range<usize>> {
    // A name without escapes is borrowed from `text`, so its address gives its offset.
    let offset = (name.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
    let bytes = text.as_bytes();
    let key_end = offset.checked_add(name.len())?;
    if bytes.get(key_end) != Some(&b'"') {
        return None;
    }
    let colon = skip_blanks(bytes, key_end + 1);
    if bytes.get(colon) != Some(&b':') {
        return None;
    }
    let start = skip_blanks(bytes, colon + 1);
    let end = value_end(bytes, start);
    (start < end).then_some(start..end)
}

fn skip_blanks(bytes: &[u8], from: usize) -> usize {
    let blanks = bytes.iter().skip(from).take_while(|byte| byte.is_ascii_whitespace());
    from + blanks.count()
}

/// The offset behind the value that starts at `start`.
fn value_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0usize;
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at = end_of_string(bytes, at + 1).unwrap_or(bytes.len());
                if depth == 0 {
                    return at;
                }
                continue;
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' | b',' if depth == 0 => return at,
            // Both kinds share one depth, because the text was parsed before.
            b']' | b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ if depth == 0 && byte.is_ascii_whitespace() => return at,
            _ => {}
        }
        at += 1;
    }
    at
}
