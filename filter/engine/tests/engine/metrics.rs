//! Metrics of a pool, as the proxy shows them.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::testing;
use endpoint_picker_wire::statistics::{Count, MetricKind};
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, START, TEXT, fewest_waiting, snapshot, topology};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn every_counter_is_defined_before_it_counts() {
    let names = Fixture::new().sink.names();
    for name in
        ["routed", "routed_stale", "abstained|no_snapshot", "rejected|412", "rejected|429", "in_flight"]
    {
        assert!(names.iter().any(|defined| defined == name), "{name} in {names:?}");
    }
}

#[test]
fn counts_are_flushed_once_a_second() {
    let mut fixture = Fixture::new();
    fixture.pool.publish_metrics(true, START);
    fixture.routed();
    fixture.pool.publish_metrics(true, START + SECOND / 2);
    assert_eq!(fixture.sink.get("picks|10.0.0.1:8000"), 0);
    assert_eq!(fixture.sink.get("routed"), 0);
    fixture.pool.publish_metrics(true, START + SECOND);
    assert_eq!((fixture.sink.get("picks|10.0.0.1:8000"), fixture.sink.get("routed")), (1, 1));
    assert_eq!(fixture.sink.get("in_flight"), 1);
    fixture.pool.publish_metrics(true, START + 2 * SECOND);
    assert_eq!(fixture.sink.get("picks|10.0.0.1:8000"), 1, "nothing is counted twice");
}

