//! Deprecated plugin types and parameters: they are lowered to the current ones, which alone the filter has.

mod by_label;
mod flat_parameters;
mod profile_handlers;

use serde_json::Value as Json;

use super::findings::Findings;
use super::parameters::{Invalid, read_parameters};
use by_label::ByLabel;
use profile_handlers::{DataParallelProfileHandler, PdProfileHandler};

/// Former names of types, with the current name. A plugin without a name of its own gets the current one.
const RENAMED_TYPES: [(&str, &str); 1] = [("tokenizer", "token-producer")];

/// Types that the EPP deprecates, with their replacement. A plugin without a name of its own keeps the deprecated one, because
/// profiles refer to it by that. The headers handlers have no effect.
const DEPRECATED_TYPES: [(&str, &str); 6] = [
    ("by-label", LABEL_SELECTOR_FILTER),
    ("by-label-selector", LABEL_SELECTOR_FILTER),
    ("data-parallel-profile-handler", SINGLE_PROFILE_HANDLER),
    ("disagg-headers-handler", DISAGG_PROFILE_HANDLER),
    ("pd-profile-handler", DISAGG_PROFILE_HANDLER),
    ("prefill-header-handler", DISAGG_PROFILE_HANDLER),
];

const DISAGG_PROFILE_HANDLER: &str = "disagg-profile-handler";
const LABEL_SELECTOR_FILTER: &str = "label-selector-filter";
const SINGLE_PROFILE_HANDLER: &str = "single-profile-handler";

/// Former names of parameters: type, former name, current name.
const RENAMED_PARAMETERS: [(&str, &str, &str); 1] =
    [("approx-prefix-cache-producer", "blockSize", "blockSizeTokens")];

/// Parameters that the filter has only for what deprecated types are lowered to: type, parameter. The EPP does not have them, so
/// a document with one is refused.
const INTERNAL_PARAMETERS: [(&str, &str); 4] = [
    (DISAGG_PROFILE_HANDLER, "prefixMatchInfoProducerName"),
    (DISAGG_PROFILE_HANDLER, "primaryPort"),
    (LABEL_SELECTOR_FILTER, "oneOf"),
    (SINGLE_PROFILE_HANDLER, "primaryPort"),
];

/// A plugin of the filter by its current type and parameters.
pub(super) struct Lowered<'a> {
    pub(super) type_name: &'a str,
    pub(super) parameters: Json,
    pub(super) former_paths: Vec<FormerPath>,
}

/// A parameter that the document has under another path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FormerPath {
    pub(super) current: String,
    pub(super) former: &'static str,
}

/// Types that are accepted although the filter does not have them.
pub(super) const TYPES: [&str; 4] =
    ["by-label", "by-label-selector", "data-parallel-profile-handler", "pd-profile-handler"];

/// The current name of a type. Warns if it is another, or if the EPP deprecates the type.
pub(super) fn current_type<'a>(given: &'a str, at: &str, findings: &mut Findings) -> &'a str {
    let renamed = find(&RENAMED_TYPES, given);
    if let Some(new) = renamed.or_else(|| find(&DEPRECATED_TYPES, given)) {
        findings.warn(format!("{at}.type"), format!("{given:?} is deprecated; use {new:?}"));
    }
    renamed.unwrap_or(given)
}

fn find(types: &[(&str, &'static str)], old: &str) -> Option<&'static str> {
    types.iter().find(|(name, _)| *name == old).map(|(_, new)| *new)
}

/// Lowers a plugin of the filter. Warns of deprecated parameters.
pub(super) fn lower<'a>(
    type_name: &'a str,
    parameters: Json,
    at: &str,
    findings: &mut Findings,
) -> Result<Lowered<'a>, Invalid> {
    let current = |type_name, parameters: Result<Json, String>| {
        let parameters = parameters.map_err(Invalid::parameters)?;
        Ok(Lowered { type_name, parameters, former_paths: Vec::new() })
    };
    match type_name {
        "by-label" => {
            let parameters = read_parameters::<ByLabel>(parameters)?;
            current(LABEL_SELECTOR_FILTER, parameters.lower())
        }
        "data-parallel-profile-handler" => {
            let parameters = read_parameters::<DataParallelProfileHandler>(parameters)?;
            current(SINGLE_PROFILE_HANDLER, parameters.lower())
        }
        "pd-profile-handler" => {
            let parameters = read_parameters::<PdProfileHandler>(parameters)?;
            let decider = FormerPath { current: "deciders.prefill".to_owned(), former: "deciderPluginName" };
            let lowered = current(DISAGG_PROFILE_HANDLER, parameters.lower())?;
            Ok(Lowered { former_paths: vec![decider], ..lowered })
        }
        "by-label-selector" => lower_parameters(LABEL_SELECTOR_FILTER, parameters, at, findings),
        _ => lower_parameters(type_name, parameters, at, findings),
    }
}

/// Lowers the parameters of a current type.
fn lower_parameters<'a>(
    type_name: &'a str,
    mut parameters: Json,
    at: &str,
    findings: &mut Findings,
) -> Result<Lowered<'a>, Invalid> {
    let mut former_paths = Vec::new();
    if let Json::Object(fields) = &mut parameters {
        for (_, internal) in INTERNAL_PARAMETERS.iter().filter(|(of, _)| *of == type_name) {
            if fields.contains_key(*internal) {
                let problem = format!("unknown field `{internal}`");
                return Err(Invalid { path: format!("parameters.{internal}"), problem });
            }
        }
        let mut warn = |former: &str, text: String| findings.warn(format!("{at}.parameters.{former}"), text);
        // Where both are set, the current one wins.
        for (_, old, new) in RENAMED_PARAMETERS.iter().filter(|(of, ..)| *of == type_name) {
            if let Some(value) = fields.remove(*old) {
                warn(old, format!("is deprecated; use {new}, which wins where both are set"));
                fields.entry(*new).or_insert(value);
            }
        }
        if type_name == DISAGG_PROFILE_HANDLER {
            former_paths = flat_parameters::lower(fields)?;
            for FormerPath { current, former } in &former_paths {
                warn(former, format!("is deprecated; use {current}"));
            }
        }
    }
    Ok(Lowered { type_name, parameters, former_paths })
}
