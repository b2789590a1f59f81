//! Choosing an endpoint: with the body already read, and from the body's bytes to what is remembered of the choice.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use core::hint::black_box;
use core::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use endpoint_picker::body::{Api, Body, Options};
use endpoint_picker::config::{PickerConfig, ProfileConfig, ProfilePlugin};
use endpoint_picker::cycle::{Load, Request, View};
use endpoint_picker::decision::Decision;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::registry::AnyPlugin;
use endpoint_picker::plugin::registry::read_plugin;
use endpoint_picker::plugin::{KvCacheUtilizationScorer, NoHitLruScorer, PrefixCacheScorer, QueueScorer};
use endpoint_picker::plugin_state::PluginStates;
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::profile::Instance;
use endpoint_picker::reading::Reading;
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker::shadow::{Shadow, ShadowDecision};

const NOW: Duration = Duration::from_secs(1_000);

/// Prompts sent before the measurement.
const PROMPTS: usize = 2_000;

/// A pool under load whose prefix index knows [`PROMPTS`] prompts.
struct Scene {
    pipeline: Pipeline,
    pool: Pool,
    readings: Vec<Reading>,
    in_flight: Vec<Load>,
    states: PluginStates,
    rng: SplitMix64,
}

impl Scene {
    fn new(pipeline: Pipeline, endpoints: u16, prompt_bytes: usize) -> Self {
        let mut rng = SplitMix64::new(7);
        let endpoint = |n: u16| {
            let [high, low] = n.to_be_bytes();
            Endpoint::new(format!("default/server-{n}"), ([10, 0, high, low], 8000).into(), vec![])
        };
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
        let mut scene = Self {
            states: pipeline.new_states(),
            pipeline,
            pool: Pool::new("default".to_owned(), (0..endpoints).map(endpoint).collect()).unwrap(),
            readings: readings.collect(),
            in_flight: vec![Load { requests: 3, tokens: 2_000 }; endpoints.into()],
            rng: SplitMix64::new(7),
        };
        for json in prompts(prompt_bytes) {
            scene.decide_and_remember(&json);
        }
        scene
    }

    /// Lets a shadow see the prompts, too.
    fn try_out(&mut self, shadow: &Shadow, prompt_bytes: usize) {
        self.states.adopt(self.pipeline.initial_states().chain(shadow.pipeline().initial_states()));
        for json in prompts(prompt_bytes) {
            let body = self.read(&json);
            let decision = self.decide(&body);
            for event in self.opinion(shadow, &decision, &body).decision.events {
                self.states.apply(&event);
            }
        }
    }

    fn read<'a>(&self, json: &'a str) -> Body<'a> {
        let options = Options { keep_bytes: self.pipeline.max_prompt_bytes(), ..Options::default() };
        Body::read(json, Api::Chat, &options).unwrap()
    }

    fn view(&self) -> View<'_> {
        View {
            pool: &self.pool,
            readings: &self.readings,
            readings_arrived: NOW,
            in_flight: &self.in_flight,
            avoided: &[],
            states: &self.states,
        }
    }

    fn decide(&mut self, body: &Body<'_>) -> Decision {
        let mut rng = self.rng.clone();
        let decision = self.pipeline.decide(&request(body), &self.view(), NOW, &mut rng);
        self.rng = rng;
        decision
    }

    /// What a shadow would have done, after the acting pipeline has decided.
    fn opinion(&self, shadow: &Shadow, decision: &Decision, body: &Body<'_>) -> ShadowDecision {
        let acted = (&self.pipeline, decision);
        shadow.decide(acted, &request(body), &self.view(), NOW, &mut SplitMix64::new(7))
    }

    fn decide_and_remember(&mut self, json: &str) -> Decision {
        let body = self.read(json);
        let decision = self.decide(&body);
        for event in &decision.events {
            self.states.apply(event);
        }
        decision
    }
}

/// What was sent before: a tenth of the prompts begin like the first one.
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

/// A chat of about `bytes` bytes of prompt in messages of 400 bytes. The first `shared` bytes are the same in every chat, the
/// rest differs by `own`.
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
        ("1000 endpoints, 2 KB", Pipeline::default(), 1_000, 2 << 10),
        ("optimized baseline, 100 endpoints, 8 KB", optimized_baseline(), 100, 8 << 10),
    ] {
        let mut group = criterion.benchmark_group(name);
        let mut scene = Scene::new(pipeline, endpoints, bytes);
        let known = chat(bytes, bytes / 2, 0);
        let half_known = chat(bytes, bytes / 2, PROMPTS);
        let cold = chat(bytes, 0, PROMPTS);
        for (kind, json) in
            [("known prompt", &known), ("half known prompt", &half_known), ("cold prompt", &cold)]
        {
            let body = scene.read(json);
            group.bench_function(kind, |bencher| bencher.iter(|| scene.decide(black_box(&body))));
        }
        group.bench_function("body to state", |bencher| {
            bencher.iter(|| scene.decide_and_remember(black_box(&known)));
        });
        group.finish();
    }
}

/// What a configuration on trial adds, to an acting one whose index knows half of the prompt.
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
        let mut scene = Scene::new(optimized_baseline(), 100, bytes);
        let shadow = shadow.map(|shadow| Shadow::new(shadow, &scene.pipeline));
        if let Some(shadow) = &shadow {
            scene.try_out(shadow, bytes);
        }
        let body = scene.read(&json);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let body = black_box(&body);
                let decision = scene.decide(body);
                let opinion = shadow.as_ref().map(|shadow| scene.opinion(shadow, &decision, body));
                (decision, opinion)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decisions, shadows);
criterion_main!(benches);
