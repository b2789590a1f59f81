//! Clusters of the module in place of those that Envoy Gateway makes for rules with pools.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use metrics_agent_status::extension::NAME;

use super::routes::PlannedCluster;
use crate::ai_gateway::Processors;
use crate::envoy::{any, any_text, duration, entry, extension, module};
use crate::pool::RoutePool;
use crate::settings::HookSettings;
use crate::wire::{Builder, Malformed, WireMessage};

const MODULE_CLUSTER: &str = "envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig";
const PROTOCOL_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

/// Fields of `Cluster`.
const NAME_OF_CLUSTER: u32 = 1;
const CONNECT_TIMEOUT: u32 = 4;
const LB_POLICY: u32 = 6;
const CIRCUIT_BREAKERS: u32 = 10;
const EXTENSION_OPTIONS: u32 = 36;
const CLUSTER_TYPE: u32 = 38;

/// Fields that say where hosts come from and how they are balanced: type = 2, `eds_cluster_config` = 3,
/// `load_assignment` = 33, `original_dst_lb_config` = 34, `load_balancing_policy` = 41.
const REPLACED: [u32; 8] = [NAME_OF_CLUSTER, 2, 3, LB_POLICY, 33, 34, CLUSTER_TYPE, 41];

/// `Cluster.LbPolicy`.
const CLUSTER_PROVIDED: u64 = 6;

/// Requests, connections and waiting requests of a cluster, as in `envoy.yaml`. Envoy's 1024 are made for
/// short requests.
const MAX_REQUESTS: u32 = 65536;

/// Fields of `HttpProtocolOptions`: of all protocols, and the alternatives of one.
const COMMON_OPTIONS: u32 = 1;
const EXPLICIT_PROTOCOL: u32 = 3;
const UPSTREAM_PROTOCOLS: [u32; 3] = [EXPLICIT_PROTOCOL, 4, 5];

/// The clusters with the planned ones: in place of a cluster of the same name, the others at the end.
pub(super) fn edit(
    settings: &HookSettings,
    clusters: Vec<Bytes>,
    planned: &BTreeMap<String, PlannedCluster>,
    processors: &Processors,
) -> Vec<Bytes> {
    let mut templates: BTreeMap<&str, Bytes> = BTreeMap::new();
    let mut made = BTreeSet::new();
    let mut edited = Vec::with_capacity(clusters.len() + planned.len());
    let rules: BTreeSet<&str> = planned.values().map(|cluster| cluster.rule.as_str()).collect();
    for cluster in clusters {
        let name = WireMessage::read(&cluster)
            .ok()
            .and_then(|message| message.text(NAME_OF_CLUSTER).map(str::to_owned));
        let name = name.unwrap_or_default();
        if processors.has_cluster(&name) {
            continue;
        }
        let rule = name.split_once("/backend/").map_or(name.as_str(), |(rule, _)| rule);
        if let Some(rule) = rules.get(rule) {
            templates.entry(rule).or_insert_with(|| cluster.clone());
        }
        match planned.get(&name).map(|plan| module_cluster(settings, &cluster, &name, &plan.pool)) {
            Some(Ok(module_cluster)) => {
                edited.push(module_cluster.into());
                made.insert(name);
            }
            Some(Err(_)) | None => edited.push(cluster),
        }
    }
    for (name, plan) in planned.iter().filter(|(name, _)| !made.contains(*name)) {
        let template = templates.get(plan.rule.as_str()).map_or(&[][..], |template| template);
        let cluster = module_cluster(settings, template, name, &plan.pool);
        // A template that cannot be read has no settings to take over.
        let cluster = cluster.or_else(|Malformed| module_cluster(settings, &[], name, &plan.pool));
        edited.extend(cluster.map(Bytes::from));
    }
    edited
}

