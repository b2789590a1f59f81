//! The main step of a decision: the profiles choose.

use core::num::{NonZeroU16, NonZeroUsize};

use hashbrown::HashSet;

use super::profile::without;
use super::{Pipeline, Scratch};
use crate::Few;
use crate::decision::rejection::Rejection;
use crate::decision::{CacheSource, Decision, MediaCount, Outcome, ProfileRun, PromptBlocks, ServedModelRun};
use crate::input::candidates;
use crate::input::cycle::Cycle;
use crate::input::slot::Slot;
use crate::plugin::parameter::PREFILL;
use crate::plugin::{Eligibility, Filter, MaxScorePicker, Picker, Profiles, Schedule, Stage};
use crate::pool::load::Reservation;
use crate::rng::Rng;

/// A `Prefer` value: the client wants a response only from an endpoint with some of its prompt in the cache.
const IF_AVAILABLE: &str = "if-available";

/// Names the endpoint that KV blocks may be copied from.
const CACHE_SOURCE: &str = "x-kv-cache-source-host-port";

/// Names the data-parallel rank of the endpoint.
const DATA_PARALLEL_RANK: &str = "x-data-parallel-rank";

/// Runs profiles for a profile handler.
struct Runner<'a> {
    pipeline: &'a Pipeline,
    cycle: Cycle<'a>,
    candidates: &'a [usize],
    /// Groups of candidates to try before all of them.
    preferred: Vec<Vec<usize>>,
    scratch: &'a mut Scratch,
    rng: &'a mut dyn Rng,
    runs: Vec<ProfileRun>,
}

impl Profiles for Runner<'_> {
    fn cycle(&self) -> Cycle<'_> {
        self.cycle
    }

    fn count(&self) -> usize {
        self.pipeline.profiles.len()
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.pipeline.profiles.iter().position(|profile| profile.name == name)
    }

    /// Runs over the candidates that have not failed; over all if the filters leave none of these.
    fn run_near(&mut self, index: usize, peer: Option<usize>) -> &[usize] {
        self.cycle.peer = peer;
        let Some(profile) = self.pipeline.profiles.get(index) else { return &[] };
        let mut run_over =
            |candidates: &[usize]| profile.run(self.scratch.run(index, candidates), self.cycle, self.rng);
        let mut groups = self.preferred.iter();
        let run = groups.find_map(|group| Some(run_over(group)).filter(|run| !run.picked.is_empty()));
        let run = run.unwrap_or_else(|| run_over(self.candidates));
        self.runs.push(run);
        self.runs.last().map_or(&[], |run| &run.picked)
    }

    fn agrees(&self, decider: usize, decode: Option<usize>) -> bool {
        let Pipeline { handler, deciders, .. } = self.pipeline;
        let decider = handler.inputs.deciders.get(decider).copied().flatten();
        let slot = decider.and_then(|decider| deciders.get(usize::from(decider)));
        slot.is_some_and(|slot| slot.plugin.agrees(&self.cycle.of(slot), decode))
    }
}

impl Pipeline {
    /// Lets the profiles choose. The events of the decision are left out.
    pub(super) fn schedule(
        &self,
        cycle: Cycle<'_>,
        candidates: &[usize],
        scratch: &mut Scratch,
        rng: &mut dyn Rng,
    ) -> Decision {
        let preferred = cycle.input.preferred(cycle.request, candidates, cycle.now);
        let runs = scratch.list();
        let mut runner = Runner { pipeline: self, cycle, candidates, preferred, scratch, rng, runs };
        let schedule = self.handler.plugin.schedule(&mut runner).map_err(Box::new);
        let Runner { runs, rng, .. } = runner;
        let mut decision = Decision {
            runs,
            is_stale: self.is_stale(cycle.input, cycle.now),
            ..Decision::without_run(Outcome::Route(Few::new()))
        };
        let routed =
            schedule.and_then(|schedule| self.route(schedule, &cycle, candidates, rng, &mut decision));
        if self.profiles.iter().any(|profile| !profile.served_models.is_empty()) {
            decision.served_models = self.served_models(&decision.runs, &cycle);
        }
        if let Err(rejection) = routed {
            decision.outcome = self.not_routed(*rejection, &decision, &cycle, candidates, rng);
        }
        decision
    }

    /// The effects of filters by lists of models in these runs.
    #[cold]
    #[inline(never)]
    fn served_models(&self, runs: &[ProfileRun], cycle: &Cycle<'_>) -> Vec<ServedModelRun> {
        runs.iter().flat_map(|run| self.profile_of(run).served_model_runs(run, cycle)).collect()
    }

    /// The outcome of a decision that names no endpoint for this reason.
    #[cold]
    #[inline(never)]
    fn not_routed(
        &self,
        rejection: Rejection,
        decision: &Decision,
        cycle: &Cycle<'_>,
        candidates: &[usize],
        rng: &mut dyn Rng,
    ) -> Outcome {
        let is_ineligible =
            rejection == Rejection::filtered_out() && self.is_ineligible(decision, cycle, candidates, rng);
        Outcome::Reject(if is_ineligible { Rejection::no_candidates() } else { rejection })
    }

