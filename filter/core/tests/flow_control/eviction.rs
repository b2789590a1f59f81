//! Requests in flight that make room.

use crate::fixture::{Queue, config, dispatches, evicting, evictions};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

/// Requests of these priorities in flight, in front of a pool that is saturated now. Their tickets count from
/// 1.
fn busy(priorities: &[i32]) -> Queue {
    let mut queue = Queue::new(evicting());
    queue.saturation(0.0);
    for &priority in priorities {
        queue.request("a", priority);
        queue.events();
    }
    assert_eq!(queue.machine.in_flight(), priorities.len());
    queue.saturation(1.0);
    queue
}

#[test]
fn the_newest_of_the_lowest_priority_makes_room() {
    let mut queue = busy(&[-1, 0, -1, -1, 1]);
    queue.request("a", 0);
    assert_eq!(evictions(&queue.events()), [4]);
    assert_eq!(queue.machine.in_flight(), 4);
}

#[test]
fn without_the_option_nothing_is_evicted() {
    let mut queue = busy(&[-1]);
    queue.machine.configure(config(), queue.now);
    queue.request("a", 1);
    assert!(queue.events().is_empty());
}

#[test]
fn as_many_make_room_as_the_deficit_demands_but_two_at_most() {
    // Four in flight: each counts a quarter of the saturation.
    let evicted = |saturation| {
        let mut queue = busy(&[-1; 4]);
        queue.saturation(saturation);
        queue.request("a", 0);
        evictions(&queue.events())
    };
    assert_eq!(evicted(1.0), [4]);
    assert_eq!(evicted(1.25), [4]);
    assert_eq!(evicted(1.5), [4, 3]);
    assert_eq!(evicted(9.0), [4, 3]);
}

#[test]
fn only_requests_below_0_and_below_the_waiting_one_make_room() {
    let mut queue = busy(&[0, 1]);
    queue.request("a", 1);
    assert!(queue.events().is_empty());
    let mut queue = busy(&[-1]);
    queue.request("a", -1);
    assert!(queue.events().is_empty());
}

#[test]
fn the_next_decision_waits_until_the_last_one_shows() {
    let mut queue = busy(&[-1; 4]);
    queue.request("a", 0);
    assert_eq!(evictions(&queue.events()), [4]);
    queue.pass(5_000);
    assert!(queue.events().is_empty());
    queue.finish(4, 0, 0);
    queue.pass(9);
    assert!(queue.events().is_empty());
    queue.pass(1);
    assert_eq!(evictions(&queue.events()), [3]);
}

#[test]
fn a_stream_that_does_not_end_counts_as_ended_after_10_seconds() {
    let mut queue = busy(&[-1; 4]);
    queue.request("a", 0);
    assert_eq!(evictions(&queue.events()), [4]);
    queue.pass(9_999);
    assert!(queue.events().is_empty());
    queue.pass(1);
    assert!(queue.events().is_empty());
    queue.pass(10);
    assert_eq!(evictions(&queue.events()), [3]);
    assert_eq!(queue.machine.in_flight(), 2);
    for ticket in 1..=4 {
        queue.finish(ticket, 0, 0);
    }
    assert_eq!(queue.machine.in_flight(), 0);
}

#[test]
fn a_request_that_ended_already_is_not_evicted() {
    let mut queue = busy(&[-1; 4]);
    queue.saturation(9.0);
    queue.request("a", 0);
    assert_eq!(evictions(&queue.machine.poll(queue.now).into_iter().collect::<Vec<_>>()), [4]);
    queue.finish(3, 0, 0);
    assert!(queue.events().is_empty());
}

#[test]
fn the_room_goes_to_the_waiting_request() {
    let mut queue = busy(&[-1]);
    let ticket = queue.request("a", 0);
    assert_eq!(evictions(&queue.events()), [1]);
    queue.finish(1, 0, 0);
    queue.saturation(0.5);
    queue.pass(1);
    assert_eq!(dispatches(&queue.events()), [ticket]);
}
