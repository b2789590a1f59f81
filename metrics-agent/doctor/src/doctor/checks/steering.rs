//! Checks of the way from the picker's choice to the host that Envoy connects to.

use endpoint_picker_engine::proxy::headers::{DESTINATION, FALLBACK};
use endpoint_picker_engine::proxy::metadata::FALLBACK_KEY;
use metrics_agent_support::suggestion::did_you_mean;

use super::super::dump::{DestinationSource, DumpedCluster, LB_METADATA};
use super::super::managers::HttpFilter;
use super::super::picker::Steering;
use super::super::report::Finding;
use crate::doctor::{Facts, Picking};

/// Namespace and key of the metadata with the picker's choice.
const OWN: (&str, &str) = (LB_METADATA, DESTINATION);

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

fn destination(facts: &Facts, picking: &Picking<'_>, cluster: &DumpedCluster) -> Option<Finding> {
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

/// Why nothing is at this place where the cluster looks for the destination, and the fix; `None` if the
/// destination is there.
fn unfed(facts: &Facts, picking: &Picking<'_>, source: &DestinationSource) -> Option<(String, String)> {
    let (namespace, key) = match source {
        DestinationSource::Header(name) if name == DESTINATION => return None,
        DestinationSource::Header(name) => {
            let problem = format!("the cluster reads the header {name}, and the picker sets {DESTINATION}");
            return Some((problem, format!("let the cluster read {DESTINATION}")));
        }
        DestinationSource::Metadata { namespace, key } => (namespace.as_str(), key.as_str()),
    };
    if (namespace, key) == OWN && picking.picker.steering() == Steering::Metadata {
        return None;
    }
    let copies = |filter: &HttpFilter| filter.copies(DESTINATION, (namespace, key));
    let filters = picking.entry.filters.iter().enumerate();
    let copying: Vec<_> = filters.filter(|(_, filter)| copies(filter)).collect();
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
        picking.entry.filters.iter().all(|active| active.name != filter.name) && copies(filter)
    });
    let what = format!("the cluster reads the metadata {namespace} / {key}");
    if let Some(filter) = disabled {
        let name = &filter.name;
        let problem =
            format!("{what}, and the filter {name} that writes it is disabled on this route: {consequence}");
        return Some((problem, format!("enable {name} in the route's typed_per_filter_config")));
    }
    // The picker's own metadata is there already: the cluster reads it under another name.
    let has_own = picking.picker.steering() == Steering::Metadata
        || picking.entry.filters.iter().skip(picking.position).any(|it| it.copies(DESTINATION, OWN));
    if has_own && picking.cluster.is_some_and(|cluster| !cluster.is_original_dst()) {
        let problem =
            format!("{what}, and the picker's choice is in {LB_METADATA} / {DESTINATION}: {consequence}");
        let fix = format!("let the cluster read the metadata {LB_METADATA} / {DESTINATION}");
        return Some((problem, fix));
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
        const RETRIES: &str =
            "add retry_policy: {retry_on: \"connect-failure,refused-stream,reset,retriable-status-codes\", \
             retriable_status_codes: [429, 503], num_retries: 3} to the route";
        let (problem, fix) = match entry.retry_policy.as_ref().or(cluster.retry_policy()) {
            None => (
                "the route has no retry policy: a request is lost when its server refuses or ends the connection",
                RETRIES,
            ),
            Some(policy) if !policy.retries_unreachable_servers() => (
                "the route's retry policy leaves out servers that refuse or end the connection: their requests are lost",
                RETRIES,
            ),
            // Only `override_host` has a list with an end: other balancers of one choice have no other host.
            Some(policy) if !policy.has_host_predicate() && cluster.keeps_hints().is_some() => (
                "the route's retry policy has no retry_host_predicate: after the end of the picker's list a request may be sent again to \
                 the server that has just failed it",
                "add retry_host_predicate: [{name: envoy.retry_host_predicates.previous_hosts, typed_config: {\"@type\": \
                 type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate}}] and \
                 host_selection_retry_max_attempts: 5 to the retry_policy",
            ),
            Some(_) => return None,
        };
        Some(Finding::warning(&entry.place, problem, fix))
    });
    (!retried.is_empty()).then(|| findings.collect())
}

/// Requests with a subset hint that leave it after the end of the picker's list.
pub(super) fn hints(facts: &Facts) -> Option<Vec<Finding>> {
    let hinted = facts.picking().filter_map(|picking| {
        let hints = picking.entry.filters.iter().take(picking.position).any(|filter| filter.sets_hint());
        let marks = matches!(picking.picker.steering(), Steering::Header | Steering::Metadata);
        let keeps = picking.cluster?.keeps_hints()?;
        (hints && marks).then_some((picking, picking.cluster?, keeps))
    });
    let hinted: Vec<_> = hinted.collect();
    let findings = hinted.iter().filter_map(|(picking, cluster, keeps)| {
        let mark = (LB_METADATA, FALLBACK_KEY);
        let mut later = picking.entry.filters.iter().skip(picking.position);
        let is_marked = picking.picker.steering() == Steering::Metadata
            || later.any(|filter| filter.copies(FALLBACK, mark));
        let (problem, fix) = if !keeps {
            (
                "the fallback policy of override_host balances over all hosts: a request whose hinted endpoints fail leaves its subset hint",
                format!(
                    "give override_host the fallback_policy of envoy.yaml: a subset policy with the selector keys: [{FALLBACK_KEY}], \
                     fallback_policy: NO_FALLBACK"
                ),
            )
        } else if !is_marked {
            (
                "no filter copies the picker's mark of requests with a subset hint: one whose hinted endpoints fail leaves its hint",
                format!(
                    "add the request rule header: {FALLBACK}, remove: true, on_header_present: {{metadata_namespace: {LB_METADATA}, key: \
                     {FALLBACK_KEY}, type: STRING}} to the header_to_metadata filter behind the picker"
                ),
            )
        } else {
            return None;
        };
        Some(Finding::error(format!("cluster {}, {}", cluster.name, picking.entry.place), problem, fix))
    });
    (!hinted.is_empty()).then(|| findings.collect())
}
