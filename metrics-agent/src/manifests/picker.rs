//! `EndpointPickerConfig`: from the document to what the filter decides by and what the agent scrapes.
//!
//! The rules of validation and defaulting are the reference's. Those that concern deciding are
//! [`Pipeline::compile`]'s, so that agent and filter cannot differ; those that concern the agent's own plugins are here.

mod data_layer;
mod document;
mod gates;
mod plugins;
mod scraping;

use std::path::PathBuf;

use endpoint_picker::config::{ConfigError, PickerConfig};
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker_wire::{picker_config_into_core, v1};

pub(super) use document::EndpointPickerConfig;
pub(super) use scraping::Scraping;

use self::document::{Profile, Reference};
use self::plugins::Declared;
use super::problem::{Fault, Faults};

/// The detector that runs when no other is asked for.
const DEFAULT_DETECTOR: &str = "utilization-detector";

/// What a configuration means.
#[derive(Clone, Debug)]
pub(super) struct Lowered {
    pub(super) picker: v1::PickerConfig,
    pub(super) scraping: Scraping,
    /// Where `file-discovery` finds the endpoints.
    pub(super) endpoints_file: Option<PathBuf>,
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
/// when they are right, and then the first misfit is told. The second part of the result are warnings.
pub(super) fn lower(
    config: EndpointPickerConfig,
    allow_experimental_plugins: bool,
) -> Result<(Lowered, Vec<Fault>), Faults> {
    let mut report = Report::default();
    gates::check(&config.feature_gates, &mut report.faults);
    let spelling = warn_of_old_spellings(&config, &mut report);
    let mut declared = Declared::read(&config.plugins, allow_experimental_plugins, &mut report);
    let (scraping, endpoints_file) = data_layer::read(config.data_layer, &declared, &mut report);
    refuse_data_plugins_in_profiles(&config.scheduling_profiles, &declared, &mut report);

    let new = config.request_handler.unwrap_or_default().parsers;
    let parsers = if new.is_empty() { config.parser.into_iter().collect() } else { new };
    let parsers: Vec<String> = parsers.into_iter().map(|parser| parser.plugin_ref).collect();
    let new = config.flow_control.unwrap_or_default().saturation_detector;
    let detector = new.or(config.saturation_detector).and_then(|detector| detector.plugin_ref);
    for parser in &parsers {
        declared.add_parser_by_its_type(parser);
    }
    let detector = detector.filter(|name| {
        !name.is_empty()
            && (name != DEFAULT_DETECTOR || declared.deciding.iter().any(|plugin| plugin.name == *name))
    });
    if !report.faults.0.is_empty() {
        return Err(report.faults);
    }
    let mut profiles: Vec<_> = config.scheduling_profiles.into_iter().map(Profile::on_the_wire).collect();
    if profiles.is_empty() && declared.deciding.is_empty() {
        let text = "declares no plugin that decides; endpoints are picked at random, as in the reference";
        report.warn("plugins", text);
        profiles.push(v1::Profile { name: "default".to_owned(), plugins: Vec::new() });
    }
    let positions = declared.positions;
    let picker =
        v1::PickerConfig { plugins: declared.deciding, profiles, parsers, saturation_detector: detector };
    compile(picker.clone()).map_err(|error| {
        let fault = Fault::new(spelling.as_given(&error.at, &positions), error.problem);
        Faults(vec![fault])
    })?;
    Ok((Lowered { picker, scraping, endpoints_file }, report.warnings))
}

/// Exactly what the filter will do.
fn compile(picker: v1::PickerConfig) -> Result<Pipeline, ConfigError> {
    let config: PickerConfig = picker_config_into_core(picker, plugins::read_as_the_filter_does)?;
    Pipeline::compile(config)
}

/// Which of two spellings the document uses.
struct Spelling {
    parser: bool,
    saturation_detector: bool,
}

impl Spelling {
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

fn warn_of_old_spellings(config: &EndpointPickerConfig, report: &mut Report) -> Spelling {
    let deprecated = |new: &str| format!("is deprecated; {new} takes its place, and wins where both stand");
    if config.saturation_detector.is_some() {
        report.warn("saturationDetector", deprecated("flowControl.saturationDetector"));
    }
    if config.parser.is_some() {
        report.warn("parser", deprecated("requestHandler.parsers"));
    }
    let flow_control = config.flow_control.as_ref();
    if flow_control.is_some_and(document::FlowControl::asks_for_queueing) {
        let text = "is ignored but for saturationDetector, because the feature gate flowControl is off";
        report.warn("flowControl", text);
    }
    let parsers = config.request_handler.as_ref().map(|handler| handler.parsers.as_slice());
    Spelling {
        parser: config.parser.is_some() && parsers.is_none_or(<[Reference]>::is_empty),
        saturation_detector: config.saturation_detector.is_some()
            && flow_control.is_none_or(|flow_control| flow_control.saturation_detector.is_none()),
    }
}

fn refuse_data_plugins_in_profiles(profiles: &[Profile], declared: &Declared, report: &mut Report) {
    for (profile_index, profile) in profiles.iter().enumerate() {
        for (index, plugin) in profile.plugins.iter().enumerate() {
            if let Some(type_name) = declared.data_plugin_type(&plugin.plugin_ref) {
                let at = format!("schedulingProfiles[{profile_index}].plugins[{index}].pluginRef");
                let text = format!("{:?} is a {type_name}", plugin.plugin_ref);
                report.fault(at, format!("{text}; allowed are filters, scorers and a picker"));
            }
        }
    }
}
