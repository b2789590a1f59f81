//! The plugins of a configuration, while defaults are added and all that is wrong is gathered.

use core::fmt::Display;

use hashbrown::HashSet;

use super::{ConfigError, ConfigErrors, ProfileConfig, ProfilePlugin};
use crate::body::{Parser, Parsers};
use crate::pipeline::Profile;
use crate::plugin::Instance;
use crate::plugin::registry::AnyPlugin;
use crate::plugin::{
    ApproxPrefixCacheProducer, InflightLoadProducer, MaxScorePicker, SingleProfileHandler,
    UtilizationDetector,
};

/// The instances so far, and what is wrong. Where something is, a stand-in is returned, so that the rest can be looked at.
pub(super) struct Plugins {
    pub(super) instances: Vec<Instance>,
    /// How many of them the configuration has; the rest are defaults.
    declared: usize,
    errors: Vec<ConfigError>,
}

/// In place of a plugin that is not there.
const NOBODY: usize = usize::MAX;

impl Plugins {
    /// Of the plugins as declared: names are unique, and parameters fit.
    pub(super) fn new(instances: Vec<Instance>) -> Self {
        let mut errors = Vec::new();
        let mut names = HashSet::new();
        for (index, Instance { name, plugin }) in instances.iter().enumerate() {
            let at = format!("plugins[{index}]");
            if !names.insert(name.as_str()) {
                let problem = format!("{name:?} is taken; plugin names are unique");
                errors.push(ConfigError::new(format!("{at}.name"), problem));
            }
            if let Err(problem) = plugin.check() {
                errors.push(ConfigError::new(format!("{at}.parameters"), problem));
            }
        }
        drop(names);
        Self { declared: instances.len(), instances, errors }
    }

    /// The plugins, if nothing is wrong.
    pub(super) fn finish(self) -> Result<Vec<Instance>, ConfigErrors> {
        if self.errors.is_empty() { Ok(self.instances) } else { Err(ConfigErrors(self.errors)) }
    }

    pub(super) fn refuse(&mut self, at: impl Display, problem: impl Into<String>) {
        self.errors.push(ConfigError::new(at.to_string(), problem));
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.instances.iter().position(|instance| instance.name == name)
    }

    pub(super) fn require(&mut self, name: &str, at: impl Display) -> Option<usize> {
        let found = self.find(name);
        if found.is_none() {
            let declared: Vec<&str> =
                self.instances[..self.declared].iter().map(|instance| instance.name.as_str()).collect();
            let problem = format!("no plugin is named {name:?}; declared are {}", declared.join(", "));
            self.refuse(at, problem);
        }
        found
    }

    fn add(&mut self, plugin: impl Into<AnyPlugin>) -> usize {
        self.instances.push(Instance::unnamed(plugin));
        self.instances.len() - 1
    }

    fn find_or_add(&mut self, plugin: impl Into<AnyPlugin>) -> usize {
        let plugin = plugin.into();
        self.find(plugin.type_name()).unwrap_or_else(|| self.add(plugin))
    }

    pub(super) fn handler(&mut self, profiles: &[ProfileConfig]) -> usize {
        let is_handler = |index: &usize| self.instances[*index].plugin.as_profile_handler().is_some();
        let handlers: Vec<usize> = (0..self.instances.len()).filter(is_handler).collect();
        let handler = match handlers[..] {
            [] if profiles.len() > 1 => {
                self.refuse("plugins", "no profile handler is declared; with several profiles one is needed");
                return NOBODY;
            }
            [] => self.add(SingleProfileHandler {}),
            [handler] => handler,
            [_, second, ..] => {
                self.refuse(
                    format_args!("plugins[{second}]"),
                    "multiple profile handlers found; one is allowed",
                );
                return NOBODY;
            }
        };
        let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
        let plugin = self.instances[handler].plugin.as_profile_handler();
        if let Some(Err(problem)) = plugin.map(|plugin| plugin.check_profiles(&names)) {
            self.refuse("schedulingProfiles", problem);
        }
        handler
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
        let (mut filters, mut scorers, mut picker) = (Vec::new(), Vec::new(), None);
        for (index, ProfilePlugin { name, weight }) in profile.plugins.iter().enumerate() {
            let at = format!("{at}.plugins[{index}]");
            if weight.is_some_and(|weight| !weight.is_finite()) {
                self.refuse(format_args!("{at}.weight"), "a weight is a finite number");
            }
            let Some(index) = self.require(name, format_args!("{at}.pluginRef")) else { continue };
            let plugin = &self.instances[index].plugin;
            if plugin.as_filter().is_some() {
                filters.push(index);
            }
            if plugin.as_scorer().is_some() {
                scorers.push((index, weight.unwrap_or(1.0)));
            }
            if plugin.as_picker().is_some() && picker.replace(index).is_some() {
                self.refuse(at, "the profile has a picker already; one is allowed");
            }
        }
        let declared = self.instances.iter().position(|instance| instance.plugin.as_picker().is_some());
        let picker = picker.or(declared).unwrap_or_else(|| self.add(MaxScorePicker::default()));
        Profile { name: profile.name.clone(), filters, scorers, picker }
    }

