//! `EndpointPickerConfig`: every fault that the EPP refuses.

mod asserts;
mod fields;
mod plugins;

use crate::reading::{config, refusal};

#[test]
fn all_faults_of_the_parts_are_reported_at_once() {
    let refusal = refusal(&config(
        "featureGates: [x]
plugins:
- {type: magic}
- {type: queue-scorer, parameters: {y: 1}}
- {type: metrics-data-source, parameters: {caCertPath: x}}
dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: z}]}]}",
    ));
    let paths: Vec<_> = refusal.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
    let expected = [
        "featureGates[0]",
        "plugins[0].type",
        "plugins[1].parameters.y",
        "dataLayer.sources[0].extractors[0].pluginRef",
        "plugins[2].parameters.caCertPath",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn all_faults_of_the_combination_are_reported_at_once() {
    let text = config(
        "plugins: [{type: queue-scorer}, {type: queue-scorer, name: second}]
schedulingProfiles: [{name: a, plugins: [{pluginRef: x}, {pluginRef: y}]}]
parser: {pluginRef: z}",
    );
    let declared = "declared are queue-scorer, second";
    let expected = [
        format!("document 1: parser.pluginRef: no plugin is named \"z\"; {declared}"),
        format!(
            "document 1: schedulingProfiles[0].plugins[0].pluginRef: no plugin is named \"x\"; {declared}"
        ),
        format!(
            "document 1: schedulingProfiles[0].plugins[1].pluginRef: no plugin is named \"y\"; {declared}"
        ),
    ];
    assert_eq!(refusal(&text), expected.join("\n"));
}
