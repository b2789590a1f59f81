//! The plugins of a configuration, while defaults are added and errors are collected.

use core::fmt::Display;
use core::time::Duration;
use std::sync::Arc;

use hashbrown::HashSet;

use super::{ConfigError, ProfileConfig, ProfilePlugin};
use crate::input::load_estimator::LoadEstimator;
use crate::input::slot::{Inputs, Slot};
use crate::plugin::parameter::{LOAD_PRODUCER, PREFIX_PRODUCER};
use crate::plugin::registry::AnyPlugin;
use crate::plugin::{
    ApproxPrefixCacheProducer, InflightLoadProducer, Instance, MmEmbeddingsCacheProducer, Need, NeedKind,
    PredictedLatencyProducer, PrefixCacheScorer, Roles, SaturationDetector, UtilizationDetector,
};
use crate::request::body::{Parser, Parsers};

/// The plugins so far, and the errors. After an error a method returns a stand-in, so that the rest is
/// checked too.
pub(super) struct Plugins {
    pub(super) all: Vec<Declared>,
    /// How many of them the configuration has; the rest are defaults.
    declared: usize,
    /// Time between two scrapes that detectors allow for; zero: none.
    scrape_interval: Duration,
    pub(super) errors: Vec<ConfigError>,
}

/// An instance with its roles.
pub(super) struct Declared {
    pub(super) instance: Instance,
    pub(super) roles: Roles,
}

impl From<Instance> for Declared {
    fn from(instance: Instance) -> Self {
        Self { roles: instance.plugin.roles(), instance }
    }
}

impl Plugins {
    /// Checks that names are unique and that parameters are allowed.
    pub(super) fn new(instances: Vec<Instance>, scrape_interval: Duration) -> Self {
        let declared = instances.len();
        let mut plugins = Self { declared, scrape_interval, all: Vec::new(), errors: Vec::new() };
        let mut names = HashSet::new();
        for (index, Instance { name, plugin }) in instances.iter().enumerate() {
            if !names.insert(name.as_str()) {
                let problem = format!("{name:?} is taken; plugin names are unique");
                plugins.refuse(format_args!("plugins[{index}].name"), problem);
            }
            if let Err(problem) = plugin.check() {
                plugins.refuse(format_args!("plugins[{index}].parameters"), problem);
            }
        }
        drop(names);
        let instances = instances.into_iter().map(|Instance { name, plugin }| match plugin {
            AnyPlugin::UtilizationDetector(it) => {
                Instance { name, plugin: it.at_interval(scrape_interval).into() }
            }
            plugin => Instance { name, plugin },
        });
        plugins.all = instances.map(Declared::from).collect();
        plugins
    }

    pub(super) fn into_instances(self) -> Vec<Instance> {
        self.all.into_iter().map(|declared| declared.instance).collect()
    }

    pub(super) fn refuse(&mut self, at: impl Display, problem: impl Into<String>) {
        self.errors.push(ConfigError { at: at.to_string(), problem: problem.into() });
    }

    /// The plugin of this name.
    pub(super) fn find(&self, name: &str) -> Option<&Declared> {
        self.all.iter().find(|declared| declared.instance.name == name)
    }

    /// The plugin of this name; an error at `at` if there is none.
    pub(super) fn require(&mut self, name: &str, at: impl Display) -> Option<&Declared> {
        if self.find(name).is_none() {
            let declared = self.all.iter().take(self.declared);
            let names: Vec<&str> = declared.map(|declared| declared.instance.name.as_str()).collect();
            let problem = format!("no plugin is named {name:?}; declared are {}", names.join(", "));
            self.refuse(at, problem);
        }
        self.find(name)
    }

    /// Adds a plugin under its type's name.
    pub(super) fn add(&mut self, plugin: impl Into<AnyPlugin>) {
        self.all.push(Instance::unnamed(plugin).into());
    }

