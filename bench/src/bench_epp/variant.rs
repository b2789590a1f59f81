//! One of the three, running.

use crate::epp::{Epp, ext_proc};
use crate::parity::setup::Setup;
use crate::shipped_proxy::{self, wait_until_picking};
use anyhow::{Context, Result};
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::{Config, EDS_FILE, EDS_FOLDER, PICKER};
use endpoint_picker_harness::endpoint_files::{write_discovery, write_eds};
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Agent;
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::program::process_tree::{cpu_time, taken};
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::tools;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// The default of both pickers.
pub(crate) const USUAL_INTERVAL: Duration = Duration::from_millis(50);

const READY_DEADLINE: Duration = Duration::from_secs(20);
/// The copy of the picker's header in metadata, which only our filter needs.
const COPY: &str = "destination-metadata";

/// Who chooses the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Envoy by itself, in turn.
    NoPicker,
    /// Our filter, told by the metrics agent.
    Filter,
    /// The EPP, asked by `ext_proc`.
    Epp,
}

/// What a variant is started with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) endpoints: &'a [SocketAddr],
    /// Envoy's.
    pub(crate) workers: u32,
    /// The rules of both pickers.
    pub(crate) rules: &'static str,
    /// Between two scrapes of an endpoint.
    pub(crate) interval: Duration,
    /// The EPP's binary, which only the variant of that name needs.
    pub(crate) epp: Option<&'a Path>,
}

/// A proxy and its picker; they end when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    // In the order of their end.
    envoy: Envoy,
    picker: Option<Picker>,
    _dir: RunDir,
}

#[derive(Debug)]
enum Picker {
    Agent(Agent),
    Epp(Epp),
}

/// Processor time of Envoy, and of what runs beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub(crate) envoy: Duration,
    pub(crate) picker: Duration,
}

impl Variant {
    pub(crate) const ALL: [Self; 3] = [Self::NoPicker, Self::Filter, Self::Epp];

    pub(crate) async fn start(self, setting: Setting<'_>) -> Result<Running> {
        let mut dir = RunDir::new()?;
        let started = self.start_in(dir.path(), setting).await;
        let (envoy, picker) = started.with_context(|| format!("start {self}"))?;
        dir.settle();
        Ok(Running { envoy, picker, _dir: dir })
    }

    async fn start_in(self, folder: &Path, setting: Setting<'_>) -> Result<(Envoy, Option<Picker>)> {
        let Setting { endpoints, workers, rules, interval, epp } = setting;
        let interval = format!("{}ms", interval.as_millis());
        fs::create_dir_all(folder.join(EDS_FOLDER))?;
        write_eds(&folder.join(EDS_FILE), endpoints)?;
        let (list, rules_file) = (folder.join("endpoints.yaml"), folder.join("rules.yaml"));
        write_discovery(&list, endpoints)?;
        let setup = Setup::named(rules)?;
        setup.write_config(&rules_file, &list)?;

        let (config, picker) = match self {
            // Nothing asks for an agent.
            Self::NoPicker => (without_picker(folder)?, None),
            Self::Filter => {
                let agent =
                    start_agent(folder, setup.has_config().then_some(&rules_file), &list, &interval).await?;
                let mut config = shipped_proxy::config(folder, agent.address().port())?;
                config.set_picker_module(&tools::filter_wasm()?)?;
                (config, Some(Picker::Agent(agent)))
            }
            Self::Epp => {
                let running = Epp::start(
                    epp.context("this variant needs the EPP's binary")?,
                    &rules_file,
                    folder,
                    &[&format!("--refresh-metrics-interval={interval}")],
                )
                .await?;
                (with_epp(folder, running.port())?, Some(Picker::Epp(running)))
            }
        };
        let envoy = Envoy::start(&config, folder, workers).await?;
        if self == Self::Filter {
            wait_until_picking(&envoy).await?;
        }
        serves(&envoy, workers).await?;
        Ok((envoy, picker))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoPicker => "A",
            Self::Filter => "B",
            Self::Epp => "C",
        })
    }
}

impl Running {
    /// Where clients connect.
    pub(crate) fn listener(&self) -> SocketAddr {
        self.envoy.listener()
    }

    pub(crate) fn cpu(&self) -> Result<Cpu> {
        let picker = self.picker_process().map_or(Ok(Duration::ZERO), cpu_time)?;
        Ok(Cpu { envoy: cpu_time(self.envoy.process_id())?, picker })
    }

