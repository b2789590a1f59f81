//! Decisions: with the body already read, and from the body's bytes to the ledger with the changes that
//! follow.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use core::hint::black_box;
use core::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use endpoint_picker::config::{PickerConfig, ProfileConfig, ProfilePlugin};
use endpoint_picker::decision::Decision;
use endpoint_picker::decision::shadow::ShadowDecision;
use endpoint_picker::input::DecisionInput;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pipeline::shadow::Shadow;
use endpoint_picker::plugin::registry::{AnyPlugin, read_plugin};
use endpoint_picker::plugin::{
    ExpectedLatencyScorer, Instance, KvCacheUtilizationScorer, NoHitLruScorer, PrefixCacheScorer, QueueScorer,
};
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body, Options};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker::state::ChangedReadings;
use endpoint_picker_engine::ledger::{Change, LedgerStore, LocalLedger, changes_of};
use endpoint_picker_engine::testing::pool;
use std::sync::Arc;

const NOW: Duration = Duration::from_secs(1_000);

/// Prompts sent before the measurement.
const PROMPTS: usize = 2_000;

/// A pool under load whose prefix index holds [`PROMPTS`] prompts.
struct Fixture {
    pipeline: Pipeline,
    readings: Vec<Reading>,
    ledger: LocalLedger,
    rng: SplitMix64,
}

impl Fixture {
    fn new(pipeline: Pipeline, endpoints: u16, prompt_bytes: usize) -> Self {
        let mut rng = SplitMix64::new(7);
        let readings = (0..endpoints).map(|_| Reading {
            ready: true,
            updated: Some(NOW),
            waiting: Some(rng.below(8) as u64),
            running: Some(rng.below(64) as u64),
            kv_usage: Some(rng.unit()),
            block_size: Some(16),
            num_blocks: Some(8_192),
            ..Reading::default()
        });
        let readings: Vec<Reading> = readings.collect();
        let pool = pool("default", 0..endpoints);
        let load = Load { requests: 3, tokens: 2_000 };
        let loads: Vec<_> = pool.as_slice().iter().map(|endpoint| (endpoint.key(), load)).collect();
        let mut ledger = LocalLedger::default();
        ledger.adopt(pool, [&pipeline], Duration::ZERO);
        ledger.set_loads(loads);
        ledger.observe(&readings, ChangedReadings::All);
        let mut fixture = Self { pipeline, readings, ledger, rng: SplitMix64::new(7) };
        for json in prompts(prompt_bytes) {
            fixture.decide_and_apply(&json);
        }
        fixture
    }

    /// Has a shadow record the prompts, too.
    fn add_shadow(&mut self, shadow: &Shadow, prompt_bytes: usize) {
        let pool = Arc::clone(self.ledger.ledger().pool());
        self.ledger.adopt(Arc::clone(&pool), [&self.pipeline, shadow.pipeline()], Duration::ZERO);
        for json in prompts(prompt_bytes) {
            let body = self.read(&json);
            let decision = self.decide(&body);
            let changes = self.decide_by_shadow(shadow, &decision, &body).decision.records.changes;
            self.ledger.apply(changes.into_iter().map(Change::State).collect());
        }
    }

    fn read<'a>(&self, json: &'a str) -> Body<'a> {
        let options = Options { keep_bytes: self.pipeline.max_prompt_bytes(), ..Options::default() };
        Body::read(json, Api::Chat, &options).unwrap()
    }

    fn view(&self) -> DecisionInput<'_> {
        self.ledger.ledger().input(&self.readings, NOW)
    }

    fn decide(&mut self, body: &Body<'_>) -> Decision {
        let mut rng = self.rng.clone();
        let decision = self.pipeline.decide(&request(body), &self.view(), NOW, &mut rng);
        self.rng = rng;
        decision
    }

    /// Has a shadow decide after the acting pipeline.
    fn decide_by_shadow(&self, shadow: &Shadow, decision: &Decision, body: &Body<'_>) -> ShadowDecision {
        let acted = (&self.pipeline, decision);
        shadow.decide(acted, &request(body), &self.view(), NOW, &mut SplitMix64::new(7))
    }

    /// Decides and applies the plugins' changes. The load of the endpoints stays as it is.
    fn decide_and_apply(&mut self, json: &str) -> Decision {
        let body = self.read(json);
        let mut decision = self.decide(&body);
        decision.reservations.clear();
        let changes = changes_of(&mut decision, self.ledger.ledger().pool());
        self.ledger.apply(changes);
        decision
    }
}

/// The prompts sent before. A tenth of them begin like the first one.
fn prompts(bytes: usize) -> impl Iterator<Item = String> {
    (0..PROMPTS).map(move |n| chat(bytes, if n % 10 == 0 { bytes / 2 } else { 0 }, n))
}

fn request<'a>(body: &'a Body<'_>) -> Request<'a> {
    Request {
        model: body.model.as_deref().unwrap_or_default(),
        prompt: Some(&body.prompt),
        max_output_tokens: body.max_output_tokens,
        ..Request::default()
    }
}

