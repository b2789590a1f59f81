//! The metrics of one dialect, read line by line.

use std::sync::Arc;

use metrics_agent_catalogue::dialect::{Dialect, MetricSpec, MultiEngine, TextRules};

use super::collect::{CacheShape, Collected, LoraLists, SeriesRules, SeriesValue, Sum};
use super::sample::{MetricSample, quoted_name, sample, sample_in_braces, type_line};
use super::{Doubt, Extraction, Fault, Field, LineReader};

/// The metric of Prometheus' client libraries with the time at which the process started.
const START_TIME: &str = "process_start_time_seconds";

/// Maximum number of engines of a data-parallel server; with more a field has no value.
const MAX_ENGINES: usize = 256;

/// Maximum length of a label's name in a message, in characters.
const MAX_LABEL_CHARS: usize = 100;

/// Collects the metrics of one dialect from the lines of a text.
#[derive(Debug)]
pub(super) struct MetricExtractor {
    families: Vec<MetricFamily>,
    /// Whether a metric that is neither gauge nor counter reads 0, and a counter is a number of requests, as
    /// in the EPP.
    as_epp: bool,
}

/// One metric. Several fields may be read from it, distinguished by their labels.
#[derive(Debug)]
struct MetricFamily {
    name: Arc<str>,
    kind: SampleKind,
    extractors: Vec<FieldExtractor>,
}

/// The kind of a metric, by its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SampleKind {
    Gauge,
    Counter,
    /// None, or another one.
    #[default]
    Other,
}

impl SampleKind {
    fn of_name(name: &[u8]) -> Self {
        let kinds = [(&b"gauge"[..], Self::Gauge), (b"counter", Self::Counter)];
        let found = kinds.into_iter().find(|(kind, _)| name.eq_ignore_ascii_case(kind));
        found.map_or(Self::Other, |(_, kind)| kind)
    }
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
            family.kind = SampleKind::default();
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
                family.kind = SampleKind::of_name(kind);
            }
            return;
        }
        if let Some((name, labels)) = quoted_name(line) {
            let as_epp = self.as_epp;
            if let Some(family) = self.family(name) {
                family.add(sample_in_braces(labels), as_epp);
            }
            return;
        }
        // The byte after the name is compared first: it rules out nearly all other lines without comparing
        // names.
        let named = |family: &&mut MetricFamily| {
            let at = family.name.len();
            matches!(line.get(at), Some(b'{' | b' ' | b'\t')) && line[..at] == *family.name.as_bytes()
        };
        if let Some(family) = self.families.iter_mut().find(named) {
            family.add(sample(&line[family.name.len()..]), self.as_epp);
        }
    }
}

impl MetricExtractor {
    pub(super) fn new(dialect: &Dialect, rules: TextRules) -> Self {
        let are_same = rules.engines == MultiEngine::First;
        let series = Arc::new(SeriesRules {
            sum_label: dialect.sum_label.clone(),
            rank_labels: dialect.rank_labels.clone(),
            are_same,
            max_parts: if are_same { 1 } else { MAX_ENGINES },
        });
        let first = || SeriesValue::first(&series);
        let summed = || SeriesValue::summed(&series);
        let mut extractor = Self { families: Vec::new(), as_epp: rules.as_epp };
        extractor.add_spec(dialect.waiting.as_ref(), || FieldSeries::Waiting(summed()));
        extractor.add_spec(dialect.running.as_ref(), || FieldSeries::Running(summed()));
        for spec in &dialect.kv_usage {
            extractor.add_spec(Some(spec), || FieldSeries::KvUsage(summed()));
        }
        extractor.add_spec(dialect.lora.as_ref(), || FieldSeries::Lora(LoraLists::default()));
        if let Some(cache) = &dialect.cache_info {
            extractor.add_spec(Some(&cache.spec), || FieldSeries::Cache(CacheShape::new(cache, &series)));
        }
        extractor.add_spec(dialect.block_size.as_ref(), || FieldSeries::BlockSize(first()));
        extractor.add_spec(dialect.num_blocks.as_ref(), || FieldSeries::NumBlocks(first()));
        extractor.add_spec(dialect.cache_tokens.as_ref(), || FieldSeries::CacheTokens(summed()));
        for (name, spec) in &dialect.attributes {
            extractor.add_spec(Some(spec), || FieldSeries::Attribute(name.clone(), first()));
        }
        extractor.add_spec(dialect.counter.as_ref(), || FieldSeries::Counter(Sum::default()));
        extractor.add(START_TIME, &[], FieldSeries::StartTime(first()));
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
            self.families.push(MetricFamily { name, kind: SampleKind::default(), extractors });
        }
    }

    fn family(&mut self, name: &[u8]) -> Option<&mut MetricFamily> {
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
        for (family, extractor) in others {
            extractor.extract(family, self.as_epp, &mut extraction);
        }
        // If the text has no metric of KV usage, the first of them reports the fault.
        let in_text = kv_usage.iter().find(|(_, extractor)| extractor.is_in_text());
        if let Some((family, extractor)) = in_text.or(kv_usage.first()) {
            extractor.extract(family, self.as_epp, &mut extraction);
            extraction.kv_usage_metric = extraction.reading.kv_usage.map(|_| Arc::clone(&family.name));
        }
        extraction
    }
}

