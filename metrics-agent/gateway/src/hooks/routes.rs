//! Routes that lead to pools: each gets the filter's configuration of its pool.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use metrics_agent_status::extension::NAME;

use crate::ai_gateway::{self, Processors};
use crate::conformance;
use crate::envoy::{any, any_text, duration, entry, extension, module};
use crate::pool::{self, RoutePool};
use crate::settings::HookSettings;
use crate::weights::{RuleWeights, Weights};
use crate::wire::{Builder, Malformed, WireMessage};

const PER_ROUTE: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute";

/// Fields of `RouteConfiguration`, `VirtualHost` and `Route`.
const VIRTUAL_HOSTS: u32 = 2;
const ROUTES: u32 = 3;
const ROUTE_NAME: u32 = 14;
const ROUTE_ACTION: u32 = 2;
const PER_FILTER_CONFIG: u32 = 13;
const HOST_PER_FILTER_CONFIG: u32 = 15;

/// Fields of `RouteAction`.
const CLUSTER: u32 = 1;
const WEIGHTED_CLUSTERS: u32 = 3;
const TIMEOUT: u32 = 8;
const RETRY_POLICY: u32 = 9;
const IDLE_TIMEOUT: u32 = 24;

/// Field of `WeightedCluster`.
const CLUSTERS: u32 = 1;
/// Fields of `WeightedCluster.ClusterWeight`.
const CLUSTER_NAME: u32 = 1;
const WEIGHT: u32 = 2;
const CLUSTER_PER_FILTER_CONFIG: u32 = 10;

/// A cluster that a route needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedCluster {
    /// The pool whose endpoints are its hosts.
    pub(super) pool: RoutePool,
    /// The beginning of the names of clusters of the same rule, whose settings it takes over.
    pub(super) rule: String,
}

/// The external processors of Envoy AI Gateway whose place the filter takes.
pub(super) fn processors(configurations: &[Bytes]) -> Processors {
    let mut processors = Processors::default();
    // A configuration that cannot be read stays as it came.
    let mut insert = |configuration: &[u8]| -> Result<(), Malformed> {
        for host in WireMessage::read(configuration)?.all(VIRTUAL_HOSTS) {
            for route in WireMessage::read(host)?.all(ROUTES) {
                let route = WireMessage::read(route)?;
                for pool in pool::marked(&route)?.iter().filter(|pool| pool.is_own) {
                    processors.insert(&pool.name, &route)?;
                }
            }
        }
        Ok(())
    };
    for configuration in configurations {
        let _ = insert(configuration);
    }
    processors
}

/// A `RouteConfiguration` whose routes to own pools respond with the fault of the order of extension servers;
/// `None`: it has no such routes.
pub(super) fn refuse(configuration: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut is_edited = false;
    let edited = WireMessage::read(configuration)?.map(VIRTUAL_HOSTS, |host| {
        let host = WireMessage::read(host)?.map(ROUTES, |route| {
            let message = WireMessage::read(route)?;
            if !message.has(ROUTE_ACTION) || !pool::marked(&message)?.iter().any(|pool| pool.is_own) {
                return Ok(Cow::Borrowed(route));
            }
            is_edited = true;
            Ok::<_, Malformed>(Cow::Owned(ai_gateway::refused(&message)?.into_bytes()))
        })?;
        Ok::<_, Malformed>(Cow::Owned(host))
    })?;
    Ok(is_edited.then_some(edited))
}

/// An edited route.
struct PickedRoute {
    bytes: Vec<u8>,
    /// Its pools.
    pools: Vec<RoutePool>,
}

/// The own pools of a route configuration.
#[derive(Default)]
pub(super) struct PickingRoutes {
    /// The ports of all pools of its routes.
    pub(super) ports: BTreeSet<u16>,
    /// The names of the pools.
    pub(super) pools: BTreeSet<String>,
}

/// Routes of a Gateway in progress, with the clusters and listeners that they need.
pub(super) struct RoutePlan<'a> {
    settings: &'a HookSettings,
    weights: &'a Weights,
    /// The route configurations whose listener has a timeout for idle streams.
    managed: BTreeSet<String>,
    /// Processors that are taken out.
    pub(super) processors: Processors,
    /// The route configurations with routes to own pools.
    pub(super) picking: BTreeMap<String, PickingRoutes>,
    /// The clusters by name.
    pub(super) planned: BTreeMap<String, PlannedCluster>,
}

