//! Metrics texts in the dialect of every engine, and of a DCGM exporter; the first line may be a metric spec.
//!
//! The values do not depend on how the text is cut into chunks, and are numbers.
#![no_main]

use endpoint_picker_fuzz::first_line;
use libfuzzer_sys::fuzz_target;
use metrics_agent::catalogue::dialect::{CacheInfo, Dialect, Dialects, MetricSpec, MultiEngine};
use metrics_agent::catalogue::scraping::TextLimits;
use metrics_agent::scrape::exposition::{GpuReader, Reader};

fuzz_target!(|input: &[u8]| {
    // One engine for each input, whichever its length says.
    let engines = ["vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm"];
    read(Dialects::built_in().of_engine(engines[input.len() % engines.len()]), input);
    gpus(input);
    if let Some((spec, text)) = first_line(input)
        && let Ok(spec @ Some(_)) = MetricSpec::parse(spec)
    {
        read(&everything_is(&spec), text);
    }
});

fn everything_is(spec: &Option<MetricSpec>) -> Dialect {
    let cache_info = |spec| CacheInfo {
        spec,
        block_size_label: "block_size".to_owned(),
        match_unit_label: Some("prefix_match_unit".to_owned()),
        num_blocks_label: "num_gpu_blocks".to_owned(),
    };
    Dialect {
        waiting: spec.clone(),
        running: spec.clone(),
        kv_usage: spec.clone().into_iter().collect(),
        lora: spec.clone(),
        cache_info: spec.clone().map(cache_info),
        block_size: spec.clone(),
        num_blocks: spec.clone(),
        counter: spec.clone(),
        engine_label: Some("engine".to_owned()),
        attributes: spec.clone().map(|spec| ("a".to_owned(), spec)).into_iter().collect(),
    }
}

fn read(dialect: &Dialect, text: &[u8]) {
    for engines in [MultiEngine::Sum, MultiEngine::First] {
        let mut reader = Reader::new(dialect, engines);
        let whole = reader.read(text);
        reader.start();
        for chunk in text.chunks(7) {
            reader.feed(chunk);
        }
        assert_eq!(reader.finish(), whole, "cut into chunks");
        let reading = &whole.reading;
        assert!(reading.kv_usage.is_none_or(f64::is_finite));
        assert!(reading.attributes.iter().all(|(_, value)| value.is_finite()));
    }
}

/// The same for a DCGM exporter's text.
fn gpus(text: &[u8]) {
    let mut reader = GpuReader::new(["a".into(), "b".into()], TextLimits::default());
    reader.start();
    reader.feed(text);
    let whole = reader.finish();
    reader.start();
    text.chunks(7).for_each(|chunk| reader.feed(chunk));
    assert_eq!(reader.finish(), whole, "cut into chunks");
    assert!(whole.into_iter().flatten().all(|share| share.is_finite() && share >= 0.0));
}