impl MetricFamily {
    /// Adds the sample of a line; `None`: the line is malformed.
    fn add(&mut self, sample: Option<MetricSample<'_>>, as_epp: bool) {
        let Some(mut sample) = sample else {
            for extractor in &mut self.extractors {
                extractor.malformed = true;
            }
            return;
        };
        if as_epp && self.kind == SampleKind::Other {
            sample.value = 0.0;
        }
        for extractor in self.extractors.iter_mut().filter(|extractor| extractor.matches(&sample)) {
            extractor.series.add(&sample);
        }
    }
}

impl FieldExtractor {
    /// Whether a series has the labels. An empty value is that of an absent label, as in Prometheus.
    fn matches(&self, sample: &MetricSample<'_>) -> bool {
        let has = |(name, value): &(String, String)| {
            sample.labels.get(name).unwrap_or_default().as_ref() == value.as_bytes()
        };
        self.labels.iter().all(has)
    }

    /// Whether the text has the metric, even if it is malformed.
    fn is_in_text(&self) -> bool {
        self.malformed || matches!(&self.series, FieldSeries::KvUsage(number) if number.is_in_text())
    }

    fn extract(&self, family: &MetricFamily, as_epp: bool, into: &mut Extraction) {
        let Extraction { reading, process, faults, doubts, .. } = into;
        let mut found = FieldFindings { family, as_epp, malformed: self.malformed, faults, doubts };
        match &self.series {
            FieldSeries::Waiting(number) => {
                reading.waiting = found.load(Field::Waiting, number, SeriesValue::count);
            }
            FieldSeries::Running(number) => {
                reading.running = found.load(Field::Running, number, SeriesValue::count);
            }
            FieldSeries::KvUsage(number) => {
                reading.kv_usage = found.load(Field::KvUsage, number, SeriesValue::share);
            }
            FieldSeries::BlockSize(number) => {
                reading.block_size = found.number(Field::BlockSize, number, SeriesValue::small_count);
            }
            FieldSeries::NumBlocks(number) => {
                reading.num_blocks = found.number(Field::NumBlocks, number, SeriesValue::small_count);
            }
            // Most engines do not report it, so its absence is not a fault.
            FieldSeries::CacheTokens(number) => {
                if number.is_in_text() || self.malformed {
                    let tokens = found.number(Field::CacheTokens, number, SeriesValue::count);
                    reading.cache_tokens = reading.cache_tokens.or(tokens.filter(|tokens| *tokens > 0));
                }
            }
            FieldSeries::Attribute(name, number) => {
                let value = found.number(Field::Attribute, number, SeriesValue::any);
                reading.attributes.extend(value.map(|value| (name.clone(), value)));
            }
            // These two are optional, so their absence is not a fault.
            FieldSeries::StartTime(number) => process.start_time = number.any().ok(),
            FieldSeries::Counter(sum) => process.counter = sum.total().filter(|_| !self.malformed),
            FieldSeries::Cache(cache) => {
                reading.block_size = found.value(Field::BlockSize, cache.block_size());
                reading.num_blocks = found.value(Field::NumBlocks, cache.num_blocks());
                let tokens = cache.tokens().filter(|_| !self.malformed);
                reading.cache_tokens = reading.cache_tokens.or(tokens);
            }
            // A server without adapters has no such series, which is not a fault.
            FieldSeries::Lora(lists) => match lists.lists() {
                Err(Fault::Missing) if !self.malformed => {}
                collected => {
                    reading.lora = found.value(Field::Lora, collected);
                    if reading.lora.is_some() && lists.max().is_err() {
                        found.faults.push((Field::Lora, Fault::Invalid));
                    }
                }
            },
        }
    }
}

