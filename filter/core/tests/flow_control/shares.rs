//! The order of dispatch between flows.

use core::time::Duration;

use endpoint_picker::flow_control::BandConfig;

use crate::fixture::{Queue, band, config, config_of, policy};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

const FCFS: &str = "fcfs-ordering-policy";
const ROUND_ROBIN: &str = "round-robin-fairness-policy";

#[test]
fn round_robin_serves_the_flows_in_turn_by_their_ids() {
    let mut queue = Queue::new(config_of(FCFS, ROUND_ROBIN));
    for flow in ["c", "c", "c", "a", "a", "b"] {
        queue.request(flow, 0);
    }
    assert_eq!(queue.drain(), [4, 6, 1, 5, 2, 3]);
}

#[test]
fn round_robin_goes_on_after_the_flow_served_last() {
    let mut queue = Queue::new(config_of(FCFS, ROUND_ROBIN));
    for flow in ["a", "b", "b"] {
        queue.request(flow, 0);
    }
    queue.events();
    queue.saturation(0.0);
    queue.pass(1);
    assert_eq!(queue.events().len(), 1);
    queue.request("a", 0);
    assert_eq!(queue.drain(), [2, 4, 3]);
    queue.request("a", 0);
    assert_eq!(queue.drain(), [5]);
    // In this cycle nothing waits, so the next turn begins with the first flow.
    queue.pass(1);
    assert!(queue.events().is_empty());
    queue.saturation(1.0);
    queue.request("b", 0);
    queue.request("a", 0);
    assert_eq!(queue.drain(), [7, 6]);
}

#[test]
fn a_flow_with_many_requests_does_not_delay_others() {
    let mut queue = Queue::new(config_of(FCFS, ROUND_ROBIN));
    for _ in 0..90 {
        queue.request("greedy", 0);
    }
    let modest = queue.request("modest", 0);
    assert_eq!(queue.drain().iter().position(|ticket| *ticket == modest), Some(1));
}

#[test]
fn with_global_strict_fairness_flows_do_not_count() {
    let mut queue = Queue::new(config());
    for flow in ["b", "a", "b", "a"] {
        queue.request(flow, 0);
    }
    assert_eq!(queue.drain(), [1, 2, 3, 4]);
}

fn program_aware() -> Queue {
    Queue::new(config_of(FCFS, "program-aware-fairness"))
}

/// Has a request of a program served with this many tokens of a prompt.
fn serve(queue: &mut Queue, program: &str, tokens: u64) {
    let ticket = queue.request(program, 0);
    assert_eq!(queue.drain(), [ticket]);
    queue.finish(ticket, tokens, 0);
    queue.saturation(1.0);
}

#[test]
fn the_program_that_was_served_least_goes_first() {
    let mut queue = program_aware();
    serve(&mut queue, "much", 1_000);
    serve(&mut queue, "little", 10);
    queue.request("much", 0);
    queue.pass(5_000);
    let little = queue.request("little", 0);
    let new = queue.request("new", 0);
    assert_eq!(queue.drain(), [new, little, 3]);
}

#[test]
fn among_programs_served_alike_the_longest_wait_goes_first() {
    let mut queue = program_aware();
    let tickets = ["b", "c", "a"].map(|program| {
        queue.pass(10);
        queue.request(program, 0)
    });
    assert_eq!(queue.drain(), tickets);
}

#[test]
fn service_counts_while_a_program_waits() {
    let mut queue = program_aware();
    let first = queue.request("a", 0);
    assert_eq!(queue.drain(), [first]);
    queue.saturation(1.0);
    queue.request("a", 0);
    queue.pass(10);
    queue.request("b", 0);
    queue.finish(first, 0, 500);
    assert_eq!(queue.drain(), [3, 2]);
}

#[test]
fn service_is_forgotten_while_a_program_is_idle() {
    let mut queue = program_aware();
    serve(&mut queue, "a", 1_000);
    // Ten half-lives: less than one token of 1 000 is left.
    queue.pass(600_000);
    serve(&mut queue, "b", 2);
    queue.request("b", 0);
    queue.request("a", 0);
    assert_eq!(queue.drain(), [4, 3]);
}

