//! Reports to the agent.

use core::time::Duration;

use endpoint_picker_engine::agent::{AgentRequest, CallError, ReportProblem, Reporter};
use endpoint_picker_engine::form::{Form, VERSION};
use endpoint_picker_engine::proxy::ProxyError;
use endpoint_picker_wire::report::{FilterForm, Rejected, Report, Waits};
use endpoint_picker_wire::{Message, REPORT_FORMAT, v1};

use crate::fixture::{Fixture, START, TEXT, fewest_waiting};

const SECOND: Duration = Duration::from_secs(1);

fn reporter() -> Reporter {
    Reporter::new("p", "envoy-1".to_owned(), Form::Wasm, 42)
}

fn next_report(reporter: &mut Reporter, fixture: &Fixture, now: Duration) -> Option<AgentRequest> {
    reporter.next_report(fixture.pool.store(), || fixture.pool.totals(), now)
}

fn report(fixture: &Fixture) -> Report {
    let request = next_report(&mut reporter(), fixture, START).expect("a report");
    assert_eq!((request.path.as_str(), request.timeout), ("/v1/pools/p/report", 5 * SECOND));
    Report::decode(request.body.unwrap().as_slice()).unwrap()
}

#[test]
fn the_slash_of_a_pool_with_a_namespace_is_encoded_in_the_path() {
    let fixture = Fixture::new();
    let mut reporter = Reporter::new("inference/chat", "envoy-1".to_owned(), Form::Wasm, 42);
    assert_eq!(
        next_report(&mut reporter, &fixture, START).unwrap().path,
        "/v1/pools/inference%2Fchat/report"
    );
}

#[test]
fn a_report_has_the_counters_and_the_endpoints_in_use() {
    let mut fixture = Fixture::new();
    fixture.routed();
    let mut elsewhere = fixture.routed();
    elsewhere.proxy.attempts = Some(1);
    elsewhere.answer(&mut fixture, 3, &[(":status", "200")]);
    elsewhere.exchange.end(&mut fixture.pool);
    fixture.routed().answer(&mut fixture, 1, &[(":status", "500")]);
    fixture.post(TEXT, &[], "{");
    fixture.flush();
    let report = report(&fixture);
    assert_eq!((report.format, report.proxy.as_str(), report.generation), (REPORT_FORMAT, "envoy-1", 42));
    assert_eq!((report.routed, report.abstained, report.served_elsewhere), (3, 0, 1));
    assert_eq!((report.version.as_str(), report.form()), (VERSION, FilterForm::Wasm));
    assert_eq!(report.rejected, [Rejected { status: 400, requests: 1 }]);
    assert_eq!((report.shadow_agreed, report.shadow_disagreed), (None, None));
    let [endpoint] = report.endpoints.as_slice() else { panic!("{:?}", report.endpoints) };
    assert_eq!(endpoint.endpoint, fixture.pool.view().pool().as_slice()[0].key());
    assert_eq!((endpoint.picks, endpoint.requests, endpoint.failing), (3, 2, true));
}

#[test]
fn a_report_names_an_endpoint_that_was_avoided_only_since_the_last_report() {
    let mut fixture = Fixture::new();
    let mut reporter = reporter();
    let mut is_failing = |fixture: &Fixture, millis: u64| {
        let request = next_report(&mut reporter, fixture, START + Duration::from_millis(millis))?;
        reporter.finish(Ok(204), START);
        let report = Report::decode(request.body?.as_slice()).ok()?;
        Some(report.endpoints.iter().any(|endpoint| endpoint.failing))
    };
    assert_eq!(is_failing(&fixture, 0), Some(false));
    fixture.routed().answer(&mut fixture, 1, &[(":status", "500")]);
    assert_eq!(is_failing(&fixture, 20), None);
    assert_eq!(is_failing(&fixture, 1000), Some(true), "avoided for 250 ms");
    assert_eq!(is_failing(&fixture, 2000), Some(false));
}

