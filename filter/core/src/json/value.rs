//! Reading a JSON value of any type.
//!
//! A [`Reader`] has a method for each type of value that it accepts; a value of another type is read past,
//! and then [`Reader::other`] is called. So a value of the wrong type does not end the reading: a syntax
//! error behind it is found too, and takes precedence as it does in the EPP, which decodes the whole text
//! first.

use core::ops::Range;
use std::borrow::Cow;

use super::number::{Number, short_integer};
use super::parser::Parser;
use super::string::{Str, without_lone_surrogates};
use super::{Name, Result};

/// A reader of a value of any type.
pub(crate) trait Reader<'a>: Sized {
    type Value;

    /// The value has a type without a method of its own; it has been read past.
    fn other(self) -> Self::Value;

    fn null(self) -> Self::Value {
        self.other()
    }

    fn boolean(self, _value: bool) -> Self::Value {
        self.other()
    }

    fn number(self, _value: Number) -> Self::Value {
        self.other()
    }

    fn string(self, _value: Str<'a, '_>) -> Self::Value {
        self.other()
    }

    fn array(self, array: Array<'_, 'a>) -> Result<Self::Value> {
        pass_array(array)?;
        Ok(self.other())
    }

    fn object(self, object: Object<'_, 'a>) -> Result<Self::Value> {
        pass_object(object)?;
        Ok(self.other())
    }
}

impl<'a> Parser<'a> {
    #[inline]
    pub(super) fn value<R: Reader<'a>>(&mut self, reader: R) -> Result<R::Value> {
        let first = self.token();
        self.value_of(first, reader)
    }

    /// Reads the value that begins with the next byte, `first`.
    fn value_of<R: Reader<'a>>(&mut self, first: u8, reader: R) -> Result<R::Value> {
        match first {
            b'"' => Ok(reader.string(self.string()?)),
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
    fn text_of<R: Reader<'a>>(&mut self, reader: R) -> Result<(&'a str, bool)> {
        self.token();
        let (start, lone_surrogates) = (self.at, self.lone_surrogates);
        self.value(reader)?;
        let text = self.text.get(start..self.at).unwrap_or_default();
        Ok((text, self.lone_surrogates > lone_surrogates))
    }
}

/// An array while it is read.
pub(crate) struct Array<'p, 'a> {
    parser: &'p mut Parser<'a>,
    is_first: bool,
}

impl<'a> Array<'_, 'a> {
    /// The next element if it is an integer between commas or brackets without blanks, as in lists of
    /// thousands; `None` if it is to be read as any other.
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
        match self.first_byte()? {
            Some(first) => self.parser.value_of(first, reader).map(Some),
            None => Ok(None),
        }
    }

    /// Moves to the next element; returns its first byte.
    #[inline]
    fn first_byte(&mut self) -> Result<Option<u8>> {
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
        Ok(Some(first))
    }

    /// Reads past the rest of the array, and returns the [length](length_of_rest) of it.
    pub(crate) fn length<R: Reader<'a, Value = u64> + Copy>(self, reader: R) -> Result<u64> {
        length_of_rest(self.parser, false, self.is_first, reader)
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
        Ok(Some(reader.string(parser.string()?)))
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

    /// Moves to the value of the next member. Returns the value of its key by `reader`, and the first byte of
    /// the member's value.
    #[inline]
    fn first_byte<R: Reader<'a>>(&mut self, reader: R) -> Result<Option<(R::Value, u8)>> {
        let Some(key) = self.key(reader)? else { return Ok(None) };
        Ok(Some((key, self.at_value()?.token())))
    }

    /// Reads past the rest of the object, and returns the [length](length_of_rest) of it.
    pub(crate) fn length<R: Reader<'a, Value = u64> + Copy>(self, reader: R) -> Result<u64> {
        length_of_rest(self.parser, true, self.is_first, reader)
    }
}

