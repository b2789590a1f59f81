//! The record of finished requests: an entry for each request of the sample, and its way to the agent.

use core::time::Duration;

use endpoint_picker_engine::agent::{CallError, ReportProblem};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::proxy::headers::DESTINATION;
use endpoint_picker_engine::record::RecordClient;
use endpoint_picker_engine::testing::picker_config;
use endpoint_picker_wire::record::{RecordOutcome, RecordedRequest, Records, ShadowPick};
use endpoint_picker_wire::{Message, RECORD_FORMAT, v1};
use serde_json::json;

use crate::fixture::{self, Fixture, Request, START, TEXT};
use crate::usage::JSON;

const STREAM: &[(&str, &str)] = &[(":status", "200"), ("content-type", "text/event-stream")];
const ALL: v1::RecordSample = v1::RecordSample { key: 7, limit: u64::MAX };
const USAGE: &str = r#"{"usage": {"prompt_tokens": 90, "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 64}}}"#;

/// A pool of three endpoints by the EPP's default rules whose requests are recorded.
fn recorded(record: v1::RecordSample) -> Fixture {
    let policy = v1::Policy { avoid_failing_ms: 250, record: Some(record), ..v1::Policy::default() };
    Fixture::with_policy(&json!({}), policy)
}

/// The entries since the last call.
fn take(fixture: &Fixture) -> Vec<RecordedRequest> {
    let message = RecordClient::new("ns/p").next_message(fixture.pool.records(), START);
    let Some(request) = message else { return Vec::new() };
    assert_eq!(request.path, "/v1/pools/ns%2Fp/records");
    let records = Records::decode(request.body.unwrap().as_slice()).unwrap();
    assert_eq!((records.format, Duration::from_micros(records.now_us)), (RECORD_FORMAT, START));
    records.requests
}

fn prompt(text: &str) -> String {
    json!({"model": "m", "prompt": text, "max_tokens": 5}).to_string()
}

fn only(fixture: &Fixture) -> RecordedRequest {
    let [only] = take(fixture).try_into().unwrap();
    only
}

fn number(request: &Request) -> u8 {
    request.destination().unwrap().as_bytes()[7] - b'0'
}

/// Lets time pass before the next event.
fn pass(request: &Request, milliseconds: u64) {
    request.proxy.now.set(request.proxy.now.get() + Duration::from_millis(milliseconds));
}

#[test]
fn an_entry_has_lengths_times_and_hashes_of_a_request_and_none_of_its_text() {
    let mut fixture = recorded(ALL);
    let text = "a secret ".repeat(40);
    let headers = [("x-session-id", "chat-17"), ("x-gateway-inference-fairness-id", "team-a")];
    let mut request = fixture.post(TEXT, &headers, &prompt(&text));
    let from = number(&request);
    pass(&request, 20);
    request.answer(&mut fixture, from, STREAM);
    pass(&request, 10);
    request.chunk(&mut fixture, "data: {\"choices\": [{\"text\": \"answer\"}]}\n\n", false);
    request.chunk(&mut fixture, "data: {\"choices\": [{\"text\": \"answer\"}]}\n\n", false);
    pass(&request, 70);
    request.chunk(&mut fixture, &format!("data: {}\n\ndata: [DONE]\n\n", USAGE.replace('\n', " ")), true);
    request.exchange.end(&mut fixture.pool);
    let entry = only(&fixture);
    let expected = RecordedRequest {
        at_us: u64::try_from(START.as_micros()).unwrap(),
        model: "m".to_owned(),
        input_tokens: 90,
        output_tokens: 3,
        max_output_tokens: Some(5),
        cached_tokens: Some(64),
        block_tokens: 64,
        endpoint: vec![10, 0, 0, from, 0x1f, 0x40],
        why: "picked".to_owned(),
        first_token_us: Some(30_000),
        end_us: 100_000,
        outcome: RecordOutcome::Served.into(),
        session: entry.session,
        tenant: entry.tenant,
        blocks: entry.blocks.clone(),
        ..RecordedRequest::default()
    };
    assert_eq!(entry, expected);
    assert_eq!(entry.blocks.len(), 2, "360 bytes");
    assert!(entry.session.is_some() && entry.tenant.is_some() && entry.session != entry.tenant);
    let encoded = String::from_utf8_lossy(&entry.encode_to_vec()).into_owned();
    assert!(
        ["secret", "answer", "chat-17", "team-a"].iter().all(|text| !encoded.contains(text)),
        "{encoded}"
    );
    // The next turn has its blocks.
    let longer = fixture.post(TEXT, &headers, &prompt(&text.repeat(3)));
    drop(longer.served_by_any(&mut fixture));
    let next = only(&fixture);
    assert_eq!((next.blocks[0], next.session, next.tenant), (entry.blocks[0], entry.session, entry.tenant));
    assert_eq!((fixture.counted("recorded"), fixture.counted("record_dropped")), (2, 0));
}

