//! The clients: how each is started for a workload, and the figures in its own report.

use super::FieldWorkload;
use crate::simulators::ADAPTERS;
use crate::vllm::{OFFLINE, field_folder, program};
use anyhow::{Context, Result, ensure};
use endpoint_picker_model_server::MODEL;
use serde_json::{Value, json};
use std::fmt;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Requests of each client in a second.
const RATE: u64 = 20;
/// Shared prefixes, and tokens of a prefix, of the text after it and of a response.
const PREFIXES: u64 = 24;
const PREFIX_TOKENS: u64 = 1_024;
const QUESTION_TOKENS: u64 = 64;
const OUTPUT_TOKENS: u64 = 32;
/// Conversations at a time, and the tokens of each turn.
const CONVERSATIONS: u64 = 40;
const TURN_TOKENS: u64 = 128;
const TURNS: u64 = 6;
/// Tokens of the prompts to adapters.
const ADAPTER_TOKENS: u64 = 256;

/// A client of the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    InferencePerf,
    GuideLlm,
    VllmBench,
}

/// One run of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientRun<'a> {
    pub(super) workload: FieldWorkload,
    pub(super) proxy: SocketAddr,
    pub(super) lasting: Duration,
    pub(super) seed: u64,
    /// Folder of the client's reports and log.
    pub(super) reports: &'a Path,
}

/// Figures of a client's report.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientFigures {
    pub(super) requests: usize,
    pub(super) failed: usize,
    /// Median time to the first token, in milliseconds.
    pub(super) p50: f64,
    /// The 90th percentile of it.
    pub(super) p90: f64,
}

impl Client {
    pub(super) const ALL: [Self; 3] = [Self::InferencePerf, Self::GuideLlm, Self::VllmBench];

    /// Whether the client has such a workload.
    pub(super) fn has(self, workload: FieldWorkload) -> bool {
        match workload {
            FieldWorkload::SharedPrefixes => true,
            FieldWorkload::Conversations => self != Self::VllmBench,
            FieldWorkload::UnevenConversations => self == Self::InferencePerf,
            FieldWorkload::Adapters => self != Self::GuideLlm,
        }
    }

    /// Runs the client to its end, and reads its report.
    pub(super) fn measure(self, run: &ClientRun<'_>) -> Result<ClientFigures> {
        let mut command = match self {
            Self::InferencePerf => inference_perf(run)?,
            Self::GuideLlm => guidellm(run)?,
            Self::VllmBench => vllm_bench(run)?,
        };
        let path = run.reports.join("client.log");
        let log = File::create(&path)?;
        command.envs(OFFLINE);
        command.current_dir(run.reports).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let status = command.status().with_context(|| format!("start {self}"))?;
        ensure!(status.success(), "{self} ended with {status}; its log is {}", path.display());
        let figures = match self {
            Self::InferencePerf => read_inference_perf(run),
            Self::GuideLlm => read_guidellm(run),
            Self::VllmBench => read_vllm_bench(run),
        };
        figures.with_context(|| format!("the report of {self} in {}", run.reports.display()))
    }
}

impl ClientRun<'_> {
    fn url(&self) -> String {
        format!("http://{}", self.proxy)
    }

    fn requests(&self) -> u64 {
        RATE * self.lasting.as_secs()
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InferencePerf => "inference-perf",
            Self::GuideLlm => "guidellm",
            Self::VllmBench => "vllm bench serve",
        })
    }
}

fn tokenizer() -> PathBuf {
    field_folder().join("tokenizer")
}

fn inference_perf(run: &ClientRun<'_>) -> Result<Command> {
    let shared_prefix = |groups: u64, prompts: u64, system: u64, question: u64, is_chat: bool| {
        json!({"type": "shared_prefix", "shared_prefix": {
            "num_groups": groups, "num_prompts_per_group": prompts, "system_prompt_len": system, "question_len": question,
            "output_len": OUTPUT_TOKENS, "seed": run.seed, "enable_multi_turn_chat": is_chat,
        }})
    };
    let conversations = |number| shared_prefix(1, number, TURN_TOKENS, TURN_TOKENS, true);
    let data = match run.workload {
        FieldWorkload::SharedPrefixes => {
            shared_prefix(PREFIXES, run.requests() / PREFIXES, PREFIX_TOKENS, QUESTION_TOKENS, false)
        }
        FieldWorkload::Conversations => conversations(CONVERSATIONS),
        FieldWorkload::UnevenConversations => conversations(CONVERSATIONS + 1),
        // A group for each request, so that nothing is shared.
        FieldWorkload::Adapters => shared_prefix(run.requests(), 1, ADAPTER_TOKENS, QUESTION_TOKENS, false),
    };
    let mut load = json!({
        "type": "poisson", "stages": [{"rate": RATE, "duration": run.lasting.as_secs()}], "num_workers": 1,
        "base_seed": run.seed,
    });
    if run.workload == FieldWorkload::Adapters {
        let split = ADAPTERS.map(|name| json!({"name": name, "split": 1.0 / ADAPTERS.len() as f64}));
        load["lora_traffic_split"] = json!(split);
    }
    let config = json!({
        "load": load,
        "api": {"type": "completion", "streaming": true},
        "server": {"type": "vllm", "model_name": MODEL, "base_url": run.url(), "ignore_eos": true},
        "tokenizer": {"pretrained_model_name_or_path": tokenizer()},
        "data": data,
        "report": {"request_lifecycle": {"summary": true, "per_stage": false, "per_request": false}},
        "storage": {"local_storage": {"path": run.reports}},
    });
    let file = run.reports.join("inference-perf.yaml");
    fs::write(&file, config.to_string())?;
    let mut command = Command::new(program("inference-perf"));
    command.arg("--config_file").arg(file);
    Ok(command)
}

