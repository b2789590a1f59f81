//! The plugins a configuration declares: those the filter decides with, and those the agent reads data with.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use deserr::{Deserr, IntoValue, ValuePointerRef};
use endpoint_picker::plugin::registry::{AnyPlugin, TYPES};
use endpoint_picker_wire::v1;
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde_json::Value as Json;

use super::Report;
use super::document::Plugin;
use super::scraping::{CoreMetricsExtractor, FileDiscovery, MetricsDataSource};
use crate::dialect::Dialects;
use crate::manifests::problem::{Fault, Faults, quoted};

pub(super) const SOURCE: &str = "metrics-data-source";
pub(super) const EXTRACTOR: &str = "core-metrics-extractor";
pub(super) const DISCOVERY: &str = "file-discovery";

/// The agent's own plugin types.
const DATA_TYPES: [&str; 3] = [EXTRACTOR, DISCOVERY, SOURCE];

/// Types the reference calls alpha.
const EXPERIMENTAL: [&str; 7] = [
    "endpoint-attribute-filter",
    "endpoint-attribute-scorer",
    "header-label-affinity-scorer",
    "header-profile-handler",
    "session-affinity-filter",
    "session-affinity-scorer",
    "utilization-filter",
];

/// Old names of types, and what they are called now.
const RENAMED_TYPES: [(&str, &str); 1] = [("tokenizer", "token-producer")];

/// Old names of parameters: of which type, and what they are called now.
const RENAMED_PARAMETERS: [(&str, &str, &str); 1] =
    [("approx-prefix-cache-producer", "blockSize", "blockSizeTokens")];

/// A plugin that reads data.
#[derive(Clone, Debug)]
pub(super) enum DataPlugin {
    Source(MetricsDataSource),
    Extractor(Arc<Dialects>),
    Discovery(FileDiscovery),
}

/// All plugins of a configuration.
#[derive(Debug, Default)]
pub(super) struct Declared {
    pub(super) deciding: Vec<v1::Plugin>,
    /// Where each of `deciding` stands in the document.
    pub(super) positions: Vec<usize>,
    /// By name.
    pub(super) data: BTreeMap<String, DataPlugin>,
}

impl Declared {
    pub(super) fn read(plugins: &[Plugin], allow_experimental: bool, report: &mut Report) -> Self {
        let (mut declared, mut names) = (Self::default(), HashSet::new());
        for (index, plugin) in plugins.iter().enumerate() {
            let at = format!("plugins[{index}]");
            let name = if plugin.name.is_empty() { &plugin.type_name } else { &plugin.name };
            if !names.insert(name) {
                report.fault(
                    format!("{at}.name"),
                    format!("{} is taken; plugin names are unique", quoted(name)),
                );
            }
            declared.add(index, name, plugin, allow_experimental, report);
        }
        declared
    }

    fn add(
        &mut self,
        index: usize,
        name: &str,
        plugin: &Plugin,
        allow_experimental: bool,
        report: &mut Report,
    ) {
        let at = format!("plugins[{index}]");
        let type_name = match RENAMED_TYPES.iter().find(|(old, _)| *old == plugin.type_name) {
            Some((old, new)) => {
                report.warn(format!("{at}.type"), format!("{old:?} is deprecated; {new:?} takes its place"));
                new
            }
            None => plugin.type_name.as_str(),
        };
        if DATA_TYPES.contains(&type_name) {
            match read_data_plugin(type_name, index, plugin.parameters.clone()) {
                Ok(plugin) => drop(self.data.insert(name.to_owned(), plugin)),
                Err(faults) => report.faults.0.extend(faults.0),
            }
            return;
        }
        if !TYPES.contains(&type_name) {
            let mut types = [TYPES, &DATA_TYPES].concat();
            types.sort_unstable();
            let text =
                format!("{} is no known plugin type; allowed are {}", quoted(type_name), types.join(", "));
            report.fault(format!("{at}.type"), text);
            return;
        }
        if EXPERIMENTAL.contains(&type_name) && !allow_experimental {
            let text =
                format!("{type_name:?} is experimental; allowed only with --allow-experimental-plugins");
            report.fault(format!("{at}.type"), text);
            return;
        }
        let parameters = with_new_names(type_name, &at, plugin.parameters.clone(), report);
        if let Err((path, problem)) = read_deciding_plugin(type_name, parameters.clone()) {
            report.fault(format!("{at}.{path}"), problem);
        }
        self.deciding.push(v1::Plugin {
            name: name.to_owned(),
            r#type: type_name.to_owned(),
            parameters: parameters.to_string(),
        });
        self.positions.push(index);
    }

