//! Parameters of plugins as a deserializer that makes small code.
//!
//! Parameters are read when a policy arrives, into about fifty structs. Through the deserializer of
//! `serde_json`, which accepts lists for structs too and is inlined into each of them, their reading would be
//! a tenth of the filter's module.

use serde::de::value::StringDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

/// A value in the parameters.
///
/// A struct is read from an object only, not from a list of its fields in their order, and an enum from the
/// name of a variant. A field that is null counts as absent if the struct has it, as in Kubernetes; otherwise
/// it is refused like any unknown field.
#[derive(Clone, Debug)]
pub struct Parameters(pub Value);

impl<'de> Deserializer<'de> for Parameters {
    type Error = Error;

    #[inline(never)]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => number.deserialize_any(visitor),
            Value::String(text) => visitor.visit_string(text),
            Value::Array(items) => visitor.visit_seq(ParameterItems(items.into_iter())),
            Value::Object(fields) => visitor.visit_map(ParameterFields::new(fields)),
        }
    }

    #[inline(never)]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(fields) => visitor.visit_map(ParameterFields::new(without_nulls(fields, known))),
            other => Err(mismatch(&other, "an object")),
        }
    }

    #[inline(never)]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::String(variant) => visitor.visit_enum(StringDeserializer::new(variant)),
            other => Err(mismatch(&other, "a string")),
        }
    }

    #[inline(never)]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier
    }
}

/// The fields without those known ones that are null.
fn without_nulls(mut fields: Map<String, Value>, known: &[&str]) -> Map<String, Value> {
    fields.retain(|name, value| !(value.is_null() && known.contains(&name.as_str())));
    fields
}

fn mismatch(value: &Value, allowed: &str) -> Error {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Error::custom(format_args!("is {kind}; allowed is {allowed}"))
}

struct ParameterItems(std::vec::IntoIter<Value>);

impl<'de> SeqAccess<'de> for ParameterItems {
    type Error = Error;

    #[inline(never)]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|value| seed.deserialize(Parameters(value))).transpose()
    }
}

struct ParameterFields {
    fields: serde_json::map::IntoIter,
    /// The value of the field whose name was just read.
    value: Value,
}

impl ParameterFields {
    fn new(fields: Map<String, Value>) -> Self {
        Self { fields: fields.into_iter(), value: Value::Null }
    }
}

impl<'de> MapAccess<'de> for ParameterFields {
    type Error = Error;

    #[inline(never)]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.fields.next() else { return Ok(None) };
        self.value = value;
        seed.deserialize(FieldName(name)).map(Some)
    }

    #[inline(never)]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Parameters(self.value.take()))
    }
}

/// The name of a field: always a string, so that no reader of another type is compiled for it.
struct FieldName(String);

impl<'de> Deserializer<'de> for FieldName {
    type Error = Error;

    #[inline(never)]
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}
