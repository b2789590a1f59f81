//! How well several proxies choose: the share of prompt tokens that the servers had cached, and the time to the first token.

use super::fleet::{Arrangement, Fleet, FleetPlan};
use crate::epp::rules::Rules;
use crate::schedule::{Outcome, Schedule};
use crate::timed_servers::{SERVERS, TimedServers, cached_share, counts_since};
use anyhow::Result;
use endpoint_picker_bench::in_turns::in_turns;
use endpoint_picker_bench::report::Progress;
use endpoint_picker_harness::Filter;
use endpoint_picker_model_server::PrefixCacheCounts;
use endpoint_picker_simulation::capacity;
use endpoint_picker_simulation::workload::Workload;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Fraction of the servers' capacity.
pub(crate) const LOAD: f64 = 0.8;
/// The workloads whose prompts begin alike.
pub(crate) const WORKLOADS: [Workload; 2] = [Workload::Conversations, Workload::SystemPrompts];
/// Starting and ending a fleet, and the answers in flight after each phase, take about this long.
const AROUND: Duration = Duration::from_millis(5_500);
const MAX_FAILURES_SHOWN: usize = 3;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChoicePlan<'a> {
    /// The settings of each round; each round has a seed of its own.
    pub(crate) rounds: &'static [Round],
    /// How long requests are sent before, to fill the caches.
    pub(crate) warm_up: Duration,
    /// How long they are sent then.
    pub(crate) phase: Duration,
    /// Determines all requests, their times and their proxies.
    pub(crate) seed: u64,
    pub(crate) filter: Filter,
    /// The rules of all pickers.
    pub(crate) rules: Rules,
    /// The EPP's binary. Without it the settings that have an EPP are left out.
    pub(crate) epp: Option<&'a Path>,
}

/// The arrangement of pickers, and the number of proxies.
pub(crate) type Setting = (Arrangement, usize);
/// The settings of a round, in groups.
type Round = &'static [&'static [Setting]];

pub(crate) const ONE: Setting = (Arrangement::Apart, 1);

/// Minimum of cached prompt tokens compared with one proxy, for proxies that share.
pub(crate) const MIN_OF_ONE: f64 = 0.98;
/// Maximum p90 to the first token compared with one proxy.
pub(crate) const MAX_OF_ONE: f64 = 1.05;

/// Whether cached tokens and the p90, both divided by those of one proxy, reach the aims.
pub(crate) fn is_as_good([cached, p90]: [f64; 2]) -> bool {
    cached >= MIN_OF_ONE && p90 <= MAX_OF_ONE
}

/// All of ours: one proxy, and several that share and that do not.
const OURS: &[Setting] = &[
    ONE,
    (Arrangement::Store, 2),
    (Arrangement::OneAgent, 2),
    (Arrangement::Apart, 2),
    (Arrangement::Store, 4),
    (Arrangement::OneAgent, 4),
    (Arrangement::Apart, 4),
    (Arrangement::Store, 8),
    (Arrangement::OneAgent, 8),
    (Arrangement::Apart, 8),
];
const EPPS: &[Setting] = &[
    (Arrangement::OneEpp, 1),
    (Arrangement::OneEpp, 2),
    (Arrangement::OwnEpps, 2),
    (Arrangement::OneEpp, 4),
    (Arrangement::OwnEpps, 4),
    (Arrangement::OneEpp, 8),
    (Arrangement::OwnEpps, 8),
];
const FEW: &[Setting] = &[
    ONE,
    (Arrangement::Store, 4),
    (Arrangement::OneAgent, 4),
    (Arrangement::Apart, 4),
    (Arrangement::OneEpp, 4),
    (Arrangement::OwnEpps, 4),
];
/// Two rounds, one of them with the EPP, within the time of a run.
pub(crate) const ALL_ROUNDS: &[Round] = &[&[OURS, EPPS], &[OURS]];
/// One and four proxies, once.
pub(crate) const QUICK_ROUND: &[Round] = &[&[FEW]];

