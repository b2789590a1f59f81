//! From a request and a view of the pool to a decision.
//!
//! A decision has four steps: [`admit`](Pipeline::admit), [`look_up`](Pipeline::look_up), [`schedule`](Pipeline::schedule) and
//! [`record`](Pipeline::record). What these need of the request alone is [prepared](Pipeline::prepare) before. The acting pipeline and its shadow take the same.

mod admit;
mod beside;
mod by_readings;
mod look_up;
mod neutral_score;
mod other_pick;
mod prepare;
mod profile;
mod record;
mod rest_of_hint;
mod saturation;
mod schedule;
mod slot;
mod without_body;

pub use prepare::Prepared;
pub(crate) use profile::Profile;
pub(crate) use slot::Slot;

use core::time::Duration;
use std::sync::Arc;

use crate::decision::{Decision, Outcome, ProfileRun};
use crate::flow_control;
use crate::headers::Headers;
use crate::input::View;
use crate::input::cycle::Cycle;
use crate::input::load_estimator::LoadEstimator;
use crate::plugin::{
    Admitter, Decider, Instance, PrefixProducer, ProfileHandler, Recorder, ResponseMarker,
    SaturationDetector, SessionProducer,
};
use crate::pool::Endpoint;
use crate::pool::reading::Reading;
use crate::request::Request;
use crate::request::body::{Api, BodyError, Options, Parsers};
use crate::request::prompt::{Media, VideoHints};
use crate::rng::Rng;
use crate::state::PluginState;

/// Everything that decides for one pool, ready to run. Compiled from a [`PickerConfig`](crate::config::PickerConfig).
#[derive(Clone, Debug)]
pub struct Pipeline {
    pub(crate) plugins: Vec<Instance>,
    pub(crate) profiles: Vec<Profile>,
    pub(crate) handler: Arc<dyn ProfileHandler>,
    pub(crate) deciders: Vec<Slot<dyn Decider>>,
    pub(crate) detector: Slot<dyn SaturationDetector>,
    pub(crate) admitters: Vec<Slot<dyn Admitter>>,
    pub(crate) prefix_producers: Vec<Slot<dyn PrefixProducer>>,
    pub(crate) session_producers: Vec<Slot<dyn SessionProducer>>,
    pub(crate) recorders: Vec<Slot<dyn Recorder>>,
    pub(crate) response_markers: Vec<Arc<dyn ResponseMarker>>,
    pub(crate) load_estimator: LoadEstimator,
    pub(crate) media: Media,
    pub(crate) parsers: Parsers,
    pub(crate) flow_control: Option<flow_control::Config>,
    /// Age of the newest snapshot from which its readings are not used.
    pub(crate) stale_after: Duration,
    pub(crate) neutral_score_after: Option<Duration>,
}

impl Pipeline {
    /// Gives endpoints whose readings are older than this, or that were never scraped, a neutral score by all scorers that
    /// use readings. `None`, the EPP's rule: the last values count however old they are, and missing ones count as idle.
    #[must_use]
    pub fn with_neutral_score_after(self, age: Option<Duration>) -> Self {
        Self { neutral_score_after: age, ..self }
    }

    /// How requests wait, without bands for the priorities of objectives; `None`: they do not wait.
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

    /// Bytes of a prompt that can matter to a decision; the rest need not be kept.
    pub fn max_prompt_bytes(&self) -> usize {
        self.prefix_producers.iter().map(|slot| slot.plugin.max_prompt_bytes()).max().unwrap_or(0)
    }

