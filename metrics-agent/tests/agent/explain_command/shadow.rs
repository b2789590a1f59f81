//! What is told of a configuration on trial.

use endpoint_picker_wire::{Message, v1};

use super::{BODY, Scene, row};

/// A configuration that acts, and one that is tried.
fn trial(acting: &str, shadow: &str) -> String {
    let config = |metadata: &str, rest: &str| {
        format!("apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{metadata}{rest}\n---\n")
    };
    let metadata = "metadata: {name: default, annotations: {endpoint-picker/shadow: \"true\"}}\n";
    config("", acting) + &config(metadata, shadow)
}

const QUEUE: &str = "plugins: [{type: queue-scorer}]";
const PREFIX: &str = "plugins: [{type: prefix-cache-scorer}]";

const HEADING: &str = "\nthe shadow configuration would decide:\n\n";

/// What is told of the acting configuration, and of the shadow.
fn both(told: &str) -> (&str, &str) {
    told.split_once(HEADING).unwrap_or_else(|| panic!("{told}"))
}

#[tokio::test]
async fn nothing_is_told_of_a_shadow_where_there_is_none() {
    let scene = Scene::with(&[0, 1], None).await;
    let (told, _) = scene.explain(&[]).await;
    assert!(!told.contains("shadow"), "{told}");
}

#[tokio::test]
async fn a_shadow_has_a_table_of_its_own_and_says_whether_it_agrees() {
    let scene = Scene::with(&[0, 1], Some(&trial(QUEUE, PREFIX))).await;
    scene.write("long.json", &BODY.replace("hello", &"The same long beginning. ".repeat(200)));
    let (told, code) = scene.explain_body("long.json", &[]).await;
    assert_eq!(code, 0, "{told}");
    let (acting, shadow) = both(&told);
    assert_eq!(row(acting, scene.address(0)), ["1.000", "1.000", "100.0 %", "picked"], "{told}");
    assert!(acting.contains("queue-scorer x") && !acting.contains("prefix-cache-scorer"), "{told}");
    assert!(shadow.contains("prefix-cache-scorer x") && !shadow.contains("queue-scorer"), "{told}");
    assert!(shadow.contains("a tie") && shadow.contains("\nthe shadow agrees\n"), "any would do: {told}");

    let after = format!("{}={}", scene.path("long.json"), scene.address(1));
    let (told, code) = scene.explain_body("long.json", &["--after", &after]).await;
    assert_eq!(code, 0, "{told}");
    let (acting, shadow) = both(&told);
    assert!(acting.contains(&format!("\nrouted to {}\n", scene.address(0))), "{told}");
    assert_eq!(row(shadow, scene.address(1)), ["1.000", "1.000", "100.0 %", "picked"], "{told}");
    let outcome = format!("\nrouted to {}\nthe shadow disagrees\n", scene.address(1));
    assert!(shadow.contains(&outcome), "it remembers where the prompt went: {told}");
}

#[tokio::test]
async fn where_chance_decides_it_is_told_how_often_they_agree() {
    let scene = Scene::with(&[0, 0], Some(&trial(QUEUE, "plugins: [{type: random-picker}]"))).await;
    let (told, _) = scene.explain(&[]).await;
    let line = both(&told).1.lines().find(|line| line.starts_with("the shadow ")).unwrap();
    let agreed =
        line.split_once("it agrees on ").and_then(|(_, rest)| rest.strip_suffix(" of 1000 such requests"));
    let agreed: u64 = agreed.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
    assert!((400..600).contains(&agreed), "{line}");
    assert_eq!(scene.explain(&[]).await.0, told, "the same seed draws alike");
}

#[tokio::test]
async fn a_shadow_may_route_what_is_refused_and_the_exit_code_stays_the_acting_ones() {
    let patient = "plugins:\n- {type: queue-scorer}\n\
                   - {type: utilization-detector, name: patient, parameters: {queueDepthThreshold: 1000}}\n\
                   saturationDetector: {pluginRef: patient}";
    let objective = "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: batch}\n\
                     spec: {priority: -10, poolRef: {name: default}}\n";
    let scene = Scene::with(&[100, 100], Some(&(trial(QUEUE, patient) + objective))).await;
    let (told, code) = scene.explain(&["--header", "x-llm-d-inference-objective: batch"]).await;
    let (acting, shadow) = both(&told);
    assert_eq!(code, 3, "{told}");
    assert!(acting.contains("answered 429") && shadow.contains("\nrouted to "), "{told}");
    assert!(shadow.contains("\nthe shadow disagrees\n"), "{told}");
}

#[tokio::test]
async fn a_shadow_that_is_not_known_is_left_out_with_the_reason() {
    let scene = Scene::with(&[0, 1], Some(&trial(QUEUE, PREFIX))).await;
    let file = scene.path("snapshot");
    let mut snapshot = v1::Snapshot::decode(&std::fs::read(&file).unwrap()[..]).unwrap();
    let policy = snapshot.topology.as_mut().unwrap().policy.as_mut().unwrap();
    policy.shadow_config.as_mut().unwrap().plugins[0].r#type = "of-tomorrow".to_owned();
    std::fs::write(&file, snapshot.encode_to_vec()).unwrap();
    let (told, code) = scene.explain(&[]).await;
    assert_eq!(code, 0, "{told}");
    assert!(
        told.contains("\nthe shadow configuration is left out: ") && told.contains("of-tomorrow"),
        "{told}"
    );
    assert!(told.contains("routed to ") && !told.contains(HEADING), "{told}");
}
