//! JSON for the rules, which read none themselves: the one place where they meet `serde_json`.

use endpoint_picker::body::Json;
use endpoint_picker::plugin::registry::AnyPlugin;
use serde::de::DeserializeSeed;
use serde_json::{Error, Value, json};

/// `serde_json`, which refuses nesting deeper than 127.
#[derive(Clone, Copy, Debug)]
pub struct SerdeJson;

impl Json for SerdeJson {
    type Error = Error;

    fn read<'a, S: DeserializeSeed<'a>>(text: &'a str, seed: S) -> Result<S::Value, Error> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = seed.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }
}

/// Reads a plugin from its type and the text of its parameters, a JSON object.
pub fn read_plugin(r#type: &str, parameters: &str) -> Result<AnyPlugin, Error> {
    let parameters: Value = serde_json::from_str(parameters)?;
    serde_json::from_value(json!({"type": r#type, "parameters": parameters}))
}
