//! Checks of the way to the agent.

use std::collections::BTreeMap;

use metrics_agent_support::suggestion::did_you_mean;

use super::super::picker::{Picker, PickerForm, PickerSettings};
use super::super::report::Finding;
use super::super::statistics::ClusterHost;
use super::wasm::missing_functions;
use crate::doctor::Facts;

/// Age of a snapshot from which the filter ignores its readings, in milliseconds.
const STALE_MS: u64 = 10_000;

/// Changes of endpoints or policy from which on agents are said to differ, if at least one of
/// [`SNAPSHOTS_PER_CHANGE`] snapshots made one.
const MANY_CHANGES: u64 = 10;

/// Maximum number of snapshots for each change if agents differ, because they respond in turns. Pods that
/// come and go change far fewer snapshots, which arrive several times a second.
const SNAPSHOTS_PER_CHANGE: u64 = 4;

/// Agents that cannot be read. `None` if no picker has one.
pub(super) fn readable(facts: &Facts) -> Option<Vec<Finding>> {
    if !facts.pickers().is_empty() && facts.agent_pools().is_empty() {
        return None;
    }
    let unread = facts.agent.list.as_ref().err().map(|reason| {
        Finding::error(
            format!("agent {}", facts.agent.url),
            format!("the agent cannot be read, so pools and endpoints are not checked: {reason}"),
            "start the agent, or name the filter's agent and the credentials for it with --agent and --agent-*",
        )
    });
    Some(unread.into_iter().collect())
}

pub(super) fn pools(facts: &Facts) -> Option<Vec<Finding>> {
    let list = facts.agent.list.as_ref().ok()?;
    let unknown = facts.pickers().into_iter().filter_map(|(place, picker)| {
        let pool = &picker.config.pool;
        let known = list.pools.iter().map(String::as_str);
        facts.agent.lacks(pool)?.then(|| {
            let names = if list.pools.is_empty() { "none".to_owned() } else { list.pools.join(", ") };
            Finding::error(
                place,
                format!(
                    "the agent has no pool {pool:?}: the filter never gets a snapshot{}",
                    did_you_mean(pool, known)
                ),
                format!("set \"pool\" of the filter's configuration to one of the agent's pools: {names}"),
            )
        })
    });
    (!facts.managers.is_empty()).then(|| unknown.collect())
}

/// Pools whose requests are all rejected.
pub(super) fn refusals(facts: &Facts) -> Option<Vec<Finding>> {
    let pools: Vec<_> = facts.pools().into_iter().filter_map(|pool| facts.agent.pool(pool)).collect();
    let findings = pools.iter().filter_map(|pool| {
        let problem = format!("every request to the pool gets 503: {}", pool.refusal.as_ref()?);
        let fix = "create the Service, or remove the pool's endpointPickerRef; requests are served as soon as that is done";
        Some(Finding::error(format!("pool {}", pool.pool), problem, fix))
    });
    (!pools.is_empty()).then(|| findings.collect())
}

/// Pickers that decide without a current snapshot of the agent.
pub(super) fn snapshots(facts: &Facts) -> Option<Vec<Finding>> {
    // Pickers of several listeners share one pool and its statistics.
    let pickers: BTreeMap<_, _> = facts
        .pickers()
        .into_iter()
        .filter(|(_, picker)| picker.config.has_agent())
        .map(|(place, picker)| ((&picker.config.pool, &picker.config.agent_cluster), (place, picker)))
        .collect();
    let findings = pickers.into_values().filter_map(|(place, picker)| {
        let config = &picker.config;
        if let Some(finding) = missing_cluster(facts, &place, config) {
            return Some(finding);
        }
        if facts.lacks_statistics_of(picker) || cannot_call(picker) {
            return None;
        }
        let statistic = |name| facts.statistics.of_pool(&config.pool, name).unwrap_or(0);
        if statistic("snapshots") == 0 {
            return never_reached(facts, place, config);
        }
        let age = statistic("snapshot_age_ms");
        (age > STALE_MS).then(|| {
            let problem = format!(
                "the last snapshot is {} s old: readings are ignored, and new endpoints are not picked",
                age / 1000
            );
            Finding::error(place, problem, "start the agent again, and see its log")
        })
    });
    (!facts.agent_pools().is_empty()).then(|| findings.collect())
}

/// Pools whose agents differ.
pub(super) fn agreement(facts: &Facts) -> Option<Vec<Finding>> {
    let counts = facts.agent_pools().into_iter().filter_map(|pool| {
        let statistic = |name| facts.statistics.of_pool(pool, name);
        Some((pool, statistic("snapshots")?, statistic("topology_changes")?))
    });
    let counts: Vec<_> = counts.collect();
    let findings = counts.iter().filter(|(_, snapshots, changes)| {
        *changes >= MANY_CHANGES && changes.saturating_mul(SNAPSHOTS_PER_CHANGE) >= *snapshots
    });
    let findings = findings.map(|(pool, snapshots, changes)| {
        Finding::error(
            format!("pool {pool}"),
            format!("{changes} of {snapshots} snapshots changed the endpoints or the policy: the filter's agents differ"),
            "give all of its agents the same endpoints, manifests and flags",
        )
    });
    (!counts.is_empty()).then(|| findings.collect())
}