    /// Every plugin in this role.
    pub(super) fn in_role<'a, T>(
        &'a self,
        role: impl Fn(&Roles) -> Option<T> + 'a,
    ) -> impl Iterator<Item = T> + 'a {
        self.all.iter().filter_map(move |declared| role(&declared.roles))
    }

    /// A slot for every plugin in this role.
    pub(super) fn slots<T: ?Sized>(&self, role: impl Fn(&Roles) -> Option<Arc<T>>) -> Vec<Slot<T>> {
        let plugins = self.all.iter();
        plugins.filter_map(|declared| Some(self.slot(&declared.instance, role(&declared.roles)?))).collect()
    }

    /// An instance in one of its roles. The producers that it reads were declared or added before.
    pub(super) fn slot<T: ?Sized>(&self, instance: &Instance, plugin: Arc<T>) -> Slot<T> {
        let inputs = self.inputs(&instance.plugin);
        Slot { name: instance.name.as_str().into(), key: instance.key(), inputs, plugin }
    }

    /// The producers that a plugin reads. Without a name it reads the default prefix producer, if there is
    /// one.
    fn inputs(&self, plugin: &AnyPlugin) -> Inputs {
        let mut inputs =
            Inputs { prefix_producer: self.prefix_producer(PREFIX_PRODUCER), ..Inputs::default() };
        for Need { name, kind, .. } in plugin.needs() {
            match kind {
                NeedKind::PrefixProducer => inputs.prefix_producer = self.prefix_producer(name),
                NeedKind::LatencyPredictor => {
                    inputs.latency_predictor = self.index(name, |roles| roles.latency_predictor.is_some());
                }
                NeedKind::MediaProducer => {
                    inputs.media_cache = self.index(name, |roles| roles.media_cache.is_some());
                }
                NeedKind::Topology => inputs.topology = self.index(name, |roles| roles.topology.is_some()),
                NeedKind::SessionProducer => {
                    let producer = self.index(name, |roles| roles.session_producer.is_some());
                    inputs.session_producers.push(producer);
                }
                NeedKind::Decider => {
                    inputs.deciders.push(self.index(name, |roles| roles.decider.is_some()));
                }
                NeedKind::AgentIdentity
                | NeedKind::CustomMetric
                | NeedKind::Detector
                | NeedKind::LoadProducer
                | NeedKind::PromptLoadProducer => {}
            }
        }
        inputs
    }

    /// The index of a prefix producer among the pipeline's prefix producers.
    pub(super) fn prefix_producer(&self, name: &str) -> Option<u16> {
        self.index(name, |roles| roles.prefix_producer.is_some())
    }

    /// The index of a plugin among those in a role.
    fn index(&self, name: &str, has_role: impl Fn(&Roles) -> bool) -> Option<u16> {
        let mut in_role = self.all.iter().filter(|declared| has_role(&declared.roles));
        u16::try_from(in_role.position(|declared| declared.instance.name == name)?).ok()
    }

    /// The profile when none is declared: every filter, scorer and picker, at weight 1. The EPP runs them in
    /// random order, this picker in the order of their declaration.
    pub(super) fn profile_of_all(&self) -> ProfileConfig {
        let plugins = self.all.iter().filter(|declared| declared.roles.is_for_profiles());
        let plugins =
            plugins.map(|declared| ProfilePlugin { name: declared.instance.name.clone(), weight: None });
        ProfileConfig { name: "default".to_owned(), plugins: plugins.collect() }
    }

    pub(super) fn detector(&mut self, name: Option<&str>) -> Option<Slot<dyn SaturationDetector>> {
        let at = "flowControl.saturationDetector.pluginRef";
        let default = AnyPlugin::from(UtilizationDetector::default().at_interval(self.scrape_interval));
        let name = name.unwrap_or_else(|| {
            if self.find(default.type_name()).is_none() {
                self.add(default.clone());
            }
            default.type_name()
        });
        self.require(name, at)?;
        let declared = self.find(name)?;
        let (roles, combined) = (&declared.roles, declared.roles.combined_detector.clone());
        let find = |name: &str| self.find(name)?.roles.saturation_detector.clone();
        // A detector that it needs and that is not declared is an error of its own.
        let combined =
            combined.map(|it| it.combine(find).unwrap_or_else(|| Arc::new(UtilizationDetector::default())));
        let detector = roles.saturation_detector.clone().or(combined);
        let slot = detector.map(|detector| self.slot(&declared.instance, detector));
        if slot.is_none() {
            let problem = wrong_role(declared, "saturation detector");
            self.refuse(at, problem);
        }
        slot
    }

    pub(super) fn parsers(&mut self, names: &[String]) -> Parsers {
        let mut parsers: Vec<Parser> = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            let at = format!("requestHandler.parsers[{index}].pluginRef");
            let Some(declared) = self.require(name, &at) else { continue };
            if let Some(parser) = declared.roles.parser {
                parsers.push(parser);
            } else {
                let problem = wrong_role(declared, "parser");
                self.refuse(at, problem);
            }
        }
        Parsers::new(&parsers)
    }

    /// The name of the load producer, and its rule. The EPP counts once for each producer declared; here all
    /// readers of the load share one count.
    pub(super) fn load_producer(&self) -> (&str, LoadEstimator) {
        let declared = self.all.iter().find_map(|declared| {
            Some((declared.instance.name.as_str(), declared.roles.load_estimator.clone()?))
        });
        declared.unwrap_or_else(|| (LOAD_PRODUCER, InflightLoadProducer::default().estimator()))
    }

    /// The rule by which load is counted; a second one is refused.
    pub(super) fn load_estimator(&mut self) -> LoadEstimator {
        let producers = self.all.iter().enumerate();
        let producers = producers.filter(|(_, declared)| declared.roles.load_estimator.is_some());
        let superfluous: Vec<usize> = producers.skip(1).map(|(index, _)| index).collect();
        for index in superfluous {
            let problem = "the load of endpoints has a producer already; one is allowed";
            self.refuse(format_args!("plugins[{index}]"), problem);
        }
        self.load_producer().1
    }
}

