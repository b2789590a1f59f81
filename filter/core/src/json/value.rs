//! Reading a JSON value of any type.
//!
//! A [`Reader`] has a method for each type of value that it accepts; a value of another type is read past, and then
//! [`Reader::other`] is called. So a value of the wrong type does not end the reading: a syntax error behind it is found too,
//! and takes precedence as it does in the EPP, which decodes the whole text first.
//!
//! Every value goes through [`Deserializer::deserialize_any`], because the depth limit of `serde_json` does not hold for
//! `serde::de::IgnoredAny`.

use core::fmt;
use core::ops::Deref;
use std::borrow::Cow;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{MAX_NESTED, Name, read};

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

/// A number, of the type that its spelling has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    /// An integer of at least 0.
    Unsigned(u64),
    /// An integer below 0.
    Negative(i64),
    /// A number with a fraction or an exponent, or an integer beyond 64 bits.
    Float(f64),
}

impl Number {
    /// The number as a double: the EPP decodes every number to one.
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Self::Unsigned(number) => number as f64,
            Self::Negative(number) => number as f64,
            Self::Float(number) => number,
        }
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

    fn array<A: SeqAccess<'a>>(self, array: A) -> Result<Self::Value, A::Error> {
        pass_array(array)?;
        Ok(self.other())
    }

    fn object<A: MapAccess<'a>>(self, object: A) -> Result<Self::Value, A::Error> {
        pass_object(object)?;
        Ok(self.other())
    }
}

/// Reads past the rest of an array; returns the number of its elements.
pub(crate) fn pass_array<'a, A: SeqAccess<'a>>(mut array: A) -> Result<u64, A::Error> {
    let mut count = 0;
    while array.next_element_seed(Read(Pass))?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Reads past the rest of an object.
pub(crate) fn pass_object<'a, A: MapAccess<'a>>(mut object: A) -> Result<(), A::Error> {
    while object.next_key_seed(Read(Pass))?.is_some() {
        object.next_value_seed(Read(Pass))?;
    }
    Ok(())
}

/// Reads past a value.
pub(crate) struct Pass;

impl Reader<'_> for Pass {
    type Value = ();

    fn other(self) {}
}

/// Reads the key of a member.
struct Key;

impl<'a> Reader<'a> for Key {
    type Value = Name<'a>;

    // A deserializer of JSON has only strings for keys.
    fn other(self) -> Name<'a> {
        Name::copy("")
    }

    fn string(self, value: Str<'a, '_>) -> Name<'a> {
        Name::new(value)
    }
}

/// The next member's key.
pub(crate) fn key<'a, A: MapAccess<'a>>(object: &mut A) -> Result<Option<Name<'a>>, A::Error> {
    object.next_key_seed(Read(Key))
}

/// The next member's key, read as any other string.
pub(crate) fn key_by<'a, A: MapAccess<'a>, R: Reader<'a>>(
    object: &mut A,
    reader: R,
) -> Result<Option<R::Value>, A::Error> {
    object.next_key_seed(Read(reader))
}

/// The value of the member whose key was just read.
pub(crate) fn value<'a, A: MapAccess<'a>, R: Reader<'a>>(
    object: &mut A,
    reader: R,
) -> Result<R::Value, A::Error> {
    object.next_value_seed(Read(reader))
}

/// The array's next element.
pub(crate) fn element<'a, A: SeqAccess<'a>, R: Reader<'a>>(
    array: &mut A,
    reader: R,
) -> Result<Option<R::Value>, A::Error> {
    array.next_element_seed(Read(reader))
}

/// A [`Reader`] as a visitor of serde.
pub(crate) struct Read<R>(pub(crate) R);

impl<'a, R: Reader<'a>> DeserializeSeed<'a> for Read<R> {
    type Value = R::Value;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<R::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a, R: Reader<'a>> Visitor<'a> for Read<R> {
    type Value = R::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<R::Value, E> {
        Ok(self.0.null())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<R::Value, E> {
        Ok(self.0.boolean(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<R::Value, E> {
        Ok(self.0.number(Number::Unsigned(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<R::Value, E> {
        // `serde_json` calls this for negative integers only, but a visitor has to accept any.
        Ok(self.0.number(u64::try_from(value).map_or(Number::Negative(value), Number::Unsigned)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<R::Value, E> {
        Ok(self.0.number(Number::Float(value)))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'a str) -> Result<R::Value, E> {
        Ok(self.0.string(Str { text: value, in_body: Some(value) }))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<R::Value, E> {
        // The deserializer has removed escapes from its copy of the text.
        Ok(self.0.string(Str { text: value, in_body: None }))
    }

    fn visit_seq<A: SeqAccess<'a>>(self, array: A) -> Result<R::Value, A::Error> {
        self.0.array(array)
    }

    fn visit_map<A: MapAccess<'a>>(self, object: A) -> Result<R::Value, A::Error> {
        self.0.object(object)
    }
}

/// The text of the value of the member whose key was just read. `levels` is the number of arrays and objects around the value.
pub(crate) fn raw_value<'a, A: MapAccess<'a>>(object: &mut A, levels: usize) -> Result<&'a str, A::Error> {
    let text = object.next_value::<&'a RawValue>()?.get();
    // `serde_json` takes more for a raw value than for a value that is read: any depth, and numbers and escapes out of range.
    if levels + read(text, Levels).map_err(A::Error::custom)? > MAX_NESTED {
        return Err(A::Error::custom("recursion limit exceeded"));
    }
    Ok(text)
}

/// The levels of arrays and objects in each other.
struct Levels;

impl<'a> Reader<'a> for Levels {
    type Value = usize;

    fn other(self) -> usize {
        0
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<usize, A::Error> {
        let mut inner = 0;
        while let Some(levels) = element(&mut array, Self)? {
            inner = inner.max(levels);
        }
        Ok(inner + 1)
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<usize, A::Error> {
        let mut inner = 0;
        while object.next_key_seed(Read(Pass))?.is_some() {
            inner = inner.max(value(&mut object, Self)?);
        }
        Ok(inner + 1)
    }
}