#[test]
fn bands_of_one_policy_share_what_programs_were_served() {
    let weights = r#"{"lasWeightHeadWait": 0}"#;
    let fairness = policy("program-aware-fairness", weights).fairness.unwrap();
    let shared = BandConfig { fairness, ..band(FCFS, "program-aware-fairness") };
    let mut config = config();
    config.bands = [1, 0].map(|priority| (priority, shared.clone())).to_vec();
    let mut queue = Queue::new(config);
    let high = queue.request("a", 1);
    assert_eq!(queue.drain(), [high]);
    queue.finish(high, 10, 0);
    queue.saturation(1.0);
    queue.request("a", 0);
    queue.request("b", 0);
    assert_eq!(queue.drain(), [3, 2]);
}

/// A queue that gives turns, with these further parameters.
fn turns(parameters: &str) -> Queue {
    let parameters = format!(r#"{{"strategy": "turn-priority"{parameters}}}"#);
    let fairness = policy("program-aware-fairness", &parameters).fairness.unwrap();
    let band = BandConfig { fairness, ..band(FCFS, "program-aware-fairness") };
    let mut config = config();
    config.bands = [0, 1].map(|priority| (priority, band.clone())).to_vec();
    Queue::new(config)
}

/// Compares with the facts of #2116, as the next three tests do: the EPP v0.11 itself was not run.
#[test]
fn the_program_with_the_most_dispatched_requests_goes_first() {
    let mut queue = turns("");
    for _ in 0..2 {
        serve(&mut queue, "far", 1);
    }
    serve(&mut queue, "near", 100_000);
    let new = queue.request("new", 0);
    let near = queue.request("near", 0);
    let far = queue.request("far", 0);
    assert_eq!(queue.drain(), [far, near, new]);
}

#[test]
fn twenty_seconds_of_waiting_count_as_a_turn() {
    // Whether the program with turn 2 goes before the one with turn 1, which waits longer by this time.
    let is_far_first = |parameters: &str, wait: u64| {
        let mut queue = turns(parameters);
        serve(&mut queue, "far", 1);
        queue.request("new", 0);
        queue.pass(wait);
        let far = queue.request("far", 0);
        queue.drain().first() == Some(&far)
    };
    assert!(is_far_first("", 19_000));
    assert!(!is_far_first("", 21_000));
    assert!(is_far_first(r#", "turnPriorityTimeWeight": 0"#, 50_000), "turns alone");
}

#[test]
fn a_program_without_a_response_for_long_begins_anew() {
    let is_far_first = |parameters: &str, idle: u64| {
        let mut queue = turns(parameters);
        serve(&mut queue, "far", 1);
        queue.pass(idle);
        queue.request("new", 0);
        queue.pass(1);
        let far = queue.request("far", 0);
        queue.drain().first() == Some(&far)
    };
    assert!(is_far_first("", 119_000));
    assert!(!is_far_first("", 121_000));
    assert!(is_far_first(r#", "turnPriorityInactivitySeconds": 0"#, 1_000_000), "never");
    let forgotten = r#", "turnPriorityInactivitySeconds": 0, "evictionTtlSeconds": 60"#;
    assert!(!is_far_first(forgotten, 61_000));
}

#[test]
fn a_program_with_a_request_in_flight_keeps_its_turn() {
    let mut queue = turns(r#", "turnPriorityTimeWeight": 0"#);
    let running = queue.request("far", 0);
    assert_eq!(queue.drain(), [running]);
    queue.saturation(1.0);
    queue.pass(600_000);
    let new = queue.request("new", 0);
    let far = queue.request("far", 0);
    assert_eq!(queue.drain(), [far, new]);
}

#[test]
fn more_programs_than_are_compared_go_on_too() {
    let mut config = config_of(FCFS, "program-aware-fairness");
    config.bands.iter_mut().for_each(|(_, band)| band.max_requests = 1_000);
    let mut queue = Queue::new(config);
    let tickets: Vec<u64> = (0..1_000)
        .map(|program| {
            queue.now += Duration::from_micros(10);
            queue.request(&format!("program-{program}"), 0)
        })
        .collect();
    assert_eq!(queue.drain(), tickets);
}
