//! The examples of `docs/reference/rules`.

mod admission;
mod filters;
mod flow_control;
mod handlers;
mod latency;
mod pickers;
mod producers;
mod scorers;

use endpoint_picker::plugin::registry::TYPES;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, pod, totals};

/// Pages of the rules, one for each role of plugins that decide.
const PAGES: [&str; 8] = [
    include_str!("../../../../../docs/reference/rules/scorers.md"),
    include_str!("../../../../../docs/reference/rules/filters.md"),
    include_str!("../../../../../docs/reference/rules/saturation.md"),
    include_str!("../../../../../docs/reference/rules/flow-control.md"),
    include_str!("../../../../../docs/reference/rules/pickers.md"),
    include_str!("../../../../../docs/reference/rules/profile-handlers.md"),
    include_str!("../../../../../docs/reference/rules/producers.md"),
    include_str!("../../../../../docs/reference/rules/parsers.md"),
];

#[test]
fn every_plugin_has_a_section_with_an_example() {
    for name in TYPES {
        let heading = format!("\n## `{name}`\n");
        let section = PAGES.iter().find_map(|page| page.split_once(&heading));
        let (_, section) = section.unwrap_or_else(|| panic!("no section on {name}"));
        let section = section.split("\n##").next().unwrap();
        assert!(section.contains("*Example.*"), "no example of {name}");
    }
}

/// One profile of one plugin with these parameters.
fn only(plugin: &str, parameters: &Value) -> Value {
    json!({"plugins": [{"type": plugin, "parameters": parameters}]})
}

fn plain(plugin: &str) -> Value {
    only(plugin, &json!({}))
}

fn scores(config: &Value, readings: &[Reading]) -> Vec<f64> {
    totals(&Fixture::new(config, readings.to_vec()).send("x", &[]))
}

fn kept(fixture: &mut Fixture, headers: &[(&str, &str)]) -> Vec<usize> {
    fixture.send("x", headers).primary_run().unwrap().scored.clone()
}

fn waiting(requests: &[u64]) -> Vec<Reading> {
    requests.iter().map(|&requests| pod(requests, 0.0, &[])).collect()
}

fn load(requests: u64, tokens: u64) -> Load {
    Load { requests, tokens }
}

/// A decode endpoint on (a, 1), and prefill endpoints on (a, 1), (b, 1) and (c, 2), with this plugin in the
/// profile `prefill`.
fn near_decode(plugin: &Value) -> Fixture {
    let prefill = [json!({"pluginRef": "prefill-filter"}), json!({"pluginRef": plugin["type"]})];
    let config = json!({
        "plugins": [
            {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "always-disagg-pd-decider"}}},
            {"type": "always-disagg-pd-decider"}, {"type": "decode-filter"}, {"type": "prefill-filter"},
            {"type": "topology-extractor"}, plugin,
        ],
        "schedulingProfiles": [
            {"name": "decode", "plugins": [{"pluginRef": "decode-filter"}]},
            {"name": "prefill", "plugins": prefill},
        ],
    });
    Fixture::idle(&config, 4)
        .label("llm-d.ai/role", &["decode", "prefill", "prefill", "prefill"])
        .label("kubernetes.io/hostname", &["a", "a", "b", "c"])
        .label("topology.kubernetes.io/zone", &["1", "1", "1", "2"])
}

/// base64 of `default/1`.
const TOKEN: (&str, &str) = ("x-session-token", "ZGVmYXVsdC8x");
