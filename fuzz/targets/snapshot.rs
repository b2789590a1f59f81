//! Snapshots, from bytes to decisions: whatever the agent's answer holds, requests go to endpoints of the pool or are answered.
#![no_main]

use core::time::Duration;

use endpoint_picker::body::{Api, Body};
use endpoint_picker::cycle::{Headers, Request, View};
use endpoint_picker::decision::{Decision, Outcome};
use endpoint_picker::period::Period;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Pool;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::shadow::Shadow;
use endpoint_picker_wire::{
    decode, pipeline_into_core, policy_into_core, reading_into_core, shadow_into_core, topology_into_core,
};
use libfuzzer_sys::fuzz_target;

const NOW: Duration = Duration::from_secs(1_000);
const BODY: &str = r#"{"model": "llama", "prompt": "hello", "max_tokens": 5}"#;

fuzz_target!(|input: &[u8]| {
    let Ok(snapshot) = decode(input) else { return };
    let Some(mut topology) = snapshot.topology else { return };
    let mut policy = topology.policy.take().unwrap_or_default();
    let Ok(pool) = topology_into_core(topology) else { return };
    let Ok(pipeline) = pipeline_into_core(&mut policy) else { return };
    let shadow = shadow_into_core(&mut policy, &pipeline).ok().flatten();
    let policy = policy_into_core(policy);
    let readings: Vec<_> =
        snapshot.readings.into_iter().map(|reading| reading_into_core(reading, NOW)).collect();
    let mut states = pipeline.new_states();
    let pipelines = [&pipeline].into_iter().chain(shadow.as_ref().map(Shadow::pipeline));
    states.adopt(pipelines.flat_map(Pipeline::initial_states));
    let headers = [("x-session-id", "a"), ("x-llm-d-inference-objective", "batch")]
        .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
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
            headers,
            priority: resolution.priority,
            ..Request::default()
        };
        let view = View {
            pool: &pool,
            readings: &readings,
            readings_arrived: NOW,
            in_flight: &[],
            avoided: &[Period::new(NOW, Duration::MAX)],
            states: &states,
        };
        is_sound(&pipeline.decide_without_body(&request, &view, NOW, &mut rng), &pool);
        let decision = pipeline.decide(&request, &view, NOW, &mut rng);
        is_sound(&decision, &pool);
        let mut events = decision.events.clone();
        if let Some(shadow) = &shadow {
            let opinion =
                shadow.decide((&pipeline, &decision), &request, &view, NOW, &mut SplitMix64::new(1));
            is_sound(&opinion.decision, &pool);
            assert!(opinion.agrees || opinion.difference(&pool).is_some());
            events.extend(opinion.decision.events);
        }
        for event in events {
            states.apply(&event);
        }
    }
});

fn is_sound(decision: &Decision, pool: &Pool) {
    if let Outcome::Route(endpoints) = &decision.outcome {
        assert!(!endpoints.is_empty());
        assert!(endpoints.iter().all(|&endpoint| endpoint < pool.endpoints().len()));
    }
    for run in &decision.runs {
        assert!(run.totals.iter().all(|total| !total.is_nan()), "{run:?}");
    }
}
