//! How well several proxies choose, in many rounds of simulated time.
//!
//! The rounds are those of [`choices`](mod@super::choices): the same requests, times and proxies of requests. Proxies are the engine's ledgers with
//! their sharing clients and the default rules, and the servers' batches work as in the model server. Nothing else takes processor time, so a
//! figure is the rules' and not the machine's, and hundreds of rounds take a minute.

mod feed;
mod gateway;
mod script;
mod servers;
mod table;

use super::choices::{LOAD, OURS, Setting, WORKLOADS};
use crate::load::capacity;
use crate::load::workload::Workload;
use crate::report::Progress;
use crate::timed_servers::SERVERS;
use anyhow::Result;
use gateway::{Gateway, Round};
use script::Script;
use std::time::Duration;
use table::RoundTable;

/// A round of one setting takes about this long.
const ROUND: Duration = Duration::from_millis(70);

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SimulationPlan {
    /// Each has a seed of its own.
    pub(crate) rounds: u64,
    /// How long requests are sent before, to fill the caches.
    pub(crate) warm_up: Duration,
    /// How long they are sent then.
    pub(crate) phase: Duration,
    /// Determines all requests, their times and their proxies.
    pub(crate) seed: u64,
}

/// All rounds of one setting.
struct Rounds {
    workload: Workload,
    setting: Setting,
    rounds: Vec<Round>,
}

impl SimulationPlan {
    /// How long it should take.
    pub(crate) fn expected(&self) -> Duration {
        let rounds = self.rounds * (OURS.len() * WORKLOADS.len()) as u64;
        ROUND * u32::try_from(rounds).unwrap_or(u32::MAX)
    }
}

/// Simulates every setting; returns the table.
pub(crate) fn measure(plan: SimulationPlan, progress: &Progress) -> Result<String> {
    let mut all = Vec::new();
    for workload in WORKLOADS {
        let per_second = capacity::of(workload, SERVERS, plan.seed) * LOAD;
        all.extend(rounds_of(plan, workload, per_second)?);
        progress.print(&format!("{} rounds with {workload}", plan.rounds));
    }
    Ok(RoundTable(&all).to_string())
}

fn rounds_of(plan: SimulationPlan, workload: Workload, per_second: f64) -> Result<Vec<Rounds>> {
    let rounds = |&setting| Rounds { workload, setting, rounds: Vec::new() };
    let mut settings: Vec<Rounds> = OURS.iter().map(rounds).collect();
    for seed in plan.seed..plan.seed + plan.rounds {
        let script = Script::new(workload, per_second, [plan.warm_up, plan.phase], seed);
        for Rounds { setting, rounds, .. } in &mut settings {
            rounds.push(Gateway::run(*setting, workload.service_times(), &script, seed)?);
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_proxies::arrangement::Arrangement;

    #[test]
    fn proxies_that_share_find_what_one_finds_and_others_do_not() {
        let plan = SimulationPlan {
            rounds: 2,
            warm_up: Duration::from_secs(2),
            phase: Duration::from_secs(2),
            seed: 1,
        };
        for workload in WORKLOADS {
            let settings = rounds_of(plan, workload, 80.0).unwrap();
            let cached = |rounds: &Rounds| rounds.rounds.iter().map(|round| round.cached).sum::<f64>();
            let of_one = cached(&settings[0]);
            for rounds in &settings[1..] {
                let beside_one = cached(rounds) / of_one;
                let (arrangement, proxies) = rounds.setting;
                let is_as_expected =
                    if arrangement == Arrangement::Apart { beside_one < 0.95 } else { beside_one > 0.97 };
                assert!(is_as_expected, "{workload}, {proxies} proxies {arrangement}: {beside_one:.3}");
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_rounds() {
        let phase = Duration::from_secs(1);
        let plan = SimulationPlan { rounds: 1, warm_up: phase, phase, seed: 7 };
        let [one, other] = [(); 2].map(|()| rounds_of(plan, Workload::SystemPrompts, 80.0).unwrap());
        for (one, other) in one.iter().zip(&other) {
            assert_eq!(one.rounds[0].outcome.first_byte, other.rounds[0].outcome.first_byte);
        }
    }
}
