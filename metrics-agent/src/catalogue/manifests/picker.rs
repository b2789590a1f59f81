//! `EndpointPickerConfig`: from the document to what the filter decides by and what the agent scrapes.
//!
//! The rules of validation and defaulting are the EPP's. Those of deciding are [`Pipeline::compile`]'s, so that agent and
//! filter cannot differ; what is the agent's own is here.

mod data_layer;
mod document;
mod gates;
mod parameters;
mod plugins;
mod scraping;

use std::path::PathBuf;

use endpoint_picker::config::{ConfigError, ConfigErrors};
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::registry::AnyPlugin;
use endpoint_picker_wire::{pipeline_into_core, v1};

pub(in crate::catalogue) use document::EndpointPickerConfig;
pub(in crate::catalogue) use scraping::Scraping;

use self::document::{FlowControl, Profile};
use self::plugins::Declared;
use super::fault::{Fault, Faults};

/// The detector that runs when no other is asked for.
const DEFAULT_DETECTOR: &str = "utilization-detector";

/// What a configuration means.
#[derive(Clone, Debug)]
pub(in crate::catalogue) struct Lowered {
    pub(in crate::catalogue) picker: v1::PickerConfig,
    pub(in crate::catalogue) scraping: Scraping,
    /// Where `file-discovery` finds the endpoints.
    pub(in crate::catalogue) endpoints_file: Option<PathBuf>,
}

/// What is found while a configuration is looked through.
#[derive(Debug, Default)]
struct Report {
    faults: Faults,
    warnings: Vec<Fault>,
}

impl Report {
    fn fault(&mut self, at: impl Into<String>, text: impl Into<String>) {
        self.faults.push(at, text);
    }

    fn warn(&mut self, at: impl Into<String>, text: impl Into<String>) {
        self.warnings.push(Fault::new(at, text));
    }
}

/// Checks a configuration and takes it apart. All that is wrong with its parts is told; how they fit together is looked at
/// when they are right. The second part of the result are warnings.
pub(in crate::catalogue) fn lower(
    config: EndpointPickerConfig,
    allow_experimental_plugins: bool,
) -> Result<(Lowered, Vec<Fault>), Faults> {
    let mut report = Report::default();
    gates::check(&config.feature_gates, &mut report.faults);
    let spelling = Spelling::of(&config, &mut report);
    let plugins = config.plugins.into_iter().enumerate();
    let declared = plugins
        .filter_map(|(index, plugin)| Declared::read(index, plugin, allow_experimental_plugins, &mut report));
    let mut declared: Vec<_> = declared.collect();
    let (scraping, endpoints_file) = data_layer::read(config.data_layer, &declared, &mut report);
    if !report.faults.0.is_empty() {
        return Err(report.faults);
    }
    let positions: Vec<_> = declared.iter().map(|plugin| plugin.index).collect();

    let new = config.request_handler.unwrap_or_default().parsers;
    let parsers = if new.is_empty() { config.parser.into_iter().collect() } else { new };
    let parsers: Vec<String> = parsers.into_iter().map(|parser| parser.plugin_ref).collect();
    let is_declared = |name: &str, declared: &[Declared]| declared.iter().any(|plugin| plugin.name == name);
    // As in the EPP, parsers and the default detector need not be declared to be referred to by their types.
    for parser in &parsers {
        if !is_declared(parser, &declared) {
            declared.extend(Declared::by_type(parser));
        }
    }
    let new = config.flow_control.unwrap_or_default().saturation_detector;
    let detector = new.or(config.saturation_detector).and_then(|detector| detector.plugin_ref);
    let detector = detector
        .filter(|name| !name.is_empty() && (name != DEFAULT_DETECTOR || is_declared(name, &declared)));
    let mut profiles: Vec<_> = config.scheduling_profiles.into_iter().map(Profile::on_the_wire).collect();
    if profiles.is_empty() && !declared.iter().any(|declared| decides(&declared.plugin)) {
        let text = "none filters, scores or picks; endpoints are picked at random, as in the EPP";
        report.warn("plugins", text);
        profiles.push(v1::Profile { name: "default".to_owned(), plugins: Vec::new() });
    }
    let plugins = declared.iter().map(Declared::on_the_wire).collect();
    let picker = v1::PickerConfig { plugins, profiles, parsers, saturation_detector: detector };
    compile(picker.clone()).map_err(|ConfigErrors(errors)| {
        let fault = |error: ConfigError| Fault::new(spelling.as_given(&error.at, &positions), error.problem);
        Faults(errors.into_iter().map(fault).collect())
    })?;
    Ok((Lowered { picker, scraping, endpoints_file }, report.warnings))
}

/// Whether a profile of all plugins would have this one.
fn decides(plugin: &AnyPlugin) -> bool {
    plugin.as_filter().is_some() || plugin.as_scorer().is_some() || plugin.as_picker().is_some()
}

/// Exactly what the filter will do.
fn compile(picker: v1::PickerConfig) -> Result<Pipeline, ConfigErrors> {
    pipeline_into_core(&mut v1::Policy { picker_config: Some(picker), ..v1::Policy::default() })
}

/// Which of two spellings counts, the deprecated one if true.
struct Spelling {
    parser: bool,
    saturation_detector: bool,
}

impl Spelling {
    fn of(config: &EndpointPickerConfig, report: &mut Report) -> Self {
        let deprecated =
            |new: &str| format!("is deprecated; {new} takes its place, and wins where both stand");
        if config.saturation_detector.is_some() {
            report.warn("saturationDetector", deprecated("flowControl.saturationDetector"));
        }
        if config.parser.is_some() {
            report.warn("parser", deprecated("requestHandler.parsers"));
        }
        let flow_control = config.flow_control.as_ref();
        if flow_control.is_some_and(FlowControl::asks_for_queueing) {
            let text = "is ignored but for saturationDetector, because the feature gate flowControl is off";
            report.warn("flowControl", text);
        }
        let has_parsers = config.request_handler.as_ref().is_some_and(|handler| !handler.parsers.is_empty());
        let has_detector =
            flow_control.is_some_and(|flow_control| flow_control.saturation_detector.is_some());
        Self { parser: !has_parsers, saturation_detector: !has_detector }
    }

    /// The path in the document of a path in what was compiled.
    fn as_given(&self, at: &str, positions: &[usize]) -> String {
        if self.saturation_detector && at.starts_with("flowControl.saturationDetector.") {
            return at.replacen("flowControl.", "", 1);
        }
        if self.parser && at.starts_with("requestHandler.parsers[0].") {
            return at.replacen("requestHandler.parsers[0].", "parser.", 1);
        }
        let plugin = at.strip_prefix("plugins[").and_then(|rest| rest.split_once(']'));
        let position =
            plugin.and_then(|(index, rest)| Some((positions.get(index.parse::<usize>().ok()?)?, rest)));
        position.map_or_else(|| at.to_owned(), |(position, rest)| format!("plugins[{position}]{rest}"))
    }
}
