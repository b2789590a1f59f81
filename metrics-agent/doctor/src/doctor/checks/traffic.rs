//! Checks of what has happened to requests since Envoy's start.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use metrics_agent_status::columns::counted;
use metrics_agent_status::pool::EndpointState;

use super::super::dump::DumpedCluster;
use super::super::report::Finding;
use crate::doctor::Facts;

/// Number of routed requests of which at most one may be served elsewhere: that is due to endpoints that have
/// just come or gone, and more is a mistake.
const FEW: u64 = 20;

/// The maximum of addresses in a message.
const MAX_ADDRESSES: usize = 5;

/// A line for each pool with requests.
pub(in crate::doctor) fn summary(facts: &Facts) -> Vec<String> {
    let lines = facts.pools().into_iter().filter_map(|pool| {
        let routed = facts.statistics.of_pool(pool, "routed").unwrap_or(0);
        let rejected = facts.statistics.of_pool_by(pool, "rejected", "status");
        let abstained = total(&facts.statistics.of_pool_by(pool, "abstained", "reason"));
        if routed == 0 && abstained == 0 && rejected.is_empty() {
            return None;
        }
        let (served, failed) = responses(facts, &clusters_of(facts, pool));
        let rejected = if rejected.is_empty() { "none".to_owned() } else { by_status(&rejected) };
        Some(format!(
            "pool {pool} since Envoy's start: {routed} routed, {abstained} left to Envoy, rejected: {rejected}; responses of its clusters: \
             {served} below 500, {failed} of 500 and above"
        ))
    });
    lines.collect()
}

/// The clusters of a pool's routes, each once.
fn clusters_of<'a>(facts: &'a Facts, pool: &str) -> Vec<&'a DumpedCluster> {
    let of_pool = facts.picking().filter(|picking| picking.picker.config.pool == pool);
    let by_name: BTreeMap<_, _> = of_pool.filter_map(|it| it.cluster).map(|it| (&it.name, it)).collect();
    by_name.into_values().collect()
}

/// The responses of clusters below 500, and the others.
fn responses(facts: &Facts, clusters: &[&DumpedCluster]) -> (u64, u64) {
    let all = clusters.iter().flat_map(|cluster| facts.statistics.responses_of(cluster));
    all.fold((0, 0), |(served, failed): (u64, u64), (status, count)| match status {
        ..500 => (served.saturating_add(count), failed),
        500.. => (served, failed.saturating_add(count)),
    })
}

/// The sum of these counts.
fn total<K>(counts: &BTreeMap<K, u64>) -> u64 {
    counts.values().copied().fold(0, u64::saturating_add)
}

/// Counts by status, such as `503 (12)`.
fn by_status(counts: &BTreeMap<impl Display, u64>) -> String {
    counts.iter().map(|(status, count)| format!("{status} ({count})")).collect::<Vec<_>>().join(", ")
}

/// Servers at which no request has succeeded.
pub(super) fn servers(facts: &Facts) -> Option<Vec<Finding>> {
    let clusters: BTreeMap<_, _> =
        facts.picking().filter_map(|picking| Some((&picking.cluster?.name, picking.cluster?))).collect();
    let findings = clusters.values().filter_map(|cluster| failing_hosts(facts, cluster));
    (!clusters.is_empty()).then(|| findings.collect())
}

fn failing_hosts(facts: &Facts, cluster: &DumpedCluster) -> Option<Finding> {
    let hosts = facts.hosts.of(&cluster.name).unwrap_or_default();
    let failing: Vec<_> = hosts.iter().filter(|host| host.fails_always()).collect();
    let place = format!("cluster {}", cluster.name);
    if failing.is_empty() {
        return without_success(facts, cluster, place);
    }
    let addresses: BTreeSet<_> = failing.iter().map(|host| host.address).collect();
    let listed: Vec<_> = addresses.iter().take(MAX_ADDRESSES).map(ToString::to_string).collect();
    let more = if addresses.len() > MAX_ADDRESSES { ", …" } else { "" };
    let problem = format!(
        "no request has succeeded at {} of the cluster, to which Envoy speaks {}: {}{more}",
        counted(addresses.len(), "host"),
        cluster.transport(),
        listed.join(", ")
    );
    let fix = "let the servers run at these addresses and ports (targetPorts of the pool), and the cluster speak as they do: \
               explicit_http_config with http_protocol_options or http2_protocol_options, and a transport_socket only for TLS";
    let others_serve = hosts.iter().any(|host| host.requests > 0 && !host.fails_always());
    Some(if others_serve {
        Finding::warning(place, problem, fix)
    } else {
        Finding::error(place, problem, fix)
    })
}

/// A cluster whose responses are all errors, although no host shows it. A cluster without hosts is a finding
/// of its own.
fn without_success(facts: &Facts, cluster: &DumpedCluster, place: String) -> Option<Finding> {
    let responses = facts.statistics.responses_of(cluster);
    let has_hosts = facts.hosts.of(&cluster.name).is_some_and(|hosts| !hosts.is_empty());
    let all_failed = !responses.is_empty() && responses.keys().all(|status| *status >= 500);
    (has_hosts && all_failed).then(|| {
        let problem = format!("all responses of the cluster are errors: {}", by_status(&responses));
        Finding::error(
            place,
            problem,
            "see the access log: response_flags and response_code_details name the reason",
        )
    })
}

/// Pools whose requests are all rejected by the filter.
pub(super) fn rejections(facts: &Facts) -> Option<Vec<Finding>> {
    let counted = |pool: &&str| facts.statistics.of_pool(pool, "routed").is_some();
    let pools: Vec<_> = facts.pools().into_iter().filter(counted).collect();
    let findings = pools.iter().filter_map(|pool| {
        let rejected = facts.statistics.of_pool_by(pool, "rejected", "status");
        let abstained = total(&facts.statistics.of_pool_by(pool, "abstained", "reason"));
        let passed = facts.statistics.of_pool(pool, "routed").unwrap_or(0).saturating_add(abstained);
        // A pool without a ready endpoint, one that is refused and a filter without a snapshot are findings
        // of their own.
        let status = facts.agent.pool(pool)?;
        let has_ready = status.endpoints.iter().any(|endpoint| endpoint.state != EndpointState::NotReady);
        let has_snapshot = facts.statistics.of_pool(pool, "snapshots").is_some_and(|count| count > 0);
        let is_unexplained = has_ready && has_snapshot && status.refusal.is_none();
        (passed == 0 && !rejected.is_empty() && is_unexplained).then(|| {
            Finding::warning(
                format!("pool {pool}"),
                format!("the filter has rejected all requests: {}", by_status(&rejected)),
                "the body of each response names the reason, and the header x-llm-d-request-dropped-reason its kind",
            )
        })
    });
    (!pools.is_empty()).then(|| findings.collect())
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
