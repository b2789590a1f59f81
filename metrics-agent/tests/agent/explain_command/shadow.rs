//! The output for a shadow configuration.

use endpoint_picker_wire::{Message, v1};

use super::fixture::{BODY, Fixture, row};

/// An acting configuration, and one that is its shadow.
fn configs(acting: &str, shadow: &str) -> String {
    let config = |metadata: &str, rest: &str| {
        format!("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{metadata}{rest}\n---\n")
    };
    let metadata = "metadata: {name: default, annotations: {endpoint-picker/shadow: \"true\"}}\n";
    config("", acting) + &config(metadata, shadow)
}

const QUEUE: &str = "plugins: [{type: queue-scorer}]";
const PREFIX: &str = "plugins: [{type: prefix-cache-scorer}]";

const HEADING: &str = "\nthe shadow configuration would decide:\n\n";

/// The parts of the output for the acting configuration and for the shadow.
fn parts(output: &str) -> (&str, &str) {
    output.split_once(HEADING).unwrap_or_else(|| panic!("{output}"))
}

#[tokio::test]
async fn without_a_shadow_the_output_names_none() {
    let fixture = Fixture::with(&[0, 1], None).await;
    let (output, _) = fixture.explain(&[]).await;
    assert!(!output.contains("shadow"), "{output}");
}

#[tokio::test]
async fn a_shadow_has_its_own_table_and_whether_it_agrees() {
    let fixture = Fixture::with(&[0, 1], Some(&configs(QUEUE, PREFIX))).await;
    fixture.write("long.json", &BODY.replace("hello", &"The same long beginning. ".repeat(200)));
    let (output, code) = fixture.explain_body("long.json", &[]).await;
    assert_eq!(code, 0, "{output}");
    let (acting, shadow) = parts(&output);
    assert_eq!(row(acting, fixture.address(0)), ["1.000", "1.000", "100.0 %", "picked"], "{output}");
    assert!(acting.contains("queue-scorer x") && !acting.contains("prefix-cache-scorer"), "{output}");
    assert!(shadow.contains("prefix-cache-scorer x") && !shadow.contains("queue-scorer"), "{output}");
    assert!(shadow.contains("a tie") && shadow.contains("\nthe shadow agrees\n"), "any would do: {output}");

    let after = format!("{}={}", fixture.path("long.json"), fixture.address(1));
    let (output, code) = fixture.explain_body("long.json", &["--after", &after]).await;
    assert_eq!(code, 0, "{output}");
    let (acting, shadow) = parts(&output);
    assert!(acting.contains(&format!("\nrouted to {}\n", fixture.address(0))), "{output}");
    assert_eq!(row(shadow, fixture.address(1)), ["1.000", "1.000", "100.0 %", "picked"], "{output}");
    let outcome = format!("\nrouted to {}\nthe shadow disagrees\n", fixture.address(1));
    assert!(shadow.contains(&outcome), "it remembers where the prompt went: {output}");
}

#[tokio::test]
async fn where_chance_decides_the_share_of_agreement_is_printed() {
    let fixture = Fixture::with(&[0, 0], Some(&configs(QUEUE, "plugins: [{type: random-picker}]"))).await;
    let (output, _) = fixture.explain(&[]).await;
    let line = parts(&output).1.lines().find(|line| line.starts_with("the shadow ")).unwrap();
    let agreed =
        line.split_once("it agrees on ").and_then(|(_, rest)| rest.strip_suffix(" of 1000 such requests"));
    let agreed: u64 = agreed.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
    assert!((400..600).contains(&agreed), "{line}");
    assert_eq!(fixture.explain(&[]).await.0, output, "the same seed draws alike");
}

#[tokio::test]
async fn a_shadow_may_route_a_refused_request_without_changing_the_exit_code() {
    let patient = "plugins:\n- {type: queue-scorer}\n\
                   - {type: utilization-detector, name: patient, parameters: {queueDepthThreshold: 1000}}\n\
                   saturationDetector: {pluginRef: patient}";
    let objective = "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: batch}\n\
                     spec: {priority: -10, poolRef: {name: default}}\n";
    let fixture = Fixture::with(&[100, 100], Some(&(configs(QUEUE, patient) + objective))).await;
    let (output, code) = fixture.explain(&["--header", "x-llm-d-inference-objective: batch"]).await;
    let (acting, shadow) = parts(&output);
    assert_eq!(code, 3, "{output}");
    assert!(acting.contains("answered 429") && shadow.contains("\nrouted to "), "{output}");
    assert!(shadow.contains("\nthe shadow disagrees\n"), "{output}");
}

#[tokio::test]
async fn a_shadow_with_an_unknown_plugin_is_left_out_with_the_reason() {
    let fixture = Fixture::with(&[0, 1], Some(&configs(QUEUE, PREFIX))).await;
    let file = fixture.path("snapshot");
    let mut snapshot = v1::Snapshot::decode(&std::fs::read(&file).unwrap()[..]).unwrap();
    let policy = snapshot.topology.as_mut().unwrap().policy.as_mut().unwrap();
    policy.shadow_config.as_mut().unwrap().plugins[0].r#type = "of-tomorrow".to_owned();
    std::fs::write(&file, snapshot.encode_to_vec()).unwrap();
    let (output, code) = fixture.explain(&[]).await;
    assert_eq!(code, 0, "{output}");
    assert!(
        output.contains("\nthe shadow configuration is ignored: ") && output.contains("of-tomorrow"),
        "{output}"
    );
    assert!(output.contains("routed to ") && !output.contains(HEADING), "{output}");
}
