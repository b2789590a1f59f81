//! `EndpointPickerConfig`: the filter's configuration and the agent's scraping settings, from the document.
//!
//! Plugins for the agent and deprecated spellings end here: they do not reach the filter.

mod agent_plugins;
mod data_layer;
mod deprecated;
mod document;
mod flow_control;
mod observed_latency;
mod parameters;
mod paths;
mod plugins;
mod quantity;
mod references;

use std::path::PathBuf;

pub(crate) use data_layer::scraping::{Scraping, SourceScraping};
pub(crate) use document::EndpointPickerConfig;
use document::{Profile, RequestHandler};
use endpoint_picker::config::ConfigErrors;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker_wire::{pipeline_into_core, v1};
use flow_control::FlowControl;
use paths::Paths;
use plugins::Declared;
use references::References;

use super::fault::{Fault, Faults};

/// All faults and warnings so far.
#[derive(Debug, Default)]
struct Findings {
    faults: Faults,
    warnings: Vec<Fault>,
}

impl Findings {
    fn fault(&mut self, at: impl Into<String>, text: impl Into<String>) {
        self.faults.push(at, text);
    }

    fn warn(&mut self, at: impl Into<String>, text: impl Into<String>) {
        self.warnings.push(Fault::new(at, text));
    }
}

/// The detector that runs when the configuration names none.
pub(crate) const DEFAULT_DETECTOR: &str = "utilization-detector";

/// A configuration, divided between filter and agent.
#[derive(Clone, Debug)]
pub(crate) struct Lowered {
    pub picker: v1::PickerConfig,
    pub scraping: Scraping,
    /// Where `file-discovery` finds the endpoints.
    pub endpoints_file: Option<PathBuf>,
}

/// Checks a configuration and divides it. Reports all faults of its parts at once; if there are none, all
/// faults of their combination. The second part of the result are warnings.
pub(crate) fn lower(
    config: EndpointPickerConfig,
    allow_experimental_plugins: bool,
) -> Result<(Lowered, Vec<Fault>), Faults> {
    let mut findings = Findings::default();
    let queues = document::check_gates(&config.feature_gates, &mut findings);
    warn_of_fields(&config, queues, &mut findings);
    let mut paths = Paths::of(&config);
    let plugins = config.plugins.into_iter().enumerate();
    let declared = plugins.filter_map(|(index, plugin)| {
        Declared::read(index, plugin, allow_experimental_plugins, &mut findings)
    });
    let mut declared: Vec<_> = declared.collect();
    let (scraping, endpoints_file) = data_layer::read(config.data_layer, &declared, &mut findings);
    if !findings.faults.0.is_empty() {
        return Err(findings.faults);
    }

    let RequestHandler { parsers: new, propagate_priority } = config.request_handler.unwrap_or_default();
    let parsers = if new.is_empty() { config.parser.into_iter().collect() } else { new };
    let parsers: Vec<String> = parsers.into_iter().map(|parser| parser.plugin_ref).collect();
    let is_declared = |name: &str, declared: &[Declared]| declared.iter().any(|plugin| plugin.name == name);
    // As in the EPP, parsers and the default detector can be referred to by their types without being
    // declared.
    for parser in &parsers {
        if !is_declared(parser, &declared) {
            declared.extend(Declared::by_type(parser));
        }
    }
    let flow_control = config.flow_control.unwrap_or_default();
    let queueing = flow_control.on_the_wire();
    let detector = flow_control
        .saturation_detector
        .or(config.saturation_detector)
        .and_then(|detector| detector.plugin_ref);
    let saturation_detector = detector
        .filter(|name| !name.is_empty() && (name != DEFAULT_DETECTOR || is_declared(name, &declared)));
    let mut profiles = profiles(config.scheduling_profiles, &declared, &mut paths);
    if profiles.is_empty() && !declared.iter().any(takes_part_in_profiles) {
        let text = "no plugin filters, scores or picks; endpoints are picked at random, as in the EPP";
        findings.warn("plugins", text);
        profiles.push(v1::Profile { name: "default".to_owned(), plugins: Vec::new() });
    }
    let of_filter = || declared.iter().filter(|plugin| plugin.of_filter().is_some());
    paths.plugins = of_filter().map(|plugin| plugin.path.clone()).collect();
    let plugins = of_filter().filter_map(Declared::on_the_wire).collect();
    let detector = saturation_detector.as_deref();
    let references = References {
        declared: &declared,
        parsers: &parsers,
        saturation_detector: detector,
        flow_control: &queueing,
        has_gpu_utilization: scraping.gpu.is_some(),
        has_models: scraping.models.is_some(),
    };
    let faults = references.check(&paths);
    let flow_control = Some(queueing);
    let mut picker = v1::PickerConfig {
        plugins,
        profiles,
        parsers,
        saturation_detector,
        flow_control,
        propagate_priority,
    };
    for warning in check_in_filter(&picker, &paths, faults)?.warnings() {
        findings.warn(paths.in_document(&warning.at), warning.problem);
    }
    // It is checked also if the gate is off.
    picker.flow_control = picker.flow_control.filter(|_| queues);
    Ok((Lowered { picker, scraping, endpoints_file }, findings.warnings))
}

/// The profiles with the plugins that the filter has. References to plugins of the agent have no effect.
fn profiles(profiles: Vec<Profile>, declared: &[Declared], paths: &mut Paths) -> Vec<v1::Profile> {
    let is_of_agent = |name: &str| {
        let plugin = declared.iter().find(|plugin| plugin.name == name);
        plugin.is_some_and(|plugin| plugin.of_agent().is_some())
    };
    let profiles = profiles.into_iter().map(|profile| profile.on_the_wire(|name| !is_of_agent(name)));
    let (profiles, indexes) = profiles.unzip();
    paths.profiles = indexes;
    profiles
}

/// Whether a profile of all plugins would have this plugin.
fn takes_part_in_profiles(declared: &Declared) -> bool {
    declared.of_filter().is_some_and(|plugin| plugin.roles().is_for_profiles())
}

/// Compiles the configuration as the filter does, and adds the faults that the filter would find.
fn check_in_filter(picker: &v1::PickerConfig, paths: &Paths, mut faults: Faults) -> Result<Pipeline, Faults> {
    let ConfigErrors(errors) = match compile(picker.clone()) {
        Ok(pipeline) if faults.0.is_empty() => return Ok(pipeline),
        Ok(_) => return Err(faults),
        Err(errors) => errors,
    };
    for error in errors {
        let at = paths.in_document(&error.at);
        // At one place the agent's message is better: it knows more plugins.
        if faults.0.iter().all(|fault| fault.at != at) {
            faults.push(at, error.problem);
        }
    }
    Err(faults)
}

/// Compiles the configuration as the filter does.
fn compile(picker: v1::PickerConfig) -> Result<Pipeline, ConfigErrors> {
    pipeline_into_core(&mut v1::Policy { picker_config: Some(picker), ..v1::Policy::default() })
}

/// Warns of fields that have no effect.
fn warn_of_fields(config: &EndpointPickerConfig, queues: bool, findings: &mut Findings) {
    if !queues && config.flow_control.as_ref().is_some_and(FlowControl::has_queueing) {
        let text = "only saturationDetector is used, because requests are queued only with the feature gate flowControl";
        findings.warn("flowControl", text);
    }
}
