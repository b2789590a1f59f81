//! Plugin types and parameters that the filter does not have, most of them deprecated: they are lowered to
//! types and parameters that it has.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::Findings;
use super::observed_latency::{self, LatencyObservationScorer, LatencyObserver};
use super::parameters::{Invalid, read_parameters};
use super::paths::FormerPath;

/// Former names of types, with the current name. A plugin without a name of its own gets the current one.
const RENAMED_TYPES: [(&str, &str); 1] = [("tokenizer", "token-producer")];

const DISAGG_PROFILE_HANDLER: &str = "disagg-profile-handler";
const LABEL_SELECTOR_FILTER: &str = "label-selector-filter";
const SINGLE_PROFILE_HANDLER: &str = "single-profile-handler";

/// Former names of parameters: type, former name, current name.
const RENAMED_PARAMETERS: [(&str, &str, &str); 1] =
    [("approx-prefix-cache-producer", "blockSize", "blockSizeTokens")];

/// Parameters that the filter has only because deprecated types are lowered to them: type, parameter. The EPP
/// does not have them, so a document with one is refused.
const INTERNAL_PARAMETERS: [(&str, &str); 4] = [
    (DISAGG_PROFILE_HANDLER, "prefixMatchInfoProducerName"),
    (DISAGG_PROFILE_HANDLER, "primaryPort"),
    (LABEL_SELECTOR_FILTER, "oneOf"),
    (SINGLE_PROFILE_HANDLER, "primaryPort"),
];

/// A plugin of the filter by its current type and parameters.
pub(super) struct LoweredForm<'a> {
    pub(super) type_name: &'a str,
    pub(super) parameters: Json,
    pub(super) former_paths: Vec<FormerPath>,
}

/// Types that are accepted although the filter does not have them. A plugin without a name of its own keeps
/// its type's, because profiles refer to it by that name.
pub(super) const TYPES: [&str; 9] = [
    "by-label",
    "by-label-selector",
    "data-parallel-profile-handler",
    observed_latency::SCORER,
    observed_latency::OBSERVER,
    "multicluster-approx-prefix-cache-producer",
    "multicluster-prefix-cache-scorer",
    "multicluster-session-affinity-filter",
    "pd-profile-handler",
];

/// The current name of a type.
pub(super) fn current_type(given: &str) -> &str {
    RENAMED_TYPES.iter().find(|(former, _)| *former == given).map_or(given, |(_, current)| current)
}

/// Lowers a plugin of the filter. Warns of deprecated parameters.
pub(super) fn lower<'a>(
    type_name: &'a str,
    parameters: Json,
    at: &str,
    findings: &mut Findings,
) -> Result<LoweredForm<'a>, Invalid> {
    let current = |type_name, parameters: Result<Json, String>| {
        let parameters = parameters.map_err(Invalid::parameters)?;
        Ok(LoweredForm { type_name, parameters, former_paths: Vec::new() })
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
            Ok(LoweredForm { former_paths: vec![decider], ..lowered })
        }
        observed_latency::OBSERVER => {
            let parameters = read_parameters::<LatencyObserver>(parameters)?;
            current(observed_latency::PREDICTOR, parameters.lower())
        }
        observed_latency::SCORER => {
            let parameters = read_parameters::<LatencyObservationScorer>(parameters)?;
            let observer = FormerPath {
                current: "latencyPredictionInfoProducerName".to_owned(),
                former: "ttftPercentilesProducerName",
            };
            let lowered = current("latency-scorer", parameters.lower())?;
            Ok(LoweredForm { former_paths: vec![observer], ..lowered })
        }
        "by-label-selector" => lower_parameters(LABEL_SELECTOR_FILTER, parameters, at, findings),
        // The types of a hub of clusters that are those of a pool under another name.
        _ => {
            let type_name = type_name.strip_prefix("multicluster-").unwrap_or(type_name);
            lower_parameters(type_name, parameters, at, findings)
        }
    }
}

/// Lowers the parameters of a current type.
fn lower_parameters<'a>(
    type_name: &'a str,
    mut parameters: Json,
    at: &str,
    findings: &mut Findings,
) -> Result<LoweredForm<'a>, Invalid> {
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
            former_paths = lower_flat(fields)?;
            for FormerPath { current, former } in &former_paths {
                warn(former, format!("is deprecated; use {current}"));
            }
        }
    }
    Ok(LoweredForm { type_name, parameters, former_paths })
}

/// The parameters of `by-label`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct ByLabel {
    /// The label; required.
    label: String,
    /// The values; an endpoint without the label has the empty value.
    valid_values: Vec<String>,
    /// Keeps endpoints without the label too.
    allows_no_label: bool,
}

