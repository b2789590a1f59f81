//! A proxy of several workers that shares its changes with other proxies.

use std::time::Duration;

use endpoint_picker::pool::load::{FractionalLoad, Load};
use endpoint_picker::state::StateChange;
use endpoint_picker::state::in_flight::sender_of_proxy;
use endpoint_picker_engine::ledger::{Change, ChangeKind, LedgerStore};
use endpoint_picker_engine::sharing::{Identity, Imported, PeerLedger, Positions};
use endpoint_picker_workers::{Replica, SharedSender};

use crate::fixture::{NONE, ONE, POOL, START, ended, key, started, worker};
use crate::memory::Memory;

const OTHER: u64 = sender_of_proxy(7);

fn state_change(host: u8, words: Vec<u64>) -> Change {
    Change::State(StateChange { plugin: 3, endpoint: key(host), at: START, words: words.into() })
}

fn prompt(host: u8) -> Change {
    state_change(host, vec![9, 1, 2, 3])
}

fn in_flight(host: u8) -> Imported {
    let changes = vec![Change::Endpoint { endpoint: key(host), kind: ChangeKind::InFlight(ONE) }];
    Imported::Changes { sender: OTHER, changes }
}

fn settle(workers: &mut [&mut Replica<Memory>], now: Duration) {
    for _ in 0..2 {
        for worker in &mut *workers {
            worker.keep_up(now).unwrap();
        }
    }
}

#[test]
fn the_worker_that_sends_has_the_changes_of_all_workers_and_none_of_other_proxies() {
    let memory = Memory::default();
    let (mut sending, mut other) = (worker(memory.clone()), worker(memory));
    other.apply(vec![prompt(1)].into());
    settle(&mut [&mut sending, &mut other], START);
    sending.collect(true);
    sending.apply(vec![prompt(1), started(1)].into());
    other.apply(vec![prompt(2), started(2)].into());
    sending.import(|_| vec![Imported::Changes { sender: OTHER, changes: vec![prompt(2)] }]);
    settle(&mut [&mut sending, &mut other], START);
    assert_eq!(
        sending.take_own().changes,
        [prompt(1), prompt(2)],
        "those before its turn were sent by another"
    );
    assert!(other.take_own().changes.is_empty());
    let mut own: Vec<_> = sending.ledger().own_loads_by_key().collect();
    own.sort_by_key(|(endpoint, _)| *endpoint == key(2));
    assert_eq!(own, [(key(1), ONE), (key(2), ONE)]);
}

#[test]
fn changes_of_another_proxy_reach_every_worker_also_many_at_once() {
    let memory = Memory::default();
    let (mut one, mut two) = (worker(memory.clone()), worker(memory));
    let large = vec![state_change(1, vec![5; 3_000]); 20];
    one.import(|_| vec![Imported::Changes { sender: OTHER, changes: large }, in_flight(1)]);
    settle(&mut [&mut one, &mut two], START);
    for worker in [&one, &two] {
        assert_eq!(worker.ledger().loads(), [ONE, NONE]);
        assert_eq!(worker.ledger().own_loads().collect::<Vec<_>>(), [NONE, NONE]);
    }
}

#[test]
fn loads_of_another_proxy_stay_while_workers_come_and_go_and_vanish_when_they_are_dropped() {
    let memory = Memory::default();
    let (mut one, mut two) = (worker(memory.clone()), worker(memory.clone()));
    settle(&mut [&mut one, &mut two], START);
    two.apply(vec![started(2)].into());
    one.import(|_| vec![in_flight(1)]);
    settle(&mut [&mut one, &mut two], START);
    drop(two);
    let later = START + Duration::from_secs(2);
    settle(&mut [&mut one], later);
    assert_eq!(one.ledger().loads(), [ONE, NONE], "the second worker is gone, the other proxy is not");
    let mut three = worker(memory);
    settle(&mut [&mut one, &mut three], later);
    let loads = vec![(key(2), ONE)];
    one.import(|_| vec![Imported::Loads { sender: OTHER, loads }]);
    settle(&mut [&mut one, &mut three], later);
    assert_eq!(three.ledger().loads(), [NONE, ONE]);
    one.import(|_| vec![Imported::Loads { sender: OTHER, loads: vec![] }]);
    one.apply(vec![started(1), ended(1)].into());
    settle(&mut [&mut one, &mut three], later);
    assert_eq!(three.ledger().loads(), [NONE, NONE]);
    assert_eq!(three.ledger().senders().filter(|sender| *sender == OTHER).count(), 0);
}

#[test]
fn every_worker_defers_the_same_of_another_proxys_loads() {
    let memory = Memory::default();
    let (mut one, mut two) = (worker(memory.clone()), worker(memory));
    let of_other = |requests| {
        let load = Load { requests, tokens: 0 };
        let changes = vec![Change::Endpoint { endpoint: key(2), kind: ChangeKind::InFlight(load) }];
        vec![Imported::Changes { sender: OTHER, changes }]
    };
    one.import(|_| of_other(10));
    one.import(|_| of_other(20));
    let deferred = |worker: &Replica<Memory>| worker.ledger().input(&[], START).deferred.to_vec();
    let before = deferred(&one)[1].requests;
    assert!(before > 5.0, "{before}");
    one.import(|_| vec![Imported::Passed(Duration::from_millis(700))]);
    one.apply(vec![started(1)].into());
    two.apply(vec![started(1)].into());
    settle(&mut [&mut one, &mut two], START);
    assert!((deferred(&one)[1].requests - before / 2.0).abs() < 1e-6, "{:?}", deferred(&one));
    assert_eq!(deferred(&one)[0], FractionalLoad::default(), "workers of this proxy are current");
    assert_eq!(deferred(&one), deferred(&two));
}

#[test]
fn a_proxy_that_missed_changes_has_all_workers_send_prompts_in_full() {
    let memory = Memory::default();
    let (mut one, mut two) = (worker(memory.clone()), worker(memory));
    settle(&mut [&mut one, &mut two], START);
    let key = two.data().value("/members").unwrap();
    one.resend();
    settle(&mut [&mut one, &mut two], START);
    assert_ne!(two.data().value("/members").unwrap(), key, "a resync is requested");
}

#[test]
fn the_worker_that_takes_over_goes_on_as_the_same_sender_where_the_last_one_was() {
    let memory = Memory::default();
    let positions = Positions::from_numbers(&[[4, 5], [6, 7]]);
    let mut first = SharedSender::take_over(&memory, POOL, 99).unwrap();
    assert_eq!(first.identity(), Identity { sender: 99, epoch: 1 });
    assert_eq!(first.positions(), &Positions::default());
    first.store(&memory, &positions).unwrap();
    memory.take_calls();
    first.store(&memory, &positions).unwrap();
    assert_eq!(memory.take_calls(), crate::memory::Calls::default(), "they are stored already");
    let second = SharedSender::take_over(&memory, POOL, 100).unwrap();
    assert_eq!(second.identity(), Identity { sender: 99, epoch: 2 });
    assert_eq!(second.positions(), &positions);
    first.store(&memory, &Positions::from_numbers(&[[4, 1]])).unwrap();
    let third = SharedSender::take_over(&memory, POOL, 101).unwrap();
    assert_eq!((third.identity().epoch, third.positions()), (3, &positions), "its turn was over");
}
