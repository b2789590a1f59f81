//! Sessions that wait for room in the caches.

use core::num::NonZeroU32;
use std::collections::BTreeSet;

use endpoint_picker::flow_control::{CacheRoom, Config, Outcome, Ticket};
use endpoint_picker::plugin::Arrival;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker::state::SessionDemand;

use crate::fixture::{Queue, config, config_of, dispatches, drops, policy};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

const WHOLE: u64 = 400_000;

fn limited(config: Config) -> Config {
    let limit = policy("session-admission-policy", "{}");
    Config { usage_limit: limit.usage_limit.unwrap(), ..config }
}

/// A pool whose caches have no room for sessions.
fn full(config: Config) -> Queue {
    let mut queue = Queue::new(limited(config));
    queue.saturation(0.0);
    room(&mut queue, 0);
    queue
}

fn room(queue: &mut Queue, free: u64) {
    queue.machine.caches(Some(CacheRoom { free, whole: WHOLE }));
}

/// A request whose session brings this many tokens.
fn session(queue: &mut Queue, fairness_id: &str, tokens: u32, is_known: bool) -> u64 {
    let demand = NonZeroU32::new(tokens).map(|tokens| SessionDemand { tokens, is_known });
    queue.offer(&Arrival { fairness_id, demand, ..Arrival::default() })
}

fn new(queue: &mut Queue, tokens: u32) -> u64 {
    session(queue, "a", tokens, false)
}

/// The requests that are dispatched in some milliseconds.
fn dispatched(queue: &mut Queue) -> Vec<u64> {
    let mut all = Vec::new();
    for _ in 0..20 {
        queue.pass(1);
        all.extend(dispatches(&queue.events()));
    }
    all
}

/// The endpoints of these requests are chosen, and their sessions count as in work.
fn decided(queue: &mut Queue, tickets: &[u64]) {
    for ticket in tickets {
        queue.machine.decided(Ticket(*ticket));
    }
}

#[test]
fn a_session_waits_for_room_and_requests_of_those_in_work_do_not() {
    let mut queue = full(config());
    let (first, second) = (new(&mut queue, 20_000), new(&mut queue, 30_000));
    let other = queue.request("a", 0);
    assert_eq!(dispatched(&mut queue), [other]);
    assert_eq!(queue.waiting(), [0, 2, 0]);
    room(&mut queue, 19_999);
    assert_eq!(dispatched(&mut queue), [0; 0]);
    room(&mut queue, 49_999);
    assert_eq!(dispatched(&mut queue), [first]);
    assert_eq!(dispatched(&mut queue), [0; 0], "its tokens are taken before its endpoint is chosen");
    decided(&mut queue, &[first]);
    room(&mut queue, 29_999);
    assert_eq!(dispatched(&mut queue), [0; 0]);
    room(&mut queue, 30_000);
    assert_eq!(dispatched(&mut queue), [second]);
}

#[test]
fn the_saturation_lets_no_request_wait() {
    let mut queue = full(config());
    queue.saturation(7.0);
    let other = queue.request("a", 0);
    assert_eq!(dispatched(&mut queue), [other]);
}

#[test]
fn sessions_that_lost_their_place_go_before_new_ones_and_none_overtakes_the_next() {
    let mut queue = full(config());
    let new = [50_000, 10_000].map(|tokens| new(&mut queue, tokens));
    room(&mut queue, 49_999);
    assert_eq!(dispatched(&mut queue), [0; 0], "a smaller one does not overtake");
    let known = [40_000, 1_000].map(|tokens| session(&mut queue, "a", tokens, true));
    for (tokens, next) in [(50_000, new[0]), (40_000, known[0]), (1_000, known[1]), (10_000, new[1])] {
        room(&mut queue, tokens - 1);
        assert_eq!(dispatched(&mut queue), [0; 0]);
        room(&mut queue, tokens);
        assert_eq!(dispatched(&mut queue), [next]);
        decided(&mut queue, &[next]);
    }
}

#[test]
fn a_session_that_is_larger_than_a_cache_gets_a_whole_one() {
    let mut queue = full(config());
    let large = new(&mut queue, 1_200_000);
    room(&mut queue, WHOLE - 1);
    assert_eq!(dispatched(&mut queue), [0; 0]);
    room(&mut queue, WHOLE);
    assert_eq!(dispatched(&mut queue), [large]);
}

