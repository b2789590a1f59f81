//! The memory of many waiting requests, without their bodies.

#![cfg(not(target_family = "wasm"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use core::time::Duration;
use std::sync::Mutex;

use endpoint_picker::flow_control::{BandConfig, Config, Machine, Ticket};
use endpoint_picker::plugin::Arrival;
use endpoint_picker::plugin::registry::read_plugin;
use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// The counter is one for the process, so tests run in turn.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const REQUESTS: u64 = 100_000;
const MOST: usize = 32 << 20;

fn machine(fairness: &str) -> Machine {
    let roles = |type_name| read_plugin(type_name, "{}").unwrap().roles();
    let band = BandConfig {
        max_bytes: u64::MAX,
        max_requests: u64::MAX,
        request_ttl: Some(Duration::from_secs(60)),
        ordering: roles("slo-deadline-ordering-policy").ordering.unwrap(),
        fairness_name: fairness.into(),
        fairness: roles(fairness).fairness.unwrap(),
    };
    Machine::new(Config {
        max_bytes: None,
        max_requests: None,
        no_endpoint_request_ttl: None,
        bands: Vec::new(),
        default_band: band.clone(),
        default_negative_band: band,
        usage_limit: roles("static-usage-limit-policy").usage_limit.unwrap(),
        service_decays_in_use: false,
        eviction: None,
    })
}

/// The peak of the memory while requests of this many flows begin to wait.
fn peak(fairness: &str, flows: u64) -> usize {
    let _turn = ONE_AT_A_TIME.lock().unwrap();
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let mut machine = machine(fairness);
    for number in 0..REQUESTS {
        let fairness_id = format!("00000000-0000-4000-8000-{:012x}", number % flows);
        let received = Duration::from_micros(number);
        let arrival = Arrival { fairness_id: &fairness_id, bytes: 1_000, received, ..Arrival::default() };
        machine.offer(Ticket(number), &arrival, received);
        assert_eq!(machine.poll(received), None);
    }
    assert_eq!(machine.bands().map(|band| band.requests).sum::<u64>(), REQUESTS);
    let peak = MEMORY.peak_usage() - before;
    println!("{fairness}, {flows} flows: {} KiB", peak >> 10);
    peak
}

#[test]
fn a_hundred_thousand_requests_wait_in_32_mib() {
    for fairness in ["global-strict-fairness-policy", "round-robin-fairness-policy", "program-aware-fairness"]
    {
        assert!(peak(fairness, 1_000) <= MOST, "{fairness}");
    }
}

#[test]
fn even_if_each_is_of_a_flow_of_its_own() {
    for fairness in ["global-strict-fairness-policy", "round-robin-fairness-policy"] {
        assert!(peak(fairness, REQUESTS) <= MOST, "{fairness}");
    }
}
