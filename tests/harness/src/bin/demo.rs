//! `make run`: demo model servers, or the user's own, the agent and Envoy with the filter, until Ctrl-C.

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::{ACCESS_LOG, Config, EDS_FILE, EDS_FOLDER, Places};
use endpoint_picker_harness::endpoint_files::write_eds;
use endpoint_picker_harness::program::Agent;
use endpoint_picker_harness::program::Envoy;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::{MODEL, ModelServer, SERVED_BY};
use metrics_agent_server_model::ServiceTimes;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

const DEMO_SERVERS: usize = 3;
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Runs the endpoint picker in an Envoy on loopback, for a look at it.
#[derive(Debug, Parser)]
struct Options {
    /// Your model servers (host:port,host:port) in place of three demo ones.
    #[arg(long, env = "ENDPOINTS", value_name = "HOST:PORT", value_delimiter = ',')]
    endpoints: Vec<String>,
    /// The form of the filter: wasm, or native, which is loaded as a library.
    #[arg(long, env = "FILTER", default_value = "wasm")]
    filter: Filter,
    /// The rules: expected-latency, epp, or with an agent a file with an `EndpointPickerConfig`.
    #[arg(long, env = "RULES", default_value = "expected-latency")]
    rules: String,
    /// Whether an agent reads the servers; without it the filter's configuration lists them, by their IP
    /// addresses.
    #[arg(long, env = "AGENT", default_value = "on")]
    agent: Switch,
    /// Port for requests.
    #[arg(long, env = "PORT", default_value_t = 10000)]
    port: u16,
    /// Port of Envoy's admin interface.
    #[arg(long, env = "ADMIN_PORT", default_value_t = 9901)]
    admin_port: u16,
    /// Port of the metrics agent.
    #[arg(long, env = "AGENT_PORT", default_value_t = 9095)]
    agent_port: u16,
}

/// Whether a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// The running programs; they end when dropped, Envoy first.
struct Running {
    envoy: Envoy,
    agent: Option<Agent>,
    _servers: Vec<ModelServer>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run_until_signalled(&Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run_until_signalled(options: &Options) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let signalled = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    };
    tokio::pin!(signalled);

    let ended = tokio::select! {
        biased;
        () = &mut signalled => Ok(()),
        ended = run(options) => ended,
    };
    // Ctrl-C at a terminal reaches Envoy and the agent as well: that they ended is then no error.
    if ended.is_err() && timeout(CHECK_INTERVAL, signalled).await.is_err() {
        return ended;
    }
    println!("\nStopped.");
    Ok(())
}

/// Runs until a program ends by itself, which is an error.
async fn run(options: &Options) -> Result<()> {
    check_ports(options)?;
    let folder = tools::root().join(format!("target/run/{}", options.port));
    fs::create_dir_all(folder.join(EDS_FOLDER)).with_context(|| format!("create {}", folder.display()))?;

    let servers = if options.endpoints.is_empty() { demo_servers()? } else { Vec::new() };
    let endpoints: Vec<String> = if servers.is_empty() {
        options.endpoints.clone()
    } else {
        servers.iter().map(ModelServer::endpoint).collect()
    };
    let mut running = start(options, &folder, &endpoints, servers).await?;
    print_what_to_try(options, &folder, &endpoints);
    loop {
        sleep(CHECK_INTERVAL).await;
        running.envoy.check_running()?;
        if let Some(agent) = &mut running.agent {
            agent.check_running()?;
        }
    }
}

fn demo_servers() -> Result<Vec<ModelServer>> {
    let start =
        |number| ModelServer::start_with_service_times(&format!("demo-{number}"), ServiceTimes::default());
    (1..=DEMO_SERVERS).map(start).collect()
}

async fn start(
    options: &Options,
    folder: &Path,
    endpoints: &[String],
    servers: Vec<ModelServer>,
) -> Result<Running> {
    let eds = folder.join(EDS_FILE);
    let agent = match options.agent {
        Switch::On => {
            let mut flags = vec![
                "--eds-cluster".into(),
                "model-servers".into(),
                "--eds-file".into(),
                eds.into_os_string(),
            ];
            flags.extend(["--rules".into(), (&options.rules).into()]);
            flags.extend(endpoints.iter().flat_map(|endpoint| ["--endpoint".into(), endpoint.into()]));
            let log = folder.join("agent.log");
            Some(Agent::start(loopback(options.agent_port), flags, &log).await?)
        }
        Switch::Off => None,
    };

    let (port, admin_port, agent_port) = (options.port, options.admin_port, options.agent_port);
    let mut config =
        Config::shipped("envoy.yaml", options.filter, Places { port, admin_port, agent_port, folder })?;
    if agent.is_none() {
        let address = |endpoint: &String| {
            endpoint.parse().with_context(|| {
                format!("ENDPOINTS has {endpoint:?}; without an agent it is an IP address and a port")
            })
        };
        let addresses: Vec<SocketAddr> = endpoints.iter().map(address).collect::<Result<_>>()?;
        write_eds(&folder.join(EDS_FILE), &addresses)?;
        config.list_endpoints(&addresses)?;
        config.set_picker_field("rules", options.rules.as_str().into())?;
    }
    config.log_to(&folder.join(ACCESS_LOG))?;
    config.set_picker_module(&options.filter.module()?)?;
    let workers =
        available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX).min(4));
    let envoy = Envoy::start(&config, folder, workers).await?;
    Ok(Running { envoy, agent, _servers: servers })
}

/// Reports a port in use before anything is started.
fn check_ports(options: &Options) -> Result<()> {
    let ports =
        [("PORT", options.port), ("ADMIN_PORT", options.admin_port), ("AGENT_PORT", options.agent_port)];
    for (name, port) in ports {
        let advice = || {
            format!(
                "port {port} cannot be used; choose another with `make run {name}={}`",
                port.wrapping_add(1)
            )
        };
        TcpListener::bind(loopback(port)).with_context(advice)?;
    }
    Ok(())
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn print_what_to_try(options: &Options, folder: &Path, endpoints: &[String]) {
    let url = format!("http://{}", loopback(options.port));
    let is_demo = options.endpoints.is_empty();
    println!("\nThe endpoint picker runs in Envoy at {url}, in front of");
    for (index, endpoint) in endpoints.iter().enumerate() {
        let name = if is_demo { format!(" (demo-{})", index + 1) } else { String::new() };
        println!("  {endpoint}{name}");
    }
    if is_demo {
        println!("\nTry, and see in {SERVED_BY} which server answered:");
    } else {
        println!("\nTry, with a model of yours:");
    }
    println!("  curl -i {url}/v1/chat/completions -H 'content-type: application/json' \\");
    println!(
        "    -d '{{\"model\":\"{MODEL}\",\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}],\"stream\":true}}'"
    );
    println!("\nLook at");
    println!("  every request        {}", folder.join(ACCESS_LOG).display());
    println!("  what the picker did  http://{}/stats?filter=endpoint_picker", loopback(options.admin_port));
    if options.agent == Switch::On {
        println!("  the servers, live    http://{}/", loopback(options.agent_port));
        println!("  the agent            http://{}/metrics", loopback(options.agent_port));
    }
    println!("  their logs           {}/*.log", folder.display());
    println!("\nCtrl-C stops all of it.");
}