/// A chat of about `bytes` bytes of prompt in messages of 400 bytes. The first `shared` bytes are the same in
/// every chat, the rest differs by `own`.
fn chat(bytes: usize, shared: usize, own: usize) -> String {
    let text = |written: usize| {
        let number = if written < shared { 0 } else { own };
        let sentence = format!("The quick brown fox {number} jumps over the lazy dog. ");
        sentence.repeat(400 / sentence.len())
    };
    let mut messages = Vec::new();
    let mut written = 0;
    while written < bytes {
        let text = text(written);
        written += text.len();
        let role = ["user", "assistant"][messages.len() % 2];
        messages.push(serde_json::json!({"role": role, "content": text}));
    }
    let model = "meta-llama/Llama-3.1-8B-Instruct";
    serde_json::json!({"model": model, "messages": messages, "max_tokens": 256, "stream": true}).to_string()
}

/// The EPP's recommended scorers for an approximate prefix cache: the default ones and `no-hit-lru-scorer`.
fn optimized_baseline() -> Pipeline {
    compile(baseline_scorers())
}

fn expected_latency() -> Pipeline {
    compile([(ExpectedLatencyScorer::default().into(), Some(1.0))])
}

/// The same scorers over prefixes of longer blocks, which the optimized baseline's index does not hold.
fn of_longer_blocks() -> Pipeline {
    let parameters = r#"{"autoTune": false, "blockSizeTokens": 128}"#;
    let producer = read_plugin("approx-prefix-cache-producer", parameters).unwrap();
    compile(baseline_scorers().into_iter().chain([(producer, None)]))
}

fn baseline_scorers() -> [(AnyPlugin, Option<f64>); 4] {
    [
        (QueueScorer {}.into(), Some(2.0)),
        (KvCacheUtilizationScorer {}.into(), Some(2.0)),
        (PrefixCacheScorer::default().into(), Some(3.0)),
        (NoHitLruScorer::default().into(), Some(2.0)),
    ]
}

/// A pipeline of these plugins, those with a weight in its one profile.
fn compile(plugins: impl IntoIterator<Item = (AnyPlugin, Option<f64>)>) -> Pipeline {
    let (plugins, weights): (Vec<_>, Vec<_>) = plugins.into_iter().unzip();
    let weighted = plugins.iter().zip(&weights).filter(|(_, weight)| weight.is_some());
    let refs = weighted
        .map(|(plugin, weight)| ProfilePlugin { name: plugin.type_name().to_owned(), weight: *weight });
    let profile = ProfileConfig { name: "default".to_owned(), plugins: refs.collect() };
    let plugins = plugins.into_iter().map(Instance::unnamed).collect();
    Pipeline::compile(PickerConfig { plugins, profiles: vec![profile], ..PickerConfig::default() }).unwrap()
}

fn decisions(criterion: &mut Criterion) {
    for (name, pipeline, endpoints, bytes) in [
        ("100 endpoints, 2 KB", Pipeline::default(), 100, 2 << 10),
        ("expected latency, 100 endpoints, 2 KB", expected_latency(), 100, 2 << 10),
        ("1000 endpoints, 2 KB", Pipeline::default(), 1_000, 2 << 10),
        ("optimized baseline, 100 endpoints, 8 KB", optimized_baseline(), 100, 8 << 10),
    ] {
        let mut group = criterion.benchmark_group(name);
        let mut fixture = Fixture::new(pipeline, endpoints, bytes);
        let known = chat(bytes, bytes / 2, 0);
        let half_known = chat(bytes, bytes / 2, PROMPTS);
        let cold = chat(bytes, 0, PROMPTS);
        for (kind, json) in
            [("known prompt", &known), ("half known prompt", &half_known), ("cold prompt", &cold)]
        {
            let body = fixture.read(json);
            group.bench_function(kind, |bencher| bencher.iter(|| fixture.decide(black_box(&body))));
        }
        group.bench_function("body to state", |bencher| {
            bencher.iter(|| fixture.decide_and_apply(black_box(&known)));
        });
        group.finish();
    }
}

/// Cost of a shadow in addition to an acting configuration whose index holds half of the prompt.
fn shadows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a shadow, optimized baseline, 100 endpoints, 8 KB");
    let bytes = 8 << 10;
    let json = chat(bytes, bytes / 2, PROMPTS);
    for (name, shadow) in [
        ("none", None),
        ("of the same rules", Some(optimized_baseline())),
        ("of the default rules", Some(Pipeline::default())),
        ("of longer blocks, with an index of its own", Some(of_longer_blocks())),
    ] {
        let mut fixture = Fixture::new(optimized_baseline(), 100, bytes);
        let shadow = shadow.map(|shadow| Shadow::new(shadow, &fixture.pipeline));
        if let Some(shadow) = &shadow {
            fixture.add_shadow(shadow, bytes);
        }
        let body = fixture.read(&json);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let body = black_box(&body);
                let decision = fixture.decide(body);
                let by_shadow =
                    shadow.as_ref().map(|shadow| fixture.decide_by_shadow(shadow, &decision, body));
                (decision, by_shadow)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decisions, shadows);
criterion_main!(benches);
