//! Captured metrics texts give the state that the servers had when they were captured.

use endpoint_picker::pool::reading::{Lora, Reading};
use metrics_agent::catalogue::dialect::{Dialect, Dialects, MetricSpec, MultiEngine};
use metrics_agent::scrape::exposition::{Extraction, Fault, Field, Reader};

macro_rules! capture {
    ($name:literal) => {
        include_bytes!(concat!("../captures/", $name, ".prom"))
    };
}

fn read(engine: &str, engines: MultiEngine, text: &[u8]) -> Extraction {
    Reader::new(Dialects::built_in().of_engine(engine), engines).read(text)
}

fn load(waiting: u64, running: u64, kv_usage: f64) -> Reading {
    let (waiting, running) = (Some(waiting), Some(running));
    Reading { waiting, running, kv_usage: Some(kv_usage), ..Reading::default() }
}

fn cache(block_size: u32, num_blocks: u32, reading: Reading) -> Reading {
    Reading { block_size: Some(block_size), num_blocks: Some(num_blocks), ..reading }
}

fn lora(names: &[&str], max: u32) -> Lora {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    Lora { running: names.clone(), waiting: names, max }
}

#[track_caller]
fn assert_whole(extraction: &Extraction, reading: &Reading) {
    assert_eq!(extraction.reading, *reading);
    assert_eq!(extraction.faults, []);
}

#[test]
fn vllm_idle() {
    let idle = cache(32, 40, load(0, 0, 0.0));
    assert_whole(&read("vllm", MultiEngine::Sum, capture!("vllm-0.32.0-idle")), &idle);
}

#[test]
fn vllm_with_lora_but_no_adapter_used_yet() {
    let idle = cache(128, 2048, load(0, 0, 0.0));
    assert_whole(&read("vllm", MultiEngine::Sum, capture!("vllm-0.32.0-lora-idle")), &idle);
}

#[test]
fn vllm_with_lora_reads_the_newest_series_by_value() {
    let lora = Some(lora(&["a3", "a1"], 2));
    let busy = Reading { lora, ..cache(128, 2048, load(8, 4, 0.003_908_158_280_410_356_5)) };
    assert_whole(&read("vllm", MultiEngine::Sum, capture!("vllm-0.32.0-lora-busy")), &busy);
}

#[test]
fn the_unit_in_which_prefixes_are_matched_is_the_block_size_by_the_rules_of_main() {
    let older = Dialects::built_in();
    let main = older.with_match_unit();
    let block_size = |dialects: &Dialects, unit: &str| {
        let text = format!(
            "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{block_size=\"16\",prefix_match_unit=\"{unit}\"}} 1\n"
        );
        let mut reader = Reader::new(dialects.of_engine("vllm"), MultiEngine::Sum);
        reader.read(text.as_bytes()).reading.block_size
    };
    assert_eq!(block_size(&older, "4096"), Some(16));
    assert_eq!(block_size(&main, "4096"), Some(4096));
    for unusable in ["0", "None", ""] {
        assert_eq!(block_size(&main, unusable), Some(16), "{unusable}");
    }
}

#[test]
fn vllm_with_a_full_cache() {
    let busy = cache(32, 40, load(12, 4, 0.820_512_820_512_820_5));
    assert_whole(&read("vllm", MultiEngine::Sum, capture!("vllm-0.32.0-kv-busy")), &busy);
}

#[test]
fn two_data_parallel_engines_are_added_up() {
    let lora = Some(lora(&["dyn1"], 2));
    let busy = Reading { lora, ..cache(128, 4096, load(8, 8, 0.005_862_237_420_615_535)) };
    assert_whole(&read("vllm", MultiEngine::Sum, capture!("vllm-0.32.0-dp2-lora-busy")), &busy);
}

#[test]
fn only_the_first_engine_counts_if_configured() {
    let lora = Some(lora(&["dyn1"], 2));
    let busy = Reading { lora, ..cache(128, 4096, load(2, 4, 0.005_862_237_420_615_535)) };
    assert_whole(&read("vllm", MultiEngine::First, capture!("vllm-0.32.0-dp2-lora-busy")), &busy);
}

#[test]
fn kv_usage_is_read_under_vllms_older_name_too_and_the_newer_one_wins() {
    let family = |name: &str, value: f64| format!("# TYPE {name} gauge\n{name}{{engine=\"0\"}} {value}\n");
    let (newer, older) = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc");
    let usage = |text: &str| {
        let extraction = read("vllm", MultiEngine::Sum, text.as_bytes());
        let fault =
            extraction.faults.iter().find(|(field, _)| *field == Field::KvUsage).map(|(_, fault)| *fault);
        (extraction.reading.kv_usage, extraction.kv_usage_metric.map(|name| name.to_string()), fault)
    };
    let from = |name: &str| Some(name.to_owned());
    assert_eq!(usage(&family(older, 0.25)), (Some(0.25), from(older), None));
    assert_eq!(usage(&family(newer, 0.5)), (Some(0.5), from(newer), None));
    for both in [family(older, 0.25) + &family(newer, 0.5), family(newer, 0.5) + &family(older, 0.25)] {
        assert_eq!(usage(&both), (Some(0.5), from(newer), None), "{both}");
    }
    let bad = family(newer, -1.0) + &family(older, 0.25);
    assert_eq!(
        usage(&bad),
        (None, None, Some(Fault::Invalid)),
        "an invalid value is not replaced by that of the older name"
    );
    assert_eq!(usage(""), (None, None, Some(Fault::Missing)));
}

