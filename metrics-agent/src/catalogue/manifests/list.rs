//! Lists of objects, as `kubectl get -o yaml` and the API server write them.

use deserr::{Deserr, deserialize};
use serde_json::Value as Json;

use super::fault::{Fault, Faults};
use super::kinds::KINDS;

#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
struct List {
    #[deserr(rename = "apiVersion")]
    _api_version: String,
    #[deserr(rename = "kind")]
    _kind: String,
    /// The cluster's own; not looked at.
    #[deserr(default, rename = "metadata")]
    _metadata: Option<Json>,
    #[deserr(default)]
    items: Vec<Json>,
}

/// The objects of a list; `None` if the document is none.
///
/// `List` of `v1` holds objects of any kind. The list of one kind, such as `InferencePoolList`, may leave its items' version and
/// kind out, as the API server does.
pub(in crate::catalogue) fn items(document: &Json) -> Result<Option<Vec<Json>>, Faults> {
    let kind = match Kind::of(document) {
        Kind::NoList => return Ok(None),
        Kind::Mixed => None,
        Kind::Of(kind) => Some(kind),
    };
    let List { mut items, .. } = deserialize(document.clone())?;
    let mut faults = Faults::default();
    for (index, item) in items.iter_mut().enumerate() {
        if Kind::of(item) != Kind::NoList {
            faults
                .0
                .push(Fault::new(format!("items[{index}]"), "is a list within a list; allowed are objects"));
        }
        if let (Some(kind), Some(fields)) = (kind, item.as_object_mut()) {
            fields.entry("apiVersion").or_insert_with(|| document["apiVersion"].clone());
            fields.entry("kind").or_insert_with(|| kind.into());
        }
    }
    if faults.0.is_empty() { Ok(Some(items)) } else { Err(faults) }
}

/// Whether a document is a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    NoList,
    Mixed,
    /// Of objects of this kind.
    Of(&'static str),
}

impl Kind {
    fn of(document: &Json) -> Self {
        let Some(kind) = document.get("kind").and_then(Json::as_str) else { return Self::NoList };
        if kind == "List" && document.get("apiVersion").is_some_and(|version| version == "v1") {
            return Self::Mixed;
        }
        let items = kind.strip_suffix("List");
        let known = items.and_then(|items| KINDS.iter().find(|(known, _)| *known == items));
        known.map_or(Self::NoList, |&(known, _)| Self::Of(known))
    }
}
