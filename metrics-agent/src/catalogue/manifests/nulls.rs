//! Removes nulls from documents.

use serde_json::Value as Json;

/// The field with a plugin's parameters. Its nulls stay, so that unknown names are refused when the plugin is read.
pub(crate) const PARAMETERS: &str = "parameters";

/// Removes fields that are null: as in Kubernetes, null means absent.
pub(super) fn without_nulls(value: Json) -> Json {
    without_nulls_outside("", value)
}

/// Removes fields that are null, except within fields named `skipped`.
pub(crate) fn without_nulls_outside(skipped: &str, value: Json) -> Json {
    match value {
        Json::Object(fields) => {
            let given = fields.into_iter().filter(|(_, value)| !value.is_null());
            let each = |(key, value): (String, Json)| {
                let value = if key == skipped { value } else { without_nulls_outside(skipped, value) };
                (key, value)
            };
            Json::Object(given.map(each).collect())
        }
        Json::Array(items) => {
            Json::Array(items.into_iter().map(|item| without_nulls_outside(skipped, item)).collect())
        }
        plain => plain,
    }
}
