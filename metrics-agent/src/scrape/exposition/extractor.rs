//! The metrics of one dialect, read line by line.

use std::sync::Arc;

use super::collect::{CacheShape, Collected, EngineLabel, Invalid, LoraLists, Number, Sum};
use super::sample::{Sample, quoted_name, sample, sample_in_braces, type_line};
use super::{Extraction, Fault, Field, LineReader};
use crate::catalogue::dialect::{Dialect, MetricSpec, MultiEngine};
use crate::catalogue::scraping::TextLimits;

/// The metric of Prometheus' client libraries with the time at which the process started.
const START_TIME: &str = "process_start_time_seconds";

/// Collects the metrics of one dialect from the lines of a text.
#[derive(Debug)]
pub struct MetricExtractor {
    families: Vec<Family>,
    max_labels: usize,
}

/// One metric. Several fields may be read from it, distinguished by their labels.
#[derive(Debug)]
struct Family {
    name: Arc<str>,
    /// Whether it is a gauge or a counter; the EPP reads every other kind as 0.
    has_values: bool,
    extractors: Vec<FieldExtractor>,
}

/// Reads one field from the series of a metric.
#[derive(Debug)]
struct FieldExtractor {
    /// Labels and values that a series must have.
    labels: Vec<(String, String)>,
    /// Whether a line of the metric was malformed.
    malformed: bool,
    series: FieldSeries,
}

impl LineReader for MetricExtractor {
    fn clear(&mut self) {
        for family in &mut self.families {
            family.has_values = false;
            for extractor in &mut family.extractors {
                extractor.malformed = false;
                extractor.series.clear();
            }
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        let line = line.trim_ascii_start();
        if line.first() == Some(&b'#') {
            let Some((name, kind)) = type_line(line) else { return };
            if let Some(family) = self.family(name) {
                family.has_values = [&b"gauge"[..], b"counter"].iter().any(|k| kind.eq_ignore_ascii_case(k));
            }
            return;
        }
        if let Some((name, labels)) = quoted_name(line) {
            let max_labels = self.max_labels;
            if let Some(family) = self.family(name) {
                family.add(sample_in_braces(labels, max_labels));
            }
            return;
        }
        // The byte after the name is compared first: it rules out nearly all other lines without comparing names.
        let named = |family: &&mut Family| {
            let at = family.name.len();
            matches!(line.get(at), Some(b'{' | b' ' | b'\t')) && line[..at] == *family.name.as_bytes()
        };
        if let Some(family) = self.families.iter_mut().find(named) {
            family.add(sample(&line[family.name.len()..], self.max_labels));
        }
    }
}

impl MetricExtractor {
    pub(super) fn new(dialect: &Dialect, engines: MultiEngine, limits: TextLimits) -> Self {
        let label = match engines {
            MultiEngine::Sum => dialect.engine_label.clone(),
            MultiEngine::First => None,
        };
        let label = label.map(|name| EngineLabel { name, max_engines: limits.engines });
        let per_engine = || Number::new(label.clone());
        let mut extractor = Self { families: Vec::new(), max_labels: limits.labels };
        extractor.add_spec(dialect.waiting.as_ref(), || FieldSeries::Waiting(per_engine()));
        extractor.add_spec(dialect.running.as_ref(), || FieldSeries::Running(per_engine()));
        for spec in &dialect.kv_usage {
            extractor.add_spec(Some(spec), || FieldSeries::KvUsage(per_engine()));
        }
        extractor.add_spec(dialect.lora.as_ref(), || FieldSeries::Lora(LoraLists::default()));
        if let Some(cache) = &dialect.cache_info {
            extractor.add_spec(Some(&cache.spec), || FieldSeries::Cache(CacheShape::new(cache)));
        }
        extractor.add_spec(dialect.block_size.as_ref(), || FieldSeries::BlockSize(Number::new(None)));
        extractor.add_spec(dialect.num_blocks.as_ref(), || FieldSeries::NumBlocks(Number::new(None)));
        for (name, spec) in &dialect.attributes {
            extractor.add_spec(Some(spec), || FieldSeries::Attribute(name.clone(), Number::new(None)));
        }
        extractor.add_spec(dialect.counter.as_ref(), || FieldSeries::Counter(Sum::default()));
        extractor.add(START_TIME, &[], FieldSeries::StartTime(Number::new(None)));
        extractor
    }

    fn add_spec(&mut self, spec: Option<&MetricSpec>, series: impl FnOnce() -> FieldSeries) {
        if let Some(spec) = spec {
            self.add(spec.name(), spec.labels(), series());
        }
    }

    fn add(&mut self, name: &str, labels: &[(String, String)], series: FieldSeries) {
        let extractor = FieldExtractor { labels: labels.to_vec(), malformed: false, series };
        if let Some(family) = self.families.iter_mut().find(|family| *family.name == *name) {
            family.extractors.push(extractor);
        } else {
            let (name, extractors) = (name.into(), vec![extractor]);
            self.families.push(Family { name, has_values: false, extractors });
        }
    }

    fn family(&mut self, name: &[u8]) -> Option<&mut Family> {
        self.families.iter_mut().find(|family| *family.name.as_bytes() == *name)
    }

