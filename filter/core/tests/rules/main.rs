//! Whole decisions by configurations of the EPP's kind.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod conditional;
mod config;
mod disaggregation;
mod flow_control;
mod hints;
mod load;
mod other_picks;
mod reference_cases;
mod sessions;
mod shadow;
mod versions;
mod worked_examples;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) use wasm_bindgen_test::wasm_bindgen_test as test;

use core::net::SocketAddr;
use core::time::Duration;

use endpoint_picker::config::{ConfigErrors, FlowControlConfig, PickerConfig, ProfileConfig, ProfilePlugin};
use endpoint_picker::decision::{Decision, Outcome};
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::headers::{HeaderList, Headers};
use endpoint_picker::input::DecisionInput;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::plugin::registry::read_plugin;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::{Lora, Reading};
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::PluginStates;
use serde_json::Value;

/// The time of every decision.
pub(crate) const NOW: Duration = Duration::from_secs(1_000);

/// Compiles a configuration, written as the EPP writes it: `plugins` and `schedulingProfiles`.
pub(crate) fn compile(config: &Value) -> Result<Pipeline, ConfigErrors> {
    compile_by(EppRules::default(), config)
}

fn compile_by(epp_rules: EppRules, config: &Value) -> Result<Pipeline, ConfigErrors> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let plugins = list(&config["plugins"]).into_iter().map(|plugin| {
        let parameters = plugin.get("parameters").map_or_else(|| "{}".to_owned(), Value::to_string);
        let read = read_plugin(&text(&plugin["type"]), &parameters).unwrap();
        let name = plugin.get("name").map_or_else(|| read.type_name().to_owned(), text);
        Instance { name, plugin: read }
    });
    let profiles = list(&config["schedulingProfiles"]).into_iter().map(|profile| {
        let plugins = list(&profile["plugins"]).into_iter().map(|plugin| ProfilePlugin {
            name: text(&plugin["pluginRef"]),
            weight: plugin["weight"].as_f64(),
        });
        ProfileConfig { name: text(&profile["name"]), plugins: plugins.collect() }
    });
    Pipeline::compile(PickerConfig {
        plugins: plugins.collect(),
        profiles: profiles.collect(),
        saturation_detector: config["saturationDetector"].as_str().map(str::to_owned),
        flow_control: config["flowControl"].as_bool().map(|_| FlowControlConfig::default()),
        epp_rules,
        scrape_interval: Duration::from_millis(config["scrapeIntervalMs"].as_u64().unwrap_or(50)),
        ..PickerConfig::default()
    })
}

/// A pool with a pipeline that decides for it. Endpoint n is `default/n` at 192.168.1.(n+1):8000.
pub(crate) struct Fixture {
    pub(crate) pipeline: Pipeline,
    pub(crate) readings: Vec<Reading>,
    pub(crate) in_flight: Vec<Load>,
    pub(crate) states: PluginStates,
    labels: Vec<Vec<(String, String)>>,
    addresses: Vec<SocketAddr>,
}

impl Fixture {
    pub(crate) fn new(config: &Value, readings: Vec<Reading>) -> Self {
        Self::by(EppRules::default(), config, readings)
    }

    /// A fixture that decides by these rules.
    pub(crate) fn by(rules: EppRules, config: &Value, readings: Vec<Reading>) -> Self {
        let pipeline = compile_by(rules, config).unwrap_or_else(|error| panic!("{config}: {error}"));
        let mut states = PluginStates::default();
        states.adopt(pipeline.initial_states());
        let address = |n: usize| ([192, 168, 1, u8::try_from(n + 1).unwrap()], 8000).into();
        Self {
            pipeline,
            labels: vec![vec![]; readings.len()],
            addresses: (0..readings.len()).map(address).collect(),
            readings,
            in_flight: vec![],
            states,
        }
    }

    /// A fixture of fresh and idle endpoints.
    pub(crate) fn idle(config: &Value, endpoints: usize) -> Self {
        Self::new(config, vec![fresh(); endpoints])
    }

    pub(crate) fn label(mut self, key: &str, values: &[&str]) -> Self {
        for (labels, value) in self.labels.iter_mut().zip(values).filter(|(_, value)| !value.is_empty()) {
            labels.push((key.to_owned(), (*value).to_owned()));
        }
        self
    }

    /// The endpoints at other addresses.
    pub(crate) fn at(self, addresses: Vec<SocketAddr>) -> Self {
        Self { addresses, ..self }
    }

