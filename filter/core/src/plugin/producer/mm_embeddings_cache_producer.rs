//! `mm-embeddings-cache-producer`: the endpoints that were sent the images, videos and audio of a request.

use std::sync::Arc;

use serde::Deserialize;

use crate::decision::Records;
use crate::input::cycle::Cycle;
use crate::plugin::{Plugin, Recorder, Roles, Routed};
use crate::state::{MediaItems, PluginState};

/// Remembers which items of content the servers were sent, and so hold the embeddings of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MmEmbeddingsCacheProducer {
    /// MiB of a server's cache of embeddings, of 2 MiB each; 0 and less count as 4096.
    #[serde(rename = "cacheSizeInMBPerServer")]
    cache_size_in_mb_per_server: i64,
    /// The same, as the EPP's own sample writes it.
    #[serde(rename = "cacheSizeInMB")]
    cache_size_in_mb: i64,
}

const DEFAULT_MIB: u64 = 4096;

/// MiB that the embedding of one item takes, by the EPP's estimate.
const MIB_PER_ITEM: u64 = 2;

impl MmEmbeddingsCacheProducer {
    /// Items remembered for each endpoint.
    fn capacity(&self) -> usize {
        let given =
            [self.cache_size_in_mb_per_server, self.cache_size_in_mb].into_iter().find(|mib| *mib > 0);
        let mib = given.map_or(DEFAULT_MIB, i64::unsigned_abs);
        usize::try_from(mib / MIB_PER_ITEM).unwrap_or(usize::MAX).max(1)
    }
}

impl Plugin for MmEmbeddingsCacheProducer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { media_cache: Some(self.clone()), recorder: Some(self), ..Roles::default() }
    }

    fn warnings(&self) -> Vec<String> {
        let warning =
            "cacheSizeInMB is read as cacheSizeInMBPerServer; the EPP has it in a sample and refuses it";
        (self.cache_size_in_mb != 0).then(|| warning.to_owned()).into_iter().collect()
    }
}

impl Recorder for MmEmbeddingsCacheProducer {
    fn new_state(&self) -> Option<Box<dyn PluginState>> {
        Some(Box::new(MediaItems::default()))
    }

    /// Remembers the items at the destination when the request is routed. The EPP remembers them at all
    /// endpoints of the list; those after the first one are for retries here.
    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>, records: &mut Records) {
        let (Some(state), Some(&picked)) = (cycle.state::<MediaItems>(), routed.primary.picked.first())
        else {
            return;
        };
        let items = cycle.media.items.iter().copied();
        let items: Vec<u64> = items.filter(|&item| !state.is_fresh(picked, item)).collect();
        if !items.is_empty() {
            records.changes.push(cycle.state_change(picked, MediaItems::words(self.capacity(), &items)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;
    use serde_json::json;

    /// Example of `mm-embeddings-cache-producer`.
    #[test]
    fn a_cache_holds_an_item_for_two_mebibytes() {
        let capacity = |parameters| {
            let producer: MmEmbeddingsCacheProducer = serde_json::from_value(parameters).unwrap();
            (producer.capacity(), producer.warnings().len())
        };
        assert_eq!(capacity(json!({})), (2048, 0));
        assert_eq!(capacity(json!({"cacheSizeInMBPerServer": 100})), (50, 0));
        assert_eq!(capacity(json!({"cacheSizeInMBPerServer": 1})), (1, 0));
        assert_eq!(capacity(json!({"cacheSizeInMBPerServer": -5})), (2048, 0));
        assert_eq!(capacity(json!({"cacheSizeInMB": 2048})), (1024, 1));
    }
}
