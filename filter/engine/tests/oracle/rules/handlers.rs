//! Which profiles run, and which of them names the destination.

use std::collections::BTreeMap;

use super::cycle::Cycle;
use super::engine::Rejection;
use super::filters::filter;
use super::pickers;
use super::plan::{Plan, Plugin, Profile};
use super::scorers::shares;

/// A profile that ran.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) profile: String,
    /// Endpoints that the filters left.
    pub(crate) kept: Vec<usize>,
    /// Scores by scorer, then by endpoint kept.
    pub(crate) scores: Vec<Vec<f64>>,
    pub(crate) totals: Vec<f64>,
    pub(crate) picked: Vec<usize>,
}

/// The primary profile and headers for the destination, or why there is no destination.
pub(super) type Schedule = Result<(String, Vec<(String, String)>), Rejection>;

pub(super) struct Scheduling<'c> {
    pub(super) plan: &'c Plan,
    pub(super) cycle: &'c Cycle<'c>,
    pub(super) candidates: Vec<usize>,
    /// The choice of the pickers, run by run: random choices are not predicted.
    pub(super) picks: &'c [Vec<usize>],
    pub(super) runs: Vec<Run>,
    /// The endpoints that each filter and scorer last rated.
    pub(super) rated: BTreeMap<String, Vec<usize>>,
}

