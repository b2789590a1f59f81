//! From a configuration to a pipeline, by the reference's validation and defaulting rules.

use core::time::Duration;

use hashbrown::HashSet;

use super::{ConfigError, PickerConfig, PluginRef, ProfileConfig, custom_metrics};
use crate::body::{Parser, Parsers};
use crate::pipeline::Pipeline;
use crate::plugin::registry::AnyPlugin;
use crate::plugin::{
    ApproxPrefixCacheProducer, InflightLoadProducer, KvCacheUtilizationScorer, MaxScorePicker,
    PrefixCacheScorer, QueueScorer, Reference, SingleProfileHandler, UtilizationDetector,
};
use crate::profile::{Instance, Profile};

/// How long readings may be without news from the agent before they have no say.
const STALE_AFTER: Duration = Duration::from_secs(10);

impl Default for Pipeline {
    /// The reference's configuration when none is given: `queue-scorer` 2, `kv-cache-utilization-scorer` 2,
    /// `prefix-cache-scorer` 3, `max-score-picker`.
    fn default() -> Self {
        Self::compile(PickerConfig::default()).expect("the default configuration is valid")
    }
}

impl Pipeline {
    /// Makes a configuration ready to run, or says what is wrong with it.
    pub fn compile(config: PickerConfig) -> Result<Self, ConfigError> {
        let config = if config.plugins.is_empty() && config.profiles.is_empty() {
            with_defaults(config)
        } else {
            config
        };
        check_plugins(&config.plugins)?;
        let profiles =
            if config.profiles.is_empty() { vec![profile_of_all(&config.plugins)] } else { config.profiles };
        let mut plugins = Plugins(config.plugins);
        let handler = plugins.handler(&profiles)?;
        let parsers = plugins.parsers(&config.parsers)?;
        let profiles = profiles
            .iter()
            .enumerate()
            .map(|(index, profile)| {
                plugins.profile(profile, &format!("schedulingProfiles[{index}]"), &profiles[..index])
            })
            .collect::<Result<_, _>>()?;
        let detector = plugins.detector(config.saturation_detector.as_deref())?;
        plugins.add_missing_prefix_producers()?;
        plugins.check_references()?;
        custom_metrics::check(&plugins.0)?;
        let load_producer = plugins.load_producer()?;
        Ok(Self {
            keys: plugins.0.iter().map(Instance::key).collect(),
            plugins: plugins.0,
            profiles,
            handler,
            detector,
            load_producer,
            parsers,
            stale_after: STALE_AFTER,
            no_opinion_after: None,
        })
    }
}

/// What the reference runs when it is given no configuration.
fn with_defaults(config: PickerConfig) -> PickerConfig {
    let scorers: [(AnyPlugin, f64); 3] = [
        (QueueScorer {}.into(), 2.0),
        (KvCacheUtilizationScorer {}.into(), 2.0),
        (PrefixCacheScorer::default().into(), 3.0),
    ];
    let refs = scorers
        .iter()
        .map(|(plugin, weight)| PluginRef { name: plugin.type_name().to_owned(), weight: Some(*weight) })
        .collect();
    PickerConfig {
        plugins: scorers.into_iter().map(|(plugin, _)| Instance::unnamed(plugin)).collect(),
        profiles: vec![ProfileConfig { name: "default".to_owned(), plugins: refs }],
        ..config
    }
}

/// The profile when none is declared: every filter, scorer and picker, at weight 1. The reference takes them in random
/// order, this in the order of their declaration.
fn profile_of_all(plugins: &[Instance]) -> ProfileConfig {
    let has_part = |plugin: &AnyPlugin| {
        plugin.as_filter().is_some() || plugin.as_scorer().is_some() || plugin.as_picker().is_some()
    };
    let refs = plugins
        .iter()
        .filter(|instance| has_part(&instance.plugin))
        .map(|instance| PluginRef { name: instance.name.clone(), weight: None });
    ProfileConfig { name: "default".to_owned(), plugins: refs.collect() }
}