/// The figures of one setting under one workload.
#[derive(Clone, Debug)]
pub(crate) struct ChoiceSample {
    pub(crate) workload: Workload,
    pub(crate) setting: Setting,
    pub(crate) outcome: Outcome,
    pub(crate) cache: PrefixCacheCounts,
    /// Bytes that the store received for each request.
    pub(crate) stored: Option<f64>,
}

impl ChoicePlan<'_> {
    /// The settings of a round that can be measured.
    fn settings(&self, groups: Round) -> Vec<Setting> {
        let mut settings = groups.concat();
        settings.retain(|(arrangement, _)| self.epp.is_some() || !arrangement.has_epp());
        settings
    }

    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let turns: usize =
            self.rounds.iter().map(|groups| self.settings(groups).len() * WORKLOADS.len()).sum();
        (self.warm_up + self.phase + AROUND) * u32::try_from(turns).unwrap_or(u32::MAX)
    }
}

/// Measures every setting in turns.
pub(crate) async fn measure(plan: ChoicePlan<'_>, progress: &Progress) -> Result<Vec<ChoiceSample>> {
    let mut samples = Vec::new();
    for (round, groups) in (0..).zip(plan.rounds) {
        let settings = plan.settings(groups);
        for workload in WORKLOADS {
            let per_second = capacity::of(workload, SERVERS, plan.seed) * LOAD;
            let seed = plan.seed + u64::from(round);
            let mut requests = workload.requests(seed);
            let schedules = [plan.warm_up, plan.phase]
                .map(|lasting| Schedule::poisson(&mut requests, per_second, lasting, seed));
            for setting in in_turns(&settings, round) {
                let sample = turn(plan, workload, setting, &schedules).await?;
                progress.print(&format!("round {}: {sample}", round + 1));
                samples.push(sample);
            }
        }
    }
    Ok(samples)
}

/// One setting in front of servers with empty caches.
async fn turn(
    plan: ChoicePlan<'_>,
    workload: Workload,
    setting: Setting,
    [warm_up, measured]: &[Schedule; 2],
) -> Result<ChoiceSample> {
    let servers = TimedServers::start(SERVERS, workload.service_times())?;
    let endpoints = servers.addresses();
    let (arrangement, proxies) = setting;
    let mut fleet = Fleet::start(FleetPlan {
        arrangement,
        proxies,
        filter: plan.filter,
        endpoints: &endpoints,
        rules: plan.rules,
        epp: plan.epp,
    })
    .await?;
    warm_up.send(&fleet.listeners()).await?;
    servers.forget_requests();
    let (cache, stored) = (servers.prefix_cache(), received(&fleet).await?);
    let outcome = measured.send(&fleet.listeners()).await?;
    let cache = counts_since(servers.prefix_cache(), cache);
    let stored = received(&fleet).await?.zip(stored).map(|(now, before)| {
        let requests = outcome.first_byte.len() + outcome.failures.len();
        (now - before) as f64 / requests as f64
    });
    fleet.check_running()?;
    for failure in outcome.failures.iter().take(MAX_FAILURES_SHOWN) {
        eprintln!("{arrangement}, {proxies} proxies, {workload}: not served: {failure}");
    }
    Ok(ChoiceSample { workload, setting, outcome, cache, stored })
}

async fn received(fleet: &Fleet) -> Result<Option<u64>> {
    match fleet.store() {
        Some(store) => store.received().await.map(Some),
        None => Ok(None),
    }
}

impl ChoiceSample {
    /// Fraction of the prompt tokens that the servers had cached.
    pub(crate) fn cached(&self) -> f64 {
        cached_share(self.cache)
    }

    /// Milliseconds to the first token within which nine of ten requests had it.
    pub(crate) fn p90(&self) -> f64 {
        self.outcome.percentile(0.9)
    }
}

impl fmt::Display for ChoiceSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workload, setting: (arrangement, proxies), outcome, stored, .. } = self;
        write!(
            f,
            "{workload}, {proxies} × {arrangement}: {:.1} % cached, p90 {:.0} ms, {} failed",
            self.cached() * 100.0,
            self.p90(),
            outcome.failures.len()
        )?;
        stored.map_or(Ok(()), |bytes| write!(f, ", {bytes:.0} bytes of a request to the store"))
    }
}
