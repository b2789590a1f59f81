use std::collections::BTreeMap;

use endpoint_picker_wire::figures::Figures;
use endpoint_picker_wire::report as wire;
use metrics_agent_status::pool::{
    FilterForm, ProxyStatus, SharingProxyStatus, SharingStatus, StoreStatus, TrafficStatus,
};
use metrics_agent_status::predictions::CachePredictions;
use prometheus_client::encoding::text::encode;

use super::*;

/// Predictions by events of this number of responses.
fn predictions(responses: u64) -> CachePredictions {
    let errors = wire::PredictionErrors { counts: vec![0, responses], tokens: 9 * responses, wrong: 1 };
    let entry = wire::EndpointReport {
        predicted_cached_tokens: 100 * responses,
        cached_tokens: 60 * responses,
        errors_by_events: (responses > 0).then_some(errors),
        ..wire::EndpointReport::default()
    };
    CachePredictions::read(&entry).unwrap()
}

fn endpoint(name: &str, waiting: u64, kv_usage: f64, age_ms: Option<u64>) -> EndpointStatus {
    EndpointStatus {
        reason: None,
        since_ms: None,
        name: name.to_owned(),
        address: String::new(),
        labels: BTreeMap::new(),
        state: if age_ms.is_some() { EndpointState::Ready } else { EndpointState::NoReading },
        age_ms,
        waiting: Some(waiting),
        running: Some(1),
        kv_usage: Some(kv_usage),
        engine: None,
        kv_usage_metric: None,
        unseen_queue: None,
        lora: None,
        block_size: None,
        num_blocks: None,
        cache_tokens: None,
        attributes: BTreeMap::new(),
        kv_events: None,
        sent: Some(TrafficStatus {
            picks: waiting,
            picks_per_second: None,
            requests: 2,
            tokens: 300,
            failing: false,
            predictions: predictions(waiting),
            ..TrafficStatus::default()
        }),
    }
}

fn text(endpoints: Vec<EndpointStatus>) -> String {
    let streams = |reason: &str, streams| vec![wire::StreamReason { reason: reason.to_owned(), streams }];
    let report = wire::Report {
        routed: 7,
        served_elsewhere: 3,
        abstained: 1,
        rejected: vec![wire::Rejected { status: 503, requests: 2 }],
        shadow_agreed: Some(6),
        shadow_disagreed: Some(0),
        resumptions: Some(wire::Resumptions {
            resumable: 9,
            resumed: 4,
            cut: streams("refused", 1),
            unresumable: streams("token_details", 2),
        }),
        ..wire::Report::default()
    };
    let proxies = vec![ProxyStatus {
        proxy: "envoy \"1\"".to_owned(),
        age_ms: 500,
        counts: Figures::read(&report),
        version: Some("1.2.3".to_owned()),
        form: Some(FilterForm::Native),
        ..ProxyStatus::default()
    }];
    text_of(&PoolStatus { pool: "p".to_owned(), endpoints, proxies, ..PoolStatus::default() })
}

fn text_of(pool: &PoolStatus) -> String {
    let mut text = String::new();
    encode(&mut text, &registry(core::slice::from_ref(pool))).unwrap();
    text
}

#[track_caller]
fn assert_has(text: &str, line: &str) {
    assert!(text.lines().any(|it| it == line), "{line} is not in:\n{text}");
}