impl PickingRoutes {
    fn add(&mut self, pools: Vec<RoutePool>) {
        for RoutePool { name, is_own, ports, .. } in pools {
            self.ports.extend(ports);
            if is_own {
                self.pools.insert(name);
            }
        }
    }
}

impl<'a> RoutePlan<'a> {
    pub(super) fn new(
        settings: &'a HookSettings,
        weights: &'a Weights,
        managed: BTreeSet<String>,
        processors: Processors,
    ) -> Self {
        Self { settings, weights, managed, processors, picking: BTreeMap::new(), planned: BTreeMap::new() }
    }

    /// Edits the routes of a `RouteConfiguration`; `None`: none of them changes.
    pub(super) fn edit(&mut self, configuration: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let message = WireMessage::read(configuration)?;
        let Some(name) = message.text(1) else { return Ok(None) };
        let is_managed = self.managed.contains(name);
        let (mut picking, mut is_edited) = (None, false);
        let edited = message.map(VIRTUAL_HOSTS, |host| {
            let edited = WireMessage::read(host)?.map(ROUTES, |route| {
                let cleaned = self.processors.without_settings(route, PER_FILTER_CONFIG)?;
                is_edited |= cleaned.is_some();
                let Some(picked) = self.edit_route(cleaned.as_deref().unwrap_or(route), is_managed)? else {
                    return Ok(cleaned.map_or(Cow::Borrowed(route), Cow::Owned));
                };
                picking.get_or_insert_with(PickingRoutes::default).add(picked.pools);
                Ok::<_, Malformed>(Cow::Owned(picked.bytes))
            })?;
            let cleaned = self.processors.without_settings(&edited, HOST_PER_FILTER_CONFIG)?;
            is_edited |= cleaned.is_some();
            Ok::<_, Malformed>(Cow::Owned(cleaned.unwrap_or(edited)))
        })?;
        is_edited |= picking.is_some();
        if let Some(picking) = picking {
            self.picking.insert(name.to_owned(), picking);
        }
        Ok(is_edited.then_some(edited))
    }

    /// The edited route; `None`: the route leads to no own pool, or forwards no request.
    fn edit_route(&mut self, route: &[u8], is_managed: bool) -> Result<Option<PickedRoute>, Malformed> {
        let route = WireMessage::read(route)?;
        let pools = pool::marked(&route)?;
        let Some(action) = route.message(ROUTE_ACTION) else { return Ok(None) };
        let action = WireMessage::read(&action)?;
        let mut own = pools.iter().filter(|pool| pool.is_own);
        let Some(first) = own.next() else { return Ok(None) };
        let rule = action.text(CLUSTER).or_else(|| rule_of_route(route.text(ROUTE_NAME)?)).unwrap_or(NAME);
        let weights = self.weights.of_rule(rule, pools.len());
        let is_alone = pools.len() == 1 && weights.others == 0 && !action.has(WEIGHTED_CLUSTERS);
        let mut edited = route.without(&[ROUTE_ACTION]);
        let action = if is_alone {
            self.plan(rule.to_owned(), first, rule);
            edited.put_bytes(PER_FILTER_CONFIG, self.per_route(first).as_ref());
            action.without(&[])
        } else {
            let clusters = self.weighted_clusters(&action, rule, &pools, &weights)?;
            action.without(&[CLUSTER, WEIGHTED_CLUSTERS]).bytes(WEIGHTED_CLUSTERS, clusters)
        };
        edited.put_bytes(
            ROUTE_ACTION,
            with_defaults(&WireMessage::read(action.as_ref())?, action.clone(), is_managed).as_ref(),
        );
        if self.settings.conformance {
            edited = conformance::with_served_endpoint(edited);
        }
        Ok(Some(PickedRoute { bytes: edited.into_bytes(), pools }))
    }

