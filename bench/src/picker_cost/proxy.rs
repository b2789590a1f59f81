//! Running proxies in front of one pool of model servers.

use super::proxy_kind::{ProxyKind, Rules};
use crate::load::wrk::{self, Figures, WrkLoad};
use crate::shipped_proxy;
use crate::upstreams::Upstreams;
use anyhow::{Context, Result};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::{Config, EDS_FILE, EDS_FOLDER, Places};
use endpoint_picker_harness::endpoint_files::write_eds;
use endpoint_picker_harness::program::process_tree::{cpu_time, taken};
use endpoint_picker_harness::program::{Agent, Envoy};
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::statistics::PickerStatistics;
use serde_json::{Value, json};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than the turns of all other proxies, after which a proxy would otherwise have to connect to every
/// server again.
const UPSTREAM_IDLE: &str = "120s";
const IDLE_TIMEOUT: &str = "/static_resources/clusters/0/typed_extension_protocol_options/\
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions/common_http_protocol_options/idle_timeout";

/// The proxies of each kind for each number of workers, in front of the same servers, with one agent for each
/// set of rules; they end when dropped.
#[derive(Debug)]
pub(crate) struct Pool {
    // In the order of their end: the proxies first.
    proxies: Vec<(u32, Vec<RunningProxy>)>,
    _agents: Vec<Agent>,
    _upstreams: Upstreams,
    dir: RunDir,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct RunningProxy {
    envoy: Envoy,
    has_picker: bool,
    /// Values of the destination header, where the client sets it.
    destinations: Option<PathBuf>,
}

/// The result of one turn of one proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) figures: Figures,
    /// Processor time of the whole proxy, for each request.
    pub(crate) cpu: Duration,
}

impl Pool {
    /// Starts them with this many endpoints, and waits until all pickers pick.
    pub(crate) async fn start(kinds: &[ProxyKind], endpoints: usize, workers: &[u32]) -> Result<Self> {
        let mut dir = RunDir::new()?;
        fs::create_dir_all(dir.path().join(EDS_FOLDER))?;
        let upstreams = Upstreams::start(endpoints).await?;
        write_eds(&dir.path().join(EDS_FILE), upstreams.addresses())?;
        let mut agents: Vec<(Rules, Agent)> = Vec::new();
        for rules in kinds.iter().map(ProxyKind::rules) {
            if agents.iter().all(|(of, _)| *of != rules) {
                agents.push((rules, start_agent(dir.path(), upstreams.addresses(), rules).await?));
            }
        }
        let lines = upstreams.addresses().iter().map(|address| format!("{address}\n"));
        let destinations = dir.path().join("destinations");
        fs::write(&destinations, lines.collect::<String>())?;

        let mut proxies = Vec::new();
        for &workers in workers {
            let mut of_workers = Vec::new();
            for (number, kind) in kinds.iter().enumerate() {
                let folder = dir.path().join(format!("proxy-{workers}-{number}"));
                fs::create_dir(&folder)?;
                let agent = agents.iter().find(|(rules, _)| *rules == kind.rules());
                let (_, agent) = agent.context("the rules of each kind have an agent")?;
                let config = config(kind, dir.path(), agent.address().port())?;
                let envoy = Envoy::start(&config, &folder, workers).await?;
                let has_picker = *kind != ProxyKind::Bare;
                if has_picker {
                    shipped_proxy::wait_until_picking(&envoy).await?;
                }
                let destinations = (!has_picker).then(|| destinations.clone());
                of_workers.push(RunningProxy { envoy, has_picker, destinations });
            }
            proxies.push((workers, of_workers));
        }
        dir.settle();
        let agents = agents.into_iter().map(|(_, agent)| agent).collect();
        Ok(Self { proxies, _agents: agents, _upstreams: upstreams, dir })
    }

    /// The folder of the pool's files.
    pub(crate) fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// The proxies with this many workers, in the order of their kinds.
    pub(crate) fn with_workers(&self, workers: u32) -> Result<&[RunningProxy]> {
        let found = self.proxies.iter().find(|(of, _)| *of == workers);
        found.map(|(_, proxies)| proxies.as_slice()).context("a number of workers that was started")
    }

    /// Requests that the pickers have left to Envoy, without the last second.
    pub(crate) async fn abstained(&self) -> Result<u64> {
        let mut abstained = 0;
        for proxy in self.proxies.iter().flat_map(|(_, proxies)| proxies).filter(|proxy| proxy.has_picker) {
            abstained += PickerStatistics::of(&proxy.envoy).await?.sum("abstained");
        }
        Ok(abstained)
    }
}

