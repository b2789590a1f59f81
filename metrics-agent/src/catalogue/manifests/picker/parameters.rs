//! A plugin's parameters as serde reads them: objects are objects, and a null is a field that is not there.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value as Json};

/// Parameters of a document.
///
/// A known parameter that is null is left out, as for Kubernetes; an unknown one is kept, so that its name is refused. Where an
/// object is expected a list is refused, from which serde would take the fields in their order.
#[derive(Clone, Debug)]
pub(super) struct Parameters(pub(super) Json);

impl<'de> Deserializer<'de> for Parameters {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Json::Object(fields) => {
                let fields = fields.into_iter().map(|(name, value)| (name, Self(value)));
                visitor.visit_map(MapDeserializer::new(fields))
            }
            Json::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Self))),
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Json::Object(mut fields) => {
                fields.retain(|name, value| !(value.is_null() && known.contains(&name.as_str())));
                Self(Json::Object(fields)).deserialize_any(visitor)
            }
            Json::Array(_) => Err(Error::custom("is a list; allowed is an object")),
            plain => plain.deserialize_any(visitor),
        }
    }

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

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

impl IntoDeserializer<'_, Error> for Parameters {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
