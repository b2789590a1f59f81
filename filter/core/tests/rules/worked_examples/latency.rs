//! Plugins that read predicted latencies, and the plugin that predicts.

use core::time::Duration;

use endpoint_picker::decision::Outcome;
use endpoint_picker::headers::Headers;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use serde_json::{Value, json};

use super::load;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, assert_near, destinations, fresh, owned, rejection, totals};

const TTFT: &str = "x-llm-d-slo-ttft-ms";
const TPOT: &str = "x-llm-d-slo-tpot-ms";

/// Two busy endpoints with these plugins and a predictor: one has 3 requests in flight, of 400 tokens that
/// were sent long ago, and the other one that it has read.
fn fixture(plugins: &[Value]) -> Fixture {
    let predictor = json!({"type": "predicted-latency-producer", "parameters": {"streamingMode": true}});
    let plugins: Vec<Value> = plugins.iter().cloned().chain([predictor]).collect();
    let busy = Reading { kv_usage: Some(0.5), running: Some(1), ..fresh() };
    let mut fixture = Fixture::new(&json!({"plugins": plugins}), vec![busy; 2]);
    fixture.in_flight = vec![load(3, 400), load(1, 0)];
    fixture
}

/// A prompt of 128 tokens.
fn send(
    fixture: &mut Fixture,
    priority: i32,
    headers: &[(&str, &str)],
) -> endpoint_picker::decision::Decision {
    let (headers, json) = (owned(headers), json!({"model": "m", "prompt": "p".repeat(512)}).to_string());
    let options = fixture.pipeline.body_options(Headers(&headers));
    let body = Body::read(&json, Api::Completions, &options).unwrap();
    let request = Request {
        model: "m",
        prompt: Some(&body.prompt),
        headers: Headers(&headers),
        priority,
        ..Request::default()
    };
    fixture.decide(&request, 1)
}

fn only(plugin: &str) -> Fixture {
    fixture(&[json!({"type": plugin})])
}

#[test]
fn latency_scorer() {
    let scores = |headers: &[(&str, &str)]| totals(&send(&mut only("latency-scorer"), 0, headers));
    assert_near(&scores(&[]), &[0.01, 1.0]);
    assert_near(&scores(&[(TTFT, "20"), (TPOT, "5")]), &[0.0, 0.51]);
    assert_near(&scores(&[(TTFT, "100"), ("x-slo-tpot-ms", "5")]), &[1.0, 0.01]);
}

#[test]
fn slo_headroom_tier_filter() {
    let kept = |limit: &str| {
        let filter = json!({"type": "slo-headroom-tier-filter", "parameters": {"epsilonExploreNeg": 0}});
        let decision = send(&mut fixture(&[filter]), 0, &[(TTFT, limit), (TPOT, "5")]);
        decision.primary_run().unwrap().scored.clone()
    };
    assert_eq!([kept("20"), kept("10")], [vec![1], vec![0, 1]]);
}

#[test]
fn latency_slo_admitter() {
    let mut fixture = only("latency-slo-admitter");
    let refused = send(&mut fixture, -1, &[(TTFT, "10")]);
    let message = "request cannot be admitted: no valid endpoint available to serve the request";
    assert_eq!(rejection(&refused), (429, None, message.to_owned()));
    let Outcome::Reject(rejection) = refused.outcome else { panic!("{refused:?}") };
    assert_eq!(rejection.retry_after, Some(Duration::from_secs(1)));
    assert_eq!(destinations(&send(&mut fixture, 0, &[(TTFT, "10")])).len(), 1);
    assert_eq!(destinations(&send(&mut fixture, -1, &[(TTFT, "20")])).len(), 1);
}

