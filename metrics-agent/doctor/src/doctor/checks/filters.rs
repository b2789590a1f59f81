//! Checks of the filters: which of them run, in which order, and with which settings.

use std::collections::BTreeSet;
use std::sync::Arc;

use endpoint_picker::policy::REWRITE_HEADERS;
use endpoint_picker_engine::proxy::headers::{DESTINATION, EXPLANATION, FALLBACK, SCORES};
use metrics_agent_status::columns::counted;

use super::super::report::Finding;
use crate::doctor::Facts;
use crate::doctor::managers::{FilterKind, HttpFilter, Manager};

/// Updates that Envoy refuses, and resources that cannot be read here.
pub(super) fn updates(facts: &Facts) -> Vec<Finding> {
    let refused = facts.dump.refused.iter().map(|update| {
        let problem = format!(
            "Envoy has refused an update, and the former configuration stays in force: {}",
            update.reason
        );
        let fix = if update.reason.to_ascii_lowercase().contains("dynamic module") {
            "mount the module's file into the proxy; with Envoy Gateway, let the EnvoyProxy of the Gateway or of its class be the chart's, or have \
             its volumes and mounts"
        } else {
            "correct the resource at the place that the reason names"
        };
        Finding::error(&update.resource, problem, fix)
    });
    let unread = facts.dump.unread.iter().map(|reason| {
        let problem = format!("a part of the configuration cannot be read, and is not checked: {reason}");
        Finding::warning("/config_dump", problem, "use an agent and an Envoy of supported versions")
    });
    refused.chain(unread).collect()
}

/// Envoys without the picker. `None` for one that gets it from an extension server: the server's checks find
/// the reason.
pub(super) fn presence(facts: &Facts) -> Option<Vec<Finding>> {
    if !facts.managers.is_empty() {
        return Some(Vec::new());
    }
    let absent = || {
        vec![Finding::error(
            "listeners",
            "no listener has the endpoint picker: Envoy balances all requests",
            "put the filter before envoy.filters.http.router into http_filters, as in envoy.yaml or envoy-native.yaml",
        )]
    };
    (!facts.is_of_extension()).then(absent)
}

pub(super) fn routes(facts: &Facts) -> Option<Vec<Finding>> {
    let pool_routes = facts.pool_routes();
    // A route to a pool that lacks the filter's configuration is a finding of its own.
    let is_idle = |manager: &&Manager| {
        let name = manager.settings.route_config_name();
        manager.entries.is_empty() && pool_routes.iter().all(|route| Some(route.configuration) != name)
    };
    let findings = facts.managers.iter().filter(is_idle).map(|manager| {
        let place = format!("listener {}", manager.listener);
        if let Some(routes) = &manager.missing_routes {
            let problem = format!("Envoy does not have the route configuration {routes:?}: no request is routed");
            return Finding::error(place, problem, "let the control plane send it, or correct route_config_name");
        }
        let names = manager.picker_names();
        let name = names.first().copied().unwrap_or_default();
        Finding::error(
            place,
            format!("no route enables the picker {}: Envoy balances all requests", names.join(", ")),
            format!(
                "add typed_per_filter_config: {{{name}: {{\"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, \
                 config: {{}}}}}} to the routes of the model servers, or remove `disabled: true`"
            ),
        )
    });
    (!facts.managers.is_empty()).then(|| findings.collect())
}

pub(super) fn one_picker(facts: &Facts) -> Option<Vec<Finding>> {
    let entries = facts.managers.iter().flat_map(|manager| &manager.entries);
    let findings = entries.filter_map(|entry| {
        let picking = entry.pickers().filter(|(_, picker)| picker.picks());
        let pools: Vec<_> = picking.map(|(_, picker)| picker.config.pool.as_str()).collect();
        (pools.len() > 1).then(|| {
            Finding::error(
                &entry.place,
                format!(
                    "{} run on one route, for the pools {}: the last one decides",
                    counted(pools.len(), "picker"),
                    pools.join(", ")
                ),
                "disable all but one in the route's typed_per_filter_config",
            )
        })
    });
    facts.picking().next()?;
    Some(findings.collect())
}

/// Filters that restrict the choice too late.
pub(super) fn hints(facts: &Facts) -> Option<Vec<Finding>> {
    let mut has_hints = false;
    let mut findings = Vec::new();
    for picking in facts.picking() {
        for (at, filter) in picking.entry.filters.iter().enumerate() {
            let sets_hint = filter.sets_hint();
            has_hints |= sets_hint;
            if sets_hint && at > picking.position {
                let problem = format!(
                    "the filter {} sets the subset hint behind the picker, which does not see it",
                    filter.name
                );
                let fix = format!("move {} before the picker in http_filters", filter.name);
                findings.push(Finding::error(&picking.entry.place, problem, fix));
            }
        }
    }
    has_hints.then_some(findings)
}

