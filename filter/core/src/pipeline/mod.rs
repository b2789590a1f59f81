//! From a request and a view of the pool to a decision.

mod look_up;
mod neutral_score;
mod profile;
mod rest_of_hint;
pub(crate) mod scheduler;

pub(crate) use profile::Profile;

use core::time::Duration;

use crate::body::{Api, BodyError, Options, Parsers};
use crate::candidates::candidates;
use crate::cycle::Cycle;
use crate::decision::ProfileRun;
use crate::decision::{Decision, Outcome};
use crate::headers::Headers;
use crate::load::Load;
use crate::load::Reservation;
use crate::plugin::Instance;
use crate::plugin::{
    ApproxPrefixCacheProducer, InflightLoadProducer, Recorder, ResponseMarker, Routed, Stage, TokenProducer,
};
use crate::pool::Endpoint;
use crate::prompt::{BlockHashes, Media, VideoHints};
use crate::rejection::Rejection;
use crate::request::Request;
use crate::rng::{Rng, shuffle};
use crate::state::{Event, PluginStates};
use crate::view::View;
use scheduler::{Schedule, Scheduler};

/// The preference of a client that wants an answer only from an endpoint that has some of its prompt cached.
const IF_AVAILABLE: &str = "if-available";
/// The producer whose matches that preference is about, by the EPP's rule.
const DEFAULT_PREFIX_PRODUCER: &str = "approx-prefix-cache-producer";

/// Everything that decides for one pool, ready to run. Made from a
/// [`PickerConfig`](crate::config::PickerConfig); plugins are given by their index among the instances.
#[derive(Clone, Debug)]
pub struct Pipeline {
    pub(crate) plugins: Vec<Instance>,
    /// The plugins' keys, in their order.
    pub(crate) keys: Vec<u64>,
    /// Keys of plugins whose memory another pipeline looks after.
    pub(crate) foreign: Vec<u64>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) handler: usize,
    pub(crate) detector: usize,
    pub(crate) load_producer: InflightLoadProducer,
    pub(crate) parsers: Parsers,
    pub(crate) stale_after: Duration,
    pub(crate) neutral_score_after: Option<Duration>,
}

impl Pipeline {
    /// Gives endpoints whose readings are older than this, or that were never scraped, a neutral score by all scorers that go by
    /// readings. `None`, the EPP's rule: the last values count however old they are, and none count as idle.
    #[must_use]
    pub fn with_neutral_score_after(self, age: Option<Duration>) -> Self {
        Self { neutral_score_after: age, ..self }
    }

    /// The plugin instances, those that were added by default included.
    pub fn plugins(&self) -> &[Instance] {
        &self.plugins
    }

    /// The key that identifies a plugin instance by name and type, also in another pipeline.
    pub fn key_of(&self, plugin: usize) -> Option<u64> {
        self.keys.get(plugin).copied()
    }

    /// The API that the path belongs to.
    pub fn api(&self, path: &str) -> Result<Api, BodyError> {
        self.parsers.api(path)
    }

    /// Bytes of a prompt that can matter to a decision; what lies beyond need not be kept.
    pub fn max_prompt_bytes(&self) -> usize {
        let producers = self.plugins.iter().filter_map(|instance| instance.plugin.as_prefix_producer());
        producers.map(ApproxPrefixCacheProducer::max_prompt_bytes).max().unwrap_or(0)
    }

    /// How the body of a request with these headers is read: as much of its prompt is kept as can matter to a decision, and
    /// its pictures, videos and sounds are counted as configured.
    pub fn body_options(&self, headers: Headers<'_>) -> Options {
        let video = VideoHints::from_headers(
            headers.get("x-llm-d-video-fps"),
            headers.get("x-llm-d-video-duration-seconds"),
            headers.get("x-llm-d-video-resolution"),
        );
        Options { keep_bytes: self.max_prompt_bytes(), media: self.media(), video }
    }

    fn media(&self) -> Media {
        let producer = self.plugins.iter().find_map(|instance| instance.plugin.as_token_producer());
        producer.map(TokenProducer::media).unwrap_or_default()
    }

    /// The plugins that remember anything, with their keys.
    pub(crate) fn recorders(&self) -> impl Iterator<Item = (u64, &dyn Recorder)> {
        let instances = self.keys.iter().zip(&self.plugins);
        instances.filter_map(|(&key, instance)| Some((key, instance.plugin.as_recorder()?)))
    }

