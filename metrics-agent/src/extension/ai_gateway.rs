//! The external processor that Envoy AI Gateway's extension server, called before ours, writes for a pool, and that leads to the pool's EPP.
//! The filter takes its place. Everything else of Envoy AI Gateway stays.

use std::collections::BTreeSet;

use super::wire::{Builder, Field, Malformed, Message};

/// The processors of pools that the filter picks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Processors {
    filters: BTreeSet<String>,
    clusters: BTreeSet<String>,
}

impl Processors {
    /// Adds the one of a pool, `namespace/name`.
    pub(super) fn insert(&mut self, pool: &str) {
        let Some((namespace, name)) = pool.split_once('/') else { return };
        self.filters
            .insert(format!("envoy.filters.http.ext_proc/endpointpicker/{name}_{namespace}_ext_proc"));
        self.clusters.insert(format!("envoy.clusters.endpointpicker_{name}_{namespace}_ext_proc"));
    }

    /// Whether a cluster leads to one of the EPPs.
    pub(super) fn has_cluster(&self, name: &str) -> bool {
        self.clusters.contains(name)
    }

    /// Whether a filter, or an entry of settings by filter, is of one of the processors. Its name is field 1.
    pub(super) fn is_named(&self, field: &Field<'_>) -> Result<bool, Malformed> {
        let message = Message::read(field.value.bytes())?;
        Ok(message.text(1).is_some_and(|name| self.filters.contains(name)))
    }

    /// The message without the processors' entries in its field of settings by filter; `None`: it has none.
    pub(super) fn without_settings(&self, bytes: &[u8], settings: u32) -> Result<Option<Vec<u8>>, Malformed> {
        let message = Message::read(bytes)?;
        let mut edited = Builder::default();
        let mut is_edited = false;
        for field in message.fields() {
            if field.number == settings && self.is_named(field)? {
                is_edited = true;
            } else {
                edited.copy(field);
            }
        }
        Ok(is_edited.then(|| edited.into_bytes()))
    }
}
