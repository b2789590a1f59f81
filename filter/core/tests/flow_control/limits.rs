//! The capacity of the queue.

use endpoint_picker::flow_control::{Config, Event, Machine, Outcome, Ticket};
use endpoint_picker::plugin::Arrival;

use crate::fixture::{Queue, config, default_band, dispatches, drops, policy};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

/// A request with a body of this length.
fn body(priority: i32, bytes: u64) -> Arrival<'static> {
    Arrival { priority, bytes, ..Arrival::default() }
}

fn rejected(ticket: u64) -> Vec<(u64, Outcome)> {
    vec![(ticket, Outcome::RejectedCapacity)]
}

#[test]
fn a_band_takes_no_more_requests_than_it_may() {
    let mut config = config();
    config.bands[0].1.max_requests = 2;
    let mut queue = Queue::new(config);
    queue.request("a", 0);
    queue.request("b", 0);
    assert!(queue.events().is_empty());
    let third = queue.request("c", 0);
    assert_eq!(drops(&queue.events()), rejected(third));
    queue.request("c", 1);
    assert!(queue.events().is_empty());
    queue.cancel(1);
    queue.request("c", 0);
    assert!(queue.events().is_empty());
    assert_eq!(queue.waiting(), [1, 2, 0]);
}

#[test]
fn a_band_takes_no_more_bytes_than_it_may() {
    let mut queue = Queue::new(config());
    queue.offer(&body(0, 600));
    queue.offer(&body(0, 400));
    assert!(queue.events().is_empty());
    let third = queue.offer(&body(0, 1));
    assert_eq!(drops(&queue.events()), rejected(third));
    queue.offer(&body(0, 0));
    assert!(queue.events().is_empty());
}

#[test]
fn all_bands_together_take_no_more_than_they_may() {
    let mut queue = Queue::new(Config { max_bytes: Some(1_100), max_requests: Some(3), ..config() });
    queue.offer(&body(0, 1_000));
    let second = queue.offer(&body(1, 101));
    queue.offer(&body(1, 50));
    queue.offer(&body(-1, 50));
    let fifth = queue.offer(&body(1, 0));
    let full = [rejected(second), rejected(fifth)].concat();
    assert_eq!(drops(&queue.events()), full);
}

#[test]
fn without_endpoints_a_full_queue_is_no_endpoint() {
    let mut config = config();
    config.bands[0].1.max_requests = 0;
    let mut queue = Queue::new(config);
    queue.machine.capacity(1.0, false, queue.now);
    let ticket = queue.request("a", 0);
    assert_eq!(drops(&queue.events()), [(ticket, Outcome::RejectedNoEndpoints)]);
}

#[test]
fn the_rejection_is_known_before_the_body_arrives() {
    let mut queue = Queue::new(config());
    assert_eq!(queue.machine.refusal(0, 1_000), None);
    assert_eq!(queue.machine.refusal(0, 1_001), Some(Outcome::RejectedCapacity));
    queue.machine.capacity(1.0, false, queue.now);
    assert_eq!(queue.machine.refusal(0, u64::MAX), Some(Outcome::RejectedNoEndpoints));
    assert_eq!(queue.machine.turn_away(&body(0, 1_000), queue.now), None);
    assert_eq!(queue.machine.turn_away(&body(0, 1_001), queue.now), Some(Outcome::RejectedNoEndpoints));
    let rejected = queue.machine.bands().map(|band| band.ends[2].requests());
    assert_eq!(rejected.collect::<Vec<_>>(), [0, 1, 0], "one of them is counted");
}

#[test]
fn a_client_that_leaves_gets_no_event() {
    let mut config = config();
    config.bands[0].1.max_requests = 1;
    let mut queue = Queue::new(config);
    let waiting = queue.request("a", 0);
    let rejected = queue.request("a", 0);
    queue.cancel(waiting);
    queue.cancel(rejected);
    assert_eq!(queue.drain(), Vec::<u64>::new());
    assert!(queue.events().is_empty());
}

#[test]
fn ends_are_counted_by_band() {
    let mut config = config();
    config.bands[0].1.max_requests = 2;
    let mut queue = Queue::new(config);
    let tickets = [0; 3].map(|priority| queue.request("a", priority));
    queue.cancel(tickets[0]);
    queue.events();
    queue.drain();
    let bands: Vec<_> = queue.machine.bands().collect();
    let ends = |band: usize| bands[band].ends.map(|waits| waits.requests());
    assert_eq!([ends(0), ends(1), ends(2)], [[0; 6], [1, 1, 0, 0, 0, 1], [0; 6]]);
    assert_eq!((bands[1].requests, bands[1].bytes, bands[1].max_requests), (0, 0, 2));
}

#[test]
fn a_ticket_that_waits_already_is_ignored() {
    let mut machine = Machine::new(config());
    let now = core::time::Duration::from_secs(1);
    machine.offer(Ticket(7), &Arrival::default(), now);
    machine.offer(Ticket(7), &Arrival::default(), now);
    machine.capacity(0.0, true, now);
    assert!(matches!(machine.poll(now), Some(Event::Dispatch { .. })));
    assert_eq!(machine.poll(now), None);
}

#[test]
fn the_number_of_bands_is_bounded() {
    let config = Config { bands: vec![(5, default_band())], ..config() }.with_priorities(-10_000..10_000);
    assert_eq!(config.bands.len(), 256);
    let mut queue = Queue::new(config);
    queue.request("a", 9_999);
    assert_eq!(queue.drain(), [1]);
}

/// Whether requests of the priorities 1, 0 and -1 would wait.
fn would_wait(queue: &mut Queue) -> [bool; 3] {
    [1, 0, -1].map(|priority| queue.machine.would_wait(priority))
}

#[test]
fn a_request_would_wait_exactly_if_it_then_does() {
    let mut queue = Queue::new(config());
    for (saturation, has_endpoints) in [(0.0, true), (0.99, true), (1.0, true), (1.0, false)] {
        for priority in [1, 0, -1] {
            queue.machine.capacity(saturation, has_endpoints, queue.now);
            let would_wait = queue.machine.would_wait(priority);
            let ticket = queue.request("a", priority);
            let is_dispatched = dispatches(&queue.events()) == [ticket];
            assert_eq!(would_wait, !is_dispatched, "{saturation} {has_endpoints} {priority}");
            queue.cancel(ticket);
        }
    }
}

#[test]
fn a_request_would_wait_behind_those_of_its_own_and_of_higher_priorities() {
    let mut queue = Queue::new(config());
    queue.request("a", 0);
    queue.saturation(0.0);
    assert_eq!(would_wait(&mut queue), [false, true, true]);
    assert_eq!(would_wait(&mut queue), [false, true, true], "asking changes nothing");
    queue.events();
    assert_eq!(would_wait(&mut queue), [false; 3]);
}

#[test]
fn a_request_would_wait_for_the_ceiling_of_its_band() {
    let usage_limit = policy("priority-holdback-policy", r#"{"minCeiling": 0.5}"#).usage_limit.unwrap();
    let mut queue = Queue::new(Config { usage_limit, ..config() });
    // The ceilings are 1, 0.75 and 0.5.
    for (saturation, expected) in [(0.4, [false; 3]), (0.6, [false, false, true]), (0.8, [false, true, true])]
    {
        queue.saturation(saturation);
        assert_eq!(would_wait(&mut queue), expected, "{saturation}");
    }
}
