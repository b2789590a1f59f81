//! Paths in the document, for faults that are found in the filter's configuration.

use core::fmt;

use super::document::EndpointPickerConfig;

/// A parameter that the document has under another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormerPath {
    pub(super) current: String,
    pub(super) former: &'static str,
}

/// Differences between the paths of the document and of the filter's configuration.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// Whether the parser is given in the deprecated field.
    pub(super) has_deprecated_parser: bool,
    /// Whether the saturation detector is given in the deprecated field.
    pub(super) has_deprecated_detector: bool,
    /// The place of each plugin that the filter has; `None`: it is not declared.
    pub(super) plugins: Vec<Option<PluginPath>>,
    /// The same for each profile and the plugins that it refers to.
    pub(super) profiles: Vec<Vec<usize>>,
}

impl Paths {
    pub(super) fn of(config: &EndpointPickerConfig) -> Self {
        let parsers = config.request_handler.as_ref().map_or(&[][..], |handler| &handler.parsers);
        let detector = config.flow_control.as_ref().and_then(|control| control.saturation_detector.as_ref());
        Self {
            has_deprecated_parser: parsers.is_empty(),
            has_deprecated_detector: detector.is_none(),
            ..Self::default()
        }
    }

    /// The document's path of a path in the filter's configuration.
    pub(super) fn in_document(&self, at: &str) -> String {
        if self.has_deprecated_detector && at.starts_with("flowControl.saturationDetector.") {
            return at.replacen("flowControl.", "", 1);
        }
        if self.has_deprecated_parser && at.starts_with("requestHandler.parsers[0].") {
            return at.replacen("requestHandler.parsers[0].", "parser.", 1);
        }
        self.moved(at).unwrap_or_else(|| at.to_owned())
    }

    /// The path with the document's indexes in place of the configuration's.
    fn moved(&self, at: &str) -> Option<String> {
        if let Some((index, rest)) = split_index(at, "plugins[") {
            let plugin = self.plugins.get(index)?.as_ref()?;
            let parameter = rest.strip_prefix(PARAMETERS).map(|parameter| plugin.parameter(parameter));
            return Some(parameter.unwrap_or_else(|| format!("{plugin}{rest}")));
        }
        let (profile, rest) = split_index(at, "schedulingProfiles[")?;
        let (index, rest) = split_index(rest, ".plugins[")?;
        let index = self.profiles.get(profile)?.get(index)?;
        Some(format!("schedulingProfiles[{profile}].plugins[{index}]{rest}"))
    }
}

/// The place of a plugin in the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PluginPath {
    pub(super) index: usize,
    /// Its parameters that have another path in the filter's configuration.
    pub(super) former: Vec<FormerPath>,
}

/// The part of a path between a plugin and its parameter.
const PARAMETERS: &str = ".parameters.";

impl PluginPath {
    /// The path of a parameter, given its path in the parameters that the filter has; of all of them, if that
    /// is empty.
    pub(super) fn parameter(&self, current: &str) -> String {
        let renamed = self.former.iter().find(|path| path.current == current);
        match renamed.map_or(current, |path| path.former) {
            "" => format!("{self}.parameters"),
            parameter => format!("{self}{PARAMETERS}{parameter}"),
        }
    }
}

impl fmt::Display for PluginPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plugins[{}]", self.index)
    }
}

/// The index after `list`, and the text after its closing bracket.
fn split_index<'a>(at: &'a str, list: &str) -> Option<(usize, &'a str)> {
    let (index, rest) = at.strip_prefix(list)?.split_once(']')?;
    Some((index.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(index: usize) -> PluginPath {
        PluginPath { index, former: Vec::new() }
    }

    #[test]
    fn indexes_are_those_of_the_document() {
        let paths = Paths {
            plugins: vec![Some(plugin(1)), Some(plugin(4)), None],
            profiles: vec![vec![0], vec![2]],
            ..Paths::default()
        };
        for (compiled, expected) in [
            ("plugins[1].parameters", "plugins[4].parameters"),
            ("plugins[2]", "plugins[2]"),
            ("plugins", "plugins"),
            ("schedulingProfiles[1].plugins[0].pluginRef", "schedulingProfiles[1].plugins[2].pluginRef"),
            ("schedulingProfiles[1].plugins[0]", "schedulingProfiles[1].plugins[2]"),
            ("schedulingProfiles[1].name", "schedulingProfiles[1].name"),
            ("requestHandler.parsers[0].pluginRef", "requestHandler.parsers[0].pluginRef"),
        ] {
            assert_eq!(paths.in_document(compiled), expected);
        }
    }

    #[test]
    fn lowered_parameters_have_the_paths_of_the_document() {
        let former = vec![FormerPath { current: "profiles.decode".to_owned(), former: "decodeProfile" }];
        let paths = Paths { plugins: vec![Some(PluginPath { former, ..plugin(3) })], ..Paths::default() };
        for (compiled, expected) in [
            ("plugins[0].parameters.profiles.decode", "plugins[3].parameters.decodeProfile"),
            ("plugins[0].parameters.profiles.encode", "plugins[3].parameters.profiles.encode"),
            ("plugins[0].parameters", "plugins[3].parameters"),
            ("plugins[0].name", "plugins[3].name"),
        ] {
            assert_eq!(paths.in_document(compiled), expected);
        }
    }

    #[test]
    fn deprecated_fields_have_their_own_paths() {
        let paths = Paths { has_deprecated_parser: true, has_deprecated_detector: true, ..Paths::default() };
        assert_eq!(paths.in_document("requestHandler.parsers[0].pluginRef"), "parser.pluginRef");
        let detector = paths.in_document("flowControl.saturationDetector.pluginRef");
        assert_eq!(detector, "saturationDetector.pluginRef");
    }
}
