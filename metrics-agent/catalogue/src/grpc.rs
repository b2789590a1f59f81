//! Pools whose clients call methods of gRPC.

use endpoint_picker::plugin::Roles;
use endpoint_picker::plugin::registry::read_plugin;
use endpoint_picker::request::body::Parser;
use endpoint_picker_wire::v1;

use super::manifests::picker::DEFAULT_DETECTOR;

/// The part of a pool's policy that matters to servers of gRPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrpcPool {
    /// The first parser that reads messages of gRPC.
    pub parser: Parser,
    /// The names of plugins that decide by the servers' metrics.
    pub readers: Vec<String>,
}

impl GrpcPool {
    /// `None`: no parser reads messages of gRPC.
    pub fn of_policy(policy: &v1::Policy) -> Option<Self> {
        let config = policy.picker_config.as_ref()?;
        let plugin = |name: &String| config.plugins.iter().find(|plugin| plugin.name == *name);
        let mut parsers = config.parsers.iter().filter_map(plugin).filter_map(|plugin| roles(plugin)?.parser);
        let parser = parsers.find(|parser| parser.is_of_grpc())?;
        let scorers = config.plugins.iter().filter(|plugin| {
            roles(plugin).and_then(|roles| roles.scorer).is_some_and(|scorer| scorer.reads_readings())
        });
        let mut readers: Vec<String> = scorers.map(|plugin| plugin.name.clone()).collect();
        // Saturation matters to sheddable requests.
        if policy.objectives.iter().any(|objective| objective.priority < 0) {
            let detector = config.saturation_detector.as_ref();
            let detects = detector.and_then(plugin).and_then(|plugin| roles(plugin)?.saturation_detector);
            if detector.is_none() || detects.is_some_and(|detector| detector.needs_readings()) {
                readers.push(detector.map_or(DEFAULT_DETECTOR, String::as_str).to_owned());
            }
        }
        Some(Self { parser, readers })
    }
}

/// The roles of a plugin that the filter accepts.
fn roles(plugin: &v1::Plugin) -> Option<Roles> {
    read_plugin(&plugin.r#type, &plugin.parameters).ok().map(|plugin| plugin.roles())
}
