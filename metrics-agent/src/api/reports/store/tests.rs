use endpoint_picker::pool::Endpoint;
use endpoint_picker_wire::REPORT_FORMAT;
use endpoint_picker_wire::report::{Rejected, Resumptions, StreamReason};

use super::*;

const MAX_PROXIES: usize = 64;

fn pool() -> Endpoints {
    let endpoint = |n: u8| Endpoint::new(n.to_string(), ([10, 0, 0, n], 8000).into(), vec![]);
    Endpoints::new("p".to_owned(), vec![endpoint(1), endpoint(2)]).unwrap()
}

fn key(index: usize) -> u64 {
    pool().as_slice()[index].key()
}

fn report(proxy: &str, generation: u64, picks: u64) -> Report {
    let endpoints = vec![EndpointReport {
        endpoint: key(0),
        picks,
        requests: 2,
        tokens: 300,
        ..EndpointReport::default()
    }];
    Report { format: REPORT_FORMAT, proxy: proxy.to_owned(), generation, endpoints, ..Report::default() }
}

fn rate(reports: &Reports) -> Option<f64> {
    reports.of("p").proxies["a"].endpoints[&key(0)].picks_per_second
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_picks_is_between_two_reports_of_one_generation() {
    let reports = Reports::new(Clock::start(), MAX_PROXIES);
    reports.add(&pool(), report("a", 1, 1000)).unwrap();
    assert_eq!(rate(&reports), None, "nothing to compare with");
    tokio::time::advance(Duration::from_secs(2)).await;
    reports.add(&pool(), report("a", 1, 1030)).unwrap();
    assert_eq!(rate(&reports), Some(15.0));
    tokio::time::advance(Duration::from_secs(2)).await;
    reports.add(&pool(), report("a", 2, 2000)).unwrap();
    assert_eq!(rate(&reports), None, "another generation counts from zero");
    tokio::time::advance(Duration::from_secs(1)).await;
    reports.add(&pool(), report("a", 2, 10)).unwrap();
    assert_eq!(rate(&reports), None, "a count that fell has no rate");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_picked_for_the_first_time_has_a_rate() {
    let reports = Reports::new(Clock::start(), MAX_PROXIES);
    reports.add(&pool(), Report { endpoints: vec![], ..report("a", 1, 0) }).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    reports.add(&pool(), report("a", 1, 7)).unwrap();
    assert_eq!(rate(&reports), Some(7.0));
}

#[tokio::test(start_paused = true)]
async fn a_proxy_is_removed_ten_seconds_after_its_last_report() {
    let reports = Reports::new(Clock::start(), MAX_PROXIES);
    reports.add(&pool(), report("a", 1, 1)).unwrap();
    tokio::time::advance(Duration::from_secs(6)).await;
    reports.add(&pool(), report("b", 1, 1)).unwrap();
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(reports.of("p").proxies.into_keys().collect::<Vec<_>>(), ["a", "b"]);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(reports.of("p").proxies.into_keys().collect::<Vec<_>>(), ["b"]);
    assert!(reports.of("other").proxies.is_empty());
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_the_pool_does_not_have_are_left_out() {
    let reports = Reports::new(Clock::start(), MAX_PROXIES);
    let mut report = report("a", 1, 5);
    report.endpoints.push(EndpointReport {
        endpoint: 42,
        picks: 1,
        requests: 1,
        tokens: 1,
        ..EndpointReport::default()
    });
    reports.add(&pool(), report).unwrap();
    let stored = &reports.of("p").proxies["a"];
    assert_eq!(stored.endpoints.keys().collect::<Vec<_>>(), [&key(0)]);
    let traffic = &stored.endpoints[&key(0)];
    assert_eq!((traffic.totals.picks, traffic.requests, traffic.tokens), (5, 2, 300));
}

#[tokio::test(start_paused = true)]
async fn reports_without_bounds_are_refused() {
    let reports = Reports::new(Clock::start(), MAX_PROXIES);
    for proxy in 0..MAX_PROXIES {
        reports.add(&pool(), report(&proxy.to_string(), 1, 1)).unwrap();
    }
    assert_eq!(reports.add(&pool(), report("one more", 1, 1)), Err(ReportError::TooManyProxies(MAX_PROXIES)));
    reports.add(&pool(), report("0", 1, 2)).expect("a proxy that reports already is not refused");
    let long = report(&"x".repeat(MAX_NAME_BYTES + 1), 1, 1);
    assert_eq!(reports.add(&pool(), long), Err(ReportError::LongName(MAX_NAME_BYTES + 1)));
    let rejected = (0..33).map(|status| Rejected { status, requests: 1 }).collect();
    let many_statuses = Report { rejected, ..report("0", 1, 1) };
    assert_eq!(reports.add(&pool(), many_statuses), Err(ReportError::TooManyCounts(33)));
    let cut = |reason: String, count: usize| {
        let cut = vec![StreamReason { reason, streams: 1 }; count];
        Report { resumptions: Some(Resumptions { cut, ..Resumptions::default() }), ..report("0", 1, 1) }
    };
    assert_eq!(reports.add(&pool(), cut("x".to_owned(), 33)), Err(ReportError::TooManyCounts(33)));
    assert_eq!(reports.add(&pool(), cut("x".repeat(65), 1)), Err(ReportError::LongReason(65)));
}

#[tokio::test(start_paused = true)]
async fn picks_of_all_proxies_add_up_and_never_decrease() {
    let reports = Reports::new(Clock::start(), MAX_PROXIES);
    let picks = || reports.of("p").totals[&key(0)].picks;
    reports.add(&pool(), report("a", 1, 1000)).unwrap();
    reports.add(&pool(), report("b", 1, 500)).unwrap();
    assert_eq!(picks(), 0, "picks before the first report are not counted");
    tokio::time::advance(Duration::from_secs(1)).await;
    reports.add(&pool(), report("a", 1, 1010)).unwrap();
    reports.add(&pool(), report("b", 1, 503)).unwrap();
    assert_eq!(picks(), 13);
    reports.add(&pool(), report("b", 2, 0)).unwrap();
    reports.add(&pool(), report("b", 2, 4)).unwrap();
    assert_eq!(picks(), 17);
    tokio::time::advance(Duration::from_secs(9)).await;
    reports.add(&pool(), report("a", 1, 1011)).unwrap();
    tokio::time::advance(Duration::from_secs(9)).await;
    assert_eq!((picks(), reports.of("p").proxies.len()), (18, 1));
}