/// Takes note of fields without a value, or with a doubtful one.
struct FieldFindings<'a> {
    family: &'a MetricFamily,
    as_epp: bool,
    malformed: bool,
    faults: &'a mut Vec<(Field, Fault)>,
    doubts: &'a mut Vec<Doubt>,
}

impl FieldFindings<'_> {
    fn value<T>(&mut self, field: Field, collected: Collected<T>) -> Option<T> {
        match collected {
            Ok(value) if !self.malformed => return Some(value),
            Err(fault) if !self.malformed => self.faults.push((field, fault)),
            Ok(_) | Err(_) => self.faults.push((field, Fault::Invalid)),
        }
        None
    }

    /// A number of requests, or the use of a cache. A counter is neither.
    fn load<T>(
        &mut self,
        field: Field,
        number: &SeriesValue,
        collected: impl Fn(&SeriesValue) -> Collected<T>,
    ) -> Option<T> {
        if self.family.kind == SampleKind::Counter && number.is_in_text() && !self.as_epp {
            self.faults.push((field, Fault::Counter));
            self.doubt(field, Fault::Counter, None);
            return None;
        }
        self.number(field, number, collected)
    }

    fn number<T>(
        &mut self,
        field: Field,
        number: &SeriesValue,
        collected: impl Fn(&SeriesValue) -> Collected<T>,
    ) -> Option<T> {
        let value = self.value(field, collected(number));
        if let Some(label) = number.unread_label() {
            if value.is_some() {
                self.faults.push((field, Fault::Ambiguous));
            }
            self.doubt(field, Fault::Ambiguous, Some(label));
        }
        if self.as_epp && self.family.kind == SampleKind::Other && value.is_some() {
            self.faults.push((field, Fault::Untyped));
            self.doubt(field, Fault::Untyped, None);
        }
        value
    }

    fn doubt(&mut self, field: Field, fault: Fault, label: Option<&[u8]>) {
        let label = label.map(|label| String::from_utf8_lossy(label).chars().take(MAX_LABEL_CHARS).collect());
        self.doubts.push(Doubt { field, fault, metric: Arc::clone(&self.family.name), label });
    }
}

/// The series of one field so far.
#[derive(Debug)]
enum FieldSeries {
    Waiting(SeriesValue),
    Running(SeriesValue),
    KvUsage(SeriesValue),
    Lora(LoraLists),
    Cache(CacheShape),
    BlockSize(SeriesValue),
    NumBlocks(SeriesValue),
    CacheTokens(SeriesValue),
    Attribute(String, SeriesValue),
    StartTime(SeriesValue),
    Counter(Sum),
}

impl FieldSeries {
    fn clear(&mut self) {
        match self {
            Self::Waiting(n)
            | Self::Running(n)
            | Self::KvUsage(n)
            | Self::BlockSize(n)
            | Self::NumBlocks(n)
            | Self::CacheTokens(n)
            | Self::StartTime(n)
            | Self::Attribute(_, n) => n.clear(),
            Self::Counter(sum) => *sum = Sum::default(),
            Self::Lora(lists) => lists.clear(),
            Self::Cache(cache) => cache.clear(),
        }
    }

    fn add(&mut self, sample: &MetricSample<'_>) {
        match self {
            Self::Waiting(n)
            | Self::Running(n)
            | Self::KvUsage(n)
            | Self::BlockSize(n)
            | Self::NumBlocks(n)
            | Self::CacheTokens(n)
            | Self::StartTime(n)
            | Self::Attribute(_, n) => n.add(sample),
            Self::Counter(sum) => sum.add(sample),
            Self::Lora(lists) => lists.add(sample),
            Self::Cache(cache) => cache.add(sample),
        }
    }
}
