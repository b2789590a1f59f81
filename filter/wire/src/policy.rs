//! The picker's configuration, between the messages and the rules' own types.

use endpoint_picker::config::{ConfigError, PickerConfig, PluginRef, ProfileConfig};
use endpoint_picker::plugin::registry::AnyPlugin;
use endpoint_picker::profile::Instance;

use crate::v1;

/// Reads a configuration. `read_plugin` makes a plugin from its type and its parameters, a JSON object, or says what is
/// wrong with them; reading JSON is the caller's.
pub fn picker_config_into_core(
    config: v1::PickerConfig,
    read_plugin: impl Fn(&str, &str) -> Result<AnyPlugin, String>,
) -> Result<PickerConfig, ConfigError> {
    let plugins = config.plugins.into_iter().enumerate().map(|(index, plugin)| {
        let read = read_plugin(&plugin.r#type, &plugin.parameters);
        let read = read.map_err(|problem| ConfigError { at: format!("plugins[{index}]"), problem })?;
        Ok(Instance { name: plugin.name, plugin: read })
    });
    let plugins = plugins.collect::<Result<_, _>>()?;
    let profiles = config.profiles.into_iter().map(|profile| ProfileConfig {
        name: profile.name,
        plugins: profile
            .plugins
            .into_iter()
            .map(|plugin| PluginRef { name: plugin.name, weight: plugin.weight })
            .collect(),
    });
    Ok(PickerConfig {
        plugins,
        profiles: profiles.collect(),
        parsers: config.parsers,
        saturation_detector: config.saturation_detector,
    })
}
