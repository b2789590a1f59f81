//! The ledger without a proxy: the same changes give the same ledger, whatever list of endpoints a copy has.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::decision::Decision;
use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::ChangedReadings;
use endpoint_picker::state::in_flight::sender_of_proxy;

use super::{Change, ChangeKind, Ledger, LedgerStore, LocalLedger, changes_of};

const NOW: Duration = Duration::from_secs(1_000);
const AVOID: Duration = Duration::from_millis(250);
const ONE: Load = Load { requests: 1, tokens: 100 };
const NONE: Load = Load { requests: 0, tokens: 0 };

/// A prompt of several blocks.
const BODY: &str = r#"{"model": "llama", "prompt": "PROMPT"}"#;

fn pool(hosts: &[u8]) -> Arc<Endpoints> {
    let endpoint = |&n: &u8| Endpoint::new(format!("default/{n}"), ([10, 0, 0, n], 8000).into(), vec![]);
    Arc::new(Endpoints::new("p".to_owned(), hosts.iter().map(endpoint).collect()).unwrap())
}

fn key(host: u8) -> u64 {
    pool(&[host]).as_slice()[0].key()
}

fn ledger(hosts: &[u8], pipeline: &Pipeline) -> Ledger {
    let mut ledger = Ledger::default();
    ledger.adopt(pool(hosts), [pipeline], AVOID);
    ledger
}

/// Decides for the prompt by a ledger, with idle servers.
fn decide(pipeline: &Pipeline, ledger: &Ledger) -> Decision {
    let body = BODY.replace("PROMPT", &"a long prompt ".repeat(200));
    let options = pipeline.body_options(Headers::default());
    let body = Body::read(&body, Api::Completions, &options).unwrap();
    let request = Request { model: "llama", prompt: Some(&body.prompt), ..Request::default() };
    let readings = vec![Reading { ready: true, updated: Some(NOW), ..Reading::default() }; 3];
    pipeline.decide(&request, &ledger.input(&readings, NOW), NOW, &mut SplitMix64::new(1))
}

fn change(host: u8, kind: ChangeKind) -> Change {
    Change::Endpoint { endpoint: key(host), kind }
}

/// How many of the prompt's blocks each endpoint has, by the states of a ledger.
fn matched(pipeline: &Pipeline, ledger: &Ledger) -> (Option<usize>, u32) {
    let decision = decide(pipeline, ledger);
    (decision.destination(), decision.prompt.matched)
}

#[test]
fn a_decision_becomes_its_events_and_its_load() {
    let pipeline = Pipeline::default();
    let mut ledger = ledger(&[1, 2, 3], &pipeline);
    let mut decision = decide(&pipeline, &ledger);
    let destination = decision.destination().unwrap();
    let changes = changes_of(&mut decision, ledger.pool());
    assert!(decision.records.changes.is_empty(), "moved, not copied");
    assert_eq!(decision.reservations.len(), 1, "the caller releases them later");
    let is_prompt = |change: &Change| matches!(change, Change::State(prompt) if prompt.words.len() > 1);
    assert!(changes.iter().any(is_prompt), "{changes:?}");
    for change in &changes {
        assert_eq!(change.endpoint(), ledger.pool().as_slice()[destination].key());
        ledger.apply(7, change);
    }
    assert_eq!((ledger.routed(), ledger.requests_in_flight()), (1, 1));
    assert_eq!(ledger.picks().iter().sum::<u64>(), 1);
    let (next, matched) = matched(&pipeline, &ledger);
    assert_eq!(next, Some(destination), "the prompt is cached there");
    assert!(matched > 0);
}

#[test]
fn a_change_means_the_same_to_a_copy_with_another_list_of_endpoints() {
    let pipeline = Pipeline::default();
    let mut here = ledger(&[1, 2], &pipeline);
    let mut there = ledger(&[2, 3, 1], &pipeline);
    let mut elsewhere = ledger(&[3], &pipeline);
    let changes = changes_of(&mut decide(&pipeline, &here), here.pool());
    for ledger in [&mut here, &mut there, &mut elsewhere] {
        for change in &changes {
            ledger.apply(7, change);
        }
    }
    let name = |ledger: &Ledger| {
        let (destination, matched) = matched(&pipeline, ledger);
        (destination.map(|index| ledger.pool().as_slice()[index].name().to_owned()), matched)
    };
    assert_eq!(name(&here), name(&there));
    assert_eq!(name(&elsewhere).1, 0, "it has no such endpoint");
    assert_eq!(elsewhere.loads(), [NONE]);
    elsewhere.adopt(pool(&[1, 2]), [&pipeline], AVOID);
    assert_eq!(elsewhere.loads(), here.loads(), "the load counts as soon as the endpoint is in the pool");
}

#[test]
fn no_load_is_no_change() {
    assert_eq!((Change::started(1, NONE), Change::ended(1, NONE)), (None, None));
    assert_eq!(
        Change::started(1, ONE),
        Some(Change::Endpoint { endpoint: 1, kind: ChangeKind::Started(ONE) })
    );
    assert_eq!(Change::ended(1, ONE), Some(Change::Endpoint { endpoint: 1, kind: ChangeKind::Ended(ONE) }));
}

