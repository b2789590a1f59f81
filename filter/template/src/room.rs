//! Room for what is made of a body: counted by the deserializer before a value is made, so that a body of
//! many small values takes no more memory than one of long texts.

use core::cell::Cell;
use core::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::{FUEL, Unrendered};

/// Bytes of a body for each value.
const BYTES_PER_VALUE: usize = 16;

/// Bytes of memory that a value stands for: four times its part of the body.
const VALUE_BYTES: usize = 4 * BYTES_PER_VALUE;

/// A smaller body has the room of one with this many bytes: definitions of tools have a value for each five
/// bytes.
const MIN_BYTES: usize = 1 << 20;

/// Maximum number of values. With all of them a template has no fuel left: it takes a step for each value
/// that it prints, or for each 64 bytes of text.
const MAX_VALUES: usize = FUEL as usize;

/// Values that an object counts as, and an array, and each member in addition to its key and its value.
const OBJECT: usize = 4;
const ARRAY: usize = 2;
const MEMBER: usize = 2;

/// Values that a text or a call counts as where it becomes an object for the template.
pub(crate) const MADE_OBJECT: usize = 6;

/// Maximum number of bytes of a text that a value holds itself.
const INLINE_TEXT: usize = 22;

/// The values that may still be made for a chat.
pub(crate) struct TemplateRoom {
    left: Cell<usize>,
    is_exceeded: Cell<bool>,
}

impl TemplateRoom {
    /// The room for the chat of this body.
    pub(crate) fn new(body: &[u8]) -> Self {
        let left = (body.len().max(MIN_BYTES) / BYTES_PER_VALUE).min(MAX_VALUES);
        Self { left: Cell::new(left), is_exceeded: Cell::new(false) }
    }

    /// Reads JSON, a body or a text within it, while there is room.
    pub(crate) fn read<T: DeserializeOwned>(&self, json: &[u8]) -> Result<T, Unrendered> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let read = T::deserialize(CountedDeserializer { inner: &mut deserializer, room: self });
        let read = read.and_then(|value| deserializer.end().map(|()| value));
        read.map_err(|error| {
            if self.is_exceeded.get() { Unrendered::Large } else { Unrendered::Body(error.to_string()) }
        })
    }

    /// Takes room for values.
    pub(crate) fn take(&self, values: usize) -> Result<(), Unrendered> {
        let Some(left) = self.left.get().checked_sub(values) else {
            self.is_exceeded.set(true);
            return Err(Unrendered::Large);
        };
        self.left.set(left);
        Ok(())
    }

    fn count<E: Error>(&self, values: usize) -> Result<(), E> {
        self.take(values).map_err(E::custom)
    }

    fn count_text<E: Error>(&self, text: &str) -> Result<(), E> {
        let of_bytes = if text.len() > INLINE_TEXT { text.len().div_ceil(VALUE_BYTES) } else { 0 };
        self.count(1 + of_bytes)
    }
}

/// A part of serde's data model that takes room for each value that passes it.
struct CountedDeserializer<'r, T> {
    inner: T,
    room: &'r TemplateRoom,
}

macro_rules! deserialize {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method(CountedDeserializer { inner: visitor, room: self.room })
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for CountedDeserializer<'_, D> {
    type Error = D::Error;

    deserialize!(
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf
        deserialize_option deserialize_unit deserialize_seq deserialize_map deserialize_identifier
    );

    /// Takes room for the fields, which an object in a list has whether the text has them or not.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.room.count(fields.len())?;
        self.inner.deserialize_struct(name, fields, CountedDeserializer { inner: visitor, room: self.room })
    }

    /// Counts nothing, because nothing is made.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, CountedDeserializer { inner: visitor, room: self.room })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_newtype_struct(name, CountedDeserializer { inner: visitor, room: self.room })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_tuple(length, CountedDeserializer { inner: visitor, room: self.room })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_tuple_struct(
            name,
            length,
            CountedDeserializer { inner: visitor, room: self.room },
        )
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_enum(name, variants, CountedDeserializer { inner: visitor, room: self.room })
    }
}

macro_rules! visit {
    ($($method:ident($type:ty))*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.room.count(1)?;
            self.inner.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for CountedDeserializer<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit!(visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64));

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.room.count(1)?;
        self.inner.visit_unit()
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(CountedDeserializer { inner: deserializer, room: self.room })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<V::Value, E> {
        self.room.count_text(text)?;
        self.inner.visit_str(text)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<V::Value, E> {
        self.room.count_text(text)?;
        self.inner.visit_borrowed_str(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<V::Value, A::Error> {
        self.room.count(ARRAY)?;
        self.inner.visit_seq(CountedDeserializer { inner: sequence, room: self.room })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.room.count(OBJECT)?;
        self.inner.visit_map(CountedDeserializer { inner: map, room: self.room })
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for CountedDeserializer<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.inner.next_element_seed(CountedDeserializer { inner: seed, room: self.room })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for CountedDeserializer<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.room.count(MEMBER)?;
        self.inner.next_key_seed(CountedDeserializer { inner: seed, room: self.room })
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.inner.next_value_seed(CountedDeserializer { inner: seed, room: self.room })
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for CountedDeserializer<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner.deserialize(CountedDeserializer { inner: deserializer, room: self.room })
    }
}
