//! Single steps of replicas.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::{ChangedReadings, StateChange};
use endpoint_picker_engine::ledger::{Change, ChangeKind, Ledger, LedgerStore, changes_of};
use endpoint_picker_workers::{Replica, SharedData, next_worker_number, words};

use crate::fixture::{AVOID, NONE, ONE, POOL, START, ended, key, pool, started, worker};
use crate::memory::{Calls, Memory, Refused};

const TWO: Load = Load { requests: 2, tokens: 200 };

/// Sends a request to the host with the least load. Returns it and how often the decision was made.
fn decide<S: SharedData>(replica: &mut Replica<S>) -> (u8, u32) {
    let mut times = 0;
    let host = replica.transact(|ledger: &Ledger| {
        times += 1;
        let least = ledger.loads().iter().enumerate().min_by_key(|(_, load)| load.requests);
        let host = u8::try_from(least.unwrap().0).unwrap() + 1;
        (host, vec![started(host)].into())
    });
    (host, times)
}

fn loads<S: SharedData>(replica: &Replica<S>) -> Vec<Load> {
    replica.ledger().loads().to_vec()
}

#[test]
fn numbers_of_workers_are_never_used_twice() {
    let memory = Memory::default();
    let numbers: Vec<u64> = (0..3).map(|_| next_worker_number(&memory).unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn a_decision_sees_the_requests_of_all_workers() {
    let memory = Memory::default();
    let (mut one, mut other) = (worker(memory.clone()), worker(memory));
    assert_eq!(decide(&mut one), (1, 1));
    assert_eq!(decide(&mut other), (2, 1));
    assert_eq!(decide(&mut other), (1, 1));
    one.apply(vec![ended(1)].into());
    assert_eq!(loads(&one), [ONE, ONE]);
    assert_eq!(decide(&mut other), (1, 1));
    assert_eq!(loads(&other), [TWO, ONE]);
}

/// Sends a request and ends it in two steps. Returns the calls that this takes.
fn calls_of_a_request(replica: &mut Replica<Memory>, memory: &Memory) -> Calls {
    memory.take_calls();
    let (host, times) = decide(replica);
    assert_eq!(times, 1);
    let half = Load { requests: 0, tokens: 50 };
    replica.apply(vec![Change::Endpoint { endpoint: key(host), kind: ChangeKind::Ended(half) }].into());
    replica.apply(
        vec![Change::Endpoint { endpoint: key(host), kind: ChangeKind::Ended(Load { tokens: 50, ..ONE }) }]
            .into(),
    );
    replica.apply(vec![].into());
    memory.take_calls()
}

#[test]
fn a_request_costs_three_swaps_and_where_others_append_three_gets() {
    let memory = Memory::default();
    let (mut replica, mut other) = (worker(memory.clone()), worker(memory.clone()));
    for _ in 0..20 {
        decide(&mut other);
        let calls = calls_of_a_request(&mut replica, &memory);
        assert_eq!(calls, Calls { gets: 3, sets: 0, swaps: 3 });
    }
    for _ in 0..3 {
        calls_of_a_request(&mut replica, &memory);
    }
    assert_eq!(calls_of_a_request(&mut replica, &memory), Calls { gets: 0, sets: 0, swaps: 3 });
    assert_eq!(replica.ledger().requests_in_flight(), 20);
}

/// A worker whose log is quiet.
fn quiet_worker(memory: &Memory) -> Replica<Memory> {
    let mut replica = worker(memory.clone());
    for _ in 0..4 {
        calls_of_a_request(&mut replica, memory);
    }
    memory.take_calls();
    replica
}

#[test]
fn a_decision_without_reading_the_log_is_made_again_where_another_worker_has_appended() {
    let memory = Memory::default();
    let mut other = worker(memory.clone());
    let mut replica = quiet_worker(&memory);
    decide(&mut other);
    assert_eq!(decide(&mut replica), (2, 2));
    assert_eq!(memory.take_calls(), Calls { gets: 2, sets: 0, swaps: 3 });
    assert_eq!(loads(&replica), [ONE, ONE]);
    let mut replica = quiet_worker(&memory);
    other.apply(vec![ended(1)].into());
    assert_eq!(decide(&mut replica), (1, 2), "also where it has only ended one");
}

#[test]
fn a_refusal_without_reading_the_log_is_checked_too() {
    let memory = Memory::default();
    let mut other = worker(memory.clone());
    let mut replica = quiet_worker(&memory);
    // Refuses a request unless another one is in flight, and changes nothing.
    let is_refused = |replica: &mut Replica<Memory>| {
        replica.transact(|ledger| (ledger.requests_in_flight() == 0, vec![].into()))
    };
    assert!(is_refused(&mut replica));
    assert_eq!(memory.take_calls(), Calls { gets: 1, sets: 0, swaps: 0 });
    decide(&mut other);
    assert!(!is_refused(&mut replica));
}

#[test]
fn a_version_that_is_not_the_next_number_costs_a_read_and_no_new_decision() {
    let memory = Memory::default();
    let mut replica = quiet_worker(&memory);
    // The first swap after a write of another key succeeds, and makes a version that is not the next one.
    memory.set("another key", b"").unwrap();
    assert_eq!(decide(&mut replica), (1, 1));
    assert_eq!(memory.take_calls(), Calls { gets: 0, sets: 1, swaps: 1 });
    assert_eq!(decide(&mut replica), (2, 1));
    assert_eq!(memory.take_calls(), Calls { gets: 1, sets: 0, swaps: 2 });
    assert_eq!(loads(&replica), [ONE, ONE]);
}

#[test]
fn another_request_at_the_same_time_leads_to_one_new_decision() {
    let memory = Memory::default();
    let other = RefCell::new(worker(memory.clone()));
    let rivals = Cell::new(0);
    // Before each of the first swaps of the log, another worker sends a request.
    let gate = |call: &str, key: &str| {
        if call == "compare_and_swap" && key.ends_with("/log") && rivals.get() > 0 {
            rivals.set(rivals.get() - 1);
            decide(&mut other.borrow_mut());
        }
        Ok(())
    };
    let mut one = worker(memory.behind(gate));
    rivals.set(1);
    assert_eq!(decide(&mut one), (2, 2), "the other one took host 1");
    assert_eq!(loads(&one), [ONE, ONE], "the first decision is withdrawn");
    rivals.set(3);
    assert_eq!(decide(&mut one).1, 2, "not a third time");
    one.keep_up(START).unwrap();
    other.borrow_mut().keep_up(START).unwrap();
    one.keep_up(START).unwrap();
    assert_eq!(loads(&one), loads(&other.borrow()));
    assert_eq!(one.ledger().requests_in_flight(), 6);
}

#[test]
fn the_end_of_a_request_at_the_same_time_leads_to_no_new_decision() {
    let memory = Memory::default();
    let other = RefCell::new(worker(memory.clone()));
    decide(&mut other.borrow_mut());
    let ends = Cell::new(false);
    let gate = |call: &str, _: &str| {
        if call == "compare_and_swap" && ends.take() {
            other.borrow_mut().apply(vec![ended(1)].into());
        }
        Ok(())
    };
    let mut one = worker(memory.behind(gate));
    ends.set(true);
    assert_eq!(decide(&mut one), (2, 1));
    assert_eq!(loads(&one), [NONE, ONE]);
}

#[test]
fn changes_stay_pending_while_shared_data_fails_and_are_appended_once() {
    let memory = Memory::default();
    let failing = Cell::new("");
    let gate = |call: &str, _: &str| if call == failing.get() { Err(Refused) } else { Ok(()) };
    let mut one = worker(memory.behind(gate));
    let mut other = worker(memory.clone());
    failing.set("compare_and_swap");
    assert_eq!(decide(&mut one), (1, 1));
    assert_eq!(loads(&one), [NONE, NONE]);
    // The tail cannot be read again, so the next append is based on the older one.
    failing.set("get");
    one.apply(vec![].into());
    failing.set("");
    one.keep_up(START).unwrap();
    other.keep_up(START).unwrap();
    assert_eq!((loads(&one), loads(&other)), (vec![ONE, NONE], vec![ONE, NONE]));
    failing.set("get");
    assert_eq!(one.keep_up(START + Duration::from_secs(1)), Err(Refused));
}

#[test]
fn entries_are_read_over_the_turn_of_chunks() {
    let memory = Memory::default();
    let (mut one, mut other) = (worker(memory.clone()), worker(memory.clone()));
    for _ in 0..300 {
        decide(&mut one);
        one.apply(vec![ended(1), ended(2)].into());
    }
    assert!(memory.value("/log/1").is_some(), "several chunks are full");
    let sent = loads(&one);
    other.keep_up(START).unwrap();
    assert_eq!(loads(&other), sent);
    assert_eq!(other.ledger().routed(), 300);
    let late = {
        let mut late = worker(memory);
        late.keep_up(START).unwrap();
        late
    };
    assert_eq!((loads(&late), late.ledger().routed()), (sent, 300));
}

#[test]
fn a_worker_that_ends_while_the_chunk_turns_costs_the_others_nothing() {
    let memory = Memory::default();
    let fails = Cell::new(false);
    let gate = |call: &str, _: &str| {
        if fails.get() && call == "compare_and_swap" { Err(Refused) } else { Ok(()) }
    };
    let (mut ends, mut other) = (worker(memory.behind(gate)), worker(memory.clone()));
    let tail = || memory.value("/log").unwrap();
    while tail().len() <= 4096 {
        decide(&mut ends);
    }
    // It writes the full chunk, and not the new one.
    fails.set(true);
    decide(&mut ends);
    let sent = ends.ledger().requests_in_flight();
    drop(ends);
    decide(&mut other);
    assert_eq!(other.ledger().requests_in_flight(), sent + 1);
    assert_eq!(words(&tail()).next(), Some(1));
}

#[test]
fn malformed_entries_are_left_out() {
    let memory = Memory::default();
    let mut replica = worker(memory.clone());
    decide(&mut replica);
    let mut tail = memory.value("/log").unwrap();
    tail.extend([99_u64 << 56 | 1 << 32 | 2, 2, 3].into_iter().flat_map(u64::to_le_bytes));
    memory.set(&memory.key("/log"), &tail).unwrap();
    assert_eq!(decide(&mut replica), (2, 1));
    assert_eq!(loads(&replica), [ONE, ONE]);
}

#[test]
fn a_worker_that_missed_entries_gets_the_loads_of_all() {
    let memory = Memory::default();
    let (mut one, mut away) = (worker(memory.clone()), worker(memory.clone()));
    let mut now = START;
    for _ in 0..2 {
        now += Duration::from_millis(250);
        one.keep_up(now).unwrap();
        away.keep_up(now).unwrap();
    }
    decide(&mut away);
    let words = (0..1000).collect();
    let padding = Change::State(StateChange { plugin: 0, endpoint: key(1), at: START, words });
    decide(&mut one);
    for _ in 0..200 {
        one.apply(vec![padding.clone()].into());
    }
    assert_eq!(loads(&away), [ONE, NONE], "the log has gone on");
    for _ in 0..4 {
        now += Duration::from_millis(250);
        away.keep_up(now).unwrap();
        one.keep_up(now).unwrap();
    }
    assert_eq!(loads(&away), [ONE, ONE]);
    assert_eq!(loads(&one), [ONE, ONE]);
    let late = {
        let mut late = worker(memory);
        for _ in 0..4 {
            now += Duration::from_millis(250);
            late.keep_up(now).unwrap();
            one.keep_up(now).unwrap();
            away.keep_up(now).unwrap();
        }
        late
    };
    assert_eq!(loads(&late), [ONE, ONE]);
}

#[test]
fn the_load_of_a_departed_worker_goes_away_and_comes_back_with_it() {
    let memory = Memory::default();
    let (mut one, mut other) = (worker(memory.clone()), worker(memory));
    decide(&mut one);
    decide(&mut other);
    one.keep_up(START).unwrap();
    other.keep_up(START).unwrap();
    for quarters in 1..=8 {
        one.keep_up(START + Duration::from_millis(250 * quarters)).unwrap();
    }
    assert_eq!(loads(&one), [ONE, NONE], "the other one has departed");
    // It was only held up.
    let now = START + Duration::from_secs(3);
    other.keep_up(now).unwrap();
    one.keep_up(now).unwrap();
    assert_eq!((loads(&one), loads(&other)), (vec![ONE, ONE], vec![ONE, ONE]));
}

#[test]
fn before_it_has_a_pool_a_worker_reads_no_entries() {
    let memory = Memory::default();
    let mut one = worker(memory.clone());
    decide(&mut one);
    one.keep_up(START).unwrap();
    let number = next_worker_number(&memory).unwrap();
    let mut late = Replica::new(memory, POOL, number).unwrap();
    late.keep_up(START).unwrap();
    assert_eq!(late.ledger().routed(), 0);
    late.adopt(pool(&[2, 1]), [&Pipeline::default()], AVOID);
    late.keep_up(START).unwrap();
    assert_eq!((loads(&late), late.ledger().routed()), (vec![NONE, ONE], 1));
}

#[test]
fn a_restart_is_reported_by_the_first_worker_that_reads_it() {
    let memory = Memory::default();
    let (mut one, mut other) = (worker(memory.clone()), worker(memory.clone()));
    let reading = |seconds| Reading {
        updated: Some(START),
        cached_since: Some(Duration::from_secs(seconds)),
        ..Reading::default()
    };
    let entries = || memory.log().len();
    for replica in [&mut one, &mut other] {
        replica.observe(&[reading(100), reading(100)], ChangedReadings::All);
    }
    assert_eq!(entries(), 0, "the first marks are not restarts");
    one.observe(&[reading(200), reading(100)], ChangedReadings::All);
    let reported = entries();
    assert_eq!(reported, 3);
    other.observe(&[reading(200), reading(100)], ChangedReadings::All);
    assert_eq!(entries(), reported);
    other.observe(&[reading(200), reading(200)], ChangedReadings::All);
    assert_eq!(entries(), 2 * reported);
}

/// Sends a long prompt. Returns the number of its blocks that the other workers are sent.
fn send_prompt<S: SharedData>(replica: &mut Replica<S>, pipeline: &Pipeline) -> usize {
    let body = format!(r#"{{"model": "llama", "prompt": "{}"}}"#, "a long prompt ".repeat(200));
    let options = pipeline.body_options(Headers::default());
    let body = Body::read(&body, Api::Completions, &options).unwrap();
    let request = Request { model: "llama", prompt: Some(&body.prompt), ..Request::default() };
    replica.transact(|ledger: &Ledger| {
        let readings = vec![Reading { ready: true, updated: Some(START), ..Reading::default() }; 2];
        let view = ledger.input(&readings, START);
        let mut decision = pipeline.decide(&request, &view, START, &mut SplitMix64::new(1));
        let changes = changes_of(&mut decision, ledger.pool());
        // The first word of a prompt is the endpoint's capacity.
        let sent = |change: &Change| match change {
            Change::State(prompt) => prompt.words.len() - 1,
            Change::Endpoint { .. } => 0,
        };
        (changes.iter().map(sent).sum(), changes)
    })
}

#[test]
fn a_new_worker_has_the_others_send_prompts_in_full_again() {
    let memory = Memory::default();
    let pipeline = Pipeline::default();
    let mut one = worker(memory.clone());
    one.keep_up(START).unwrap();
    let whole = send_prompt(&mut one, &pipeline);
    assert!(whole > 0);
    assert!(send_prompt(&mut one, &pipeline) < whole, "all workers have most of its blocks");
    let mut late = worker(memory);
    let now = START + Duration::from_millis(250);
    late.keep_up(now).unwrap();
    one.keep_up(now).unwrap();
    assert_eq!(send_prompt(&mut one, &pipeline), whole);
}

#[test]
fn the_ledger_can_be_read_through_the_store() {
    let mut replica = worker(Memory::default());
    decide(&mut replica);
    assert_eq!(replica.read(Ledger::requests_in_flight), 1);
    assert!(replica.data().get("absent").unwrap().version.is_none());
}
