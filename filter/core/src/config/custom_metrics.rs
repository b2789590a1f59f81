//! Whether the custom metrics that plugins read are published.

use hashbrown::HashSet;

use super::ConfigError;
use crate::plugin::registry::AnyPlugin;
use crate::profile::Instance;

/// Refuses a plugin that reads what no extractor publishes.
pub(super) fn check(plugins: &[Instance]) -> Result<(), ConfigError> {
    let extractors = plugins.iter().filter_map(|instance| match &instance.plugin {
        AnyPlugin::CoreMetricsExtractor(extractor) => Some(&extractor.engine_configs),
        _ => None,
    });
    let published = extractors.flatten().flat_map(|engine| &engine.custom_metrics);
    let published: HashSet<&str> = published.map(|metric| metric.attribute_key.as_str()).collect();
    for (index, instance) in plugins.iter().enumerate() {
        let read = instance.plugin.reads_custom_metric();
        if let Some(name) = read.filter(|name| !published.contains(name)) {
            let at = format!("plugins[{index}].parameters.attributeKey");
            let mut allowed: Vec<&str> = published.iter().copied().collect();
            allowed.sort_unstable();
            let problem = format!(
                "{name:?} is no attribute of core-metrics-extractor; allowed are WaitingQueueSize, \
                 RunningRequestsSize, KVCacheUsagePercent and its customMetrics ({})",
                if allowed.is_empty() { "none are declared".to_owned() } else { allowed.join(", ") }
            );
            return Err(ConfigError::new(at, problem));
        }
    }
    Ok(())
}