/// SGLang 0.5.23 and Dynamo's mocker export neither block size nor number of blocks.
const NO_SHAPE: [(Field, Fault); 2] =
    [(Field::BlockSize, Fault::Missing), (Field::NumBlocks, Fault::Missing)];

#[test]
fn sglang_idle_and_busy() {
    let idle = read("sglang", MultiEngine::Sum, capture!("sglang-0.5.23-idle"));
    assert_eq!((idle.reading, &idle.faults[..]), (load(0, 0, 0.0), &NO_SHAPE[..]));
    let busy = read("sglang", MultiEngine::Sum, capture!("sglang-0.5.23-busy"));
    assert_eq!((busy.reading, &busy.faults[..]), (load(12, 4, 0.14), &NO_SHAPE[..]));
}

#[test]
fn dynamos_mocker_exports_vllms_metrics() {
    let idle = read("vllm", MultiEngine::Sum, capture!("dynamo-1.4.2-mocker-worker"));
    assert_eq!((idle.reading, &idle.faults[..]), (load(0, 0, 0.0), &NO_SHAPE[..]));
}

#[test]
fn llama_cpp_is_read_by_a_custom_dialect_and_by_no_built_in_one() {
    let text = capture!("llamacpp-busy");
    for engine in ["vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm", "triton"] {
        assert!(read(engine, MultiEngine::Sum, text).is_empty(), "{engine}");
    }
    let spec = |text| MetricSpec::parse(text).unwrap();
    let own = Dialect {
        waiting: spec("llamacpp:requests_deferred"),
        running: spec("llamacpp:requests_processing"),
        ..Dialect::default()
    };
    let busy = Reading { waiting: Some(4), running: Some(2), ..Reading::default() };
    assert_whole(&Reader::new(&own, MultiEngine::Sum).read(text), &busy);
}

// There is no capture of TensorRT-LLM; these texts follow the EPP's table of metrics.

#[test]
fn tensorrt_llm_exports_its_cache_as_gauges() {
    let text = b"# TYPE trtllm_num_requests_waiting gauge\ntrtllm_num_requests_waiting 3\n\
        # TYPE trtllm_num_requests_running gauge\ntrtllm_num_requests_running 2\n\
        # TYPE trtllm_kv_cache_utilization gauge\ntrtllm_kv_cache_utilization 0.25\n\
        # TYPE trtllm_kv_cache_tokens_per_block gauge\ntrtllm_kv_cache_tokens_per_block 64\n\
        # TYPE trtllm_kv_cache_max_blocks gauge\ntrtllm_kv_cache_max_blocks 1000.9\n";
    assert_whole(&read("trtllm-serve", MultiEngine::Sum, text), &cache(64, 1000, load(3, 2, 0.25)));
}

#[test]
fn triton_with_tensorrt_llm_distinguishes_its_series_by_a_label() {
    let text = b"# TYPE nv_trt_llm_request_metrics gauge\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\"} 5\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\"} 6\n\
        nv_trt_llm_request_metrics{model=\"m\",request_type=\"max\"} 512\n\
        # TYPE nv_trt_llm_kv_cache_block_metrics gauge\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\"} 10\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.5\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 32\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 20\n";
    assert_whole(&read("triton-tensorrt-llm", MultiEngine::Sum, text), &cache(32, 20, load(5, 6, 0.5)));
}

#[test]
fn triton_exports_only_its_queue_and_its_count() {
    let text = b"# TYPE nv_inference_pending_request_count gauge\n\
        nv_inference_pending_request_count{model=\"m\",version=\"1\"} 7\n\
        # TYPE nv_inference_exec_count counter\nnv_inference_exec_count{model=\"m\",version=\"1\"} 8\n";
    let reading = Reading { waiting: Some(7), running: Some(8), ..Reading::default() };
    assert_whole(&read("triton", MultiEngine::Sum, text), &reading);
}

#[test]
fn the_process_is_identified_by_its_start_time_and_a_counter() {
    for (engine, text, start_time, counter) in [
        ("vllm", &capture!("vllm-0.32.0-dp2-lora-busy")[..], Some(1.795_180_699_95e9), Some(2535.0 + 1791.0)),
        ("sglang", capture!("sglang-0.5.23-busy"), None, Some(50.0)),
    ] {
        let process = read(engine, MultiEngine::Sum, text).process;
        assert_eq!((process.start_time, process.counter), (start_time, counter), "{engine}");
    }
}
