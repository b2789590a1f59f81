//! Checks of the pool's endpoints: as hosts of Envoy, and as servers that the agent scrapes.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use metrics_agent_status::columns::counted;
use metrics_agent_status::pool::{EndpointState, EndpointStatus, PoolStatus};

use super::super::dump::DumpedCluster;
use super::super::picker::PickerSettings;
use super::super::report::Finding;
use crate::doctor::{Facts, Picking};

/// The maximum of addresses in a message.
const MAX_ADDRESSES: usize = 5;

/// Clusters whose hosts are not the pool's endpoints. An `ORIGINAL_DST` cluster has none of its own.
pub(super) fn hosts(facts: &Facts) -> Option<Vec<Finding>> {
    let clusters = facts.picking().filter_map(|picking| {
        let cluster = picking.cluster.filter(|it| !it.is_original_dst() && it.module_pool().is_none())?;
        let endpoints = endpoints_of(facts, &picking.picker.config)?;
        (!endpoints.is_empty()).then_some((picking, cluster, endpoints))
    });
    let clusters: Vec<_> = clusters.collect();
    let findings = clusters
        .iter()
        .filter_map(|(picking, cluster, endpoints)| other_hosts(facts, picking, cluster, endpoints));
    (!clusters.is_empty()).then(|| findings.collect())
}

/// The addresses of a picker's ready endpoints; without an agent, of all that its configuration lists.
/// `None`: they are not known.
fn endpoints_of(facts: &Facts, config: &PickerSettings) -> Option<Vec<SocketAddr>> {
    if !config.has_agent() {
        return Some(config.endpoints.clone());
    }
    let endpoints = facts.agent.pool(&config.pool)?.endpoints.iter();
    let ready = endpoints.filter(|endpoint| endpoint.state != EndpointState::NotReady);
    Some(ready.filter_map(|endpoint| endpoint.address.parse().ok()).collect())
}

fn other_hosts(
    facts: &Facts,
    picking: &Picking<'_>,
    cluster: &DumpedCluster,
    addresses: &[SocketAddr],
) -> Option<Finding> {
    let hosts = facts.hosts.of(&cluster.name).unwrap_or_default();
    let hosts: BTreeSet<SocketAddr> = hosts.iter().map(|host| host.address).collect();
    let (pool, name) = (&picking.picker.config.pool, &cluster.name);
    let missing: Vec<_> = addresses.iter().filter(|address| !hosts.contains(address)).collect();
    if missing.is_empty() {
        return None;
    }
    let place = format!("cluster {name}");
    let refused = facts.statistics.of_cluster(cluster, "update_rejected");
    let fix = match cluster.eds_name().filter(|_| picking.picker.config.has_agent()) {
        Some(eds) if refused > 0 => format!(
            "start the agent with --eds-cluster {eds}: Envoy has refused its file {}, probably for the name of the cluster in it",
            counted(refused, "time")
        ),
        Some(eds) => format!(
            "let eds_cluster_config read the file of the agent's --eds-file, written with --eds-cluster {eds}, or let the \
             control plane send the pods of pool {pool}"
        ),
        None => format!("let the cluster have the endpoints of pool {pool} as hosts"),
    };
    let listed: Vec<_> = missing.iter().take(MAX_ADDRESSES).map(ToString::to_string).collect();
    let more = if missing.len() > MAX_ADDRESSES { ", …" } else { "" };
    let listed = format!("{}{more}", listed.join(", "));
    if hosts.is_empty() {
        let problem = format!(
            "the cluster has no hosts, and pool {pool} has {}: requests get 503",
            counted(addresses.len(), "endpoint")
        );
        return Some(Finding::error(place, problem, fix));
    }
    if missing.len() == addresses.len() {
        let problem =
            format!("no endpoint of pool {pool} is a host of the cluster: Envoy balances over other servers");
        return Some(Finding::error(place, problem, fix));
    }
    let problem = format!(
        "{} of pool {pool} of {} are not hosts of the cluster, and get no picked requests: {listed}",
        counted(missing.len(), "endpoint"),
        addresses.len()
    );
    Some(Finding::warning(place, problem, fix))
}

/// Pools of which no endpoint is ready, and endpoints that have never been ready.
pub(super) fn ready(facts: &Facts) -> Option<Vec<Finding>> {
    let pools: Vec<_> = facts.agent.pools.values().filter_map(|status| status.as_ref().ok()).collect();
    let findings = pools.iter().flat_map(|pool| unready(facts, pool));
    (!pools.is_empty()).then(|| findings.collect())
}

