//! From a request and the state of a pool to a decision.
//!
//! A decision is [prepared](Pipeline::prepare) from the request and the readings alone, and has six steps
//! then: [`shed`](Pipeline::shed), [`look_up`](Pipeline::look_up), [`predict`](Pipeline::predict),
//! [`admit`](Pipeline::admit), [`schedule`](Pipeline::schedule) and [`record`](Pipeline::record). An acting
//! pipeline and a [shadow] take the same steps.

mod explanation;
mod precomputed_scores;
mod profile;
mod saturation;
mod schedule;
mod scratch;
mod sessions;
pub mod shadow;
mod steps;
mod working_sets;

pub(crate) use profile::Profile;
pub use scratch::Scratch;
pub use steps::Prepared;

use core::fmt::Debug;
use core::time::Duration;
use std::sync::Arc;

use smallvec::smallvec;
use xxhash_rust::xxh64::xxh64;

use self::schedule::prompt_blocks;
use self::shadow::Acting;
use self::working_sets::WORKING_SETS;
use crate::Few;
use crate::decision::rejection::Rejection;
use crate::decision::{Decision, Outcome, ProfileRun};
use crate::flow_control;
use crate::headers::Headers;
use crate::input::DecisionInput;
use crate::input::candidates;
use crate::input::cycle::{Cycle, MediaLookup};
use crate::input::prediction::LatencyLimits;
use crate::input::providers::Providers;
use crate::input::slot::Slot;
use crate::plugin::{
    Admitter, Arrival, CacheSourceProducer, DEFAULT_FLOW, Decider, Instance, LatencyPredictor,
    MmEmbeddingsCacheProducer, PrefixProducer, ProfileHandler, Recorder, Reporter, ResponseMarker,
    SaturationDetector, SessionProducer, fairness_id,
};
use crate::pool::Endpoint;
use crate::pool::load::{Load, Reservation};
use crate::pool::reading::Reading;
use crate::request::Request;
use crate::request::body::{Api, BodyError, Options, Parsers};
use crate::request::prompt::{Media, VideoHints};
use crate::request::session::SESSIONS;
use crate::request::stored::{REMEMBERED, STORED_RESPONSES};
use crate::rng::{Rng, shuffle};
use crate::state::{PluginState, SessionBindings, Sessions, WorkingSets};

/// Everything that decides for one pool, ready to run. Compiled from a
/// [`PickerConfig`](crate::config::PickerConfig).
#[derive(Clone, Debug)]
pub struct Pipeline {
    pub(crate) plugins: Vec<Instance>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) handler: Slot<dyn ProfileHandler>,
    pub(crate) deciders: Vec<Slot<dyn Decider>>,
    pub(crate) detector: Slot<dyn SaturationDetector>,
    pub(crate) admitters: Vec<Slot<dyn Admitter>>,
    pub(crate) prefix_producers: Vec<Slot<dyn PrefixProducer>>,
    pub(crate) session_producers: Vec<Slot<dyn SessionProducer>>,
    pub(crate) latency_predictors: Vec<Slot<dyn LatencyPredictor>>,
    /// Whether limits for the first token are limits for whole responses, by the predictor that decides about
    /// admission.
    pub(crate) limits_are_for_whole_responses: bool,
    pub(crate) media_caches: Vec<Slot<MmEmbeddingsCacheProducer>>,
    /// The index of the prefix producer under its default name, by which preferences for cached prompts go.
    pub(crate) default_prefixes: Option<u16>,
    pub(crate) cache_sources: Vec<Slot<dyn CacheSourceProducer>>,
    pub(crate) recorders: Vec<Slot<dyn Recorder>>,
    pub(crate) response_markers: Vec<Arc<dyn ResponseMarker>>,
    pub(crate) reporters: Arc<[Reporter]>,
    pub(crate) providers: Providers,
    pub(crate) media: Media,
    pub(crate) parsers: Parsers,
    pub(crate) propagates_priority: bool,
    pub(crate) flow_control: Option<flow_control::Config>,
    /// Age of the newest snapshot from which its readings are not used.
    pub(crate) stale_after: Duration,
    pub(crate) neutral_score_after: Option<Duration>,
}

