//! Running profiles for a profile handler.

use crate::cycle::Cycle;
use crate::decision::ProfileRun;
use crate::pipeline::Pipeline;
use crate::plugin::Decider;
use crate::pool::Endpoint;
use crate::rng::Rng;

/// What a profile handler works with: it runs profiles by name and asks deciders.
pub struct Scheduler<'a> {
    pipeline: &'a Pipeline,
    cycle: Cycle<'a>,
    candidates: Vec<usize>,
    /// Those of the candidates to try first, if that is not all.
    unavoided: Option<Vec<usize>>,
    rng: &'a mut dyn Rng,
    runs: Vec<ProfileRun>,
}

/// What a profile handler came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The profile whose choice is the destination; it must have run and picked.
    pub primary: String,
    /// Request headers that tell the destination about the other stages.
    pub headers: Vec<(&'static str, String)>,
    /// The port at which the servers of the primary profile's choice take requests for all their ranks; `None`: each
    /// endpoint takes its own.
    pub primary_port: Option<u16>,
}

impl Schedule {
    /// The choice of this profile is the destination.
    pub fn to(profile: &str) -> Self {
        Self { primary: profile.to_owned(), ..Self::default() }
    }

    /// The request goes to this port of the server, which learns from a header that it is for `rank`.
    pub fn through(&mut self, port: u16, rank: &Endpoint) {
        self.primary_port = Some(port);
        self.headers.push(("x-data-parallel-host-port", rank.printed_address().to_owned()));
    }
}

impl<'a> Scheduler<'a> {
    pub(crate) fn new(
        pipeline: &'a Pipeline,
        cycle: Cycle<'a>,
        candidates: Vec<usize>,
        unavoided: Option<Vec<usize>>,
        rng: &'a mut dyn Rng,
    ) -> Self {
        Self { pipeline, cycle, candidates, unavoided, rng, runs: Vec::new() }
    }

    /// Runs a profile over the candidates: first over those that did not fail a moment ago, and if its filters leave none
    /// of these, over all. The choice, best first; empty when its filters left nothing, or when there is no profile of
    /// this name.
    pub fn run(&mut self, name: &str) -> &[usize] {
        let Some(profile) = self.pipeline.profiles.iter().position(|profile| profile.name == name) else {
            return &[];
        };
        let Self { pipeline, cycle, rng, .. } = self;
        let mut run = |candidates: &[usize]| {
            let candidates = candidates.to_vec();
            pipeline.profiles[profile].run(profile, &pipeline.plugins, *cycle, candidates, *rng)
        };
        let unavoided = self.unavoided.as_deref().map(&mut run);
        let run = unavoided.filter(|run| !run.picked.is_empty()).unwrap_or_else(|| run(&self.candidates));
        self.runs.push(run);
        &self.runs[self.runs.len() - 1].picked
    }

    /// The names of the profiles, in the configuration's order.
    pub fn profiles(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let pipeline = self.pipeline;
        pipeline.profiles.iter().map(|profile| profile.name.as_str())
    }

    /// The decision in progress.
    pub fn cycle(&self) -> Cycle<'a> {
        self.cycle
    }

    /// The decider of this name.
    pub fn decider(&self, name: &str) -> Option<&'a dyn Decider> {
        self.pipeline.plugins.iter().find(|instance| instance.name == name)?.plugin.as_decider()
    }

    pub(crate) fn into_runs(self) -> Vec<ProfileRun> {
        self.runs
    }
}
