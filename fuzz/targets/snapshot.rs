//! Snapshots, from bytes to decisions: whatever the agent's response holds, requests go to endpoints of the
//! pool or get a response.
#![no_main]

use core::time::Duration;

use endpoint_picker::decision::{Decision, Outcome};
use endpoint_picker::headers::Headers;
use endpoint_picker::input::DecisionInput;
use endpoint_picker::period::Period;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::ChangedReadings;
use endpoint_picker_engine::ledger::{Change, LedgerStore, LocalLedger, changes_of};
use endpoint_picker_engine::pool_view::{PoolView, Topology, snapshot};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const NOW: Duration = Duration::from_secs(1_000);
const BODY: &str = r#"{"model": "llama", "prompt": "hello", "max_tokens": 5}"#;

fuzz_target!(|input: &[u8]| {
    let read = |older: &Arc<PoolView>| {
        snapshot::read(older, input.to_vec().into(), NOW, || Ok(input.to_vec())).ok().flatten()
    };
    let Some(pool_view) = read(&Arc::default()).map(Arc::new) else { return };
    let again = read(&pool_view).expect("the same bytes again are the same snapshot");
    assert!(again.readings().iter().map(without_time).eq(pool_view.readings().iter().map(without_time)));
    let Topology { pool, pipeline, shadow, policy } = &**pool_view.topology();
    let mut ledger = LocalLedger::default();
    ledger.adopt(Arc::clone(pool), pool_view.topology().pipelines(), policy.avoid_failing);
    ledger.observe(pool_view.readings(), ChangedReadings::All);
    let headers = [("x-session-id", "a"), ("x-llm-d-inference-objective", "batch")];
    let headers = headers.into_iter().collect();
    let headers = Headers(&headers);
    let mut rng = SplitMix64::new(1);
    for _ in 0..2 {
        let options = pipeline.body_options(headers);
        let body = Body::read(BODY, Api::Completions, &options).expect("a good body");
        let Ok(resolution) = policy.resolve(headers, body.model.as_deref(), &mut rng) else { return };
        let request = Request {
            model: resolution.model,
            prompt: Some(&body.prompt),
            max_output_tokens: body.max_output_tokens,
            stored: body.state.continues,
            headers,
            priority: resolution.priority,
            ..Request::default()
        };
        let avoided = [Period::new(NOW, Duration::MAX)];
        let view = DecisionInput { avoided: &avoided, ..ledger.ledger().input(pool_view.readings(), NOW) };
        is_sound(&pipeline.decide_without_body(&request, &view, NOW, &mut rng), pool);
        let mut decision = pipeline.decide(&request, &view, NOW, &mut rng);
        is_sound(&decision, pool);
        let shadow = shadow.as_ref().map(|shadow| {
            shadow.decide((pipeline, &decision), &request, &view, NOW, &mut SplitMix64::new(1))
        });
        let mut changes = changes_of(&mut decision, pool);
        if let Some(shadow) = shadow {
            is_sound(&shadow.decision, pool);
            assert!(shadow.agreement.agrees() || shadow.difference(pool).is_some());
            changes.extend(shadow.decision.records.changes.into_iter().map(Change::State));
        }
        ledger.apply(changes);
    }
});

fn without_time(reading: &Reading) -> Reading {
    Reading { updated: None, ..reading.clone() }
}

fn is_sound(decision: &Decision, pool: &Endpoints) {
    if let Outcome::Route(endpoints) = &decision.outcome {
        assert!(!endpoints.is_empty());
        assert!(endpoints.iter().all(|&endpoint| endpoint < pool.as_slice().len()));
    }
    for run in &decision.runs {
        assert!(run.totals.iter().all(|total| !total.is_nan()), "{run:?}");
    }
}
