//! Serving in stages, and profiles named by the request.

use endpoint_picker::request::body::Api;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, compile, destinations, rejection};

const ROLE: &str = "llm-d.ai/role";

/// Three profiles by role, and a handler with these parameters.
fn config(handler: &Value) -> Value {
    let stage = |name: &str| json!({"name": name, "plugins": [{"pluginRef": format!("{name}-filter")}]});
    json!({
        "plugins": [
            {"type": "disagg-profile-handler", "parameters": handler},
            {"type": "decode-filter"}, {"type": "prefill-filter"}, {"type": "encode-filter"},
            {"type": "always-disagg-pd-decider"}, {"type": "always-disagg-multimodal-decider"},
            {"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": 64}},
            {"type": "max-score-picker"},
        ],
        "schedulingProfiles": [stage("decode"), stage("prefill"), stage("encode")],
    })
}

/// Endpoints 0 decodes, 1 prefills, 2 encodes.
fn fixture(handler: &Value) -> Fixture {
    Fixture::idle(&config(handler), 3).label(ROLE, &["decode", "prefill", "encode"])
}

const TEXT: &str = r#"{"model": "m", "messages": [{"role": "user", "content": "hello"}]}"#;
const IMAGE: &str = r#"{"model": "m", "messages": [{"role": "user", "content": [
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}]}"#;

