//! The start of a stack.

use super::agent::{DISCOVERY_FILE, MANIFESTS_FILE, start_agent};
use super::builder::{AccessLog, Builder, Paths, Picker, Replaceable};
use super::live::Stack;
use crate::Filter;
use crate::config::{ACCESS_LOG, Config, EDS_FILE, EDS_FOLDER, Places};
use crate::endpoint_files::write_discovery;
use crate::endpoint_files::write_eds;
use crate::program::{Envoy, free_port};
use crate::run_dir::RunDir;
use anyhow::{Context, Result};
use endpoint_picker_model_server::ModelServer;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use tokio::net::TcpSocket;

impl Builder {
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
        let own_servers = servers.iter().map(ModelServer::address);
        let endpoints: Vec<SocketAddr> = own_servers.chain(self.other_servers.iter().copied()).collect();
        write_discovery(&dir.path().join(DISCOVERY_FILE), &endpoints)?;

        if let Some(yaml) = &self.manifests {
            fs::write(dir.path().join(MANIFESTS_FILE), yaml)?;
        }

        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (mut agent, mut agent_port) = (None, None);
        // With two pools the agent would write a file for each, but here they share one cluster.
        let agent_writes_eds = self.has_agent && self.second_pool.is_none();
        let eds = agent_writes_eds.then_some(self.eds);
        if !agent_writes_eds {
            write_eds(&dir.path().join(EDS_FILE), &endpoints)?;
        }
        let agent_address = if self.has_agent {
            agent.insert(start_agent(any_port, dir.path(), eds, &self.agent_flags).await?).address()
        } else if let Some(address) = self.own_agent {
            address
        } else {
            let socket = agent_port.insert(TcpSocket::new_v4()?);
            socket.bind(any_port)?;
            socket.local_addr()?
        };

        // Without the picker there is nothing to convert.
        let filter = match (self.picker, self.filter) {
            (Picker::Absent, _) => Filter::Wasm,
            (Picker::Shipped | Picker::CanTrap, Some(filter)) => filter,
            (Picker::Shipped | Picker::CanTrap, None) => Filter::chosen()?,
        };
        let mut config = self.envoy_config(filter, agent_address.port(), dir.path())?;
        if self.lists_endpoints {
            config.list_endpoints(&endpoints)?;
        }
        let envoy = match self.replaceable {
            Replaceable::Nothing => Envoy::start(&config, dir.path(), self.workers).await?,
            Replaceable::Envoy => Envoy::start_succession(&config, dir.path(), self.workers).await?,
            Replaceable::Listeners => {
                config.write_listeners(dir.path())?;
                Envoy::start(&config.with_listeners_in_file(dir.path())?, dir.path(), self.workers).await?
            }
        };
        let is_picking = self.picker != Picker::Absent && (self.has_agent || self.lists_endpoints);
        dir.settle();
        let stack = Stack {
            envoy,
            config,
            workers: self.workers,
            agent,
            agent_flags: self.agent_flags,
            agent_address,
            agent_port,
            servers,
            dir,
        };
        if is_picking {
            stack.wait_until_picking().await;
            for server in &stack.servers {
                server.take_requests();
            }
        }
        Ok(stack)
    }

    /// The shipped configuration with this stack's ports, paths and filters.
    fn envoy_config(&self, filter: Filter, agent_port: u16, folder: &Path) -> Result<Config> {
        // The next Envoy has to take over the port of the one before.
        let port = if self.replaceable == Replaceable::Envoy { free_port()? } else { 0 };
        let places = Places { port, admin_port: 0, agent_port, folder };
        let mut config = Config::shipped(self.config, filter, places)?;
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
        let module = match self.picker {
            Picker::Shipped => Some(filter.module()?),
            Picker::CanTrap => Some(filter.trapping_module()?),
            Picker::Absent => None,
        };
        if let Some(module) = module {
            config.set_picker_module(&module)?;
            if let Some((pool, path_prefix)) = self.second_pool {
                config.add_pool(pool, path_prefix)?;
            }
            for (pointer, value) in &self.values {
                let place = config.document().pointer_mut(pointer);
                *place.with_context(|| format!("the configuration has no value at {pointer}"))? =
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
