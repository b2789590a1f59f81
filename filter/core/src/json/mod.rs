//! Reading and writing JSON text: the one module that calls `serde_json` for request bodies and answers.

mod literal;
mod raw;
mod span;
mod string;
mod surrogates;
mod value;

pub(crate) use literal::{Match, match_literal};
pub(crate) use raw::raw_value;
pub(crate) use span::span_of_member;
pub(crate) use string::{OpenString, end_of_string, escaped_unit};
pub(crate) use surrogates::without_lone_surrogates;
pub(crate) use value::{Number, Pass, Reader, Str, element, key, pass_array, pass_object, value};

use serde::de::DeserializeSeed;
use value::Read;

/// The most levels of arrays and objects in each other: the limit of `serde_json`.
pub(crate) const MOST_NESTED: usize = 127;

/// Reads the whole of `text`. Refuses text that is not JSON, anything but blanks after the value, and nesting deeper than
/// [`MOST_NESTED`].
pub(crate) fn read<'a, R: Reader<'a>>(text: &'a str, reader: R) -> serde_json::Result<R::Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Read(reader).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// The longest number that is written: it has a sign, 17 digits, a point, and five zeros behind it or an exponent of three digits.
pub(crate) const LONGEST_NUMBER: usize = 32;

/// Writes a finite number into `buffer` with the fewest digits; returns the part that it takes.
pub(crate) fn write_number(number: Number, buffer: &mut [u8; LONGEST_NUMBER]) -> &[u8] {
    let mut left = &mut buffer[..];
    let written = match number {
        Number::Unsigned(number) => serde_json::to_writer(&mut left, &number),
        Number::Negative(number) => serde_json::to_writer(&mut left, &number),
        Number::Float(number) => serde_json::to_writer(&mut left, &number),
    };
    debug_assert!(written.is_ok(), "{number:?}");
    let length = LONGEST_NUMBER - left.len();
    buffer.get(..length).unwrap_or_default()
}

/// The text as a JSON string, with its quotes.
pub(crate) fn quoted(text: &str) -> Vec<u8> {
    serde_json::Value::from(text).to_string().into_bytes()
}
