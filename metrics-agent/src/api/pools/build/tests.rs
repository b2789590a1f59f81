use std::sync::Arc;

use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker_wire::v1;
use metrics_agent_status::pool::{EndpointState, EndpointStatus};
use metrics_agent_status::predictions::CachePredictions;
use metrics_agent_support::runtime::Clock;

use super::*;
use crate::publish::snapshot::{Topology, Versions};
use crate::scrape::slot::Slot;

const NOW: Duration = Duration::from_secs(100);

fn pool(hosts: u8) -> Endpoints {
    let labels = || vec![("zone".to_owned(), "a".to_owned())];
    let endpoint = |n: u8| Endpoint::new(format!("default/{n}"), ([10, 0, 0, n], 8000).into(), labels());
    Endpoints::new("p".to_owned(), (0..hosts).map(endpoint).collect()).unwrap()
}

fn reading(waiting: u64, kv_usage: f64, age_ms: u64) -> Reading {
    Reading {
        ready: true,
        updated: Some(NOW.saturating_sub(Duration::from_millis(age_ms))),
        waiting: Some(waiting),
        kv_usage: Some(kv_usage),
        ..Reading::default()
    }
}

fn states(policy: Option<v1::Policy>, readings: Vec<Reading>) -> Vec<EndpointState> {
    let pool = pool(u8::try_from(readings.len()).unwrap());
    let topology = Arc::new(Topology::new(pool, policy));
    let published =
        PoolSnapshot::new(Clock::start(), Versions { topology: 1, readings: 1 }, topology, readings, vec![]);
    let status = of_published(&published, &PoolReports::default(), NOW);
    status.endpoints.iter().map(|endpoint| endpoint.state).collect()
}

#[test]
fn the_worst_state_that_applies_is_reported() {
    let readings = vec![
        reading(4, 0.79, 2000),
        reading(5, 0.0, 0),
        reading(0, 0.8, 0),
        reading(9, 0.9, 2001),
        Reading { ready: true, ..Reading::default() },
        Reading { ready: false, ..reading(9, 0.9, 0) },
    ];
    let expected = [
        EndpointState::Ready,
        EndpointState::Saturated,
        EndpointState::Saturated,
        EndpointState::Stale,
        EndpointState::NoReading,
        EndpointState::NotReady,
    ];
    assert_eq!(states(None, readings), expected);
}