#[test]
fn prefix_cache_affinity_filter_by_predicted_times() {
    let kept = |penalty: f64| {
        let parameters = json!({"ttftSource": "latencyPredictor", "maxTTFTPenaltyMs": penalty});
        let filter = json!({"type": "prefix-cache-affinity-filter", "parameters": parameters});
        let mut fixture = fixture(&[filter]);
        // The first prompt goes to the first endpoint, which is slower then.
        fixture.in_flight = vec![load(0, 0), load(9, 99_999)];
        fixture.readings[1].ready = false;
        assert_eq!(destinations(&send(&mut fixture, 0, &[])), [0]);
        fixture.readings[1].ready = true;
        fixture.in_flight = vec![load(3, 400), load(1, 0)];
        send(&mut fixture, 0, &[]).primary_run().unwrap().scored.clone()
    };
    // 50.4 and 16.1 ms: the sticky one has the 400 tokens to read, and one of its own in any case.
    assert_eq!(kept(5_000.0), [0]);
    assert_eq!(kept(30.0), [0, 1]);
}

#[test]
fn predicted_latency_producer() {
    let explained = |streaming: bool, headers: &[(&str, &str)]| {
        let parameters = json!({"streamingMode": streaming});
        let predictor = json!({"type": "predicted-latency-producer", "parameters": parameters});
        let mut fixture = Fixture::idle(&json!({"plugins": [predictor]}), 2);
        fixture.in_flight = vec![load(3, 400), load(1, 0)];
        let headers = owned(headers);
        let json = json!({"model": "m", "prompt": "p".repeat(512)}).to_string();
        let body = Body::read(&json, Api::Completions, &fixture.pipeline.body_options(Headers(&headers)));
        let body = body.unwrap();
        let request = Request {
            model: "m",
            prompt: Some(&body.prompt),
            headers: Headers(&headers),
            ..Request::default()
        };
        let (pool, mut rng) = (fixture.pool(), endpoint_picker::rng::SplitMix64::new(1));
        let input = fixture.input(&pool);
        let mut decision = fixture.pipeline.decide(&request, &input, crate::NOW, &mut rng);
        let prepared = fixture.pipeline.prepare(&request, &input, crate::NOW);
        fixture.pipeline.add_details(&mut decision, &prepared, &input);
        let explanation = fixture.pipeline.explain(&decision, &request, &input, crate::NOW);
        explanation.endpoints.iter().map(|endpoint| endpoint.predictions.join(", ")).collect::<Vec<_>>()
    };
    let name = "predicted-latency-producer: ";
    assert_eq!(
        explained(true, &[(TTFT, "20"), (TPOT, "5")]),
        [
            format!("{name}ttft 26.3 ms, headroom -6.3, tpot 0.3 ms, headroom 4.7"),
            format!("{name}ttft 16.1 ms, headroom 3.9, tpot 0.1 ms, headroom 4.9"),
        ]
    );
    assert_eq!(
        explained(false, &[])[1],
        format!("{name}ttft 1016.1 ms, headroom -1016.1, tpot 0.0 ms, headroom 0.0")
    );
}

/// The predictor that the admitter reads decides about the limits when there are several.
#[test]
fn limits_count_as_for_admission() {
    let predictor = |name: &str, streaming: bool| {
        let parameters = json!({"streamingMode": streaming});
        json!({"name": name, "type": "predicted-latency-producer", "parameters": parameters})
    };
    let is_whole = |admitter: Option<&str>| {
        let admitter = admitter.map(|name| {
            let parameters = json!({"latencyPredictionInfoProducerName": name});
            json!({"type": "latency-slo-admitter", "parameters": parameters})
        });
        let predictors = [predictor("stream", true), predictor("whole", false)];
        let plugins: Vec<Value> = predictors.into_iter().chain(admitter).collect();
        let mut fixture = Fixture::idle(&json!({"plugins": plugins}), 2);
        send(&mut fixture, 0, &[(TTFT, "10")]).limits.unwrap().is_whole
    };
    assert_eq!([None, Some("stream"), Some("whole")].map(is_whole), [false, false, true]);
}
