//! The checks. Each check reads the facts and returns its findings, or `None` if there is nothing to check.

mod agent;
mod endpoints;
mod extension;
mod filters;
mod grpc;
mod limits;
mod steering;
mod traffic;
mod wasm;

pub(super) use traffic::summary;

use super::Facts;
use super::report::Finding;

type Check = fn(&Facts) -> Option<Vec<Finding>>;

/// All checks, each with the statement that holds when it finds nothing.
pub(super) const ALL: [(&str, Check); 39] = [
    ("Envoy has taken all updates of its configuration", |facts| Some(filters::updates(facts))),
    ("a listener has the endpoint picker", filters::presence),
    ("Envoy Gateway calls the agent", extension::calls),
    ("routes to InferencePools have the filter and its configuration", extension::routes),
    ("a picker runs on at least one route", filters::routes),
    ("no two pickers pick on one route", filters::one_picker),
    ("filters that set subset hints are before the picker", filters::hints),
    ("requests stay in their subset hint", steering::hints),
    ("filters that shadow another picker are behind it", filters::shadows),
    ("the wasm filter can wait for bodies", wasm::stop_iteration),
    ("the wasm filter may call the functions that it needs", wasm::capabilities),
    ("a worker picks again after a trap", wasm::traps),
    ("Envoy's buffers hold the bodies that the filter waits for", filters::buffers),
    ("clients cannot choose their server", filters::headers),
    ("paths are normalized before the picker reads them", filters::paths),
    ("the routes' clusters exist", steering::clusters),
    ("the clusters send requests to the endpoint that the picker chooses", steering::destinations),
    ("requests whose server fails are tried again", steering::retries),
    ("responses may take longer than Envoy's 15 s", limits::timeouts),
    ("Envoy closes idle connections before the servers do", limits::idle_connections),
    ("circuit breakers admit many long requests", limits::circuit_breakers),
    ("the agent can be read", agent::readable),
    ("the agent has the pickers' pools", agent::pools),
    ("the pickers' pools serve requests", agent::refusals),
    ("the pickers have the agent's snapshot", agent::snapshots),
    ("the pickers' agents agree", agent::agreement),
    ("the agent has the pickers' reports", agent::reports),
    ("Envoy has the pool's endpoints as hosts", endpoints::hosts),
    ("endpoints are ready", endpoints::ready),
    ("the agent has read all endpoints", endpoints::readings),
    ("servers show the queues by which they are picked", endpoints::queues),
    ("the clusters of gRPC servers speak HTTP/2", grpc::clusters),
    ("gRPC servers serve", grpc::servers),
    ("Envoy has the filter's statistics", statistics),
    ("the filter's statistics have labels", wasm::labels),
    ("filter and agent have one version", versions),
    ("requests succeed at all servers that have got some", traffic::servers),
    ("the filter does not reject all requests", traffic::rejections),
    ("chosen endpoints serve", traffic::served),
];

/// Statistics of the filter that Envoy does not keep.
fn statistics(facts: &Facts) -> Option<Vec<Finding>> {
    if !facts.dump.has_stats_matcher {
        return None;
    }
    let left_out = facts.pickers().into_iter().filter(|(_, picker)| facts.lacks_statistics_of(picker));
    let findings = left_out.map(|(place, _)| {
        Finding::warning(
            place,
            "Envoy has no statistics of the filter: alerts cannot read them, and what it has done is not checked",
            "let stats_config.stats_matcher include the prefixes wasmcustom.endpoint_picker and \
             dynamicmodulescustom.endpoint_picker; with Istio, add them to proxyStatsMatcher.inclusionPrefixes",
        )
    });
    Some(findings.collect())
}

/// Filters of another version than the agent's.
fn versions(facts: &Facts) -> Option<Vec<Finding>> {
    let agent = &facts.agent.list.as_ref().ok()?.version;
    // Only a filter that runs counts.
    let pools =
        facts.pools().into_iter().filter(|pool| facts.statistics.of_pool(pool, "snapshots").is_some());
    let pools: Vec<_> = pools.collect();
    let findings = pools.iter().filter_map(|pool| {
        let versions = facts.statistics.versions(pool);
        let others: Vec<_> = versions.iter().filter(|version| **version != agent.as_str()).copied().collect();
        let problem = if versions.is_empty() {
            format!("the filter is older than the agent, which has version {agent}: it does not count its version")
        } else if others.is_empty() {
            return None;
        } else {
            format!("the filter has version {}, and the agent {agent}", others.join(", "))
        };
        let fix = "load the module of the agent's version; the native module from a new path, because Envoy loads a file once";
        Some(Finding::warning(format!("pool {pool}"), problem, fix))
    });
    (!pools.is_empty()).then(|| findings.collect())
}
