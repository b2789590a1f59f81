//! Several proxies of one pool, with their pickers and the store.

use crate::epp::rules::Rules;
use anyhow::{Context, Result};
use endpoint_picker_bench::epp::Epp;
use endpoint_picker_bench::shipped_proxy::{self, wait_until_picking, wait_until_serving, with_epp};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::{EDS_FILE, EDS_FOLDER};
use endpoint_picker_harness::endpoint_files::{write_discovery, write_eds};
use endpoint_picker_harness::program::{Agent, Envoy, Store};
use endpoint_picker_harness::run_dir::RunDir;
use futures_util::future::try_join_all;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// How several proxies of one pool have their pickers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// Our filter; each proxy has an agent of its own, and the agents share through a store.
    Store,
    /// Our filter; all proxies share through one agent.
    OneAgent,
    /// Our filter; each proxy has an agent of its own, and nothing is shared.
    Apart,
    /// The EPP, one for all proxies.
    OneEpp,
    /// Each proxy has an EPP of its own; EPPs share nothing.
    OwnEpps,
}

impl Arrangement {
    /// Whether the pickers are EPPs.
    pub(crate) fn has_epp(self) -> bool {
        matches!(self, Self::OneEpp | Self::OwnEpps)
    }

    /// Whether all proxies have one picker process.
    pub(crate) fn has_one_picker(self) -> bool {
        match self {
            Self::OneAgent | Self::OneEpp => true,
            Self::Store | Self::Apart | Self::OwnEpps => false,
        }
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store => "sharing through a store",
            Self::OneAgent => "sharing through one agent",
            Self::Apart => "not sharing",
            Self::OneEpp => "one EPP",
            Self::OwnEpps => "an EPP each",
        })
    }
}

/// The parameters of a fleet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetPlan<'a> {
    pub(crate) arrangement: Arrangement,
    pub(crate) proxies: usize,
    /// The form of our filter.
    pub(crate) filter: Filter,
    pub(crate) endpoints: &'a [SocketAddr],
    /// The rules of all pickers.
    pub(crate) rules: Rules,
    /// The EPP's binary, for the arrangements that have it.
    pub(crate) epp: Option<&'a Path>,
}

/// Proxies that run; all of it ends when dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    // In the order of their end.
    envoys: Vec<Envoy>,
    pickers: Vec<Picker>,
    store: Option<Store>,
    _dir: RunDir,
}

/// The picker's process of one proxy, or of all.
#[derive(Debug)]
enum Picker {
    Agent(Agent),
    Epp(Epp),
}

impl Fleet {
    /// Starts all of it. Every proxy is picking when this returns.
    pub(crate) async fn start(plan: FleetPlan<'_>) -> Result<Self> {
        let mut dir = RunDir::new()?;
        let started = plan.start_in(dir.path()).await;
        let FleetPlan { arrangement, proxies, .. } = plan;
        let (envoys, pickers, store) =
            started.with_context(|| format!("start {proxies} proxies, {arrangement}"))?;
        dir.settle();
        Ok(Self { envoys, pickers, store, _dir: dir })
    }

    /// The address of each proxy.
    pub(crate) fn listeners(&self) -> Vec<SocketAddr> {
        self.envoys.iter().map(Envoy::listener).collect()
    }

    /// The store, if the arrangement has one.
    pub(crate) fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// An error when a proxy or a picker has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        self.envoys.iter_mut().try_for_each(Envoy::check_running)?;
        self.pickers.iter_mut().try_for_each(|picker| match picker {
            Picker::Agent(agent) => agent.check_running(),
            Picker::Epp(epp) => epp.check_running(),
        })
    }
}

impl FleetPlan<'_> {
    async fn start_in(&self, folder: &Path) -> Result<(Vec<Envoy>, Vec<Picker>, Option<Store>)> {
        let has_store = self.arrangement == Arrangement::Store;
        let store = if has_store { Some(Store::start(folder).await?) } else { None };
        let folders = (0..self.proxies).map(|proxy| {
            let folder = folder.join(format!("proxy-{proxy}"));
            fs::create_dir_all(folder.join(EDS_FOLDER))?;
            write_eds(&folder.join(EDS_FILE), self.endpoints)?;
            Ok(folder)
        });
        let folders: Vec<PathBuf> = folders.collect::<Result<_>>()?;
        let with_picker = if self.arrangement.has_one_picker() { 1 } else { self.proxies };
        let store_url = store.as_ref().map(Store::url);
        let pickers = folders.iter().take(with_picker);
        let pickers =
            try_join_all(pickers.map(|folder| self.start_picker(folder, store_url.as_deref()))).await?;
        let envoys = folders.iter().zip(pickers.iter().cycle());
        let envoys = try_join_all(envoys.map(|(folder, picker)| self.start_envoy(folder, picker))).await?;
        Ok((envoys, pickers, store))
    }

    async fn start_picker(&self, folder: &Path, store: Option<&str>) -> Result<Picker> {
        let (list, rules) = (folder.join("endpoints.yaml"), folder.join("rules.yaml"));
        write_discovery(&list, self.endpoints)?;
        let manifests = self.rules.read()?.with_endpoints(&list)?;
        let share = match self.arrangement {
            Arrangement::OneEpp | Arrangement::OwnEpps => {
                manifests.write_config(&rules)?;
                let binary = self.epp.context("this arrangement needs the EPP's binary")?;
                return Epp::start(binary, &rules, folder, &[]).await.map(Picker::Epp);
            }
            Arrangement::Store => store.context("the agents have a store")?,
            Arrangement::OneAgent => "agent",
            Arrangement::Apart => "off",
        };
        manifests.write(&rules)?;
        let mut flags: Vec<OsString> = vec!["--share".into(), share.into()];
        flags.extend(["--allow-experimental-plugins".into(), "--manifests".into(), rules.into_os_string()]);
        let any_port = (Ipv4Addr::LOCALHOST, 0).into();
        Agent::start(any_port, flags, &folder.join("agent.log")).await.map(Picker::Agent)
    }

    async fn start_envoy(&self, folder: &Path, picker: &Picker) -> Result<Envoy> {
        match picker {
            Picker::Agent(agent) => {
                let mut config = shipped_proxy::config(self.filter, folder, agent.address().port())?;
                config.set_picker_module(&self.filter.module()?)?;
                let envoy = Envoy::start(&config, folder, 1).await?;
                wait_until_picking(&envoy).await?;
                Ok(envoy)
            }
            Picker::Epp(epp) => {
                let envoy = Envoy::start(&with_epp(folder, epp.port())?, folder, 1).await?;
                wait_until_serving(&envoy, 1).await?;
                Ok(envoy)
            }
        }
    }
}
