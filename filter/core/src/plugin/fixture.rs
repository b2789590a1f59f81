//! Pools and cycles for the plugins' tests.

use core::time::Duration;
use std::sync::Arc;

use super::parameter::LATENCY_PREDICTOR;
use super::{AgentIdentity, Filter, InflightLoadProducer, Recorder, Routed, Scorer, TopologyExtractor};
use crate::decision::Records;
use crate::epp_rules::EppRules;
use crate::headers::Headers;
use crate::input::DecisionInput;
use crate::input::cycle::{Cycle, MediaLookup};
use crate::input::load_estimator::LoadEstimator;
use crate::input::prediction::{LatencyLimits, Prediction, Predictions};
use crate::input::providers::Providers;
use crate::input::slot::Inputs;
use crate::pool::load::{FractionalLoad, Load};
use crate::pool::reading::Reading;
use crate::pool::{Endpoint, Endpoints};
use crate::request::Request;
use crate::request::prompt::{Pieces, Prompt};
use crate::rng::SplitMix64;
use crate::state::PluginStates;
use crate::state::prefix::PrefixMatch;

/// The time in a test's cycle, unless the test sets another.
pub(crate) const NOW: Duration = Duration::from_secs(1_000);

/// The records of a routed request by one plugin.
pub(crate) fn records(recorder: &impl Recorder, cycle: &Cycle<'_>, routed: &Routed<'_>) -> Records {
    let mut records = Records::default();
    recorder.record(cycle, routed, &mut records);
    records
}

/// A decision in progress, as a test sets it up.
pub(crate) struct Fixture {
    pub(crate) request: Request<'static>,
    pub(crate) now: Duration,
    pub(crate) readings: Vec<Reading>,
    pub(crate) in_flight: Vec<Load>,
    pub(crate) deferred: Vec<FractionalLoad>,
    pub(crate) states: PluginStates,
    pub(crate) load_estimator: LoadEstimator,
    /// The endpoint that an earlier stage picked.
    pub(crate) peer: Option<usize>,
    pub(crate) epp_rules: EppRules,
    labels: Vec<Vec<(String, String)>>,
    prefixes: Vec<PrefixMatch>,
    sessions: Vec<Option<&'static str>>,
    predictions: Vec<Option<Predictions<'static>>>,
}

impl Fixture {
    /// This many endpoints without readings and state.
    pub(crate) fn of(endpoints: usize) -> Self {
        Self {
            request: Request::default(),
            now: NOW,
            readings: vec![Reading::default(); endpoints],
            in_flight: vec![],
            deferred: vec![],
            states: PluginStates::default(),
            load_estimator: InflightLoadProducer::default().estimator(),
            peer: None,
            epp_rules: EppRules::default(),
            labels: vec![vec![]; endpoints],
            prefixes: vec![],
            sessions: vec![],
            predictions: vec![],
        }
    }

    /// As many endpoints as readings.
    pub(crate) fn with_readings(readings: &[Reading]) -> Self {
        Self { readings: readings.to_vec(), ..Self::of(readings.len()) }
    }

    /// Sets the matches of the default prefix producer.
    pub(crate) fn prefix(&mut self, matches: PrefixMatch) {
        self.prefixes = vec![matches];
    }

    /// Sets the session that the only session producer finds.
    pub(crate) fn session(&mut self, id: &'static str) {
        self.sessions = vec![Some(id)];
    }

    /// Sets the predictions of the default predictor for all endpoints.
    pub(crate) fn predictions(&mut self, of: impl IntoIterator<Item = Prediction>) {
        let by_endpoint = of.into_iter().map(Some).collect();
        self.predictions = vec![Some(Predictions { producer: LATENCY_PREDICTOR, by_endpoint })];
    }

    /// Removes all predictions.
    pub(crate) fn no_predictions(&mut self) {
        self.predictions.clear();
    }

    /// Gives an endpoint a label.
    pub(crate) fn label(&mut self, endpoint: usize, key: &str, value: &str) {
        self.labels[endpoint].push((key.to_owned(), value.to_owned()));
    }

