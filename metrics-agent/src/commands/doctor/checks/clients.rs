//! Checks of what clients may send.

use endpoint_picker::policy::REWRITE_HEADERS;
use endpoint_picker_engine::proxy::headers::{DESTINATION, EXPLANATION, FALLBACK, SCORES};

use super::super::facts::Facts;
use super::super::managers::Manager;
use super::super::report::Finding;

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
