//! The steps of a decision around [scheduling](super::schedule): prepare, shed, look up, predict, admit,
//! record.

use core::time::Duration;
use std::borrow::Cow;

use super::{Pipeline, Scratch};
use crate::Few;
use crate::decision::rejection::Rejection;
use crate::decision::{ProfileRun, Records};
use crate::flow_control::is_saturated;
use crate::headers::Headers;
use crate::input::DecisionInput;
use crate::input::cycle::{Cycle, MediaLookup, NO_READING};
use crate::input::prediction::{LatencyLimits, Predictions, ResponseLimits};
use crate::input::{candidates, ready};
use crate::plugin::{NotAdmitted, Routed, Stage};
use crate::request::Request;
use crate::request::prompt::{BlockHashes, block_hashes};
use crate::request::session::SessionName;
use crate::rng::Rng;
use crate::state::MediaItems;
use crate::state::prefix::PrefixMatch;

/// The part of a decision that follows from a request and the readings alone.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) now: Duration,
    /// The endpoints that the request may go to; `None`: all that are ready by the precomputed scores of the
    /// input.
    candidates: Option<Vec<usize>>,
    /// The prompt's blocks for each prefix producer; empty without a prompt.
    prompts: Few<PromptHashes>,
    /// The hashes of its images, videos and audio, each once; empty without a plugin that remembers them.
    media_items: Vec<u64>,
    /// The name of the request's session; `None` also where sessions are not known.
    pub(super) session_name: Option<SessionName>,
}

impl Prepared<'_> {
    /// The endpoints that the request may go to, in the pool's order.
    pub(super) fn candidates<'c>(&'c self, input: &'c DecisionInput<'_>) -> Cow<'c, [usize]> {
        match (&self.candidates, input.precomputed) {
            (Some(candidates), _) => Cow::Borrowed(candidates),
            (None, Some(known)) => Cow::Borrowed(&known.ready),
            (None, None) => Cow::Owned(ready(input)),
        }
    }

    /// The prompt's blocks as the first prefix producer cuts them, and the tokens of a block; `None` without
    /// a prompt or a producer.
    pub fn into_blocks(self) -> Option<(u32, BlockHashes)> {
        self.prompts.into_iter().next().map(|prompt| (prompt.block_size, prompt.hashes))
    }

    /// The full blocks of a prompt that is one list, and the tokens in a block, by the first prefix producer.
    pub(super) fn only_list(&self) -> Option<(&[u64], usize)> {
        let PromptHashes { block_size, hashes, .. } = self.prompts.first()?;
        let mut lists = hashes.full_lists();
        let list = lists.next()?;
        lists.next().is_none().then_some((list, usize::try_from(*block_size).ok()?))
    }
}

/// The prompt's blocks as one prefix producer cuts them.
#[derive(Clone, Debug)]
struct PromptHashes {
    /// The producer's key.
    producer: u64,
    /// Tokens in a block.
    block_size: u32,
    hashes: BlockHashes,
}

/// Prefix matches, sessions, limits of the latency and matches of images, videos and audio of one request.
pub(super) struct Lookup<'a> {
    prefixes: Few<PrefixMatch>,
    sessions: Vec<Option<&'a str>>,
    limits: LatencyLimits,
    media_items: &'a [u64],
    media_matched: Vec<Vec<u32>>,
}

impl Lookup<'_> {
    /// Gives its memory to the next decision.
    pub(super) fn free(self, scratch: &mut Scratch) {
        self.prefixes.into_iter().for_each(|prefix| scratch.keep_counts(prefix.matched));
    }

    /// The decision in progress with the results of the lookup.
    pub(super) fn seen_by<'a>(&'a self, cycle: Cycle<'a>) -> Cycle<'a> {
        let media = MediaLookup { items: self.media_items, matched: &self.media_matched };
        Cycle { prefixes: &self.prefixes, sessions: &self.sessions, limits: self.limits, media, ..cycle }
    }
}