fn read_inference_perf(run: &ClientRun<'_>) -> Result<ClientFigures> {
    let report = read(&run.reports.join("summary_lifecycle_metrics.json"))?;
    let seconds = |name: &str| number(&report, &format!("/successes/latency/time_to_first_token/{name}"));
    Ok(ClientFigures {
        requests: count(&report, "/successes/count")?,
        failed: count(&report, "/failures/count")?,
        p50: seconds("median")? * 1e3,
        p90: seconds("p90")? * 1e3,
    })
}

fn guidellm(run: &ClientRun<'_>) -> Result<Command> {
    let data = match run.workload {
        FieldWorkload::SharedPrefixes => json!({
            "kind": "synthetic_text", "prompt_tokens": QUESTION_TOKENS, "output_tokens": OUTPUT_TOKENS,
            "prefix_tokens": PREFIX_TOKENS, "prefix_count": PREFIXES,
        }),
        FieldWorkload::Conversations => json!({
            "kind": "synthetic_text", "prompt_tokens": TURN_TOKENS, "output_tokens": OUTPUT_TOKENS, "turns": TURNS,
        }),
        FieldWorkload::UnevenConversations | FieldWorkload::Adapters => {
            anyhow::bail!("guidellm has no such workload")
        }
    };
    let backend = json!({
        "kind": "openai_http", "target": run.url(), "model": MODEL, "request_format": "/v1/chat/completions",
    });
    let tokenizer = json!({"kind": "huggingface_auto", "model": tokenizer()});
    let mut command = Command::new(program("guidellm"));
    command.arg("run").arg("--backend").arg(backend.to_string());
    command.arg("--profile").arg(format!("kind=poisson,rate={RATE}"));
    command.arg("--constraint").arg(format!("kind=max_requests,count={}", run.requests()));
    command.arg("--data").arg(data.to_string()).arg("--tokenizer").arg(tokenizer.to_string());
    command.arg("--seed").arg(format!("kind=static,value={}", run.seed));
    command.args(["--output", "kind=json,path=benchmarks.json", "--disable-console-interactive"]);
    Ok(command)
}

fn read_guidellm(run: &ClientRun<'_>) -> Result<ClientFigures> {
    let report = read(&run.reports.join("benchmarks.json"))?;
    let benchmark = "/benchmarks/0/metrics";
    let times = format!("{benchmark}/time_to_first_token_ms/successful/percentiles");
    Ok(ClientFigures {
        requests: count(&report, &format!("{benchmark}/request_totals/successful"))?,
        failed: count(&report, &format!("{benchmark}/request_totals/errored"))?,
        p50: number(&report, &format!("{times}/p50"))?,
        p90: number(&report, &format!("{times}/p90"))?,
    })
}

fn vllm_bench(run: &ClientRun<'_>) -> Result<Command> {
    let mut command = Command::new(program("vllm"));
    command.args(["bench", "serve", "--backend", "openai", "--endpoint", "/v1/completions"]);
    command.args(["--base-url", &run.url(), "--model", MODEL, "--seed", &run.seed.to_string()]);
    command.arg("--tokenizer").arg(tokenizer());
    command.args(["--request-rate", &RATE.to_string(), "--num-prompts", &run.requests().to_string()]);
    command.args(["--percentile-metrics", "ttft", "--metric-percentiles", "50,90,99", "--disable-tqdm"]);
    command.args(["--save-result", "--result-dir", ".", "--result-filename", "vllm-bench.json"]);
    let numbers: &[(&str, u64)] = match run.workload {
        FieldWorkload::SharedPrefixes => &[
            ("--prefix-repetition-prefix-len", PREFIX_TOKENS),
            ("--prefix-repetition-suffix-len", QUESTION_TOKENS),
            ("--prefix-repetition-num-prefixes", PREFIXES),
            ("--prefix-repetition-output-len", OUTPUT_TOKENS),
        ],
        FieldWorkload::Adapters => {
            &[("--random-input-len", ADAPTER_TOKENS), ("--random-output-len", OUTPUT_TOKENS)]
        }
        FieldWorkload::Conversations | FieldWorkload::UnevenConversations => {
            anyhow::bail!("vllm bench serve has no workload of conversations")
        }
    };
    let dataset = if run.workload == FieldWorkload::Adapters { "random" } else { "prefix_repetition" };
    command.args(["--dataset-name", dataset]);
    for (flag, value) in numbers {
        command.arg(flag).arg(value.to_string());
    }
    if run.workload == FieldWorkload::Adapters {
        command.arg("--lora-modules").args(ADAPTERS);
    }
    Ok(command)
}

fn read_vllm_bench(run: &ClientRun<'_>) -> Result<ClientFigures> {
    let report = read(&run.reports.join("vllm-bench.json"))?;
    Ok(ClientFigures {
        requests: count(&report, "/completed")?,
        failed: count(&report, "/failed")?,
        p50: number(&report, "/p50_ttft_ms")?,
        p90: number(&report, "/p90_ttft_ms")?,
    })
}

fn read(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
}

fn number(report: &Value, pointer: &str) -> Result<f64> {
    report.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no number at {pointer}"))
}

fn count(report: &Value, pointer: &str) -> Result<usize> {
    let count = report.pointer(pointer).and_then(Value::as_u64);
    Ok(usize::try_from(count.with_context(|| format!("no count at {pointer}"))?)?)
}