/// Shadows of another picker that run before it, and shadows without anything to compare.
pub(super) fn shadows(facts: &Facts) -> Option<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut pools = BTreeSet::new();
    for entry in facts.managers.iter().flat_map(|manager| &manager.entries) {
        let is_other = |filter: &Arc<HttpFilter>| matches!(filter.kind, FilterKind::ExtProc);
        for (at, picker) in entry.pickers().filter(|(_, picker)| !picker.picks()) {
            pools.insert(picker.config.pool.as_str());
            let later = entry.filters.iter().skip(at).find(|filter| is_other(filter));
            let has_earlier = entry.filters.iter().take(at).any(is_other);
            let (Some(other), false) = (later, has_earlier) else { continue };
            let problem = format!(
                "the filter that shadows runs before {}, and does not see its choice: no request is compared",
                other.name
            );
            let fix = format!("move the filter behind {} in http_filters", other.name);
            findings.push(Finding::warning(&entry.place, problem, fix));
        }
    }
    if findings.is_empty() {
        findings.extend(pools.iter().filter_map(|pool| without_comparison(facts, pool)));
    }
    (!pools.is_empty()).then_some(findings)
}

fn without_comparison(facts: &Facts, pool: &str) -> Option<Finding> {
    let statistic = |name| facts.statistics.of_pool(pool, name).unwrap_or(0);
    let not_compared = statistic("shadow_not_compared");
    let compared = statistic("shadow_agreed").saturating_add(statistic("shadow_disagreed"));
    (not_compared > 0 && compared == 0).then(|| {
        let problem = format!(
            "the filter that shadows has compared none of {}: it found no choice of another picker",
            counted(not_compared, "request")
        );
        let fix = "put the filter behind the other picker, which has to set the header x-gateway-destination-endpoint";
        Finding::warning(format!("pool {pool}"), problem, fix)
    })
}

pub(super) fn buffers(facts: &Facts) -> Option<Vec<Finding>> {
    let mut has_limits = false;
    let mut findings = Vec::new();
    for manager in &facts.managers {
        for (filter, picker) in manager.pickers() {
            let Some(held) = picker.held_bytes() else { continue };
            has_limits = true;
            if let Some(buffered) = manager.buffer_bytes.filter(|bytes| *bytes < held) {
                findings.push(Finding::warning(
                    manager.place_of(filter),
                    format!(
                        "the listener buffers {buffered} bytes, and the filter holds up to {held}: Envoy answers longer bodies with 413"
                    ),
                    format!(
                        "set per_connection_buffer_limit_bytes of the listener above {held}, or limits.maxHeldBytes of the filter below {buffered}"
                    ),
                ));
            }
        }
    }
    has_limits.then_some(findings)
}

/// Headers by which a client could choose its server or its model.
pub(super) fn headers(facts: &Facts) -> Option<Vec<Finding>> {
    let findings = facts.managers.iter().filter_map(|manager| {
        let is_kept = |header: &&str| !manager.settings.removes_early(header);
        let steering: Vec<_> = required(manager).into_iter().filter(is_kept).collect();
        let models = REWRITE_HEADERS.into_iter().filter(is_kept);
        let headers: Vec<_> = steering.iter().copied().chain(models).collect();
        let (first, names) = (headers.first()?, headers.join(", "));
        let removals: Vec<_> = headers.iter().map(|header| format!("{{remove: {header}}}")).collect();
        let removals = removals.join(", ");
        let place = format!("listener {}, early_header_mutation_extensions", manager.listener);
        let fix =
            format!("add a HeaderMutation to early_header_mutation_extensions with mutations: [{removals}]");
        Some(if steering.contains(first) {
            let problem =
                format!("clients can set {names}: on a route without the picker they choose their server");
            Finding::error(place, problem, fix)
        } else {
            let problem = format!(
                "clients can set {names}: they choose a model in place of that in the body, past the 404"
            );
            Finding::warning(
                place,
                problem,
                format!("{fix}, unless a gateway in front that names models is the only client"),
            )
        })
    });
    (!facts.managers.is_empty()).then(|| findings.collect())
}

/// The picker's headers that a later filter or a cluster reads.
fn required(manager: &Manager) -> Vec<&'static str> {
    let rules = || manager.filters.iter().flat_map(|filter| filter.metadata_rules());
    let is_copied = |header: &&str| rules().any(|rule| rule.header.eq_ignore_ascii_case(header));
    let copied = [FALLBACK, SCORES, EXPLANATION].into_iter().filter(is_copied);
    core::iter::once(DESTINATION).chain(copied).collect()
}

/// Paths that the picker reads in another form than routes, filters and servers.
pub(super) fn paths(facts: &Facts) -> Option<Vec<Finding>> {
    let findings = facts.managers.iter().filter_map(|manager| {
        let missing = manager.settings.missing_path_settings();
        (!missing.is_empty()).then(|| {
            Finding::warning(
                format!("listener {}, HTTP connection manager", manager.listener),
                "paths are not normalized: a client can write a path that the picker reads in one way, and routes and servers in another",
                format!("set {}", missing.join(", ")),
            )
        })
    });
    (!facts.managers.is_empty()).then(|| findings.collect())
}
