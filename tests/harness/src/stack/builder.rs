//! The options of a stack.

use super::agent::Eds;
use super::live::Stack;
use crate::Filter;
use crate::config::Config;
use anyhow::Result;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

/// The options of a stack that is to be started; see [`Stack::builder`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    pub(super) config: &'static str,
    pub(super) servers: usize,
    /// Servers that another stack has started.
    pub(super) other_servers: Vec<SocketAddr>,
    pub(super) workers: u32,
    /// The form of the filter, in place of the one that `FILTER` names.
    pub(super) filter: Option<Filter>,
    /// Which build of the filter runs.
    pub(super) picker: Picker,
    pub(super) replaceable: Replaceable,
    pub(super) access_log: AccessLog,
    pub(super) has_agent: bool,
    pub(super) lists_endpoints: bool,
    pub(super) agent_flags: Vec<String>,
    pub(super) manifests: Option<String>,
    pub(super) own_agent: Option<SocketAddr>,
    pub(super) second_pool: Option<(&'static str, &'static str)>,
    pub(super) route_without_picker: Option<&'static str>,
    /// The files that the agent writes, if it writes Envoy's endpoints.
    pub(super) eds: Eds,
    pub(super) values: Vec<(&'static str, Value)>,
    pub(super) request_timeout: Option<Duration>,
    pub(super) picker_fields: Vec<(String, Value)>,
    pub(super) agent_cluster: Option<Value>,
    pub(super) shut: Option<&'static str>,
    pub(super) paths: Paths,
    pub(super) change: Option<Change>,
    pub(super) filters: Vec<Value>,
    pub(super) accepts_connect: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Picker {
    Shipped,
    /// The one for tests, see [`Filter::trapping_module`](crate::Filter::trapping_module).
    CanTrap,
    /// Envoy runs without a picker.
    Absent,
}

/// Parts that can be replaced while the stack runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaceable {
    Nothing,
    /// See [`Stack::hot_restart`].
    Envoy,
    /// See [`Stack::change_listeners`].
    Listeners,
}

/// How Envoy passes paths on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paths {
    /// As in the shipped configuration.
    Normalized,
    /// As clients write them.
    Unchanged,
}

/// A change to a shipped configuration.
pub(crate) type Change = fn(&mut Config) -> Result<()>;

#[derive(Clone, Copy, Debug)]
pub(super) enum AccessLog {
    /// [`ACCESS_LOG`](crate::config::ACCESS_LOG), for [`Stack::logged`].
    File,
    Shipped,
    Off,
}

impl Stack {
    /// Three model servers, an agent, and Envoy with the shipped `envoy.yaml`, unless the builder is changed.
    /// The environment variable `FILTER` names the form of the filter.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            config: "envoy.yaml",
            servers: 3,
            other_servers: Vec::new(),
            workers: 2,
            filter: None,
            picker: Picker::Shipped,
            replaceable: Replaceable::Nothing,
            access_log: AccessLog::File,
            has_agent: true,
            lists_endpoints: false,
            agent_flags: Vec::new(),
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

    /// These servers, which another stack has started, in place of own ones.
    pub fn other_servers(mut self, servers: &[SocketAddr]) -> Self {
        self.servers = 0;
        self.other_servers = servers.to_vec();
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

    /// This form of the filter, whatever the environment variable names.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// Envoy alone, without picker and agent.
    pub fn bare(mut self) -> Self {
        self.picker = Picker::Absent;
        self.has_agent = false;
        self
    }

    /// Uses the picker for tests: the header `x-test-trap` traps its VM, or panics in the native module.
    pub fn can_trap(mut self) -> Self {
        self.picker = Picker::CanTrap;
        self
    }

    /// Another Envoy can take over, see [`Stack::hot_restart`].
    pub fn can_hot_restart(mut self) -> Self {
        self.replaceable = Replaceable::Envoy;
        self
    }

    /// Envoy has its listeners from a file, see [`Stack::change_listeners`].
    pub fn listeners_in_file(mut self) -> Self {
        self.replaceable = Replaceable::Listeners;
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

    /// No agent yet, see [`Stack::start_agent`]. Envoy has the endpoints from a file.
    pub fn without_agent(mut self) -> Self {
        self.has_agent = false;
        self
    }

    /// No agent: the picker's own configuration lists the endpoints.
    pub fn endpoints_in_picker(mut self) -> Self {
        self.has_agent = false;
        self.lists_endpoints = true;
        self
    }

    /// Flags for the stack's agent.
    pub fn agent_flags(mut self, flags: &[&str]) -> Self {
        self.agent_flags = flags.iter().copied().map(str::to_owned).collect();
        self
    }

    /// The time within which a request must have come whole, in place of the shipped one.
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

    /// The cluster through which the wasm filter reaches the agent, in place of the shipped one.
    pub fn agent_cluster(mut self, cluster: Value) -> Self {
        self.agent_cluster = Some(cluster);
        self
    }

    /// A function that the capability restriction leaves out.
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
}