#[test]
fn averages_are_over_the_fresh_endpoints_and_rounded_as_in_the_epp() {
    let text = text(vec![
        endpoint("a", 1, 0.1, Some(0)),
        endpoint("b", 4, 0.234_5, Some(2000)),
        endpoint("stale", 100, 1.0, Some(2001)),
        endpoint("new", 0, 0.0, None),
    ]);
    for line in [
        r#"llm_d_epp_ready_endpoints{name="p"} 2.0"#,
        r#"llm_d_epp_average_queue_size{name="p"} 2.5"#,
        r#"llm_d_epp_std_dev_queue_size{name="p"} 2.12"#,
        r#"llm_d_epp_average_running_requests{name="p"} 1.0"#,
        r#"llm_d_epp_average_kv_cache_utilization{name="p"} 0.17"#,
        r#"llm_d_epp_per_endpoint_queue_size{name="p",model_server_endpoint="stale"} 100.0"#,
        r#"metrics_agent_reading_age_seconds{pool="p",endpoint="stale"} 2.001"#,
        r#"metrics_agent_endpoint_states{pool="p",state="no_reading"} 1.0"#,
        r#"metrics_agent_endpoint_states{pool="p",state="not_ready"} 0.0"#,
    ] {
        assert_has(&text, line);
    }
    assert!(!text.contains(r#"reading_age_seconds{pool="p",endpoint="new""#), "{text}");
}

#[test]
fn an_endpoint_that_is_not_ready_is_left_out_of_averages_at_once() {
    let gone = EndpointStatus { state: EndpointState::NotReady, ..endpoint("gone", 100, 1.0, Some(0)) };
    let text = text(vec![endpoint("a", 1, 0.1, Some(0)), gone]);
    assert_has(&text, r#"llm_d_epp_ready_endpoints{name="p"} 1.0"#);
    assert_has(&text, r#"llm_d_epp_average_queue_size{name="p"} 1.0"#);
    assert_has(&text, r#"llm_d_epp_average_kv_cache_utilization{name="p"} 0.1"#);
}

#[test]
fn without_a_fresh_endpoint_there_is_no_average() {
    let text = text(vec![endpoint("a", 1, 0.1, Some(9000))]);
    assert_has(&text, r#"llm_d_epp_ready_endpoints{name="p"} 0.0"#);
    assert!(!text.contains("llm_d_epp_average_queue_size{"), "{text}");
}

#[test]
fn proxies_and_their_traffic_are_reported() {
    let text = text(vec![endpoint("a", 5, 0.1, Some(0))]);
    for line in [
        r#"endpoint_picker_requests_total{pool="p",proxy="envoy \"1\"",outcome="routed",status=""} 7"#,
        r#"endpoint_picker_requests_total{pool="p",proxy="envoy \"1\"",outcome="rejected",status="503"} 2"#,
        r#"endpoint_picker_shadow_decisions_total{pool="p",proxy="envoy \"1\"",agrees="true"} 6"#,
        r#"endpoint_picker_shadow_decisions_total{pool="p",proxy="envoy \"1\"",agrees="false"} 0"#,
        r#"endpoint_picker_report_age_seconds{pool="p",proxy="envoy \"1\""} 0.5"#,
        r#"endpoint_picker_served_elsewhere_total{pool="p",proxy="envoy \"1\""} 3"#,
        r#"endpoint_picker_proxy_info{pool="p",proxy="envoy \"1\"",version="1.2.3",form="native"} 1.0"#,
        r#"endpoint_picker_proxies{pool="p"} 1.0"#,
        r#"endpoint_picker_resumable_streams_total{pool="p",proxy="envoy \"1\""} 9"#,
        r#"endpoint_picker_resumed_streams_total{pool="p",proxy="envoy \"1\""} 4"#,
        r#"endpoint_picker_cut_streams_total{pool="p",proxy="envoy \"1\"",reason="refused"} 1"#,
        r#"endpoint_picker_unresumable_streams_total{pool="p",proxy="envoy \"1\"",reason="token_details"} 2"#,
        r#"endpoint_picker_picks_total{pool="p",endpoint="a"} 5"#,
        r#"endpoint_picker_in_flight_requests{pool="p",endpoint="a"} 2.0"#,
        r#"endpoint_picker_in_flight_tokens{pool="p",endpoint="a"} 300.0"#,
        r#"endpoint_picker_index_predicted_tokens_total{pool="p",endpoint="a"} 500"#,
        r#"endpoint_picker_index_cached_tokens_total{pool="p",endpoint="a"} 300"#,
        r#"endpoint_picker_index_wrong_responses_total{pool="p",endpoint="a",source="events"} 1"#,
        r#"endpoint_picker_index_error_tokens_bucket{le="0.0",pool="p",endpoint="a",source="events"} 0"#,
        r#"endpoint_picker_index_error_tokens_bucket{le="16.0",pool="p",endpoint="a",source="events"} 5"#,
        r#"endpoint_picker_index_error_tokens_bucket{le="+Inf",pool="p",endpoint="a",source="events"} 5"#,
        r#"endpoint_picker_index_error_tokens_count{pool="p",endpoint="a",source="events"} 5"#,
        r#"endpoint_picker_index_error_tokens_sum{pool="p",endpoint="a",source="events"} 45.0"#,
    ] {
        assert_has(&text, line);
    }
}

#[test]
fn every_count_of_the_table_is_a_metric() {
    for (row, shown) in statistics::shown().filter(|(_, shown)| !matches!(shown.field, Field::Derived)) {
        let mut proxy = ProxyStatus::default();
        proxy.counts.set(row, "value", 7);
        let pool = PoolStatus { pool: "p".to_owned(), proxies: vec![proxy], ..PoolStatus::default() };
        let name = shown.shared.map_or(row.name, |(metric, _)| metric.name);
        let series = format!("endpoint_picker_{name}_total{{pool=\"p\",proxy=\"\"");
        let text = text_of(&pool);
        assert!(text.lines().any(|it| it.starts_with(&series) && it.ends_with("} 7")), "{series}:\n{text}");
        assert!(shown.by.is_none() || text.contains("=\"value\"}"), "{series}:\n{text}");
    }
}

#[test]
fn cached_tokens_show_only_where_responses_report_them() {
    let text = text(vec![endpoint("a", 5, 0.1, Some(0)), endpoint("b", 0, 0.1, Some(0))]);
    assert!(!text.contains(r#"tokens_total{pool="p",endpoint="b"}"#), "{text}");
    assert!(!text.contains(r#"endpoint="b",source"#) && !text.contains(r#"source="prompts""#), "{text}");
}

#[test]
fn a_pool_without_proxies_has_none() {
    assert_has(
        &text_of(&PoolStatus { pool: "p".to_owned(), ..PoolStatus::default() }),
        r#"endpoint_picker_proxies{pool="p"} 0.0"#,
    );
}

#[test]
fn a_thousand_endpoints_have_names_and_the_others_are_added_up() {
    let text = text((0..MAX_SERIES + 3).map(|n| endpoint(&format!("e{n}"), 2, 0.1, Some(10))).collect());
    let of_queue = |line: &&str| line.starts_with("llm_d_epp_per_endpoint_queue_size{");
    assert_eq!(text.lines().filter(of_queue).count(), MAX_SERIES + 1);
    for line in [
        r#"llm_d_epp_per_endpoint_queue_size{name="p",model_server_endpoint="e999"} 2.0"#,
        r#"llm_d_epp_per_endpoint_queue_size{name="p",model_server_endpoint="other"} 6.0"#,
        r#"metrics_agent_reading_age_seconds{pool="p",endpoint="other"} 0.01"#,
        r#"endpoint_picker_picks_total{pool="p",endpoint="other"} 6"#,
        r#"endpoint_picker_index_error_tokens_count{pool="p",endpoint="other",source="events"} 6"#,
    ] {
        assert_has(&text, line);
    }
}

#[test]
fn proxies_and_the_agent_show_how_far_behind_they_are() {
    let proxy =
        |unread, behind_ms| SharingProxyStatus { proxy: "envoy-1".to_owned(), unread, behind_ms, missed: 2 };
    let store = StoreStatus { connected: false, read_behind_ms: 1500, unwritten: 9, write_behind_ms: 2500 };
    let sharing = SharingStatus { proxies: vec![proxy(3, 700), proxy(4, 600)], store: Some(store) };
    let pool = PoolStatus { pool: "p".to_owned(), sharing: Some(sharing), ..PoolStatus::default() };
    let text = text_of(&pool);
    for line in [
        r#"endpoint_picker_sharing_behind_seconds{pool="p",proxy="envoy-1"} 0.7"#,
        r#"endpoint_picker_sharing_unread_messages{pool="p",proxy="envoy-1"} 4.0"#,
        r#"endpoint_picker_sharing_missed_messages_total{pool="p",proxy="envoy-1"} 4"#,
        r#"metrics_agent_store_read_behind_seconds{pool="p"} 1.5"#,
        r#"metrics_agent_store_write_behind_seconds{pool="p"} 2.5"#,
        r#"metrics_agent_store_unwritten_messages{pool="p"} 9.0"#,
    ] {
        assert_has(&text, line);
    }
    let text = text_of(&PoolStatus { sharing: None, ..pool });
    assert!(!text.contains("_behind_seconds{"), "{text}");
}
