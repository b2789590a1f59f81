//! Load that requests add to endpoints, and its readers.

use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::load::Reservation;
use endpoint_picker::request::body::Api;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, compile};

/// 25 tokens.
const PROMPT: &str =
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

fn reservations(plugins: &Value) -> Vec<(usize, Load, Load)> {
    let reservations = Fixture::idle(&json!({"plugins": plugins}), 1).send(PROMPT, &[]).reservations;
    let parts = |Reservation { endpoint, prefill, response }| (endpoint, prefill, response);
    reservations.into_iter().map(parts).collect()
}

fn load(requests: u64, tokens: u64) -> Load {
    Load { requests, tokens }
}

#[test]
fn the_prompt_is_over_at_the_first_byte_and_the_request_at_the_end() {
    assert_eq!(reservations(&json!([{"type": "queue-scorer"}])), [(0, load(0, 25), load(1, 0))]);
}

#[test]
fn a_video_counts_as_long_as_the_headers_say() {
    let config = json!({"plugins": [{"type": "queue-scorer"}]});
    let video = json!([{"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}}]);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": video}]}).to_string();
    let tokens = |headers: &[(&str, &str)]| {
        Fixture::idle(&config, 1).send_body(Api::Chat, &body, headers).reservations[0].prefill.tokens
    };
    assert_eq!(tokens(&[]), 1 + 20 * 225, "the role, and 10 s of 2 frames");
    let headers = [("x-llm-d-video-duration-seconds", "3"), ("x-llm-d-video-resolution", "64x64")];
    assert_eq!(tokens(&headers), 1 + 6 * 4);
}

#[test]
fn with_the_answer_estimated_all_is_held_to_the_end() {
    let producer =
        json!({"type": "inflight-load-producer", "parameters": {"addEstimatedOutputTokens": true}});
    assert_eq!(
        reservations(&json!([{"type": "queue-scorer"}, producer])),
        [(0, load(0, 0), load(1, 25 + 38))]
    );
}

#[test]
fn matches_by_events_that_the_load_does_not_count_have_a_warning() {
    const PRECISE: &str = "precise-prefix-cache-producer";
    let by = |producer: &str| json!({"prefixMatchInfoProducerName": producer});
    let warnings = |scorer: &str, of_scorer: Value, more: &[Value]| {
        let declared = [json!({"type": PRECISE}), json!({"type": scorer, "parameters": of_scorer})];
        let plugins: Vec<Value> = declared.into_iter().chain(more.iter().cloned()).collect();
        let warnings = compile(&json!({"plugins": plugins})).unwrap().warnings();
        warnings.into_iter().map(|warning| (warning.at, warning.problem)).collect::<Vec<_>>()
    };
    let load = |producer: &str| json!({"type": "inflight-load-producer", "parameters": by(producer)});
    let approximate = json!({"type": "approx-prefix-cache-producer"});
    for (scorer, more, counted) in [
        ("expected-latency-scorer", vec![], "whole prompts as tokens to read"),
        ("lmetric-scorer", vec![], "whole prompts as tokens to read"),
        (
            "expected-latency-scorer",
            vec![approximate],
            "prompts as cached by \"approx-prefix-cache-producer\"",
        ),
    ] {
        let at = "plugins[1].parameters.prefixMatchInfoProducerName".to_owned();
        let problem = format!(
            "is {PRECISE:?}, and tokens in flight count {counted}; give inflight-load-producer the same prefixMatchInfoProducerName"
        );
        assert_eq!(warnings(scorer, by(PRECISE), &more), [(at, problem)]);
        assert_eq!(warnings(scorer, by(PRECISE), &[load(PRECISE)]), []);
        assert_eq!(warnings(scorer, json!({}), &[load(PRECISE)]), [], "no part of the prompt is forgotten");
    }
    assert_eq!(warnings("prefix-cache-scorer", by(PRECISE), &[]), [], "it reads no load");
}

