//! Profile handlers and deciders.

use endpoint_picker::body::Api;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Scene, compile, destinations, rejection};

#[test]
fn single_profile_handler() {
    let profile = |name: &str| json!({"name": name, "plugins": []});
    let config = |profiles: &[Value]| json!({"plugins": [{"type": "single-profile-handler"}], "schedulingProfiles": profiles});
    assert!(compile(&config(&[profile("a")])).is_ok());
    assert!(compile(&config(&[profile("a"), profile("b")])).is_err());
}

#[test]
fn header_profile_handler() {
    let config = json!({
        "plugins": [{"type": "header-profile-handler"}, {"type": "queue-scorer"}],
        "schedulingProfiles": [{"name": "decode", "plugins": []}, {"name": "fast", "plugins": []}],
    });
    let run = |headers: &[(&str, &str)]| Scene::idle(&config, 1).send("x", headers).primary_run().cloned();
    assert_ne!(run(&[("epp-profile", "fast")]), run(&[]));
    assert_eq!(run(&[("epp-profile", "decode")]), run(&[]));
    assert_eq!(rejection(&Scene::idle(&config, 1).send("x", &[("epp-profile", "slow")])).0, 429);
}

fn staged(handler: &Value, roles: &[&str]) -> Scene {
    let stage = |name: &str| json!({"name": name, "plugins": [{"pluginRef": format!("{name}-filter")}]});
    let config = json!({
        "plugins": [
            {"type": "disagg-profile-handler", "parameters": handler},
            {"type": "always-disagg-pd-decider"}, {"type": "always-disagg-multimodal-decider"},
            {"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": 64}},
            {"type": "decode-filter"}, {"type": "prefill-filter"}, {"type": "encode-filter"},
        ],
        "schedulingProfiles": [stage("decode"), stage("prefill"), stage("encode")],
    });
    Scene::idle(&config, roles.len()).label("llm-d.ai/role", roles)
}

#[test]
fn disagg_profile_handler_and_the_decider_that_always_agrees() {
    let handler = json!({"deciders": {"prefill": "always-disagg-pd-decider"}});
    let decision = staged(&handler, &["decode", "prefill"]).send("x", &[]);
    assert_eq!(destinations(&decision), [0]);
    assert_eq!(decision.headers, [("x-prefiller-host-port", "192.168.1.2:8000".to_owned())]);
}

#[test]
fn always_disagg_multimodal_decider() {
    let handler = json!({"deciders": {"encode": "always-disagg-multimodal-decider"}});
    let headers = |content: &Value| {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": content}]}).to_string();
        staged(&handler, &["decode", "encode"]).send_body(Api::Chat, &body, &[]).headers
    };
    let picture = json!([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]);
    assert_eq!(headers(&picture), [("x-encoder-hosts-ports", "192.168.1.2:8000".to_owned())]);
    assert_eq!(headers(&json!("text")), []);
}

#[test]
fn prefix_based_pd_decider() {
    let handler = json!({"deciders": {"prefill": "prefix-based-pd-decider"}});
    let mut scene = staged(&handler, &["decode", "prefill"]);
    let prompt = "x".repeat(800);
    assert_eq!(scene.send(&prompt, &[]).headers.len(), 1);
    assert_eq!(scene.send(&prompt, &[]).headers, []);
}
