//! Two running proxies that are compared: the shipped one with the picker, and one without it, without sharing or with another build.

use super::turns::LoadedProxy;
use crate::load::bodies::{NEW_NUMBER, chat_line};
use crate::shipped_proxy;
use crate::upstreams::Upstreams;
use anyhow::{Context, Result};
use endpoint_picker_harness::config::{Config, EDS_FILE, EDS_FOLDER};
use endpoint_picker_harness::endpoint_files::write_eds;
use endpoint_picker_harness::program::{Agent, Envoy};
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::{Filter, alone_module};
use serde_json::json;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Prompts that differ from each other, so that the prefix rule spreads them over the endpoints.
const PROMPTS: usize = 500;
/// Length of a request body, about.
const BODY_BYTES: usize = 2_048;

/// Two running proxies with their endpoints; they end when dropped.
#[derive(Debug)]
pub(crate) struct ProxyPair {
    // In the order of their end: the proxies first.
    pub(crate) baseline: LoadedProxy,
    pub(crate) picker: LoadedProxy,
    bodies: BodyFiles,
    _agents: Vec<Agent>,
    upstreams: Upstreams,
    _dir: RunDir,
}

/// The requests that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prompts {
    /// The same prompts again and again, with answers in chunks.
    Streamed,
    /// A new prompt each time.
    New,
}

/// Files with a body in each line.
#[derive(Debug)]
struct BodyFiles {
    repeated: PathBuf,
    streamed: PathBuf,
    new: PathBuf,
}

impl ProxyPair {
    /// The shipped proxy, and one with a buffer in place of the picker, with this many endpoints and one worker each.
    pub(crate) async fn with_and_without_picker(endpoints: usize) -> Result<Self> {
        let setup = PairSetup::new(endpoints).await?;
        let folder = setup.folder("baseline")?;
        write_eds(&folder.join(EDS_FILE), setup.upstreams.addresses())?;
        let baseline = LoadedProxy {
            envoy: Envoy::start(&config_with_buffer(&folder)?, &folder, 1).await?,
            bodies: setup.bodies.repeated.clone(),
            destinations: Some(setup.destinations.clone()),
        };
        let (picker, agent) = setup.start_picker("picker", &Filter::Wasm.module()?, 1).await?;
        Ok(setup.into_pair(baseline, picker, vec![agent]))
    }

    /// The shipped proxy, and one whose workers do not share.
    pub(crate) async fn with_and_without_sharing(endpoints: usize, workers: u32) -> Result<Self> {
        let setup = PairSetup::new(endpoints).await?;
        let (alone, first) = setup.start_picker("alone", &alone_module()?, workers).await?;
        let (sharing, second) = setup.start_picker("sharing", &Filter::Wasm.module()?, workers).await?;
        Ok(setup.into_pair(alone, sharing, vec![first, second]))
    }

    /// The shipped proxy with another build of the filter, and with this one; one worker each.
    pub(crate) async fn with_other_filter(endpoints: usize, other: &Path) -> Result<Self> {
        let setup = PairSetup::new(endpoints).await?;
        let (other, first) = setup.start_picker("other", other, 1).await?;
        let (this, second) = setup.start_picker("this", &Filter::Wasm.module()?, 1).await?;
        Ok(setup.into_pair(other, this, vec![first, second]))
    }

    /// Both, the baseline first.
    pub(crate) fn both(&self) -> [&LoadedProxy; 2] {
        [&self.baseline, &self.picker]
    }

    /// The number of endpoints.
    pub(crate) fn endpoints(&self) -> usize {
        self.upstreams.addresses().len()
    }

    /// Sends other requests than the repeated prompts from now on.
    pub(crate) fn send(&mut self, prompts: Prompts) {
        let file = match prompts {
            Prompts::Streamed => &self.bodies.streamed,
            Prompts::New => &self.bodies.new,
        };
        for proxy in [&mut self.baseline, &mut self.picker] {
            proxy.bodies.clone_from(file);
        }
    }
}

/// What both proxies need.
struct PairSetup {
    dir: RunDir,
    upstreams: Upstreams,
    bodies: BodyFiles,
    destinations: PathBuf,
}

impl PairSetup {
    async fn new(endpoints: usize) -> Result<Self> {
        let dir = RunDir::new()?;
        let upstreams = Upstreams::start(endpoints).await?;
        let lines = upstreams.addresses().iter().map(|address| format!("{address}\n"));
        let file = |name: &str, text: String| {
            let path = dir.path().join(name);
            fs::write(&path, text).map(|()| path)
        };
        let chats = |stream| (0..PROMPTS).map(|number| chat_line(number, BODY_BYTES, stream)).collect();
        Ok(Self {
            bodies: BodyFiles {
                repeated: file("bodies", chats(false))?,
                streamed: file("streaming-bodies", chats(true))?,
                new: file("new-prompts", chat_line(NEW_NUMBER, BODY_BYTES, false))?,
            },
            destinations: file("destinations", lines.collect())?,
            upstreams,
            dir,
        })
    }

    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.dir.path().join(name);
        fs::create_dir_all(folder.join(EDS_FOLDER))?;
        Ok(folder)
    }

    /// A proxy with this filter and its agent, once it picks.
    async fn start_picker(&self, name: &str, filter: &Path, workers: u32) -> Result<(LoadedProxy, Agent)> {
        let folder = self.folder(name)?;
        let agent = start_agent(&folder, self.upstreams.addresses()).await?;
        let mut config = shipped_proxy::config(&folder, agent.address().port())?;
        config.set_picker_module(filter)?;
        let envoy = Envoy::start(&config, &folder, workers).await?;
        shipped_proxy::wait_until_picking(&envoy).await?;
        Ok((LoadedProxy { envoy, bodies: self.bodies.repeated.clone(), destinations: None }, agent))
    }

    fn into_pair(mut self, baseline: LoadedProxy, picker: LoadedProxy, agents: Vec<Agent>) -> ProxyPair {
        self.dir.settle();
        let Self { dir, upstreams, bodies, .. } = self;
        ProxyPair { baseline, picker, bodies, _agents: agents, upstreams, _dir: dir }
    }
}

/// Holds each request until its body is complete, as the picker does, and takes the destination from the client's header.
fn config_with_buffer(folder: &Path) -> Result<Config> {
    // Without the picker nothing connects to the agent's port.
    let mut config = shipped_proxy::config(folder, 1)?;
    config.insert_before_picker(json!({
        "name": "envoy.filters.http.buffer",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
            "max_request_bytes": 33_554_432,
        },
    }))?;
    config.remove_picker()?;
    Ok(config)
}

async fn start_agent(folder: &Path, endpoints: &[SocketAddr]) -> Result<Agent> {
    let eds_file = folder.join(EDS_FILE);
    let eds_file = eds_file.to_str().context("the folder's name is not UTF-8")?;
    let mut flags = ["--eds-cluster", "model-servers", "--eds-file", eds_file].map(str::to_owned).to_vec();
    flags.extend(endpoints.iter().flat_map(|endpoint| ["--endpoint".to_owned(), endpoint.to_string()]));
    Agent::start((Ipv4Addr::LOCALHOST, 0).into(), flags, &folder.join("agent.log")).await
}
