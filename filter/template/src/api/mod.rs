//! The APIs by which chats come: a file for each. Bodies are read as vLLM turns them into chats.

pub(crate) mod completions;
pub(crate) mod messages;
pub(crate) mod responses;

use core::fmt;

use minijinja::Value;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor};

use crate::Unrendered;

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

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Unrendered> {
    serde_json::from_slice(body).map_err(|error| Unrendered::Body(error.to_string()))
}

/// An object, its members in their order.
#[derive(Default)]
struct Members(Vec<(String, Value)>);

impl Members {
    /// The members as variables of a template.
    fn variables(self) -> Result<Vec<(String, Value)>, Unrendered> {
        if self.0.iter().any(|(name, _)| name == "chat_template") {
            return Err(Unrendered::Unsupported("chat_template"));
        }
        Ok(self.0)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}
