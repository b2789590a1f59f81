//! The external processor that Envoy AI Gateway's extension server, called before ours, writes for a pool,
//! and that leads to the pool's EPP. The filter takes its place. Everything else of Envoy AI Gateway stays.
//!
//! Called after ours, that server would insert the processor behind our back, and its own filter, which finds
//! the route by the model, behind the picker. Then requests to pools are refused with the reason.

use std::collections::BTreeSet;

use bytes::Bytes;
use metrics_agent_status::extension::WRONG_ORDER;
use prost::Message as _;
use prost_types::Struct;

use super::route_metadata;
use super::wire::{Builder, Field, Malformed, WireMessage};

/// The key in `filter_metadata` under which that server marks a route to a pool in its first hook, and the
/// field of a pool. By this mark it makes the processor in its last hook.
const MARK: &str = "aigateway.envoy.io";
const MARKED_POOL: &str = "per_route_rule_inference_pool";

/// Fields of `Route`: `route` = 2, which forwards, and `direct_response` = 7.
const ROUTE_ACTION: u32 = 2;
const DIRECT_RESPONSE: u32 = 7;

/// The processors of pools that the filter picks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Processors {
    filters: BTreeSet<String>,
    clusters: BTreeSet<String>,
    /// Whether Envoy AI Gateway's server has marked a route to one of the pools.
    is_marked: bool,
}

/// The route with a response in place of its forwarding, and without the mark.
pub(super) fn refused(route: &WireMessage<'_>) -> Result<Builder, Malformed> {
    // DirectResponseAction: status = 1, body = 2, which is a DataSource: inline_string = 3.
    let response = Builder::default().number(1, 503).bytes(2, Builder::default().bytes(3, WRONG_ORDER));
    Ok(route_metadata::without(route, &[ROUTE_ACTION], MARK)?.bytes(DIRECT_RESPONSE, response))
}

impl Processors {
    /// Adds the one of a pool, `namespace/name`, that a route leads to.
    pub(super) fn insert(&mut self, pool: &str, route: &WireMessage<'_>) -> Result<(), Malformed> {
        let Some((namespace, name)) = pool.split_once('/') else { return Ok(()) };
        self.filters
            .insert(format!("envoy.filters.http.ext_proc/endpointpicker/{name}_{namespace}_ext_proc"));
        self.clusters.insert(format!("envoy.clusters.endpointpicker_{name}_{namespace}_ext_proc"));
        if let Some(mark) = route_metadata::find(route, MARK)? {
            let mark = Struct::decode(&*mark).map_err(|_| Malformed)?;
            self.is_marked |= mark.fields.contains_key(MARKED_POOL);
        }
        Ok(())
    }

    /// Whether Envoy AI Gateway's server will make them after this hook: it has marked routes, and none of
    /// the processors' clusters is among `clusters`. Without any cluster, Envoy Gateway passes none on.
    pub(super) fn are_missing(&self, clusters: &[Bytes]) -> bool {
        let is_made = |cluster: &Bytes| {
            let message = WireMessage::read(cluster).ok();
            message.and_then(|message| message.text(1)).is_some_and(|name| self.has_cluster(name))
        };
        self.is_marked && !clusters.is_empty() && !clusters.iter().any(is_made)
    }

    /// Whether a cluster leads to one of the EPPs.
    pub(super) fn has_cluster(&self, name: &str) -> bool {
        self.clusters.contains(name)
    }

    /// Whether a filter, or an entry of settings by filter, is of one of the processors. Its name is field 1.
    pub(super) fn is_named(&self, field: &Field<'_>) -> Result<bool, Malformed> {
        let message = WireMessage::read(field.bytes())?;
        Ok(message.text(1).is_some_and(|name| self.filters.contains(name)))
    }

    /// The message without the processors' entries in its field of settings by filter; `None`: it has none.
    pub(super) fn without_settings(&self, bytes: &[u8], settings: u32) -> Result<Option<Vec<u8>>, Malformed> {
        let message = WireMessage::read(bytes)?;
        let mut edited = Builder::default();
        let mut is_edited = false;
        for field in message.fields() {
            if field.number == settings && self.is_named(&field)? {
                is_edited = true;
            } else {
                edited.copy(&field);
            }
        }
        Ok(is_edited.then(|| edited.into_bytes()))
    }
}
