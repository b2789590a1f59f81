//! Plugins that the agent reads and the filter never receives: those of the data layer, and those without effect.

use serde::Deserialize;

use super::extractor::CoreMetricsExtractor;
use super::source::MetricsDataSource;

/// A plugin for the agent, read from `{type: …, parameters: {…}}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", content = "parameters", rename_all = "kebab-case")]
pub(super) enum AgentPlugin {
    CoreMetricsExtractor(CoreMetricsExtractor),
    FileDiscovery(FileDiscovery),
    MetricsDataSource(MetricsDataSource),
    #[serde(alias = "prefill-header-handler")]
    DisaggHeadersHandler(DisaggHeadersHandler),
}

impl AgentPlugin {
    /// The types, as configurations write them.
    pub(super) const TYPES: [&str; 5] = [
        "core-metrics-extractor",
        "disagg-headers-handler",
        "file-discovery",
        "metrics-data-source",
        "prefill-header-handler",
    ];

    /// Refuses parameters that are out of range or do not fit together.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::CoreMetricsExtractor(extractor) => extractor.check(),
            Self::FileDiscovery(discovery) => discovery.check(),
            Self::MetricsDataSource(source) => source.check(),
            Self::DisaggHeadersHandler(_) => Ok(()),
        }
    }
}

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

/// `disagg-headers-handler` and its first name `prefill-header-handler`. In the EPP they write the headers that name the
/// endpoints of other stages where the profile handler does not. Here profile handlers always write them, so that these plugins
/// have no effect.
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
    use super::*;
    use serde_json::json;

    #[test]
    fn every_type_is_read_with_its_default_parameters() {
        for type_name in AgentPlugin::TYPES {
            let plugin = json!({"type": type_name, "parameters": {}});
            assert!(serde_json::from_value::<AgentPlugin>(plugin).is_ok(), "{type_name}");
        }
    }

    #[test]
    fn unknown_parameters_are_refused() {
        for type_name in AgentPlugin::TYPES {
            let plugin = json!({"type": type_name, "parameters": {"surely-not-a-parameter": 1}});
            assert!(serde_json::from_value::<AgentPlugin>(plugin).is_err(), "{type_name}");
        }
    }

    #[test]
    fn file_discovery_requires_a_path() {
        assert!(FileDiscovery::default().check().is_err());
    }
}
