//! The configurations of `examples/choosing` beside each other, for `make bench-choosing`: which one to choose for which load.

mod tables;

use super::quality::{QualityPlan, QualitySample, QualityTurn, phases};
use super::rules::Rules;
use super::variant::{USUAL_INTERVAL, Variant};
use crate::in_turns::in_turns;
use crate::load::capacity;
use crate::load::workload::Workload;
use crate::report::Progress;
use crate::timed_servers::SERVERS;
use anyhow::Result;
use endpoint_picker_harness::Filter;
use std::time::Duration;

/// The configurations, by the names of their files; the first is the EPP's default. Only the native module has flow control.
pub(super) const CONFIGURATIONS: [&str; 5] = ["default", "token-aware", "lora", "session", "flow-control"];

/// The samples of every configuration.
#[derive(Debug)]
pub(crate) struct Choices {
    plan: QualityPlan,
    samples: Vec<(&'static str, QualitySample)>,
}

/// How long [`measure`] should take.
pub(crate) fn expected(plan: &QualityPlan) -> Duration {
    let turns = plan.rounds.iter().copied().flatten().map(|(_, loads)| plan.turn(loads));
    let each = u32::try_from(CONFIGURATIONS.len() * Workload::ALL.len()).unwrap_or(u32::MAX);
    turns.sum::<Duration>() * each
}

/// Measures every configuration in turns.
pub(crate) async fn measure(plan: QualityPlan, progress: &Progress) -> Result<Choices> {
    let mut choices = Choices { plan, samples: Vec::new() };
    let mut turns = 0;
    for (round, runs) in (0..).zip(plan.rounds) {
        for workload in Workload::ALL {
            let capacity = capacity::of(workload, SERVERS, plan.seed);
            for &(workers, loads) in *runs {
                let phases = phases(plan, capacity, workload, loads, round);
                for configuration in in_turns(&CONFIGURATIONS, turns) {
                    let turn = QualityTurn {
                        variant: Variant::Filter(Filter::Native),
                        workload,
                        rules: Rules::Example(configuration),
                        workers,
                        interval: USUAL_INTERVAL,
                        epp: None,
                    };
                    for sample in turn.run(&phases).await? {
                        progress.print(&format!("round {}, {configuration}: {sample}", round + 1));
                        choices.samples.push((configuration, sample));
                    }
                }
                // Another configuration begins.
                turns += 1;
            }
        }
    }
    Ok(choices)
}
