//! The flat parameters of `disagg-profile-handler`, from before it had `profiles` and `deciders`.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use super::FormerPath;
use crate::catalogue::manifests::picker::parameters::{Invalid, read_parameters};

/// Each flat parameter, and the object and its field that take its place. Of two with the same place the first one counts.
const PLACES: [(&str, &str, &str); 6] = [
    ("decodeProfile", "profiles", "decode"),
    ("prefillProfile", "profiles", "prefill"),
    ("encodeProfile", "profiles", "encode"),
    ("prefillDeciderPluginName", "deciders", "prefill"),
    ("deciderPluginName", "deciders", "prefill"),
    ("encodeDeciderPluginName", "deciders", "encode"),
];

/// Moves flat parameters to their places. Returns the former paths of those moved.
pub(super) fn lower(parameters: &mut Map<String, Json>) -> Result<Vec<FormerPath>, Invalid> {
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