    /// As in the reference, a parser need not be declared to be referred to by the name of its type.
    pub(super) fn add_parser_by_its_type(&mut self, parser: &str) {
        let known =
            self.deciding.iter().any(|plugin| plugin.name == parser) || self.data.contains_key(parser);
        if !known && TYPES.contains(&parser) {
            let (name, r#type) = (parser.to_owned(), parser.to_owned());
            self.deciding.push(v1::Plugin { name, r#type, parameters: "{}".to_owned() });
        }
    }

    /// The type of a plugin that reads data, by the plugin's name.
    pub(super) fn data_plugin_type(&self, name: &str) -> Option<&'static str> {
        self.data.get(name).map(|plugin| match plugin {
            DataPlugin::Source(_) => SOURCE,
            DataPlugin::Extractor(_) => EXTRACTOR,
            DataPlugin::Discovery(_) => DISCOVERY,
        })
    }

    /// All names, for messages.
    pub(super) fn names(&self) -> String {
        let deciding = self.deciding.iter().map(|plugin| plugin.name.as_str());
        let mut names: Vec<_> = deciding.chain(self.data.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.join(", ")
    }
}

/// Reads a plugin from its type and the text of its parameters, as the filter reads the snapshot.
pub(super) fn read_as_the_filter_does(type_name: &str, parameters: &str) -> Result<AnyPlugin, String> {
    let parameters = serde_json::from_str(parameters).map_err(|error| error.to_string())?;
    read_deciding_plugin(type_name, parameters).map_err(|(_, problem)| problem)
}

/// The error is a path within the plugin, and what is wrong there.
fn read_deciding_plugin(type_name: &str, parameters: Json) -> Result<AnyPlugin, (String, String)> {
    // The type comes first, so that parameters are read as they come and the path of a wrong one is known.
    let fields = [("type", Json::from(type_name)), ("parameters", parameters)];
    let fields = MapDeserializer::<_, serde_json::Error>::new(fields.into_iter());
    let mut track = serde_path_to_error::Track::new();
    let read = AnyPlugin::deserialize(serde_path_to_error::Deserializer::new(fields, &mut track));
    read.map_err(|error| (track.path().to_string(), error.to_string()))
}

fn read_data_plugin(type_name: &str, index: usize, parameters: Json) -> Result<DataPlugin, Faults> {
    let plugins = ValuePointerRef::Origin.push_key("plugins");
    let plugin = plugins.push_index(index);
    let at = plugin.push_key("parameters");
    let parameters = parameters.into_value();
    match type_name {
        SOURCE => MetricsDataSource::deserialize_from_value(parameters, at).map(DataPlugin::Source),
        EXTRACTOR => {
            let extractor = CoreMetricsExtractor::deserialize_from_value(parameters, at)?;
            let dialects = extractor.dialects().map_err(|problem| {
                Faults(vec![Fault::new(format!("plugins[{index}].parameters.defaultEngine"), problem)])
            })?;
            Ok(DataPlugin::Extractor(Arc::new(dialects)))
        }
        _ => FileDiscovery::deserialize_from_value(parameters, at).map(DataPlugin::Discovery),
    }
}

fn with_new_names(type_name: &str, at: &str, mut parameters: Json, report: &mut Report) -> Json {
    let Some(fields) = parameters.as_object_mut() else { return parameters };
    for (_, old, new) in RENAMED_PARAMETERS.iter().filter(|(of, ..)| *of == type_name) {
        if let Some(value) = fields.remove(*old) {
            let text = format!("is deprecated; {new} takes its place, and wins where both stand");
            report.warn(format!("{at}.parameters.{old}"), text);
            fields.entry(*new).or_insert(value);
        }
    }
    parameters
}
