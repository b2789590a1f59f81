//! Policies as the agent sends them, made ready to run.

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::registry::AnyPlugin;
use endpoint_picker_wire::{picker_config_into_core, v1};

/// The pipeline of a configuration, or of the default when there is none.
pub(crate) fn pipeline(config: Option<v1::PickerConfig>) -> Result<Pipeline, String> {
    let Some(config) = config else { return Ok(Pipeline::default()) };
    let config = picker_config_into_core(config, read_plugin).map_err(|error| error.to_string())?;
    Pipeline::compile(config).map_err(|error| error.to_string())
}

fn read_plugin(r#type: &str, parameters: &str) -> Result<AnyPlugin, String> {
    let parameters: serde_json::Value =
        serde_json::from_str(parameters).map_err(|error| error.to_string())?;
    let plugin = serde_json::json!({"type": r#type, "parameters": parameters});
    serde_json::from_value(plugin).map_err(|error| error.to_string())
}