    /// Bytes of memory that Envoy has for itself, and those of what runs beside it.
    pub(crate) fn memory(&self) -> Result<[u64; 2]> {
        let picker = self.picker_process().map_or(Ok(0), taken)?;
        Ok([taken(self.envoy.process_id())?, picker])
    }

    /// Microseconds of a decision on average, by the picker's own count; of Envoy's statistics the last seconds are missing.
    pub(crate) async fn decision(&self) -> Result<Option<f64>> {
        Ok(match &self.picker {
            None => None,
            Some(Picker::Agent(_)) => {
                let text = self.envoy.admin_text("/stats/prometheus").await?;
                mean(&text, "endpoint_picker_decision_us")
            }
            Some(Picker::Epp(epp)) => {
                let text = epp.metrics().await?;
                mean(&text, "llm_d_epp_scheduler_e2e_duration_seconds").map(|seconds| seconds * 1e6)
            }
        })
    }

    /// An error when a part of it has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match &mut self.picker {
            Some(Picker::Agent(agent)) => agent.check_running()?,
            Some(Picker::Epp(epp)) => epp.check_running()?,
            None => {}
        }
        self.envoy.check_running()
    }

    fn picker_process(&self) -> Option<u32> {
        match self.picker.as_ref()? {
            Picker::Agent(agent) => Some(agent.process_id()),
            Picker::Epp(epp) => Some(epp.process_id()),
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

/// The mean of a histogram, all its series together, in a text for Prometheus.
fn mean(text: &str, name: &str) -> Option<f64> {
    let sum = |part: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(part));
        lines.filter_map(|rest| rest.rsplit_once(' ')?.1.parse::<f64>().ok()).sum::<f64>()
    };
    let count = sum("_count");
    (count > 0.0).then(|| sum("_sum") / count)
}

fn without_picker(folder: &Path) -> Result<Config> {
    // Nobody connects to the agent's port.
    let mut config = shipped_proxy::config(folder, 1)?;
    config.remove_picker()?;
    http_filters(&mut config)?.retain(|filter| filter["name"] != COPY);
    Ok(config)
}

/// With the EPP in our filter's place, which writes the metadata itself.
fn with_epp(folder: &Path, port: u16) -> Result<Config> {
    let mut config = shipped_proxy::config(folder, 1)?;
    let filters = http_filters(&mut config)?;
    filters.retain(|filter| filter["name"] != COPY);
    *filters.iter_mut().find(|filter| filter["name"] == PICKER).context("our filter")? = ext_proc::filter();
    let clusters = config.document()["static_resources"]["clusters"].as_array_mut().context("clusters")?;
    clusters.push(ext_proc::cluster(port));
    Ok(config)
}

fn http_filters(config: &mut Config) -> Result<&mut Vec<serde_json::Value>> {
    let filters = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
    config.document().pointer_mut(filters).and_then(|filters| filters.as_array_mut()).context("HTTP filters")
}

async fn start_agent(
    folder: &Path,
    rules: Option<&std::path::PathBuf>,
    list: &Path,
    interval: &str,
) -> Result<Agent> {
    let eds = folder.join(EDS_FILE);
    let mut flags: Vec<&OsStr> = ["--eds-cluster".as_ref(), "model-servers".as_ref()].into();
    flags.extend(["--eds-file".as_ref(), eds.as_os_str(), "--interval".as_ref(), interval.as_ref()]);
    match rules {
        // The very document that the EPP reads; it names the endpoints as well.
        Some(rules) => flags.extend(["--manifests".as_ref(), rules.as_os_str()]),
        None => flags.extend(["--endpoints-file".as_ref(), list.as_os_str()]),
    }
    Agent::start((Ipv4Addr::LOCALHOST, 0).into(), flags, &folder.join("agent.log")).await
}

/// Waits until every worker serves, as far as new connections tell.
async fn serves(envoy: &Envoy, workers: u32) -> Result<()> {
    let client = client::http1();
    let url = format!("http://{}/v1/chat/completions", envoy.listener());
    let serving = within(READY_DEADLINE, async || {
        for _ in 0..workers * 8 {
            client.post(&url).json(&client::chat("hello")).send().await?.error_for_status()?;
        }
        anyhow::Ok(())
    });
    serving.await.map_err(anyhow::Error::msg).context("it does not serve")
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
