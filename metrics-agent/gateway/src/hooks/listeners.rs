//! Listeners whose routes lead to pools: the filter before the router.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use metrics_agent_status::extension::NAME;

use crate::ai_gateway::Processors;
use crate::conformance;
use crate::envoy::{any, any_text, extension, module};
use crate::hooks::routes::PickingRoutes;
use crate::settings::HookSettings;
use crate::wire::{Builder, Malformed, WireMessage};

const MANAGER: &str =
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const ROUTER: &str = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
const FILTER: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";
const HEADER_MUTATION: &str = "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation";

/// Fields of `Listener` and `FilterChain`, and of a filter: name = 1, `typed_config` = 4.
const FILTER_CHAINS: u32 = 3;
const DEFAULT_FILTER_CHAIN: u32 = 25;
const FILTERS: u32 = 3;
const TYPED_CONFIG: u32 = 4;

/// Fields of `HttpConnectionManager`.
const RDS: u32 = 3;
const HTTP_FILTERS: u32 = 5;
const STREAM_IDLE_TIMEOUT: u32 = 24;
const EARLY_HEADER_MUTATIONS: u32 = 52;

/// Headers that only the picker sets, as in `envoy.yaml`: a client would choose its server or model by them.
const CLIENT_HEADERS: [&str; 3] =
    ["x-gateway-destination-endpoint", "x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"];

/// The route configurations whose listener has a timeout for idle streams.
pub(super) fn stream_idle_timeouts(listeners: &[Bytes]) -> BTreeSet<String> {
    let mut managed = BTreeSet::new();
    for listener in listeners {
        // The edit is dropped: this only visits the managers. A listener that cannot be read has none.
        let _ = edit_managers(listener, |manager| {
            if let Some(routes) = route_configuration(manager)?.filter(|_| manager.has(STREAM_IDLE_TIMEOUT)) {
                managed.insert(routes);
            }
            Ok(None)
        });
    }
    managed
}

/// Adds the filter where routes lead to pools; `None`: the listener has no such routes. Another listener must
/// not get it, because an Envoy without the module would refuse the listener.
pub(super) fn edit(
    settings: &HookSettings,
    listener: &[u8],
    picking: &BTreeMap<String, PickingRoutes>,
    processors: &Processors,
) -> Result<Option<Vec<u8>>, Malformed> {
    edit_managers(listener, |manager| {
        let routes = route_configuration(manager)?;
        routes
            .and_then(|routes| picking.get(&routes))
            .map(|routes| with_filter(settings, manager, routes, processors))
            .transpose()
    })
}

/// Edits each `HttpConnectionManager` of a listener; `None`: none of them changes.
fn edit_managers(
    listener: &[u8],
    mut edit: impl FnMut(&WireMessage<'_>) -> Result<Option<Vec<u8>>, Malformed>,
) -> Result<Option<Vec<u8>>, Malformed> {
    let mut is_edited = false;
    let mut edit_chain = |chain| -> Result<Cow<'_, [u8]>, Malformed> {
        let chain = WireMessage::read(chain)?.map(FILTERS, |filter| {
            let filter = WireMessage::read(filter)?.map(TYPED_CONFIG, |any| {
                let message = WireMessage::read(any)?;
                if message.text(1) != Some(MANAGER) {
                    return Ok(Cow::Borrowed(any));
                }
                let manager = message.message(2).unwrap_or_default();
                Ok::<_, Malformed>(match edit(&WireMessage::read(&manager)?)? {
                    Some(edited) => {
                        is_edited = true;
                        message.without(&[2]).bytes(2, edited).into_bytes().into()
                    }
                    None => Cow::Borrowed(any),
                })
            })?;
            Ok::<_, Malformed>(Cow::Owned(filter))
        })?;
        Ok(Cow::Owned(chain))
    };
    let edited = WireMessage::read(listener)?.map(FILTER_CHAINS, &mut edit_chain)?;
    let edited = WireMessage::read(&edited)?.map(DEFAULT_FILTER_CHAIN, &mut edit_chain)?;
    Ok(is_edited.then_some(edited))
}

/// The name of the routes that a manager reads (`route_config_name` = 2).
fn route_configuration(manager: &WireMessage<'_>) -> Result<Option<String>, Malformed> {
    let Some(rds) = manager.message(RDS) else { return Ok(None) };
    Ok(WireMessage::read(&rds)?.text(2).map(str::to_owned))
}

/// The manager with the filter in place of the processors, or before its router.
///
/// The filter is off but not disabled: Envoy builds the chain by the first route that matches, and another
/// filter may change the route. So the filter reads the configuration of the route when it gets the headers.
fn with_filter(
    settings: &HookSettings,
    manager: &WireMessage<'_>,
    routes: &PickingRoutes,
    processors: &Processors,
) -> Result<Vec<u8>, Malformed> {
    let mut edited = Builder::default();
    let mut is_added = false;
    for field in manager.fields() {
        let is_replaced = field.number == HTTP_FILTERS && processors.is_named(&field)?;
        let is_place = is_replaced || (field.number == HTTP_FILTERS && is_router(field.bytes())?);
        if is_place && !is_added {
            is_added = true;
            if settings.conformance {
                edited.put_bytes(HTTP_FILTERS, conformance::selection_filter(&routes.ports).as_ref());
            }
            edited.put_bytes(HTTP_FILTERS, filter(settings, routes).as_ref());
        }
        if !is_replaced {
            edited.copy(&field);
        }
    }
    let removals = CLIENT_HEADERS.map(|header| Builder::default().bytes(1, header));
    let mutation = removals.iter().fold(Builder::default(), |mutation, removal| mutation.bytes(1, removal));
    let mutation = extension("endpoint-picker/client-headers", 2, any(HEADER_MUTATION, mutation));
    Ok(edited.bytes(EARLY_HEADER_MUTATIONS, mutation).into_bytes())
}

fn is_router(filter: &[u8]) -> Result<bool, Malformed> {
    let any = WireMessage::read(filter)?.message(TYPED_CONFIG).unwrap_or_default();
    Ok(WireMessage::read(&any)?.text(1) == Some(ROUTER))
}

/// The filter, which picks for no pool until a route names one.
fn filter(settings: &HookSettings, routes: &PickingRoutes) -> Builder {
    let config = any_text(&settings.filter.of_chain(&routes.pools));
    let filter = Builder::default().bytes(1, module(&settings.module)).bytes(2, NAME).bytes(3, config);
    extension(NAME, TYPED_CONFIG, any(FILTER, filter))
}
