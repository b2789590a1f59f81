//! The metrics agent.

use std::error::Error;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use hyper::Uri;
use metrics_agent::flags::{Command, Flags, PolicyFlags};
use metrics_agent::status::fetch;
use metrics_agent::{agent, manifests};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let mut flags = Flags::parse();
    let done = match flags.command.take() {
        Some(Command::Check { path, policy }) => check(&path, policy),
        Some(Command::Snapshot { agent, pool, file }) => {
            snapshot(&agent, pool.as_deref(), file.as_deref()).await
        }
        None => start(flags).await.map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("metrics-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(path: &Path, policy: PolicyFlags) -> Result<ExitCode, Box<dyn Error>> {
    match manifests::check::check(path, &policy.options()?) {
        Ok(summary) => {
            print!("{summary}");
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            eprintln!("{problems}");
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn snapshot(agent: &Uri, pool: Option<&str>, file: Option<&Path>) -> Result<ExitCode, Box<dyn Error>> {
    let status = match file {
        Some(file) => fetch::from_file(file)?,
        None => fetch::from_agent(agent, pool).await?,
    };
    print!("{status}");
    Ok(ExitCode::SUCCESS)
}

async fn start(flags: Flags) -> Result<(), Box<dyn Error>> {
    let filter = EnvFilter::try_new(&flags.log).map_err(|error| format!("--log {:?}: {error}", flags.log))?;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter)
        .init();

    let listen = flags.listen;
    let settings = flags.settings()?;
    let stop = stop_on_signals()?;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| format!("cannot listen on {listen} (--listen): {error}"))?;
    let address = listener.local_addr()?;
    // The one line on standard output: it tells whoever started the agent which port was free.
    println!("listening on {address}");
    tracing::info!(%address, pool = settings.options.default_pool, "listening");
    agent::run(settings, listener, stop).await?;
    tracing::info!("ended");
    Ok(())
}

fn stop_on_signals() -> std::io::Result<CancellationToken> {
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