    /// `WeightedCluster` with an entry for each own pool, and others as they were.
    fn weighted_clusters(
        &mut self,
        action: &WireMessage<'_>,
        rule: &str,
        pools: &[RoutePool],
        weights: &RuleWeights,
    ) -> Result<Vec<u8>, Malformed> {
        let earlier = action.message(WEIGHTED_CLUSTERS);
        let mut clusters = match &earlier {
            Some(earlier) => WireMessage::read(earlier)?.without(&[]),
            None => Builder::default(),
        };
        let foreign = pools.iter().zip(&weights.pools).filter(|(pool, _)| !pool.is_own);
        let foreign = foreign.fold(0, |sum: u32, (_, weight)| sum.saturating_add(*weight));
        let others = foreign.saturating_add(weights.others);
        // The rule's cluster has the servers of the others, unless they have clusters of their own.
        let shares_rule_cluster = earlier.is_none() && others > 0;
        if shares_rule_cluster {
            let entry = Builder::default().bytes(CLUSTER_NAME, rule).wrapped_number(WEIGHT, others);
            clusters.put_bytes(CLUSTERS, entry.as_ref());
        }
        for (index, (pool, weight)) in pools.iter().zip(&weights.pools).enumerate() {
            if !pool.is_own {
                continue;
            }
            // The name of a rule's cluster stays when it gets a second pool: no route is without its cluster
            // meanwhile.
            let keeps_name = index == 0 && earlier.is_none() && !shares_rule_cluster;
            let name = if keeps_name { rule.to_owned() } else { format!("{rule}/pool/{index}") };
            let entry = Builder::default()
                .bytes(CLUSTER_NAME, &name)
                .wrapped_number(WEIGHT, *weight)
                .bytes(CLUSTER_PER_FILTER_CONFIG, self.per_route(pool));
            clusters.put_bytes(CLUSTERS, entry.as_ref());
            self.plan(name, pool, rule);
        }
        Ok(clusters.into_bytes())
    }

    fn plan(&mut self, name: String, pool: &RoutePool, rule: &str) {
        let cluster = PlannedCluster { pool: pool.clone(), rule: rule.to_owned() };
        self.planned.entry(name).or_insert(cluster);
    }

    /// An entry of `typed_per_filter_config`. `per_route_config_name` = 2 is deprecated in Envoy 1.40, but
    /// 1.39 has nothing else.
    fn per_route(&self, pool: &RoutePool) -> Builder {
        let config = any_text(&self.settings.filter.of_route(pool));
        let per_route =
            Builder::default().bytes(1, module(&self.settings.module)).bytes(2, NAME).bytes(3, config);
        entry(NAME, any(PER_ROUTE, per_route))
    }
}

/// The rule in the name of a route, such as `httproute/namespace/name/rule/0/match/0/host`.
fn rule_of_route(name: &str) -> Option<&str> {
    name.split_once("/match/").map(|(rule, _)| rule)
}

/// The `RouteAction` with the timeouts and retries of `envoy.yaml` where the user has set none: Envoy would
/// end a response after 15 s.
fn with_defaults(action: &WireMessage<'_>, mut edited: Builder, is_managed: bool) -> Builder {
    let has_timeout = action.has(TIMEOUT);
    if !has_timeout {
        edited = edited.bytes(TIMEOUT, duration(0, 0));
    }
    // Envoy Gateway sets this timeout together with the user's timeout of requests.
    if !has_timeout && !action.has(IDLE_TIMEOUT) && !is_managed {
        edited = edited.bytes(IDLE_TIMEOUT, duration(900, 0));
    }
    if !action.has(RETRY_POLICY) {
        edited = edited.bytes(RETRY_POLICY, retry_policy());
    }
    edited
}

/// `RetryPolicy` as in `envoy.yaml`.
fn retry_policy() -> Builder {
    const MILLISECOND: u64 = 1_000_000;
    let predicate = "envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate";
    let predicate = extension("envoy.retry_host_predicates.previous_hosts", 3, any(predicate, []));
    let back_off =
        Builder::default().bytes(1, duration(0, 5 * MILLISECOND)).bytes(2, duration(0, 50 * MILLISECOND));
    Builder::default()
        .bytes(1, "connect-failure,refused-stream,reset,retriable-status-codes")
        .wrapped_number(2, 3)
        .bytes(5, predicate)
        .number(6, 5)
        .number(7, 429)
        .number(7, 503)
        .bytes(8, back_off)
}
