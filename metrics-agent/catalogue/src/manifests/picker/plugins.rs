//! The plugins that a configuration declares.

use endpoint_picker::plugin::registry::{AnyPlugin, TYPES};
use endpoint_picker_wire::v1;
use metrics_agent_support::suggestion::with_allowed;
use serde_json::Value as Json;

use super::agent_plugins::AgentPlugin;
use super::deprecated::LoweredForm;
use super::document::Plugin;
use super::parameters::{Invalid, read_parameters_with};
use super::paths::PluginPath;
use super::{Findings, deprecated};
use crate::epp::types::{self, Here};
use crate::manifests::fault::quoted;
use crate::manifests::fields::without_nulls;

/// A plugin with valid parameters.
#[derive(Debug)]
pub(super) struct Declared {
    pub(super) name: String,
    /// The type as the document names it, or its current name if it was renamed.
    pub(super) type_name: String,
    /// Its place in the document. `None`: it is referred to by its type, without being declared.
    pub(super) path: Option<PluginPath>,
    pub(super) reader: PluginReader,
}

/// The program that uses a plugin.
#[derive(Debug)]
pub(super) enum PluginReader {
    /// The filter, which decides with it. The parameters are sent as text.
    Filter {
        plugin: Box<AnyPlugin>,
        parameters: Json,
    },
    Agent(AgentPlugin),
}

impl Declared {
    /// `None`: it is invalid, and `findings` has the fault.
    pub(super) fn read(
        index: usize,
        given: Plugin,
        allow_experimental: bool,
        findings: &mut Findings,
    ) -> Option<Self> {
        let at = format!("plugins[{index}]");
        let of_epp = types::find(&given.type_name);
        let type_name = deprecated::current_type(&given.type_name);
        if let Some(Here::Refused(reason)) = of_epp.map(|it| it.here) {
            findings.fault(format!("{at}.type"), format!("{type_name:?} is not supported: {reason}"));
            return None;
        }
        let known = known_types();
        if !known.contains(&type_name) {
            let text =
                format!("unknown plugin type {}{}", quoted(type_name), with_allowed(type_name, &known));
            findings.fault(format!("{at}.type"), text);
            return None;
        }
        let mut path = PluginPath { index, former: Vec::new() };
        let reader = match PluginReader::read(type_name, given.parameters, &mut path, findings) {
            Ok(reader) => reader,
            Err(Invalid { path, problem }) => {
                findings.fault(format!("{at}.{path}"), problem);
                return None;
            }
        };
        // Aliases have the level of the EPP's type, and some types need more trust here than in the EPP.
        if (of_epp.is_some_and(|it| it.is_alpha) || reader.is_alpha()) && !allow_experimental {
            let text =
                format!("{type_name:?} is experimental; allowed only with --allow-experimental-plugins");
            findings.fault(format!("{at}.type"), text);
            return None;
        }
        if let PluginReader::Filter { plugin, .. } = &reader {
            for warning in plugin.warnings() {
                findings.warn(format!("{at}.parameters"), warning);
            }
        }
        let is_alias =
            matches!(&reader, PluginReader::Filter { plugin, .. } if plugin.type_name() != type_name);
        match of_epp.map(|it| it.here) {
            Some(Here::WithoutEffect(reason)) => {
                findings.warn(format!("{at}.type"), format!("{type_name:?} has no effect here: {reason}"));
            }
            // That of a current type is a difference of its pool.
            Some(Here::Differs(text) | Here::Approximate(text)) if is_alias => {
                findings.warn(format!("{at}.type"), format!("{type_name:?} is accepted: {text}"));
            }
            Some(Here::Equal | Here::Differs(_) | Here::Approximate(_) | Here::Refused(_)) | None => {}
        }
        let type_name = type_name.to_owned();
        let name = if given.name.is_empty() { type_name.clone() } else { given.name };
        Some(Self { name, type_name, path: Some(path), reader })
    }

    /// A plugin of the filter with its default parameters, named as its type.
    pub(super) fn by_type(type_name: &str) -> Option<Self> {
        let parameters = Json::Object(serde_json::Map::new());
        let plugin = read_parameters_with(parameters.clone(), |it| AnyPlugin::read(type_name, it)).ok()?;
        let reader = PluginReader::Filter { plugin: Box::new(plugin), parameters };
        Some(Self { name: type_name.to_owned(), type_name: type_name.to_owned(), path: None, reader })
    }

    /// The plugin, if the filter decides with it.
    pub(super) fn of_filter(&self) -> Option<&AnyPlugin> {
        match &self.reader {
            PluginReader::Filter { plugin, .. } => Some(plugin),
            PluginReader::Agent(_) => None,
        }
    }

    /// The plugin, if the agent alone reads it.
    pub(super) fn of_agent(&self) -> Option<&AgentPlugin> {
        match &self.reader {
            PluginReader::Filter { .. } => None,
            PluginReader::Agent(plugin) => Some(plugin),
        }
    }

    /// `None`: the filter does not receive it.
    pub(super) fn on_the_wire(&self) -> Option<v1::Plugin> {
        match &self.reader {
            PluginReader::Filter { plugin, parameters } => Some(v1::Plugin {
                name: self.name.clone(),
                r#type: plugin.type_name().to_owned(),
                parameters: parameters.to_string(),
            }),
            PluginReader::Agent(_) => None,
        }
    }
}

impl PluginReader {
    /// Fills in the former paths of the plugin's parameters.
    fn read(
        type_name: &str,
        parameters: Json,
        path: &mut PluginPath,
        findings: &mut Findings,
    ) -> Result<Self, Invalid> {
        if AgentPlugin::types().any(|known| known == type_name) {
            let plugin = read_parameters_with(parameters, |it| AgentPlugin::read(type_name, it))?;
            plugin.check().map_err(Invalid::parameters)?;
            return Ok(Self::Agent(plugin));
        }
        let lowered = deprecated::lower(type_name, parameters, &path.to_string(), findings)?;
        let LoweredForm { type_name, parameters, former_paths } = lowered;
        path.former = former_paths;
        let plugin = read_parameters_with(parameters.clone(), |it| AnyPlugin::read(type_name, it))?;
        plugin.check().map_err(Invalid::parameters)?;
        Ok(Self::Filter { plugin: Box::new(plugin), parameters: without_nulls(parameters) })
    }

    fn is_alpha(&self) -> bool {
        match self {
            Self::Filter { plugin, .. } => plugin.is_alpha(),
            Self::Agent(_) => false,
        }
    }
}

/// The types that a document may name, in alphabetical order.
fn known_types() -> Vec<&'static str> {
    let mut types: Vec<&'static str> = TYPES.to_vec();
    types.extend(AgentPlugin::types());
    types.extend(deprecated::TYPES);
    types.sort_unstable();
    types
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_the_epp_are_read_with_their_levels_unless_they_are_refused() {
        let known = known_types();
        for release in crate::epp::Release::ALL {
            for it in types::of(release) {
                let is_read = known.contains(&deprecated::current_type(it.name));
                assert_eq!(is_read, !matches!(it.here, Here::Refused(_)), "{it:?}");
                if let Some(plugin) = Declared::by_type(it.name) {
                    let is_alpha = plugin.of_filter().is_some_and(|own| own.is_alpha());
                    let is_stricter = is_alpha && it.name == "header-based-testing-filter";
                    assert!(is_alpha == it.is_alpha || is_stricter, "{it:?}");
                }
            }
        }
    }
}