impl Pipeline {
    /// Gives endpoints whose readings are older than this, or that were never scraped, a neutral score by all
    /// scorers that use readings. `None`, the EPP's rule: the last values count however old they are, and
    /// missing ones count as idle.
    #[must_use]
    pub fn with_neutral_score_after(self, age: Option<Duration>) -> Self {
        Self { neutral_score_after: age, ..self }
    }

    /// The detector that filters last, and the profiles in which it does.
    pub fn filters_by_saturation(&self) -> Option<(&str, Vec<&str>)> {
        let detector = &*self.detector.name;
        let is_last = |profile: &&Profile| profile.filters.last().is_some_and(|last| &*last.name == detector);
        let profiles: Vec<&str> = self.profiles.iter().filter(is_last).map(|it| it.name.as_str()).collect();
        (!profiles.is_empty()).then_some((detector, profiles))
    }

    /// The rules of the queue, without bands for the priorities of objectives; `None`: requests do not wait.
    pub fn flow_control(&self) -> Option<&flow_control::Config> {
        self.flow_control.as_ref()
    }

    /// The plugin instances, including those added by default.
    pub fn plugins(&self) -> &[Instance] {
        &self.plugins
    }

    /// The API that the path belongs to.
    pub fn api(&self, path: &str) -> Result<Api, BodyError> {
        self.parsers.api(path)
    }

    /// Whether the priority of a request to this API is written into its body.
    pub fn propagates_priority(&self, api: Api) -> bool {
        self.propagates_priority && api.has_priority()
    }

    /// Bytes of a prompt that can matter to a decision; the rest need not be kept.
    pub fn max_prompt_bytes(&self) -> usize {
        self.prefix_producers.iter().map(|slot| slot.plugin.max_prompt_bytes()).max().unwrap_or(0)
    }

    /// Whether a decision depends on the part of the prompt that is in the caches of servers.
    pub fn reads_caches(&self) -> bool {
        self.prefix_producers.iter().any(|slot| slot.plugin.reads_caches())
    }