#[test]
fn one_decision_in_sixteen_is_measured_and_the_others_count_as_it() {
    let mut fixture = Fixture::new();
    for micros in 1..=20 {
        let mut request = fixture.request(TEXT, &[]);
        request.proxy.decision = Duration::from_micros(micros);
        assert_eq!(request.head(&mut fixture), Flow::Hold);
        assert_eq!(request.body(&mut fixture, br#"{"model": "m", "prompt": "hi"}"#, true), Flow::Continue);
    }
    fixture.flush();
    let decisions = &fixture.sink.values(MetricKind::Histogram)["decision_us"];
    assert_eq!(decisions[..], [[1; 16].as_slice(), &[17; 4]].concat());
}

#[test]
fn images_that_the_picked_endpoint_was_sent_before_are_hits() {
    let plugins = [("queue-scorer", None), ("mm-embeddings-cache-scorer", None), ("max-score-picker", None)];
    let config = testing::picker_config(&plugins);
    let policy = v1::Policy { picker_config: Some(config), ..v1::Policy::default() };
    let mut fixture = Fixture::with_policy(&json!({}), policy);
    let chat = |images: &[&str]| {
        let image = |name: &&str| json!({"type": "image_url", "image_url": {"url": name}});
        let text = json!({"type": "text", "text": "hi"});
        let content: Vec<_> = images.iter().map(image).chain([text]).collect();
        json!({"model": "m", "messages": [{"role": "user", "content": content}]}).to_string()
    };
    for images in [&["a", "b"][..], &["a", "c", "c", "d"], &[]] {
        let request = fixture.post("/v1/chat/completions", &[], &chat(images));
        assert_eq!(request.destination(), Some("10.0.0.1:8000"));
    }
    assert_eq!((fixture.counted("encoder_cache_queries"), fixture.counted("encoder_cache_hits")), (5, 1));
}

#[test]
fn only_the_leader_sets_the_gauges_of_all_workers() {
    let mut fixture = Fixture::new();
    let request = fixture.routed();
    fixture.pool.publish_metrics(false, START);
    assert!(!fixture.sink.names().contains(&"endpoint_in_flight|10.0.0.1:8000".to_owned()));
    assert_eq!(fixture.sink.get("snapshot_age_ms"), 0);
    fixture.pool.publish_metrics(true, START + 3 * SECOND);
    assert_eq!(fixture.sink.get("endpoint_in_flight|10.0.0.1:8000"), 1);
    assert!(fixture.sink.get("endpoint_in_flight_tokens|10.0.0.1:8000") > 0);
    assert_eq!(fixture.sink.get("snapshot_age_ms"), 3000);
    let mut request = request;
    request.exchange.end(&mut fixture.pool);
    fixture.pool.publish_metrics(true, START + 4 * SECOND);
    assert_eq!(fixture.sink.get("endpoint_in_flight|10.0.0.1:8000"), 0);
}

#[test]
fn every_worker_sets_the_gauges_of_an_endpoint_that_left_to_zero() {
    let mut leader = Fixture::new();
    let mut other = Fixture::new();
    let request = leader.routed();
    leader.pool.publish_metrics(true, START);
    assert_eq!(leader.sink.get("endpoint_in_flight|10.0.0.1:8000"), 1);
    // The other worker never set the gauge, and the leader may have ended.
    leader.adopt(topology(&[2, 3], fewest_waiting()), &[0, 0]);
    other.adopt(topology(&[2, 3], fewest_waiting()), &[0, 0]);
    for fixture in [&leader, &other] {
        assert!(fixture.sink.names().contains(&"endpoint_in_flight|10.0.0.1:8000".to_owned()));
        assert_eq!(fixture.sink.get("endpoint_in_flight|10.0.0.1:8000"), 0);
        assert_eq!(fixture.sink.get("endpoint_in_flight_tokens|10.0.0.1:8000"), 0);
    }
    drop(request);
}

#[test]
fn a_prompts_blocks_are_counted_with_those_that_were_sent_before() {
    let mut fixture = Fixture::without_snapshot(&serde_json::json!({}));
    fixture.adopt(topology(&[1], v1::Policy::default()), &[0]);
    let body = serde_json::json!({"model": "m", "prompt": "0123456789abcdef".repeat(64)}).to_string();
    fixture.post(TEXT, &[], &body);
    fixture.post(TEXT, &[], &body);
    fixture.pool.publish_metrics(false, START);
    assert_eq!(fixture.sink.get("prompt_blocks"), 8);
    assert_eq!(fixture.sink.get("prompt_blocks_matched"), 4);
}

#[test]
fn a_client_cannot_make_series_without_end_or_forge_labels() {
    let mut fixture = Fixture::new();
    for number in 0..1100 {
        let body = format!(r#"{{"model": "m{number}", "prompt": "hi"}}"#);
        fixture.post(TEXT, &[], &body).served(&mut fixture);
    }
    fixture.pool.publish_metrics(false, START);
    let series = fixture.sink.names().into_iter().filter(|name| name.starts_with("model_requests|"));
    assert_eq!(series.count(), 1001);
    assert_eq!(fixture.sink.get("model_requests|other|other"), 100);

    let mut fixture = Fixture::new();
    let long = "x".repeat(200);
    for model in ["a|b\\n", long.as_str()] {
        let body = format!(r#"{{"model": "{model}", "prompt": "hi"}}"#);
        fixture.post(TEXT, &[], &body).served(&mut fixture);
    }
    fixture.pool.publish_metrics(false, START);
    assert_eq!(fixture.sink.get("model_requests|a_b_|a_b_"), 1);
    let cut = "x".repeat(128);
    assert_eq!(fixture.sink.get(&format!("model_requests|{cut}|{cut}")), 1);
}

#[test]
fn requests_by_old_readings_are_counted() {
    let mut fixture = Fixture::new();
    let mut request = fixture.request(TEXT, &[]);
    request.proxy.now.set(START + Duration::from_secs(3600));
    request.head(&mut fixture);
    request.body(&mut fixture, br#"{"model": "m", "prompt": "hi"}"#, true);
    assert_eq!(fixture.counted("routed_stale"), 1);
}

#[test]
fn polls_are_counted() {
    let mut fixture = Fixture::new();
    fixture.pool.metrics.count(Count::Snapshots);
    fixture.pool.metrics.add(Count::SnapshotFailures, 2);
    assert_eq!((fixture.counted("snapshots"), fixture.counted("snapshot_failures")), (1, 2));
}

#[test]
fn the_name_of_a_model_has_no_empty_part() {
    let mut fixture = Fixture::new();
    for model in ["..", ".", "a..b.", "llama-3.1", ".hidden"] {
        let body = format!(r#"{{"model": "{model}", "prompt": "hi"}}"#);
        fixture.post(TEXT, &[], &body).served(&mut fixture);
    }
    fixture.pool.publish_metrics(false, START);
    for label in ["__", "_", "a_.b_", "llama-3.1", ".hidden"] {
        assert_eq!(fixture.sink.get(&format!("model_requests|{label}|{label}")), 1, "{label}");
    }
}

#[test]
fn endpoints_that_come_and_go_have_names_of_their_own() {
    const MORE_THAN_SERIES: u32 = 1100;
    let mut fixture = Fixture::new();
    for round in 0..MORE_THAN_SERIES {
        let [_, _, high, low] = round.to_be_bytes();
        let address = format!("10.1.{high}.{low}:8000");
        let endpoint = v1::Endpoint { name: format!("pod-{round}"), address, labels: vec![] };
        let endpoints = v1::Topology { endpoints: vec![endpoint], ..topology(&[], fewest_waiting()) };
        fixture.adopt(endpoints, &[0]);
        fixture.post(TEXT, &[], r#"{"model": "m", "prompt": "hi"}"#).exchange.end(&mut fixture.pool);
        fixture.pool.publish_metrics(true, START + (round + 1) * SECOND);
    }
    assert_eq!((fixture.sink.get("picks|other"), fixture.sink.get("picks|10.1.4.75:8000")), (0, 1));
}

#[test]
fn filters_by_models_count_their_outcomes_and_candidates() {
    let plugins = [("served-model-filter", None), ("queue-scorer", None), ("max-score-picker", None)];
    let mut config = testing::picker_config(&plugins);
    config.plugins[0].parameters = json!({"onMissing": "Fail"}).to_string();
    let policy = v1::Policy { picker_config: Some(config), ..v1::Policy::default() };
    let mut fixture = Fixture::without_snapshot(&json!({}));
    let topology = Arc::new(Topology::compile(topology(&[1, 2, 3], policy)).unwrap());
    let mut snapshot = snapshot(&[0, 10, 20]);
    for (reading, names) in snapshot.readings.iter_mut().zip([Some(&["a", "b"][..]), Some(&["a"]), None]) {
        let served = |name: &&str| v1::ServedModel { id: (*name).to_owned(), is_adapter: false };
        reading.models = names.map(|names| v1::ModelList { models: names.iter().map(served).collect() });
    }
    fixture.pool.adopt(Arc::new(PoolView::new(topology, snapshot, START)));
    for model in ["a", "b", "other"] {
        fixture.post(TEXT, &[], &json!({"model": model, "prompt": "hi"}).to_string());
    }
    let mut counted = |name: &str| fixture.counted(&format!("served_model_filter_{name}"));
    let decisions = ["listed", "unlisted", "fallback", "empty", "not_applicable"]
        .map(|outcome| counted(&format!("decisions|served-model-filter|{outcome}")));
    assert_eq!(decisions, [2, 0, 0, 1, 0]);
    assert_eq!(counted("candidates|served-model-filter"), 9);
    assert_eq!(counted("unlisted_candidates|served-model-filter"), 3);
}
