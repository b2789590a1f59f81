//! From a configuration to a pipeline, by the EPP's validation and defaulting rules.

use core::time::Duration;

use super::plugins::Plugins;
use super::{ConfigErrors, PickerConfig, ProfileConfig, ProfilePlugin};
use crate::pipeline::Pipeline;
use crate::plugin::Instance;
use crate::plugin::registry::AnyPlugin;
use crate::plugin::{KvCacheUtilizationScorer, PrefixCacheScorer, QueueScorer};

/// How long readings may be without news from the agent before they have no say.
const STALE_AFTER: Duration = Duration::from_secs(10);

impl Default for Pipeline {
    /// The EPP's configuration when none is given: `queue-scorer` 2, `kv-cache-utilization-scorer` 2,
    /// `prefix-cache-scorer` 3, `max-score-picker`.
    fn default() -> Self {
        Self::compile(PickerConfig::default()).expect("the default configuration is valid")
    }
}

impl Pipeline {
    /// Makes a configuration ready to run, or says all that is wrong with it.
    pub fn compile(config: PickerConfig) -> Result<Self, ConfigErrors> {
        let config = if config.plugins.is_empty() && config.profiles.is_empty() {
            with_defaults(config)
        } else {
            config
        };
        let profiles =
            if config.profiles.is_empty() { vec![profile_of_all(&config.plugins)] } else { config.profiles };
        let mut plugins = Plugins::new(config.plugins);
        let handler = plugins.handler(&profiles);
        let parsers = plugins.parsers(&config.parsers);
        let profiles = plugins.profiles(&profiles);
        let detector = plugins.detector(config.saturation_detector.as_deref());
        plugins.add_missing_prefix_producers();
        plugins.check_references();
        let load_producer = plugins.load_producer();
        let plugins = plugins.finish()?;
        Ok(Self {
            keys: plugins.iter().map(Instance::key).collect(),
            foreign: Vec::new(),
            plugins,
            profiles,
            handler,
            detector,
            load_producer,
            parsers,
            stale_after: STALE_AFTER,
            neutral_score_after: None,
        })
    }
}

/// What the EPP runs when it is given no configuration.
fn with_defaults(config: PickerConfig) -> PickerConfig {
    let scorers: [(AnyPlugin, f64); 3] = [
        (QueueScorer {}.into(), 2.0),
        (KvCacheUtilizationScorer {}.into(), 2.0),
        (PrefixCacheScorer::default().into(), 3.0),
    ];
    let refs = scorers
        .iter()
        .map(|(plugin, weight)| ProfilePlugin { name: plugin.type_name().to_owned(), weight: Some(*weight) })
        .collect();
    PickerConfig {
        plugins: scorers.into_iter().map(|(plugin, _)| Instance::unnamed(plugin)).collect(),
        profiles: vec![ProfileConfig { name: "default".to_owned(), plugins: refs }],
        ..config
    }
}

/// The profile when none is declared: every filter, scorer and picker, at weight 1. The EPP takes them in random
/// order, this in the order of their declaration.
fn profile_of_all(plugins: &[Instance]) -> ProfileConfig {
    let has_part = |plugin: &AnyPlugin| {
        plugin.as_filter().is_some() || plugin.as_scorer().is_some() || plugin.as_picker().is_some()
    };
    let refs = plugins
        .iter()
        .filter(|instance| has_part(&instance.plugin))
        .map(|instance| ProfilePlugin { name: instance.name.clone(), weight: None });
    ProfileConfig { name: "default".to_owned(), plugins: refs.collect() }
}
