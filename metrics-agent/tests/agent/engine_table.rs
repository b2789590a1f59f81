//! The reference has the metrics of every engine.

use metrics_agent_catalogue::dialect::{Dialect, Dialects, MetricSpec, TRTLLM_SERVE_PATH};

fn spec(spec: &MetricSpec) -> String {
    let labels = spec.labels().iter().map(|(name, value)| format!("{name}=\"{value}\""));
    let labels: Vec<_> = labels.collect();
    let braces = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    format!("`{}{braces}`", spec.name())
}

/// The rows of an engine in the table of the documentation.
fn rows(name: &str, dialect: &Dialect, path: &str) -> [String; 2] {
    let or_none = |text: String| if text.is_empty() { "–".to_owned() } else { text };
    let one = |field: &Option<MetricSpec>| or_none(field.as_ref().map(spec).unwrap_or_default());
    let all = |fields: &[MetricSpec]| or_none(fields.iter().map(spec).collect::<Vec<_>>().join(", else "));
    let labels = |labels: &[String]| {
        or_none(labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", "))
    };
    let cache = dialect.cache_info.as_ref().map(|cache| {
        let labels = [&cache.block_size_label, &cache.num_blocks_label].map(|label| format!("`{label}`"));
        format!("labels {} of {}", labels.join(" and "), spec(&cache.spec))
    });
    let blocks =
        || dialect.block_size.iter().chain(&dialect.num_blocks).map(spec).collect::<Vec<_>>().join(" and ");
    let tokens = dialect.cache_info.as_ref().and_then(|cache| cache.tokens_label.as_ref());
    let tokens = tokens.map(|label| format!("label `{label}`"));
    let tokens: Vec<_> = dialect.cache_tokens.iter().map(spec).chain(tokens).collect();
    let (sum, ranks) = (dialect.sum_label.as_slice(), &dialect.rank_labels);
    [
        format!(
            "| `{name}` | `{path}` | {} | {} | {} | {} | {} |",
            one(&dialect.waiting),
            one(&dialect.running),
            all(&dialect.kv_usage),
            labels(sum),
            labels(ranks),
        ),
        format!(
            "| `{name}` | {} | {} | {} | {} |",
            one(&dialect.lora),
            or_none(cache.unwrap_or_else(blocks)),
            or_none(tokens.join(", else ")),
            one(&dialect.counter),
        ),
    ]
}

#[test]
fn the_reference_has_the_metrics_of_every_engine() {
    let page = include_str!("../../../docs/reference/engines.md");
    let dialects = Dialects::built_in();
    for engine in dialects.engines() {
        let path = if *engine.name == *"trtllm-serve" { TRTLLM_SERVE_PATH } else { "/metrics" };
        for row in rows(&engine.name, &engine.dialect, path) {
            assert!(page.lines().any(|line| line == row), "docs/reference/engines.md lacks\n{row}");
        }
    }
    assert_eq!(page.lines().filter(|line| line.starts_with("| `")).count(), 2 * dialects.engines().len());
}
