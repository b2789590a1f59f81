//! `mm-embeddings-cache-scorer`: endpoints that were sent the request's images, videos and audio before.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::parameter::{MEDIA_PRODUCER, or_default};
use crate::plugin::{Need, NeedKind, Plugin, Roles, Scorer};

/// The share of the request's distinct items that the endpoint was sent; 0 for a request without items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MmEmbeddingsCacheScorer {
    /// Name of the `mm-embeddings-cache-producer`; empty: that of its type.
    producer_name: String,
}

impl MmEmbeddingsCacheScorer {
    fn producer(&self) -> &str {
        or_default(&self.producer_name, MEDIA_PRODUCER)
    }
}

impl Plugin for MmEmbeddingsCacheScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need { parameter: "producerName", name: self.producer(), kind: NeedKind::MediaProducer }]
    }
}

impl Scorer for MmEmbeddingsCacheScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let items = cycle.media.items.len();
        if items == 0 {
            return;
        }
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            *score = f64::from(cycle.media_matched(endpoint)) / items as f64;
        }
    }

    fn explain(&self, cycle: &Cycle<'_>, _: &[usize], endpoint: usize) -> Option<String> {
        let items = cycle.media.items.len();
        Some(format!("{} of {items} items sent before", cycle.media_matched(endpoint)))
    }
}
