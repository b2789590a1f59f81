//! Captured metrics texts give the state that the servers had when they were captured.

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::pool::reading::{Lora, Reading};
use metrics_agent_catalogue::dialect::{Dialect, Dialects, MetricSpec, MultiEngine, TextRules};
use metrics_agent_scrape::exposition::{Extraction, Fault, Field, Reader};

macro_rules! capture {
    ($name:literal) => {
        include_bytes!(concat!("../captures/", $name, ".prom"))
    };
}

fn read(engine: &str, text: &[u8]) -> Extraction {
    Reader::new(Dialects::built_in().of_engine(engine), TextRules::default()).read(text)
}

/// Reads a text as the EPP does.
fn read_as_epp(engine: &str, text: &[u8]) -> Extraction {
    let dialects = Dialects::built_in().by(EppRules::V010);
    Reader::new(dialects.of_engine(engine), TextRules::EPP).read(text)
}

fn load(waiting: u64, running: u64, kv_usage: f64) -> Reading {
    let (waiting, running) = (Some(waiting), Some(running));
    Reading { waiting, running, kv_usage: Some(kv_usage), ..Reading::default() }
}

/// A cache that also reports how many tokens it holds, as vLLM does.
fn cache(block_size: u32, num_blocks: u32, reading: Reading) -> Reading {
    let tokens = u64::from(block_size) * u64::from(num_blocks);
    Reading { cache_tokens: Some(tokens), ..blocks(block_size, num_blocks, reading) }
}

fn blocks(block_size: u32, num_blocks: u32, reading: Reading) -> Reading {
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
    assert_whole(&read("vllm", capture!("vllm-0.32.0-idle")), &idle);
}

#[test]
fn vllm_with_lora_but_no_adapter_used_yet() {
    let idle = cache(128, 2048, load(0, 0, 0.0));
    assert_whole(&read("vllm", capture!("vllm-0.32.0-lora-idle")), &idle);
}

#[test]
fn vllm_with_lora_reads_the_newest_series_by_value() {
    let lora = Some(lora(&["a3", "a1"], 2));
    let busy = Reading { lora, ..cache(128, 2048, load(8, 4, 0.003_908_158_280_410_356_5)) };
    assert_whole(&read("vllm", capture!("vllm-0.32.0-lora-busy")), &busy);
}

#[test]
fn the_unit_in_which_prefixes_are_matched_is_the_block_size_by_the_rules_of_v0_11() {
    let older = Dialects::built_in();
    let newer = older.by(EppRules::V011);
    let block_size = |dialects: &Dialects, unit: &str| {
        let text = format!(
            "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{block_size=\"16\",prefix_match_unit=\"{unit}\"}} 1\n"
        );
        let mut reader = Reader::new(dialects.of_engine("vllm"), TextRules::default());
        reader.read(text.as_bytes()).reading.block_size
    };
    assert_eq!(block_size(&older, "4096"), Some(16));
    assert_eq!(block_size(&newer, "4096"), Some(4096));
    for unusable in ["0", "None", ""] {
        assert_eq!(block_size(&newer, unusable), Some(16), "{unusable}");
    }
}

#[test]
fn vllm_with_a_full_cache() {
    let busy = cache(32, 40, load(12, 4, 0.820_512_820_512_820_5));
    assert_whole(&read("vllm", capture!("vllm-0.32.0-kv-busy")), &busy);
}

#[test]
fn two_data_parallel_engines_are_added_up() {
    let lora = Some(lora(&["dyn1"], 2));
    let busy = Reading { lora, ..cache(128, 4096, load(8, 8, 0.005_862_237_420_615_535)) };
    assert_whole(&read("vllm", capture!("vllm-0.32.0-dp2-lora-busy")), &busy);
}

