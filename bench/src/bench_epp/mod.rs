//! The picker beside the EPP's and beside round robin, for `make bench-epp`: Envoy alone with round robin, both forms of our filter with its
//! agent, and the EPP over `ext_proc`.
//!
//! All run in the same Envoy binary with the shipped configuration around them, in front of the same model servers and
//! under the same load, one at a time: an idle picker takes processor time too, and must not disturb the measured one. Each round
//! begins with another one; figures are medians over the rounds.

mod choosing;
mod cost;
mod cost_cells;
mod cost_report;
mod flow_control;
mod intervals;
mod quality;
mod quality_report;
mod rules;
mod running;
mod scale;
mod shadow;
mod variant;

pub(crate) use cost::CostPlan;
pub(crate) use flow_control::FlowControlPlan;
pub(crate) use quality::{ALL_ROUNDS, CHOOSING_ROUND, INTERVAL_ROUNDS, QUICK_ROUND, QualityPlan};
pub(crate) use scale::ScalePlan;
pub(crate) use shadow::ShadowPlan;

use crate::report::Progress;
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// Measures the cost of a request; returns that part of the document, and the chart of it.
pub(crate) async fn cost(plan: CostPlan, epp: &Path, progress: &Progress) -> Result<(String, String)> {
    let samples = cost::measure(plan, epp, progress).await?;
    Ok((cost_report::CostTables(&samples).to_string(), cost_report::chart(&samples)))
}

/// Measures the quality of the choices; returns that part of the document.
pub(crate) async fn quality(plan: QualityPlan, epp: &Path, progress: &Progress) -> Result<String> {
    let results = quality::measure(plan, epp, progress).await?;
    Ok(quality_report::QualityTables(&results).to_string())
}

/// Measures the quality of the choices at several scrape intervals, without the EPP; returns the table.
pub(crate) async fn intervals(plan: QualityPlan, progress: &Progress) -> Result<String> {
    Ok(intervals::measure(plan, progress).await?.to_string())
}

/// Measures the configurations of `examples/choosing`, without the EPP; returns the tables.
pub(crate) async fn choosing(plan: QualityPlan, progress: &Progress) -> Result<String> {
    Ok(choosing::measure(plan, progress).await?.to_string())
}

/// Expected time of [`choosing()`].
pub(crate) fn choosing_expected(plan: &QualityPlan) -> Duration {
    choosing::expected(plan)
}

/// Measures our filter as the shadow of the EPP; returns the table.
pub(crate) async fn shadow(plan: ShadowPlan, epp: &Path, progress: &Progress) -> Result<String> {
    shadow::measure(plan, epp, progress).await
}

/// Measures flow control beside the EPP's; returns the tables.
pub(crate) async fn flow_control(plan: FlowControlPlan, epp: &Path, progress: &Progress) -> Result<String> {
    flow_control::measure(plan, epp, progress).await
}

/// Expected time of [`intervals()`].
pub(crate) fn intervals_expected(plan: &QualityPlan) -> Duration {
    intervals::expected(plan)
}

/// Measures the effect of the pool's size; returns that part of the document.
pub(crate) async fn scale(plan: ScalePlan, epp: &Path, progress: &Progress) -> Result<String> {
    Ok(scale::measure(plan, epp, progress).await?.to_string())
}