impl Pipeline {
    /// Prepares the decision for a request with a body. Of the input, only endpoints and readings count.
    ///
    /// This part needs neither loads nor the state of plugins. Where those are locked, it comes before the
    /// lock, because hashing a prompt is a large part of a decision.
    pub fn prepare<'a>(
        &self,
        request: &'a Request<'a>,
        input: &DecisionInput<'_>,
        now: Duration,
    ) -> Prepared<'a> {
        let are_ready = input.precomputed.filter(|_| !request.subset.is_hint());
        let own = if are_ready.is_some() { None } else { Some(candidates(request, input)) };
        let candidates = own.as_deref().or(are_ready.map(|known| &*known.ready)).unwrap_or_default();
        let readings = self.usable_readings(input, now);
        // As in the EPP, the first candidate decides the block size for the whole pool.
        let first = candidates.first().and_then(|&first| readings.get(first)).unwrap_or(&NO_READING);
        let mut prompts = Few::new();
        if let Some(prompt) = request.prompt {
            for slot in &self.prefix_producers {
                let block_size = slot.plugin.block_size(first);
                let max_blocks = slot.plugin.max_blocks(block_size);
                let Request { model, cache_salt, .. } = *request;
                let hashes = block_hashes(prompt, model, cache_salt, block_size as usize, max_blocks);
                prompts.push(PromptHashes { producer: slot.key, block_size, hashes });
            }
        }
        let media_items = if self.media_caches.is_empty() { Vec::new() } else { request.media_items() };
        let session_name = if self.knows_sessions() { self.session_name(request) } else { None };
        Prepared { request, now, candidates: own, prompts, media_items, session_name }
    }

    /// The rejection of a request that has no candidate, or that is sheddable while the pool is saturated.
    /// With flow control, the request has waited for its capacity already.
    #[inline]
    pub(super) fn shed(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> Option<Box<Rejection>> {
        if candidates.is_empty() || cycle.request.priority < 0 {
            self.shed_some(cycle, candidates)
        } else {
            None
        }
    }

    #[cold]
    #[inline(never)]
    fn shed_some(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> Option<Box<Rejection>> {
        if candidates.is_empty() {
            return Some(Box::new(Rejection::no_candidates()));
        }
        let is_shed = self.flow_control.is_none()
            && is_saturated(self.detector.plugin.saturation(cycle, candidates, 0));
        is_shed.then(|| Box::new(Rejection::shed()))
    }

    /// The rejection of a request that an admitter refuses. Saturation was checked before, as in the EPP.
    #[cold]
    #[inline(never)]
    pub(super) fn admit(
        &self,
        cycle: &Cycle<'_>,
        candidates: &[usize],
        rng: &mut dyn Rng,
    ) -> Option<Box<Rejection>> {
        let mut admissions =
            self.admitters.iter().map(|slot| slot.plugin.admit(&cycle.of(slot), candidates, rng));
        let NotAdmitted { reason, retry_after, misses_limits } = admissions.find_map(Result::err)?;
        let rejection = Rejection::not_admitted(&reason, retry_after);
        Some(Box::new(Rejection { misses_limits, ..rejection }))
    }

    /// The predictions of each latency predictor, made once for all plugins that read them.
    #[cold]
    #[inline(never)]
    pub(super) fn predict<'a>(
        &'a self,
        cycle: &Cycle<'_>,
        candidates: &[usize],
    ) -> Few<Option<Predictions<'a>>> {
        let predictors = self.latency_predictors.iter();
        let predictions = predictors.map(|slot| {
            let by_endpoint = slot.plugin.predict(&cycle.of(slot), candidates)?;
            Some(Predictions { producer: &slot.name, by_endpoint })
        });
        predictions.collect()
    }

    /// The limits that the response to a request has to keep, if it has any and a predictor reads them.
    pub(super) fn response_limits(&self, limits: LatencyLimits) -> Option<ResponseLimits> {
        limits.is_any().then_some(ResponseLimits { limits, is_whole: self.limits_are_for_whole_responses })
    }

    /// The prompt's matches for each prefix producer, the request's session for each session producer, its
    /// limits if a predictor reads them, and the matches of its images, videos and audio for each producer of
    /// these.
    pub(super) fn look_up<'a>(
        &'a self,
        cycle: &Cycle<'a>,
        prepared: &'a Prepared<'_>,
        scratch: &mut Scratch,
    ) -> Lookup<'a> {
        // Every producer has hashes, or, for a request without a prompt, none has.
        let mut prefixes = Few::new();
        for (slot, prompt) in self.prefix_producers.iter().zip(&prepared.prompts) {
            let PromptHashes { block_size, ref hashes, .. } = *prompt;
            let cycle = cycle.of(slot);
            let mut matched = scratch.counts(cycle.pool.as_slice().len());
            slot.plugin.count_matches(&cycle, hashes, &mut matched, &mut scratch.ends);
            let scale = slot.plugin.token_scale(&cycle);
            let total = u32::try_from(hashes.all().len()).unwrap_or(u32::MAX);
            prefixes.push(PrefixMatch { matched, total, block_size, scale });
        }
        let headers = cycle.request.headers;
        let sessions = if self.session_producers.is_empty() { Vec::new() } else { self.sessions(headers) };
        let limits = if self.latency_predictors.is_empty() {
            LatencyLimits::default()
        } else {
            LatencyLimits::read(headers)
        };
        let items = &prepared.media_items[..];
        let media_matched = if items.is_empty() { Vec::new() } else { self.match_media(cycle, items) };
        Lookup { prefixes, sessions, limits, media_items: items, media_matched }
    }

    /// The request's session for each session producer.
    #[cold]
    #[inline(never)]
    fn sessions<'a>(&'a self, headers: Headers<'a>) -> Vec<Option<&'a str>> {
        self.session_producers.iter().map(|slot| slot.plugin.session_id(headers)).collect()
    }

    /// The matches of images, videos and audio for each of their producers.
    #[cold]
    #[inline(never)]
    fn match_media(&self, cycle: &Cycle<'_>, items: &[u64]) -> Vec<Vec<u32>> {
        let matched = self.media_caches.iter().map(|slot| {
            let mut matched = vec![0; cycle.pool.as_slice().len()];
            if let Some(state) = cycle.of(slot).state::<MediaItems>() {
                state.count(items, &mut matched);
            }
            matched
        });
        matched.collect()
    }

    /// The endpoints that the plugin filtered or scored in these runs. Of several runs that used it, the last
    /// one counts.
    #[cold]
    #[inline(never)]
    fn rated<'r>(&self, plugin: u64, runs: &'r [ProfileRun]) -> Option<Cow<'r, [usize]>> {
        runs.iter().rev().find_map(|run| self.profile_of(run).rated(plugin, run))
    }

    /// The records of a request that was routed by the primary one of these stages. `runs` are this
    /// pipeline's own.
    pub(super) fn record(
        &self,
        cycle: &Cycle<'_>,
        prepared: &Prepared<'_>,
        stages: &[Stage<'_>],
        primary: Option<usize>,
        runs: &[ProfileRun],
    ) -> Records {
        let mut records = Records::default();
        let Some(primary) = primary.and_then(|primary| stages.get(primary)) else { return records };
        for slot in &self.recorders {
            let rated = if slot.plugin.reads_rated() { self.rated(slot.key, runs) } else { None };
            // The matches are in the order of the prompts.
            let mut prompts = prepared.prompts.iter().zip(cycle.prefixes);
            let prompt = prompts.find(|(prompt, _)| prompt.producer == slot.key);
            let hashes = prompt.map(|(prompt, _)| &prompt.hashes);
            let matches = prompt.map(|(_, matches)| matches);
            let routed = Routed { stages, primary, rated: rated.as_deref(), hashes, matches };
            slot.plugin.record(&cycle.of(slot), &routed, &mut records);
        }
        records
    }
}