    /// What the plugins remember at first.
    pub fn new_states(&self) -> PluginStates {
        let mut states = PluginStates::default();
        states.adopt([self]);
        states
    }

    /// Decides for a request with a body.
    ///
    /// The order: candidates, admission by saturation, prefix lookup, admitters, profiles. The EPP asks for saturation first.
    pub fn decide(
        &self,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Decision {
        let candidates = candidates(request, view);
        let bare = self.cycle(request, view, now);
        if let Some(rejection) = self.refusal(&bare, &candidates) {
            return Decision::without_run(Outcome::Reject(rejection));
        }
        let found = self.look_up(&bare, &candidates);
        let cycle = found.seen_by(bare);
        let mut decision = self.choose(cycle, candidates, view, rng);
        if let Some(primary) = decision.primary {
            let stages = self.stages(&decision.runs);
            let routed = Routed { stages: &stages, primary, asked: None, hashes: None };
            decision.events = self.record(&cycle, &found.hashes, &routed, &decision.runs);
        }
        decision
    }

    /// Decides for a request without a body: any candidate, at random. The subset hint holds here too, unlike in the
    /// reference.
    pub fn decide_without_body(
        &self,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Decision {
        let candidates = candidates(request, view);
        if candidates.is_empty() {
            return Decision::without_run(Outcome::Reject(Rejection::no_candidates()));
        }
        let first = view.unavoided(&candidates, now);
        let first = first.as_deref().unwrap_or(&candidates);
        let endpoint = first[rng.below(first.len())];
        let mut endpoints = vec![endpoint];
        if request.subset.is_hint() {
            let mut rest = candidates.clone();
            rest.retain(|&other| other != endpoint);
            shuffle(&mut rest, rng);
            rest.sort_by_key(|&endpoint| view.avoids(endpoint, now));
            endpoints.extend(rest);
        }
        let reservation =
            Reservation { endpoint, prefill: Load::default(), response: Load { requests: 1, tokens: 0 } };
        Decision { reservations: vec![reservation], ..Decision::without_run(Outcome::Route(endpoints)) }
    }

    /// Headers that an answer from `endpoint` carries, beyond the decision's own.
    pub fn response_headers(&self, endpoint: &Endpoint) -> impl Iterator<Item = (String, String)> {
        let markers = self.response_markers().filter(|marker| marker.profile().is_empty());
        markers.map(|marker| marker.response_header(endpoint))
    }

    /// What plugins see of a request at first.
    pub(crate) fn cycle<'a>(&'a self, request: &'a Request<'a>, view: &View<'a>, now: Duration) -> Cycle<'a> {
        Cycle {
            request,
            pool: view.pool,
            now,
            readings: if self.is_stale(view, now) { &[] } else { view.readings },
            in_flight: view.in_flight,
            states: view.states,
            keys: &self.keys,
            prefixes: &[],
            sessions: &[],
            load_producer: &self.load_producer,
            neutral_score_after: self.neutral_score_after,
            own: self.detector,
        }
    }

    /// Whether the agent has been silent for so long that its readings would mislead.
    fn is_stale(&self, view: &View<'_>, now: Duration) -> bool {
        now.saturating_sub(view.readings_arrived) > self.stale_after
    }

    /// Why a request is refused before anything is looked up for it.
    pub(crate) fn refusal(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> Option<Rejection> {
        if candidates.is_empty() {
            return Some(Rejection::no_candidates());
        }
        let detector = self.plugins[self.detector].plugin.as_saturation_detector();
        let saturation = || detector.map_or(0.0, |detector| detector.saturation(cycle, candidates));
        (cycle.request.priority < 0 && saturation() >= 1.0).then(Rejection::shed)
    }

    /// Has the admitters and the profiles decide. What plugins are to remember of it is left out.
    pub(crate) fn choose(
        &self,
        cycle: Cycle<'_>,
        candidates: Vec<usize>,
        view: &View<'_>,
        rng: &mut dyn Rng,
    ) -> Decision {
        for (index, instance) in self.plugins.iter().enumerate() {
            if let Some(admitter) = instance.plugin.as_admitter()
                && let Err(reason) = admitter.admit(&cycle.of(index), &candidates, rng)
            {
                return Decision::without_run(Outcome::Reject(Rejection::not_admitted(&reason)));
            }
        }
        let unavoided = view.unavoided(&candidates, cycle.now);
        let mut scheduler = Scheduler::new(self, cycle, candidates, unavoided, rng);
        let schedule = match self.plugins[self.handler].plugin.as_profile_handler() {
            Some(handler) => handler.schedule(&mut scheduler),
            None => Err(Rejection::filtered_out()),
        };
        let mut decision = Decision {
            runs: scheduler.into_runs(),
            is_stale: self.is_stale(view, cycle.now),
            ..Decision::without_run(Outcome::Route(vec![]))
        };
        match schedule {
            Ok(schedule) => self.route(schedule, &cycle, view, rng, &mut decision),
            Err(rejection) => decision.outcome = Outcome::Reject(rejection),
        }
        decision
    }

    /// Fills in what follows from a schedule.
    fn route(
        &self,
        schedule: Schedule,
        cycle: &Cycle<'_>,
        view: &View<'_>,
        rng: &mut dyn Rng,
        decision: &mut Decision,
    ) {
        let stages = self.stages(&decision.runs);
        let picks = |stage: &Stage<'_>| stage.profile == schedule.primary && !stage.picked.is_empty();
        let Some(primary) = stages.iter().position(picks) else {
            decision.outcome = Outcome::Reject(Rejection::filtered_out());
            return;
        };
        let first = stages[primary].picked[0];
        if cycle.request.headers.prefers(IF_AVAILABLE)
            && cycle.prefix(DEFAULT_PREFIX_PRODUCER).blocks(first) == 0
        {
            decision.outcome = Outcome::Reject(Rejection::not_cached());
            return;
        }
        let routed = Routed { stages: &stages, primary, asked: None, hashes: None };
        decision.response_headers = self.headers_of_stages(cycle, &routed);
        decision.reservations =
            stages.iter().filter_map(|stage| self.load_producer.reserve(cycle, stage)).collect();
        let through = |&rank: &usize| match schedule.primary_port {
            Some(port) => {
                cycle.pool.index_at((cycle.endpoint(rank).address().ip(), port).into()).unwrap_or(rank)
            }
            None => rank,
        };
        decision.prompt = cycle.prompt_blocks(first);
        let mut endpoints = stages[primary].picked.to_vec();
        if cycle.request.subset.is_hint() {
            endpoints.extend(self.rest_of_hint(&decision.runs[primary], cycle, view, rng));
        }
        decision.outcome = Outcome::Route(endpoints.iter().map(through).collect());
        decision.primary = Some(primary);
        decision.headers = schedule.headers;
    }

    /// The profiles that ran, with what they chose.
    pub(crate) fn stages<'a>(&'a self, runs: &'a [ProfileRun]) -> Vec<Stage<'a>> {
        let stage =
            |run: &'a ProfileRun| Stage { profile: &self.profiles[run.profile].name, picked: &run.picked };
        runs.iter().map(stage).collect()
    }

    /// What the plugins are to remember of a request for which these profiles ran and that was routed so.
    pub(crate) fn record(
        &self,
        cycle: &Cycle<'_>,
        hashes: &[BlockHashes],
        routed: &Routed<'_>,
        runs: &[ProfileRun],
    ) -> Vec<Event> {
        let mut events = Vec::new();
        let mut hashes = hashes.iter();
        for (plugin, instance) in self.plugins.iter().enumerate() {
            let own_hashes = instance.plugin.as_prefix_producer().and_then(|_| hashes.next());
            let key = self.keys[plugin];
            let recorder = instance.plugin.as_recorder().filter(|_| !self.foreign.contains(&key));
            let Some(recorder) = recorder else { continue };
            let asked = runs.iter().rev().find_map(|run| self.profiles[run.profile].asked(plugin, run));
            let routed = Routed { asked: asked.as_deref(), hashes: own_hashes, ..*routed };
            let changes = recorder.record(&cycle.of(plugin), &routed);
            events.extend(changes.into_iter().map(|change| Event { plugin: key, change }));
        }
        events
    }

    /// Headers that tell the client the endpoints of named profiles.
    fn headers_of_stages(&self, cycle: &Cycle<'_>, routed: &Routed<'_>) -> Vec<(String, String)> {
        let markers = self.response_markers().filter(|marker| !marker.profile().is_empty());
        let header = |marker: &dyn ResponseMarker| {
            let &endpoint = routed.stage(marker.profile())?.picked.first()?;
            Some(marker.response_header(cycle.endpoint(endpoint)))
        };
        markers.filter_map(header).collect()
    }

    fn response_markers(&self) -> impl Iterator<Item = &dyn ResponseMarker> {
        self.plugins.iter().filter_map(|instance| instance.plugin.as_response_marker())
    }
}
