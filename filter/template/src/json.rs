//! The filter `tojson` as transformers defines it: Python's `json.dumps` without escapes of characters
//! outside of ASCII.

use std::io;

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize as _;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::{Bounded, FUEL};

/// Maximum number of blanks for a level.
const MAX_INDENT: usize = 16;

/// Maximum nesting. A body has at most 128 levels, but a template can put a list into a list with each step
/// of a loop.
const MAX_DEPTH: usize = 256;

/// Byte limit of a text. A longer one takes more than all fuel, but only after it is written.
const MAX_BYTES: usize = 64 * FUEL as usize;

/// `value | tojson(indent=…)`.
#[expect(clippy::needless_pass_by_value, reason = "as minijinja passes them")]
pub(crate) fn to_json(value: &Value, indent: Option<usize>, options: Kwargs) -> Result<Value, Error> {
    let indent = options.get::<Option<usize>>("indent")?.or(indent);
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    if indent.is_some_and(|indent| indent > MAX_INDENT) {
        let problem = format!("the indent of tojson is {MAX_INDENT} at most");
        return Err(Error::new(ErrorKind::InvalidOperation, problem));
    }
    let mut text = Bounded { text: Vec::new(), max_bytes: MAX_BYTES };
    let mut serializer = Serializer::with_formatter(&mut text, Python { indent, depth: 0, is_empty: true });
    let failed = |error: String| Error::new(ErrorKind::BadSerialization, error);
    value.serialize(&mut serializer).map_err(|error| failed(error.to_string()))?;
    String::from_utf8(text.text).map(Value::from).map_err(|error| failed(error.to_string()))
}

/// Separators and numbers as Python writes them.
struct Python {
    /// Blanks for each level, each item on a line of its own; `None`: all on one line.
    indent: Option<usize>,
    depth: usize,
    /// Whether the innermost array or object has no item yet.
    is_empty: bool,
}

impl Python {
    fn open<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        if self.depth == MAX_DEPTH {
            return Err(io::Error::other(format!("the value is nested deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        self.is_empty = true;
        writer.write_all(bracket)
    }

    fn close<W: ?Sized + io::Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth = self.depth.saturating_sub(1);
        if !self.is_empty {
            self.line(writer)?;
        }
        self.is_empty = false;
        writer.write_all(bracket)
    }

    fn item<W: ?Sized + io::Write>(&mut self, writer: &mut W, is_first: bool) -> io::Result<()> {
        self.is_empty = false;
        if !is_first {
            writer.write_all(if self.indent.is_some() { b"," } else { b", " })?;
        }
        self.line(writer)
    }

    fn line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = self.indent else { return Ok(()) };
        writer.write_all(b"\n")?;
        // Level by level: the width of a format has 16 bits.
        (0..self.depth).try_for_each(|_| write!(writer, "{:indent$}", ""))
    }
}

impl Formatter for Python {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.item(writer, first)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.item(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    /// Both Rust's and Python's shortest forms have an exponent below 1e-4 and from 1e16 on; Python writes
    /// its sign, and two digits.
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let text = format!("{value:?}");
        let Some((digits, exponent)) = text.split_once('e') else { return writer.write_all(text.as_bytes()) };
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        write!(writer, "{}e{sign}{exponent:0>2}", digits.strip_suffix(".0").unwrap_or(digits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dumped(json: &str, indent: Option<usize>) -> String {
        let value: Value = serde_json::from_str(json).unwrap();
        to_json(&value, indent, Kwargs::from_iter([] as [(&str, Value); 0])).unwrap().to_string()
    }

    #[test]
    fn values_are_written_as_python_writes_them() {
        let json =
            r#"{"z":[1,-2,2.0,1.5e300,1e16,0.00001,0.1],"a":{"é\n\u0001<\"":null},"b":[],"c":{},"t":true}"#;
        let expected = r#"{"z": [1, -2, 2.0, 1.5e+300, 1e+16, 1e-05, 0.1], "a": {"é\n\u0001<\"": null}, "b": [], "c": {}, "t": true}"#;
        assert_eq!(dumped(json, None), expected);
    }

    #[test]
    fn an_indent_is_bounded() {
        let dump = |indent: usize| {
            let value: Value = serde_json::from_str("[[[1]]]").unwrap();
            to_json(&value, Some(indent), Kwargs::from_iter([] as [(&str, Value); 0]))
        };
        assert!(dump(MAX_INDENT).is_ok());
        for indent in [MAX_INDENT + 1, 30_000, 1 << 16, usize::MAX] {
            assert!(dump(indent).is_err(), "{indent}");
        }
    }

    #[test]
    fn the_nesting_is_bounded() {
        let dump = |levels: usize| {
            let value = (0..levels).fold(Value::from(1), |value, _| Value::from(vec![value]));
            to_json(&value, None, Kwargs::from_iter([] as [(&str, Value); 0]))
        };
        assert!(dump(MAX_DEPTH).is_ok());
        assert!(dump(MAX_DEPTH + 1).is_err());
    }

    #[test]
    fn with_an_indent_each_item_has_a_line() {
        let expected = "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}";
        assert_eq!(dumped(r#"{"a":[1,{}],"b":[]}"#, Some(2)), expected);
    }
}