    /// Calls `look` with the decision.
    pub(crate) fn with_cycle<R>(&self, look: impl FnOnce(&Cycle<'_>) -> R) -> R {
        let endpoints = self.labels.iter().enumerate().map(|(n, labels)| {
            let port = 8000 + u16::try_from(n).unwrap();
            Endpoint::new(format!("default/{n}"), ([10, 0, 0, 1], port).into(), labels.clone())
        });
        let pool = Endpoints::new("default".to_owned(), endpoints.collect()).unwrap();
        let providers = Providers {
            load_estimator: self.load_estimator.clone(),
            agent_identities: vec![Arc::new(AgentIdentity::default().session_headers())],
            load_prefixes: Some(0),
            topologies: vec![Arc::new(TopologyExtractor::default().topology())],
            epp_rules: self.epp_rules,
        };
        let input = DecisionInput {
            pool: &pool,
            readings: &self.readings,
            readings_arrived: self.now,
            in_flight: &self.in_flight,
            deferred: &self.deferred,
            avoided: &[],
            states: &self.states,
            precomputed: None,
        };
        let inputs = Inputs {
            prefix_producer: Some(0),
            latency_predictor: Some(0),
            media_cache: Some(0),
            topology: Some(0),
            session_producers: vec![Some(0)],
            deciders: vec![],
        };
        look(&Cycle {
            request: &self.request,
            pool: &pool,
            now: self.now,
            input: &input,
            readings: &self.readings,
            prefixes: &self.prefixes,
            sessions: &self.sessions,
            limits: LatencyLimits::read(self.request.headers),
            predictions: &self.predictions,
            media: MediaLookup::default(),
            peer: self.peer,
            stage: None,
            providers: &providers,
            neutral_score_after: None,
            plugin: 0,
            inputs: &inputs,
        })
    }

    /// The scores of all endpoints, unclamped.
    pub(crate) fn scores(&self, scorer: &dyn Scorer) -> Vec<f64> {
        let candidates: Vec<usize> = (0..self.readings.len()).collect();
        let mut scores = vec![0.0; candidates.len()];
        self.with_cycle(|cycle| scorer.score(cycle, &candidates, &mut scores));
        scores
    }

    /// The endpoints a filter keeps.
    pub(crate) fn kept(&self, filter: &dyn Filter, seed: u64) -> Vec<usize> {
        let mut candidates: Vec<usize> = (0..self.readings.len()).collect();
        self.with_cycle(|cycle| filter.filter(cycle, &mut candidates, &mut SplitMix64::new(seed)));
        candidates
    }
}

/// Scores endpoints with these readings and compares.
#[track_caller]
pub(crate) fn assert_scores(scorer: &dyn Scorer, readings: &[Reading], expected: &[f64]) {
    assert_near(&Fixture::with_readings(readings).scores(scorer), expected);
}

/// Compares up to rounding.
#[track_caller]
pub(crate) fn assert_near(actual: &[f64], expected: &[f64]) {
    let close = actual.iter().zip(expected).all(|(actual, expected)| (actual - expected).abs() < 1e-9);
    assert!(close && actual.len() == expected.len(), "{actual:?} is not {expected:?}");
}

/// A reading with this many requests waiting.
pub(crate) fn waiting(requests: u64) -> Reading {
    Reading { waiting: Some(requests), ..Reading::default() }
}

/// A prompt of this many tokens of which nothing was kept.
pub(crate) fn prompt_of(tokens: u64) -> &'static Prompt<'static> {
    let mut pieces = Pieces::new(0);
    pieces.ids(vec![], tokens);
    Box::leak(Box::new(Prompt::one(pieces)))
}

/// A request's headers.
pub(crate) fn headers(headers: &[(&str, &str)]) -> Headers<'static> {
    Headers(Box::leak(Box::new(headers.iter().copied().collect())))
}

/// A prompt of one image, of which nothing was kept.
pub(crate) fn image() -> &'static Prompt<'static> {
    let mut pieces = Pieces::new(0);
    pieces.media(1, 225);
    Box::leak(Box::new(Prompt::one(pieces)))
}
