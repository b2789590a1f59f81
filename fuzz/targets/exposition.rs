//! Metrics texts in the dialect of every engine, and of a DCGM exporter; the first line may be a metric spec.
//!
//! The values do not depend on how the text is cut into chunks, and are numbers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use metrics_agent_catalogue::dialect::{CacheInfo, Dialect, Dialects, Engine, MetricSpec, TextRules};
use metrics_agent_scrape::exposition::{GpuReader, Reader};

#[path = "../parts/first_line.rs"]
mod first_line;
use first_line::first_line;

fuzz_target!(|input: &[u8]| {
    // One engine for each input, whichever its length says.
    let dialects = Dialects::built_in();
    let engines = dialects.engines();
    read(&engines[input.len() % engines.len()].dialect, input);
    read_any(engines, input);
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
        tokens_label: Some("kv_cache_size_tokens".to_owned()),
    };
    Dialect {
        waiting: spec.clone(),
        running: spec.clone(),
        kv_usage: spec.clone().into_iter().collect(),
        lora: spec.clone(),
        cache_info: spec.clone().map(cache_info),
        block_size: spec.clone(),
        num_blocks: spec.clone(),
        cache_tokens: spec.clone(),
        counter: spec.clone(),
        sum_label: Some("engine".to_owned()),
        rank_labels: vec!["rank".to_owned()],
        attributes: spec.clone().map(|spec| ("a".to_owned(), spec)).into_iter().collect(),
    }
}

fn read(dialect: &Dialect, text: &[u8]) {
    for rules in [TextRules::default(), TextRules::EPP] {
        let mut reader = Reader::new(dialect, rules);
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

/// The same for a text whose engine is not known.
fn read_any(engines: &[Engine], text: &[u8]) {
    let reader = || Reader::of_engines(engines, TextRules::default());
    let whole = reader().read(text);
    let mut cut = reader();
    cut.start();
    text.chunks(7).for_each(|chunk| cut.feed(chunk));
    assert_eq!(cut.finish(), whole, "cut into chunks");
}

/// The same for a DCGM exporter's text.
fn gpus(text: &[u8]) {
    let mut reader = GpuReader::new(["a".into(), "b".into()]);
    reader.start();
    reader.feed(text);
    let whole = reader.finish();
    reader.start();
    text.chunks(7).for_each(|chunk| reader.feed(chunk));
    assert_eq!(reader.finish(), whole, "cut into chunks");
    assert!(whole.into_iter().flatten().all(|share| share.is_finite() && share >= 0.0));
}
