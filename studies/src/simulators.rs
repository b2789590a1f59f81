//! The servers: llm-d-inference-sim, which simulates vLLM with its queue, its prefix cache and its metrics.

use anyhow::{Context, Result};
use endpoint_picker_bench::epp::free_ports;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Process;
use endpoint_picker_model_server::MODEL;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Names of the LoRA adapters.
pub(crate) const ADAPTERS: [&str; 8] =
    ["adapter-1", "adapter-2", "adapter-3", "adapter-4", "adapter-5", "adapter-6", "adapter-7", "adapter-8"];
/// Adapters that a server has loaded at once.
const LOADED_ADAPTERS: &str = "4";
/// Prompts are split into words, without any download. A token of a prompt that is not cached takes 0.1 ms,
/// one of a response 5 ms, and more while others run.
const TIMES: [&str; 10] = [
    "--latency-calculator=per-token",
    "--prefill-overhead=10ms",
    "--prefill-time-per-token=100us",
    "--inter-token-latency=5ms",
    "--time-factor-under-load=2",
    "--max-model-len=16384",
    "--enable-kvcache",
    "--block-size=16",
    "--mode=random",
    "--force-dummy-tokenizer",
];
const READY_DEADLINE: Duration = Duration::from_secs(20);

/// The room of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Requests that run at once; more wait.
    pub(crate) requests: u32,
    /// Blocks of 16 tokens in its cache.
    pub(crate) blocks: u32,
}

/// Running simulators; they end when dropped.
#[derive(Debug)]
pub(crate) struct Simulators<const SERVERS: usize> {
    _processes: Vec<Process>,
    addresses: [SocketAddr; SERVERS],
}

impl<const SERVERS: usize> Simulators<SERVERS> {
    /// Starts them with empty caches, with their logs in `folder`.
    pub(crate) async fn start(binary: &Path, room: Room, folder: &Path) -> Result<Self> {
        let addresses = free_ports::<SERVERS>()?.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let start = |address: &SocketAddr| {
            let mut command = Command::new(binary);
            command.args(["--model", MODEL, "--port", &address.port().to_string(), "--seed=1"]).args(TIMES);
            command.args(["--max-num-seqs", &room.requests.to_string()]);
            command.args(["--kv-cache-size", &room.blocks.to_string()]);
            command.args(["--max-loras", LOADED_ADAPTERS, "--lora-modules"]);
            command.args(ADAPTERS.map(|name| format!(r#"{{"name":"{name}"}}"#)));
            command.env("POD_IP", "127.0.0.1");
            Process::start(
                "llm-d-inference-sim",
                command,
                &folder.join(format!("sim-{}.log", address.port())),
            )
        };
        let mut processes: Vec<Process> = addresses.iter().map(start).collect::<Result<_>>()?;
        for (process, address) in processes.iter_mut().zip(&addresses) {
            let ready = within(READY_DEADLINE, async || {
                if let Err(ended) = process.check_running() {
                    return Ok(Err(ended));
                }
                client::http1().get(format!("http://{address}/health")).send().await?.error_for_status()?;
                anyhow::Ok(Ok(()))
            });
            ready.await.map_err(anyhow::Error::msg).context("llm-d-inference-sim is not ready")??;
        }
        Ok(Self { _processes: processes, addresses })
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}
