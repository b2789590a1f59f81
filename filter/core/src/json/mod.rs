//! Reading and writing JSON text: the one module that calls `serde_json` for request bodies and answers.

mod quoted;
mod span;
mod surrogates;
mod value;

pub(crate) use quoted::quoted;
pub(crate) use span::span_of_member;
pub(crate) use surrogates::without_lone_surrogates;
pub(crate) use value::{Number, Pass, Reader, Str, element, key, pass_array, pass_object, value};

use serde::de::DeserializeSeed;
use value::Read;

/// Reads the whole of `text`. Refuses text that is not JSON, anything but blanks after the value, and nesting deeper than
/// 127 levels.
pub(crate) fn read<'a, R: Reader<'a>>(text: &'a str, reader: R) -> serde_json::Result<R::Value> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = Read(reader).deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}
