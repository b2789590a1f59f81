//! From a configuration to a pipeline, by the EPP's validation and defaulting rules.

use core::time::Duration;
use std::sync::Arc;

use hashbrown::HashSet;

use super::plugins::{Declared, Plugins};
use super::{ConfigErrors, PickerConfig, ProfileConfig, ProfilePlugin};
use crate::input::providers::Providers;
use crate::input::slot::Slot;
use crate::pipeline::{Pipeline, Profile};
use crate::plugin::parameter::PREFIX_PRODUCER;
use crate::plugin::registry::AnyPlugin;
use crate::plugin::{
    Instance, KvCacheUtilizationScorer, MaxScorePicker, Picker, PrefixCacheScorer, ProfileHandler,
    QueueScorer, Reporter, SingleProfileHandler,
};

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
        let epp_rules = config.epp_rules;
        // Before v0.11 the threshold of the EPP's detector is what the configuration has, however rarely
        // servers are scraped.
        let scrape_interval = if epp_rules.is_v011() { config.scrape_interval } else { Duration::ZERO };
        let mut plugins = Plugins::new(config.plugins, scrape_interval);
        plugins.add_missing_producers();
        let configured =
            if config.profiles.is_empty() { vec![plugins.profile_of_all()] } else { config.profiles };
        let handler = plugins.handler(&configured);
        let parsers = plugins.parsers(&config.parsers);
        let mut profiles = plugins.profiles(&configured);
        let detector = plugins.detector(config.saturation_detector.as_deref());
        if let Some(detector) = detector.as_ref().filter(|_| epp_rules.is_v011()) {
            plugins.filter_by_saturation(&detector.name, &configured, &mut profiles);
        }
        let lag = detector.as_ref().map(|detector| detector.plugin.lag()).unwrap_or_default();
        let flow_control =
            config.flow_control.and_then(|config| plugins.flow_control(&config, lag, epp_rules));
        plugins.check_needs();
        let load_estimator = plugins.load_estimator().by(epp_rules);
        let (Some(handler), Some(detector), true) = (handler, detector, plugins.errors.is_empty()) else {
            return Err(ConfigErrors(plugins.errors));
        };
        let providers = Providers {
            load_prefixes: plugins.prefix_producer(&load_estimator.prefix_producer),
            load_estimator,
            agent_identities: plugins.in_role(|roles| roles.agent_identity.clone()).collect(),
            topologies: plugins.in_role(|roles| roles.topology.clone()).collect(),
            epp_rules,
        };
        let media = plugins.in_role(|roles| roles.media).next().unwrap_or_default();
        let admitters = plugins.slots(|roles| roles.admitter.clone());
        let latency_predictors = plugins.slots(|roles| roles.latency_predictor.clone());
        // The limits of a response count as they count for its admission.
        let admission = admitters.iter().find_map(|slot| slot.inputs.latency_predictor).unwrap_or(0);
        let admission = latency_predictors.get(usize::from(admission));
        let limits_are_for_whole_responses = admission.is_some_and(|slot| slot.plugin.predicts_whole());
        Ok(Self {
            handler,
            detector,
            profiles,
            parsers: parsers.by_segments(epp_rules.is_own()),
            providers,
            flow_control,
            deciders: plugins.slots(|roles| roles.decider.clone()),
            admitters,
            limits_are_for_whole_responses,
            prefix_producers: plugins.slots(|roles| roles.prefix_producer.clone()),
            session_producers: plugins.slots(|roles| roles.session_producer.clone()),
            media_caches: plugins.slots(|roles| roles.media_cache.clone()),
            default_prefixes: plugins.prefix_producer(PREFIX_PRODUCER),
            latency_predictors,
            cache_sources: plugins.slots(|roles| roles.cache_source.clone()),
            recorders: plugins.slots(|roles| roles.recorder.clone()),
            response_markers: plugins.in_role(|roles| roles.response_marker.clone()).collect(),
            reporters: plugins
                .slots(|roles| roles.reporter.clone())
                .into_iter()
                .map(Reporter::from)
                .collect(),
            media,
            propagates_priority: config.propagate_priority,
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

impl Plugins {
    /// The profile handler; an error unless there is one that can work with these profiles.
    pub(super) fn handler(&mut self, profiles: &[ProfileConfig]) -> Option<Slot<dyn ProfileHandler>> {
        let declared = self.all.iter().enumerate();
        let handlers: Vec<(usize, Slot<dyn ProfileHandler>)> = declared
            .filter_map(|(index, Declared { instance, roles })| {
                Some((index, self.slot(instance, roles.profile_handler.clone()?)))
            })
            .collect();
        let handler: Slot<dyn ProfileHandler> = match &handlers[..] {
            [] if profiles.len() > 1 => {
                self.refuse("plugins", "no profile handler is declared; with several profiles one is needed");
                return None;
            }
            [] => {
                let handler = SingleProfileHandler::default();
                self.add(handler.clone());
                self.slot(&Instance::unnamed(handler.clone()), Arc::new(handler))
            }
            [(_, handler)] => handler.clone(),
            [_, (second, _), ..] => {
                let problem = "multiple profile handlers found; one is allowed";
                self.refuse(format_args!("plugins[{second}]"), problem);
                return None;
            }
        };
        let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
        if let Err(problem) = handler.plugin.check_profiles(&names) {
            self.refuse("schedulingProfiles", problem);
        }
        Some(handler)
    }

    pub(super) fn profiles(&mut self, profiles: &[ProfileConfig]) -> Vec<Profile> {
        let mut names = HashSet::new();
        let mut compiled = Vec::with_capacity(profiles.len());
        for (index, profile) in profiles.iter().enumerate() {
            let at = format!("schedulingProfiles[{index}]");
            if profile.name.is_empty() {
                self.refuse(format_args!("{at}.name"), "a profile needs a name");
            } else if !names.insert(profile.name.as_str()) {
                let problem = format!("{:?} is taken; profile names are unique", profile.name);
                self.refuse(format_args!("{at}.name"), problem);
            }
            compiled.push(self.profile(profile, &at));
        }
        compiled
    }

    fn profile(&mut self, profile: &ProfileConfig, at: &str) -> Profile {
        let (mut filters, mut served_models) = (Vec::new(), Vec::new());
        let (mut scorers, mut picker) = (Vec::new(), None);
        for (index, ProfilePlugin { name, weight }) in profile.plugins.iter().enumerate() {
            let at = format!("{at}.plugins[{index}]");
            if weight.is_some_and(|weight| !weight.is_finite()) {
                self.refuse(format_args!("{at}.weight"), "a weight is a finite number");
            }
            self.require(name, format_args!("{at}.pluginRef"));
            let Some(Declared { instance, roles }) = self.find(name) else { continue };
            let by_models = roles.served_models.clone();
            served_models.extend(by_models.map(|filter| (filters.len(), self.slot(instance, filter))));
            filters.extend(roles.filter.clone().map(|filter| self.slot(instance, filter)));
            let scorer = roles.scorer.clone().map(|scorer| self.slot(instance, scorer));
            scorers.extend(scorer.map(|scorer| (scorer, weight.unwrap_or(1.0))));
            if let Some(own) = roles.picker.clone().map(|picker| self.slot(instance, picker))
                && picker.replace(own).is_some()
            {
                self.refuse(at, "the profile has a picker already; one is allowed");
            }
        }
        let picker = picker.unwrap_or_else(|| self.default_picker());
        Profile { name: profile.name.clone(), filters, served_models, scorers, picker }
    }

    /// Lets the saturation detector filter last in each profile that does not name it, as the EPP has done
    /// since v0.11 (#1741). A detector that is not a filter does not, and a profile with our own
    /// `expected-latency-scorer` gets none.
    pub(super) fn filter_by_saturation(
        &self,
        detector: &str,
        configured: &[ProfileConfig],
        profiles: &mut [Profile],
    ) {
        let Some(Declared { instance, roles }) = self.find(detector) else { return };
        let Some(filter) = &roles.filter else { return };
        let is_own = |plugin: &ProfilePlugin| {
            self.find(&plugin.name)
                .is_some_and(|it| matches!(it.instance.plugin, AnyPlugin::ExpectedLatencyScorer(_)))
        };
        for (config, profile) in configured.iter().zip(profiles) {
            let mut plugins = config.plugins.iter();
            if !plugins.any(|plugin| plugin.name == instance.name || is_own(plugin)) {
                profile.filters.push(self.slot(instance, Arc::clone(filter)));
            }
        }
    }

    /// The first picker declared, or else the EPP's default.
    fn default_picker(&mut self) -> Slot<dyn Picker> {
        if let Some(declared) = self.slots(|roles| roles.picker.clone()).into_iter().next() {
            return declared;
        }
        self.add(MaxScorePicker::default());
        let instance = Instance::unnamed(MaxScorePicker::default());
        self.slot(&instance, Arc::new(MaxScorePicker::default()))
    }
}