#[test]
fn loads_start_move_and_end_and_leave_with_their_sender() {
    let mut ledger = ledger(&[1, 2], &Pipeline::default());
    ledger.apply(7, &change(1, ChangeKind::Started(ONE)));
    ledger.apply(8, &change(1, ChangeKind::Started(ONE)));
    ledger.apply(7, &change(1, ChangeKind::Moved { to: key(2), load: ONE }));
    assert_eq!(ledger.loads(), [ONE, ONE]);
    ledger.apply(7, &change(2, ChangeKind::Ended(ONE)));
    assert_eq!(ledger.loads(), [ONE, NONE]);
    ledger.forget_sender(8);
    assert_eq!(ledger.loads(), [NONE, NONE]);
    assert_eq!((ledger.routed(), ledger.picks()), (2, &[2, 0][..]));
    ledger.set_loads(9, [(key(2), ONE)]);
    assert_eq!(ledger.loads_of(9).collect::<Vec<_>>(), [(key(2), ONE)]);
    assert_eq!(ledger.requests_in_flight(), 1);
}

#[test]
fn an_endpoint_that_fails_is_avoided_until_it_serves() {
    let mut ledger = ledger(&[1, 2], &Pipeline::default());
    ledger.apply(7, &change(2, ChangeKind::Failed { at: NOW }));
    assert!(ledger.is_failing(key(2)));
    assert_eq!(ledger.avoided_endpoints(NOW).collect::<Vec<_>>(), [key(2)]);
    assert!(ledger.avoided()[1].contains(NOW) && !ledger.avoided()[0].contains(NOW));
    ledger.apply(8, &change(2, ChangeKind::Recovered { at: NOW }));
    assert!(!ledger.is_failing(key(2)));
}

#[test]
fn a_restart_drops_the_states_of_its_endpoint_once() {
    let pipeline = Pipeline::default();
    let mut store = LocalLedger::default();
    store.adopt(pool(&[1]), [&pipeline], AVOID);
    let reading = |seconds| Reading {
        updated: Some(NOW),
        cached_since: Some(Duration::from_secs(seconds)),
        ..Reading::default()
    };
    store.observe(&[reading(100)], ChangedReadings::All);
    let send = |store: &mut LocalLedger| {
        store.transact(|ledger| {
            let mut decision = decide(&pipeline, ledger);
            let changes = changes_of(&mut decision, ledger.pool());
            (decision.prompt.matched, changes)
        })
    };
    assert_eq!(send(&mut store), 0);
    assert!(send(&mut store) > 0);
    store.observe(&[reading(200)], ChangedReadings::All);
    assert_eq!(send(&mut store), 0, "its caches are empty");
    store.observe(&[reading(200)], ChangedReadings::All);
    assert!(send(&mut store) > 0, "the same restart");
    assert_eq!(store.read(Ledger::routed), 4);
}

#[test]
fn a_restart_that_another_sender_reported_is_not_reported_again() {
    let mut ledger = ledger(&[1], &Pipeline::default());
    let restarted = |seconds| change(1, ChangeKind::Restarted { since: Duration::from_secs(seconds) });
    let reading =
        |seconds| Reading { cached_since: Some(Duration::from_secs(seconds)), ..Reading::default() };
    assert_eq!(ledger.restarts_in(&[reading(100)], ChangedReadings::All)[..], []);
    ledger.apply(7, &restarted(200));
    assert_eq!(ledger.restarts_in(&[reading(200)], ChangedReadings::All)[..], []);
    let mut found = ledger.restarts_in(&[reading(300)], ChangedReadings::All);
    assert_eq!(found[..], [restarted(300)]);
    ledger.apply(7, &restarted(300));
    ledger.keep_unapplied_restarts(&mut found);
    assert_eq!(found[..], []);
}

#[test]
fn responses_stay_with_their_endpoints_and_those_to_other_proxies_do_not_count() {
    let pipeline = Pipeline::default();
    let mut ledger = ledger(&[1, 2], &pipeline);
    let served = |is_streamed| ChangeKind::Served { first_byte: Duration::from_millis(30), is_streamed };
    ledger.apply(0, &change(2, served(true)));
    ledger.apply(1, &change(2, served(false)));
    ledger.apply(1, &change(9, served(true)));
    for sender in [0, sender_of_proxy(7)] {
        ledger.apply(sender, &change(2, ChangeKind::Failed { at: NOW }));
    }
    ledger.adopt(pool(&[3, 2]), [&pipeline], AVOID);
    let counts: Vec<_> =
        ledger.responses().iter().map(|it| (it.failures, it.first_byte.requests())).collect();
    assert_eq!(counts, [(0, 0), (1, 2)]);
    assert_eq!(ledger.first_token().requests(), 1);
    ledger.adopt(pool(&[3]), [&pipeline], AVOID);
    ledger.adopt(pool(&[3, 2]), [&pipeline], AVOID);
    assert_eq!(ledger.responses()[1].failures, 0, "it left the pool");
}
