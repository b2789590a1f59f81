//! The queue agrees with the oracle, and keeps its promises, whatever happens.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use endpoint_picker::flow_control::{Arrival, BandConfig, Config, Event, Eviction, Machine, Ticket, Tokens};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
use proptest::test_runner::{
    Config as Cases, RngAlgorithm, TestCaseError, TestCaseResult, TestRng, TestRunner,
};
use proptest::{prop_assert, prop_assert_eq};

use crate::fixture::{config, policy};
use crate::oracle::{BandRules, GRACE, HALF_LIFE, Item, Limit, Oracle, Order, PROGRAM_TTL, Rules, Share};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

/// Tries `cases` inputs; `PROPERTY_SEED` at build time gives others than usual.
fn for_all<S: Strategy>(cases: u32, inputs: &S, holds: impl Fn(S::Value) -> TestCaseResult) {
    const SEED: u64 = 0x5eed_f10c;
    let seed = option_env!("PROPERTY_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
    let mut runner = TestRunner::new_with_rng(Cases::with_cases(cases), rng);
    runner.run(inputs, holds).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

/// Something that happens to a queue. Requests are named by their number modulo the number of those there are.
#[derive(Clone, Copy, Debug)]
enum Step {
    Offer {
        flow: u8,
        priority: i32,
        bytes: u64,
        received_ago: u64,
        slo: Option<u64>,
        deadline: Option<u64>,
    },
    Cancel(usize),
    Finish(usize, Option<(u64, u64)>),
    Capacity(f64, bool),
    /// In microseconds.
    Pass(u64),
    Poll(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offer = (
        0..5_u8,
        prop_oneof![Just(-3), Just(-1), Just(0), Just(0), Just(4), Just(9)],
        0..40_u64,
        0..3_000_u64,
        prop::option::of(0..3_000_u64),
        prop::option::of(0..20_000_u64),
    );
    let offer = offer.prop_map(|(flow, priority, bytes, received_ago, slo, deadline)| Step::Offer {
        flow,
        priority,
        bytes,
        received_ago,
        slo,
        deadline,
    });
    let saturation =
        prop_oneof![Just(0.0), Just(0.3), Just(0.55), Just(0.75), Just(0.9), Just(1.0), Just(1.7)];
    let pass = prop_oneof![4 => 0..2_500_u64, 2 => 0..50_000_u64, 1 => 0..15_000_000_u64];
    let tokens = prop::option::of((0..400_u64, 0..400_u64));
    let step = prop_oneof![
        6 => offer,
        1 => any::<usize>().prop_map(Step::Cancel),
        2 => (any::<usize>(), tokens).prop_map(|(number, tokens)| Step::Finish(number, tokens)),
        2 => (saturation, prop::bool::weighted(0.9)).prop_map(|(saturation, has)| Step::Capacity(saturation, has)),
        4 => pass.prop_map(Step::Pass),
        6 => (0..6_u8).prop_map(Step::Poll),
    ];
    prop::collection::vec(step, 1..120)
}

fn rules() -> impl Strategy<Value = Rules> {
    let order = prop_oneof![Just(Order::Fcfs), Just(Order::Edf), Just(Order::SloDeadline)];
    let share = prop_oneof![Just(Share::GlobalStrict), Just(Share::RoundRobin), Just(Share::ProgramAware)];
    let band = (1..8_u64, 20..200_u64, order, share);
    let bands = (band.clone(), prop::option::of(band.clone()), prop::option::of(band));
    let bands = bands.prop_map(|(zero, high, low)| {
        [(4, high), (0, Some(zero)), (-1, low)]
            .into_iter()
            .filter_map(|(priority, band)| {
                let (max_requests, max_bytes, order, share) = band?;
                Some(BandRules { priority, max_requests, max_bytes, order, share })
            })
            .collect()
    });
    let limit = prop_oneof![
        3 => Just(Limit::Static(1.0)),
        1 => Just(Limit::Static(0.6)),
        1 => Just(Limit::HoldbackByRank(0.4)),
        1 => Just(Limit::HoldbackByValue(0.5)),
        1 => Just(Limit::SoftReflective),
    ];
    let ttl = || prop::option::of((1..20_u64).prop_map(Duration::from_secs));
    let global = (prop::option::of(1..12_u64), prop::option::of(1..300_u64));
    (bands, global, ttl(), ttl(), limit, any::<bool>()).prop_map(
        |(bands, (max_requests, max_bytes), ttl, no_endpoint_ttl, limit, evicts)| Rules {
            bands,
            max_requests,
            max_bytes,
            ttl,
            no_endpoint_ttl,
            limit,
            evicts,
        },
    )
}

/// The rules as the queue is configured with them.
fn configured(rules: &Rules) -> Config {
    let limit = |type_name: &str, parameters: &str| policy(type_name, parameters).usage_limit.unwrap();
    Config {
        max_bytes: rules.max_bytes,
        max_requests: rules.max_requests,
        request_ttl: rules.ttl,
        no_endpoint_request_ttl: rules.no_endpoint_ttl,
        bands: rules.bands.iter().map(|rules| (rules.priority, band(rules))).collect(),
        usage_limit: match rules.limit {
            Limit::Static(threshold) => {
                limit("static-usage-limit-policy", &format!(r#"{{"threshold": {threshold}}}"#))
            }
            Limit::HoldbackByRank(min) => {
                limit("priority-holdback-policy", &format!(r#"{{"minCeiling": {min}}}"#))
            }
            Limit::HoldbackByValue(min) => limit(
                "priority-holdback-policy",
                &format!(r#"{{"minCeiling": {min}, "domain": "value", "shape": "linear"}}"#),
            ),
            Limit::SoftReflective => limit("soft-reflective-ceiling-policy", "{}"),
        },
        eviction: rules.evicts.then_some(Eviction { grace: GRACE }),
        ..config()
    }
}

fn band(rules: &BandRules) -> BandConfig {
    let ordering = match rules.order {
        Order::Fcfs => "fcfs-ordering-policy",
        Order::Edf => "edf-ordering-policy",
        Order::SloDeadline => "slo-deadline-ordering-policy",
    };
    let programs =
        format!(r#"{{"lasHalfLifeSeconds": {HALF_LIFE}, "evictionTtlSeconds": {}}}"#, PROGRAM_TTL.as_secs());
    let (fairness, parameters) = match rules.share {
        Share::GlobalStrict => ("global-strict-fairness-policy", "{}"),
        Share::RoundRobin => ("round-robin-fairness-policy", "{}"),
        Share::ProgramAware => ("program-aware-fairness", programs.as_str()),
    };
    BandConfig {
        max_bytes: rules.max_bytes,
        max_requests: rules.max_requests,
        ordering: policy(ordering, "{}").ordering.unwrap(),
        fairness_name: fairness.into(),
        fairness: policy(fairness, parameters).fairness.unwrap(),
    }
}

/// The queue, the oracle beside it, and what every request has experienced.
struct Run {
    machine: Machine,
    oracle: Oracle,
    rules: Rules,
    now: Duration,
    offered: u64,
    /// The ends of waits, by ticket.
    ends: BTreeMap<u64, &'static str>,
    in_flight: BTreeSet<u64>,
}

impl Run {
    fn new(rules: Rules) -> Self {
        Self {
            machine: Machine::new(configured(&rules)),
            oracle: Oracle::new(rules.clone()),
            rules,
            now: Duration::ZERO,
            offered: 0,
            ends: BTreeMap::new(),
            in_flight: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: Step) -> TestCaseResult {
        match step {
            Step::Offer { flow, priority, bytes, received_ago, slo, deadline } => {
                let item = Item {
                    ticket: self.offered,
                    flow: format!("flow-{flow}"),
                    priority,
                    bytes,
                    received: self.now.saturating_sub(Duration::from_millis(received_ago)),
                    slo: slo.map(Duration::from_millis),
                    deadline: deadline.map(|after| self.now + Duration::from_millis(after)),
                    enqueued: self.now,
                };
                self.offered += 1;
                let arrival = Arrival {
                    fairness_id: &item.flow,
                    priority,
                    bytes,
                    received: item.received,
                    ttft_slo: item.slo,
                    deadline: item.deadline,
                };
                self.machine.offer(Ticket(item.ticket), &arrival, self.now);
                self.oracle.offer(item);
            }
            Step::Cancel(number) if self.offered > 0 => {
                let ticket = number as u64 % self.offered;
                self.machine.cancel(Ticket(ticket), self.now);
                self.oracle.cancel(ticket);
                self.ends.entry(ticket).or_insert("cancelled");
            }
            Step::Finish(number, tokens) if !self.in_flight.is_empty() => {
                let ticket = *self.in_flight.iter().nth(number % self.in_flight.len()).unwrap();
                self.in_flight.remove(&ticket);
                let of = |(input, output)| Tokens { input, output };
                self.machine.finish(Ticket(ticket), tokens.map(of), self.now);
                self.oracle.finish(ticket, tokens);
            }
            Step::Cancel(_) | Step::Finish(..) => {}
            Step::Capacity(saturation, has_endpoints) => {
                self.machine.capacity(saturation, has_endpoints, self.now);
                self.oracle.capacity(saturation, has_endpoints);
            }
            Step::Pass(microseconds) => {
                self.now += Duration::from_micros(microseconds);
                self.oracle.now = self.now;
            }
            Step::Poll(times) => {
                for _ in 0..times {
                    self.poll()?;
                }
            }
        }
        self.check_levels()
    }

    fn poll(&mut self) -> Result<bool, TestCaseError> {
        let event = self.machine.poll(self.now);
        self.oracle.expect(event).map_err(TestCaseError::fail)?;
        let (ticket, end) = match event {
            None => return Ok(false),
            Some(Event::Evict { ticket }) => {
                prop_assert!(self.in_flight.contains(&ticket.0), "{ticket:?} is evicted but not in flight");
                return Ok(true);
            }
            Some(Event::Dispatch { ticket, .. }) => (ticket, "dispatched"),
            Some(Event::Reject { ticket, .. }) => (ticket, "rejected"),
            Some(Event::Expire { ticket, .. }) => (ticket, "expired"),
        };
        let earlier = self.ends.insert(ticket.0, end);
        prop_assert_eq!(earlier, None, "{:?} ends twice", ticket);
        if end == "dispatched" {
            self.in_flight.insert(ticket.0);
        }
        Ok(true)
    }

    /// The queue holds what the oracle holds, and never more than it may.
    fn check_levels(&self) -> TestCaseResult {
        let bands: Vec<_> = self.machine.bands().collect();
        let levels: Vec<_> = bands.iter().map(|band| (band.priority, band.requests, band.bytes)).collect();
        prop_assert_eq!(&levels, &self.oracle.levels());
        prop_assert_eq!(self.machine.in_flight(), self.oracle.in_flight());
        for band in &bands {
            prop_assert!(band.requests <= band.max_requests && band.bytes <= band.max_bytes, "{band:?}");
        }
        let requests: u64 = bands.iter().map(|band| band.requests).sum();
        let bytes: u64 = bands.iter().map(|band| band.bytes).sum();
        prop_assert!(self.rules.max_requests.is_none_or(|max| requests <= max));
        prop_assert!(self.rules.max_bytes.is_none_or(|max| bytes <= max));
        prop_assert_eq!(self.machine.wake_at().is_some(), requests > 0);
        Ok(())
    }

    /// Opens the pool until nothing waits, and ends all that is in flight.
    fn drain(&mut self) -> TestCaseResult {
        self.step(Step::Capacity(0.0, true))?;
        loop {
            while self.poll()? {}
            let Some(wake_at) = self.machine.wake_at() else { break };
            prop_assert!(wake_at > self.now, "{wake_at:?} is not after {:?}", self.now);
            self.now = wake_at;
            self.oracle.now = wake_at;
        }
        while !self.in_flight.is_empty() {
            self.step(Step::Finish(0, None))?;
        }
        self.check_levels()
    }
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
            order: Order::Fcfs,
            share: Share::RoundRobin,
        };
        let bands = vec![order];
        let (ttl, limit) = (None, Limit::Static(1.0));
        let rules = Rules {
            bands,
            max_requests: None,
            max_bytes: None,
            ttl,
            no_endpoint_ttl: ttl,
            limit,
            evicts: false,
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
