//! vLLM built for processors, and the other programs of `tools/setup/field`.

use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::{Process, process_tree};
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::MODEL;
use metrics_agent_server_model::PrefixCacheCounts;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// No program may look for a model, a data set or a newer version elsewhere.
pub(crate) const OFFLINE: [(&str, &str); 3] =
    [("HF_HUB_OFFLINE", "1"), ("TRANSFORMERS_OFFLINE", "1"), ("VLLM_NO_USAGE_STATS", "1")];

/// Tokens in a block of a server's KV cache, and blocks in the cache of a rank.
pub(crate) const BLOCK_TOKENS: u64 = 32;
pub(crate) const BLOCKS: u64 = 400;
/// LoRA adapters that each server has.
pub(crate) const ADAPTERS: [&str; 3] = ["adapter-1", "adapter-2", "adapter-3"];

/// A start takes one to two minutes, and longer where other programs run.
const READY_DEADLINE: Duration = Duration::from_mins(8);
/// Tries to find neighbouring ports that are free.
const PORT_TRIES: usize = 100;

/// A running vLLM server with the random model of `tools/setup/field-model.py`; its processes end when it is
/// dropped.
#[derive(Debug)]
pub(crate) struct VllmServer {
    process: Process,
    setting: VllmSetting,
}

/// The parameters of a server, by which it can be started again.
#[derive(Clone, Debug)]
struct VllmSetting {
    address: SocketAddr,
    /// The port at which the first rank publishes its KV-cache events; each further rank has the next port.
    events_port: u16,
    /// The port at which the first rank repeats them.
    replay_port: u16,
    /// Data-parallel ranks behind the address.
    ranks: u16,
    seed: u64,
    /// Further flags, which take the place of the same ones here.
    flags: &'static [&'static str],
    log: PathBuf,
}

/// A program of `tools/setup/field`.
pub(crate) fn program(name: &str) -> PathBuf {
    field_folder().join("bin").join(name)
}

/// The folder of `tools/setup/field`.
pub(crate) fn field_folder() -> PathBuf {
    tools::root().join(".tools/field")
}

impl VllmServer {
    /// Starts a server with its log in `folder`; it is not [ready](Self::ready) yet.
    pub(crate) fn start(
        folder: &Path,
        ranks: u16,
        seed: u64,
        flags: &'static [&'static str],
    ) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, neighbouring_ports(1)?));
        let (events_port, replay_port) = (neighbouring_ports(ranks)?, neighbouring_ports(ranks)?);
        let log = folder.join(format!("vllm-{}.log", address.port()));
        let setting = VllmSetting { address, events_port, replay_port, ranks, seed, flags, log };
        Ok(Self { process: setting.start()?, setting })
    }

    /// Waits until it serves requests.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        let Self { process, setting } = self;
        let ready = within(READY_DEADLINE, async || {
            if let Err(ended) = process.check_running() {
                return Ok(Err(ended));
            }
            get(setting.address, "/health").await?;
            anyhow::Ok(Ok(()))
        });
        ready.await.map_err(anyhow::Error::msg).context("vLLM is not ready")?
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.setting.address
    }

    /// Empties its prefix caches. An error while it works on a request, whose blocks it keeps.
    pub(crate) async fn reset_prefix_cache(&self) -> Result<()> {
        let url = format!("http://{}/reset_prefix_cache", self.address());
        let response = client::http1().post(url).send().await?.error_for_status()?;
        let result: Value = response.json().await?;
        ensure!(result["success"] == true, "vLLM has not reset its prefix cache: {result}");
        Ok(())
    }

    /// Sends it a short prompt. An idle server publishes that its cache was emptied with its next request.
    pub(crate) async fn send_short_prompt(&self) -> Result<()> {
        let url = format!("http://{}/v1/chat/completions", self.address());
        client::http1().post(url).json(&client::chat("hello")).send().await?.error_for_status()?;
        Ok(())
    }

    /// [Kills](Self::kill) it, and starts it again with the same ports and an empty cache; it is not
    /// [ready](Self::ready) yet.
    pub(crate) fn restart_after_crash(&mut self) -> Result<()> {
        self.kill();
        self.process = self.setting.start()?;
        Ok(())
    }

    /// Kills all of its processes.
    pub(crate) fn kill(&mut self) {
        // The engines are processes below the one of the API. As long as that process has not ended, no other
        // process gets their ids.
        let below = process_tree::processes(self.process.id()).unwrap_or_default();
        for id in below.into_iter().skip(1).rev() {
            let id = i32::try_from(id).ok().and_then(Pid::from_raw);
            // The only failure is that it has already ended.
            let _ = id.map(|id| kill_process(id, Signal::KILL));
        }
        self.process.kill();
    }
}

