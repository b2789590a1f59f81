//! From a request and a view of the pool to a decision.

use core::time::Duration;

use crate::body::{Api, BodyError, Options, Parsers};
use crate::cycle::{Cycle, Headers, Load, NOTHING_SAID, Prefix, Request, Session, View};
use crate::decision::{Charge, Decision, Outcome};
use crate::explanation::Exclusion;
use crate::memory::{Event, Memory};
use crate::plugin::{
    ApproxPrefixCacheProducer, InflightLoadProducer, ResponseMarker, Routed, Stage, TokenProducer,
};
use crate::pool::Endpoint;
use crate::prefix::PrefixMatch;
use crate::profile::{Instance, Profile, ProfileRun};
use crate::prompt::{BlockHashes, Media, VideoHints, block_hashes};
use crate::reading::Reading;
use crate::rejection::Rejection;
use crate::rng::Rng;
use crate::scheduler::{Schedule, Scheduler};

/// Everything that decides for one pool, ready to run. Made from a
/// [`PickerConfig`](crate::config::PickerConfig); plugins are given by their index among the instances.
#[derive(Clone, Debug)]
pub struct Pipeline {
    pub(crate) plugins: Vec<Instance>,
    /// The plugins' keys, in their order.
    pub(crate) keys: Vec<u64>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) handler: usize,
    pub(crate) detector: usize,
    pub(crate) load_producer: InflightLoadProducer,
    pub(crate) parsers: Parsers,
    pub(crate) stale_after: Duration,
    pub(crate) no_opinion_after: Option<Duration>,
}

impl Pipeline {
    /// Gives endpoints whose readings are older than this, or that were never scraped, a neutral score by all scorers that go by
    /// readings. `None`, the reference's rule: the last values count however old they are, and none count as idle.
    #[must_use]
    pub fn with_no_opinion_after(self, age: Option<Duration>) -> Self {
        Self { no_opinion_after: age, ..self }
    }

    /// The plugin instances, those that were added by default included.
    pub fn plugins(&self) -> &[Instance] {
        &self.plugins
    }

    /// The key that identifies a plugin instance by name and type, also in another pipeline.
    pub fn key_of(&self, plugin: usize) -> Option<u64> {
        self.keys.get(plugin).copied()
    }