    pub(super) fn detector(&mut self, name: Option<&str>) -> usize {
        let Some(name) = name else { return self.find_or_add(UtilizationDetector::default()) };
        let at = "flowControl.saturationDetector.pluginRef";
        let Some(index) = self.require(name, at) else { return NOBODY };
        let plugin = &self.instances[index].plugin;
        if plugin.as_saturation_detector().is_none() {
            let problem = format!("{name:?} is a {}, which is no saturation detector", plugin.type_name());
            self.refuse(at, problem);
        }
        index
    }

    pub(super) fn parsers(&mut self, names: &[String]) -> Parsers {
        let mut parsers: Vec<Parser> = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            let at = format!("requestHandler.parsers[{index}].pluginRef");
            let Some(index) = self.require(name, &at) else { continue };
            let plugin = &self.instances[index].plugin;
            if let Some(parser) = plugin.as_parser() {
                parsers.push(parser);
            } else {
                let problem = format!("{name:?} is a {}, which is no parser", plugin.type_name());
                self.refuse(at, problem);
            }
        }
        Parsers::new(&parsers)
    }

    /// A plugin that reads prefix matches gets the default producer if it is the one it names and none is declared.
    pub(super) fn add_missing_prefix_producers(&mut self) {
        let default = AnyPlugin::from(ApproxPrefixCacheProducer::default());
        for index in 0..self.instances.len() {
            let Some(name) = self.instances[index].plugin.reads_prefixes_of().map(str::to_owned) else {
                continue;
            };
            match self.find(&name) {
                Some(at) if self.instances[at].plugin.as_prefix_producer().is_some() => {}
                None if name == default.type_name() => {
                    self.add(default.clone());
                }
                _ => {
                    let problem = format!("{name:?} is no declared prefix producer");
                    self.refuse(format_args!("plugins[{index}].parameters"), problem);
                }
            }
        }
    }

    /// How the load of endpoints is counted. The EPP counts once for each producer declared, here there is one count
    /// for all who read it.
    pub(super) fn load_producer(&mut self) -> InflightLoadProducer {
        let mut found: Option<(String, InflightLoadProducer)> = None;
        for index in 0..self.instances.len() {
            let Instance { name, plugin } = &self.instances[index];
            match plugin.as_load_producer() {
                Some(producer) if found.is_none() => found = Some((name.clone(), producer.clone())),
                Some(_) => {
                    let problem = "the load of endpoints has a producer already; one is allowed";
                    self.refuse(format_args!("plugins[{index}]"), problem);
                }
                None => {}
            }
        }
        let (name, producer) =
            found.unwrap_or_else(|| ("inflight-load-producer".to_owned(), InflightLoadProducer::default()));
        for index in 0..self.instances.len() {
            let read = self.instances[index].plugin.reads_load_of();
            if let Some(read) = read.filter(|&read| read != name) {
                let problem = format!("reads the load that {read:?} counts, but it is counted by {name:?}");
                let at = format!("plugins[{index}].parameters.inFlightLoadProducerName");
                self.refuse(at, problem);
            }
        }
        producer
    }
}
