//! `envoy.yaml` with the differences that the file of an example lists.

use super::document::read;
use anyhow::{Context, Result, ensure};
use json_patch::PatchOperation;
use jsonpath_rust::JsonPath;
use jsonpath_rust::query::queryable::Queryable;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;
use std::slice;

/// The configuration that examples differ from.
const BASE: &str = "envoy.yaml";
/// The file of an example that lists its differences.
pub(super) const DIFFERENCES: &str = "differences.yaml";

/// One step from `envoy.yaml` to an example: an operation of JSON Patch (RFC 6902) whose `path` and `from`
/// begin at the one place that `jsonPath` (RFC 9535) finds.
#[derive(Debug, Deserialize)]
struct Difference {
    #[serde(rename = "jsonPath")]
    place: String,
    #[serde(flatten)]
    operation: PatchOperation,
}

impl Difference {
    fn apply(&self, document: &mut Value) -> Result<()> {
        let places = document.query_only_path(&self.place)?;
        ensure!(places.len() == 1, "the path finds {} places, expected one", places.len());
        let place = places.first().and_then(|place| document.reference_mut(place.as_str()));
        json_patch::patch(place.context("the path finds nothing")?, slice::from_ref(&self.operation))?;
        Ok(())
    }
}

/// The example of this folder, for the wasm filter.
pub(super) fn merged(folder: &str) -> Result<Value> {
    let file = Path::new(folder).join(DIFFERENCES);
    let differences: Vec<Difference> = read(&file)?;
    let mut document = read(Path::new(BASE))?;
    for (index, difference) in differences.iter().enumerate() {
        let place = || format!("{}: operation {}, {}", file.display(), index + 1, difference.place);
        difference.apply(&mut document).with_context(place)?;
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn applied(difference: &Value, mut document: Value) -> Result<Value> {
        let difference: Difference = serde_json::from_value(difference.clone())?;
        difference.apply(&mut document).map(|()| document)
    }

    #[test]
    fn an_operation_begins_at_the_place_that_its_path_finds() {
        let document = json!({"clusters": [{"name": "a"}, {"name": "b"}]});
        let add =
            json!({"op": "add", "jsonPath": "$..clusters[?@.name=='b']", "path": "/type", "value": "EDS"});
        let changed = applied(&add, document.clone()).unwrap();
        assert_eq!(changed, json!({"clusters": [{"name": "a"}, {"name": "b", "type": "EDS"}]}));
        let copy = json!({"op": "copy", "jsonPath": "$.clusters", "from": "/1", "path": "/0"});
        let changed = applied(&copy, document).unwrap();
        assert_eq!(changed, json!({"clusters": [{"name": "b"}, {"name": "a"}, {"name": "b"}]}));
    }

    #[test]
    fn a_path_that_finds_no_place_or_two_is_an_error() {
        let document = json!({"clusters": [{"name": "a"}, {"name": "b"}]});
        for (path, error) in
            [("$..clusters[?@.name=='c']", "finds 0 places"), ("$..clusters[*]", "finds 2 places")]
        {
            let remove = json!({"op": "remove", "jsonPath": path, "path": "/name"});
            let message = applied(&remove, document.clone()).unwrap_err().to_string();
            assert!(message.contains(error), "{message}");
        }
        let replace = json!({"op": "replace", "jsonPath": "$", "path": "/listeners", "value": []});
        applied(&replace, document).unwrap_err();
    }
}
