//! Checks of the way from the picker's choice to the host that Envoy connects to.

use endpoint_picker_engine::proxy::headers::DESTINATION;

use super::super::dump::{Cluster, DestinationSource, LB_METADATA};
use super::super::managers::MetadataRule;
use super::super::picker::Steering;
use super::super::report::Finding;
use crate::commands::doctor::{Facts, Picking};
use crate::suggestion::did_you_mean;

pub(super) fn clusters(facts: &Facts) -> Option<Vec<Finding>> {
    let named: Vec<_> = facts.picking().filter(|picking| picking.entry.cluster.is_some()).collect();
    let missing = named.iter().filter(|picking| picking.cluster.is_none()).map(|picking| {
        let name = picking.entry.cluster.as_deref().unwrap_or_default();
        let names = facts.dump.clusters.iter().map(|cluster| cluster.name.as_str());
        Finding::error(
            &picking.entry.place,
            format!(
                "Envoy has no cluster {name:?}: requests of this route get 503{}",
                did_you_mean(name, names)
            ),
            "add the cluster, or let the route name the cluster of the model servers",
        )
    });
    (!named.is_empty()).then(|| missing.collect())
}

/// Clusters that do not read the picker's choice.
pub(super) fn destinations(facts: &Facts) -> Option<Vec<Finding>> {
    let steered: Vec<_> = facts.picking().filter_map(|picking| Some((picking, picking.cluster?))).collect();
    let findings = steered.iter().filter_map(|(picking, cluster)| destination(facts, picking, cluster));
    (!steered.is_empty()).then(|| findings.collect())
}

fn destination(facts: &Facts, picking: &Picking<'_>, cluster: &Cluster) -> Option<Finding> {
    let place = format!("cluster {}, {}", cluster.name, picking.entry.place);
    let steering = picking.picker.steering();
    if let Some(pool) = cluster.module_pool() {
        return module_cluster(picking, &pool, place);
    }
    if steering == Steering::ModuleCluster {
        return Some(Finding::error(
            place,
            "the picker has `\"steering\": \"cluster\"`, and the cluster is not one of the module: Envoy balances by itself",
            "make it a cluster of the type envoy.clusters.dynamic_modules, or remove `steering` and give it an override_host policy",
        ));
    }
    if steering == Steering::OverrideHost && !cluster.is_original_dst() {
        return None;
    }
    let sources = cluster.destination_sources();
    if sources.is_empty() {
        let native = if steering == Steering::Metadata {
            ", or set `\"steering\": \"overrideHost\"` of the picker"
        } else {
            ""
        };
        return Some(Finding::error(
            place,
            "the cluster has no override_host policy: Envoy balances by itself, and ignores the picker's choice",
            format!(
                "give it the load_balancing_policy envoy.load_balancing_policies.override_host with the metadata source \
                 {LB_METADATA} / {DESTINATION}, as in envoy.yaml{native}"
            ),
        ));
    }
    let reasons: Option<Vec<_>> = sources.iter().map(|source| unfed(facts, picking, source)).collect();
    let (problem, fix) = reasons?.swap_remove(0);
    Some(Finding::error(place, problem, fix))
}

fn module_cluster(picking: &Picking<'_>, pool: &str, place: String) -> Option<Finding> {
    if picking.picker.steering() != Steering::ModuleCluster {
        return Some(Finding::error(
            place,
            "the cluster is one of the module, and the picker does not choose for it: the module balances by itself",
            "set `\"steering\": \"cluster\"` in the picker's configuration",
        ));
    }
    let picked = &picking.picker.config.pool;
    (picked != pool).then(|| {
        let problem = format!("the cluster has the pool {pool:?}, and the picker chooses in {picked:?}");
        Finding::error(place, problem, "name the same pool in both configurations")
    })
}

/// Why nothing is at this place where the cluster looks for the destination, and the fix; `None` if the destination is there.
fn unfed(facts: &Facts, picking: &Picking<'_>, source: &DestinationSource) -> Option<(String, String)> {
    let (namespace, key) = match source {
        DestinationSource::Header(name) if name == DESTINATION => return None,
        DestinationSource::Header(name) => {
            let problem = format!("the cluster reads the header {name}, and the picker sets {DESTINATION}");
            return Some((problem, format!("let the cluster read {DESTINATION}")));
        }
        DestinationSource::Metadata { namespace, key } => (namespace.as_str(), key.as_str()),
    };
    let is_ours = (namespace, key) == (LB_METADATA, DESTINATION);
    if is_ours && picking.picker.steering() == Steering::Metadata {
        return None;
    }
    let copies = |rules: &[MetadataRule]| {
        rules
            .iter()
            .any(|rule| rule.header.eq_ignore_ascii_case(DESTINATION) && rule.target() == (namespace, key))
    };
    let filters = picking.entry.filters.iter().enumerate();
    let copying: Vec<_> = filters.filter(|(_, filter)| copies(filter.metadata_rules())).collect();
    if copying.iter().any(|(at, _)| *at > picking.position) {
        return None;
    }
    let consequence = "Envoy balances by itself, and ignores the picker's choice";
    if let Some((_, filter)) = copying.first() {
        let name = &filter.name;
        let problem = format!(
            "the filter {name} copies {DESTINATION} into metadata before the picker sets it: {consequence}"
        );
        return Some((problem, format!("move {name} behind the picker in http_filters")));
    }
    let all = facts.managers.iter().flat_map(|manager| &manager.filters);
    let disabled = all.into_iter().find(|filter| {
        picking.entry.filters.iter().all(|active| active.name != filter.name)
            && copies(filter.metadata_rules())
    });
    let what = format!("the cluster reads the metadata {namespace} / {key}");
    if let Some(filter) = disabled {
        let name = &filter.name;
        let problem =
            format!("{what}, and the filter {name} that writes it is disabled on this route: {consequence}");
        return Some((problem, format!("enable {name} in the route's typed_per_filter_config")));
    }
    let problem = format!("{what}, and no filter writes it: {consequence}");
    let fix = format!(
        "put a header_to_metadata filter right behind the picker, with the request rule header: {DESTINATION}, \
         on_header_present: {{metadata_namespace: {namespace}, key: {key}, type: STRING}}"
    );
    Some((problem, fix))
}

/// Routes whose requests are lost with their server. An `ORIGINAL_DST` cluster has nothing to retry at.
pub(super) fn retries(facts: &Facts) -> Option<Vec<Finding>> {
    let retried = facts.picking().filter_map(|picking| {
        let cluster = picking.cluster.filter(|cluster| !cluster.is_original_dst())?;
        Some((picking.entry, cluster))
    });
    let retried: Vec<_> = retried.collect();
    let findings = retried.iter().filter_map(|(entry, cluster)| {
        let policy = entry.retry_policy.as_ref().or(cluster.retry_policy());
        let problem = match policy {
            None => "the route has no retry policy: a request is lost when its server refuses or ends the connection",
            Some(policy) if !policy.retries_unreachable_servers() => {
                "the route's retry policy leaves out servers that refuse or end the connection: their requests are lost"
            }
            Some(_) => return None,
        };
        let fix = "add retry_policy: {retry_on: \"connect-failure,refused-stream,reset,retriable-status-codes\", \
                   retriable_status_codes: [429, 503], num_retries: 3} to the route";
        Some(Finding::warning(&entry.place, problem, fix))
    });
    (!retried.is_empty()).then(|| findings.collect())
}