#[test]
fn only_the_first_engine_counts_if_configured() {
    let lora = Some(lora(&["dyn1"], 2));
    let busy = Reading { lora, ..cache(128, 4096, load(2, 4, 0.005_862_237_420_615_535)) };
    let busy = Reading { cache_tokens: Some(262_144), ..busy };
    let first = TextRules { engines: MultiEngine::First, ..TextRules::default() };
    assert_whole(
        &Reader::new(Dialects::built_in().of_engine("vllm"), first)
            .read(capture!("vllm-0.32.0-dp2-lora-busy")),
        &busy,
    );
}

#[test]
fn kv_usage_is_read_under_vllms_older_name_too_and_the_newer_one_wins() {
    let family = |name: &str, value: f64| format!("# TYPE {name} gauge\n{name}{{engine=\"0\"}} {value}\n");
    let (newer, older) = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc");
    let usage = |text: &str| {
        let extraction = read("vllm", text.as_bytes());
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
    let idle = read("sglang", capture!("sglang-0.5.23-idle"));
    // Its own count of tokens, without blocks.
    let of_8192 = |reading| Reading { cache_tokens: Some(8_192), ..reading };
    assert_eq!((idle.reading, &idle.faults[..]), (of_8192(load(0, 0, 0.0)), &NO_SHAPE[..]));
    let busy = read("sglang", capture!("sglang-0.5.23-busy"));
    assert_eq!((busy.reading, &busy.faults[..]), (of_8192(load(12, 4, 0.14)), &NO_SHAPE[..]));
}

#[test]
fn every_capture_shows_its_engine() {
    let mut reader = Reader::of_engines(Dialects::built_in().unnamed(), TextRules::default());
    for (text, engine) in [
        (&capture!("vllm-0.32.0-idle")[..], Some("vllm")),
        (capture!("vllm-0.32.0-dp2-lora-busy"), Some("vllm")),
        (capture!("llamacpp-busy"), None),
        (capture!("sglang-0.5.23-busy"), Some("sglang")),
        (capture!("llamacpp-busy"), None),
        (capture!("dynamo-1.4.2-mocker-worker"), Some("vllm")),
    ] {
        assert_eq!(reader.read(text).engine.as_deref(), engine);
    }
}

#[test]
fn dynamos_mocker_exports_vllms_metrics() {
    let idle = read("vllm", capture!("dynamo-1.4.2-mocker-worker"));
    assert_eq!((idle.reading, &idle.faults[..]), (load(0, 0, 0.0), &NO_SHAPE[..]));
}

#[test]
fn llama_cpp_is_read_by_a_custom_dialect_and_by_no_built_in_one() {
    let text = capture!("llamacpp-busy");
    for engine in ["vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm", "triton"] {
        assert!(read(engine, text).is_empty(), "{engine}");
    }
    let spec = |text| MetricSpec::parse(text).unwrap();
    let own = Dialect {
        waiting: spec("llamacpp:requests_deferred"),
        running: spec("llamacpp:requests_processing"),
        ..Dialect::default()
    };
    let busy = Reading { waiting: Some(4), running: Some(2), ..Reading::default() };
    assert_whole(&Reader::new(&own, TextRules::default()).read(text), &busy);
}

// There is no capture of TensorRT-LLM; these texts follow the EPP's table of metrics.

#[test]
fn tensorrt_llm_exports_its_cache_as_gauges() {
    let text = b"# TYPE trtllm_num_requests_waiting gauge\ntrtllm_num_requests_waiting 3\n\
        # TYPE trtllm_num_requests_running gauge\ntrtllm_num_requests_running 2\n\
        # TYPE trtllm_kv_cache_utilization gauge\ntrtllm_kv_cache_utilization 0.25\n\
        # TYPE trtllm_kv_cache_tokens_per_block gauge\ntrtllm_kv_cache_tokens_per_block 64\n\
        # TYPE trtllm_kv_cache_max_blocks gauge\ntrtllm_kv_cache_max_blocks 1000.9\n";
    assert_whole(&read("trtllm-serve", text), &blocks(64, 1000, load(3, 2, 0.25)));
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
    assert_whole(&read("triton-tensorrt-llm", text), &blocks(32, 20, load(5, 6, 0.5)));
}

#[test]
fn a_count_of_executions_is_no_load_of_triton_except_for_the_epp() {
    let text = b"# TYPE nv_inference_pending_request_count gauge\n\
        nv_inference_pending_request_count{model=\"m\",version=\"1\"} 7\n\
        # TYPE nv_inference_exec_count counter\nnv_inference_exec_count{model=\"m\",version=\"1\"} 60000\n";
    let reading = Reading { waiting: Some(7), ..Reading::default() };
    assert_whole(&read("triton", text), &reading);
    let of_epp = Reading { running: Some(60_000), ..reading };
    assert_whole(&read_as_epp("triton", text), &of_epp);
}

#[test]
fn the_queues_of_tritons_models_are_added_up() {
    let text = b"# TYPE nv_inference_pending_request_count gauge\n\
        nv_inference_pending_request_count{model=\"a\",version=\"1\"} 7\n\
        nv_inference_pending_request_count{model=\"b\",version=\"3\"} 2\n";
    assert_whole(&read("triton", text), &Reading { waiting: Some(9), ..Reading::default() });
    assert_eq!(read_as_epp("triton", text).reading, Reading { waiting: Some(7), ..Reading::default() });
}

/// The capture with one series for each of these ranks in place of every series of the scheduler.
fn ranks_of_sglang(values: &[(&str, &[(&str, f64)])]) -> String {
    let capture = include_str!("../captures/sglang-0.5.23-busy.prom");
    let series = |line: &str| -> Vec<String> {
        let Some((name, rest)) = line.split_once('{') else { return vec![line.to_owned()] };
        let Some((_, values)) = values.iter().find(|(of, _)| *of == name) else {
            return vec![line.to_owned()];
        };
        let (labels, _) = rest.split_once('}').unwrap();
        let labels = labels.replace(r#",pp_rank="0",tp_rank="0""#, "");
        values.iter().map(|(ranks, value)| format!("{name}{{{labels},{ranks}}} {value}")).collect()
    };
    capture.lines().flat_map(series).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_data_parallel_ranks_of_sglang_are_added_up_in_any_order() {
    const RANKS: [&str; 4] = [
        r#"dp_rank="1",pp_rank="0",tp_rank="1""#,
        r#"dp_rank="3",pp_rank="0",tp_rank="3""#,
        r#"dp_rank="0",pp_rank="0",tp_rank="0""#,
        r#"dp_rank="2",pp_rank="0",tp_rank="2""#,
    ];
    let of = |values: [f64; 4]| RANKS.into_iter().zip(values).collect::<Vec<_>>();
    let text = ranks_of_sglang(&[
        ("sglang:num_queue_reqs", &of([0.0, 0.0, 11.0, 0.0])),
        ("sglang:num_running_reqs", &of([0.0, 0.0, 1.0, 0.0])),
        ("sglang:token_usage", &of([0.01, 0.01, 0.97, 0.03])),
        ("sglang:max_total_num_tokens", &of([8_192.0; 4])),
    ]);
    let all = read("sglang", text.as_bytes());
    assert_eq!((all.reading.waiting, all.reading.running), (Some(11), Some(1)));
    assert!((all.reading.kv_usage.unwrap() - 0.255).abs() < 1e-9, "{:?}", all.reading);
    assert_eq!(all.reading.cache_tokens, Some(32_768));
    assert_eq!((&all.faults[..], &all.doubts[..]), (&NO_SHAPE[..], &[][..]));
    let first = read_as_epp("sglang", text.as_bytes()).reading;
    assert_eq!(first, load(0, 0, 0.01));
}

#[test]
fn other_ranks_of_sglang_repeat_the_same_requests() {
    const RANKS: [&str; 4] = [
        r#"dp_rank="0",pp_rank="0",tp_rank="0""#,
        r#"dp_rank="0",pp_rank="1",tp_rank="1""#,
        r#"dp_rank="1",pp_rank="0",tp_rank="2""#,
        r#"dp_rank="1",pp_rank="1",tp_rank="3""#,
    ];
    let of = |values: [f64; 4]| RANKS.into_iter().zip(values).collect::<Vec<_>>();
    let text = ranks_of_sglang(&[("sglang:num_queue_reqs", &of([3.0, 3.0, 4.0, 4.0]))]);
    let read = read("sglang", text.as_bytes());
    assert_eq!((read.reading.waiting, &read.doubts[..]), (Some(7), &[][..]));
}

#[test]
fn the_priorities_of_sglang_are_not_added_to_their_sum() {
    let family = |name: &str| {
        format!(
            "# TYPE {name} gauge\n{name}{{priority=\"0\",tp_rank=\"0\"}} 2\n{name}{{priority=\"\",tp_rank=\"0\"}} 5\n\
             {name}{{priority=\"5\",tp_rank=\"0\"}} 3\n"
        )
    };
    let text = family("sglang:num_queue_reqs") + &family("sglang:num_running_reqs");
    let read = read("sglang", text.as_bytes());
    assert_eq!((read.reading.waiting, read.reading.running), (Some(5), Some(5)));
    assert_eq!(read.doubts, []);
}

#[test]
fn a_model_with_several_kinds_of_attention_has_the_tokens_that_its_server_counts() {
    let capture = include_str!("../captures/vllm-0.32.0-kv-busy.prom");
    let text = capture
        .replace(r#"kv_cache_size_tokens="1280""#, r#"kv_cache_size_tokens="1009661""#)
        .replace(r#"block_size="32",cache_dtype"#, r#"block_size="4",cache_dtype"#)
        .replace(r#"num_gpu_blocks="40""#, r#"num_gpu_blocks="8121""#);
    let reading = read("vllm", text.as_bytes()).reading;
    assert_eq!((reading.block_size, reading.num_blocks), (Some(4), Some(8_121)));
    assert_eq!(reading.kv_tokens(), Some(1_009_661));
    assert_eq!(read_as_epp("vllm", text.as_bytes()).reading.kv_tokens(), Some(32_484));
    let unknown = text.replace(r#"kv_cache_size_tokens="1009661""#, r#"kv_cache_size_tokens="None""#);
    assert_eq!(read("vllm", unknown.as_bytes()).reading.kv_tokens(), Some(32_484));
}

#[test]
fn an_operators_engine_names_the_label_of_its_sums() {
    let text = "# TYPE lmdeploy:num_requests_waiting gauge\n\
        lmdeploy:num_requests_waiting{engine=\"0\",model_name=\"m\"} 3\n\
        lmdeploy:num_requests_waiting{engine=\"1\",model_name=\"m\"} 9\n";
    let read = |label: Option<&str>, rules| {
        let waiting = MetricSpec::parse("lmdeploy:num_requests_waiting").unwrap();
        let dialect = Dialect { waiting, sum_label: label.map(str::to_owned), ..Dialect::default() };
        Reader::new(&dialect, rules).read(text.as_bytes())
    };
    assert_whole(
        &read(Some("engine"), TextRules::default()),
        &Reading { waiting: Some(12), ..Reading::default() },
    );
    assert_whole(&read(None, TextRules::EPP), &Reading { waiting: Some(3), ..Reading::default() });
    let unread = read(None, TextRules::default());
    assert_eq!(
        (unread.reading.waiting, &unread.faults[..]),
        (None, &[(Field::Waiting, Fault::Ambiguous)][..])
    );
    assert_eq!(unread.doubts[0].label.as_deref(), Some("engine"));
    let message = unread.doubts[0].to_string();
    assert!(message.contains("\"engine\"") && message.contains("sumOverLabelName"), "{message}");
}

#[test]
fn the_process_is_identified_by_its_start_time_and_a_counter() {
    for (engine, text, start_time, counter) in [
        ("vllm", &capture!("vllm-0.32.0-dp2-lora-busy")[..], Some(1.795_180_699_95e9), Some(2535.0 + 1791.0)),
        ("sglang", capture!("sglang-0.5.23-busy"), None, Some(50.0)),
    ] {
        let process = read(engine, text).process;
        assert_eq!((process.start_time, process.counter), (start_time, counter), "{engine}");
    }
}
