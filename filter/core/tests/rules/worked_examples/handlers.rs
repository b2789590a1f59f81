//! Profile handlers and deciders.

use endpoint_picker::request::body::Api;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, compile, destinations, pod, rejection};

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
    let run = |headers: &[(&str, &str)]| Fixture::idle(&config, 1).send("x", headers).primary_run().cloned();
    assert_ne!(run(&[("epp-profile", "fast")]), run(&[]));
    assert_eq!(run(&[("epp-profile", "decode")]), run(&[]));
    assert_eq!(rejection(&Fixture::idle(&config, 1).send("x", &[("epp-profile", "slow")])).0, 429);
}

fn staged(handler: &Value, roles: &[&str]) -> Fixture {
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
    Fixture::idle(&config, roles.len()).label("llm-d.ai/role", roles)
}

/// Examples of `disagg-profile-handler` and `always-disagg-pd-decider`.
#[test]
fn disagg_profile_handler_and_the_decider_that_always_agrees() {
    let handler = json!({"deciders": {"prefill": "always-disagg-pd-decider"}});
    let decision = staged(&handler, &["decode", "prefill"]).send("x", &[]);
    assert_eq!(destinations(&decision), [0]);
    assert_eq!(decision.headers, [("x-prefiller-host-port", "192.168.1.2:8000".to_owned())]);
}

/// Form to which `pd-profile-handler` is lowered.
#[test]
fn disagg_profile_handler_with_a_primary_port() {
    let handler = json!({"deciders": {"prefill": "prefix-based-pd-decider"}, "primaryPort": 8000});
    let decision = staged(&handler, &["decode", "prefill"]).send(&"x".repeat(800), &[]);
    assert_eq!(destinations(&decision), [0]);
    let headers = [
        ("x-prefiller-host-port", "192.168.1.2:8000".to_owned()),
        ("x-data-parallel-host-port", "192.168.1.1:8000".to_owned()),
    ];
    assert_eq!(decision.headers, headers);
}

/// Form to which `data-parallel-profile-handler` is lowered.
#[test]
fn single_profile_handler_with_a_primary_port() {
    let send = |primary_port: u32, rank: u16, ranks: &[u16]| {
        let parameters = json!({"primaryPort": primary_port});
        let config = json!({"plugins": [
            {"type": "single-profile-handler", "parameters": parameters}, {"type": "queue-scorer"},
        ]});
        let queues = ranks.iter().map(|&port| pod(u64::from(port != rank), 0.0, &[]));
        let addresses = ranks.iter().map(|&port| ([192, 168, 1, 1], port).into());
        let mut fixture = Fixture::new(&config, queues.collect()).at(addresses.collect());
        let decision = fixture.send("x", &[]);
        assert_eq!(ranks[decision.reservations[0].endpoint], rank, "the rank has the load");
        (ranks[destinations(&decision)[0]], decision.headers[0].clone())
    };
    let rank_header = |rank: &str| ("x-data-parallel-host-port", rank.to_owned());
    assert_eq!(send(8000, 8001, &[8000, 8001]), (8000, rank_header("192.168.1.1:8001")));
    assert_eq!(
        send(9000, 8001, &[8000, 8001]),
        (8001, rank_header("192.168.1.1:8001")),
        "no endpoint has the port"
    );
}

#[test]
fn always_disagg_multimodal_decider() {
    let handler = json!({"deciders": {"encode": "always-disagg-multimodal-decider"}});
    let headers = |content: &Value| {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": content}]}).to_string();
        staged(&handler, &["decode", "encode"]).send_body(Api::Chat, &body, &[]).headers
    };
    let image = json!([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]);
    assert_eq!(headers(&image), [("x-encoder-hosts-ports", "192.168.1.2:8000".to_owned())]);
    assert_eq!(headers(&json!("text")), []);
    let features =
        json!({"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"image": [{"offset": 0, "length": 1}]}});
    let body = json!({"model": "m", "token_ids": [1, 2, 3], "features": features}).to_string();
    let decision = staged(&handler, &["decode", "encode"]).send_body(Api::Generate, &body, &[]);
    assert_eq!(decision.headers, [("x-encoder-hosts-ports", "192.168.1.2:8000".to_owned())]);
}

#[test]
fn prefix_based_pd_decider() {
    let handler = json!({"deciders": {"prefill": "prefix-based-pd-decider"}});
    let mut fixture = staged(&handler, &["decode", "prefill"]);
    let prompt = "x".repeat(800);
    assert_eq!(fixture.send(&prompt, &[]).headers.len(), 1);
    assert_eq!(fixture.send(&prompt, &[]).headers, []);
}
