//! References that the filter cannot check, because it does not receive the plugins that they name.

use std::collections::{BTreeSet, HashSet};

use endpoint_picker::plugin::{Need, NeedKind};
use endpoint_picker::pool::reading::{GPU_UTILIZATION, MODELS};
use endpoint_picker_wire::v1;

use super::agent_plugins::AgentPlugin;
use super::flow_control;
use super::paths::Paths;
use super::plugins::Declared;
use crate::manifests::fault::Faults;

/// The references of a configuration, besides the references in its profiles.
pub(super) struct References<'a> {
    pub(super) declared: &'a [Declared],
    /// Names of plugins.
    pub(super) parsers: &'a [String],
    /// A plugin's name.
    pub(super) saturation_detector: Option<&'a str>,
    pub(super) flow_control: &'a v1::FlowControl,
    /// Whether the agent reads the endpoints' GPU utilization.
    pub(super) has_gpu_utilization: bool,
    /// Whether the agent reads the servers' lists of models.
    pub(super) has_models: bool,
}

impl References<'_> {
    /// All faults, under paths of the document.
    pub(super) fn check(&self, paths: &Paths) -> Faults {
        let mut faults = Faults::default();
        self.check_names(&mut faults);
        self.check_roles(paths, &mut faults);
        self.check_attributes(&mut faults);
        faults
    }

    /// Names are unique among all plugins.
    fn check_names(&self, faults: &mut Faults) {
        let mut names = HashSet::new();
        for plugin in self.declared {
            if !names.insert(plugin.name.as_str())
                && let Some(path) = &plugin.path
            {
                let text = format!("{:?} is taken; plugin names are unique", plugin.name);
                faults.push(format!("{path}.name"), text);
            }
        }
    }

    /// No plugin of the agent is used where the filter needs one of its own.
    fn check_roles(&self, paths: &Paths, faults: &mut Faults) {
        let mut require = |name: &str, role: &str, at: String| {
            let plugin = self.declared.iter().find(|plugin| plugin.name == name);
            if let Some(plugin) = plugin.filter(|plugin| plugin.of_agent().is_some()) {
                faults.push(at, format!("{name:?} is a {}, not a {role}", plugin.type_name));
            }
        };
        for (index, parser) in self.parsers.iter().enumerate() {
            let at = paths.in_document(&format!("requestHandler.parsers[{index}].pluginRef"));
            require(parser, "parser", at);
        }
        if let Some(detector) = self.saturation_detector {
            let at = paths.in_document("flowControl.saturationDetector.pluginRef");
            require(detector, "saturation detector", at);
        }
        for (name, role, at) in flow_control::references(self.flow_control) {
            require(name, role, at);
        }
        for declared in self.declared {
            let Some((path, plugin)) = declared.path.as_ref().zip(declared.of_filter()) else { continue };
            for need in plugin.needs().iter().filter(|need| need.kind != NeedKind::CustomMetric) {
                require(need.name, need.kind.as_str(), path.parameter(need.parameter));
            }
        }
    }

    /// Custom metrics that plugins read are published by an extractor.
    fn check_attributes(&self, faults: &mut Faults) {
        let published: BTreeSet<&str> = self
            .declared
            .iter()
            .filter_map(|declared| match declared.of_agent()? {
                AgentPlugin::CoreMetricsExtractor(extractor) => Some(extractor.attributes()),
                AgentPlugin::DcgmDataSource(_)
                | AgentPlugin::DcgmExtractor(_)
                | AgentPlugin::DisaggHeadersHandler(_)
                | AgentPlugin::FileDiscovery(_)
                | AgentPlugin::MetricsDataSource(_)
                | AgentPlugin::ModelsDataExtractor(_)
                | AgentPlugin::ModelsDataSource(_)
                | AgentPlugin::WithoutEffect(_) => None,
            })
            .flatten()
            .collect();
        for declared in self.declared {
            let Some((path, plugin)) = declared.path.as_ref().zip(declared.of_filter()) else { continue };
            let needs = plugin.needs();
            let metrics = needs.iter().filter(|need| need.kind == NeedKind::CustomMetric);
            let is_of_source = |need: &&Need<'_>| [GPU_UTILIZATION, MODELS].contains(&need.name);
            let (of_sources, metrics): (Vec<&Need<'_>>, Vec<&Need<'_>>) = metrics.partition(is_of_source);
            for need in of_sources {
                let (is_read, source) = if need.name == MODELS {
                    (self.has_models, "a models-data-source with a models-data-extractor")
                } else {
                    (self.has_gpu_utilization, "a dcgm-data-source with a dcgm-extractor")
                };
                if !is_read {
                    let text =
                        format!("{:?} is published only if dataLayer.sources lists {source}", need.name);
                    faults.push(path.parameter(need.parameter), text);
                }
            }
            for need in metrics.iter().filter(|need| !published.contains(need.name)) {
                let custom = if published.is_empty() {
                    "none are declared".to_owned()
                } else {
                    published.iter().copied().collect::<Vec<_>>().join(", ")
                };
                let text = format!(
                    "{:?} is not an attribute of core-metrics-extractor; allowed are WaitingQueueSize, \
                     RunningRequestsSize, KVCacheUsagePercent and its customMetrics ({custom})",
                    need.name
                );
                faults.push(path.parameter(need.parameter), text);
            }
        }
    }
}
