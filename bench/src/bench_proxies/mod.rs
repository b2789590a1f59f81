//! Several proxies of one pool, for `make bench-proxies`: such that share their changes through a store or through one agent, beside one
//! proxy, beside proxies that share nothing, and beside the EPP, one for all proxies or one for each.
//!
//! All run in the same Envoy binary with the shipped configuration around them, in front of the same servers and under the same load, one
//! arrangement at a time (but those of [`cost`](mod@cost) run all the time). Each request goes to one of the proxies at random. Each round begins with
//! another arrangement; figures are medians over the rounds.

mod arrangement;
mod choices;
mod cost;
mod failures;
mod fleet;
mod herds;
mod simulation;

pub(crate) use choices::{ALL_ROUNDS, ChoicePlan, OURS, QUICK_ROUND, QUICK_SHARING_ROUNDS, SHARING_ROUNDS};
pub(crate) use cost::CostPlan;
pub(crate) use failures::{FailurePlan, OutagePlan};
pub(crate) use herds::{FEW_SETTINGS, HerdPlan};
pub(crate) use simulation::SimulationPlan;

use crate::report::Progress;
use anyhow::Result;

/// Measures how well proxies choose; returns that part of the document.
pub(crate) async fn choices(plan: ChoicePlan<'_>, progress: &Progress) -> Result<String> {
    let samples = choices::measure(plan, progress).await?;
    Ok(choices::ChoiceTables(&samples).to_string())
}

/// Measures many rounds of one proxy and of such that share; returns that part of the document.
pub(crate) async fn rounds(plan: ChoicePlan<'_>, progress: &Progress) -> Result<String> {
    let samples = choices::measure(plan, progress).await?;
    Ok(choices::RoundsTable { settings: choices::SHARING, samples: &samples }.to_string())
}

/// Measures how often proxies pick the same server; returns that part of the document.
pub(crate) async fn herds(plan: HerdPlan, progress: &Progress) -> Result<String> {
    herds::measure(plan, progress).await
}

/// Kills the store and proxies; returns that part of the document.
pub(crate) async fn failures(plan: FailurePlan, progress: &Progress) -> Result<String> {
    failures::measure(plan, progress).await
}

/// Measures what sharing costs; returns that part of the document.
pub(crate) async fn cost(plan: CostPlan, progress: &Progress) -> Result<String> {
    let samples = cost::measure(plan, progress).await?;
    Ok(cost::CostTable(&samples).to_string())
}

/// Simulates how well proxies choose; returns that part of the document.
pub(crate) fn simulation(plan: SimulationPlan, progress: &Progress) -> Result<String> {
    simulation::measure(plan, progress)
}