impl ByLabel {
    /// The parameters of `label-selector-filter`, whose operators cannot express "one of these values, or no
    /// label".
    fn lower(self) -> Result<Json, String> {
        let Self { label, valid_values, allows_no_label } = self;
        if label.is_empty() {
            return Err("label is empty; a label's name is needed".to_owned());
        }
        if valid_values.is_empty() && !allows_no_label {
            return Err("validValues is empty; name one, or set allowsNoLabel".to_owned());
        }
        let allows_no_label = allows_no_label || valid_values.iter().any(String::is_empty);
        Ok(json!({"oneOf": {"label": label, "values": valid_values, "allowsNoLabel": allows_no_label}}))
    }
}

/// Each flat parameter, and the object and its field that take its place. Of two parameters with the same
/// place the first counts.
const PLACES: [(&str, &str, &str); 6] = [
    ("decodeProfile", "profiles", "decode"),
    ("prefillProfile", "profiles", "prefill"),
    ("encodeProfile", "profiles", "encode"),
    ("prefillDeciderPluginName", "deciders", "prefill"),
    ("deciderPluginName", "deciders", "prefill"),
    ("encodeDeciderPluginName", "deciders", "encode"),
];

/// Moves flat parameters to their places. Returns the former paths of those moved.
fn lower_flat(parameters: &mut Map<String, Json>) -> Result<Vec<FormerPath>, Invalid> {
    let flat = PLACES.iter().filter_map(|(flat, ..)| parameters.remove_entry(*flat)).collect();
    let flat: BTreeMap<String, Option<String>> = read_parameters(Json::Object(flat))?;
    let mut moved: Vec<FormerPath> = Vec::new();
    for (former, object, field) in PLACES {
        let name = flat.get(former).and_then(Option::as_deref).unwrap_or_default();
        let current = format!("{object}.{field}");
        if name.is_empty() || moved.iter().any(|path| path.current == current) {
            continue;
        }
        if moved.is_empty() && (has_names(parameters, "profiles") || has_names(parameters, "deciders")) {
            let problem = format!("{former} is deprecated and does not go with profiles and deciders");
            return Err(Invalid::parameters(problem));
        }
        match parameters.get_mut(object) {
            Some(Json::Object(fields)) => drop(fields.insert(field.to_owned(), Json::from(name))),
            _ => drop(parameters.insert(object.to_owned(), json!({field: name}))),
        }
        moved.push(FormerPath { current, former });
    }
    Ok(moved)
}

/// Whether a name is given in this object.
fn has_names(parameters: &Map<String, Json>, object: &str) -> bool {
    match parameters.get(object) {
        None | Some(Json::Null) => false,
        Some(Json::Object(fields)) => fields.values().any(|name| !name.is_null() && name != ""),
        Some(_) => true,
    }
}

/// The port of `data-parallel-profile-handler` where none is given.
const DEFAULT_PRIMARY_PORT: u16 = 8000;

/// The parameters of `data-parallel-profile-handler`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct DataParallelProfileHandler {
    /// 0 counts as 8000.
    primary_port: u32,
}

impl DataParallelProfileHandler {
    /// The parameters of `single-profile-handler`.
    fn lower(self) -> Result<Json, String> {
        Ok(json!({"primaryPort": port(self.primary_port)?.unwrap_or(DEFAULT_PRIMARY_PORT)}))
    }
}

/// The parameters of `pd-profile-handler`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct PdProfileHandler {
    /// Empty: `decode`.
    decode_profile: String,
    /// Empty: `prefill`.
    prefill_profile: String,
    /// Empty: `prefix-based-pd-decider`.
    decider_plugin_name: String,
    /// 0: ranks are sent their requests themselves.
    primary_port: u32,
    /// The prefix producer that has to be there; empty: the default one.
    prefix_match_info_producer_name: String,
    /// Accepted, without effect.
    #[serde(rename = "prefixPluginType")]
    _prefix_plugin_type: String,
    /// Accepted, without effect.
    #[serde(rename = "prefixPluginName")]
    _prefix_plugin_name: String,
}

impl PdProfileHandler {
    /// The parameters of `disagg-profile-handler`.
    fn lower(self) -> Result<Json, String> {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let decider = given(self.decider_plugin_name);
        Ok(json!({
            "profiles": {"decode": given(self.decode_profile), "prefill": given(self.prefill_profile)},
            "deciders": {"prefill": decider.as_deref().unwrap_or("prefix-based-pd-decider")},
            "primaryPort": port(self.primary_port)?,
            "prefixMatchInfoProducerName": given(self.prefix_match_info_producer_name),
        }))
    }
}

/// A TCP port; `None` for 0.
fn port(configured: u32) -> Result<Option<u16>, String> {
    let port = u16::try_from(configured);
    let port = port.map_err(|_| format!("primaryPort is {configured}; allowed is 0 to 65535"))?;
    Ok(Some(port).filter(|&port| port > 0))
}
