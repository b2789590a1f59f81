//! The table of statistics, the metrics that the filter defines and the documented ones are the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use endpoint_picker_engine::body_routing::BodyRouter;
use endpoint_picker_engine::config::Limits;
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::metrics::Metrics;
use endpoint_picker_engine::resume::ResumeMetrics;
use endpoint_picker_wire::statistics::{self, MetricKind};

use crate::sink::FakeSink;

/// Whether a metric is a histogram, and the names of its labels.
type Described = (bool, Vec<String>);

/// The rows of docs/reference/metrics.md on the filter, by the metrics' names.
fn documented() -> BTreeMap<String, Described> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## Statistics of the filter\n").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let described = rows.flat_map(|(names, meaning)| {
        let (names, labels) = names.strip_suffix('}').unwrap().split_once('{').unwrap();
        let labels: Vec<_> = labels.split(',').map(str::to_owned).collect();
        let of_row = (meaning.starts_with("histogram"), labels);
        names.split("`, `").map(move |name| (name.replacen("endpoint_picker_", "", 1), of_row.clone()))
    });
    described.collect()
}

#[test]
fn every_statistic_is_documented_with_its_labels() {
    let table = statistics::ALL.iter().map(|row| {
        let pool = (row.name != "body_based_routing").then_some("pool");
        let labels = pool.into_iter().chain(row.labels.iter().copied()).map(str::to_owned).collect();
        (row.name.to_owned(), (row.kind == MetricKind::Histogram, labels))
    });
    let (table, documented): (BTreeMap<String, Described>, _) = (table.collect(), documented());
    let lacking: Vec<_> = table.iter().filter(|(name, it)| documented.get(*name) != Some(*it)).collect();
    let unknown: Vec<_> = documented.keys().filter(|name| !table.contains_key(*name)).collect();
    assert!(
        lacking.is_empty() && unknown.is_empty(),
        "metrics.md lacks {lacking:?} and has also {unknown:?}"
    );
}

#[test]
fn every_statistic_is_defined() {
    let sink = FakeSink::default();
    Metrics::new(&sink, "p", Form::Native, true);
    ResumeMetrics::new(&sink, "p");
    BodyRouter::new(Limits::default(), &sink);
    let mut defined = sink.names_of_families();
    // The native module counts its own panics.
    defined.insert("panics");
    assert_eq!(defined, statistics::ALL.iter().map(|row| row.name).collect::<BTreeSet<_>>());
}