#[test]
fn users_come_in_turns() {
    let mut queue = full(config_of("fcfs-ordering-policy", "round-robin-fairness-policy"));
    let many: Vec<u64> = (0..5).map(|_| session(&mut queue, "many", 10_000, false)).collect();
    let one = session(&mut queue, "one", 10_000, false);
    let mut admitted = Vec::new();
    for _ in 0..6 {
        room(&mut queue, 10_000);
        let next = dispatched(&mut queue);
        decided(&mut queue, &next);
        assert_eq!(next.len(), 1);
        admitted.extend(next);
    }
    assert!(admitted[..2].contains(&one), "{admitted:?}");
    admitted.retain(|ticket| *ticket != one);
    assert_eq!(admitted, many);
}

#[test]
fn a_held_request_leaves_with_its_client_or_at_the_end_of_its_time() {
    let mut queue = full(config());
    let (left, expired) = (new(&mut queue, 20_000), new(&mut queue, 20_000));
    assert_eq!(dispatched(&mut queue), [0; 0]);
    queue.cancel(left);
    queue.pass(60_000);
    assert_eq!(drops(&queue.events()), [(expired, Outcome::EvictedTtl)]);
    room(&mut queue, WHOLE);
    let next = new(&mut queue, 400_000);
    assert_eq!(dispatched(&mut queue), [next], "nothing is left of the others");
}

#[test]
fn an_admitted_request_that_leaves_gives_its_room_back() {
    let mut queue = full(config());
    room(&mut queue, 20_000);
    let (first, second) = (new(&mut queue, 20_000), new(&mut queue, 20_000));
    assert_eq!(dispatched(&mut queue), [first]);
    queue.finish(first, 0, 0);
    assert_eq!(dispatched(&mut queue), [second]);
}

#[test]
fn where_no_size_is_known_all_go() {
    let mut queue = full(config());
    let held = [new(&mut queue, 20_000), new(&mut queue, 30_000)];
    assert_eq!(dispatched(&mut queue), [0; 0]);
    queue.machine.caches(None);
    assert_eq!(dispatched(&mut queue), held);
}

#[test]
fn held_and_admitted_requests_outlast_a_change_of_the_rules() {
    let mut queue = full(config());
    let [first, admitted, held] = [100_000, 250_000, 60_000].map(|tokens| new(&mut queue, tokens));
    assert_eq!(dispatched(&mut queue), [0; 0]);
    room(&mut queue, WHOLE);
    queue.pass(1);
    assert_eq!(dispatches(&queue.events()), [first]);
    decided(&mut queue, &[first]);
    room(&mut queue, WHOLE - 100_000);
    let other = limited(config_of("fcfs-ordering-policy", "round-robin-fairness-policy"));
    queue.machine.configure(other, queue.now);
    assert_eq!(dispatched(&mut queue), [admitted]);
    decided(&mut queue, &[admitted]);
    room(&mut queue, 59_999);
    assert_eq!(dispatched(&mut queue), [0; 0]);
    room(&mut queue, 60_000);
    assert_eq!(dispatched(&mut queue), [held]);
}

/// Requests of random sessions and priorities come, leave, and are chosen for, while the room changes. In the
/// end all that were not cancelled are dispatched, each once, and nothing of them is left.
#[test]
fn no_request_is_lost_or_dispatched_twice() {
    for seed in 0..10 {
        println!("seed {seed}");
        let mut rng = SplitMix64::new(seed);
        let mut queue = full(config_of("fcfs-ordering-policy", "round-robin-fairness-policy"));
        let (mut expected, mut all) = (BTreeSet::new(), Vec::new());
        for _ in 0..400 {
            match rng.below(6) {
                0 | 1 => {
                    let demand = NonZeroU32::new(1_000 * u32::try_from(rng.below(600)).unwrap())
                        .filter(|_| rng.below(4) > 0)
                        .map(|tokens| SessionDemand { tokens, is_known: rng.below(3) == 0 });
                    let (fairness_id, priority) = (["a", "b"][rng.below(2)], [-1, 0, 1][rng.below(3)]);
                    let arrival = Arrival { fairness_id, priority, demand, ..Arrival::default() };
                    expected.insert(queue.offer(&arrival));
                }
                2 => {
                    let ticket = rng.below(expected.len() + 1) as u64;
                    queue.cancel(ticket);
                    if !all.contains(&ticket) {
                        expected.remove(&ticket);
                    }
                }
                3 => room(&mut queue, 1_000 * rng.below(400) as u64),
                _ => {
                    let next = dispatched(&mut queue);
                    decided(&mut queue, &next);
                    all.extend(next);
                }
            }
        }
        room(&mut queue, WHOLE);
        while queue.waiting().iter().any(|requests| *requests > 0) {
            let next = dispatched(&mut queue);
            assert!(!next.is_empty(), "{:?} wait for ever", queue.waiting());
            decided(&mut queue, &next);
            all.extend(next);
        }
        let number = all.len();
        assert_eq!((all.into_iter().collect::<BTreeSet<_>>(), number), (expected.clone(), expected.len()));
    }
}
