//! The APIs by which chats come: a file for each. Bodies are read as vLLM turns them into chats.

pub(crate) mod completions;
pub(crate) mod messages;
pub(crate) mod responses;

use core::fmt;
use core::marker::PhantomData;

use minijinja::Value;
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use crate::Unrendered;
use crate::chat::{Content, Part};

/// An API whose requests are chats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatApi {
    /// OpenAI's chat completions.
    Completions,
    /// Anthropic's messages.
    Messages,
    /// OpenAI's responses.
    Responses,
}

/// An object, its members in their order.
#[derive(Default)]
struct ObjectMembers(Vec<(String, Value)>);

impl ObjectMembers {
    /// The members as variables of a template.
    fn variables(self) -> Result<Vec<(String, Value)>, Unrendered> {
        if self.0.iter().any(|(name, _)| name == "chat_template") {
            return Err(Unrendered::Unsupported("chat_template"));
        }
        Ok(self.0)
    }
}

impl<'de> Deserialize<'de> for ObjectMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = ObjectMembers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ObjectMembers, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(ObjectMembers(members))
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

/// A text, or a list.
enum TextOrList<T> {
    Text(String),
    List(Vec<T>),
}

// Not derived: an untagged enum copies everything first.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOrList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrArray<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for StringOrArray<T> {
            type Value = TextOrList<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an array")
            }

            fn visit_str<E>(self, text: &str) -> Result<TextOrList<T>, E> {
                Ok(TextOrList::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<TextOrList<T>, E> {
                Ok(TextOrList::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, sequence: A) -> Result<TextOrList<T>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(sequence)).map(TextOrList::List)
            }
        }
        deserializer.deserialize_any(StringOrArray(PhantomData))
    }
}

impl<T: Into<Part>> From<TextOrList<T>> for Content {
    fn from(content: TextOrList<T>) -> Self {
        match content {
            TextOrList::Text(text) => Self::Text(text),
            TextOrList::List(parts) => Self::Parts(parts.into_iter().map(Into::into).collect()),
        }
    }
}
