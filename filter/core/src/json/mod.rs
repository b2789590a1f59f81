//! Reading and writing JSON text: the one module that does for request bodies and responses.

mod name;
mod number;
mod parser;
mod scan;
mod string;
#[cfg(test)]
mod tests;
mod value;

use parser::Parser;

pub(crate) use name::Name;
pub(crate) use number::{Decimal, EXACT, Number};

pub(crate) use string::{
    Match, OpenString, Str, end_of_string, escaped_unit, match_literal, with_finite_numbers,
};
pub(crate) use value::{
    Array, Object, Pass, Reader, element, key, next_number, pass_array, pass_object, raw_value, value,
    value_and_place,
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
