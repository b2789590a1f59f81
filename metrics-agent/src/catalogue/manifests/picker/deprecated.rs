//! Deprecated spellings of plugin types and parameters, and their current ones.

use serde_json::Value as Json;

use super::findings::Findings;

/// Former names of types, with the current name. A plugin without a name of its own gets the current one.
const RENAMED_TYPES: [(&str, &str); 1] = [("tokenizer", "token-producer")];

/// Types whose rule the filter has under another type, which takes the same parameters. A plugin without a name of its own keeps
/// the deprecated one, because profiles refer to it by that.
const EQUIVALENT_TYPES: [(&str, &str); 1] = [("by-label-selector", "label-selector-filter")];

/// Types that the EPP deprecates, with their replacement.
///
/// Those that are not in [`EQUIVALENT_TYPES`] differ from it and keep a rule of their own: a selector cannot express "one of
/// these values, or no label" as `by-label` does, and of the handlers only the deprecated ones have a `primaryPort`. The headers
/// handlers have no effect.
const DEPRECATED_TYPES: [(&str, &str); 6] = [
    ("by-label", "label-selector-filter"),
    ("by-label-selector", "label-selector-filter"),
    ("data-parallel-profile-handler", "single-profile-handler"),
    ("disagg-headers-handler", "disagg-profile-handler"),
    ("pd-profile-handler", "disagg-profile-handler"),
    ("prefill-header-handler", "disagg-profile-handler"),
];

/// Former names of parameters: type, former name, current name.
const RENAMED_PARAMETERS: [(&str, &str, &str); 1] =
    [("approx-prefix-cache-producer", "blockSize", "blockSizeTokens")];

/// Types that are accepted although the filter has no rule of this name.
pub(super) fn accepted_types() -> impl Iterator<Item = &'static str> {
    EQUIVALENT_TYPES.iter().map(|(old, _)| *old)
}

/// The current name of a type. Warns if it is another, or if the EPP deprecates the type.
pub(super) fn current_type<'a>(given: &'a str, at: &str, findings: &mut Findings) -> &'a str {
    let renamed = find(&RENAMED_TYPES, given);
    if let Some(new) = renamed.or_else(|| find(&DEPRECATED_TYPES, given)) {
        findings.warn(format!("{at}.type"), format!("{given:?} is deprecated; use {new:?}"));
    }
    renamed.unwrap_or(given)
}

/// The type under which the filter has the rule.
pub(super) fn equivalent_type(type_name: &str) -> &str {
    find(&EQUIVALENT_TYPES, type_name).unwrap_or(type_name)
}

fn find(types: &[(&str, &'static str)], old: &str) -> Option<&'static str> {
    types.iter().find(|(name, _)| *name == old).map(|(_, new)| *new)
}

/// Parameters under their current names. Where both are set, the current one wins.
pub(super) fn current_parameters(
    type_name: &str,
    at: &str,
    mut parameters: Json,
    findings: &mut Findings,
) -> Json {
    let Some(fields) = parameters.as_object_mut() else { return parameters };
    for (_, old, new) in RENAMED_PARAMETERS.iter().filter(|(of, ..)| *of == type_name) {
        if let Some(value) = fields.remove(*old) {
            let text = format!("is deprecated; use {new}, which wins where both are set");
            findings.warn(format!("{at}.parameters.{old}"), text);
            fields.entry(*new).or_insert(value);
        }
    }
    parameters
}