fn check_plugins(plugins: &[Instance]) -> Result<(), ConfigError> {
    let mut names = HashSet::new();
    for (index, Instance { name, plugin }) in plugins.iter().enumerate() {
        let at = format!("plugins[{index}]");
        if !names.insert(name.as_str()) {
            return Err(ConfigError::new(
                format!("{at}.name"),
                format!("{name:?} is taken; plugin names are unique"),
            ));
        }
        plugin.check().map_err(|problem| ConfigError::new(format!("{at}.parameters"), problem))?;
    }
    Ok(())
}

/// The instances so far, while defaults are added.
struct Plugins(Vec<Instance>);

impl Plugins {
    fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|instance| instance.name == name)
    }

    fn require(&self, name: &str, at: &str) -> Result<usize, ConfigError> {
        self.find(name).ok_or_else(|| {
            let declared: Vec<&str> = self.0.iter().map(|instance| instance.name.as_str()).collect();
            ConfigError::new(at, format!("no plugin is named {name:?}; declared are {}", declared.join(", ")))
        })
    }

    fn add(&mut self, plugin: impl Into<AnyPlugin>) -> usize {
        self.0.push(Instance::unnamed(plugin));
        self.0.len() - 1
    }

    fn find_or_add(&mut self, plugin: impl Into<AnyPlugin>) -> usize {
        let plugin = plugin.into();
        self.find(plugin.type_name()).unwrap_or_else(|| self.add(plugin))
    }

    fn handler(&mut self, profiles: &[ProfileConfig]) -> Result<usize, ConfigError> {
        let is_handler = |index: &usize| self.0[*index].plugin.as_profile_handler().is_some();
        let handlers: Vec<usize> = (0..self.0.len()).filter(is_handler).collect();
        let handler = match handlers[..] {
            [] if profiles.len() > 1 => {
                let problem = "no profile handler is declared; with several profiles one is needed";
                return Err(ConfigError::new("plugins", problem));
            }
            [] => self.add(SingleProfileHandler {}),
            [handler] => handler,
            [_, second, ..] => {
                let problem = "multiple profile handlers found; one is allowed";
                return Err(ConfigError::new(format!("plugins[{second}]"), problem));
            }
        };
        let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
        if let Some(plugin) = self.0[handler].plugin.as_profile_handler() {
            plugin
                .check_profiles(&names)
                .map_err(|problem| ConfigError::new("schedulingProfiles", problem))?;
        }
        Ok(handler)
    }

    fn profile(
        &mut self,
        profile: &ProfileConfig,
        at: &str,
        before: &[ProfileConfig],
    ) -> Result<Profile, ConfigError> {
        if profile.name.is_empty() {
            return Err(ConfigError::new(format!("{at}.name"), "a profile needs a name"));
        }
        if before.iter().any(|other| other.name == profile.name) {
            let problem = format!("{:?} is taken; profile names are unique", profile.name);
            return Err(ConfigError::new(format!("{at}.name"), problem));
        }
        let (mut filters, mut scorers, mut picker) = (Vec::new(), Vec::new(), None);
        for (index, PluginRef { name, weight }) in profile.plugins.iter().enumerate() {
            let at = format!("{at}.plugins[{index}]");
            let plugin_index = self.require(name, &format!("{at}.pluginRef"))?;
            let plugin = &self.0[plugin_index].plugin;
            if weight.is_some_and(|weight| !weight.is_finite()) {
                return Err(ConfigError::new(format!("{at}.weight"), "a weight is a finite number"));
            }
            if plugin.as_filter().is_some() {
                filters.push(plugin_index);
            }
            if plugin.as_scorer().is_some() {
                scorers.push((plugin_index, weight.unwrap_or(1.0)));
            }
            if plugin.as_picker().is_some() && picker.replace(plugin_index).is_some() {
                return Err(ConfigError::new(at, "the profile has a picker already; one is allowed"));
            }
        }
        let declared = self.0.iter().position(|instance| instance.plugin.as_picker().is_some());
        let picker = picker.or(declared).unwrap_or_else(|| self.add(MaxScorePicker::default()));
        Ok(Profile { name: profile.name.clone(), filters, scorers, picker })
    }

    fn detector(&mut self, name: Option<&str>) -> Result<usize, ConfigError> {
        let Some(name) = name else { return Ok(self.find_or_add(UtilizationDetector::default())) };
        let at = "flowControl.saturationDetector.pluginRef";
        let index = self.require(name, at)?;
        if self.0[index].plugin.as_saturation_detector().is_none() {
            let problem = format!(
                "{name:?} is a {}, which is no saturation detector",
                self.0[index].plugin.type_name()
            );
            return Err(ConfigError::new(at, problem));
        }
        Ok(index)
    }

    fn parsers(&self, names: &[String]) -> Result<Parsers, ConfigError> {
        let parser = |(index, name): (usize, &String)| -> Result<Parser, ConfigError> {
            let at = format!("requestHandler.parsers[{index}].pluginRef");
            let plugin = &self.0[self.require(name, &at)?].plugin;
            plugin.as_parser().ok_or_else(|| {
                ConfigError::new(at, format!("{name:?} is a {}, which is no parser", plugin.type_name()))
            })
        };
        Ok(Parsers::new(&names.iter().enumerate().map(parser).collect::<Result<Vec<_>, _>>()?))
    }

    /// A plugin that reads prefix matches gets the default producer if it is the one it names and none is declared.
    fn add_missing_prefix_producers(&mut self) -> Result<(), ConfigError> {
        let default = AnyPlugin::from(ApproxPrefixCacheProducer::default());
        for index in 0..self.0.len() {
            let Some(name) = self.0[index].plugin.reads_prefixes_of().map(str::to_owned) else { continue };
            match self.find(&name) {
                Some(at) if self.0[at].plugin.as_prefix_producer().is_some() => {}
                None if name == default.type_name() => {
                    self.add(default.clone());
                }
                _ => {
                    let problem = format!("{name:?} is no declared prefix producer");
                    return Err(ConfigError::new(format!("plugins[{index}].parameters"), problem));
                }
            }
        }
        Ok(())
    }

    fn check_references(&self) -> Result<(), ConfigError> {
        for (index, instance) in self.0.iter().enumerate() {
            for Reference { parameter, name, role } in instance.plugin.references() {
                let at = format!("plugins[{index}].parameters.{parameter}");
                let named = &self.0[self.require(name, &at)?].plugin;
                if !role.is_played_by(&**named) {
                    let problem =
                        format!("{name:?} is a {}, which is no {}", named.type_name(), role.as_str());
                    return Err(ConfigError::new(at, problem));
                }
            }
        }
        Ok(())
    }

    /// How the load of endpoints is counted. The reference counts once for each producer declared, here there is one count
    /// for all who read it.
    fn load_producer(&self) -> Result<InflightLoadProducer, ConfigError> {
        let mut declared = self.0.iter().enumerate().filter_map(|(index, instance)| {
            Some((index, instance.name.as_str(), instance.plugin.as_load_producer()?))
        });
        let producer = declared.next();
        if let Some((index, ..)) = declared.next() {
            let problem = "the load of endpoints has a producer already; one is allowed";
            return Err(ConfigError::new(format!("plugins[{index}]"), problem));
        }
        let name = producer.map_or("inflight-load-producer", |(_, name, _)| name);
        for (index, instance) in self.0.iter().enumerate() {
            if let Some(read) = instance.plugin.reads_load_of().filter(|&read| read != name) {
                let problem = format!("reads the load that {read:?} counts, but it is counted by {name:?}");
                let at = format!("plugins[{index}].parameters.inFlightLoadProducerName");
                return Err(ConfigError::new(at, problem));
            }
        }
        Ok(producer.map(|(.., producer)| producer.clone()).unwrap_or_default())
    }
}