impl RunningProxy {
    /// Puts it under load. `bodies` has a request body in each line.
    pub(crate) fn turn(&self, load: WrkLoad, lasting: Duration, bodies: &Path) -> Result<Turn> {
        let before = cpu_time(self.envoy.process_id())?;
        let figures = wrk::run(self.envoy.listener(), load, lasting, bodies, self.destinations.as_deref())?;
        let cpu = cpu_time(self.envoy.process_id())?.saturating_sub(before);
        Ok(Turn { figures, cpu: cpu.div_f64(figures.requests.max(1) as f64) })
    }

    /// Its private memory in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        taken(self.envoy.process_id())
    }
}

/// `folder` has the file of endpoints.
fn config(kind: &ProxyKind, folder: &Path, agent_port: u16) -> Result<Config> {
    let mut config = match kind {
        ProxyKind::Bare => with_buffer(folder, agent_port)?,
        ProxyKind::Picker { filter, module, rules: _ } => {
            let mut config = shipped_proxy::config(*filter, folder, agent_port)?;
            let own = || filter.module();
            config.set_picker_module(&module.clone().map_or_else(own, Ok)?)?;
            config
        }
        ProxyKind::NativeCluster => with_own_cluster(folder, agent_port)?,
        ProxyKind::NativeResuming { module } => with_resumption(folder, agent_port, module.as_deref())?,
    };
    let idle_timeout = config.document().pointer_mut(IDLE_TIMEOUT);
    *idle_timeout.context("the servers' cluster has no idle timeout")? = UPSTREAM_IDLE.into();
    Ok(config)
}

/// Holds each request until its body is complete, as the picker does, and takes the destination from the
/// client's header.
fn with_buffer(folder: &Path, agent_port: u16) -> Result<Config> {
    let mut config = shipped_proxy::config(Filter::Wasm, folder, agent_port)?;
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

/// The servers' cluster is one of the module, in place of EDS and `override_host`.
fn with_own_cluster(folder: &Path, agent_port: u16) -> Result<Config> {
    let module = Filter::Native.module()?;
    let mut config = shipped_proxy::config(Filter::Native, folder, agent_port)?;
    config.set_picker_module(&module)?;
    config.set_picker_field("steering", "cluster".into())?;
    let cluster =
        config.document().pointer_mut("/static_resources/clusters/0").and_then(Value::as_object_mut);
    let cluster = cluster.context("the servers' cluster")?;
    for field in ["type", "eds_cluster_config", "load_balancing_policy"] {
        cluster.remove(field).with_context(|| format!("the servers' cluster has no {field}"))?;
    }
    cluster.insert("lb_policy".to_owned(), "CLUSTER_PROVIDED".into());
    let of_module = json!({
        "name": "envoy.clusters.dynamic_modules",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig",
            "dynamic_module_config": {"module": {"local": {"filename": module}}, "do_not_close": true},
            "cluster_name": "endpoint-picker",
            "cluster_config": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": r#"{"pool": "default"}"#,
            },
        },
    });
    cluster.insert("cluster_type".to_owned(), of_module);
    Ok(config)
}

/// Streams are resumed.
fn with_resumption(folder: &Path, agent_port: u16, module: Option<&Path>) -> Result<Config> {
    let places = Places { port: 0, admin_port: 0, agent_port, folder };
    let mut config = Config::shipped("examples/resume-streams", Filter::Native, places)?;
    config.remove_access_log()?;
    let module = module.map_or_else(|| Filter::Native.module(), |module| Ok(module.to_owned()))?;
    config.set_picker_module(&module)?;
    Ok(config)
}

async fn start_agent(folder: &Path, endpoints: &[SocketAddr], rules: Rules) -> Result<Agent> {
    let (log, eds_file) = match rules {
        Rules::Default => ("agent.log", folder.join(EDS_FILE)),
        // The proxies read one file, which both would write.
        Rules::Epp => ("agent-epp.log", folder.join("endpoints-of-epp.json")),
    };
    let eds_file = eds_file.to_str().context("the folder's name is not UTF-8")?;
    let mut flags = ["--eds-cluster", "model-servers", "--eds-file", eds_file].map(str::to_owned).to_vec();
    if rules == Rules::Epp {
        flags.extend(["--rules", "epp"].map(str::to_owned));
    }
    flags.extend(endpoints.iter().flat_map(|endpoint| ["--endpoint".to_owned(), endpoint.to_string()]));
    Agent::start((Ipv4Addr::LOCALHOST, 0).into(), flags, &folder.join(log)).await
}
