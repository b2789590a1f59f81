//! Checks of the agent as Envoy Gateway's extension server.

use metrics_agent_status::extension::ServerStatus;

use super::super::report::Finding;
use crate::doctor::{Facts, PoolRoute};

/// Envoy Gateway's calls of the agent.
pub(super) fn calls(facts: &Facts) -> Option<Vec<Finding>> {
    let status = facts.agent.list.as_ref().ok()?.extension.as_ref()?;
    let is_picking = !facts.managers.is_empty();
    let finding = |(problem, fix): (String, &str)| {
        Finding::error(format!("agent {}, extension server", facts.agent.url), problem, fix)
    };
    Some(fault(status, is_picking).map(finding).into_iter().collect())
}

/// The reason for which Envoy Gateway's calls have no effect, and the fix. Envoy Gateway calls one of several
/// agents, so that an agent without calls is a fault only where Envoy does not have the filter.
fn fault(status: &ServerStatus, is_picking: bool) -> Option<(String, &'static str)> {
    if let Some(reason) = status.failed_handshake.as_ref().filter(|_| status.connections == 0) {
        return Some((
            format!("the TLS handshake with Envoy Gateway fails, and changes of routes wait: {reason}"),
            "certificateRef of the entry in extensionManagers names a Secret whose tls.crt is the authority of --extension-cert, and \
             clientCertificateRef one whose certificate is issued by --extension-client-ca; renew what has expired",
        ));
    }
    let calls = &status.calls;
    if calls.translation > 0 && calls.route > 0 {
        return missing_parts(status);
    }
    if is_picking {
        return None;
    }
    Some(if calls.route > 0 {
        (
            "Envoy Gateway calls the hook Route, and never Translation: routes to InferencePools do not get the filter".to_owned(),
            "the entry in extensionManagers needs `post: [Route, Endpoints, Translation]`",
        )
    } else if status.connections == 0 && calls.translation == 0 {
        (
            "Envoy Gateway has not connected to this agent: routes to InferencePools are not served"
                .to_owned(),
            "enter the agents in config.envoyGateway.extensionManagers of Envoy Gateway, with their Service and port; its log has `loaded \
             extension manager`. It calls one of several agents: read the others with --agent",
        )
    } else {
        (
            "Envoy Gateway is connected, and has called the agent for no route to an InferencePool"
                .to_owned(),
            "the entry in extensionManagers needs InferencePool in backendResources, and the hook Route. If Envoy Gateway logs `skipping watch` or \
             that it may not list inferencepools, install their definition or the chart's ClusterRole, and restart it. Or no accepted \
             HTTPRoute leads to a pool",
        )
    })
}

/// Parts of a Gateway's configuration that Envoy Gateway does not pass on.
fn missing_parts(status: &ServerStatus) -> Option<(String, &'static str)> {
    let received = &status.largest_translation;
    if received.routes == 0 {
        return Some((
            "Envoy Gateway passes no routes to the hook Translation: they do not get their pools' configuration".to_owned(),
            "the entry in extensionManagers needs `translation: {route: {includeAll: true}}`",
        ));
    }
    if received.listeners == 0 {
        return Some((
            "Envoy Gateway passes no listeners to the hook Translation: they do not get the filter"
                .to_owned(),
            "the entry in extensionManagers needs `translation: {listener: {includeAll: true}}`",
        ));
    }
    if received.clusters == 0 {
        return Some((
            "Envoy Gateway passes no clusters to the hook Translation: the pools' clusters lack the settings of its policies".to_owned(),
            "the entry in extensionManagers needs `translation: {cluster: {includeAll: true}}`",
        ));
    }
    (status.calls.endpoints == 0).then(|| {
        (
            "Envoy Gateway does not call the hook Endpoints: all pools of a rule have the same weight"
                .to_owned(),
            "the entry in extensionManagers needs `post: [Route, Endpoints, Translation]`",
        )
    })
}

/// Routes to pools without the filter, or without its configuration.
pub(super) fn routes(facts: &Facts) -> Option<Vec<Finding>> {
    let routes = facts.pool_routes();
    let findings = routes.iter().flat_map(|route| of_route(facts, route)).collect();
    (!routes.is_empty()).then_some(findings)
}

fn of_route(facts: &Facts, PoolRoute { configuration, host, route }: &PoolRoute<'_>) -> Vec<Finding> {
    let pools = route.marked_pools();
    let place =
        format!("route configuration {configuration}, virtual host {}, route {}", host.name, route.label());
    let foreign = pools.iter().filter(|pool| !pool.is_own).map(|pool| {
        Finding::error(
            &place,
            format!(
                "the pool {} has an endpoint picker of its own, which Envoy Gateway does not call: its share of the requests fails",
                pool.name
            ),
            "remove the pool's endpointPickerRef, let it name the agents' Service, or name the pool with --extension-pool (the chart's `pools`)",
        )
    });
    let mut findings: Vec<_> = foreign.collect();
    if route.is_refused_for_order() {
        findings.push(Finding::error(
            &place,
            "its requests are refused: Envoy Gateway calls Envoy AI Gateway's extension server after the agents",
            "in extensionManagers of Envoy Gateway's configuration, enter Envoy AI Gateway's server before the agents; Envoy Gateway reads it again by itself",
        ));
    }
    let has_filter = facts.managers.iter().any(|it| it.settings.route_config_name() == Some(configuration));
    if route.route.is_none() || pools.iter().all(|pool| !pool.is_own) {
        return findings;
    }
    if !route.has_filter_settings() {
        findings.push(Finding::error(
            place,
            "the route leads to an InferencePool and has no configuration of the filter: its requests are not picked",
            "the entry in Envoy Gateway's extensionManagers needs the hook Translation and `translation: {route: {includeAll: true}}`; then \
             restart Envoy Gateway",
        ));
    } else if !has_filter {
        findings.push(Finding::error(
            format!("listener of the route configuration {configuration}"),
            "routes lead to InferencePools, and the listener does not have the filter: their requests are not picked",
            "if Envoy has refused the listener, mend that first; otherwise the entry in Envoy Gateway's extensionManagers needs \
             `translation: {listener: {includeAll: true}}`",
        ));
    }
    findings
}
