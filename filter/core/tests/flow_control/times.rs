//! Ends of waits by time.

use core::time::Duration;

use endpoint_picker::flow_control::{Config, Event, Outcome, Ticket};
use endpoint_picker::plugin::Arrival;

use crate::fixture::{Queue, config, drops};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

#[test]
fn a_request_waits_for_its_time_to_live() {
    let mut queue = Queue::new(config());
    let first = queue.request("a", 0);
    queue.pass(1_000);
    let second = queue.request("a", 1);
    queue.pass(58_999);
    assert!(queue.events().is_empty());
    queue.pass(1);
    let waited = Duration::from_secs(60);
    let (ticket, outcome) = (Ticket(first), Outcome::EvictedTtl);
    assert_eq!(queue.events(), [Event::Expire { ticket, outcome, waited }]);
    queue.pass(1_000);
    assert_eq!(drops(&queue.events()), [(second, Outcome::EvictedTtl)]);
    assert_eq!(queue.machine.wake_at(), None);
}

#[test]
fn a_pool_without_endpoints_has_a_time_to_live_of_its_own() {
    let no_endpoint_request_ttl = Some(Duration::from_secs(300));
    let mut queue = Queue::new(Config { no_endpoint_request_ttl, ..config() });
    queue.machine.capacity(1.0, false, queue.now);
    let ticket = queue.request("a", 0);
    queue.pass(299_999);
    assert!(queue.events().is_empty());
    queue.pass(1);
    assert_eq!(drops(&queue.events()), [(ticket, Outcome::EvictedNoEndpoints)]);
}

#[test]
fn the_time_begins_again_when_the_pool_gets_or_loses_its_endpoints() {
    let mut queue = Queue::new(config());
    let ticket = queue.request("a", 0);
    queue.pass(59_000);
    queue.machine.capacity(1.0, false, queue.now);
    queue.pass(59_000);
    assert!(queue.events().is_empty());
    queue.machine.capacity(1.0, true, queue.now);
    // Another reading of the same kind begins nothing.
    queue.pass(30_000);
    queue.machine.capacity(1.2, true, queue.now);
    queue.pass(29_999);
    assert!(queue.events().is_empty());
    queue.pass(1);
    assert_eq!(drops(&queue.events()), [(ticket, Outcome::EvictedTtl)]);
}

#[test]
fn without_a_time_to_live_requests_wait_without_end() {
    let mut config = Config { no_endpoint_request_ttl: None, ..config() };
    config.bands.iter_mut().for_each(|(_, band)| band.request_ttl = None);
    let mut queue = Queue::new(config);
    let ticket = queue.request("a", 0);
    queue.pass(10_000_000_000);
    assert!(queue.events().is_empty());
    assert_eq!(queue.drain(), [ticket]);
}

#[test]
fn a_band_has_a_time_to_live_of_its_own_while_the_pool_has_endpoints() {
    let mut config = config();
    for (priority, band) in &mut config.bands {
        match priority {
            1 => band.request_ttl = Some(Duration::from_secs(5)),
            -1 => band.request_ttl = None,
            _ => {}
        }
    }
    let mut queue = Queue::new(config);
    let endless = queue.request("a", -1);
    let common = queue.request("a", 0);
    queue.pass(10_000);
    let short = queue.request("a", 1);
    queue.pass(4_999);
    assert!(queue.events().is_empty());
    queue.pass(1);
    assert_eq!(drops(&queue.events()), [(short, Outcome::EvictedTtl)], "a younger request ends first");
    queue.pass(45_000);
    assert_eq!(drops(&queue.events()), [(common, Outcome::EvictedTtl)]);
    // Without endpoints all bands have one time to live.
    queue.machine.capacity(1.0, false, queue.now);
    queue.pass(60_000);
    assert_eq!(drops(&queue.events()), [(endless, Outcome::EvictedNoEndpoints)]);
}

#[test]
fn a_request_does_not_outlive_its_stream() {
    let mut queue = Queue::new(config());
    let deadline = Some(queue.now + Duration::from_secs(5));
    queue.request("a", 0);
    let ticket = queue.offer(&Arrival { deadline, ..Arrival::default() });
    queue.pass(4_999);
    assert!(queue.events().is_empty());
    queue.pass(1);
    assert_eq!(drops(&queue.events()), [(ticket, Outcome::EvictedTtl)]);
    assert_eq!(queue.drain(), [1]);
}

#[test]
fn time_does_not_go_back() {
    let mut queue = Queue::new(config());
    queue.request("a", 0);
    let later = queue.now + Duration::from_secs(59);
    assert_eq!(queue.machine.poll(later), None);
    let second = queue.request("a", 0);
    assert_eq!(second, 2);
    queue.now = later + Duration::from_secs(1);
    assert_eq!(drops(&queue.events()), [(1, Outcome::EvictedTtl)]);
}
