//! The queue agrees with the oracle, and keeps its promises, whatever happens.

use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker::flow_control::{Event, Machine, Ticket};
use endpoint_picker::plugin::Arrival;
use proptest::prelude::{Strategy, prop};
use proptest::test_runner::{Config as Cases, RngAlgorithm, TestCaseResult, TestRng, TestRunner};
use proptest::{prop_assert, prop_assert_eq};

use crate::inputs::{configured, rules, steps};
use crate::oracle::{BandRules, Limit, Order, Rules, Share};
use crate::run::Run;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

/// Tries `cases` inputs; `PROPERTY_SEED` at build time gives others than usual.
pub(crate) fn for_all<S: Strategy>(cases: u32, inputs: &S, holds: impl Fn(S::Value) -> TestCaseResult) {
    const SEED: u64 = 0x5eed_f10c;
    let seed = option_env!("PROPERTY_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
    let mut runner = TestRunner::new_with_rng(Cases::with_cases(cases), rng);
    runner.run(inputs, holds).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

#[test]
fn the_queue_agrees_with_the_oracle_and_every_ticket_ends_once() {
    for_all(500, &(rules(), steps()), |(rules, steps)| {
        let mut run = Run::new(rules);
        for step in steps {
            run.step(step)?;
        }
        run.drain()?;
        prop_assert_eq!(run.ends.len() as u64, run.offered);
        prop_assert_eq!(run.machine.in_flight(), 0);
        Ok(())
    });
}

#[test]
fn in_turn_no_flow_waits_longer_than_all_others_once() {
    let arrivals = prop::collection::vec(0..12_u8, 1..80);
    for_all(300, &arrivals, |arrivals| {
        let order = BandRules {
            priority: 0,
            max_requests: 100,
            max_bytes: 1_000,
            ttl: None,
            order: Order::Fcfs,
            share: Share::RoundRobin,
        };
        let bands = vec![order];
        let rules = Rules {
            bands,
            max_requests: None,
            max_bytes: None,
            no_endpoint_ttl: None,
            limit: Limit::Static(1.0),
            evicts: false,
            decays_in_use: false,
        };
        let mut machine = Machine::new(configured(&rules));
        let mut now = Duration::from_secs(1);
        machine.capacity(1.0, true, now);
        let mut waiting: BTreeMap<u8, usize> = BTreeMap::new();
        for (ticket, &flow) in (0..).zip(&arrivals) {
            *waiting.entry(flow).or_default() += 1;
            machine.offer(
                Ticket(ticket),
                &Arrival { fairness_id: &format!("{flow:03}"), ..Arrival::default() },
                now,
            );
        }
        prop_assert_eq!(machine.poll(now), None);
        machine.capacity(0.0, true, now);
        // How many others have been served since each flow was, or since the beginning.
        let mut passed_over: BTreeMap<u8, usize> = waiting.keys().map(|flow| (*flow, 0)).collect();
        let flows = waiting.len();
        while let Some(wake_at) = machine.wake_at() {
            now = now.max(wake_at);
            let Some(Event::Dispatch { ticket, .. }) = machine.poll(now) else { continue };
            let served = arrivals[usize::try_from(ticket.0).unwrap()];
            *waiting.get_mut(&served).unwrap() -= 1;
            for (flow, count) in &mut passed_over {
                *count = if *flow == served { 0 } else { *count + 1 };
                prop_assert!(
                    waiting[flow] == 0 || *count < flows,
                    "flow {flow} was passed over {count} times"
                );
            }
        }
        prop_assert!(waiting.values().all(|left| *left == 0));
        Ok(())
    });
}