/// The cluster of the module for a pool, with all other settings of `template`.
fn module_cluster(
    settings: &HookSettings,
    template: &[u8],
    name: &str,
    pool: &RoutePool,
) -> Result<Vec<u8>, Malformed> {
    let template = WireMessage::read(template)?;
    let config = Builder::default()
        .bytes(1, module(&settings.module))
        .bytes(2, NAME)
        .bytes(3, any_text(&settings.filter.of_cluster(pool)));
    let cluster_type = extension("envoy.clusters.dynamic_modules", 2, any(MODULE_CLUSTER, config));
    // Envoy Gateway always sets a timeout, so its default of 10 s counts as not set.
    let connect_timeout = template.message(CONNECT_TIMEOUT).filter(|set| **set != *duration(10, 0).as_ref());
    let connect_timeout = connect_timeout.unwrap_or_else(|| duration(1, 0).into_bytes().into());
    let rest = [&REPLACED[..], &[CONNECT_TIMEOUT, CIRCUIT_BREAKERS, EXTENSION_OPTIONS]].concat();
    let mut cluster = Builder::default().bytes(NAME_OF_CLUSTER, name).bytes(CONNECT_TIMEOUT, connect_timeout);
    template.fields().filter(|field| !rest.contains(&field.number)).for_each(|field| cluster.copy(&field));
    let mut cluster = cluster
        .number(LB_POLICY, CLUSTER_PROVIDED)
        .bytes(CIRCUIT_BREAKERS, circuit_breakers(&template)?)
        .bytes(CLUSTER_TYPE, cluster_type);
    let mut has_options = false;
    for option in template.all(EXTENSION_OPTIONS) {
        let of_protocol = WireMessage::read(option)?;
        if of_protocol.text(1) == Some(PROTOCOL_OPTIONS) {
            has_options = true;
            let any = of_protocol.message(2).unwrap_or_default();
            let options = WireMessage::read(&any)?.message(2).unwrap_or_default().into_owned();
            cluster.put_bytes(EXTENSION_OPTIONS, protocol_options(&options, pool)?.as_ref());
        } else {
            cluster.put_bytes(EXTENSION_OPTIONS, option);
        }
    }
    if !has_options {
        cluster.put_bytes(EXTENSION_OPTIONS, protocol_options(&[], pool)?.as_ref());
    }
    Ok(cluster.into_bytes())
}

/// An entry of `typed_extension_protocol_options`, with the pool's protocol, and the time after which idle
/// connections are closed as in `envoy.yaml` where the user has set none: shorter than the 5 s of vLLM and
/// SGLang.
fn protocol_options(options: &[u8], pool: &RoutePool) -> Result<Builder, Malformed> {
    let options = WireMessage::read(options)?;
    let common = options.message(COMMON_OPTIONS).unwrap_or_default();
    let common = WireMessage::read(&common)?;
    let has_protocol = UPSTREAM_PROTOCOLS.iter().any(|protocol| options.has(*protocol));
    let mut edited = if pool.is_h2c {
        // `explicit_http_config` with `http2_protocol_options`.
        options.without(&UPSTREAM_PROTOCOLS).bytes(EXPLICIT_PROTOCOL, Builder::default().bytes(2, []))
    } else if has_protocol {
        options.without(&[])
    } else {
        options.without(&[]).bytes(EXPLICIT_PROTOCOL, Builder::default().bytes(1, []))
    };
    if !common.has(1) {
        edited = edited.bytes(COMMON_OPTIONS, Builder::default().bytes(1, duration(4, 0)));
    }
    Ok(entry(PROTOCOL_OPTIONS, any(PROTOCOL_OPTIONS, edited)))
}

/// `CircuitBreakers` with the limits of `envoy.yaml` where the user has set none. Thresholds: priority = 1
/// (0: the default one), `max_connections` = 2, `max_pending_requests` = 3, `max_requests` = 4, `max_retries`
/// = 5.
fn circuit_breakers(template: &WireMessage<'_>) -> Result<Builder, Malformed> {
    let breakers = template.message(CIRCUIT_BREAKERS).unwrap_or_default();
    let breakers = WireMessage::read(&breakers)?;
    let mut edited = breakers.without(&[1]);
    let mut has_default = false;
    let limits = [(2, MAX_REQUESTS), (3, MAX_REQUESTS), (4, MAX_REQUESTS), (5, 1024)];
    let complete = |thresholds: &WireMessage<'_>| {
        let missing = limits.iter().filter(|(number, _)| !thresholds.has(*number));
        missing
            .fold(thresholds.without(&[]), |edited, (number, limit)| edited.wrapped_number(*number, *limit))
    };
    for thresholds in breakers.all(1) {
        let message = WireMessage::read(thresholds)?;
        if message.number(1).unwrap_or(0) == 0 {
            has_default = true;
            edited = edited.bytes(1, complete(&message));
        } else {
            edited = edited.bytes(1, thresholds);
        }
    }
    Ok(if has_default { edited } else { edited.bytes(1, complete(&WireMessage::read(&[])?)) })
}