#[test]
fn thresholds_come_from_the_pools_detector() {
    let plugin = |name: &str, r#type: &str, parameters: &str| v1::Plugin {
        name: name.to_owned(),
        r#type: r#type.to_owned(),
        parameters: parameters.to_owned(),
    };
    let plugins = vec![
        plugin("other", "utilization-detector", r#"{"queueDepthThreshold": 1}"#),
        plugin("mine", "utilization-detector", r#"{"queueDepthThreshold": 50}"#),
        plugin("counting", "concurrency-detector", "{}"),
    ];
    let policy = |detector: &str| {
        let saturation_detector = Some(detector.to_owned());
        let config =
            v1::PickerConfig { plugins: plugins.clone(), saturation_detector, ..v1::PickerConfig::default() };
        Some(v1::Policy { picker_config: Some(config), ..v1::Policy::default() })
    };
    let readings = || vec![reading(49, 0.0, 0), reading(50, 0.0, 0)];
    assert_eq!(states(policy("mine"), readings()), [EndpointState::Ready, EndpointState::Saturated]);
    assert_eq!(states(policy("counting"), readings()), [EndpointState::Saturated; 2]);
}

/// A publisher of these endpoints, whose slots are returned too, after the changes of `set`.
fn publisher(clock: Clock, hosts: u8) -> (PoolPublisher, Vec<Arc<Slot>>) {
    let publisher = PoolPublisher::new(clock);
    let slots: Vec<_> = (0..hosts).map(|_| Slot::new()).collect();
    publisher.install(Topology::new(pool(hosts), None), slots.clone());
    (publisher, slots)
}

#[tokio::test(start_paused = true)]
async fn a_state_has_its_reason_and_the_time_since_when_it_lasts() {
    let clock = Clock::start();
    let (publisher, slots) = publisher(clock, 5);
    let values = |waiting, kv_usage| Reading {
        waiting: Some(waiting),
        kv_usage: Some(kv_usage),
        ..Reading::default()
    };
    for slot in &slots[..4] {
        slot.set_values(values(0, 0.0), clock.now());
    }
    let publishing = Arc::new(publisher);
    let _publishing = tokio_util::task::AbortOnDropHandle::new(tokio::spawn({
        let publishing = Arc::clone(&publishing);
        async move { publishing.publish_changes().await }
    }));
    let (reports, times) = (Reports::new(clock, 4), StateTimes::default());
    let texts = async || {
        publishing.note_change();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let status = of_pool(&publishing, &reports, &times, clock.now()).unwrap();
        let text = |it: &EndpointStatus| {
            format!("{} {}", it.reason.as_deref().unwrap_or("-"), it.since_ms.unwrap() / 1000)
        };
        status.endpoints.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(texts().await, ["- 0", "- 0", "- 0", "- 0", "not scraped yet 0"]);
    tokio::time::advance(Duration::from_secs(1)).await;
    slots[0].set_ready(false);
    slots[0].set_scrape_failure(Some("connection refused".into()));
    slots[1].set_values(values(8, 0.0), clock.now());
    slots[2].set_values(values(9, 0.923), clock.now());
    slots[4].set_scrape_failure(Some("status 404 Not Found".into()));
    texts().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let expected = [
        "connection refused 1",
        "8 waiting, limit 5 1",
        "9 waiting, limit 5; KV cache 92 %, limit 80 % 1",
        "no new values 0",
        "status 404 Not Found 2",
    ];
    assert_eq!(texts().await, expected);
}

#[tokio::test(start_paused = true)]
async fn rates_and_times_of_all_proxies_add_up_and_are_recent() {
    use endpoint_picker_wire::report::{EndpointReport, PredictionErrors, Rejected, Report, Waits};
    use endpoint_picker_wire::statistics::{ABSTAINED, REJECTED};

    let clock = Clock::start();
    let reports = Reports::new(clock, 4);
    let pool = pool(1);
    // In each second a proxy routes ten requests, of which one fails, and all others take 50 to 100 ms.
    let report = |proxy: &str, second: u64| Report {
        format: endpoint_picker_wire::REPORT_FORMAT,
        proxy: proxy.to_owned(),
        routed: 1_000_000 + 10 * second,
        served_elsewhere: second,
        abstained: 2 * second,
        rejected: vec![Rejected { status: 429, requests: 3 * second }],
        prompt_blocks: 100 * second,
        prompt_blocks_matched: 75 * second,
        first_token: Some(Waits { counts: vec![7, 0, 0, 0, 0, 0, 0, 9 * second], seconds: 1.0 }),
        endpoints: vec![EndpointReport {
            endpoint: pool.as_slice()[0].key(),
            failures: 500 + second,
            first_byte: Some(Waits { counts: vec![0, 0, 0, 0, 0, 0, 0, 9 * second], seconds: 1.0 }),
            predicted_cached_tokens: 9_000 + 200 * second,
            cached_tokens: 7_000 + 150 * second,
            errors_by_events: Some(PredictionErrors { counts: vec![90 + second], tokens: 0, wrong: 0 }),
            errors_by_prompts: Some(PredictionErrors {
                counts: vec![9, 0, 3 * second, second],
                tokens: 9_000 + 200 * second,
                wrong: 7 + second,
            }),
            ..EndpointReport::default()
        }],
        ..Report::default()
    };
    let send = |second| {
        for proxy in ["a", "b"] {
            reports.add(&pool, report(proxy, second)).unwrap();
        }
        let reports = reports.of("p");
        let recent = traffic_to_pool(reports.proxies.values().map(|report| &report.recent)).unwrap();
        let key = pool.as_slice()[0].key();
        let totals = &reports.totals[&key];
        (recent, traffic_to_endpoint(totals, reports.proxies.values().map(|report| &report.endpoints[&key])))
    };
    let (first, endpoint) = send(0);
    assert_eq!(first, PoolTraffic::default(), "the counts before are not recent");
    assert_eq!((endpoint.errors_per_second, endpoint.first_byte_ms), (None, None));
    assert_eq!((endpoint.cached_of_predicted, endpoint.predictions), (None, CachePredictions::default()));
    assert_eq!((endpoint.predictions_by_events, endpoint.predictions_by_prompts), (None, None));
    for second in 1..=100 {
        tokio::time::advance(Duration::from_secs(1)).await;
        let (recent, endpoint) = send(second);
        let elsewhere = Count::ServedElsewhere.statistic();
        let rates = [Count::Routed.statistic(), elsewhere, &ABSTAINED].map(|it| recent.rates.total(it));
        assert_eq!(rates, [20.0, 2.0, 4.0].map(Some), "second {second}");
        assert_eq!(recent.rates.by_value(&REJECTED).collect::<Vec<_>>(), [("429", 6.0)]);
        assert_eq!(recent.prefix_hits, Some(0.75));
        let times = recent.first_token_ms.unwrap();
        assert_eq!((times.p50, times.p95), (75.0, 97.5));
        assert_eq!((endpoint.errors_per_second, endpoint.first_byte_ms), (Some(2.0), Some(times)));
        assert_eq!(endpoint.cached_of_predicted, Some(0.75));
        let CachePredictions { predicted_cached_tokens, cached_tokens, by_events, by_prompts } =
            endpoint.predictions;
        assert_eq!((predicted_cached_tokens, cached_tokens), (400 * second, 300 * second));
        assert_eq!((by_events.responses(), by_prompts.wrong()), (2 * second, 2 * second));
        let quality = |it: PredictionQuality| (it.median_error_tokens, it.wrong);
        assert_eq!(endpoint.predictions_by_events.map(quality), Some((0.0, 0.0)));
        assert_eq!(endpoint.predictions_by_prompts.map(quality), Some((48.0, 0.25)));
    }
    let malformed =
        Report { first_token: Some(Waits { counts: vec![0; 18], seconds: 0.0 }), ..report("a", 101) };
    assert!(reports.add(&pool, malformed).is_err());
    let mut malformed = report("a", 101);
    malformed.endpoints[0].first_byte = Some(Waits { counts: vec![1], seconds: f64::NAN });
    assert!(reports.add(&pool, malformed).is_err());
    let mut malformed = report("a", 101);
    malformed.endpoints[0].errors_by_events = Some(PredictionErrors { counts: vec![1], tokens: 0, wrong: 2 });
    assert!(reports.add(&pool, malformed).is_err());
}
