//! Whole decisions of the default pipeline, with the EPP's published cases where it has them.

#![allow(clippy::unwrap_used, reason = "a test")]

mod explanations;
mod hints;
mod outages;
mod stored;

use core::num::NonZeroUsize;
use core::time::Duration;

use endpoint_picker::config::PickerConfig;
use endpoint_picker::decision::rejection::DroppedReason;
use endpoint_picker::decision::{Decision, Outcome};
use endpoint_picker::input::DecisionInput;
use endpoint_picker::period::Period;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::plugin::{MaxScorePicker, QueueScorer};
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body, Options};
use endpoint_picker::request::subset::Subset;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::PluginStates;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) use wasm_bindgen_test::wasm_bindgen_test as test;

const NOW: Duration = Duration::from_secs(1_000);

/// A pool of endpoints 192.168.1.1:8000, .2, … with fresh readings of (waiting, KV usage).
struct Fixture {
    pipeline: Pipeline,
    pool: Endpoints,
    readings: Vec<Reading>,
    avoided: Vec<Period>,
    states: PluginStates,
    rng: SplitMix64,
    now: Duration,
}

impl Fixture {
    fn new(loads: &[(u64, f64)]) -> Self {
        let endpoints = (1..=loads.len()).map(|n| {
            let address = ([192, 168, 1, u8::try_from(n).unwrap()], 8000).into();
            Endpoint::new(format!("default/pod-{n}"), address, vec![])
        });
        let readings = loads.iter().map(|&(waiting, kv_usage)| Reading {
            ready: true,
            updated: Some(NOW),
            waiting: Some(waiting),
            kv_usage: Some(kv_usage),
            ..Reading::default()
        });
        let pipeline = Pipeline::default();
        let mut states = PluginStates::default();
        states.adopt(pipeline.initial_states());
        Self {
            states,
            pipeline,
            pool: Endpoints::new("default".to_owned(), endpoints.collect()).unwrap(),
            readings: readings.collect(),
            avoided: vec![],
            rng: SplitMix64::new(1),
            now: NOW,
        }
    }

    fn input(&self) -> DecisionInput<'_> {
        DecisionInput {
            pool: &self.pool,
            readings: &self.readings,
            readings_arrived: NOW,
            in_flight: &[],
            deferred: &[],
            avoided: &self.avoided,
            states: &self.states,
            precomputed: None,
        }
    }

    fn decide(&mut self, request: &Request<'_>) -> Decision {
        let mut rng = self.rng.clone();
        let decision = self.pipeline.decide(request, &self.input(), self.now, &mut rng);
        self.rng = rng;
        for change in &decision.records.changes {
            self.states.apply(change, &self.pool);
        }
        decision
    }

    /// Decides for a completions prompt.
    fn complete(&mut self, prompt: &str) -> Decision {
        let json = serde_json::json!({"model": "m", "prompt": prompt}).to_string();
        let body = Body::read(&json, Api::Completions, &Options::default()).unwrap();
        self.decide(&Request { model: "m", prompt: Some(&body.prompt), ..Request::default() })
    }

    /// Sends a completions prompt. Returns the endpoints that it was routed to.
    fn send(&mut self, prompt: &str) -> Vec<usize> {
        match self.complete(prompt).outcome {
            Outcome::Route(endpoints) => endpoints.to_vec(),
            other => panic!("{other:?}"),
        }
    }
}

fn subset(addresses: &[&str]) -> Request<'static> {
    Request { subset: Subset::from_items(addresses.iter().copied()), ..Request::default() }
}

