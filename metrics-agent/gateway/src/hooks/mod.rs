//! The hooks, as functions of what they are sent: equal messages and settings give equal bytes on every
//! replica.
//!
//! The first hook marks the routes that lead to pools, and the last one, which gets everything of a Gateway,
//! acts on the marks. A message that cannot be read stays as it came: Envoy Gateway does not translate again
//! after an error.

mod clusters;
mod listeners;
mod routes;

use bytes::Bytes;
use metrics_agent_status::extension::WRONG_ORDER;
use routes::RoutePlan;

use super::pool::{self, RoutePool};
use super::settings::HookSettings;
use super::weights::Weights;
use super::wire::{Malformed, WireMessage};

/// The route of a rule with this `PostRouteExtensionContext`; `None`: it stays as it is.
/// `extension_resources` = 1 are the objects among the rule's backends, each with its JSON as
/// `unstructured_bytes` = 1.
pub fn route(settings: &HookSettings, route: &[u8], context: &[u8]) -> Option<Vec<u8>> {
    WireMessage::read(route).ok()?;
    let read = |object| RoutePool::read(&WireMessage::read(object).ok()?.message(1)?, &settings.ownership);
    let pools: Vec<_> =
        WireMessage::read(context).ok()?.all(1).filter_map(read).take(pool::MAX_POOLS).collect();
    pools.iter().any(|pool| pool.is_own).then(|| pool::mark(route, &pools))
}

/// Everything of a Gateway that changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// `Cluster` messages.
    pub clusters: Vec<Bytes>,
    /// `Listener` messages.
    pub listeners: Vec<Bytes>,
    /// `RouteConfiguration` messages.
    pub routes: Vec<Bytes>,
}

/// The translation with the picker at each route to a pool.
pub fn translate(settings: &HookSettings, weights: &Weights, translation: Translation) -> Translation {
    let Translation { clusters, listeners, routes } = translation;
    let processors = routes::processors(&routes);
    if processors.are_missing(&clusters) {
        tracing::warn!("{}", WRONG_ORDER);
        return Translation { clusters, listeners, routes: edited(routes, routes::refuse) };
    }
    let managed = listeners::stream_idle_timeouts(&listeners);
    let mut plan = RoutePlan::new(settings, weights, managed, processors);
    let routes = edited(routes, |configuration| plan.edit(configuration));
    let RoutePlan { picking, planned, processors, .. } = plan;
    if picking.is_empty() {
        return Translation { clusters, listeners, routes };
    }
    let clusters = clusters::edit(settings, clusters, &planned, &processors);
    let listeners = edited(listeners, |listener| listeners::edit(settings, listener, &picking, &processors));
    Translation { clusters, listeners, routes }
}

/// Each message edited; one that cannot be read stays as it came.
fn edited(
    messages: Vec<Bytes>,
    mut edit: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, Malformed>,
) -> Vec<Bytes> {
    let edit = |message: Bytes| match edit(&message) {
        Ok(Some(edited)) => edited.into(),
        Ok(None) => message,
        Err(error) => {
            tracing::warn!(%error, "a message of Envoy Gateway stays as it came");
            message
        }
    };
    messages.into_iter().map(edit).collect()
}

#[cfg(test)]
mod tests;
