//! The metrics agent.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use hyper::Uri;
use metrics_agent::agent::{self, Listeners};
use metrics_agent::flags::{
    AgentFlags, Command, ExplainFlags, Flags, KubernetesFlags, PolicyFlags, PoolFlags,
};
use metrics_agent::{logging, replay};
use metrics_agent_check as check;
use metrics_agent_doctor::doctor::EnvoyAdmin;
use metrics_agent_doctor::{doctor, explain, recorded};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of `explain` when the request is not routed to an endpoint.
const NOT_ROUTED: u8 = 3;

fn main() -> ExitCode {
    match run(Flags::parse()) {
        Ok(code) => code,
        Err(error) => {
            print_error(format_args!("metrics-agent: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(mut flags: Flags) -> Result<ExitCode, Box<dyn Error>> {
    let runtime = runtime::Builder::new_multi_thread()
        .worker_threads(flags.threads.get().into())
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start threads: {error}"))?;
    runtime.block_on(async {
        survive_file_size_limit()?;
        match flags.command.take() {
            Some(Command::Check { path: Some(path), kubernetes, policy, .. }) => {
                kubernetes.refuse("--cluster")?;
                check(&path, policy)
            }
            Some(Command::Check { path: None, kubernetes, policy, envoy_gateway, .. }) => {
                check_cluster(kubernetes, policy, envoy_gateway).await
            }
            Some(Command::Snapshot { source, save, file }) => {
                snapshot(&source, save.as_deref(), file.as_deref()).await
            }
            Some(Command::Explain(flags)) => explain(&flags).await,
            Some(Command::Replay(flags)) => {
                print(replay::replay(&flags)?)?;
                Ok(ExitCode::SUCCESS)
            }
            Some(Command::Doctor { envoy_admin, agent }) => examine(envoy_admin, &agent).await,
            None => Box::pin(start(flags)).await.map(|()| ExitCode::SUCCESS),
        }
    })
}

fn check(path: &Path, policy: PolicyFlags) -> Result<ExitCode, Box<dyn Error>> {
    match check::check(path, &policy.options()?) {
        Ok(summary) => {
            print(summary)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            print_error(problems);
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn check_cluster(
    kubernetes: KubernetesFlags,
    policy: PolicyFlags,
    envoy_gateway: Option<String>,
) -> Result<ExitCode, Box<dyn Error>> {
    let pool = policy.only_pool().map(str::to_owned);
    let options = policy.options()?;
    // Pods are not read.
    let watched = kubernetes.settings(0);
    let report = check::cluster::check(watched, pool, envoy_gateway, options).await?;
    print(&report)?;
    Ok(if report.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn snapshot(
    source: &PoolFlags,
    save: Option<&Path>,
    file: Option<&Path>,
) -> Result<ExitCode, Box<dyn Error>> {
    let pool = source.pool.as_deref();
    match (file, save) {
        (Some(file), _) => print(recorded::status(file)?)?,
        (None, Some(save)) => {
            let snapshot = source.agent.client().await?.snapshot(pool).await?;
            std::fs::write(save, snapshot)
                .map_err(|error| format!("{} (--save): {error}", save.display()))?;
        }
        (None, None) => {
            let agent = source.agent.client().await?;
            let refused = agent.pools().await?.refused;
            let status = agent.status(pool).await;
            if let Ok(status) = &status {
                print(status)?;
            }
            print(refused)?;
            status?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn explain(flags: &ExplainFlags) -> Result<ExitCode, Box<dyn Error>> {
    let request = flags.request()?;
    let (snapshot, queue) = if let Some(file) = &flags.snapshot {
        (recorded::snapshot(file)?, None)
    } else {
        let (agent, pool) = (flags.source.agent.client().await?, flags.source.pool.as_deref());
        let snapshot = endpoint_picker_wire::decode(&agent.snapshot(pool).await?)?;
        (snapshot, agent.status(pool).await?.queue)
    };
    let result = explain::explain(snapshot, &request, queue.as_ref())?;
    print(&result)?;
    Ok(if result.is_routed() { ExitCode::SUCCESS } else { ExitCode::from(NOT_ROUTED) })
}

async fn examine(envoy_admin: Uri, agent: &AgentFlags) -> Result<ExitCode, Box<dyn Error>> {
    let report = doctor::examine(&EnvoyAdmin::new(envoy_admin), &agent.client().await?).await?;
    print(&report)?;
    Ok(if report.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn start(flags: Flags) -> Result<(), Box<dyn Error>> {
    let _log = logging::start(&flags.log).map_err(|error| format!("--log {:?}: {error}", flags.log))?;
    let (listen, listen_health) = (flags.listen, flags.listen_health);
    let settings = flags.settings()?;
    let stop = stop_on_signals()?;
    let api = bind(listen, "--listen").await?;
    let health = match listen_health {
        Some(address) => Some(bind(address, "--listen-health").await?),
        None => None,
    };
    let extension = match &settings.extension {
        Some(server) => Some(server.bind().await?),
        None => None,
    };
    let address = api.local_addr()?;
    // The only lines on standard output, so that the parent process can read which ports were free.
    let mut lines = vec![format!("listening on {address}\n")];
    if let Some(health) = &health {
        lines.push(format!("health checks on {}\n", health.local_addr()?));
    }
    if let Some(extension) = &extension {
        lines.push(format!("extension server on {}\n", extension.local_addr()?));
    }
    if let Err(error) = print(lines.concat()) {
        tracing::warn!(%error, "the address was not printed");
    }
    tracing::info!(%address, pool = settings.options.default_pool, "listening");
    agent::run(settings, Listeners { api, health, extension }, stop)
        .await
        .map_err(|error| -> Box<dyn Error> { error })?;
    tracing::info!("ended");
    Ok(())
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, String> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| format!("cannot listen on {address} ({flag}): {error}"))
}

/// Prints on standard output. A closed pipe, as with `head`, is not an error.
fn print(text: impl Display) -> Result<(), String> {
    let mut output = io::stdout().lock();
    match write!(output, "{text}").and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("cannot write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

/// Prints a line on standard error, if it can be written.
fn print_error(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Handles the signal of the limit on file sizes, so that a write beyond it fails with an error instead of
/// ending the process.
fn survive_file_size_limit() -> io::Result<()> {
    signal(SignalKind::from_raw(libc::SIGXFSZ)).map(drop)
}

fn stop_on_signals() -> io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let signalled = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        signalled.cancel();
    });
    Ok(stop)
}
