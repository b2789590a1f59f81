//! The dialects of the EPP's engines.

use super::spec::MetricSpec;
use super::{CacheInfo, Dialect};

/// Name and dialect of each built-in engine, as in the EPP's table of default engine mappings.
pub(super) fn built_in() -> [(&'static str, Dialect); 5] {
    [
        ("vllm", vllm()),
        ("sglang", sglang()),
        ("trtllm-serve", trtllm_serve()),
        ("triton-tensorrt-llm", triton_tensorrt_llm()),
        ("triton", triton()),
    ]
}

fn vllm() -> Dialect {
    Dialect {
        waiting: spec("vllm:num_requests_waiting"),
        running: spec("vllm:num_requests_running"),
        // The second name is the metric's up to vLLM 0.10, and in the endpoint picker protocol.
        kv_usage: specs(&["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"]),
        lora: spec("vllm:lora_requests_info"),
        cache_info: cache_info("vllm:cache_config_info", "block_size", "num_gpu_blocks"),
        counter: spec("vllm:prompt_tokens_total"),
        engine_label: Some("engine".to_owned()),
        ..Dialect::default()
    }
}

fn sglang() -> Dialect {
    Dialect {
        waiting: spec("sglang:num_queue_reqs"),
        running: spec("sglang:num_running_reqs"),
        kv_usage: specs(&["sglang:token_usage"]),
        cache_info: cache_info("sglang:cache_config_info", "page_size", "num_pages"),
        counter: spec("sglang:prompt_tokens_total"),
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
        ..Dialect::default()
    }
}

fn triton() -> Dialect {
    Dialect {
        waiting: spec("nv_inference_pending_request_count"),
        running: spec("nv_inference_exec_count"),
        counter: spec("nv_inference_request_success"),
        ..Dialect::default()
    }
}

fn spec(text: &str) -> Option<MetricSpec> {
    MetricSpec::parse(text).expect("the built-in specs are valid")
}

fn specs(texts: &[&str]) -> Vec<MetricSpec> {
    texts.iter().filter_map(|text| spec(text)).collect()
}

fn cache_info(metric: &str, block_size_label: &str, num_blocks_label: &str) -> Option<CacheInfo> {
    Some(CacheInfo {
        spec: spec(metric)?,
        block_size_label: block_size_label.to_owned(),
        match_unit_label: None,
        num_blocks_label: num_blocks_label.to_owned(),
    })
}
