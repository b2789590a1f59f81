//! The plugins a configuration declares.

use endpoint_picker::plugin::registry::{AnyPlugin, TYPES};
use endpoint_picker_wire::v1;
use serde::Deserialize;
use serde::de::value::MapDeserializer;
use serde_json::Value as Json;

use super::Report;
use super::document::Plugin;
use super::parameters::Parameters;
use crate::catalogue::manifests::fault::quoted;
use crate::catalogue::manifests::nulls::without_nulls;

/// Old names of types, and what they are called now.
const RENAMED_TYPES: [(&str, &str); 1] = [("tokenizer", "token-producer")];

/// Types whose work is done by others now, and by which.
const DEPRECATED_TYPES: [(&str, &str); 6] = [
    ("by-label", "label-selector-filter"),
    ("by-label-selector", "label-selector-filter"),
    ("data-parallel-profile-handler", "single-profile-handler"),
    ("disagg-headers-handler", "disagg-profile-handler"),
    ("pd-profile-handler", "disagg-profile-handler"),
    ("prefill-header-handler", "disagg-profile-handler"),
];

/// Old names of parameters: of which type, and what they are called now.
const RENAMED_PARAMETERS: [(&str, &str, &str); 1] =
    [("approx-prefix-cache-producer", "blockSize", "blockSizeTokens")];

/// A plugin that is right by itself.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    /// Where it stands in the document.
    pub(super) index: usize,
    pub(super) plugin: AnyPlugin,
    parameters: Json,
}

impl Declared {
    /// `None`: it is not right, as `report` says.
    pub(super) fn read(
        index: usize,
        given: Plugin,
        allow_experimental: bool,
        report: &mut Report,
    ) -> Option<Self> {
        let at = format!("plugins[{index}]");
        let type_name = current_type(&given.type_name, &at, report);
        if !TYPES.contains(&type_name) {
            let text =
                format!("{} is no known plugin type; allowed: {}", quoted(type_name), TYPES.join(", "));
            report.fault(format!("{at}.type"), text);
            return None;
        }
        let parameters = with_new_names(type_name, &at, given.parameters, report);
        let read =
            read(type_name, parameters.clone()).map_err(|(path, problem)| (format!("{at}.{path}"), problem));
        let checked = read.and_then(|plugin| match plugin.check() {
            Ok(()) => Ok(plugin),
            Err(problem) => Err((format!("{at}.parameters"), problem)),
        });
        let plugin = match checked {
            Ok(plugin) => plugin,
            Err((at, problem)) => {
                report.fault(at, problem);
                return None;
            }
        };
        if plugin.is_alpha() && !allow_experimental {
            let text =
                format!("{type_name:?} is experimental; allowed only with --allow-experimental-plugins");
            report.fault(format!("{at}.type"), text);
            return None;
        }
        let name = if given.name.is_empty() { type_name.to_owned() } else { given.name };
        Some(Self { name, index, plugin, parameters: without_nulls(parameters) })
    }

    /// With its default parameters, named as its type.
    pub(super) fn by_type(type_name: &str) -> Option<Self> {
        let parameters = Json::Object(serde_json::Map::new());
        let plugin = read(type_name, parameters.clone()).ok()?;
        Some(Self { name: type_name.to_owned(), index: usize::MAX, plugin, parameters })
    }

    pub(super) fn on_the_wire(&self) -> v1::Plugin {
        v1::Plugin {
            name: self.name.clone(),
            r#type: self.plugin.type_name().to_owned(),
            parameters: self.parameters.to_string(),
        }
    }
}

/// The error is a path within the plugin, and what is wrong there.
fn read(type_name: &str, parameters: Json) -> Result<AnyPlugin, (String, String)> {
    // The type comes first, so that parameters are read as they come and the path of a wrong one is known.
    let fields = [("type", Parameters(type_name.into())), ("parameters", Parameters(parameters))];
    let fields = MapDeserializer::<_, serde_json::Error>::new(fields.into_iter());
    let mut track = serde_path_to_error::Track::new();
    let read = AnyPlugin::deserialize(serde_path_to_error::Deserializer::new(fields, &mut track));
    read.map_err(|error| (track.path().to_string(), error.to_string()))
}

fn current_type<'a>(given: &'a str, at: &str, report: &mut Report) -> &'a str {
    let renamed = RENAMED_TYPES.iter().find(|(old, _)| *old == given);
    let deprecated = renamed.or_else(|| DEPRECATED_TYPES.iter().find(|(old, _)| *old == given));
    if let Some((old, new)) = deprecated {
        report.warn(format!("{at}.type"), format!("{old:?} is deprecated; {new:?} takes its place"));
    }
    renamed.map_or(given, |(_, new)| new)
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
