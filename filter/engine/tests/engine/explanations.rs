//! Explanations of decisions, for the access log and for clients with the secret.

use endpoint_picker_engine::proxy::headers::{EXPLANATION, LONGEST_VALUE};
use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use crate::fixture::{Fixture, TEXT, fewest_waiting};

const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;
const SECRET: &str = "0123456789abcdef";

fn to_clients() -> Value {
    json!({"explain": {"header": "x-why", "secret": SECRET}})
}

#[test]
fn a_client_with_the_secret_gets_the_explanation_with_the_answer() {
    let mut fixture = Fixture::with_config(&to_clients());
    let mut request = fixture.post(TEXT, &[("x-why", SECRET)], BODY);
    assert_eq!(request.proxy.request_header(EXPLANATION), None);
    assert_eq!(request.proxy.request_header("x-why"), None, "the server does not get the secret");
    request.answer(&mut fixture, 1, &[(":status", "200"), (EXPLANATION, "the server's own")]);
    let explanation = request.proxy.response_header(EXPLANATION).unwrap();
    assert!(explanation.contains("10.0.0.1:8000"), "{explanation}");
}

#[test]
fn a_client_without_the_secret_gets_none() {
    let mut fixture = Fixture::with_config(&to_clients());
    for secret in ["", "0123456789abcdeg", "0123456789abcdef0"] {
        let mut request = fixture.post(TEXT, &[("x-why", secret)], BODY);
        assert_eq!(request.proxy.request_header("x-why"), None);
        request.answer(&mut fixture, 1, &[(":status", "200")]);
        assert_eq!(request.proxy.response_header(EXPLANATION), None, "{secret:?}");
    }
    let mut fixture = Fixture::new();
    let mut request = fixture.post(TEXT, &[("x-why", SECRET)], BODY);
    assert_eq!(request.proxy.request_header("x-why"), Some(SECRET), "it means nothing here");
    request.answer(&mut fixture, 1, &[(":status", "200")]);
    assert_eq!(request.proxy.response_header(EXPLANATION), None);
}

#[test]
fn a_rejection_is_explained_too() {
    let mut fixture = Fixture::with_config(&to_clients());
    let mut request = fixture.request(TEXT, &[("x-why", SECRET)]);
    request.proxy.namespace = Some(vec![0]);
    request.proxy.hint = Some(b"10.9.9.9:80".to_vec());
    request.head(&mut fixture);
    request.body(&mut fixture, BODY.as_bytes(), true);
    assert_eq!(request.rejection().status, 503);
    let explained = request.rejection().headers.iter().find(|(name, _)| name == EXPLANATION);
    assert!(explained.is_some_and(|(_, why)| why.contains("10.0.0.1:8000")), "{explained:?}");
}

#[test]
fn the_access_log_gets_every_explanation_in_a_request_header() {
    let mut fixture = Fixture::with_config(&json!({"explain": {"accessLog": true}}));
    let mut request = fixture.post(TEXT, &[(EXPLANATION, "the client's own")], BODY);
    let explanation = request.proxy.request_header(EXPLANATION).unwrap();
    assert!(explanation.contains("10.0.0.1:8000"), "{explanation}");
    request.answer(&mut fixture, 1, &[(":status", "200")]);
    assert_eq!(request.proxy.response_header(EXPLANATION), None);
}

/// A shadow that picks the endpoint with the most free KV cache.
fn with_shadow() -> v1::Policy {
    let mut policy = fewest_waiting();
    let mut shadow = policy.picker_config.clone().unwrap();
    "other".clone_into(&mut shadow.plugins[0].name);
    "kv-cache-utilization-scorer".clone_into(&mut shadow.plugins[0].r#type);
    "other".clone_into(&mut shadow.profiles[0].plugins[0].name);
    policy.shadow_config = Some(shadow);
    policy
}

#[test]
fn a_shadows_agreement_is_counted_and_its_difference_explained() {
    let mut fixture = Fixture::with_policy(&json!({"explain": {"accessLog": true}}), with_shadow());
    fixture.post(TEXT, &[], BODY);
    assert_eq!(fixture.counted("shadow_agreed"), 1, "nothing speaks against the first endpoint");
    let mut topology = crate::fixture::topology(&[1, 2], with_shadow());
    topology.policy.as_mut().unwrap().avoid_failing_ms = 0;
    let mut snapshot = crate::fixture::snapshot(&[0, 10]);
    snapshot.readings[0].kv_usage = Some(0.9);
    snapshot.readings[1].kv_usage = Some(0.1);
    let topology = endpoint_picker_engine::pool_view::Topology::compile(topology).unwrap();
    let view =
        endpoint_picker_engine::pool_view::PoolView::new(topology.into(), snapshot, crate::fixture::START);
    fixture.pool.adopt(view.into());
    let request = fixture.post(TEXT, &[], BODY);
    assert_eq!(fixture.counted("shadow_disagreed"), 1);
    let explanation = request.proxy.request_header(EXPLANATION).unwrap();
    assert!(explanation.ends_with("; the shadow picks 10.0.0.2:8000"), "{explanation}");
    assert_eq!(request.destination(), Some("10.0.0.1:8000"), "the shadow does not act");
}

#[test]
fn an_explanation_fits_into_a_header_that_later_filters_can_read() {
    let mut fixture = Fixture::with_config(&json!({"explain": {"accessLog": true}}));
    let endpoints: Vec<u8> = (1..=255).collect();
    fixture.adopt(crate::fixture::topology(&endpoints, fewest_waiting()), &[0; 255]);
    let request = fixture.post(TEXT, &[], BODY);
    let length = request.proxy.request_header(EXPLANATION).unwrap().len();
    assert!((LONGEST_VALUE / 2..=LONGEST_VALUE).contains(&length), "{length}");
}
