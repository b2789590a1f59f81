//! Shadow configurations.

use crate::reading::{POOL, config, plan, policy, refusal, warnings};

/// A shadow configuration of the pool with this name.
fn shadow(pool: &str, plugin: &str) -> String {
    let metadata = format!("metadata: {{name: {pool}, annotations: {{endpoint-picker/shadow: \"true\"}}}}");
    config(&format!("{metadata}\nplugins: [{{type: {plugin}}}]\n---\n"))
}

fn acting(plugin: &str) -> String {
    config(&format!("plugins: [{{type: {plugin}}}]\n---\n"))
}

#[test]
fn a_shadow_is_for_the_pool_it_names_and_the_acting_configuration_stays() {
    let pools = POOL.to_owned() + &POOL.replace("{name: p}", "{name: q}");
    let text = format!("{pools}\n{}{}", shadow("q", "kv-cache-utilization-scorer"), acting("queue-scorer"));
    for pool in plan(&text).pools {
        assert_eq!(pool.policy.picker_config.unwrap().plugins[0].r#type, "queue-scorer");
        let tried = pool.policy.shadow_config.map(|config| config.plugins[0].r#type.clone());
        assert_eq!(tried.as_deref(), (pool.name == "q").then_some("kv-cache-utilization-scorer"));
    }
    let policy = policy(&format!("{POOL}\n{}", shadow("p", "queue-scorer")));
    assert!(policy.picker_config.is_none() && policy.shadow_config.is_some());
}

#[test]
fn a_configuration_acts_without_the_annotation_or_with_false() {
    let text = shadow("p", "queue-scorer").replace("true", "false");
    let policy = policy(&format!("{POOL}\n{text}"));
    assert!(policy.picker_config.is_some() && policy.shadow_config.is_none());
}

#[test]
fn an_invalid_shadow_is_refused_like_an_invalid_configuration_with_all_faults() {
    for (text, expected) in [
        (
            shadow("p", "queue-scorer}, {type: no-scorer"),
            "document 2: plugins[1].type: unknown plugin type \"no-scorer\"",
        ),
        (shadow("r", "queue-scorer"), "document 2: metadata.name: unknown pool \"r\"; allowed are p"),
        (
            shadow("p", "queue-scorer") + &shadow("p", "queue-scorer"),
            "document 3: metadata.name: is a second shadow of pool \"p\"; the first is document 2 of m.yaml",
        ),
        (
            shadow("p", "queue-scorer").replace("/shadow", "/shdow"),
            "document 2: metadata.annotations: \"endpoint-picker/shdow\": \"true\" is unknown; allowed are \
             endpoint-picker/shadow: \"true\" or \"false\"",
        ),
        (shadow("p", "queue-scorer").replace("\"true\"", "yes, sure"), "document 2: metadata.annotations"),
        (
            shadow("p", "queue-scorer").replace("\"true\"", "true"),
            "document 2: metadata.annotations.endpoint-picker/shadow: true; allowed is a string",
        ),
    ] {
        let refusal = refusal(&format!("{POOL}\n{text}"));
        assert!(refusal.starts_with(expected), "{text}: {refusal}");
    }
    let both = acting("no-picker") + &shadow("p", "no-scorer");
    let refusal = refusal(&format!("{POOL}\n{both}"));
    assert!(refusal.contains("no-picker") && refusal.contains("no-scorer"), "{refusal}");
}

#[test]
fn a_shadows_own_data_layer_is_not_used_with_a_warning() {
    let source = "metrics-data-source, parameters: {path: /other}}, {type: queue-scorer";
    let warning = "m.yaml: document 2: dataLayer: is not used in a shadow configuration; endpoints are discovered and scraped without it";
    assert_eq!(warnings(&format!("{POOL}\n{}", shadow("p", source))), [warning]);
    let same = format!("{POOL}\n{}{}", shadow("p", source), acting(source));
    assert!(warnings(&same).is_empty(), "{:?}", warnings(&same));
}
