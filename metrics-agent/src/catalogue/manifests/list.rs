//! Lists of objects, as written by `kubectl get -o yaml` and the API server.

use deserr::{Deserr, deserialize};
use serde_json::Value as Json;

use super::fault::{Fault, Faults};
use super::kinds::Kind;

#[derive(Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
struct List {
    #[deserr(rename = "apiVersion")]
    _api_version: String,
    #[deserr(rename = "kind")]
    _kind: String,
    /// Written by the cluster; not used.
    #[deserr(default, rename = "metadata")]
    _metadata: Option<Json>,
    #[deserr(default)]
    items: Vec<Json>,
}

/// The objects of a list; `None`: the document is not a list.
///
/// A `List` of `v1` has objects of any kind. In a list of one kind, such as `InferencePoolList`, items may lack version and kind, as
/// the API server writes it.
pub(crate) fn items(document: &Json) -> Result<Option<Vec<Json>>, Faults> {
    let kind = match ListKind::of(document) {
        ListKind::NotAList => return Ok(None),
        ListKind::Mixed => None,
        ListKind::Of(kind) => Some(kind),
    };
    let List { mut items, .. } = deserialize(document.clone())?;
    let mut faults = Faults::default();
    for (index, item) in items.iter_mut().enumerate() {
        if ListKind::of(item) != ListKind::NotAList {
            faults
                .0
                .push(Fault::new(format!("items[{index}]"), "is a list within a list; allowed are objects"));
        }
        if let (Some(kind), Some(fields)) = (kind, item.as_object_mut()) {
            fields.entry("apiVersion").or_insert_with(|| document["apiVersion"].clone());
            fields.entry("kind").or_insert_with(|| kind.name().into());
        }
    }
    if faults.0.is_empty() { Ok(Some(items)) } else { Err(faults) }
}

/// Whether a document is a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ListKind {
    NotAList,
    Mixed,
    /// A list of objects of this kind.
    Of(Kind),
}

impl ListKind {
    fn of(document: &Json) -> Self {
        let Some(kind) = document.get("kind").and_then(Json::as_str) else { return Self::NotAList };
        if kind == "List" && document.get("apiVersion").is_some_and(|version| version == "v1") {
            return Self::Mixed;
        }
        kind.strip_suffix("List").and_then(Kind::by_name).map_or(Self::NotAList, Self::Of)
    }
}