/// Why a plugin cannot be used in a role.
pub(super) fn wrong_role(declared: &Declared, role: &str) -> String {
    let Instance { name, plugin } = &declared.instance;
    format!("{name:?} is a {}, not a {role}", plugin.type_name())
}

impl Plugins {
    /// Adds the default producers where a plugin needs them and none of their name is declared.
    pub(super) fn add_missing_producers(&mut self) {
        self.split_precise_scorers();
        self.add_missing(PredictedLatencyProducer::default(), NeedKind::LatencyPredictor);
        // A predictor that was added needs one, too.
        self.add_missing(ApproxPrefixCacheProducer::default(), NeedKind::PrefixProducer);
        self.add_missing(MmEmbeddingsCacheProducer::default(), NeedKind::MediaProducer);
    }

    /// Replaces scorers that are producers too by a scorer each, and adds a producer where none of its type
    /// is declared.
    fn split_precise_scorers(&mut self) {
        for index in 0..self.all.len() {
            let Some(Declared {
                instance: Instance { name, plugin: AnyPlugin::PrecisePrefixCacheScorer(scorer) },
                ..
            }) = self.all.get(index)
            else {
                continue;
            };
            let (name, producer) = (name.clone(), scorer.producer().clone());
            let is_producer = |declared: &&Declared| {
                matches!(declared.instance.plugin, AnyPlugin::PrecisePrefixCacheProducer(_))
            };
            let declared = self.all.iter().find(is_producer).map(|declared| declared.instance.name.clone());
            let producer = declared.unwrap_or_else(|| {
                let producer = AnyPlugin::from(producer);
                let name = producer.type_name().to_owned();
                self.add(producer);
                name
            });
            if let Some(scorer) = self.all.get_mut(index) {
                *scorer = Instance { name, plugin: PrefixCacheScorer::reading(&producer).into() }.into();
            }
        }
    }

    fn add_missing(&mut self, default: impl Into<AnyPlugin>, kind: NeedKind) {
        let default = default.into();
        let is_default = |need: &Need<'_>| need.kind == kind && need.name == default.type_name();
        let is_needed =
            self.all.iter().any(|declared| declared.instance.plugin.needs().iter().any(is_default));
        if is_needed && self.find(default.type_name()).is_none() {
            self.add(default);
        }
    }

    /// Refuses every need that is not met.
    pub(super) fn check_needs(&mut self) {
        for index in 0..self.all.len() {
            let Some(declared) = self.all.get(index) else { continue };
            let (plugin, own) = (declared.instance.plugin.clone(), declared.instance.name.clone());
            for need in plugin.needs() {
                let parameter = if need.parameter.is_empty() { "" } else { "." };
                let at = format!("plugins[{index}].parameters{parameter}{}", need.parameter);
                let problem = match need.kind {
                    NeedKind::Decider
                    | NeedKind::Detector
                    | NeedKind::LatencyPredictor
                    | NeedKind::MediaProducer
                    | NeedKind::PrefixProducer
                    | NeedKind::SessionProducer => self.problem_with_plugin(&own, &need, &at),
                    NeedKind::AgentIdentity => {
                        let is_published =
                            self.in_role(|roles| roles.agent_identity.clone()).next().is_some();
                        let problem = || {
                            format!(
                                "no plugin of the type agent-identity is declared, which publishes {:?}",
                                need.name
                            )
                        };
                        (!is_published).then(problem)
                    }
                    NeedKind::LoadProducer => self.problem_with_load(need.name),
                    NeedKind::PromptLoadProducer => {
                        self.problem_with_load(need.name).or_else(|| self.problem_with_output())
                    }
                    // The agent, which reads the metrics, checks that they are published. Without places all
                    // are equally far.
                    NeedKind::CustomMetric | NeedKind::Topology => None,
                };
                if let Some(problem) = problem {
                    self.refuse(at, problem);
                }
            }
        }
    }

