//! Explains the decisions of a pipeline.

use core::time::Duration;

use super::{Pipeline, Prepared, Scratch};
use crate::decision::explanation::{EndpointExplanation, Explanation, Score, Verdict};
use crate::decision::{Decision, ProfileRun, ScoreDetail};
use crate::input::DecisionInput;
use crate::input::cycle::Cycle;
use crate::input::prediction::Predictions;
use crate::input::{Exclusion, exclusion};
use crate::request::Request;

impl Pipeline {
    /// Explains a decision of this pipeline for this request and input.
    pub fn explain(
        &self,
        decision: &Decision,
        request: &Request<'_>,
        input: &DecisionInput<'_>,
        now: Duration,
    ) -> Explanation {
        // Without a primary run, the last one is the one that failed.
        let run = decision.primary_run().or(decision.runs.last());
        let keeper = input.keeper(request, now);
        let verdict = |index| match exclusion(request, input, index) {
            Some(exclusion) => Verdict::Excluded(exclusion),
            None => match run.map_or(Verdict::Candidate, |run| self.verdict(run, index, &decision.details)) {
                Verdict::Candidate if keeper.is_some_and(|keeper| keeper != index) => {
                    Verdict::Excluded(Exclusion::StoredElsewhere)
                }
                Verdict::Candidate if input.avoids(index, now) || input.has_failed(request, index) => {
                    Verdict::Excluded(Exclusion::Avoided)
                }
                verdict => verdict,
            },
        };
        let endpoints = input.pool.as_slice().iter().enumerate().map(|(index, endpoint)| {
            let predictions = decision.predictions.iter().filter(|(predicted, _)| *predicted == index);
            EndpointExplanation {
                address: endpoint.printed_address().to_owned(),
                predictions: predictions.map(|(_, text)| text.clone()).collect(),
                verdict: verdict(index),
            }
        });
        Explanation {
            endpoints: endpoints.collect(),
            is_stale: decision.is_stale,
            cache_source: decision.cache_source,
            session: decision.session,
            agent_header: self.agent_identity(request.headers).map(|(header, _)| header.to_owned()),
            picker: run.map(|run| self.profile_of(run).picker.name.to_string()),
            outcome: decision.outcome.clone(),
        }
    }

    /// Adds predicted latencies, room for sessions, and what the scores of a decision consist of, for its
    /// explanation. The request was prepared with this input, and decided by it.
    pub fn add_details(&self, decision: &mut Decision, prepared: &Prepared<'_>, input: &DecisionInput<'_>) {
        let cycle = self.cycle(prepared.request, input, prepared.now);
        let lookup = self.look_up(&cycle, prepared, &mut Scratch::default());
        let candidates = &*prepared.candidates(input);
        let cycle = lookup.seen_by(cycle);
        let predictions = self.predict(&cycle, candidates);
        let cycle = Cycle { predictions: &predictions, ..cycle };
        decision.predictions = predictions.iter().flatten().flat_map(texts).collect();
        decision.predictions.extend(self.match_sources(&cycle, candidates));
        decision.predictions.extend(self.room_texts(&cycle, candidates));
        let Some(run) = decision.primary_run() else { return };
        let scorers = self.profile_of(run).scorers.iter().enumerate();
        let details = scorers.flat_map(|(scorer, (slot, _))| {
            let cycle = cycle.of(slot);
            run.scored.iter().filter_map(move |&endpoint| {
                let text = slot.plugin.explain(&cycle, &run.scored, endpoint)?;
                Some(ScoreDetail { scorer, endpoint, text })
            })
        });
        decision.details = details.collect();
    }

    /// The blocks of the prompt that each candidate has and their source, by each producer with several
    /// sources, in words.
    fn match_sources<'a>(
        &'a self,
        cycle: &'a Cycle<'a>,
        candidates: &'a [usize],
    ) -> impl Iterator<Item = (usize, String)> + 'a {
        // Without a prompt no producer has matches.
        self.prefix_producers.iter().zip(cycle.prefixes).flat_map(move |(slot, matches)| {
            let cycle = cycle.of(slot);
            candidates.iter().filter_map(move |&endpoint| {
                let source = slot.plugin.match_source(&cycle, matches, endpoint)?.as_str();
                let (blocks, total) = (matches.blocks(endpoint), matches.total);
                Some((endpoint, format!("{}: {blocks} of {total} blocks {source}", slot.name)))
            })
        })
    }

    /// A candidate's part in a run.
    fn verdict(&self, run: &ProfileRun, endpoint: usize, details: &[ScoreDetail]) -> Verdict {
        let profile = self.profile_of(run);
        let dropped = run.dropped.iter().find(|(dropped, _)| *dropped == endpoint);
        if let Some(filter) = dropped.and_then(|&(_, filter)| profile.filters.get(filter)) {
            return Verdict::Dropped(filter.name.to_string());
        }
        let scored = run.scored.iter().zip(&run.totals).enumerate();
        let Some((at, (_, &total))) = scored.into_iter().find(|(_, (scored, _))| **scored == endpoint) else {
            return Verdict::Candidate;
        };
        // `scored` is not empty, because the endpoint is in it: `chunks_exact` would panic on 0.
        let rows = run.scores.chunks_exact(run.scored.len());
        let scorers = profile.scorers.iter().zip(rows).enumerate();
        let scores = scorers.filter_map(|(scorer, ((slot, weight), row))| {
            let detail = details.iter().find(|known| (known.scorer, known.endpoint) == (scorer, endpoint));
            Some(Score {
                scorer: slot.name.to_string(),
                score: *row.get(at)?,
                weight: *weight,
                detail: detail.map(|detail| detail.text.clone()),
            })
        });
        let place = run.picked.iter().position(|&picked| picked == endpoint);
        Verdict::Scored { scores: scores.collect(), total, place }
    }
}

/// The predictions for each candidate in words.
fn texts<'a>(of: &'a Predictions<'_>) -> impl Iterator<Item = (usize, String)> + 'a {
    let predicted = of.by_endpoint.iter().enumerate();
    predicted.filter_map(|(endpoint, it)| Some((endpoint, format!("{}: {}", of.producer, it.as_ref()?))))
}
