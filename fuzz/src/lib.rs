//! What several fuzz targets need.

use core::time::Duration;

use endpoint_picker::body::Json;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::registry::AnyPlugin;
use endpoint_picker_wire::{picker_config_into_core, v1};
use serde::de::DeserializeSeed;
use serde_json::json;

/// The JSON reader that the filter brings along.
pub struct SerdeJson;

impl Json for SerdeJson {
    type Error = serde_json::Error;

    fn read<'a, S: DeserializeSeed<'a>>(text: &'a str, seed: S) -> Result<S::Value, Self::Error> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = seed.deserialize(&mut deserializer)?;
        deserializer.end()?;
        Ok(value)
    }
}

/// The pipeline that the filter makes of a policy.
pub fn pipeline(policy: &mut v1::Policy) -> Result<Pipeline, String> {
    let pipeline = match policy.picker_config.take() {
        Some(config) => {
            let config = picker_config_into_core(config, read_plugin).map_err(|error| error.to_string())?;
            Pipeline::compile(config).map_err(|errors| errors.to_string())?
        }
        None => Pipeline::default(),
    };
    Ok(pipeline.with_no_opinion_after(policy.no_opinion_after_ms.map(Duration::from_millis)))
}

fn read_plugin(r#type: &str, parameters: &str) -> Result<AnyPlugin, String> {
    let parameters: serde_json::Value =
        serde_json::from_str(parameters).map_err(|error| error.to_string())?;
    let plugin = json!({"type": r#type, "parameters": parameters});
    serde_json::from_value(plugin).map_err(|error| error.to_string())
}

/// The first line, and what comes after it.
pub fn first_line(input: &[u8]) -> Option<(&str, &[u8])> {
    let end = input.iter().position(|&byte| byte == b'\n')?;
    Some((core::str::from_utf8(&input[..end]).ok()?, &input[end + 1..]))
}
