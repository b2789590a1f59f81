//! A variant that runs, and its figures.

use crate::epp::Epp;
use anyhow::Result;
use endpoint_picker_harness::program::process_tree::{cpu_time, taken};
use endpoint_picker_harness::program::{Agent, Envoy};
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::statistics::PickerStatistics;
use std::net::SocketAddr;
use std::time::Duration;

/// A proxy and its picker; they end when dropped.
#[derive(Debug)]
pub(crate) struct RunningVariant {
    // In the order of their end.
    pub(super) envoy: Envoy,
    pub(super) picker: Option<Picker>,
    pub(super) _dir: RunDir,
}

/// The process beside Envoy.
#[derive(Debug)]
pub(super) enum Picker {
    Agent(Agent),
    Epp(Epp),
    ShadowedEpp(Epp, Agent),
}

/// Processor time of Envoy, and of the process beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub(crate) envoy: Duration,
    pub(crate) picker: Duration,
}

impl RunningVariant {
    /// Where clients connect.
    pub(crate) fn listener(&self) -> SocketAddr {
        self.envoy.listener()
    }

    pub(crate) fn cpu(&self) -> Result<Cpu> {
        let picker = self.picker_processes().into_iter().map(cpu_time).sum::<Result<_>>()?;
        Ok(Cpu { envoy: cpu_time(self.envoy.process_id())?, picker })
    }

    /// Private memory in bytes: of Envoy, and of the process beside it.
    pub(crate) fn memory(&self) -> Result<[u64; 2]> {
        let picker = self.picker_processes().into_iter().map(taken).sum::<Result<_>>()?;
        Ok([taken(self.envoy.process_id())?, picker])
    }

    /// Mean microseconds of a decision, by the picker's own metric. Envoy's statistics lack the last seconds.
    pub(crate) async fn decision(&self) -> Result<Option<f64>> {
        Ok(match &self.picker {
            None => None,
            Some(Picker::Agent(_)) => {
                let text = self.envoy.admin_text("/stats/prometheus").await?;
                mean(&text, "endpoint_picker_decision_us")
            }
            Some(Picker::Epp(epp) | Picker::ShadowedEpp(epp, _)) => {
                let text = epp.metrics().await?;
                mean(&text, "llm_d_epp_scheduler_e2e_duration_seconds").map(|seconds| seconds * 1e6)
            }
        })
    }

    /// An error when one of its processes has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match &mut self.picker {
            Some(Picker::Agent(agent)) => agent.check_running()?,
            Some(Picker::Epp(epp)) => epp.check_running()?,
            Some(Picker::ShadowedEpp(epp, agent)) => {
                epp.check_running()?;
                agent.check_running()?;
            }
            None => {}
        }
        self.envoy.check_running()
    }

    /// The statistics of our filter; those of the last second may be missing.
    pub(crate) async fn statistics(&self) -> Result<PickerStatistics> {
        PickerStatistics::of(&self.envoy).await
    }

    fn picker_processes(&self) -> Vec<u32> {
        match &self.picker {
            None => vec![],
            Some(Picker::Agent(agent)) => vec![agent.process_id()],
            Some(Picker::Epp(epp)) => vec![epp.process_id()],
            Some(Picker::ShadowedEpp(epp, agent)) => vec![epp.process_id(), agent.process_id()],
        }
    }
}

impl Cpu {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            envoy: self.envoy.saturating_sub(before.envoy),
            picker: self.picker.saturating_sub(before.picker),
        }
    }

    pub(crate) fn total(self) -> Duration {
        self.envoy + self.picker
    }
}

/// The mean of a histogram over all its series, in a text for Prometheus.
fn mean(text: &str, name: &str) -> Option<f64> {
    let sum = |part: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(part));
        lines.filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>()
    };
    let count = sum("_count");
    (count > 0.0).then(|| sum("_sum") / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_histogram_is_that_of_all_its_series() {
        let text = "# TYPE a histogram\na_bucket{b=\"1\",le=\"5\"} 1\na_sum{b=\"1\"} 6\na_count{b=\"1\"} 2\na_sum 3\na_count 1\nab_sum 9\n";
        assert_eq!(mean(text, "a"), Some(3.0));
        assert_eq!(mean(text, "c"), None);
    }
}
