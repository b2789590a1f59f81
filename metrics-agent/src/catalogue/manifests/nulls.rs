//! Nulls in documents.

use serde_json::Value as Json;

/// The field with a plugin's parameters, whose names are checked when they are read.
pub(super) const PARAMETERS: &str = "parameters";

/// As for Kubernetes, a field that is null is a field that is not there.
pub(super) fn without_nulls(value: Json) -> Json {
    without_nulls_outside("", value)
}

/// The same, but fields called `kept` stay as they are unless they are null themselves.
pub(super) fn without_nulls_outside(kept: &str, value: Json) -> Json {
    match value {
        Json::Object(fields) => {
            let given = fields.into_iter().filter(|(_, value)| !value.is_null());
            let each = |(key, value): (String, Json)| {
                let value = if key == kept { value } else { without_nulls_outside(kept, value) };
                (key, value)
            };
            Json::Object(given.map(each).collect())
        }
        Json::Array(items) => {
            Json::Array(items.into_iter().map(|item| without_nulls_outside(kept, item)).collect())
        }
        plain => plain,
    }
}
