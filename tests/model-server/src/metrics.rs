//! The `/metrics` text, in the names and shape of vLLM 0.32.

use std::fmt::Write;

/// A server's metrics text.
#[derive(Clone, Debug, PartialEq)]
pub struct Metrics {
    /// Requests in the server's queue.
    pub waiting: u64,
    /// Requests being worked on.
    pub running: u64,
    /// Part of the KV cache in use, 0 to 1.
    pub kv_cache_usage: f64,
    /// `None` leaves the LoRA family out, as a server without adapters does.
    pub lora: Option<Lora>,
    /// When the server's process started, in seconds since the Unix epoch; `None` leaves it out.
    pub start_time: Option<f64>,
    /// `None` leaves the cache's size out.
    pub cache: Option<CacheConfig>,
}

/// Adapters, as the newest series of `vllm:lora_requests_info` shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lora {
    /// How many adapters fit into one batch.
    pub max: u32,
    /// Adapters with running requests.
    pub running: Vec<String>,
    /// Adapters with waiting requests.
    pub waiting: Vec<String>,
}

/// Size of the KV cache on the accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Tokens in a block.
    pub block_size: u32,
    /// Blocks in the cache.
    pub num_gpu_blocks: u32,
}

impl Default for Metrics {
    /// An idle server.
    fn default() -> Self {
        Self {
            waiting: 0,
            running: 0,
            kv_cache_usage: 0.0,
            lora: None,
            start_time: Some(1_795_179_084.79),
            cache: Some(CacheConfig { block_size: 16, num_gpu_blocks: 2048 }),
        }
    }
}

impl Metrics {
    pub(crate) fn to_text(&self, model: &str) -> String {
        let mut text = String::new();
        let labels = format!("engine=\"0\",model_name=\"{model}\"");
        gauge(&mut text, "num_requests_running", "Number of requests in model execution batches.");
        series(&mut text, "num_requests_running", &labels, self.running as f64);
        gauge(&mut text, "num_requests_waiting", "Number of requests waiting to be processed.");
        series(&mut text, "num_requests_waiting", &labels, self.waiting as f64);
        gauge(&mut text, "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.");
        series(&mut text, "kv_cache_usage_perc", &labels, self.kv_cache_usage);
        if let Some(lora) = &self.lora {
            let labels = format!(
                "max_lora=\"{}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"{}\"",
                lora.max,
                lora.running.join(","),
                lora.waiting.join(",")
            );
            gauge(&mut text, "lora_requests_info", "Running stats on lora requests.");
            // The value is the time of the last change; there is only one series here, so any time will do.
            series(&mut text, "lora_requests_info", &labels, 1.0);
        }
        if let Some(start_time) = self.start_time {
            text.push_str(
                "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n",
            );
            text.push_str("# TYPE process_start_time_seconds gauge\n");
            writeln!(text, "process_start_time_seconds {start_time:?}").expect("a String takes all");
        }
        if let Some(cache) = self.cache {
            let labels = format!(
                "block_size=\"{}\",engine=\"0\",num_gpu_blocks=\"{}\"",
                cache.block_size, cache.num_gpu_blocks
            );
            gauge(&mut text, "cache_config_info", "Information of the LLMEngine CacheConfig");
            series(&mut text, "cache_config_info", &labels, 1.0);
        }
        text
    }
}

fn gauge(text: &mut String, name: &str, help: &str) {
    writeln!(text, "# HELP vllm:{name} {help}\n# TYPE vllm:{name} gauge").expect("a String takes all");
}

fn series(text: &mut String, name: &str, labels: &str, value: f64) {
    writeln!(text, "vllm:{name}{{{labels}}} {value:?}").expect("a String takes all");
}