    fn problem_with_plugin(&mut self, own: &str, need: &Need<'_>, at: &str) -> Option<String> {
        let needed = self.require(need.name, at)?;
        let wrong_role = (!is_met(need.kind, &needed.roles)).then(|| wrong_role(needed, need.kind.as_str()));
        let circle = self.way_back(need.name, own);
        let circle =
            circle.map(|way| format!("plugins refer to each other in a circle: {}", way.join(" → ")));
        circle.or(wrong_role)
    }

    fn problem_with_load(&self, name: &str) -> Option<String> {
        let (producer, _) = self.load_producer();
        let problem = || format!("reads the load that {name:?} counts, but it is counted by {producer:?}");
        (name != producer).then(problem)
    }

    fn problem_with_output(&self) -> Option<String> {
        let (producer, estimator) = self.load_producer();
        let problem =
            || format!("reads the tokens of prompts, and {producer:?} has addEstimatedOutputTokens");
        estimator.output.is_some().then(problem)
    }

    /// The plugins on a way by needs from `from` to `to`, beginning and ending with `to`.
    fn way_back<'a>(&'a self, from: &'a str, to: &'a str) -> Option<Vec<&'a str>> {
        // Each with the plugin that it was reached from.
        let mut reached = vec![(from, to)];
        let mut next = 0;
        while let Some(&(at, _)) = reached.get(next) {
            if at == to {
                return Some(way(&reached, to));
            }
            let needs = self.find(at).map(|declared| declared.instance.plugin.needs()).unwrap_or_default();
            // Reading a load makes no circle: the pipeline counts it, whichever plugins read it.
            let plugins = needs.iter().filter(|need| !is_met_by_none(need.kind));
            for need in plugins {
                let is_new = reached.iter().all(|(name, _)| *name != need.name);
                if let Some(found) = self.find(need.name).filter(|_| is_new) {
                    reached.push((&found.instance.name, at));
                }
            }
            next += 1;
        }
        None
    }
}

/// The way from `to` back to itself through plugins given with the one that each was reached from.
fn way<'a>(reached: &[(&'a str, &'a str)], to: &'a str) -> Vec<&'a str> {
    let mut way = vec![to];
    let mut at = to;
    while let Some(&(_, before)) = reached.iter().find(|(name, _)| *name == at) {
        way.push(before);
        at = before;
        if at == to {
            break;
        }
    }
    way.reverse();
    way
}

/// Whether the need is met by no plugin in particular.
fn is_met_by_none(kind: NeedKind) -> bool {
    match kind {
        NeedKind::AgentIdentity
        | NeedKind::CustomMetric
        | NeedKind::LoadProducer
        | NeedKind::PromptLoadProducer
        | NeedKind::Topology => true,
        NeedKind::Decider
        | NeedKind::Detector
        | NeedKind::LatencyPredictor
        | NeedKind::MediaProducer
        | NeedKind::PrefixProducer
        | NeedKind::SessionProducer => false,
    }
}

/// Whether a plugin with these roles meets a need.
fn is_met(kind: NeedKind, roles: &Roles) -> bool {
    match kind {
        NeedKind::Decider => roles.decider.is_some(),
        NeedKind::Detector => roles.saturation_detector.is_some(),
        NeedKind::MediaProducer => roles.media_cache.is_some(),
        NeedKind::PrefixProducer => roles.prefix_producer.is_some(),
        NeedKind::LatencyPredictor => roles.latency_predictor.is_some(),
        NeedKind::SessionProducer => roles.session_producer.is_some(),
        NeedKind::LoadProducer | NeedKind::PromptLoadProducer => roles.load_estimator.is_some(),
        NeedKind::AgentIdentity | NeedKind::CustomMetric | NeedKind::Topology => false,
    }
}
