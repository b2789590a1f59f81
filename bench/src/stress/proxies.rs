//! The proxies under load: one with its agent, or several, each with an agent of its own, that share through
//! a store.

use metrics_agent_status::pool::PoolStatus;

use super::stack;
use crate::load::MixedProxy;
use anyhow::{Context, Result};
use endpoint_picker_harness::gate::Gate;
use endpoint_picker_harness::program::Store;
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::statistics::PickerStatistics;
use endpoint_picker_harness::{Filter, client, objectives};
use endpoint_picker_model_server::{Behaviour, ModelServer};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The shipped configuration of a proxy.
pub(super) const SHIPPED: &str = "envoy.yaml";

/// The proxies with their servers, agents and store.
#[derive(Debug)]
pub(super) struct Proxies {
    /// The first one has the servers.
    stacks: Vec<Stack>,
    /// As the load knows them, in the same order.
    mixed: Vec<MixedProxy>,
    /// `None` with one proxy.
    store: Option<SharedStore>,
    calm: Calm,
}

/// Parts of proxies and servers without a fault.
#[derive(Debug)]
pub(super) struct Calm {
    pub(super) filter: Filter,
    /// The proxies' configuration.
    pub(super) config: &'static str,
    /// Counts of the agents.
    pub(super) manifests: String,
    /// Behaviour of servers.
    pub(super) behaviour: Behaviour,
    /// Whether each Envoy writes an access log, which would fill the disk in a long run.
    pub(super) has_access_log: bool,
}

/// The store of several agents.
#[derive(Debug)]
struct SharedStore {
    store: Store,
    /// One for the connections of each agent.
    gates: Vec<Gate>,
    _dir: RunDir,
}

impl Calm {
    /// Nothing has to wait: servers respond fast, with some responses in flight at any time. Only the native
    /// module resumes streams.
    pub(super) fn without_queue(resumes_streams: bool) -> Result<Self> {
        let (filter, config, pause) = if resumes_streams {
            // A stream takes a second, so that each server has some when it dies.
            (Filter::Native, "examples/resume-streams", 50)
        } else {
            (Filter::chosen()?, SHIPPED, 10)
        };
        let behaviour = Behaviour::SlowChunks(Duration::from_millis(pause));
        let manifests = objectives::MANIFEST.to_owned();
        Ok(Self { filter, config, manifests, behaviour, has_access_log: true })
    }
}

impl Proxies {
    /// Starts this many proxies, each with this many workers.
    pub(super) async fn start(proxies: usize, workers: u32, calm: Calm) -> Result<Self> {
        let store = if proxies > 1 { Some(SharedStore::start(proxies).await?) } else { None };
        let mut stacks: Vec<Stack> = Vec::new();
        for proxy in 0..proxies {
            let builder = stack::builder(workers)
                .config(calm.config)
                .filter(calm.filter)
                .manifests(&calm.manifests)
                .can_hot_restart();
            let builder = match stacks.first() {
                Some(first) => builder.other_servers(&addresses(first.servers())),
                None => builder,
            };
            let builder = if calm.has_access_log { builder } else { builder.without_access_log() };
            let share = store.as_ref().map(|store| store.url(proxy));
            let flags: Vec<&str> = share.iter().flat_map(|url| ["--share", url.as_str()]).collect();
            stacks.push(builder.agent_flags(&flags).start().await);
        }
        let mixed = stacks.iter().map(MixedProxy::of).collect();
        let proxies = Self { stacks, mixed, store, calm };
        for server in proxies.servers() {
            server.behave(proxies.calm.behaviour);
        }
        Ok(proxies)
    }

    pub(super) fn servers(&self) -> &[ModelServer] {
        self.stacks.first().map_or(&[], Stack::servers)
    }

    /// Each with its agent.
    pub(super) fn stacks(&self) -> &[Stack] {
        &self.stacks
    }

    /// One of them, to be broken.
    pub(super) fn stack(&mut self, proxy: usize) -> &mut Stack {
        &mut self.stacks[proxy]
    }

    /// As the load knows them.
    pub(super) fn mixed(&self) -> &[MixedProxy] {
        &self.mixed
    }

    /// The addresses of all servers.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        addresses(self.servers())
    }

    /// The addresses of all servers but one.
    pub(super) fn addresses_without(&self, server: usize) -> Vec<SocketAddr> {
        let mut addresses = self.addresses();
        addresses.remove(server);
        addresses
    }

    /// Parts of proxies and servers without a fault.
    pub(super) fn calm(&self) -> &Calm {
        &self.calm
    }

    /// The store that the agents share through.
    pub(super) fn store(&mut self) -> Result<&mut Store> {
        Ok(&mut self.store.as_mut().context("one proxy has no store")?.store)
    }

    /// Cuts an agent off from the store, or connects it again.
    pub(super) fn set_reaches_store(&self, proxy: usize, reaches: bool) -> Result<()> {
        self.store.as_ref().context("one proxy has no store")?.gates[proxy].set_open(reaches);
        Ok(())
    }

    /// Ends a proxy at once. From here on the load sends what got no response of it to another one.
    pub(super) fn kill(&mut self, proxy: usize) {
        self.mixed[proxy].is_killed.store(true, Ordering::Relaxed);
        self.stacks[proxy].kill_envoy();
    }

    /// Starts it again; it is picking when this returns.
    pub(super) async fn restart(&mut self, proxy: usize) -> Result<()> {
        self.stacks[proxy].restart_envoy().await?;
        self.mixed[proxy].is_killed.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// How often streams were resumed, as the proxies count it.
    pub(super) async fn resumed_streams(&self) -> Result<u64> {
        let mut resumed = 0;
        for stack in &self.stacks {
            resumed += PickerStatistics::of(stack.envoy()).await?.sum("resumed_streams");
        }
        Ok(resumed)
    }

    /// Keeps the logs; returns their folders.
    pub(super) fn keep_logs(&mut self) -> impl Iterator<Item = &Path> {
        self.stacks.iter_mut().map(Stack::keep_logs)
    }

    /// The pool as each agent describes it.
    pub(super) async fn statuses(&self) -> Result<Vec<PoolStatus>> {
        let mut statuses = Vec::new();
        for stack in &self.stacks {
            let url = format!("http://{}/v1/pools/default", stack.agent_address());
            statuses.push(client::http1().get(url).send().await?.error_for_status()?.json().await?);
        }
        Ok(statuses)
    }
}

impl SharedStore {
    async fn start(agents: usize) -> Result<Self> {
        let mut dir = RunDir::new()?;
        let store = Store::start(dir.path()).await?;
        let mut gates = Vec::new();
        for _ in 0..agents {
            gates.push(Gate::start(store.address()).await?);
        }
        dir.settle();
        Ok(Self { store, gates, _dir: dir })
    }

    /// The store's URL for this agent.
    fn url(&self, agent: usize) -> String {
        format!("redis://{}", self.gates[agent].address())
    }
}

fn addresses(servers: &[ModelServer]) -> Vec<SocketAddr> {
    servers.iter().map(ModelServer::address).collect()
}
