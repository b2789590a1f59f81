//! A simulated model server as a program, for pods.

use anyhow::Result;
use clap::Parser;
use endpoint_picker_model_server::ModelServer;
use metrics_agent_server_model::ServiceTimes;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Simulates a vLLM server: the OpenAI API and /metrics, with service times that grow with the load.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Where it listens.
    #[arg(long, default_value = "0.0.0.0:8000")]
    listen: SocketAddr,
    /// Its name, in the responses' header x-served-by; in a pod the pod's.
    #[arg(long, env = "HOSTNAME", default_value = "model-server")]
    name: String,
    /// How long it serves on after SIGTERM, in seconds, while clients still take it for ready.
    #[arg(long, default_value_t = 2)]
    drain: u64,
    /// Requests that it works on at once, as vLLM's option of this name; the others wait.
    #[arg(long, default_value_t = ServiceTimes::default().max_running)]
    max_num_seqs: usize,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let mut terminate = signal(SignalKind::terminate())?;
    let times = ServiceTimes { max_running: options.max_num_seqs.max(1), ..ServiceTimes::default() };
    let server = ModelServer::start_with_service_times_at(options.listen, &options.name, times)?;
    println!("listening on {}", server.address());
    tokio::select! {
        _ = terminate.recv() => tokio::time::sleep(Duration::from_secs(options.drain)).await,
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    Ok(())
}
