//! A variant that runs, and its figures.

use anyhow::{Context, Result};
use endpoint_picker_bench::epp::Epp;
use endpoint_picker_harness::program::process_tree::{cpu_time, taken};
use endpoint_picker_harness::program::{Agent, Envoy};
use endpoint_picker_harness::run_dir::RunDir;
use serde_json::Value;
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

/// The process of a picker.
#[derive(Debug)]
pub(super) enum Picker {
    Agent(Agent),
    Epp(Epp),
}

/// Processor time of Envoy and of the picker's process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub(crate) envoy: Duration,
    pub(crate) picker: Duration,
}

/// Bytes of memory that Envoy and the picker's process have for themselves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) envoy: u64,
    pub(crate) picker: u64,
}

impl RunningVariant {
    /// Where clients connect.
    pub(crate) fn listener(&self) -> SocketAddr {
        self.envoy.listener()
    }

    /// The metrics agent, where our filter picks.
    pub(crate) fn agent(&self) -> Option<&Agent> {
        match &self.picker {
            Some(Picker::Agent(agent)) => Some(agent),
            Some(Picker::Epp(_)) | None => None,
        }
    }

    pub(crate) fn cpu(&self) -> Result<Cpu> {
        let picker = self.picker.as_ref().map(|picker| cpu_time(picker.process_id())).transpose()?;
        Ok(Cpu { envoy: cpu_time(self.envoy.process_id())?, picker: picker.unwrap_or_default() })
    }

    pub(crate) fn memory(&self) -> Result<Memory> {
        let picker = self.picker.as_ref().map(|picker| taken(picker.process_id())).transpose()?;
        Ok(Memory { envoy: taken(self.envoy.process_id())?, picker: picker.unwrap_or_default() })
    }

    /// The times to the first chunk as percentages of what the picker expected: a quarter, half and three
    /// quarters of the responses have at most these. `None`: it expects none.
    pub(crate) async fn first_chunk_of_expected(&self) -> Result<Option<[f64; 3]>> {
        let path = "/stats?format=json&filter=first_chunk_of_expected_percent";
        let text = self.envoy.admin_text(path).await?;
        let stats: Value = serde_json::from_str(&text).context("Envoy's statistics")?;
        let all = stats["stats"].as_array().context("no list of statistics")?;
        let histograms = all.iter().map(|stat| &stat["histograms"]).find(|histograms| histograms.is_object());
        let Some(histograms) = histograms else { return Ok(None) };
        let quantiles = histograms["supported_quantiles"].as_array().context("no quantiles")?;
        let values = &histograms["computed_quantiles"][0]["values"];
        let value = |quantile: f64| {
            let at = quantiles.iter().position(|it| it.as_f64() == Some(quantile))?;
            values[at]["cumulative"].as_f64()
        };
        Ok(value(25.0).zip(value(50.0)).zip(value(75.0)).map(|((low, middle), high)| [low, middle, high]))
    }

    /// An error when one of its processes has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match &mut self.picker {
            Some(Picker::Agent(agent)) => agent.check_running()?,
            Some(Picker::Epp(epp)) => epp.check_running()?,
            None => {}
        }
        self.envoy.check_running()
    }
}

impl Picker {
    fn process_id(&self) -> u32 {
        match self {
            Self::Agent(agent) => agent.process_id(),
            Self::Epp(epp) => epp.process_id(),
        }
    }
}

impl Memory {
    /// The larger one of each process.
    pub(crate) fn max(self, other: Self) -> Self {
        Self { envoy: self.envoy.max(other.envoy), picker: self.picker.max(other.picker) }
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