    /// The index of the plugin instance with this key.
    pub fn index_of(&self, key: u64) -> Option<usize> {
        self.keys.iter().position(|&known| known == key)
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

    /// What the plugins remember at first; with those of an older pipeline, what its plugins of the same name and type
    /// remembered is kept.
    pub fn new_memories(&self, mut older: Option<(&Self, Vec<Memory>)>) -> Vec<Memory> {
        let kept = |instance: &Instance, (pipeline, memories): &mut (&Self, Vec<Memory>)| {
            memories.get_mut(pipeline.index_of(instance.key())?).map(core::mem::take)
        };
        let memory = |instance: &Instance| {
            let recorder = instance.plugin.as_recorder()?;
            Some(
                older
                    .as_mut()
                    .and_then(|older| kept(instance, older))
                    .unwrap_or_else(|| recorder.new_memory()),
            )
        };
        self.plugins.iter().map(memory).map(Option::unwrap_or_default).collect()
    }

    /// Decides for a request with a body.
    ///
    /// The order is the reference's: admission by saturation, candidates, prefix lookup, admitters, profiles.
    pub fn decide(
        &self,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Decision {
        let candidates = candidates(request, view);
        // The agent has been silent for so long that its readings would mislead.
        let is_stale = now.saturating_sub(view.readings_arrived) > self.stale_after;
        let readings = if is_stale { &[] } else { view.readings };
        let bare = Cycle {
            request,
            pool: view.pool,
            now,
            readings,
            in_flight: view.in_flight,
            memories: view.memories,
            prefixes: &[],
            sessions: &[],
            load_producer: &self.load_producer,
            no_opinion_after: self.no_opinion_after,
            own: self.detector,
        };
        if request.priority < 0 && self.saturation(&bare, &candidates) >= 1.0 {
            return Decision::without_run(Outcome::Reject(Rejection::shed()));
        }
        let Some(&first) = candidates.first() else {
            return Decision::without_run(Outcome::Reject(Rejection::no_candidates()));
        };
        let (hashes, prefixes) = self.look_up_prompt(&bare, readings.get(first).unwrap_or(&NOTHING_SAID));
        let sessions = self.sessions(request);
        let cycle = Cycle { prefixes: &prefixes, sessions: &sessions, ..bare };
        for (index, instance) in self.plugins.iter().enumerate() {
            if let Some(admitter) = instance.plugin.as_admitter()
                && let Err(reason) = admitter.admit(&cycle.of(index), &candidates, rng)
            {
                return Decision::without_run(Outcome::Reject(Rejection::not_admitted(&reason)));
            }
        }
        let unavoided = view.unavoided(&candidates, now);
        let mut scheduler = Scheduler::new(self, cycle, candidates, unavoided, rng);
        let schedule = match self.plugins[self.handler].plugin.as_profile_handler() {
            Some(handler) => handler.schedule(&mut scheduler),
            None => Err(Rejection::filtered_out()),
        };
        let mut decision = Decision {
            runs: scheduler.into_runs(),
            is_stale,
            ..Decision::without_run(Outcome::Route(vec![]))
        };
        match schedule {
            Ok(schedule) => self.route(schedule, &cycle, &hashes, &mut decision),
            Err(rejection) => decision.outcome = Outcome::Reject(rejection),
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
        let candidates = view.unavoided(&candidates, now).unwrap_or(candidates);
        let endpoint = candidates[rng.below(candidates.len())];
        let charge = Charge {
            endpoint,
            until_first_byte: Load::default(),
            until_end: Load { requests: 1, tokens: 0 },
        };
        Decision { charges: vec![charge], ..Decision::without_run(Outcome::Route(vec![endpoint])) }
    }

    /// Headers that an answer from `endpoint` carries, beyond the decision's own.
    pub fn response_headers(&self, endpoint: &Endpoint) -> impl Iterator<Item = (String, String)> {
        let markers = self.response_markers().filter(|marker| marker.profile().is_empty());
        markers.map(|marker| marker.response_header(endpoint))
    }

    fn saturation(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> f64 {
        let detector = self.plugins[self.detector].plugin.as_saturation_detector();
        detector.map_or(0.0, |detector| detector.saturation(cycle, candidates))
    }

    /// The request's session for each session producer that finds one.
    fn sessions<'a>(&'a self, request: &Request<'a>) -> Vec<Session<'a>> {
        let producers = self.plugins.iter().filter_map(|instance| {
            let id = instance.plugin.as_session_producer()?.session_id(request.headers)?;
            Some(Session { producer: &instance.name, id })
        });
        producers.collect()
    }

    /// The prompt's blocks and matches for each prefix producer; `first` is the first candidate's reading.
    fn look_up_prompt(&self, cycle: &Cycle<'_>, first: &Reading) -> (Vec<BlockHashes>, Vec<Prefix>) {
        let Some(prompt) = cycle.request.prompt else { return Default::default() };
        let mut found = (Vec::new(), Vec::new());
        for (index, instance) in self.plugins.iter().enumerate() {
            let Some(producer) = instance.plugin.as_prefix_producer() else { continue };
            let block_size = producer.block_size(first);
            let max_blocks = producer.max_blocks(block_size);
            let request = cycle.request;
            let hashes =
                block_hashes(prompt, request.model, request.cache_salt, block_size as usize, max_blocks);
            let mut matched = vec![0; cycle.pool.endpoints().len()];
            if let Memory::Prefixes(known) = cycle.of(index).memory() {
                for list in hashes.lists() {
                    known.count_matches(list, &mut matched);
                }
            }
            let total = u32::try_from(hashes.all().len()).unwrap_or(u32::MAX);
            let matches = PrefixMatch { matched, total, block_size };
            found.0.push(hashes);
            found.1.push(Prefix { producer: instance.name.clone(), matches });
        }
        found
    }

    /// Fills in what follows from a schedule.
    fn route(&self, schedule: Schedule, cycle: &Cycle<'_>, hashes: &[BlockHashes], decision: &mut Decision) {
        let stages: Vec<Stage<'_>> = decision.runs.iter().map(|run| self.stage(run)).collect();
        let picks = |stage: &Stage<'_>| stage.profile == schedule.primary && !stage.picked.is_empty();
        let Some(primary) = stages.iter().position(picks) else {
            decision.outcome = Outcome::Reject(Rejection::filtered_out());
            return;
        };
        let routed = Routed { stages: &stages, primary, asked: None, hashes: None };
        decision.events = self.record(cycle, hashes, &routed, &decision.runs);
        decision.response_headers = self.headers_of_stages(cycle, &routed);
        decision.charges =
            stages.iter().filter_map(|stage| self.load_producer.charge(cycle, stage)).collect();
        let through = |&rank: &usize| match schedule.primary_port {
            Some(port) => {
                cycle.pool.index_at((cycle.endpoint(rank).address().ip(), port).into()).unwrap_or(rank)
            }
            None => rank,
        };
        decision.prompt = cycle.prompt_seen(stages[primary].picked[0]);
        decision.outcome = Outcome::Route(stages[primary].picked.iter().map(through).collect());
        decision.primary = Some(primary);
        decision.headers = schedule.headers;
    }

    fn stage<'a>(&'a self, run: &'a ProfileRun) -> Stage<'a> {
        Stage { profile: &self.profiles[run.profile].name, picked: &run.picked }
    }

    fn record(
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
            let Some(recorder) = instance.plugin.as_recorder() else { continue };
            let asked = runs.iter().rev().find_map(|run| self.profiles[run.profile].asked(plugin, run));
            let routed = Routed { asked: asked.as_deref(), hashes: own_hashes, ..*routed };
            let changes = recorder.record(&cycle.of(plugin), &routed);
            events.extend(changes.into_iter().map(|change| Event { plugin, change }));
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

/// Indices of the endpoints that may be picked at all.
fn candidates(request: &Request<'_>, view: &View<'_>) -> Vec<usize> {
    let endpoints = view.pool.endpoints().len();
    let mut candidates = Vec::with_capacity(endpoints);
    candidates.extend((0..endpoints).filter(|&endpoint| exclusion(request, view, endpoint).is_none()));
    candidates
}

/// Why an endpoint is no candidate; `None` if it is one.
pub(crate) fn exclusion(request: &Request<'_>, view: &View<'_>, endpoint: usize) -> Option<Exclusion> {
    if !view.readings.get(endpoint).is_none_or(|reading| reading.ready) {
        return Some(Exclusion::NotReady);
    }
    if !request.subset.allows(&view.pool.endpoints()[endpoint]) {
        return Some(Exclusion::OutsideSubset);
    }
    None
}