    /// How the body of a request with these headers is read: how much of its prompt is kept, how its images, videos and audio are
    /// counted, and of what type it is.
    pub fn body_options<'h>(&self, headers: Headers<'h>) -> Options<'h> {
        let video = VideoHints::from_headers(
            headers.get("x-llm-d-video-fps"),
            headers.get("x-llm-d-video-duration-seconds"),
            headers.get("x-llm-d-video-resolution"),
        );
        let content_type = headers.get("content-type");
        Options { keep_bytes: self.max_prompt_bytes(), media: self.media, video, content_type }
    }

    /// Plugins with state: their keys, and their state before the first request.
    pub fn initial_states(&self) -> impl Iterator<Item = (u64, PluginState)> {
        self.recorders.iter().map(|slot| (slot.key, slot.plugin.new_state()))
    }

    /// Decides for a request with a body.
    pub fn decide(
        &self,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Decision {
        self.decide_prepared(&self.prepare(request, view, now), request, view, now, rng)
    }

    /// Decides for a request with a body that was [prepared](Self::prepare) with the same endpoints and readings.
    pub fn decide_prepared(
        &self,
        prepared: &Prepared,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Decision {
        self.decide_beside(None, prepared, request, view, now, rng)
    }

    /// Decides for a request with a body. Beside an acting pipeline, plugins remember where that one routed the request.
    pub(crate) fn decide_beside(
        &self,
        acting: Option<(&Self, &Decision)>,
        prepared: &Prepared,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Decision {
        let cycle = self.cycle(request, view, now);
        self.decide_and_record(cycle, prepared, rng, acting.is_some(), |cycle, decision| {
            let (router, routed) = acting.unwrap_or((self, &*decision));
            let stages = router.stages(&routed.runs);
            let events = self.record(cycle, prepared, &stages, routed.primary, &decision.runs);
            drop(stages);
            decision.events = events;
        })
    }

    /// Decides, and has `record` fill in what follows from where the request goes. A request that is turned away, and for which
    /// nothing else acts, is not recorded.
    fn decide_and_record(
        &self,
        cycle: Cycle<'_>,
        prepared: &Prepared,
        rng: &mut dyn Rng,
        another_acts: bool,
        record: impl FnOnce(&Cycle<'_>, &mut Decision),
    ) -> Decision {
        let admission = self.admit(&cycle, &prepared.candidates, rng);
        if !another_acts && let Err(rejection) = admission {
            return Decision::without_run(Outcome::Reject(rejection));
        }
        let lookup = self.look_up(&cycle, prepared);
        let cycle = lookup.seen_by(cycle);
        let mut decision = match admission {
            Ok(()) => self.schedule(cycle, &prepared.candidates, rng),
            Err(rejection) => Decision::without_run(Outcome::Reject(rejection)),
        };
        record(&cycle, &mut decision);
        decision
    }

    /// Headers that an answer from `endpoint` carries, beyond the decision's own.
    pub fn response_headers(&self, endpoint: &Endpoint) -> impl Iterator<Item = (String, String)> {
        let markers = self.response_markers.iter().filter(|marker| marker.profile().is_empty());
        markers.map(|marker| marker.response_header(endpoint))
    }

    /// Whether any plugin adds headers to answers.
    pub fn marks_responses(&self) -> bool {
        !self.response_markers.is_empty()
    }

    /// The decision before anything is looked up.
    fn cycle<'a>(&'a self, request: &'a Request<'a>, view: &'a View<'a>, now: Duration) -> Cycle<'a> {
        Cycle {
            request,
            pool: view.pool,
            now,
            view,
            readings: self.usable_readings(view, now),
            prefixes: &[],
            sessions: &[],
            load_estimator: &self.load_estimator,
            neutral_score_after: self.neutral_score_after,
            plugin: self.detector.key,
        }
    }

    /// The readings; none if they are too old to be used.
    fn usable_readings<'a>(&self, view: &View<'a>, now: Duration) -> &'a [Reading] {
        if self.is_stale(view, now) { &[] } else { view.readings }
    }

    /// Whether the readings are so old that they would mislead.
    fn is_stale(&self, view: &View<'_>, now: Duration) -> bool {
        now.saturating_sub(view.readings_arrived) > self.stale_after
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
    use crate::decision::shadow::Shadow;
    use crate::state::PluginStates;
    use crate::test;

    #[test]
    fn threads_can_share_everything_that_a_decision_reads() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Pipeline>();
        is_shared::<Shadow>();
        is_shared::<PluginStates>();
        is_shared::<View<'_>>();
        is_shared::<Cycle<'_>>();
        is_shared::<Decision>();
    }
}