fn rejection(decision: Decision) -> (u16, Option<DroppedReason>) {
    match decision.outcome {
        Outcome::Reject(rejection) => (rejection.code.status(), rejection.reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_lower_queue_and_cache_wins() {
    assert_eq!(Fixture::new(&[(3, 0.2), (0, 0.1), (10, 0.2)]).send("x"), [1]);
}

#[test]
fn queue_and_cache_weigh_two_each() {
    let mut fixture = Fixture::new(&[(3, 0.2), (0, 0.1)]);
    let decision = fixture.decide(&Request::default());
    let totals = &decision.primary_run().unwrap().totals;
    assert!((totals[0] - 1.6).abs() < 1e-9 && (totals[1] - 3.8).abs() < 1e-9, "{totals:?}");
}

#[test]
fn a_full_prefix_outweighs_the_whole_queue_term() {
    let mut fixture = Fixture::new(&[(3, 0.2), (3, 0.2)]);
    let prompt = "the same long prompt ".repeat(50);
    let first = fixture.send(&prompt);
    let other = 1 - first[0];
    fixture.readings[other].waiting = Some(0);
    fixture.readings[other].kv_usage = Some(0.1);
    assert_eq!(fixture.send(&prompt), first, "1.6 + 3 beats 3.8");
    assert_eq!(fixture.send("something else entirely"), [other]);
}

#[test]
fn blocks_that_were_sent_a_moment_ago_are_not_recorded_again() {
    let mut fixture = Fixture::new(&[(0, 0.0)]);
    let recorded_blocks = |fixture: &mut Fixture, blocks: usize| -> Vec<usize> {
        let changes = fixture.complete(&"x".repeat(256 * blocks)).records.changes;
        // The first word is the capacity.
        changes.iter().map(|change| change.words.len() - 1).collect()
    };
    assert_eq!(recorded_blocks(&mut fixture, 4), [4]);
    assert_eq!(recorded_blocks(&mut fixture, 4), [0; 0], "nothing is new");
    assert_eq!(recorded_blocks(&mut fixture, 6), [2], "a conversation goes on");
    fixture.states.resend();
    assert_eq!(recorded_blocks(&mut fixture, 6), [6], "a replica may have missed them");
    assert_eq!(recorded_blocks(&mut fixture, 6), [0; 0]);
}

#[test]
fn an_endpoint_that_is_not_ready_is_not_a_candidate() {
    let mut fixture = Fixture::new(&[(9, 0.9), (0, 0.1)]);
    fixture.readings[1].ready = false;
    assert_eq!(fixture.send("x"), [0]);
    fixture.readings[0].ready = false;
    assert_eq!(rejection(fixture.decide(&Request::default())), (503, Some(DroppedReason::NoEndpoints)));
}

#[test]
fn only_a_request_of_negative_priority_is_shed() {
    let mut fixture = Fixture::new(&[(10, 0.95), (10, 0.95)]);
    let of_priority = |priority| Request { priority, ..Request::default() };
    assert!(matches!(fixture.decide(&of_priority(0)).outcome, Outcome::Route(_)));
    assert_eq!(rejection(fixture.decide(&of_priority(-1))), (429, None));
    fixture.readings[0].waiting = Some(0);
    fixture.readings[1].waiting = Some(0);
    for reading in &mut fixture.readings {
        reading.kv_usage = Some(0.1);
    }
    assert!(matches!(fixture.decide(&of_priority(-1)).outcome, Outcome::Route(_)));
}

#[test]
fn a_sheddable_request_without_a_candidate_is_503_and_not_429() {
    let mut fixture = Fixture::new(&[(0, 0.0), (0, 0.0)]);
    let no_endpoints = (503, Some(DroppedReason::NoEndpoints));
    for hint in [&["192.168.1.99:8000"][..], &[]] {
        let decision = fixture.decide(&Request { priority: -1, ..subset(hint) });
        assert_eq!(rejection(decision), no_endpoints, "{hint:?}");
    }
    for reading in &mut fixture.readings {
        reading.ready = false;
    }
    let decision = fixture.decide(&Request { priority: -1, ..Request::default() });
    assert_eq!(rejection(decision), no_endpoints, "no endpoint is ready");
}

#[test]
fn a_longer_list_is_ordered_best_first() {
    let mut fixture = Fixture::new(&[(3, 0.2), (0, 0.1), (10, 0.2)]);
    let picker = MaxScorePicker::of(NonZeroUsize::new(3).unwrap());
    let plugins = vec![Instance::unnamed(QueueScorer {}), Instance::unnamed(picker)];
    fixture.pipeline = Pipeline::compile(PickerConfig { plugins, ..PickerConfig::default() }).unwrap();
    assert_eq!(fixture.send("x"), [1, 0, 2]);
}

#[test]
fn without_a_body_any_candidate_may_be_picked() {
    let mut fixture = Fixture::new(&[(0, 0.0), (50, 0.9), (0, 0.0)]);
    fixture.readings[2].ready = false;
    let mut seen = [0; 3];
    for _ in 0..200 {
        let decision = fixture.pipeline.decide_without_body(
            &Request::default(),
            &fixture.input(),
            NOW,
            &mut fixture.rng.clone(),
        );
        fixture.rng = SplitMix64::new(seen.iter().sum::<u64>() + 2);
        seen[decision.destination().unwrap()] += 1;
    }
    assert!(seen[0] > 50 && seen[1] > 50 && seen[2] == 0, "{seen:?}");
    let nothing =
        fixture.pipeline.decide_without_body(&subset(&[]), &fixture.input(), NOW, &mut fixture.rng.clone());
    assert_eq!(rejection(nothing), (503, Some(DroppedReason::NoEndpoints)));
}
