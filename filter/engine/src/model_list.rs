//! The merged list of the models of several pools, as a response to `GET /v1/models`.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use endpoint_picker::headers::Headers;
use endpoint_picker::request::body::request_path;
use serde::Serialize;

use crate::pool_view::PoolView;

/// Maximum number of models in a list. Of more, those with the first names are listed.
const MAX_MODELS: usize = 4096;

/// Age from which a list is made again.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The list of the models of several pools.
#[derive(Debug, Default)]
pub struct ModelList {
    /// The response's body, and when it was made.
    made: Option<(Arc<[u8]>, Duration)>,
}

/// A list in the form of OpenAI's API.
#[derive(Serialize)]
struct ModelListBody<'a> {
    object: &'static str,
    data: Vec<ModelEntry<'a>>,
}

#[derive(Serialize)]
struct ModelEntry<'a> {
    id: &'a str,
    object: &'static str,
    /// Clients require the field. Servers give the time of their response, by which lists of several proxies
    /// would differ.
    created: u64,
    owned_by: &'static str,
}

impl ModelList {
    /// Whether a request without a body asks for the list: `GET /v1/models`, with any query.
    pub fn is_requested(headers: Headers<'_>) -> bool {
        let is_path = || request_path(headers.get(":path"), headers) == "/v1/models";
        headers.get(":method") == Some("GET") && is_path()
    }

    /// The list in JSON, at most a second old: the models that clients may name, of these pools, by name.
    /// `None`: no pool has a snapshot.
    pub fn json(&mut self, now: Duration, views: impl FnOnce() -> Vec<Arc<PoolView>>) -> Option<Arc<[u8]>> {
        let is_new = |(_, made): &(_, Duration)| now.saturating_sub(*made) < MAX_AGE;
        if !self.made.as_ref().is_some_and(is_new) {
            self.made = merged(&views()).map(|json| (json, now));
        }
        self.made.as_ref().map(|(json, _)| Arc::clone(json))
    }
}

/// The list of the pools that have a snapshot.
fn merged(views: &[Arc<PoolView>]) -> Option<Arc<[u8]>> {
    let known: Vec<_> = views.iter().filter(|view| view.versions().is_some()).collect();
    if known.is_empty() {
        return None;
    }
    let names: BTreeSet<&str> = known
        .iter()
        .flat_map(|view| {
            let lists = view.readings().iter().filter_map(|reading| reading.models.as_deref());
            view.policy().listed_models(lists.flatten().map(|model| &*model.id))
        })
        .collect();
    let model = |id| ModelEntry { id, object: "model", created: 0, owned_by: "endpoint-picker" };
    let data = names.into_iter().take(MAX_MODELS).map(model).collect();
    serde_json::to_vec(&ModelListBody { object: "list", data }).ok().map(Arc::from)
}