impl Drop for VllmServer {
    fn drop(&mut self) {
        self.kill();
    }
}

impl VllmSetting {
    fn start(&self) -> Result<Process> {
        let Self { address, events_port, replay_port, ranks, seed, flags, log } = self;
        let model = field_folder().join("model");
        let events = json!({
            "enable_kv_cache_events": true,
            "publisher": "zmq",
            "endpoint": format!("tcp://*:{events_port}"),
            "replay_endpoint": format!("tcp://*:{replay_port}"),
        });
        let mut command = Command::new(program("vllm"));
        command.arg("serve").arg(&model).args(["--dtype", "float32", "--enforce-eager"]);
        command.args(["--served-model-name", MODEL, "--host", &address.ip().to_string()]);
        command.args(["--port", &address.port().to_string(), "--seed", &seed.to_string()]);
        command.args(["--max-model-len", "4096", "--max-num-seqs", "8", "--enable-prompt-tokens-details"]);
        command.args([
            "--block-size",
            &BLOCK_TOKENS.to_string(),
            "--num-gpu-blocks-override",
            &BLOCKS.to_string(),
        ]);
        // Requests that name no limit of their own would be served for minutes. It limits the others too.
        command.args(["--override-generation-config", r#"{"max_new_tokens": 16}"#]);
        command.args(["--kv-events-config", &events.to_string()]);
        command.args([
            "--enable-lora",
            "--max-loras",
            &ADAPTERS.len().to_string(),
            "--max-lora-rank",
            "8",
            "--lora-modules",
        ]);
        command.args(ADAPTERS.map(|name| format!("{name}={}", model.join(name).display())));
        if *ranks > 1 {
            command.args(["--data-parallel-size", &ranks.to_string(), "--api-server-count", "1"]);
        }
        command.args(*flags);
        command.envs(OFFLINE);
        // The number of blocks decides, but vLLM checks that they fit. The other flags leave the processors
        // to several servers.
        command.envs([
            ("VLLM_CPU_KVCACHE_SPACE", "1"),
            ("VLLM_CPU_OMP_THREADS_BIND", "nobind"),
            ("OMP_NUM_THREADS", "1"),
        ]);
        // It resets its prefix cache on request.
        command.env("VLLM_SERVER_DEV_MODE", "1");
        Process::start("vllm", command, log)
    }
}

/// The first of this number of successive ports that are free.
fn neighbouring_ports(count: u16) -> Result<u16> {
    let bind = |port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    for _ in 0..PORT_TRIES {
        let first = bind(0)?;
        let port = first.local_addr()?.port();
        let others = (1..count).map(|next| Ok(bind(port.checked_add(next).context("a port")?)?));
        if others.collect::<Result<Vec<_>>>().is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no {count} successive ports are free")
}

/// Lookups and hits of the prefix caches of these servers so far, in tokens, as vLLM counts them.
pub(crate) async fn prefix_cache(servers: &[SocketAddr]) -> Result<PrefixCacheCounts> {
    let mut sum = PrefixCacheCounts::default();
    for server in servers {
        let text = get(*server, "/metrics").await?;
        sum.queried += counter(&text, "vllm:prefix_cache_queries")?;
        sum.hit += counter(&text, "vllm:prefix_cache_hits")?;
    }
    Ok(sum)
}

async fn get(server: SocketAddr, path: &str) -> Result<String> {
    let response = client::http1().get(format!("http://{server}{path}")).send().await?;
    Ok(response.error_for_status()?.text().await?)
}

/// The sum of a counter's series, with `_total` at the end of its name or without; 0 while there is none.
fn counter(text: &str, name: &str) -> Result<u64> {
    let values = text.lines().filter_map(|line| {
        let series = line.strip_prefix(name)?;
        let series = series.strip_prefix("_total").unwrap_or(series);
        series.starts_with(['{', ' ']).then(|| series.rsplit(' ').next()).flatten()
    });
    let sum = values.map(str::parse::<f64>).sum::<Result<f64, _>>();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a counter of tokens")]
    Ok(sum.with_context(|| format!("{name} is not a number"))? as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_of_all_ranks_are_added_and_their_times_are_not() {
        let text = "# HELP vllm:prefix_cache_hits_total Hits.\nvllm:prefix_cache_hits_total{engine=\"0\"} 12.0\n\
                    vllm:prefix_cache_hits_total{engine=\"1\"} 30.0\nvllm:prefix_cache_hits_created{engine=\"0\"} 1.7e+09\n";
        assert_eq!(counter(text, "vllm:prefix_cache_hits").unwrap(), 42);
        assert_eq!(counter("vllm:prefix_cache_hits 7\n", "vllm:prefix_cache_hits").unwrap(), 7);
        assert_eq!(counter(text, "vllm:prefix_cache_queries").unwrap(), 0);
    }
}