#[test]
fn a_report_has_the_failures_and_the_waits_for_the_first_byte_of_each_endpoint() {
    let mut fixture = Fixture::new();
    let stream = [(":status", "200"), ("content-type", "text/event-stream; charset=utf-8")];
    let json = [(":status", "200"), ("content-type", "application/json")];
    for (milliseconds, headers) in [(20, &stream), (300, &json), (90_000, &stream)] {
        let mut request = fixture.routed();
        request.proxy.now.set(START + Duration::from_millis(milliseconds));
        request.answer(&mut fixture, 1, headers);
        request.chunk(&mut fixture, "data: 1\n\n", false);
        request.proxy.now.set(START + 1000 * SECOND);
        request.chunk(&mut fixture, "data", true);
    }
    // Without a body, and not from a server of the pool.
    for (server, body) in [(1, false), (77, true)] {
        let mut request = fixture.routed();
        request.answer(&mut fixture, server, &json);
        if body {
            request.chunk(&mut fixture, "data", true);
        }
    }
    fixture.routed().answer(&mut fixture, 1, &[(":status", "500")]);
    let report = report(&fixture);
    let [endpoint] = report.endpoints.as_slice() else { panic!("{:?}", report.endpoints) };
    assert_eq!(endpoint.failures, 1);
    let counts = |waits: &Option<Waits>| {
        let counts = waits.as_ref().unwrap().counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (bucket, *count)).collect::<Vec<_>>()
    };
    // Up to 25 ms, up to 500 ms, and above all bounds.
    assert_eq!(counts(&endpoint.first_byte), [(5, 1), (9, 1), (16, 1)]);
    let seconds = endpoint.first_byte.as_ref().unwrap().seconds;
    assert!((seconds - 90.32).abs() < 1e-9, "{seconds}");
    assert_eq!(
        counts(&report.first_token),
        [(5, 1), (16, 1)],
        "the response that is not a stream is left out"
    );
}

#[test]
fn a_report_has_the_blocks_of_prompts_that_their_endpoints_had() {
    let mut fixture = Fixture::with_policy(&serde_json::json!({}), v1::Policy::default());
    let body = format!(r#"{{"model": "m", "prompt": "{}"}}"#, "a long prompt ".repeat(100));
    fixture.post(TEXT, &[], &body);
    fixture.flush();
    let first = report(&fixture);
    assert!(first.prompt_blocks > 0 && first.prompt_blocks_matched == 0, "{first:?}");
    fixture.post(TEXT, &[], &body);
    fixture.flush();
    let second = report(&fixture);
    assert_eq!(
        (second.prompt_blocks, second.prompt_blocks_matched),
        (2 * first.prompt_blocks, first.prompt_blocks)
    );
}

#[test]
fn a_report_counts_the_shadow_if_there_is_one() {
    let policy = fewest_waiting();
    let policy = v1::Policy { shadow_config: policy.picker_config.clone(), ..policy };
    let mut fixture = Fixture::with_policy(&serde_json::json!({}), policy);
    fixture.routed();
    fixture.flush();
    let report = report(&fixture);
    assert_eq!((report.shadow_agreed, report.shadow_disagreed), (Some(1), Some(0)));
}

#[test]
fn a_report_is_sent_once_a_second_and_not_before_the_first_snapshot() {
    let mut reporter = reporter();
    let empty = Fixture::without_snapshot(&serde_json::json!({}));
    assert!(next_report(&mut reporter, &empty, START).is_none());
    let fixture = Fixture::new();
    assert!(next_report(&mut reporter, &fixture, START).is_some());
    assert!(next_report(&mut reporter, &fixture, START + 9 * SECOND).is_none(), "one is in flight");
    assert_eq!(reporter.finish(Ok(204), START), None);
    assert!(next_report(&mut reporter, &fixture, START + SECOND / 2).is_none());
    assert!(next_report(&mut reporter, &fixture, START + SECOND).is_some());
}

#[test]
fn a_problem_is_returned_once_a_minute_also_if_reports_are_taken_between() {
    let mut reporter = reporter();
    let none = CallError::NoResponse(String::new());
    let refused = CallError::Proxy(ProxyError { call: "get_map_value", status: "NotFound".to_owned() });
    assert_eq!(reporter.finish(Ok(503), START), Some(ReportProblem::Status(503)));
    assert_eq!(reporter.finish(Err(none.clone()), START), Some(ReportProblem::Call(none.clone())));
    assert_eq!(reporter.finish(Ok(204), START), None);
    assert_eq!(reporter.finish(Err(none.clone()), START), None);
    assert_eq!(reporter.finish(Ok(503), START + 59 * SECOND), None);
    assert_eq!(reporter.finish(Ok(503), START + 119 * SECOND), Some(ReportProblem::Status(503)));
    assert_eq!(reporter.finish(Err(refused.clone()), START), Some(ReportProblem::Call(refused.clone())));
    let texts = [ReportProblem::Status(503), ReportProblem::Call(none), ReportProblem::Call(refused)];
    let texts = texts.map(|problem| problem.to_string());
    assert_eq!(texts[0], "the agent answered 503");
    assert_eq!(texts[1], "the agent did not answer");
    assert_eq!(texts[2], "the proxy refused get_map_value: NotFound");
}
