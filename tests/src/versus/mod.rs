//! The picker against what else there is, for `make bench-epp`: (A) Envoy alone with round robin, (B) our filter with its agent,
//! (C) the EPP's endpoint picker over `ext_proc`.
//!
//! All three run in the same Envoy binary with the shipped configuration around them, in front of the same model servers and
//! under the same load, one at a time: an idle picker works as well, and what the others do must not disturb the one that is
//! measured. Rounds begin with another one each time; figures are medians over the rounds.

mod capacity;
mod contender;
mod cost;
mod cost_report;
pub mod document;
mod intervals;
mod machine;
mod markdown;
mod open_loop;
mod progress;
mod quality;
mod quality_report;
mod scale;
mod workload;

pub use cost::Plan as CostPlan;
pub use machine::Machine;
pub use progress::Progress;
pub use quality::{ALL_ROUNDS, INTERVAL_ROUNDS, Plan as QualityPlan, QUICK_ROUND};
pub use scale::Plan as ScalePlan;

use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// Measures what a request costs and gives that part of the report.
pub async fn cost(plan: CostPlan, epp: &Path, progress: &Progress) -> Result<String> {
    let samples = cost::measure(plan, epp, progress).await?;
    Ok(cost_report::Report(&samples).to_string())
}

/// Measures what the choices are worth and gives that part of the report.
pub async fn quality(plan: QualityPlan, epp: &Path, progress: &Progress) -> Result<String> {
    let found = quality::measure(plan, epp, progress).await?;
    Ok(quality_report::Report(&found).to_string())
}

/// Measures what rarer scrapes cost in choices, without the EPP, and gives that part of the report.
pub async fn intervals(plan: QualityPlan, progress: &Progress) -> Result<String> {
    Ok(intervals::measure(plan, progress).await?.to_string())
}

/// How long [`intervals`] should take.
pub fn intervals_expected(plan: &QualityPlan) -> Duration {
    intervals::expected(plan)
}

/// Measures what the size of the pool does and gives that part of the report.
pub async fn scale(plan: ScalePlan, epp: &Path, progress: &Progress) -> Result<String> {
    Ok(scale::measure(plan, epp, progress).await?.to_string())
}
