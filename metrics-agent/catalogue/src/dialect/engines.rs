//! The dialects of the EPP's engines. `docs/reference/engines.md` has them as a table, which a test compares.

use super::spec::MetricSpec;
use super::{CACHE_TOKENS, CacheInfo, Dialect};

/// The path of the metrics of `trtllm-serve`, whose `/metrics` has statistics of iterations as JSON.
pub const TRTLLM_SERVE_PATH: &str = "/prometheus/metrics";

/// Name and dialect of each built-in engine, as in the EPP's table of default engine mappings; with `as_epp`
/// nothing else. The order is the one in which they are tried: a text of Triton with TensorRT-LLM has the
/// metrics of Triton too.
pub(super) fn built_in(as_epp: bool) -> [(&'static str, Dialect); 5] {
    [
        ("vllm", vllm()),
        ("sglang", sglang(as_epp)),
        ("trtllm-serve", trtllm_serve()),
        ("triton-tensorrt-llm", triton_tensorrt_llm()),
        ("triton", triton(as_epp)),
    ]
}

fn vllm() -> Dialect {
    Dialect {
        waiting: spec("vllm:num_requests_waiting"),
        running: spec("vllm:num_requests_running"),
        // The second name is the metric's up to vLLM 0.10, and in the endpoint picker protocol.
        kv_usage: specs(&["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"]),
        lora: spec("vllm:lora_requests_info"),
        cache_info: cache_info(
            "vllm:cache_config_info",
            ["block_size", "num_gpu_blocks"],
            Some(CACHE_TOKENS),
        ),
        counter: spec("vllm:prompt_tokens_total"),
        sum_label: Some("engine".to_owned()),
        ..Dialect::default()
    }
}

fn sglang(as_epp: bool) -> Dialect {
    // With `--enable-priority-scheduling` it has one series for each priority too, whose sum is the series
    // without a priority.
    let total = if as_epp { "" } else { "{priority=\"\"}" };
    Dialect {
        waiting: spec(&format!("sglang:num_queue_reqs{total}")),
        running: spec(&format!("sglang:num_running_reqs{total}")),
        kv_usage: specs(&["sglang:token_usage"]),
        cache_info: cache_info("sglang:cache_config_info", ["page_size", "num_pages"], None),
        cache_tokens: if as_epp { None } else { spec("sglang:max_total_num_tokens") },
        counter: spec("sglang:prompt_tokens_total"),
        sum_label: Some("dp_rank".to_owned()),
        rank_labels: ["tp_rank", "pp_rank", "moe_ep_rank"].map(str::to_owned).to_vec(),
        ..Dialect::default()
    }
}

fn trtllm_serve() -> Dialect {
    Dialect {
        waiting: spec("trtllm_num_requests_waiting"),
        running: spec("trtllm_num_requests_running"),
        kv_usage: specs(&["trtllm_kv_cache_utilization"]),
        block_size: spec("trtllm_kv_cache_tokens_per_block"),
        num_blocks: spec("trtllm_kv_cache_max_blocks"),
        counter: spec("trtllm_request_success_total"),
        ..Dialect::default()
    }
}

fn triton_tensorrt_llm() -> Dialect {
    Dialect {
        waiting: spec("nv_trt_llm_request_metrics{request_type=waiting}"),
        running: spec("nv_trt_llm_request_metrics{request_type=scheduled}"),
        kv_usage: specs(&["nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}"]),
        block_size: spec("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=tokens_per}"),
        num_blocks: spec("nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=max}"),
        counter: spec("nv_inference_request_success"),
        sum_label: Some("model".to_owned()),
        ..Dialect::default()
    }
}

fn triton(as_epp: bool) -> Dialect {
    Dialect {
        waiting: spec("nv_inference_pending_request_count"),
        // A counter of executions, which the EPP takes for running requests.
        running: if as_epp { spec("nv_inference_exec_count") } else { None },
        counter: spec("nv_inference_request_success"),
        sum_label: Some("model".to_owned()),
        ..Dialect::default()
    }
}

fn spec(text: &str) -> Option<MetricSpec> {
    MetricSpec::parse(text).expect("the built-in specs are valid")
}

fn specs(texts: &[&str]) -> Vec<MetricSpec> {
    texts.iter().filter_map(|text| spec(text)).collect()
}

fn cache_info(
    metric: &str,
    [block_size_label, num_blocks_label]: [&str; 2],
    tokens_label: Option<&str>,
) -> Option<CacheInfo> {
    Some(CacheInfo {
        spec: spec(metric)?,
        block_size_label: block_size_label.to_owned(),
        match_unit_label: None,
        num_blocks_label: num_blocks_label.to_owned(),
        tokens_label: tokens_label.map(str::to_owned),
    })
}