fn unready(facts: &Facts, pool: &PoolStatus) -> Vec<Finding> {
    const FIX: &str = "start the server there, or correct the address or the port (targetPorts of the pool)";
    let all = &pool.endpoints;
    let unready: Vec<_> = all.iter().filter(|it| it.state == EndpointState::NotReady).collect();
    let place = format!("agent {}, pool {}", facts.agent.url, pool.pool);
    let reason =
        |endpoint: &EndpointStatus| endpoint.reason.clone().unwrap_or_else(|| "not ready".to_owned());
    if let Some(first) = unready.first().filter(|_| unready.len() == all.len()) {
        let problem = format!(
            "none of {} of the pool is ready: requests get 503. {}: {}",
            counted(all.len(), "endpoint"),
            first.address,
            reason(first)
        );
        return vec![Finding::error(place, problem, FIX)];
    }
    // An endpoint that was read before is a server that has ended, or a pod that does. Servers of gRPC may
    // have nothing to read.
    let is_read = pool.grpc.as_ref().is_none_or(|grpc| grpc.reads_metrics);
    let never = unready.iter().filter(|endpoint| is_read && endpoint.age_ms.is_none()).map(|endpoint| {
        let place = format!("{place}, endpoint {}", endpoint.address);
        Finding::warning(place, format!("the endpoint has never been ready: {}", reason(endpoint)), FIX)
    });
    never.collect()
}

/// Pools without endpoints, and endpoints without current readings.
pub(super) fn readings(facts: &Facts) -> Option<Vec<Finding>> {
    let pools: Vec<_> = facts.agent.pools.values().filter_map(|status| status.as_ref().ok()).collect();
    let findings = pools.iter().flat_map(|pool| {
        let empty = pool.endpoints.is_empty().then(|| {
            Finding::error(
                format!("agent {}, pool {}", facts.agent.url, pool.pool),
                "the pool has no endpoints: requests get 503",
                "correct the agent's source of endpoints, or the pool's selector",
            )
        });
        let unread = pool.endpoints.iter().filter_map(|endpoint| unread(facts, pool, endpoint));
        empty.into_iter().chain(unread)
    });
    (!pools.is_empty()).then(|| findings.collect())
}

fn unread(facts: &Facts, pool: &PoolStatus, endpoint: &EndpointStatus) -> Option<Finding> {
    let state = match endpoint.state {
        // Servers of gRPC have no metrics on their own port, and need none with such rules.
        EndpointState::NoReading if pool.grpc.as_ref().is_some_and(|grpc| !grpc.reads_metrics) => {
            return None;
        }
        EndpointState::NoReading => {
            "the agent has never read the server's metrics, and it is picked as if it were idle"
        }
        EndpointState::Stale => {
            "the agent cannot read the server's metrics any more, and it is picked by old ones"
        }
        EndpointState::NotReady
        | EndpointState::Failing
        | EndpointState::Saturated
        | EndpointState::Ready => return None,
    };
    let reason = endpoint.reason.as_deref().unwrap_or("the agent's log has the reason");
    let fix = if pool.grpc.is_some() {
        "give a metrics-data-source the port with the server's metrics, or decide without them, as examples/grpc/picker.yaml"
    } else if reason.contains("does the server speak TLS") {
        "if it does, scrape it with --model-server-metrics-scheme https and --scrape-ca; otherwise see its log"
    } else if reason.contains("does not speak TLS") {
        "scrape it with --model-server-metrics-scheme http"
    } else if reason.contains("certificate") {
        "set --scrape-ca, --scrape-server-name or --scrape-cert as the agent's log says"
    } else {
        "start the server, or correct its address, --metrics-path and label llm-d.ai/engine-type"
    };
    let place = format!("agent {}, pool {}, endpoint {}", facts.agent.url, pool.pool, endpoint.address);
    Some(Finding::warning(place, format!("{state}: {reason}"), fix))
}

/// Servers whose scorers take them for idle, because they show no queue. Nothing was checked until a server
/// has had much work.
pub(super) fn queues(facts: &Facts) -> Option<Vec<Finding>> {
    const FIX: &str = "let the pool's rules count what was sent, as --rules expected-latency, or correct the \
                       metric of waiting requests: label llm-d.ai/engine-type, core-metrics-extractor";
    let pools = facts.agent.pools.values().filter_map(|status| status.as_ref().ok());
    let endpoints = pools.flat_map(|pool| pool.endpoints.iter().map(move |endpoint| (pool, endpoint)));
    let unseen: Vec<_> =
        endpoints.filter_map(|(pool, it)| Some((pool, it, it.unseen_queue.as_ref()?))).collect();
    let findings = unseen.iter().filter_map(|(pool, endpoint, queue)| {
        let in_flight = endpoint.sent.as_ref().map_or(0, |sent| sent.requests);
        let place = format!("agent {}, pool {}, endpoint {}", facts.agent.url, pool.pool, endpoint.address);
        let problem = format!("{queue}; the proxies have {in_flight} in flight there");
        queue.hides_load(in_flight).then(|| Finding::warning(place, problem, FIX))
    });
    (!unseen.is_empty()).then(|| findings.collect())
}
