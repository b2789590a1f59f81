//! From a configuration to a pipeline, by the EPP's validation and defaulting rules.

use core::time::Duration;

use super::plugins::Plugins;
use super::{ConfigErrors, PickerConfig, ProfileConfig, ProfilePlugin};
use crate::pipeline::Pipeline;
use crate::plugin::registry::AnyPlugin;
use crate::plugin::{Instance, KvCacheUtilizationScorer, PrefixCacheScorer, QueueScorer};

/// Age of the newest snapshot from which its readings are not used.
const STALE_AFTER: Duration = Duration::from_secs(10);

impl Default for Pipeline {
    /// The EPP's configuration when none is given: `queue-scorer` 2, `kv-cache-utilization-scorer` 2,
    /// `prefix-cache-scorer` 3, `max-score-picker`.
    #[expect(clippy::expect_used, reason = "a constant that tests compile")]
    fn default() -> Self {
        Self::compile(PickerConfig::default()).expect("the default configuration is valid")
    }
}

impl Pipeline {
    /// Compiles a configuration, or returns everything that is wrong with it.
    pub fn compile(config: PickerConfig) -> Result<Self, ConfigErrors> {
        let is_empty = config.plugins.is_empty() && config.profiles.is_empty();
        let config = if is_empty { with_defaults(config) } else { config };
        let mut plugins = Plugins::new(config.plugins);
        let profiles =
            if config.profiles.is_empty() { vec![plugins.profile_of_all()] } else { config.profiles };
        let handler = plugins.handler(&profiles);
        let parsers = plugins.parsers(&config.parsers);
        let profiles = plugins.profiles(&profiles);
        let detector = plugins.detector(config.saturation_detector.as_deref());
        let lag = detector.as_ref().map(|detector| detector.plugin.lag()).unwrap_or_default();
        let flow_control = config.flow_control.and_then(|config| plugins.flow_control(&config, lag));
        plugins.add_missing_prefix_producer();
        plugins.check_needs();
        let load_estimator = plugins.load_estimator();
        let (Some(handler), Some(detector), true) = (handler, detector, plugins.errors.is_empty()) else {
            return Err(ConfigErrors(plugins.errors));
        };
        let media = plugins.in_role(|roles| roles.media).next().unwrap_or_default();
        Ok(Self {
            handler,
            detector,
            profiles,
            parsers,
            load_estimator,
            flow_control,
            deciders: plugins.slots(|roles| roles.decider.clone()),
            admitters: plugins.slots(|roles| roles.admitter.clone()),
            prefix_producers: plugins.slots(|roles| roles.prefix_producer.clone()),
            session_producers: plugins.slots(|roles| roles.session_producer.clone()),
            recorders: plugins.slots(|roles| roles.recorder.clone()),
            response_markers: plugins.in_role(|roles| roles.response_marker.clone()).collect(),
            media,
            plugins: plugins.into_instances(),
            stale_after: STALE_AFTER,
            neutral_score_after: None,
        })
    }
}

/// The EPP's configuration when none is given.
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