    /// The header that names the agent session of a request, and the session; `None`: no plugin finds one.
    pub fn agent_identity<'a>(&self, headers: Headers<'a>) -> Option<(&str, &'a str)> {
        self.providers.agent_identity(headers)
    }

    /// XXH64 of the fairness id of a request; `None`: its headers name none.
    pub fn tenant(&self, headers: Headers<'_>) -> Option<u64> {
        let id = fairness_id(headers).or_else(|| self.agent_identity(headers).map(|(_, id)| id))?;
        (id != DEFAULT_FLOW).then(|| xxh64(id.as_bytes(), 0))
    }

    /// A request with these headers, as the queue sees it. `received` is the time of its headers.
    pub fn arrival<'a>(
        &self,
        headers: Headers<'a>,
        priority: i32,
        bytes: u64,
        received: Duration,
    ) -> Arrival<'a> {
        let identity = self.agent_identity(headers).map(|(_, id)| id);
        let arrival = Arrival::new(headers, identity, priority, bytes, received);
        if self.providers.epp_rules.is_v011() { arrival.with_ttl_of_client(headers) } else { arrival }
    }

    /// How the body of a request with these headers is read: how much of its prompt is kept, how its images,
    /// videos and audio are counted, and of what type it is.
    pub fn body_options<'h>(&self, headers: Headers<'h>) -> Options<'h> {
        let video = VideoHints::from_headers(
            headers.get("x-llm-d-video-fps"),
            headers.get("x-llm-d-video-duration-seconds"),
            headers.get("x-llm-d-video-resolution"),
        );
        let content_type = headers.get("content-type");
        let refuses_as_epp = !self.providers.epp_rules.is_own();
        let keep_bytes = self.max_prompt_bytes();
        Options { keep_bytes, media: self.media, video, content_type, refuses_as_epp }
    }

    /// The plugins that report a number of each response to the proxy.
    pub fn reporters(&self) -> &Arc<[Reporter]> {
        &self.reporters
    }

    /// Plugins with state: their keys, and their state before the first request. By our own rules,
    /// sessions and the endpoints of stored responses too.
    pub fn initial_states(&self) -> impl Iterator<Item = (u64, Box<dyn PluginState>)> {
        let of_plugins = self.recorders.iter().filter_map(|slot| Some((slot.key, slot.plugin.new_state()?)));
        let stored = self.follows_stored_responses().then(|| -> (u64, Box<dyn PluginState>) {
            (STORED_RESPONSES, Box::new(SessionBindings::new(REMEMBERED)))
        });
        let sessions = self
            .knows_sessions()
            .then(|| -> (u64, Box<dyn PluginState>) { (SESSIONS, Box::<Sessions>::default()) });
        let working_sets = self
            .limits_sessions()
            .then(|| -> (u64, Box<dyn PluginState>) { (WORKING_SETS, Box::<WorkingSets>::default()) });
        of_plugins.chain(stored).chain(sessions).chain(working_sets)
    }

    /// Whether a request that names a stored response or conversation goes to the endpoint that stores it. In
    /// the EPP any endpoint gets it.
    pub fn follows_stored_responses(&self) -> bool {
        self.providers.epp_rules.is_own()
    }

    /// Decides for a request with a body.
    pub fn decide(
        &self,
        request: &Request<'_>,
        input: &DecisionInput<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Decision {
        let prepared = self.prepare(request, input, now);
        self.decide_prepared(&prepared, Acting::Own, input, &mut Scratch::default(), rng)
    }

    /// Decides for a request with a body that was [prepared](Self::prepare) with the same endpoints and
    /// readings. Plugins record where the acting decision routes the request. Where another picker acts,
    /// reservations and prompt are about its endpoints, too.
    ///
    /// `scratch` is memory of earlier decisions. Steps whose roles have no plugin are not taken, and their
    /// code is out of line: most pipelines have few of them.
    pub fn decide_prepared(
        &self,
        prepared: &Prepared<'_>,
        acting: Acting<'_>,
        input: &DecisionInput<'_>,
        scratch: &mut Scratch,
        rng: &mut dyn Rng,
    ) -> Decision {
        let cycle = self.cycle(prepared.request, input, prepared.now);
        let candidates = &*prepared.candidates(input);
        // A shadow does not stop at its own rejection: its plugins record where the request really went.
        let stops = matches!(acting, Acting::Own);
        let mut refusal = self.shed(&cycle, candidates);
        if let Some(rejection) = refusal.take_if(|_| stops) {
            return Decision::refused(*rejection);
        }
        let lookup = self.look_up(&cycle, prepared, scratch);
        let mut cycle = lookup.seen_by(cycle);
        let predictions;
        if !self.latency_predictors.is_empty() {
            predictions = self.predict(&cycle, candidates);
            cycle.predictions = &predictions;
        }
        if !self.admitters.is_empty() && refusal.is_none() {
            refusal = self.admit(&cycle, candidates, rng);
            if let Some(rejection) = refusal.take_if(|_| stops) {
                return Decision::refused(*rejection);
            }
        }
        let mut decision = match refusal {
            None => {
                let roomy = self.with_room(&cycle, prepared, candidates);
                self.schedule(cycle, roomy.as_deref().unwrap_or(candidates), scratch, rng)
            }
            Some(rejection) => Decision::refused(*rejection),
        };
        let (stages, primary) = self.acting_stages(acting, &decision);
        let mut records = self.record(&cycle, prepared, &stages, primary, &decision.runs);
        // The acting pipeline records the session for its shadow too.
        let acts = !matches!(acting, Acting::Pipeline(..));
        let session = if acts { self.session(&cycle, prepared) } else { None };
        if let Some(session) = session
            && let Some(&endpoint) = primary.and_then(|primary| stages.get(primary)?.picked.first())
        {
            records.changes.extend(session.change(cycle.endpoint(endpoint).key(), cycle.now));
            records.changes.extend(self.working_set_change(&cycle, prepared, &session, endpoint));
        }
        let another_picks = matches!(acting, Acting::Other(_));
        let reservations = another_picks.then(|| self.reservations(&cycle, &stages));
        // The stages borrow the decision, which is changed now.
        drop(stages);
        decision.records = records;
        decision.session = session;
        decision.limits = self.response_limits(cycle.limits);
        if let (Acting::Other(pick), Some(reservations)) = (acting, reservations) {
            decision.reservations = reservations;
            let first = pick.destinations.first();
            decision.prompt = first.map(|&first| prompt_blocks(&cycle, first)).unwrap_or_default();
        }
        lookup.free(scratch);
        decision
    }

    /// Decides for a request without a body: any candidate, at random. The subset hint is obeyed here too,
    /// unlike in the EPP.
    pub fn decide_without_body(
        &self,
        request: &Request<'_>,
        input: &DecisionInput<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Decision {
        let mut rest = candidates(request, input);
        let preferred = input.preferred(request, &rest, now);
        let first = preferred.first().unwrap_or(&rest);
        let drawn = if first.is_empty() { None } else { first.get(rng.below(first.len())) };
        let Some(&endpoint) = drawn else {
            return Decision::without_run(Outcome::Reject(Rejection::no_candidates()));
        };
        let mut endpoints: Few<usize> = smallvec![endpoint];
        // The proxy must not leave the hint, so it gets the hint's other endpoints for its retries.
        if request.subset.is_hint() {
            rest.retain(|&other| other != endpoint);
            shuffle(&mut rest, rng);
            // A stable sort: avoided endpoints come last, and both groups stay in random order.
            rest.sort_by_key(|&endpoint| (input.has_failed(request, endpoint), input.avoids(endpoint, now)));
            endpoints.extend(rest);
        }
        let response = Load { requests: 1, tokens: 0 };
        let reservations = smallvec![Reservation { endpoint, prefill: Load::default(), response }];
        Decision { reservations, ..Decision::without_run(Outcome::Route(endpoints)) }
    }

    /// Headers that a response from `endpoint` carries, in addition to the decision's own.
    pub fn response_headers(&self, endpoint: &Endpoint) -> impl Iterator<Item = (String, String)> {
        let markers = self.response_markers.iter().filter(|marker| marker.profile().is_empty());
        markers.map(|marker| marker.response_header(endpoint))
    }

    /// Whether any plugin adds headers to responses.
    pub fn marks_responses(&self) -> bool {
        !self.response_markers.is_empty()
    }

    /// The decision in progress, without prefix matches and sessions.
    fn cycle<'a>(
        &'a self,
        request: &'a Request<'a>,
        input: &'a DecisionInput<'a>,
        now: Duration,
    ) -> Cycle<'a> {
        Cycle {
            request,
            pool: input.pool,
            now,
            input,
            readings: self.usable_readings(input, now),
            prefixes: &[],
            sessions: &[],
            limits: LatencyLimits::default(),
            predictions: &[],
            media: MediaLookup::default(),
            peer: None,
            stage: None,
            providers: &self.providers,
            neutral_score_after: self.neutral_score_after,
            // The detector uses this cycle as it is; plugins with a state get it with their own key.
            plugin: self.detector.key,
            inputs: &self.detector.inputs,
        }
    }

    /// The readings; none if they are too old to be used.
    fn usable_readings<'a>(&self, input: &DecisionInput<'a>, now: Duration) -> &'a [Reading] {
        if self.is_stale(input, now) { &[] } else { input.readings }
    }

    /// Whether the readings are so old that they would mislead.
    fn is_stale(&self, input: &DecisionInput<'_>, now: Duration) -> bool {
        now.saturating_sub(input.readings_arrived) > self.stale_after
    }

    /// The profile of a run.
    ///
    /// # Panics
    ///
    /// On a run of another pipeline.
    #[expect(clippy::indexing_slicing, reason = "a run is made by one of the profiles")]
    pub(crate) fn profile_of(&self, run: &ProfileRun) -> &Profile {
        &self.profiles[run.profile]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::shadow::Shadow;
    use crate::state::PluginStates;
    use crate::test;

    #[test]
    fn threads_can_share_everything_that_a_decision_reads() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Pipeline>();
        is_shared::<Shadow>();
        is_shared::<PluginStates>();
        is_shared::<DecisionInput<'_>>();
        is_shared::<Cycle<'_>>();
        is_shared::<Decision>();
    }
}
