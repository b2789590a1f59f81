//! Reading a JSON value of any type.
//!
//! A [`Reader`] has a method for each type of value that it accepts; a value of another type is read past, and then
//! [`Reader::other`] is called. So a value of the wrong type does not end the reading: a syntax error behind it is
//! found too, and takes precedence as it does in the EPP, which decodes the whole text first.

use core::ops::Deref;
use std::borrow::Cow;

use super::nested::{Array, Object};
use super::number::Number;
use super::string::without_lone_surrogates;
use super::{Name, Result};

/// A string without its quotes and escapes.
#[derive(Clone, Copy)]
pub(crate) struct Str<'a, 't> {
    text: &'t str,
    /// The same text as a part of the body; `None` if the body spells it with escapes.
    in_body: Option<&'a str>,
}

impl Deref for Str<'_, '_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.text
    }
}

impl<'a> Str<'a, '_> {
    /// A part of the text.
    pub(super) fn in_text(text: &'a str) -> Str<'a, 'a> {
        Str { text, in_body: Some(text) }
    }

    /// A text that is not a part of the body.
    pub(super) fn copied(text: &str) -> Str<'a, '_> {
        Str { text, in_body: None }
    }

    pub(crate) fn into_cow(self) -> Cow<'a, str> {
        self.in_body.map_or_else(|| Cow::Owned(self.text.to_owned()), Cow::Borrowed)
    }

    /// The text as a part of the body; `None` if the body spells it with escapes.
    pub(crate) fn in_body(self) -> Option<&'a str> {
        self.in_body
    }
}

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
struct Key;

impl<'a> Reader<'a> for Key {
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
    object.key(Key)
}

/// The value of the member whose key was just read.
pub(crate) fn value<'a, R: Reader<'a>>(object: &mut Object<'_, 'a>, reader: R) -> Result<R::Value> {
    object.at_value()?.value(reader)
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

/// The text of the value of the member whose key was just read, with U+FFFD in the place of half a surrogate pair.
pub(crate) fn raw_value<'a>(object: &mut Object<'_, 'a>) -> Result<Cow<'a, str>> {
    let (text, has_lone_surrogates) = object.at_value()?.text_of(Pass)?;
    let repaired = if has_lone_surrogates { without_lone_surrogates(text) } else { None };
    Ok(repaired.map_or(Cow::Borrowed(text), Cow::Owned))
}
