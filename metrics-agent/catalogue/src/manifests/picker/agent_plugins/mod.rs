//! Plugins that the agent reads and the filter never receives: plugins of the data layer, and plugins without
//! effect.

pub(super) mod core_metrics_extractor;
pub(super) mod dcgm_data_source;
pub(super) mod metrics_data_source;
pub(super) mod models_data_source;
mod without_effect;

use core_metrics_extractor::CoreMetricsExtractor;
use dcgm_data_source::DcgmDataSource;
use metrics_data_source::MetricsDataSource;
use models_data_source::ModelsDataSource;
use serde::{Deserialize, Deserializer};
use without_effect::WithoutEffect;

/// A plugin for the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AgentPlugin {
    CoreMetricsExtractor(CoreMetricsExtractor),
    DcgmDataSource(DcgmDataSource),
    DcgmExtractor(DcgmExtractor),
    FileDiscovery(FileDiscovery),
    MetricsDataSource(MetricsDataSource),
    ModelsDataExtractor(ModelsDataExtractor),
    ModelsDataSource(ModelsDataSource),
    DisaggHeadersHandler(DisaggHeadersHandler),
    WithoutEffect(WithoutEffect),
}

impl AgentPlugin {
    /// The types with an effect, and the former types of profile handlers.
    const OWN_TYPES: [&'static str; 9] = [
        "core-metrics-extractor",
        "dcgm-data-source",
        "dcgm-extractor",
        "disagg-headers-handler",
        "file-discovery",
        "metrics-data-source",
        "models-data-extractor",
        "models-data-source",
        "prefill-header-handler",
    ];

    /// All types, as configurations write them.
    pub(super) fn types() -> impl Iterator<Item = &'static str> {
        Self::OWN_TYPES.into_iter().chain(WithoutEffect::TYPES)
    }

    /// Reads a plugin of the type with this name, one of [`types`](Self::types).
    pub(super) fn read<'de, D: Deserializer<'de>>(type_name: &str, parameters: D) -> Result<Self, D::Error> {
        match type_name {
            "core-metrics-extractor" => {
                CoreMetricsExtractor::deserialize(parameters).map(Self::CoreMetricsExtractor)
            }
            "dcgm-data-source" => DcgmDataSource::deserialize(parameters).map(Self::DcgmDataSource),
            "dcgm-extractor" => DcgmExtractor::deserialize(parameters).map(Self::DcgmExtractor),
            "disagg-headers-handler" | "prefill-header-handler" => {
                DisaggHeadersHandler::deserialize(parameters).map(Self::DisaggHeadersHandler)
            }
            "file-discovery" => FileDiscovery::deserialize(parameters).map(Self::FileDiscovery),
            "metrics-data-source" => MetricsDataSource::deserialize(parameters).map(Self::MetricsDataSource),
            "models-data-extractor" => {
                ModelsDataExtractor::deserialize(parameters).map(Self::ModelsDataExtractor)
            }
            "models-data-source" => ModelsDataSource::deserialize(parameters).map(Self::ModelsDataSource),
            _ => WithoutEffect::read(type_name, parameters).map(Self::WithoutEffect),
        }
    }

    /// Refuses parameters that are out of range or do not fit together.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::CoreMetricsExtractor(extractor) => extractor.check(),
            Self::FileDiscovery(discovery) => discovery.check(),
            Self::MetricsDataSource(source) => source.check(),
            Self::DcgmDataSource(source) => source.check(),
            Self::ModelsDataSource(source) => source.check(),
            Self::DcgmExtractor(_) | Self::DisaggHeadersHandler(_) | Self::ModelsDataExtractor(_) => Ok(()),
            Self::WithoutEffect(plugin) => plugin.check(),
        }
    }
}

/// `dcgm-extractor`: publishes the GPU utilization of endpoints. It has no parameters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DcgmExtractor {}

/// `models-data-extractor`: publishes the models that servers list. It has no parameters.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelsDataExtractor {}

/// `file-discovery`: endpoints from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FileDiscovery {
    /// The file; required.
    pub(super) path: String,
    /// Accepted, without effect: the agent always watches the file.
    #[serde(rename = "watchFile")]
    _watch_file: bool,
}

impl FileDiscovery {
    fn check(&self) -> Result<(), String> {
        if self.path.is_empty() {
            return Err("path is empty; it must name the endpoints' file".to_owned());
        }
        Ok(())
    }
}

/// `disagg-headers-handler` and its first name `prefill-header-handler`. In the EPP they write the headers
/// that name the endpoints of other stages where the profile handler does not. Here profile handlers always
/// write them, so that these plugins have no effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DisaggHeadersHandler {
    #[serde(rename = "prefillProfile")]
    _prefill_profile: String,
    #[serde(rename = "encodeProfile")]
    _encode_profile: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_type_is_read_with_its_default_parameters() {
        for type_name in AgentPlugin::types() {
            let parameters = json!({});
            assert!(AgentPlugin::read(type_name, parameters).is_ok(), "{type_name}");
        }
    }

    #[test]
    fn unknown_parameters_are_refused() {
        for type_name in AgentPlugin::types() {
            let parameters = json!({"surely-not-a-parameter": 1});
            assert!(AgentPlugin::read(type_name, parameters).is_err(), "{type_name}");
        }
    }

    #[test]
    fn file_discovery_requires_a_path() {
        assert!(FileDiscovery::default().check().is_err());
    }
}