    /// Whether the filters by eligibility alone leave none of the candidates to the profile that picked none:
    /// no endpoint could serve the request, however idle it is. The EPP's v0.11 (#2631) responds with 503
    /// then, also where the filters are by labels.
    fn is_ineligible(
        &self,
        decision: &Decision,
        cycle: &Cycle<'_>,
        candidates: &[usize],
        rng: &mut dyn Rng,
    ) -> bool {
        let Some(run) = decision.runs.iter().rev().find(|run| run.picked.is_empty()) else { return false };
        let mut eligible = candidates.to_vec();
        let counts = |slot: &&Slot<dyn Filter>| match slot.plugin.eligibility() {
            Eligibility::No => false,
            Eligibility::SinceV011 => self.providers.epp_rules.is_v011(),
            Eligibility::Always => true,
        };
        for slot in self.profile_of(run).filters.iter().filter(counts) {
            slot.plugin.filter(&cycle.of(slot), &mut eligible, rng);
        }
        eligible.is_empty()
    }

    /// Fills in the destinations of a schedule, with headers and reservations.
    fn route(
        &self,
        schedule: Schedule,
        cycle: &Cycle<'_>,
        candidates: &[usize],
        rng: &mut dyn Rng,
        decision: &mut Decision,
    ) -> Result<(), Box<Rejection>> {
        let mut runs = decision.runs.iter().enumerate();
        let picks = |run: &ProfileRun| run.profile == schedule.primary && !run.picked.is_empty();
        let filtered_out = || Box::new(Rejection::filtered_out());
        let (primary, run) = runs.find(|(_, run)| picks(run)).ok_or_else(filtered_out)?;
        let &first = run.picked.first().ok_or_else(filtered_out)?;
        let cached = cycle.prefix_of(self.default_prefixes).blocks(first);
        if cached == 0 && cycle.request.headers.prefers(IF_AVAILABLE) {
            return Err(Box::new(Rejection::not_cached()));
        }
        // A copy: the run keeps its own pick, with which explanations and shadows work.
        let mut endpoints = Few::from_slice(&run.picked);
        if cycle.request.subset.is_hint() {
            endpoints.extend(self.rest_of_hint(run, cycle, rng));
        }
        if let Some(port) = schedule.primary_port {
            (endpoints, decision.ranks) = through_port(port, &endpoints, cycle);
        }
        let stages = self.stages(&decision.runs);
        decision.reservations = self.reservations(cycle, &stages);
        if !self.response_markers.is_empty() {
            decision.response_headers = self.headers_of_stages(cycle, &stages);
        }
        let cache_source = if self.cache_sources.is_empty() {
            None
        } else {
            self.cache_source(cycle, candidates, &stages, primary, rng)
        };
        decision.prompt = prompt_blocks(cycle, first);
        decision.media = media_count(cycle, first);
        decision.primary = Some(primary);
        decision.headers = schedule.headers;
        // Only for one endpoint, because others have other caches. Servers' caches show the ranks.
        if endpoints.len() == 1 && cycle.request.cached.is_some() {
            decision.headers.extend(self.name_rank(cycle, first));
        }
        decision.outcome = Outcome::Route(endpoints);
        if let Some(source) = cache_source {
            let address = cycle.endpoint(source.endpoint).printed_address().to_owned();
            decision.headers.push((CACHE_SOURCE, address));
            decision.cache_source = Some(source);
        }
        Ok(())
    }

