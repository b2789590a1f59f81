//! Checks of what Envoy lets the wasm filter do.

use super::super::picker::{PickerForm, WasmSettings};
use super::super::report::Finding;
use crate::doctor::Facts;

/// All functions of Envoy and of the module, each with `allow` or `deny`.
const CAPABILITIES: &str = include_str!("../../../../../filter/wasm/capabilities.txt");

/// Maximum number of functions in a message.
const MAX_FUNCTIONS: usize = 3;

/// The wasm filters, each with its place.
fn filters(facts: &Facts) -> Vec<(String, &WasmSettings)> {
    let pickers = facts.pickers().into_iter();
    let filters = pickers.filter_map(|(place, picker)| match &picker.form {
        PickerForm::Wasm(settings) => Some((place, settings)),
        PickerForm::Native => None,
    });
    filters.collect()
}

pub(super) fn stop_iteration(facts: &Facts) -> Option<Vec<Finding>> {
    let filters = filters(facts);
    let missing = filters.iter().filter(|(_, settings)| !settings.waits_for_bodies).map(|(place, _)| {
        Finding::error(
            place,
            "allow_on_headers_stop_iteration is missing: Envoy passes no body to the filter, so requests with one get 503 after a second, \
             and then failureMode decides about them without their body",
            "add `allow_on_headers_stop_iteration: true` to the filter's `config`",
        )
    });
    (!filters.is_empty()).then(|| missing.collect())
}

/// Functions that a filter needs and may not call.
pub(super) fn capabilities(facts: &Facts) -> Option<Vec<Finding>> {
    let filters = filters(facts);
    let findings = filters.iter().filter_map(|(place, settings)| {
        let missing = missing_functions(settings);
        let named: Vec<_> = missing.iter().take(MAX_FUNCTIONS).copied().collect();
        let more = if missing.len() > MAX_FUNCTIONS { ", …" } else { "" };
        (!missing.is_empty()).then(|| {
            Finding::error(
                place,
                format!(
                    "allowed_capabilities lacks {}{more}, which the filter needs: it does not pick as it should",
                    named.join(", ")
                ),
                "copy capability_restriction_config of envoy.yaml, or remove it: without it the module may call all functions",
            )
        })
    });
    (!filters.is_empty()).then(|| findings.collect())
}

/// The functions that a filter needs and that its settings do not allow.
pub(super) fn missing_functions(settings: &WasmSettings) -> Vec<&'static str> {
    let needed = CAPABILITIES.lines().filter_map(|line| line.strip_prefix("allow ")).map(str::trim);
    needed.filter(|function| !settings.allows(function)).collect()
}

/// Filters that a trap ends without limit.
pub(super) fn traps(facts: &Facts) -> Option<Vec<Finding>> {
    let filters = filters(facts);
    let findings = filters.iter().filter_map(|(place, settings)| {
        let problem = match settings.failure_policy.as_str() {
            "FAIL_RELOAD" => return None,
            policy if policy == "FAIL_OPEN" || settings.fail_open => {
                "failure_policy is FAIL_OPEN: after a trap the worker's requests pass without the picker until Envoy is restarted"
            }
            _ => "failure_policy is not FAIL_RELOAD: after a trap the worker responds with 503 until Envoy is restarted",
        };
        let fix = "set failure_policy: FAIL_RELOAD, and reload_config: {backoff: {base_interval: 0.004s}}";
        Some(Finding::warning(place, problem, fix))
    });
    (!filters.is_empty()).then(|| findings.collect())
}

/// Statistics without labels. The statistics of a gateway are its control plane's, which sends the routes
/// too.
pub(super) fn labels(facts: &Facts) -> Option<Vec<Finding>> {
    let own = facts.managers.iter().filter(|manager| manager.settings.route_config.is_some());
    let is_wasm = |form: &PickerForm| matches!(form, PickerForm::Wasm(_));
    let filters: Vec<_> = own
        .flat_map(|manager| manager.pickers().map(move |(filter, picker)| (manager.place_of(filter), picker)))
        .filter(|(_, picker)| is_wasm(&picker.form))
        .collect();
    let without = filters.iter().filter(|_| !facts.dump.has_stats_tags).map(|(place, _)| {
        Finding::warning(
            place,
            "stats_config has no stats_tags of the filter: pool, endpoint and status are parts of its statistics' names, so alerts and \
             dashboards do not find them",
            "copy stats_config of envoy.yaml into Envoy's configuration",
        )
    });
    (!filters.is_empty()).then(|| without.collect())
}
