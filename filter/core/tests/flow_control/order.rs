//! The order of dispatch: bands, and the requests of a flow.

use core::time::Duration;

use endpoint_picker::flow_control::{Config, Event, Ticket};
use endpoint_picker::plugin::Arrival;

use crate::fixture::{Queue, config, config_of, dispatches, policy};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

const STRICT: &str = "global-strict-fairness-policy";

#[test]
fn an_arrival_is_dispatched_at_once_while_the_pool_has_capacity() {
    let mut queue = Queue::new(config());
    queue.saturation(0.99);
    let ticket = queue.request("a", 0);
    assert_eq!(queue.events(), [Event::Dispatch { ticket: Ticket(ticket), waited: Duration::ZERO }]);
    assert_eq!(queue.machine.wake_at(), None);
    assert_eq!(queue.machine.in_flight(), 1);
    queue.finish(ticket, 0, 0);
    assert_eq!(queue.machine.in_flight(), 0);
}

#[test]
fn higher_priorities_go_first_and_each_in_the_order_of_arrival() {
    let mut queue = Queue::new(config());
    for priority in [-1, 0, 1, 0, 1, -1] {
        queue.request("a", priority);
    }
    assert_eq!(queue.waiting(), [2, 2, 2]);
    assert!(queue.events().is_empty());
    assert_eq!(queue.drain(), [3, 5, 2, 4, 1, 6]);
}

#[test]
fn one_request_is_dispatched_for_each_arrival_and_each_millisecond() {
    let mut queue = Queue::new(config());
    for _ in 0..5 {
        queue.request("a", 0);
    }
    assert!(queue.events().is_empty());
    queue.saturation(0.5);
    queue.pass(1);
    assert_eq!(dispatches(&queue.events()), [1]);
    assert!(queue.events().is_empty());
    queue.request("a", 0);
    assert_eq!(dispatches(&queue.events()), [2]);
    // A caller that comes late does not catch up.
    queue.pass(7);
    assert_eq!(dispatches(&queue.events()), [3]);
    assert_eq!(queue.machine.wake_at(), Some(queue.now + Duration::from_millis(1)));
}

#[test]
fn a_priority_without_a_band_counts_as_0() {
    let mut queue = Queue::new(config());
    queue.request("a", -1);
    queue.request("a", 7);
    queue.request("a", -7);
    queue.request("a", 0);
    assert_eq!(queue.waiting(), [0, 3, 1]);
    assert_eq!(queue.drain(), [2, 3, 4, 1]);
}

#[test]
fn a_saturated_band_stops_the_lower_ones_even_if_nothing_waits_in_it() {
    // Ceilings 1, 0.75 and 0.5.
    let holdback = policy("priority-holdback-policy", r#"{"minCeiling": 0.5}"#).usage_limit.unwrap();
    let mut queue = Queue::new(Config { usage_limit: holdback, ..config() });
    queue.saturation(0.8);
    queue.request("a", 0);
    queue.request("a", -1);
    queue.request("a", 1);
    assert_eq!(dispatches(&queue.events()), [3]);
    queue.pass(1);
    queue.saturation(0.6);
    assert_eq!(dispatches(&queue.events()), [1]);
    queue.pass(1);
    assert!(queue.events().is_empty());
    queue.pass(1);
    queue.saturation(0.4);
    assert_eq!(dispatches(&queue.events()), [2]);
}

#[test]
fn lower_bands_go_on_in_a_part_of_the_cycles() {
    let soft = policy("soft-reflective-ceiling-policy", "{}").usage_limit.unwrap();
    let mut queue = Queue::new(Config { usage_limit: soft, ..config() });
    for _ in 0..4 {
        queue.request("a", -1);
    }
    queue.events();
    // 0.75 / 0.25: every third cycle.
    queue.saturation(0.75);
    let dispatched: Vec<usize> = (0..12)
        .map(|_| {
            queue.pass(1);
            dispatches(&queue.events()).len()
        })
        .collect();
    assert_eq!(dispatched, [0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1]);
}

#[test]
fn the_earliest_deadline_goes_first() {
    let mut queue = Queue::new(config_of("edf-ordering-policy", STRICT));
    let ends_in = |queue: &Queue, seconds| Some(queue.now + Duration::from_secs(seconds));
    // Ends with its time to live, after 60 s.
    queue.request("a", 0);
    let deadline = ends_in(&queue, 5);
    queue.offer(&Arrival { deadline, ..Arrival::default() });
    let deadline = ends_in(&queue, 100);
    queue.offer(&Arrival { deadline, fairness_id: "b", ..Arrival::default() });
    queue.pass(1);
    let deadline = ends_in(&queue, 3);
    queue.offer(&Arrival { deadline, ..Arrival::default() });
    assert_eq!(queue.drain(), [4, 2, 1, 3]);
}

#[test]
fn the_earliest_aim_for_the_first_token_goes_first() {
    let mut queue = Queue::new(config_of("slo-deadline-ordering-policy", STRICT));
    let aim = |received, slo: Option<u64>| Arrival {
        received: Duration::from_secs(received),
        ttft_slo: slo.map(Duration::from_millis),
        ..Arrival::default()
    };
    for arrival in
        [aim(99, None), aim(98, Some(3_000)), aim(97, Some(1_000)), aim(98, None), aim(99, Some(2_000))]
    {
        queue.offer(&arrival);
    }
    assert_eq!(queue.drain(), [3, 2, 5, 4, 1]);
}

#[test]
fn a_new_configuration_puts_waiting_requests_into_its_order() {
    let mut queue = Queue::new(config().with_priorities([9]));
    for (flow, priority) in [("a", 0), ("a", 0), ("b", 0), ("a", 9), ("a", 7)] {
        queue.request(flow, priority);
    }
    // Flows did not count until now.
    queue.machine.configure(config_of("fcfs-ordering-policy", "round-robin-fairness-policy"), queue.now);
    assert_eq!(queue.waiting(), [1, 0, 4, 0]);
    queue.request("b", 0);
    queue.request("e", 0);
    assert_eq!(queue.drain(), [4, 1, 3, 7, 2, 6, 5]);
    // The band that is not configured any more is gone with its last request.
    queue.machine.configure(config(), queue.now);
    assert_eq!(queue.waiting(), [0, 0, 0]);
}