impl Scheduling<'_> {
    /// Fails where what was picked cannot be.
    pub(super) fn schedule(&mut self) -> Result<Schedule, String> {
        let handler = &self.plan.handler;
        let names: Vec<&str> = self.plan.profiles.iter().map(|profile| profile.name.as_str()).collect();
        match handler.kind.as_str() {
            "single-profile-handler" => {
                self.run(names[0])?;
                Ok(Ok((names[0].to_owned(), vec![])))
            }
            "header-profile-handler" => {
                let named = self.cycle.header("epp-profile").unwrap_or_default();
                let chosen = if named.trim().is_empty() { "decode" } else { named.trim() };
                let chosen = if let [only] = names[..] { only } else { chosen };
                if !names.contains(&chosen) {
                    return Ok(Err(Rejection { status: 429, reason: None }));
                }
                self.run(chosen)?;
                Ok(Ok((chosen.to_owned(), vec![])))
            }
            _ => self.disaggregate(handler),
        }
    }

    fn disaggregate(&mut self, handler: &Plugin) -> Result<Schedule, String> {
        let decider = |stage: &str| handler.value("deciders")[stage].as_str();
        let (prefill, encode);
        let decode;
        if handler.text("stageOrder", "decode-first") == "decode-first" {
            decode = self.run("decode")?;
            if decode.is_empty() {
                return Ok(Err(self.drained("decode")));
            }
            encode = self.run_if(decider("encode"), "encode", decode.first().copied())?;
            self.cycle.peer.set(decode.first().copied());
            prefill = self.run_if(decider("prefill"), "prefill", decode.first().copied())?;
            self.cycle.peer.set(None);
        } else {
            prefill = self.run("prefill")?;
            encode = self.run_if(decider("encode"), "encode", None)?;
            self.cycle.peer.set(prefill.first().copied());
            decode = self.run("decode")?;
            self.cycle.peer.set(None);
        }
        if decode.is_empty() {
            return Ok(Err(self.drained("decode")));
        }
        let address =
            |&endpoint: &usize| self.cycle.situation.pool.as_slice()[endpoint].address().to_string();
        let addresses = |endpoints: &[usize]| endpoints.iter().map(address).collect::<Vec<_>>().join(",");
        let mut headers = Vec::new();
        if !prefill.is_empty() {
            headers.push(("x-prefiller-host-port".to_owned(), addresses(&prefill[..1])));
        }
        if !encode.is_empty() {
            headers.push(("x-encoder-hosts-ports".to_owned(), addresses(&encode)));
        }
        Ok(Ok(("decode".to_owned(), headers)))
    }

    /// The rejection where a profile's filters leave nothing: 503, if those by models, and by the rules of
    /// v0.11 by labels, alone do so.
    pub(super) fn drained(&self, profile: &str) -> Rejection {
        let by_labels = ["label-selector-filter", "decode-filter", "prefill-filter", "encode-filter"];
        let profile = self.plan.profiles.iter().find(|own| own.name == profile).unwrap();
        let counts =
            |kind: &str| kind == "served-model-filter" || self.plan.is_v011 && by_labels.contains(&kind);
        let filters = profile.filters.iter().filter(|plugin| counts(&plugin.kind));
        let left = filters.fold(self.candidates.clone(), |left, plugin| filter(self.cycle, plugin, &left));
        if left.is_empty() {
            Rejection { status: 503, reason: Some("rejected-no-endpoints") }
        } else {
            Rejection { status: 429, reason: Some("rejected-saturated") }
        }
    }

    fn run_if(
        &mut self,
        decider: Option<&str>,
        profile: &str,
        decode: Option<usize>,
    ) -> Result<Vec<usize>, String> {
        let plugins = &self.plan.plugins;
        let agrees = decider.is_some_and(|name| {
            let decider = plugins.iter().find(|plugin| plugin.name == name).unwrap();
            self.agrees(decider, decode)
        });
        if agrees { self.run(profile) } else { Ok(vec![]) }
    }

    fn agrees(&self, decider: &Plugin, decode: Option<usize>) -> bool {
        match decider.kind.as_str() {
            "always-disagg-pd-decider" => true,
            "always-disagg-multimodal-decider" => self.cycle.has_image(),
            _ => {
                let uncached_at_least = decider.number("nonCachedTokens", 0.0);
                let input = self.cycle.tokens() as f64;
                let Some(decode) = decode else { return false };
                let cached = self.cycle.matches(decider.prefixes()).tokens(decode) as f64;
                uncached_at_least > 0.0
                    && input >= decider.number("promptTokens", 0.0)
                    && input >= uncached_at_least
                    && input - cached >= uncached_at_least
            }
        }
    }

    /// Endpoints that the profile's filters leave of these, and which of them each filter rated.
    fn filter(&self, profile: &Profile, mut kept: Vec<usize>) -> (BTreeMap<String, Vec<usize>>, Vec<usize>) {
        let mut rated = BTreeMap::new();
        for plugin in &profile.filters {
            if !kept.is_empty() {
                rated.insert(plugin.name.clone(), kept.clone());
                kept = filter(self.cycle, plugin, &kept);
            }
        }
        (rated, kept)
    }

    /// After the choice come all others of the hint that the filters keep, best first, and last those that
    /// failed recently.
    pub(super) fn check_rest_of_hint(&self, run: &Run, rest: &[usize]) -> Result<(), String> {
        let profile = self.plan.profiles.iter().find(|profile| profile.name == run.profile).unwrap();
        let others = |endpoint: &usize| !run.picked.contains(endpoint);
        let kept: Vec<usize> = run.kept.iter().copied().filter(others).collect();
        let total = |endpoint: &usize| run.totals[run.kept.iter().position(|kept| kept == endpoint).unwrap()];
        let totals: Vec<f64> = kept.iter().map(total).collect();
        let (first, last) = rest.split_at_checked(kept.len()).ok_or("the list is too short")?;
        pickers::check_order(&kept, &totals, first)?;

        let failed = |endpoint: &usize| self.cycle.situation.avoided[*endpoint];
        let failed: Vec<usize> = self.candidates.iter().copied().filter(failed).collect();
        let was_left_out = !run.kept.iter().any(|kept| failed.contains(kept));
        let (_, kept) = self.filter(profile, if was_left_out { failed } else { vec![] });
        let mut totals = vec![0.0; kept.len()];
        for (plugin, weight) in profile.scorers.iter().filter(|_| !kept.is_empty()) {
            for (total, score) in totals.iter_mut().zip(shares(self.cycle, plugin, &kept)) {
                *total += score * weight;
            }
        }
        pickers::check_order(&kept, &totals, last)
    }

    fn run(&mut self, name: &str) -> Result<Vec<usize>, String> {
        let profile = self.plan.profiles.iter().find(|profile| profile.name == name).unwrap();
        // Endpoints that failed recently come into it only if the filters leave no other.
        let fine = |endpoint: &usize| !self.cycle.situation.avoided[*endpoint];
        let all = self.candidates.clone();
        let unavoided: Vec<usize> = all.iter().copied().filter(fine).collect();
        let (mut rated, mut kept) = self.filter(profile, unavoided);
        if kept.is_empty() {
            (rated, kept) = self.filter(profile, all);
        }
        self.rated.extend(rated);
        let mut run = Run { profile: name.to_owned(), kept, scores: vec![], totals: vec![], picked: vec![] };
        if !run.kept.is_empty() {
            run.totals = vec![0.0; run.kept.len()];
            for (plugin, weight) in &profile.scorers {
                self.rated.insert(plugin.name.clone(), run.kept.clone());
                let scores = shares(self.cycle, plugin, &run.kept);
                for (total, score) in run.totals.iter_mut().zip(&scores) {
                    *total += score * weight;
                }
                run.scores.push(scores);
            }
            run.picked = self.picks.get(self.runs.len()).cloned().unwrap_or_default();
            pickers::check(&profile.picker, &run.kept, &run.totals, &run.picked)
                .map_err(|why| format!("{name}: {}: {why}", profile.picker.kind))?;
        }
        let picked = run.picked.clone();
        self.runs.push(run);
        Ok(picked)
    }
}