impl Request {
    /// Its endpoint serves it, without a usage.
    fn served_by_any(mut self, fixture: &mut Fixture) -> Self {
        let from = number(&self);
        self.answer(fixture, from, JSON);
        self.chunk(fixture, r#"{"choices": [{"text": "x"}]}"#, true);
        self
    }
}

#[test]
fn without_a_usage_lengths_are_estimated() {
    let mut fixture = recorded(ALL);
    let mut request = fixture.post(TEXT, &[], &prompt(&"x".repeat(400)));
    let from = number(&request);
    request.answer(&mut fixture, from, STREAM);
    for _ in 0..7 {
        request.chunk(&mut fixture, "data: {\"choices\": [{\"text\": \"x\"}]}\n\n", false);
    }
    request.chunk(&mut fixture, "data: [DONE]\n\n", true);
    let RecordedRequest { input_tokens, output_tokens, estimated, cached_tokens, .. } = only(&fixture);
    assert_eq!((input_tokens, output_tokens, estimated, cached_tokens), (100, 7, true, None));
}

#[test]
fn each_end_of_a_request_has_its_outcome() {
    let outcome = |end: fn(&mut Request, &mut Fixture, u8)| {
        let mut fixture = recorded(ALL);
        let mut request = fixture.post(TEXT, &[], &prompt("hi"));
        let from = number(&request);
        end(&mut request, &mut fixture, from);
        pass(&request, 5);
        let now = request.proxy.now.get();
        request.exchange.end_at(&mut fixture.pool, || Ok(now));
        let entry = only(&fixture);
        (entry.outcome(), entry.why, entry.end_us)
    };
    let failed = outcome(|request, fixture, from| {
        request.answer(fixture, from, &[(":status", "500")]);
        request.chunk(fixture, "", true);
    });
    assert_eq!(failed, (RecordOutcome::Failed, "picked".to_owned(), 0));
    let cut = outcome(|request, fixture, from| {
        request.answer(fixture, from, STREAM);
        request.chunk(fixture, "data: {\"choices\": [{\"text\": \"x\"}]}\n\n", false);
        pass(request, 1);
        request.exchange.cut(&mut fixture.pool, &request.proxy);
    });
    assert_eq!(cut, (RecordOutcome::Failed, "picked".to_owned(), 1000));
    let error = outcome(|request, fixture, from| {
        request.answer(fixture, from, STREAM);
        request.chunk(fixture, "data: {\"error\": {\"code\": 500, \"message\": \"x\"}}\n\n", true);
    });
    assert_eq!(error.0, RecordOutcome::Failed);
    let bad_request = outcome(|request, fixture, from| {
        request.answer(fixture, from, &[(":status", "400")]);
        request.chunk(fixture, "", true);
    });
    assert_eq!(bad_request.0, RecordOutcome::Neutral);
    let left = outcome(|_, _, _| {});
    assert_eq!(left, (RecordOutcome::Neutral, "picked".to_owned(), 5000), "the client has left");
    let elsewhere = outcome(|request, fixture, from| {
        request.answer(fixture, from % 3 + 1, JSON);
        request.chunk(fixture, USAGE, true);
    });
    assert_eq!((elsewhere.0, &*elsewhere.1), (RecordOutcome::Served, "retry"));
}

#[test]
fn a_decision_that_does_not_act_is_recorded_with_the_one_that_does() {
    // Of three endpoints the first has the fewest waiting requests, and the last the emptiest cache.
    let fullest_first = |fixture: &mut Fixture, policy: v1::Policy| {
        let mut snapshot = fixture::snapshot(&[0, 10, 20]);
        for (reading, usage) in snapshot.readings.iter_mut().zip([0.9, 0.5, 0.1]) {
            reading.kv_usage = Some(usage);
        }
        let topology = Topology::compile(fixture::topology(&[1, 2, 3], policy)).unwrap();
        fixture.pool.adopt(PoolView::new(topology.into(), snapshot, START).into());
    };
    let pick =
        |endpoint: u8, agrees| Some(ShadowPick { endpoint: vec![10, 0, 0, endpoint, 0x1f, 0x40], agrees });
    for (shadow, expected) in
        [("queue-scorer", pick(1, true)), ("kv-cache-utilization-scorer", pick(3, false))]
    {
        let policy = v1::Policy {
            record: Some(ALL),
            shadow_config: Some(picker_config(&[(shadow, None)])),
            ..fixture::fewest_waiting()
        };
        let mut fixture = Fixture::with_policy(&json!({}), policy.clone());
        fullest_first(&mut fixture, policy);
        fixture.post(TEXT, &[], &prompt("hi")).served_by_any(&mut fixture);
        let entry = only(&fixture);
        assert_eq!((entry.endpoint[3], entry.shadow), (1, expected), "{shadow}");
    }
    // In shadow mode the picker's own decision does not act.
    let policy = v1::Policy { record: Some(ALL), ..fixture::fewest_waiting() };
    let mut fixture = Fixture::with_policy(&json!({"mode": "shadow"}), policy);
    let mut request = fixture.request(TEXT, &[(DESTINATION, "10.0.0.2:8000")]);
    request.head(&mut fixture);
    request.body(&mut fixture, prompt("hi").as_bytes(), true);
    request.answer(&mut fixture, 2, JSON);
    request.chunk(&mut fixture, USAGE, true);
    let entry = only(&fixture);
    assert_eq!((&*entry.why, entry.endpoint[3], entry.shadow), ("other-picker", 2, pick(1, false)));
}

#[test]
fn a_rejection_is_recorded() {
    let mut fixture = recorded(ALL);
    let policy = v1::Policy { record: Some(ALL), ..v1::Policy::default() };
    fixture.adopt(fixture::topology(&[], policy), &[]);
    let mut request = fixture.post(TEXT, &[], &prompt(&"x".repeat(400)));
    assert_eq!(request.rejection().status, 503);
    request.exchange.end(&mut fixture.pool);
    let entry = only(&fixture);
    assert_eq!((entry.outcome(), &*entry.why), (RecordOutcome::Rejected, "rejected-no-endpoints"));
    assert_eq!((entry.input_tokens, entry.blocks.len(), entry.endpoint.len()), (100, 2, 0));
}

#[test]
fn a_pool_that_is_not_recorded_has_no_entry() {
    let mut fixture = Fixture::with_policy(&json!({}), v1::Policy::default());
    fixture.post(TEXT, &[], &prompt("hi")).served_by_any(&mut fixture);
    fixture.post(TEXT, &[], "{}").exchange.end(&mut fixture.pool);
    assert_eq!(take(&fixture), []);
    assert_eq!(fixture.counted("recorded"), 0);
    let mut none = fixture.request("/v1/models", &[]);
    none.head_only(&mut recorded(ALL));
    assert_eq!(take(&fixture), [], "nor a request without a body");
}

#[test]
fn a_session_is_recorded_whole_or_not_at_all() {
    let mut fixture = recorded(v1::RecordSample { key: 11, limit: u64::MAX / 2 });
    let mut send = |headers: &[(&str, &str)], text: &str| {
        fixture.post(TEXT, headers, &prompt(text)).served_by_any(&mut fixture);
        take(&fixture).len()
    };
    let mut counts = [0; 2];
    for session in 0..100 {
        let name = format!("session-{session}");
        let turn = |number: usize| format!("turn {number} of {name}").repeat(number * 20);
        let of_header: Vec<usize> = (1..4).map(|it| send(&[("x-session-id", &name)], &turn(it))).collect();
        // The turns of a conversation begin alike.
        let begin = format!("conversation {session:09} ").repeat(20);
        let of_blocks: Vec<usize> = (1..4).map(|it| send(&[], &(begin.clone() + &turn(it)))).collect();
        for (recorded, count) in [of_header, of_blocks].iter().zip(&mut counts) {
            assert!([0, 3].contains(&recorded.iter().sum()), "{recorded:?}");
            *count += recorded[0];
        }
    }
    assert!(counts.iter().all(|count| (30..70).contains(count)), "{counts:?}");
}

#[test]
fn prompts_have_blocks_where_no_rule_reads_them() {
    let policy = v1::Policy {
        picker_config: Some(picker_config(&[("queue-scorer", None)])),
        record: Some(ALL),
        ..v1::Policy::default()
    };
    let mut fixture = Fixture::with_policy(&json!({}), policy);
    let text = "0123456789".repeat(80);
    fixture.post(TEXT, &[], &prompt(&text)).served_by_any(&mut fixture);
    let entry = only(&fixture);
    assert_eq!((entry.block_tokens, entry.blocks.len(), entry.input_tokens), (64, 4, 200));
}

#[test]
fn a_message_that_fails_is_counted_and_not_repeated() {
    let mut fixture = recorded(ALL);
    let mut client = RecordClient::new("p");
    let outbox = |fixture: &mut Fixture| {
        fixture.post(TEXT, &[], &prompt("hi")).served_by_any(fixture);
    };
    assert_eq!(client.next_message(fixture.pool.records(), START), None);
    outbox(&mut fixture);
    outbox(&mut fixture);
    let first = client.next_message(fixture.pool.records(), START);
    assert_eq!(Records::decode(first.unwrap().body.unwrap().as_slice()).unwrap().requests.len(), 2);
    outbox(&mut fixture);
    let later = START + Duration::from_secs(1);
    assert_eq!(client.next_message(fixture.pool.records(), later), None, "one is in flight");
    let problem = client.finish(Ok(503), fixture.pool.records(), later);
    assert_eq!(problem, Some(ReportProblem::Status(503)));
    assert_eq!(fixture.counted("record_dropped"), 2);
    assert!(client.next_message(fixture.pool.records(), later).is_some());
    let no_response = Err(CallError::NoResponse(String::new()));
    assert!(client.finish(no_response, fixture.pool.records(), later).is_some());
    outbox(&mut fixture);
    assert_eq!(client.next_message(fixture.pool.records(), later), None, "entries wait for others");
    assert!(client.next_message(fixture.pool.records(), later + Duration::from_secs(1)).is_some());
    assert_eq!(client.finish(Ok(204), fixture.pool.records(), later), None);
    assert_eq!((fixture.counted("recorded"), fixture.counted("record_dropped")), (4, 3));
}
