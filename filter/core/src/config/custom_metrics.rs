//! Whether the custom metrics that plugins read are published.

use hashbrown::HashSet;

use super::plugins::Plugins;
use crate::plugin::registry::AnyPlugin;

impl Plugins {
    /// Refuses plugins that read what no extractor publishes.
    pub(super) fn check_custom_metrics(&mut self) {
        let extractors = self.instances.iter().filter_map(|instance| match &instance.plugin {
            AnyPlugin::CoreMetricsExtractor(extractor) => Some(&extractor.engine_configs),
            _ => None,
        });
        let published = extractors.flatten().flat_map(|engine| &engine.custom_metrics);
        let published: HashSet<String> = published.map(|metric| metric.attribute_key.clone()).collect();
        for index in 0..self.instances.len() {
            let read = self.instances[index].plugin.reads_custom_metric();
            let Some(name) = read.filter(|&name| !published.contains(name)) else { continue };
            let mut allowed: Vec<&str> = published.iter().map(String::as_str).collect();
            allowed.sort_unstable();
            let problem = format!(
                "{name:?} is no attribute of core-metrics-extractor; allowed are WaitingQueueSize, \
                 RunningRequestsSize, KVCacheUsagePercent and its customMetrics ({})",
                if allowed.is_empty() { "none are declared".to_owned() } else { allowed.join(", ") }
            );
            self.refuse(format_args!("plugins[{index}].parameters.attributeKey"), problem);
        }
    }
}
