//! Checks of the limits in time and number that Envoy has by default, which are made for short requests.

use super::super::report::Finding;
use crate::doctor::Facts;

/// The seconds after which the shipped clusters close idle connections: less than the 5 s of vLLM and SGLang.
const IDLE_SECONDS: f64 = 4.0;

/// Routes with Envoy's timeout.
pub(super) fn timeouts(facts: &Facts) -> Option<Vec<Finding>> {
    let mut entries = facts.picking().map(|picking| picking.entry).peekable();
    entries.peek()?;
    let without = entries.filter(|entry| !entry.has_timeout).map(|entry| {
        Finding::warning(
            &entry.place,
            "the route has no timeout, so Envoy's holds: a response of more than 15 s ends with 504, or is cut",
            "set timeout: 0s and idle_timeout: 900s of the route",
        )
    });
    Some(without.collect())
}

/// Clusters whose idle connections the servers close first.
pub(super) fn idle_connections(facts: &Facts) -> Option<Vec<Finding>> {
    let clusters: Vec<_> = facts.picking().filter_map(|picking| picking.cluster).collect();
    // A server of HTTP/2 announces that it closes a connection.
    let of_http1 = clusters.iter().filter(|cluster| !cluster.speaks_only_http2());
    let findings = of_http1.filter_map(|cluster| {
        let open = match cluster.idle_seconds() {
            Some(seconds) if seconds <= IDLE_SECONDS => return None,
            Some(seconds) => format!("for {seconds} s"),
            None => "without limit".to_owned(),
        };
        Some(Finding::warning(
            format!("cluster {}", cluster.name),
            format!(
                "idle connections to the servers stay open {open}: vLLM and SGLang close theirs after 5 s, and a request that is sent just \
                 then fails"
            ),
            "set common_http_protocol_options: {idle_timeout: 4s} in the cluster's HttpProtocolOptions",
        ))
    });
    (!clusters.is_empty()).then(|| findings.collect())
}

/// Clusters with Envoy's circuit breakers.
pub(super) fn circuit_breakers(facts: &Facts) -> Option<Vec<Finding>> {
    let clusters: Vec<_> = facts.picking().filter_map(|picking| picking.cluster).collect();
    let findings = clusters.iter().filter_map(|cluster| {
        let missing = cluster.default_circuit_breakers();
        (!missing.is_empty()).then(|| {
            Finding::warning(
                format!("cluster {}", cluster.name),
                format!(
                    "circuit breakers have Envoy's defaults ({}): 1024 requests at once, of which 3 may be retries, and 503 beyond that",
                    missing.join(", ")
                ),
                "set circuit_breakers: {thresholds: [{max_connections: 65536, max_pending_requests: 65536, max_requests: 65536, \
                 max_retries: 1024}]} of the cluster",
            )
        })
    });
    (!clusters.is_empty()).then(|| findings.collect())
}
