//! Checks of what runs and of what has happened to requests.

use super::super::facts::Facts;
use super::super::report::Finding;

/// Requests that were served elsewhere, of this number of routed ones, are a mistake: fewer are due to endpoints that have just come or gone.
const FEW: u64 = 20;

/// Statistics of the filter that Envoy does not keep.
pub(super) fn statistics(facts: &Facts) -> Option<Vec<Finding>> {
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
pub(super) fn served(facts: &Facts) -> Option<Vec<Finding>> {
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
pub(super) fn versions(facts: &Facts) -> Option<Vec<Finding>> {
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
