//! The rules that agents have without others, for budgets, benches and the profile's training.

use endpoint_picker_engine::testing::{picker_config, plugin};
use endpoint_picker_wire::v1;

/// The rules of the example, with the default weights.
pub(crate) fn expected_latency() -> v1::Policy {
    let example = include_str!("../../../../examples/choosing/expected-latency.yaml");
    // Without comments, and switches that are off.
    let example: String =
        example.lines().filter(|line| !line.starts_with('#')).map(|line| line.to_owned() + "\n").collect();
    let (scorer, producer, parameters) =
        ("expected-latency-scorer", "approx-prefix-cache-producer", "{ capacityInTokens: true }");
    let plugins = format!(
        "plugins:\n  - type: {scorer}\n  - type: {producer}\n    parameters: {parameters}\nscheduling"
    );
    assert!(example.contains(&plugins), "the rules of the example are others");
    let mut config = picker_config(&[(scorer, None)]);
    config.plugins.push(plugin(producer, r#"{"capacityInTokens": true}"#));
    v1::Policy { picker_config: Some(config), ..v1::Policy::default() }
}
