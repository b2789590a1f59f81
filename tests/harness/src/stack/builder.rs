//! What a stack is made of, and how it starts.

use super::{DISCOVERY_FILE, Eds, MANIFESTS_FILE, Stack, start_agent};
use crate::config::{ACCESS_LOG, Config, EDS_FILE, EDS_FOLDER, Places};
use crate::endpoint_files::{write_discovery, write_eds};
use crate::program::Envoy;
use crate::run_dir::RunDir;
use crate::tools;
use anyhow::{Context, Result};
use endpoint_picker_model_server::ModelServer;
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::TcpSocket;

/// What to start; see [`Stack::builder`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    config: &'static str,
    servers: usize,
    workers: u32,
    /// Where the picker's module is, if there is a picker.
    picker: Option<fn() -> Result<PathBuf>>,
    can_hot_restart: bool,
    access_log: AccessLog,
    has_agent: bool,
    agent_flags: &'static [&'static str],
    manifests: Option<String>,
    own_agent: Option<SocketAddr>,
    second_pool: Option<(&'static str, &'static str)>,
    route_without_picker: Option<&'static str>,
    /// What the agent writes, if it writes Envoy's endpoints.
    eds: Eds,
    values: Vec<(&'static str, Value)>,
    request_timeout: Option<Duration>,
    picker_fields: Vec<(String, Value)>,
    agent_cluster: Option<Value>,
    shut: Option<&'static str>,
    paths: Paths,
    change: Option<Change>,
    filters: Vec<Value>,
    accepts_connect: bool,
}

/// How Envoy passes paths on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paths {
    /// As the shipped configuration says.
    Normalized,
    /// As clients write them.
    Unchanged,
}

/// A change to a shipped configuration.
pub(crate) type Change = fn(&mut Config) -> Result<()>;

#[derive(Clone, Copy, Debug)]
enum AccessLog {
    /// [`ACCESS_LOG`], for [`Stack::logged`].
    File,
    Shipped,
    Off,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            config: "envoy.yaml",
            servers: 3,
            workers: 2,
            picker: Some(tools::filter_wasm),
            can_hot_restart: false,
            access_log: AccessLog::File,
            has_agent: true,
            agent_flags: &[],
            manifests: None,
            own_agent: None,
            second_pool: None,
            route_without_picker: None,
            eds: Eds::ONE_POOL,
            values: Vec::new(),
            request_timeout: None,
            picker_fields: Vec::new(),
            agent_cluster: None,
            shut: None,
            paths: Paths::Normalized,
            change: None,
            filters: Vec::new(),
            accepts_connect: false,
        }
    }
}

impl Builder {
    /// This many model servers in place of 3.
    pub fn servers(mut self, servers: usize) -> Self {
        self.servers = servers;
        self
    }

    /// Another shipped configuration, by its path from the repository's root.
    pub fn config(mut self, path: &'static str) -> Self {
        self.config = path;
        self
    }

    /// This many Envoy workers in place of 2.
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Envoy alone: neither picker nor agent.
    pub fn bare(mut self) -> Self {
        self.picker = None;
        self.has_agent = false;
        self
    }

    /// With a picker whose VM a request with the header `x-test-trap` ends.
    pub fn can_trap(mut self) -> Self {
        self.picker = Some(tools::trapping_filter_wasm);
        self
    }

    /// Another Envoy can take over, see [`Stack::hot_restart`].
    pub fn can_hot_restart(mut self) -> Self {
        self.can_hot_restart = true;
        self
    }

    /// Envoy writes no access log, which would fill the disk in a long run.
    pub fn without_access_log(mut self) -> Self {
        self.access_log = AccessLog::Off;
        self
    }

    /// Envoy writes its access log to where it is shipped to go, its standard output.
    pub fn with_shipped_access_log(mut self) -> Self {
        self.access_log = AccessLog::Shipped;
        self
    }

    /// No agent yet, see [`Stack::start_agent`]. Envoy knows the endpoints all the same.
    pub fn without_agent(mut self) -> Self {
        self.has_agent = false;
        self
    }

