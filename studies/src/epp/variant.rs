//! The variants, and how each is started.

use super::rules::Rules;
use super::running::{Picker, RunningVariant};
use anyhow::{Context, Result};
use endpoint_picker_bench::epp::Epp;
use endpoint_picker_bench::shipped_proxy::{
    self, COPY, http_filters, wait_until_picking, wait_until_serving, with_epp,
};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::{Config, EDS_FILE, EDS_FOLDER};
use endpoint_picker_harness::endpoint_files::{write_discovery, write_eds};
use endpoint_picker_harness::program::Agent;
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::run_dir::RunDir;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// The default of both pickers.
pub(crate) const USUAL_INTERVAL: Duration = Duration::from_millis(50);

/// The picker of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Envoy alone, with round robin.
    NoPicker,
    /// Envoy alone, with the endpoint that the client names in the destination header.
    NamedByClient,
    /// Our filter in this form, with the metrics agent.
    Filter(Filter),
    /// The EPP, over `ext_proc`.
    Epp,
}

/// The parameters of a variant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting<'a> {
    pub(crate) endpoints: &'a [SocketAddr],
    /// Number of Envoy's workers.
    pub(crate) workers: u32,
    /// The rules of both pickers.
    pub(crate) rules: Rules,
    /// Between two scrapes of an endpoint.
    pub(crate) interval: Duration,
    /// Further flags of the agent.
    pub(crate) agent_flags: &'a [&'a str],
    /// The EPP's binary, for the variant of that name.
    pub(crate) epp: Option<&'a Path>,
}

impl Variant {
    pub(crate) const ALL: [Self; 4] =
        [Self::NoPicker, Self::Filter(Filter::Wasm), Self::Filter(Filter::Native), Self::Epp];
    /// The variants that choose in different ways; both forms of the filter choose alike.
    pub(crate) const CHOOSING: [Self; 3] = [Self::NoPicker, Self::Filter(Filter::Wasm), Self::Epp];

    pub(crate) async fn start(self, setting: Setting<'_>) -> Result<RunningVariant> {
        self.start_changed(setting, |_| Ok(())).await
    }

    /// The same, with a change to Envoy's configuration.
    pub(crate) async fn start_changed(
        self,
        setting: Setting<'_>,
        change: impl FnOnce(&mut Config) -> Result<()>,
    ) -> Result<RunningVariant> {
        let mut dir = RunDir::new()?;
        let started = self.start_in(dir.path(), setting, change).await;
        let (envoy, picker) = started.with_context(|| format!("start {self}"))?;
        dir.settle();
        Ok(RunningVariant { envoy, picker, _dir: dir })
    }

    async fn start_in(
        self,
        folder: &Path,
        setting: Setting<'_>,
        change: impl FnOnce(&mut Config) -> Result<()>,
    ) -> Result<(Envoy, Option<Picker>)> {
        let Setting { endpoints, workers, rules, interval, agent_flags, epp } = setting;
        let interval = format!("{}ms", interval.as_millis());
        fs::create_dir_all(folder.join(EDS_FOLDER))?;
        write_eds(&folder.join(EDS_FILE), endpoints)?;
        let list = folder.join("endpoints.yaml");
        write_discovery(&list, endpoints)?;
        let (agent_file, epp_file) = (folder.join("agent-rules.yaml"), folder.join("epp-rules.yaml"));
        let manifests = rules.read()?;
        manifests.clone().with_endpoints(&list)?.write(&agent_file)?;
        manifests.with_endpoints(&list)?.write_config(&epp_file)?;
        let agent_rules = rules.has_config().then_some(&agent_file);
        let (mut config, picker) = match self {
            // Without the picker nothing connects to the agent's port.
            Self::NoPicker => (without_picker(folder)?, None),
            Self::NamedByClient => (named_by_client(folder)?, None),
            Self::Filter(filter) => {
                let agent = start_agent(folder, agent_rules, &list, &interval, agent_flags).await?;
                let mut config = shipped_proxy::config(filter, folder, agent.address().port())?;
                config.set_picker_module(&filter.module()?)?;
                (config, Some(Picker::Agent(agent)))
            }
            Self::Epp => {
                let binary = epp.context("this variant needs the EPP's binary")?;
                let flag = format!("--refresh-metrics-interval={interval}");
                let running = Epp::start(binary, &epp_file, folder, &[&flag]).await?;
                (with_epp(folder, running.port())?, Some(Picker::Epp(running)))
            }
        };
        change(&mut config)?;
        let envoy = Envoy::start(&config, folder, workers).await?;
        if matches!(self, Self::Filter(_)) {
            wait_until_picking(&envoy).await?;
        }
        wait_until_serving(&envoy, workers).await?;
        Ok((envoy, picker))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPicker => f.write_str("no picker"),
            Self::NamedByClient => f.write_str("named by the client"),
            Self::Filter(filter) => filter.fmt(f),
            Self::Epp => f.write_str("EPP"),
        }
    }
}

fn named_by_client(folder: &Path) -> Result<Config> {
    let mut config = shipped_proxy::config(Filter::Wasm, folder, 1)?;
    config.remove_picker()?;
    Ok(config)
}

fn without_picker(folder: &Path) -> Result<Config> {
    let mut config = named_by_client(folder)?;
    http_filters(&mut config)?.retain(|filter| filter["name"] != COPY);
    Ok(config)
}

async fn start_agent(
    folder: &Path,
    rules: Option<&std::path::PathBuf>,
    list: &Path,
    interval: &str,
    more: &[&str],
) -> Result<Agent> {
    let eds = folder.join(EDS_FILE);
    let mut flags: Vec<&OsStr> = ["--eds-cluster".as_ref(), "model-servers".as_ref()].into();
    flags.extend(["--eds-file".as_ref(), eds.as_os_str(), "--interval".as_ref(), interval.as_ref()]);
    flags.extend(more.iter().map(OsStr::new));
    match rules {
        // The same document that the EPP reads; it has the endpoints as well.
        Some(rules) => {
            flags.extend(["--allow-experimental-plugins", "--manifests"].map(OsStr::new));
            flags.push(rules.as_os_str());
        }
        None => {
            flags.extend(["--rules".as_ref(), "epp".as_ref(), "--endpoints-file".as_ref(), list.as_os_str()]);
        }
    }
    Agent::start((Ipv4Addr::LOCALHOST, 0).into(), flags, &folder.join("agent.log")).await
}
