//! Sessions over several requests.

use core::time::Duration;

use endpoint_picker::headers::Headers;
use endpoint_picker::request::Request;
use endpoint_picker::rng::SplitMix64;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, NOW, compile, destinations, owned};

/// The headers that a response from this endpoint carries, which the client sends with its next request.
fn answer(fixture: &Fixture, endpoint: usize) -> Vec<(String, String)> {
    fixture.pipeline.response_headers(&fixture.pool().as_slice()[endpoint]).collect()
}

fn borrowed(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[test]
fn a_token_brings_the_client_back_by_scorer_and_by_filter() {
    for plugin in ["session-affinity-scorer", "session-affinity-filter"] {
        let mut fixture = Fixture::idle(&json!({"plugins": [{"type": plugin}]}), 4);
        let first = destinations(&fixture.send("x", &[]))[0];
        let token = answer(&fixture, first);
        assert_eq!(token[0].0, "x-session-token", "{plugin}");
        for n in 0..20 {
            let next = fixture.send(&format!("{n}"), &borrowed(&token));
            assert_eq!(destinations(&next), [first], "{plugin}");
        }
    }
}

#[test]
fn a_session_by_name_needs_no_token() {
    let parameters = json!({"strategy": "session_id"});
    let config = json!({"plugins": [{"type": "session-affinity-scorer", "parameters": parameters}]});
    let mut fixture = Fixture::idle(&config, 4);
    for session in ["a", "b", "c", "d", "e", "f"] {
        let headers = [("x-session-id", session)];
        let first = destinations(&fixture.send("x", &headers));
        assert!(answer(&fixture, first[0]).is_empty());
        for _ in 0..5 {
            assert_eq!(destinations(&fixture.send("y", &headers)), first, "session {session}");
        }
    }
}

#[test]
fn a_session_moves_when_its_endpoint_is_gone_and_stays_where_it_went() {
    let parameters = json!({"strategy": "session_id"});
    let config = json!({"plugins": [{"type": "session-affinity-filter", "parameters": parameters}]});
    let mut fixture = Fixture::idle(&config, 2);
    let headers = [("x-session-id", "abc")];
    let first = destinations(&fixture.send("x", &headers))[0];
    fixture.readings[first].ready = false;
    assert_eq!(destinations(&fixture.send("x", &headers)), [1 - first]);
    fixture.readings[first].ready = true;
    assert_eq!(destinations(&fixture.send("x", &headers)), [1 - first]);
}

#[test]
fn a_session_is_forgotten_when_it_was_not_used_for_five_minutes() {
    let parameters = json!({"strategy": "session_id"});
    let config = json!({"plugins": [{"type": "session-affinity-filter", "parameters": parameters}]});
    let mut fixture = Fixture::idle(&config, 2);
    let headers = [("x-session-id", "abc")];
    let first = destinations(&fixture.send("x", &headers));
    let (pool, headers) = (fixture.pool(), owned(&headers));
    let request = Request { headers: Headers(&headers), ..Request::default() };
    let stays = |seconds, seed| {
        let now = NOW + Duration::from_secs(seconds);
        let mut rng = SplitMix64::new(seed);
        destinations(&fixture.pipeline.decide(&request, &fixture.input(&pool), now, &mut rng)) == first
    };
    assert!((0..32).all(|seed| stays(300, seed)));
    assert!(!(0..32).all(|seed| stays(301, seed)));
}

#[test]
fn sessions_are_remembered_from_the_moment_the_configuration_wants_it() {
    let scorer = |parameters: Value| json!({"plugins": [{"type": "session-affinity-scorer", "parameters": parameters}]});
    let mut fixture = Fixture::idle(&scorer(json!({})), 4);
    fixture.pipeline = compile(&scorer(json!({"strategy": "session_id"}))).unwrap();
    fixture.states.adopt(fixture.pipeline.initial_states());
    let headers = [("x-session-id", "abc")];
    let first = destinations(&fixture.send("x", &headers));
    for n in 0..20 {
        assert_eq!(destinations(&fixture.send(&n.to_string(), &headers)), first);
    }
    fixture.states.adopt(fixture.pipeline.initial_states());
    assert_eq!(destinations(&fixture.send("y", &headers)), first, "what fits is kept");
}

fn by_cookie(producer: &str) -> Value {
    let source = json!({"attribute": "SessionIDDataKey", "producer": producer});
    let parameters = json!({"strategy": "session_id", "sessionIdConfig": {"sources": [source]}});
    json!({"plugins": [
        {"name": "cookies", "type": "session-id-producer", "parameters": {"cookieName": "sid"}},
        {"type": "session-affinity-scorer", "parameters": parameters},
    ]})
}

#[test]
fn a_session_can_be_named_by_a_cookie() {
    let mut fixture = Fixture::idle(&by_cookie("cookies"), 4);
    let first = destinations(&fixture.send("x", &[("cookie", "a=b; sid=abc")]));
    for n in 0..10 {
        assert_eq!(destinations(&fixture.send(&n.to_string(), &[("cookie", "sid=abc")])), first);
    }
}

#[test]
fn the_first_source_with_a_session_names_it() {
    let source = |producer: &str| json!({"attribute": "SessionIDDataKey", "producer": producer});
    let producer =
        |name: &str| json!({"name": name, "type": "session-id-producer", "parameters": {"cookieName": name}});
    let sources = [json!({"header": "x-none"}), source("second"), source("first")];
    let parameters = json!({"strategy": "session_id", "sessionIdConfig": {"sources": sources}});
    let plugins = json!([producer("first"), producer("second"), {"type": "session-affinity-scorer", "parameters": parameters}]);
    let mut fixture = Fixture::idle(&json!({"plugins": plugins}), 8);
    let first = destinations(&fixture.send("x", &[("cookie", "second=a")]));
    for n in 0..10 {
        let cookies = format!("first={n}; second=a");
        assert_eq!(destinations(&fixture.send(&n.to_string(), &[("cookie", &cookies)])), first);
    }
    assert_eq!(destinations(&fixture.send("x", &[("cookie", "first=a")])), first);
}

#[test]
fn a_producer_that_is_not_there_or_no_producer_is_refused() {
    for name in ["nobody", "session-affinity-scorer"] {
        let error = compile(&by_cookie(name)).unwrap_err().to_string();
        assert!(error.starts_with("plugins[1].parameters.sessionIdConfig.sources: "), "{error}");
        assert!(error.contains(name), "{error}");
    }
}

/// Each stage has a session of its own, under a header of its own.
#[test]
fn a_stage_can_be_told_to_the_client_by_itself() {
    let affinity = |name: &str, header: &str| {
        json!({"name": format!("{name}-session"), "type": "session-affinity-filter", "parameters": {
            "profileName": name, "encodedEndpointHeaderConfig": {"header": header},
        }})
    };
    let stage = |name: &str| {
        let plugins = [format!("{name}-filter"), format!("{name}-session")];
        json!({"name": name, "plugins": plugins.map(|plugin| json!({"pluginRef": plugin}))})
    };
    let config = json!({
        "plugins": [
            {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "prefix-based-pd-decider"}}},
            {"type": "prefix-based-pd-decider", "parameters": {"nonCachedTokens": 64}},
            {"type": "prefill-filter"}, {"type": "decode-filter"},
            affinity("prefill", "x-session-token-prefill"), affinity("decode", "x-session-token"),
        ],
        "schedulingProfiles": [stage("prefill"), stage("decode")],
    });
    let mut fixture =
        Fixture::idle(&config, 4).label("llm-d.ai/role", &["prefill", "prefill", "decode", "decode"]);
    let long = "a prompt of more than sixty-four tokens ".repeat(20);
    let first = fixture.send(&long, &[]);
    let names: Vec<&str> = first.response_headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-session-token-prefill", "x-session-token"]);
    for n in 0..10 {
        let next = fixture.send(&format!("{n}{long}"), &borrowed(&first.response_headers));
        assert_eq!(
            (destinations(&next), next.headers.clone()),
            (destinations(&first), first.headers.clone())
        );
    }
    let short = fixture.send("short", &[]);
    assert_eq!(short.response_headers.len(), 1, "no prefill, no token for it");
}