    /// The values of the text so far.
    pub(super) fn extract(&self) -> Extraction {
        let mut extraction = Extraction::default();
        let extractors = self
            .families
            .iter()
            .flat_map(|family| family.extractors.iter().map(move |extractor| (family, extractor)));
        let (kv_usage, others): (Vec<_>, Vec<_>) =
            extractors.partition(|(_, extractor)| matches!(extractor.series, FieldSeries::KvUsage(_)));
        for (_, extractor) in others {
            extractor.extract(&mut extraction);
        }
        // If the text has no metric of KV usage, the first of them reports the fault.
        let in_text = kv_usage.iter().find(|(_, extractor)| extractor.is_in_text());
        if let Some((family, extractor)) = in_text.or(kv_usage.first()) {
            extractor.extract(&mut extraction);
            extraction.kv_usage_metric = extraction.reading.kv_usage.map(|_| Arc::clone(&family.name));
        }
        extraction
    }
}

impl Family {
    /// Adds the sample of a line; `None`: the line is malformed.
    fn add(&mut self, sample: Option<Sample<'_>>) {
        let Some(mut sample) = sample else {
            for extractor in &mut self.extractors {
                extractor.malformed = true;
            }
            return;
        };
        if !self.has_values {
            sample.value = 0.0;
        }
        for extractor in self.extractors.iter_mut().filter(|extractor| extractor.matches(&sample)) {
            extractor.series.add(&sample);
        }
    }
}

impl FieldExtractor {
    fn matches(&self, sample: &Sample<'_>) -> bool {
        self.labels.iter().all(|(name, value)| sample.labels.get(name).as_deref() == Some(value.as_bytes()))
    }

    /// Whether the text has the metric, even if it is malformed.
    fn is_in_text(&self) -> bool {
        self.malformed || matches!(&self.series, FieldSeries::KvUsage(number) if number.share().is_some())
    }

    fn extract(&self, into: &mut Extraction) {
        let Extraction { reading, process, faults, .. } = into;
        let mut fault_list = FaultList { malformed: self.malformed, faults };
        match &self.series {
            FieldSeries::Waiting(number) => {
                reading.waiting = fault_list.value(Field::Waiting, number.count());
            }
            FieldSeries::Running(number) => {
                reading.running = fault_list.value(Field::Running, number.count());
            }
            FieldSeries::KvUsage(number) => {
                reading.kv_usage = fault_list.value(Field::KvUsage, number.share());
            }
            FieldSeries::BlockSize(number) => {
                reading.block_size = fault_list.value(Field::BlockSize, number.small_count());
            }
            FieldSeries::NumBlocks(number) => {
                reading.num_blocks = fault_list.value(Field::NumBlocks, number.small_count());
            }
            FieldSeries::Attribute(name, number) => {
                let value = fault_list.value(Field::Attribute, number.any());
                reading.attributes.extend(value.map(|value| (name.clone(), value)));
            }
            // These two are optional, so their absence is not a fault.
            FieldSeries::StartTime(number) => process.start_time = number.any().and_then(Result::ok),
            FieldSeries::Counter(sum) => process.counter = sum.total().filter(|_| !self.malformed),
            FieldSeries::Cache(cache) => {
                reading.block_size = fault_list.value(Field::BlockSize, cache.block_size());
                reading.num_blocks = fault_list.value(Field::NumBlocks, cache.num_blocks());
            }
            // A server without adapters has no such series, which is not a fault.
            FieldSeries::Lora(lists) => match lists.lists() {
                None if !self.malformed => {}
                collected => {
                    reading.lora = fault_list.value(Field::Lora, collected);
                    if reading.lora.is_some() && lists.max().is_err() {
                        fault_list.faults.push((Field::Lora, Fault::Invalid));
                    }
                }
            },
        }
    }
}

/// Takes note of fields without a value.
struct FaultList<'a> {
    malformed: bool,
    faults: &'a mut Vec<(Field, Fault)>,
}

impl FaultList<'_> {
    fn value<T>(&mut self, field: Field, collected: Collected<T>) -> Option<T> {
        let fault = match collected {
            _ if self.malformed => Fault::Invalid,
            Some(Ok(value)) => return Some(value),
            Some(Err(Invalid)) => Fault::Invalid,
            None => Fault::Missing,
        };
        self.faults.push((field, fault));
        None
    }
}

/// The series of one field so far.
#[derive(Debug)]
pub(super) enum FieldSeries {
    Waiting(Number),
    Running(Number),
    KvUsage(Number),
    Lora(LoraLists),
    Cache(CacheShape),
    BlockSize(Number),
    NumBlocks(Number),
    Attribute(String, Number),
    StartTime(Number),
    Counter(Sum),
}

impl FieldSeries {
    pub(super) fn clear(&mut self) {
        match self {
            Self::Waiting(n)
            | Self::Running(n)
            | Self::KvUsage(n)
            | Self::BlockSize(n)
            | Self::NumBlocks(n)
            | Self::StartTime(n)
            | Self::Attribute(_, n) => n.clear(),
            Self::Counter(sum) => *sum = Sum::default(),
            Self::Lora(lists) => lists.clear(),
            Self::Cache(cache) => cache.clear(),
        }
    }

    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        match self {
            Self::Waiting(n)
            | Self::Running(n)
            | Self::KvUsage(n)
            | Self::BlockSize(n)
            | Self::NumBlocks(n)
            | Self::StartTime(n)
            | Self::Attribute(_, n) => n.add(sample),
            Self::Counter(sum) => sum.add(sample),
            Self::Lora(lists) => lists.add(sample),
            Self::Cache(cache) => cache.add(sample),
        }
    }
}