/// The destination, and the headers that name the other stages.
fn stages(handler: &Value, body: &str) -> (Vec<usize>, Vec<(&'static str, String)>) {
    let decision = fixture(handler).send_body(Api::Chat, body, &[]);
    (destinations(&decision), decision.headers)
}

fn prefill() -> (&'static str, String) {
    ("x-prefiller-host-port", "192.168.1.2:8000".to_owned())
}

fn encode() -> (&'static str, String) {
    ("x-encoder-hosts-ports", "192.168.1.3:8000".to_owned())
}

fn all_stages() -> Value {
    json!({"deciders": {"prefill": "always-disagg-pd-decider", "encode": "always-disagg-multimodal-decider"}})
}

#[test]
fn without_deciders_the_decode_profile_decides_alone() {
    assert_eq!(stages(&json!({}), IMAGE), (vec![0], vec![]));
}

#[test]
fn each_stage_that_its_decider_wants_is_named_in_a_header() {
    assert_eq!(stages(&all_stages(), TEXT), (vec![0], vec![prefill()]));
    assert_eq!(stages(&all_stages(), IMAGE), (vec![0], vec![prefill(), encode()]));
}

#[test]
fn a_stage_without_a_decider_does_not_run() {
    let encode_only = json!({"deciders": {"encode": "always-disagg-multimodal-decider"}});
    assert_eq!(stages(&encode_only, TEXT), (vec![0], vec![]));
    assert_eq!(stages(&encode_only, IMAGE), (vec![0], vec![encode()]));
}

#[test]
fn a_prompt_the_decode_endpoint_has_seen_needs_no_prefill() {
    let handler = json!({"deciders": {"prefill": "prefix-based-pd-decider"}});
    let mut fixture = fixture(&handler);
    let long = "a prompt of more than sixty-four tokens ".repeat(20);
    assert_eq!(fixture.send("short", &[]).headers, []);
    assert_eq!(fixture.send(&long, &[]).headers, [prefill()]);
    assert_eq!(fixture.send(&long, &[]).headers, [], "it was sent to the decode endpoint before");
}

#[test]
fn a_stage_without_an_endpoint_is_left_out_and_without_a_decoder_there_is_none() {
    let mut fixture = Fixture::idle(&config(&all_stages()), 2).label(ROLE, &["decode", "encode"]);
    assert_eq!(fixture.send("hello", &[]).headers, []);
    let mut fixture = Fixture::idle(&config(&all_stages()), 2).label(ROLE, &["prefill", "encode"]);
    let message = "no endpoints available for the given request".to_owned();
    assert_eq!(rejection(&fixture.send("hello", &[])), (429, Some("rejected-saturated"), message));
}

#[test]
fn prefill_first_prefills_always_and_asks_for_encoding_only() {
    let handler =
        json!({"stageOrder": "prefill-first", "deciders": {"encode": "always-disagg-multimodal-decider"}});
    assert_eq!(stages(&handler, TEXT), (vec![0], vec![prefill()]));
    assert_eq!(stages(&handler, IMAGE), (vec![0], vec![prefill(), encode()]));
    let decision = fixture(&handler).send_body(Api::Chat, TEXT, &[]);
    assert_eq!(decision.runs.len(), 2);
    assert_eq!(decision.primary, Some(1), "decode ran last and is the destination");
}

#[test]
fn all_encoders_and_the_first_prefiller_are_named() {
    let mut config = config(&all_stages());
    config["plugins"][7]["parameters"] = json!({"maxNumOfEndpoints": 2});
    let mut fixture =
        Fixture::idle(&config, 5).label(ROLE, &["decode", "prefill", "prefill", "encode", "encode"]);
    let headers = fixture.send_body(Api::Chat, IMAGE, &[]).headers;
    let value = |name: &str| headers.iter().find(|(header, _)| *header == name).unwrap().1.clone();
    let mut encoders: Vec<String> = value("x-encoder-hosts-ports").split(',').map(str::to_owned).collect();
    encoders.sort_unstable();
    assert_eq!(encoders, ["192.168.1.4:8000", "192.168.1.5:8000"]);
    assert!(["192.168.1.2:8000", "192.168.1.3:8000"].contains(&value("x-prefiller-host-port").as_str()));
}

#[track_caller]
fn assert_refused(handler: &Value, words: &[&str]) {
    let error = compile(&config(handler)).expect_err("refused").to_string();
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
}

#[test]
fn parameters_that_do_not_fit_are_refused() {
    let of = |name: &str| json!({"deciders": {"prefill": name}});
    assert_refused(&of("nobody"), &["plugins[0].parameters.deciders.prefill", "nobody", "decode-filter"]);
    assert_refused(&of("decode-filter"), &["decode-filter", "not a decider"]);
    let producer = json!({"prefixMatchInfoProducerName": "nobody"});
    assert_refused(&producer, &["plugins[0].parameters.prefixMatchInfoProducerName", "nobody"]);
    let both = json!({"stageOrder": "prefill-first", "deciders": {"prefill": "always-disagg-pd-decider"}});
    assert_refused(&both, &["deciders.prefill", "prefill-first"]);
    assert_refused(&json!({"profiles": {"decode": "answer"}}), &["schedulingProfiles", "answer"]);
}

/// Profile `fast` keeps endpoint 0, `decode` endpoint 1.
fn by_header(parameters: &Value) -> Fixture {
    let select = |tier: &str| json!({"name": tier, "type": "label-selector-filter", "parameters": {"matchLabels": {"tier": tier}}});
    let profile = |name: &str, tier: &str| json!({"name": name, "plugins": [{"pluginRef": tier}]});
    let config = json!({
        "plugins": [{"type": "header-profile-handler", "parameters": parameters}, select("gold"), select("tin")],
        "schedulingProfiles": [profile("fast", "gold"), profile("decode", "tin")],
    });
    Fixture::idle(&config, 2).label("tier", &["gold", "tin"])
}

#[test]
fn a_header_names_the_profile() {
    assert_eq!(destinations(&by_header(&json!({})).send("x", &[("epp-profile", " fast ")])), [0]);
    assert_eq!(destinations(&by_header(&json!({})).send("x", &[])), [1], "decode by default");
    let parameters = json!({"headerName": "X-Profile", "defaultProfile": "fast"});
    assert_eq!(destinations(&by_header(&parameters).send("x", &[("x-profile", "decode")])), [1]);
    assert_eq!(destinations(&by_header(&parameters).send("x", &[("x-profile", "")])), [0]);
}

#[test]
fn a_header_that_names_no_profile_is_refused() {
    let message = "failed to find target endpoint: failed to run any scheduler profile".to_owned();
    let decision = by_header(&json!({})).send("x", &[("epp-profile", "slow")]);
    assert_eq!(rejection(&decision), (429, None, message));
}

#[test]
fn a_single_profile_needs_no_header() {
    let config = json!({
        "plugins": [{"type": "header-profile-handler"}, {"type": "queue-scorer"}],
        "schedulingProfiles": [{"name": "only", "plugins": [{"pluginRef": "queue-scorer"}]}],
    });
    assert_eq!(destinations(&Fixture::idle(&config, 1).send("x", &[("epp-profile", "slow")])), [0]);
}
