//! The store is killed under load, and comes back empty: which requests are lost, and when the servers' caches are used as before.

use crate::bench_proxies::arrangement::Arrangement;
use crate::bench_proxies::choices::LOAD;
use crate::bench_proxies::fleet::{Fleet, FleetPlan};
use crate::load::capacity;
use crate::load::schedule::{Outcome, Schedule};
use crate::load::workload::Workload;
use crate::report::Progress;
use crate::timed_servers::{SERVERS, TimedServers, cached_share, counts_since};
use anyhow::{Context, Result};
use endpoint_picker_harness::Filter;
use endpoint_picker_model_server::PrefixCacheCounts;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const WORKLOAD: Workload = Workload::Conversations;
/// How often the servers' counts are read.
const SAMPLE_EVERY: Duration = Duration::from_millis(200);
/// The time over which a share of cached tokens is taken.
const WINDOW: Duration = Duration::from_secs(3);

/// The parameters of an outage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutagePlan {
    pub(crate) proxies: usize,
    /// How long requests are sent before anything is measured.
    pub(crate) warm_up: Duration,
    /// How long they are sent before the store is killed.
    pub(crate) before: Duration,
    /// How long the store is away.
    pub(crate) away: Duration,
    /// How long requests are sent after it is back.
    pub(crate) after: Duration,
    /// Determines all requests, their times and their proxies.
    pub(crate) seed: u64,
    pub(crate) filter: Filter,
}

/// What an outage did.
#[derive(Clone, Debug)]
pub(crate) struct OutageResult {
    pub(crate) outcome: Outcome,
    /// Shares of prompt tokens that the servers had cached: before, in the last seconds of the outage, and in the last seconds of the run.
    pub(crate) cached: [f64; 3],
    /// From the moment at which the store answers again until the share is as high as it was at its lowest before; `None`: not in this run.
    pub(crate) back_after: Option<Duration>,
}

/// The servers' counts at a moment.
type CacheSample = (Instant, PrefixCacheCounts);

impl OutagePlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        self.lasting() + Duration::from_secs(5)
    }

    fn lasting(&self) -> Duration {
        self.warm_up + self.before + self.away + self.after
    }
}

/// Puts proxies that share through a store under load, and takes the store away.
pub(crate) async fn measure(plan: OutagePlan, progress: &Progress) -> Result<OutageResult> {
    let servers = TimedServers::start(SERVERS, WORKLOAD.service_times())?;
    let endpoints = servers.addresses();
    let OutagePlan { proxies, filter, seed, .. } = plan;
    let arrangement = Arrangement::Store;
    let mut fleet = Fleet::start(FleetPlan {
        arrangement,
        proxies,
        filter,
        endpoints: &endpoints,
        rules: None,
        epp: None,
    })
    .await?;
    let per_second = capacity::of(WORKLOAD, SERVERS, seed) * LOAD;
    let schedule = Schedule::poisson(&mut WORKLOAD.requests(seed), per_second, plan.lasting(), seed);

    let listeners = fleet.listeners();
    let begin = Instant::now();
    let end = CancellationToken::new();
    let load = async {
        let outcome = schedule.send(&listeners).await;
        end.cancel();
        outcome
    };
    let outage = async {
        tokio::time::sleep_until((begin + plan.warm_up + plan.before).into()).await;
        progress.print("the store is killed");
        let store = fleet.store_mut()?;
        store.kill();
        let killed = Instant::now();
        tokio::time::sleep_until((killed + plan.away).into()).await;
        store.restart().await?;
        progress.print("the store is back, empty");
        anyhow::Ok((killed, Instant::now()))
    };
    let (outcome, outage, samples) = tokio::join!(load, outage, sampled(&servers, &end));
    let (outcome, (killed, back)) = (outcome?, outage?);
    fleet.check_running()?;
    for failure in outcome.failures.iter().take(3) {
        eprintln!("store killed: not served: {failure}");
    }

    let last = begin + plan.lasting();
    let measured = begin + plan.warm_up;
    let lowest = windows(&samples).filter(|(from, to, _)| *from >= measured && *to <= killed);
    let lowest = lowest.map(|(_, _, share)| share).reduce(f64::min).context("a window before the outage")?;
    // A window that begins after the store is back and is good: its beginning counts.
    let back_after = windows(&samples).find(|(from, _, share)| *from >= back && *share >= lowest);
    let of = |from, to| share_between(&samples, from, to).context("a sample");
    Ok(OutageResult {
        outcome,
        cached: [
            of(measured, killed)?,
            of(killed + plan.away * 2 / 3, back)?,
            of(back + plan.after / 2, last)?,
        ],
        back_after: back_after.map(|(from, _, _)| from - back),
    })
}

/// The servers' counts until the end.
async fn sampled(servers: &TimedServers, end: &CancellationToken) -> Vec<CacheSample> {
    let mut samples = Vec::new();
    while end.run_until_cancelled(tokio::time::sleep(SAMPLE_EVERY)).await.is_some() {
        samples.push((Instant::now(), servers.prefix_cache()));
        servers.forget_requests();
    }
    samples
}

/// All windows of [`WINDOW`]: beginning, end, and the share of cached tokens.
fn windows(samples: &[CacheSample]) -> impl Iterator<Item = (Instant, Instant, f64)> {
    samples.iter().enumerate().filter_map(|(index, &(from, first))| {
        let &(to, last) = samples[index..].iter().find(|(at, _)| *at >= from + WINDOW)?;
        let share = cached_share(counts_since(last, first));
        share.is_finite().then_some((from, to, share))
    })
}

fn share_between(samples: &[CacheSample], from: Instant, to: Instant) -> Option<f64> {
    let (_, first) = *samples.iter().find(|(at, _)| *at >= from)?;
    let (_, last) = *samples.iter().rev().find(|(at, _)| *at <= to)?;
    Some(cached_share(counts_since(last, first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample each second; tokens looked up and found since the one before.
    fn samples(seconds: &[(u64, u64)]) -> Vec<CacheSample> {
        let begin = Instant::now();
        let mut counts = PrefixCacheCounts::default();
        let sample = |(second, &(queried, hit)): (usize, &(u64, u64))| {
            counts = PrefixCacheCounts { queried: counts.queried + queried, hit: counts.hit + hit };
            (begin + Duration::from_secs(second as u64), counts)
        };
        seconds.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn a_window_has_the_share_of_its_time() {
        let samples = samples(&[(9, 9), (10, 5), (10, 6), (10, 7), (20, 1)]);
        let found: Vec<_> = windows(&samples).map(|(from, to, share)| (to - from, share)).collect();
        assert_eq!(found, [(WINDOW, 0.6), (WINDOW, 14.0 / 40.0)]);
        let whole = share_between(&samples, samples[0].0, samples[4].0);
        assert_eq!(whole, Some(19.0 / 50.0));
    }
}