    pub(crate) fn pool(&self) -> Endpoints {
        let endpoints =
            self.labels.iter().zip(&self.addresses).enumerate().map(|(n, (labels, address))| {
                Endpoint::new(format!("default/{n}"), *address, labels.clone())
            });
        Endpoints::new("default".to_owned(), endpoints.collect()).unwrap()
    }

    pub(crate) fn input<'a>(&'a self, pool: &'a Endpoints) -> DecisionInput<'a> {
        DecisionInput {
            pool,
            readings: &self.readings,
            readings_arrived: NOW,
            in_flight: &self.in_flight,
            deferred: &[],
            avoided: &[],
            states: &self.states,
            precomputed: None,
        }
    }

    pub(crate) fn decide(&mut self, request: &Request<'_>, seed: u64) -> Decision {
        let pool = self.pool();
        let decision = self.pipeline.decide(request, &self.input(&pool), NOW, &mut SplitMix64::new(seed));
        for change in &decision.records.changes {
            self.states.apply(change, &pool);
        }
        decision
    }

    /// Decides for a completions request.
    pub(crate) fn send(&mut self, prompt: &str, headers: &[(&str, &str)]) -> Decision {
        let json = serde_json::json!({"model": "m", "prompt": prompt}).to_string();
        self.send_body(Api::Completions, &json, headers)
    }

    pub(crate) fn send_body(&mut self, api: Api, json: &str, headers: &[(&str, &str)]) -> Decision {
        let headers = owned(headers);
        let options = self.pipeline.body_options(Headers(&headers));
        let body = Body::read(json, api, &options).unwrap();
        let request = Request {
            model: body.model.as_deref().unwrap_or_default(),
            prompt: Some(&body.prompt),
            max_output_tokens: body.max_output_tokens,
            headers: Headers(&headers),
            ..Request::default()
        };
        self.decide(&request, 1)
    }
}

pub(crate) fn owned(headers: &[(&str, &str)]) -> HeaderList {
    headers.iter().copied().collect()
}

/// A reading of an idle server, just taken.
pub(crate) fn fresh() -> Reading {
    Reading {
        ready: true,
        updated: Some(NOW),
        waiting: Some(0),
        running: Some(0),
        kv_usage: Some(0.0),
        ..Reading::default()
    }
}

/// A server with this many requests waiting, this share of its cache in use, and these adapters running.
pub(crate) fn pod(waiting: u64, kv_usage: f64, adapters: &[&str]) -> Reading {
    let running = adapters.iter().map(|&adapter| adapter.to_owned()).collect();
    let lora = Lora { running, waiting: vec![], max: 0 };
    Reading { waiting: Some(waiting), kv_usage: Some(kv_usage), lora: Some(lora), ..fresh() }
}

/// Where the request goes.
#[track_caller]
pub(crate) fn destinations(decision: &Decision) -> Vec<usize> {
    match &decision.outcome {
        Outcome::Route(endpoints) => endpoints.to_vec(),
        other => panic!("not routed but {other:?}"),
    }
}

/// The status, reason and message a request is turned away with.
#[track_caller]
pub(crate) fn rejection(decision: &Decision) -> (u16, Option<&'static str>, String) {
    match &decision.outcome {
        Outcome::Reject(rejection) => {
            let reason = rejection.reason.map(endpoint_picker::decision::rejection::DroppedReason::as_str);
            (rejection.code.status(), reason, rejection.message.to_string())
        }
        other => panic!("not turned away but {other:?}"),
    }
}

/// The endpoints of the highest total: any of them may be picked.
pub(crate) fn best(decision: &Decision) -> Vec<usize> {
    let run = decision.primary_run().expect("a profile ran");
    let highest = run.totals.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let scored = run.scored.iter().zip(&run.totals);
    scored.filter(|(_, total)| (*total - highest).abs() < 1e-9).map(|(&endpoint, _)| endpoint).collect()
}

/// The totals of all endpoints that passed the filters.
pub(crate) fn totals(decision: &Decision) -> Vec<f64> {
    decision.primary_run().expect("a profile ran").totals.clone()
}

#[track_caller]
pub(crate) fn assert_near(actual: &[f64], expected: &[f64]) {
    let close = actual.iter().zip(expected).all(|(actual, expected)| (actual - expected).abs() < 1e-4);
    assert!(close && actual.len() == expected.len(), "{actual:?} is not {expected:?}");
}