/// Reads past the rest of an open array or object, up to the bracket that closes it. Returns the length of
/// this rest with commas and that bracket, without blanks; `reader` returns the lengths of keys and of the
/// values without brackets.
///
/// A loop and not a recursion: a processor predicts the returns of the innermost calls only, and a return
/// from each of many levels would take longer than the rest of the work for a bracket.
fn length_of_rest<'a, R>(
    parser: &mut Parser<'a>,
    is_object: bool,
    mut is_first: bool,
    reader: R,
) -> Result<u64>
where
    R: Reader<'a, Value = u64> + Copy,
{
    // A bit for each open array (0) or object (1), the innermost lowest. There are no more than `MAX_NESTED`.
    let mut open = u128::from(is_object);
    let mut levels = 1;
    // A comma or a bracket follows each value, and precedes the first one if it is not the first of all.
    let mut length = u64::from(!is_first);
    loop {
        let is_object = open & 1 == 1;
        let first = if is_object {
            let member = Object { parser: &mut *parser, is_first }.first_byte(reader)?;
            member.map(|(key, first)| {
                length += key + 1;
                first
            })
        } else {
            Array { parser: &mut *parser, is_first }.first_byte()?
        };
        let Some(first) = first else {
            length += u64::from(is_first);
            levels -= 1;
            if levels == 0 {
                return Ok(length);
            }
            parser.close(if is_object { b'}' } else { b']' })?;
            open >>= 1;
            is_first = false;
            continue;
        };
        length += 1;
        is_first = matches!(first, b'[' | b'{');
        if is_first {
            parser.open()?;
            length += 1;
            levels += 1;
            open = open << 1 | u128::from(first == b'{');
        } else {
            length += parser.value_of(first, reader)?;
        }
    }
}

/// Reads past the rest of an array; returns the number of its elements.
pub(crate) fn pass_array(mut array: Array<'_, '_>) -> Result<u64> {
    let mut count = 0;
    while array.element(Pass)?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Reads past the rest of an object.
pub(crate) fn pass_object(mut object: Object<'_, '_>) -> Result<()> {
    while object.key(Pass)?.is_some() {
        value(&mut object, Pass)?;
    }
    Ok(())
}

/// Reads past a value.
pub(crate) struct Pass;

impl<'a> Reader<'a> for Pass {
    type Value = ();

    fn other(self) {}

    fn array(self, array: Array<'_, 'a>) -> Result<()> {
        array.length(NoLength).map(drop)
    }

    fn object(self, object: Object<'_, 'a>) -> Result<()> {
        object.length(NoLength).map(drop)
    }
}

/// The length 0, of values that are only read past.
#[derive(Clone, Copy)]
struct NoLength;

impl Reader<'_> for NoLength {
    type Value = u64;

    fn other(self) -> u64 {
        0
    }
}

/// Reads the key of a member.
struct KeyReader;

impl<'a> Reader<'a> for KeyReader {
    type Value = Name<'a>;

    // JSON has only strings for keys.
    fn other(self) -> Name<'a> {
        Name::copy("")
    }

    fn string(self, value: Str<'a, '_>) -> Name<'a> {
        Name::new(value)
    }
}

/// The next member's key.
pub(crate) fn key<'a>(object: &mut Object<'_, 'a>) -> Result<Option<Name<'a>>> {
    object.key(KeyReader)
}

/// The value of the member whose key was just read.
pub(crate) fn value<'a, R: Reader<'a>>(object: &mut Object<'_, 'a>, reader: R) -> Result<R::Value> {
    object.at_value()?.value(reader)
}

/// The same, with the offsets of the value in the text.
pub(crate) fn value_and_place<'a, R: Reader<'a>>(
    object: &mut Object<'_, 'a>,
    reader: R,
) -> Result<(R::Value, Range<usize>)> {
    let parser = object.at_value()?;
    let first = parser.token();
    let start = parser.at;
    let value = parser.value_of(first, reader)?;
    Ok((value, start..parser.at))
}

/// The array's next element.
pub(crate) fn element<'a, R: Reader<'a>>(array: &mut Array<'_, 'a>, reader: R) -> Result<Option<R::Value>> {
    array.element(reader)
}

/// The array's next element, which mostly is a number.
#[inline]
pub(crate) fn next_number<'a, R: Reader<'a>>(
    array: &mut Array<'_, 'a>,
    reader: R,
) -> Result<Option<R::Value>> {
    match array.integer() {
        Some(integer) => Ok(Some(reader.number(Number::Unsigned(integer)))),
        None => array.element(reader),
    }
}

/// The text of the value of the member whose key was just read, with U+FFFD in the place of half a surrogate
/// pair.
pub(crate) fn raw_value<'a>(object: &mut Object<'_, 'a>) -> Result<Cow<'a, str>> {
    let (text, has_lone_surrogates) = object.at_value()?.text_of(Pass)?;
    let repaired = if has_lone_surrogates { without_lone_surrogates(text) } else { None };
    Ok(repaired.map_or(Cow::Borrowed(text), Cow::Owned))
}