    /// Flags for the agent that is started with the stack.
    pub fn agent_flags(mut self, flags: &'static [&'static str]) -> Self {
        self.agent_flags = flags;
        self
    }

    /// The time a request may take to come whole, in place of the shipped one.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.request_timeout = Some(limit);
        self
    }

    /// Manifests for the agent.
    pub fn manifests(mut self, yaml: &str) -> Self {
        self.manifests = Some(yaml.to_owned());
        self
    }

    /// The agent at this address, which the test has started, in place of the real one.
    pub fn own_agent(mut self, address: SocketAddr) -> Self {
        self.has_agent = false;
        self.own_agent = Some(address);
        self
    }

    /// One more picker, for this pool and the paths that begin like this.
    pub fn second_pool(mut self, pool: &'static str, path_prefix: &'static str) -> Self {
        self.second_pool = Some((pool, path_prefix));
        self
    }

    /// The agent writes a file for each pool, for the clusters that have the pools' names.
    pub fn one_eds_file_per_pool(mut self) -> Self {
        self.eds = Eds::EACH_POOL;
        self
    }

    /// Another value at this JSON pointer of the configuration.
    pub fn value_at(mut self, pointer: &'static str, value: impl Into<Value>) -> Self {
        self.values.push((pointer, value.into()));
        self
    }

    /// One more route, without the picker, for the paths that begin like this.
    pub fn route_without_picker(mut self, path_prefix: &'static str) -> Self {
        self.route_without_picker = Some(path_prefix);
        self
    }

    /// A field of the picker's own configuration, such as `failureMode`.
    pub fn picker_field(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.picker_fields.push((field.to_owned(), value.into()));
        self
    }

    /// The cluster by which the picker reaches the agent, in place of the shipped one.
    pub fn agent_cluster(mut self, cluster: Value) -> Self {
        self.agent_cluster = Some(cluster);
        self
    }

    /// A function that Envoy and the picker are kept from calling.
    pub fn shut(mut self, function: &'static str) -> Self {
        self.shut = Some(function);
        self
    }

    /// Envoy passes paths on as clients write them.
    pub fn without_path_normalization(mut self) -> Self {
        self.paths = Paths::Unchanged;
        self
    }

    /// A change to Envoy's configuration.
    pub fn change(mut self, change: Change) -> Self {
        self.change = Some(change);
        self
    }

    /// One more HTTP filter, right before the picker.
    pub fn filter_before_picker(mut self, filter: Value) -> Self {
        self.filters.push(filter);
        self
    }

    /// Envoy takes `CONNECT`, which opens a tunnel to a model server.
    pub fn accepts_connect(mut self) -> Self {
        self.accepts_connect = true;
        self
    }

    /// Starts all of it. With picker and agent, every worker is picking when this returns.
    ///
    /// # Panics
    ///
    /// When anything does not start, with the reason and the place of the logs.
    pub async fn start(self) -> Stack {
        match self.try_start().await {
            Ok(stack) => stack,
            Err(reason) => panic!("the stack did not start: {reason:?}"),
        }
    }

    async fn try_start(self) -> Result<Stack> {
        let mut dir = RunDir::new()?;
        fs::create_dir(dir.path().join(EDS_FOLDER))?;

        let mut servers = Vec::new();
        for _ in 0..self.servers {
            servers.push(ModelServer::start()?);
        }
        let endpoints: Vec<SocketAddr> = servers.iter().map(ModelServer::address).collect();
        write_discovery(&dir.path().join(DISCOVERY_FILE), &endpoints)?;

        if let Some(yaml) = &self.manifests {
            fs::write(dir.path().join(MANIFESTS_FILE), yaml)?;
        }

        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (mut agent, mut agent_port) = (None, None);
        // The agent writes a file for each pool, but the pools share the one cluster.
        let agent_writes_eds = self.has_agent && self.second_pool.is_none();
        let eds = agent_writes_eds.then_some(self.eds);
        if !agent_writes_eds {
            write_eds(&dir.path().join(EDS_FILE), &endpoints)?;
        }
        let agent_address = if self.has_agent {
            agent.insert(start_agent(any_port, dir.path(), eds, self.agent_flags).await?).address()
        } else if let Some(address) = self.own_agent {
            address
        } else {
            let socket = agent_port.insert(TcpSocket::new_v4()?);
            socket.bind(any_port)?;
            socket.local_addr()?
        };

        let config = self.envoy_config(agent_address.port(), dir.path())?;
        let envoy = if self.can_hot_restart {
            Envoy::start_succession(&config, dir.path(), self.workers).await?
        } else {
            Envoy::start(&config, dir.path(), self.workers).await?
        };
        let is_picking = self.picker.is_some() && self.has_agent;
        dir.settle();
        let stack = Stack { envoy, workers: self.workers, agent, agent_address, agent_port, servers, dir };
        if is_picking {
            stack.wait_until_picking().await;
            for server in &stack.servers {
                server.take_requests();
            }
        }
        Ok(stack)
    }

    /// The shipped configuration with this stack's ports, paths and filters.
    fn envoy_config(&self, agent_port: u16, folder: &Path) -> Result<Config> {
        // The next Envoy must find the port of the one before.
        let port = if self.can_hot_restart { free_port()? } else { 0 };
        let places = Places { port, admin_port: 0, agent_port, folder };
        let mut config = Config::shipped(self.config, places)?;
        match self.access_log {
            AccessLog::File => config.log_to(&folder.join(ACCESS_LOG))?,
            AccessLog::Shipped => {}
            AccessLog::Off => config.remove_access_log()?,
        }
        if let Some(limit) = self.request_timeout {
            config.set_request_timeout(limit)?;
        }
        for (field, value) in &self.picker_fields {
            config.set_picker_field(field, value.clone())?;
        }
        if let Some(function) = self.shut {
            config.shut(function)?;
        }
        if self.paths == Paths::Unchanged {
            config.remove_path_normalization()?;
        }
        if let Some(cluster) = &self.agent_cluster {
            config.replace_agent_cluster(cluster.clone())?;
        }
        if let Some(change) = self.change {
            change(&mut config)?;
        }
        for filter in &self.filters {
            config.insert_before_picker(filter.clone())?;
        }
        if self.accepts_connect {
            config.accept_connect()?;
        }
        if let Some(module) = self.picker {
            config.set_picker_module(&module()?)?;
            if let Some((pool, path_prefix)) = self.second_pool {
                config.add_pool(pool, path_prefix)?;
            }
            for (pointer, value) in &self.values {
                let place = config.document().pointer_mut(pointer);
                *place.with_context(|| format!("the configuration has nothing at {pointer}"))? =
                    value.clone();
            }
            if let Some(path_prefix) = self.route_without_picker {
                config.add_route_without_picker(path_prefix)?;
            }
        } else {
            config.remove_picker()?;
        }
        Ok(config)
    }
}

/// A port that nobody has at this moment.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
