//! The examples of `docs/reference/rules/README.md`.

mod admission;
mod filters;
mod flow_control;
mod handlers;
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

#[test]
fn every_plugin_has_a_section_with_an_example() {
    let page = include_str!("../../../../../docs/reference/rules/README.md");
    for name in TYPES {
        let heading = format!("\n### `{name}`\n");
        let (_, section) = page.split_once(&heading).unwrap_or_else(|| panic!("no section on {name}"));
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

/// base64 of `default/1`.
const TOKEN: (&str, &str) = ("x-session-token", "ZGVmYXVsdC8x");