/// Pools whose proxies may read from the agent and not write to it.
pub(super) fn reports(facts: &Facts) -> Option<Vec<Finding>> {
    facts.agent.list.as_ref().ok()?;
    let refused = facts.pools().into_iter().filter_map(|pool| {
        let statistic = |name| facts.statistics.of_pool(pool, name).unwrap_or(0);
        let has_reports = !facts.agent.pool(pool)?.proxies.is_empty();
        let failures = statistic("sharing_failures");
        // A filter that uses another agent has sent its changes there, and is not counted.
        let is_refused = failures > 0 && statistic("sharing_sent") == 0;
        (!has_reports && statistic("snapshots") > 0 && is_refused).then(|| {
            Finding::warning(
                format!("pool {pool}"),
                format!(
                    "the agent has no report of a proxy, and {failures} of the filter's requests to share changes failed: the agent \
                     may refuse its writes"
                ),
                "give the filter, or the agent's cluster in Envoy, a token of the agent's --bearer-token-file, as in \
                 examples/secured-agent; or run both on one host",
            )
        })
    });
    (!facts.managers.is_empty()).then(|| refused.collect())
}

/// Whether Envoy keeps the filter from calling the agent, which is a finding of its own.
fn cannot_call(picker: &Picker) -> bool {
    match &picker.form {
        PickerForm::Wasm(settings) => !missing_functions(settings).is_empty(),
        PickerForm::Native => false,
    }
}

fn missing_cluster(facts: &Facts, place: &str, config: &PickerSettings) -> Option<Finding> {
    let name = config.agent_cluster.as_deref()?;
    let names = facts.dump.clusters.iter().map(|cluster| cluster.name.as_str());
    facts.dump.cluster(name).is_none().then(|| {
        Finding::error(
            place,
            format!(
                "agentCluster names {name:?}, a cluster that Envoy does not have{}",
                did_you_mean(name, names)
            ),
            "add a cluster that reaches the agent, or correct agentCluster",
        )
    })
}

/// Why a picker has no snapshot. A pool that the agent does not have is a finding of its own.
fn never_reached(facts: &Facts, place: String, config: &PickerSettings) -> Option<Finding> {
    const CONSEQUENCE: &str = "the filter has never had a snapshot";
    if facts.agent.lacks(&config.pool) == Some(true) {
        return None;
    }
    let url = &facts.agent.url;
    let Some(cluster) = config.agent_cluster.as_deref() else {
        let addresses = config.agent_addresses().join(", ");
        return Some(Finding::error(
            place,
            format!("{CONSEQUENCE}: none of agent.addresses gives one ({addresses})"),
            format!(
                "let agent.addresses name an agent that runs, with its TLS files and token; this one is at {url}"
            ),
        ));
    };
    let hosts = facts.hosts.of(cluster).unwrap_or_default();
    let status = |code: u16| {
        let name = format!("upstream_rq_{code}");
        facts.dump.cluster(cluster).is_some_and(|cluster| facts.statistics.of_cluster(cluster, &name) > 0)
    };
    let (problem, fix) = if hosts.is_empty() {
        let problem = format!("{CONSEQUENCE}: the cluster {cluster} has no hosts");
        (problem, "correct the agent's address in the cluster: its name may not resolve".to_owned())
    } else if hosts.iter().all(ClusterHost::never_connected) {
        let addresses: Vec<_> = hosts.iter().map(|host| host.address.to_string()).collect();
        (
            format!(
                "{CONSEQUENCE}: no agent accepts connections at {} (cluster {cluster})",
                addresses.join(", ")
            ),
            format!("start the agent there, or correct the address in the cluster; this agent is at {url}"),
        )
    } else if status(401) || status(403) {
        (
            format!("{CONSEQUENCE}: the agent of the cluster {cluster} refuses Envoy's credentials"),
            "add the agent's token and certificate to the cluster, as in examples/secured-agent".to_owned(),
        )
    } else if status(404) {
        (
            format!(
                "{CONSEQUENCE}: the server of the cluster {cluster} does not have the pool {:?}",
                config.pool
            ),
            format!("correct the cluster's address or the filter's \"pool\"; this agent is at {url}"),
        )
    } else {
        (
            format!("{CONSEQUENCE} from the cluster {cluster}"),
            "see the lines of endpoint-picker in Envoy's log".to_owned(),
        )
    };
    Some(Finding::error(place, problem, fix))
}