    /// The endpoint that another one may copy KV blocks from. Of several producers the last one that names an
    /// endpoint counts, because each writes the same header.
    #[cold]
    #[inline(never)]
    fn cache_source(
        &self,
        cycle: &Cycle<'_>,
        candidates: &[usize],
        stages: &[Stage<'_>],
        primary: usize,
        rng: &mut dyn Rng,
    ) -> Option<CacheSource> {
        let primary = stages.get(primary)?;
        let mut sources = self.cache_sources.iter().rev();
        sources.find_map(|slot| slot.plugin.source(&cycle.of(slot), candidates, stages, primary, rng))
    }

    /// The header that names the rank of the endpoint, unless the client has named one.
    #[cold]
    #[inline(never)]
    fn name_rank(&self, cycle: &Cycle<'_>, endpoint: usize) -> Option<(&'static str, String)> {
        if cycle.request.headers.get(DATA_PARALLEL_RANK).is_some() {
            return None;
        }
        let mut producers = self.prefix_producers.iter();
        let rank = producers.find_map(|slot| slot.plugin.rank(&cycle.of(slot), endpoint))?;
        Some((DATA_PARALLEL_RANK, rank.to_string()))
    }

    /// The endpoints of a subset hint that this run did not choose: first the candidates that its filters
    /// kept, best first, then the avoided endpoints that it left out, rated among themselves.
    ///
    /// Without a hint the proxy balances over the whole pool when all chosen endpoints fail. With a hint it
    /// must not leave the hint, so it gets all of the hint's endpoints as a list, in the order in which it
    /// tries them.
    #[cold]
    #[inline(never)]
    fn rest_of_hint(&self, run: &ProfileRun, cycle: &Cycle<'_>, rng: &mut dyn Rng) -> Vec<usize> {
        let mut rest = not_picked(run, rng);
        let dropped = run.dropped.iter().map(|&(endpoint, _)| endpoint);
        let has_run: Vec<usize> = run.scored.iter().copied().chain(dropped).collect();
        let endpoints = cycle.pool.as_slice().len();
        let avoided = without(candidates(cycle.request, cycle.input), &has_run, endpoints);
        if !avoided.is_empty() {
            let avoided = ProfileRun { profile: run.profile, scored: avoided, ..ProfileRun::default() };
            let mut last = self.profile_of(run).run(avoided, *cycle, rng);
            // The run only orders the avoided endpoints: all of them are listed, its pick included.
            last.picked.clear();
            rest.extend(not_picked(&last, rng));
        }
        rest
    }

    /// The load of a request at the first endpoint of each stage.
    pub(super) fn reservations(&self, cycle: &Cycle<'_>, stages: &[Stage<'_>]) -> Few<Reservation> {
        let estimator = &self.providers.load_estimator;
        let mut reservations = Few::new();
        for Stage { profile, picked } in stages {
            if let Some(&endpoint) = picked.first() {
                let tokens = cycle.request_tokens(endpoint);
                reservations.push(estimator.reservation(endpoint, tokens, *profile == PREFILL));
            }
        }
        reservations
    }

    /// The stages of runs of this pipeline.
    pub(super) fn stages<'a>(&'a self, runs: &'a [ProfileRun]) -> Few<Stage<'a>> {
        let mut stages = Few::new();
        for run in runs {
            stages.push(Stage { profile: &self.profile_of(run).name, picked: &run.picked });
        }
        stages
    }

    /// Headers that name the endpoints of stages to the client.
    #[cold]
    #[inline(never)]
    fn headers_of_stages(&self, cycle: &Cycle<'_>, stages: &[Stage<'_>]) -> Vec<(String, String)> {
        let markers = self.response_markers.iter().filter(|marker| !marker.profile().is_empty());
        let headers = markers.filter_map(|marker| {
            let stage = stages.iter().find(|stage| stage.profile == marker.profile())?;
            Some(marker.response_header(cycle.endpoint(*stage.picked.first()?)))
        });
        headers.collect()
    }
}

/// The endpoints that a run rated and did not pick, best first, equal ones in random order.
fn not_picked(run: &ProfileRun, rng: &mut dyn Rng) -> Vec<usize> {
    let rated = run.scored.iter().zip(&run.totals).filter(|(endpoint, _)| !run.picked.contains(endpoint));
    let (endpoints, totals): (Vec<usize>, Vec<f64>) =
        rated.map(|(&endpoint, &total)| (endpoint, total)).unzip();
    MaxScorePicker::of(NonZeroUsize::MAX).pick(&endpoints, &totals, rng).into_vec()
}

/// The endpoints at this port of the ranks' servers, or the rank where the pool has none, and the rank of
/// each. All ranks of a server share one endpoint, which is listed once, for its first rank: another attempt
/// would go to the same server.
#[cold]
#[inline(never)]
fn through_port(port: NonZeroU16, ranks: &[usize], cycle: &Cycle<'_>) -> (Few<usize>, Vec<usize>) {
    let mut listed = HashSet::new();
    let endpoints = ranks.iter().map(|&rank| {
        let address = (cycle.endpoint(rank).address().ip(), port.get()).into();
        (cycle.pool.index_at(address).unwrap_or(rank), rank)
    });
    endpoints.filter(|(endpoint, _)| listed.insert(*endpoint)).unzip()
}

/// Images, videos and audio that were sent to the endpoint before, by the first producer that remembers them.
fn media_count(cycle: &Cycle<'_>, endpoint: usize) -> MediaCount {
    let matched = cycle.media.matched.first().and_then(|matched| matched.get(endpoint));
    let total = u32::try_from(cycle.media.items.len()).unwrap_or(u32::MAX);
    MediaCount { matched: matched.copied().unwrap_or(0), total }
}

/// Blocks of the prompt that were sent to the endpoint before, by the first prefix producer.
pub(super) fn prompt_blocks(cycle: &Cycle<'_>, endpoint: usize) -> PromptBlocks {
    cycle.prefixes.first().map_or_else(PromptBlocks::default, |matches| PromptBlocks {
        matched: matches.blocks(endpoint),
        total: matches.total,
    })
}