#[test]
fn only_the_prefix_producer_that_is_named_makes_tokens_cheaper() {
    let config = |load: Value| {
        json!({"plugins": [
            {"name": "mine", "type": "approx-prefix-cache-producer"},
            {"type": "inflight-load-producer", "parameters": load},
            {"type": "token-load-scorer"},
        ]})
    };
    let second = |config: &Value| {
        let mut fixture = Fixture::idle(config, 1);
        fixture.send(PROMPT, &[]);
        fixture.send(PROMPT, &[]).reservations[0].prefill.tokens
    };
    assert_eq!(second(&config(json!({}))), 25, "there is no producer of the default name");
    assert_eq!(second(&config(json!({"prefixMatchInfoProducerName": "mine"}))), 0);
    let error = compile(&config(json!({"prefixMatchInfoProducerName": "token-load-scorer"}))).unwrap_err();
    assert!(error.to_string().contains("not a prefix producer"), "{error}");
}

#[test]
fn a_reader_of_prompts_refuses_tokens_of_responses() {
    let config = |adds: bool| {
        json!({"plugins": [
            {"type": "inflight-load-producer", "parameters": {"addEstimatedOutputTokens": adds}},
            {"type": "expected-latency-scorer"},
        ]})
    };
    assert!(compile(&config(false)).is_ok());
    let error = compile(&config(true)).unwrap_err().to_string();
    assert!(error.starts_with("plugins[1].parameters.inFlightLoadProducerName"), "{error}");
    assert!(error.contains("addEstimatedOutputTokens"), "{error}");
}

#[test]
fn readers_have_to_name_the_producer_there_is() {
    let config = |scorer: &str, producers: &[&str]| {
        let parameters = json!({"inFlightLoadProducerName": scorer});
        let mut plugins = vec![json!({"type": "active-request-scorer", "parameters": parameters})];
        plugins.extend(producers.iter().map(|name| json!({"name": name, "type": "inflight-load-producer"})));
        compile(&json!({"plugins": plugins})).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(config("", &[]), Ok(()));
    assert_eq!(config("", &["inflight-load-producer"]), Ok(()));
    assert_eq!(config("mine", &["mine"]), Ok(()));
    for (scorer, producers) in [("mine", &[][..]), ("", &["mine"])] {
        let error = config(scorer, producers).unwrap_err();
        assert!(error.starts_with("plugins[0].parameters.inFlightLoadProducerName"), "{error}");
    }
    let error = config("a", &["a", "b"]).unwrap_err();
    assert!(error.starts_with("plugins[2]") && error.contains("one is allowed"), "{error}");
}

#[test]
fn only_the_profile_named_prefill_is_over_at_the_first_byte() {
    let profiles = ["decode", "prefill", "encode"]
        .map(|stage| json!({"name": stage, "plugins": [{"pluginRef": format!("{stage}-filter")}]}));
    let config = json!({
        "plugins": [
            {"type": "disagg-profile-handler", "parameters": {
                "stageOrder": "prefill-first", "deciders": {"encode": "always-disagg-pd-decider"},
            }},
            {"type": "always-disagg-pd-decider"}, {"type": "decode-filter"}, {"type": "prefill-filter"},
            {"type": "encode-filter"},
        ],
        "schedulingProfiles": profiles,
    });
    let response = |roles: &[&str]| -> Vec<(usize, u64)> {
        let mut fixture = Fixture::idle(&config, roles.len()).label("llm-d.ai/role", roles);
        let reservations = fixture.send(PROMPT, &[]).reservations;
        reservations.iter().map(|part| (part.endpoint, part.response.requests)).collect()
    };
    assert_eq!(response(&["decode", "prefill", "encode"]), [(1, 0), (2, 1), (0, 1)]);
    assert_eq!(
        response(&["decode", "encode"]),
        [(1, 1), (0, 1)],
        "a stage without endpoints reserves nothing"
    );
}
