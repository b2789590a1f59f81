//! `by-label`: the endpoints whose label has one of some values.

use serde::Deserialize;
use serde_json::{Value as Json, json};

/// The parameters of `by-label`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ByLabel {
    /// The label; required.
    label: String,
    /// The values; an endpoint without the label has the empty one.
    valid_values: Vec<String>,
    /// Keeps endpoints without the label too.
    allows_no_label: bool,
}

impl ByLabel {
    /// The parameters of `label-selector-filter`, whose operators cannot express "one of these values, or no label".
    pub(super) fn lower(self) -> Result<Json, String> {
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
