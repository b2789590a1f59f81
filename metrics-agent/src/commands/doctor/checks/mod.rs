//! The checks. Each check reads the facts and returns its findings, or `None` if there is nothing to check.

mod agent;
mod endpoints;
mod extension;
mod filters;
mod grpc;
mod steering;

use super::Facts;
use super::report::Finding;

type Check = fn(&Facts) -> Option<Vec<Finding>>;

/// All checks, each with the statement that holds when it finds nothing.
pub(super) const ALL: [(&str, Check); 27] = [
    ("Envoy has taken all updates of its configuration", |facts| Some(filters::updates(facts))),
    ("a listener has the endpoint picker", filters::presence),
    ("Envoy Gateway calls the agent", extension::calls),
    ("routes to InferencePools have the filter and its configuration", extension::routes),
    ("a picker runs on at least one route", filters::routes),
    ("no two pickers pick on one route", filters::one_picker),
    ("filters that set subset hints are before the picker", filters::hints),
    ("the wasm filter can wait for bodies", filters::stop_iteration),
    ("Envoy's buffers hold the bodies that the filter waits for", filters::buffers),
    ("clients cannot choose their server", filters::headers),
    ("paths are normalized before the picker reads them", filters::paths),
    ("the routes' clusters exist", steering::clusters),
    ("the clusters send requests to the endpoint that the picker chooses", steering::destinations),
    ("requests whose server fails are tried again", steering::retries),
    ("the agent can be read", |facts| Some(agent::readable(facts))),
    ("the agent has the pickers' pools", agent::pools),
    ("the pickers' pools serve requests", agent::refusals),
    ("the pickers have the agent's snapshot", agent::snapshots),
    ("the pickers' agents agree", agent::agreement),
    ("the agent has the pickers' reports", agent::reports),
    ("Envoy has the pool's endpoints as hosts", endpoints::hosts),
    ("the agent scrapes all endpoints", endpoints::readings),
    ("the clusters of gRPC servers speak HTTP/2", grpc::clusters),
    ("gRPC servers serve", grpc::servers),
    ("Envoy has the filter's statistics", statistics),
    ("filter and agent have one version", versions),
    ("chosen endpoints serve", served),
];

/// Number of routed requests of which at most one may be served elsewhere: that is due to endpoints that have
/// just come or gone, and more is a mistake.
const FEW: u64 = 20;

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

/// Picks that Envoy has not followed.
fn served(facts: &Facts) -> Option<Vec<Finding>> {
    let counts = facts.pools().into_iter().filter_map(|pool| {
        let statistic = |name| facts.statistics.of_pool(pool, name);
        Some((pool, statistic("routed").filter(|routed| *routed > 0)?, statistic("served_elsewhere")?))
    });
    let counts: Vec<_> = counts.collect();
    let findings = counts.iter().filter(|(_, routed, elsewhere)| elsewhere.saturating_mul(FEW) > *routed);
    let findings = findings.map(|(pool, routed, elsewhere)| {
        Finding::error(
            format!("pool {pool}"),
            format!("{elsewhere} of {routed} requests were served by another server than the chosen one"),
            "correct the other findings about clusters and filters; without one, compare the cluster's hosts with the pool's endpoints",
        )
    });
    (!counts.is_empty()).then(|| findings.collect())
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
