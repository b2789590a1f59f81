//! Checks of what clients may send.

use endpoint_picker_engine::headers::{DESTINATION, EXPLANATION, FALLBACK, SCORES};

use super::super::facts::Facts;
use super::super::managers::Manager;
use super::super::report::Finding;

/// Headers by which a client could choose its server.
pub(super) fn headers(facts: &Facts) -> Option<Vec<Finding>> {
    let findings = facts.managers.iter().filter_map(|manager| {
        let headers = required(manager).into_iter().filter(|header| !manager.settings.removes_early(header));
        let headers: Vec<_> = headers.collect();
        let removals: Vec<_> = headers.iter().map(|header| format!("{{remove: {header}}}")).collect();
        (!headers.is_empty()).then(|| {
            Finding::error(
                format!("listener {}, early_header_mutation_extensions", manager.listener),
                format!(
                    "clients can set {}: on a route without the picker they choose their server",
                    headers.join(", ")
                ),
                format!(
                    "add a HeaderMutation to early_header_mutation_extensions with mutations: [{}]",
                    removals.join(", ")
                ),
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
