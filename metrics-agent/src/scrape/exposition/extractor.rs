//! The wanted metrics, line by line.

use std::sync::Arc;

use super::collect::{CacheShape, Engines, Invalid, LoraLists, Number, Said, Sum};
use super::extraction::{Extraction, Fault, Field};
use super::sample::{Sample, quoted_name, sample, sample_in_braces, type_line};
use crate::catalogue::dialect::{Dialect, MetricSpec, MultiEngine};
use crate::catalogue::scraping::TextLimits;

/// The wanted metrics of one dialect, and what was seen of them.
#[derive(Debug)]
pub(super) struct MetricExtractor {
    families: Vec<Family>,
    max_labels: usize,
}

/// The metric of Prometheus' client libraries with the time at which the process started.
const START_TIME: &str = "process_start_time_seconds";

/// One metric: several fields may be read from it, by their labels.
#[derive(Debug)]
struct Family {
    name: Arc<str>,
    /// Gauge or counter; the EPP reads every other kind as 0.
    has_values: bool,
    wants: Vec<Want>,
}

#[derive(Debug)]
struct Want {
    labels: Vec<(String, String)>,
    malformed: bool,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
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

impl MetricExtractor {
    pub(super) fn new(dialect: &Dialect, engines: MultiEngine, limits: TextLimits) -> Self {
        let engine_label = match engines {
            MultiEngine::Sum => dialect.engine_label.clone(),
            MultiEngine::First => None,
        };
        let told_apart = engine_label.map(|label| Engines { label, most: limits.engines });
        let per_engine = || Number::new(told_apart.clone());
        let mut wanted = Self { families: Vec::new(), max_labels: limits.labels };
        wanted.want(dialect.waiting.as_ref(), || Kept::Waiting(per_engine()));
        wanted.want(dialect.running.as_ref(), || Kept::Running(per_engine()));
        for spec in &dialect.kv_usage {
            wanted.want(Some(spec), || Kept::KvUsage(per_engine()));
        }
        wanted.want(dialect.lora.as_ref(), || Kept::Lora(LoraLists::default()));
        if let Some(cache) = &dialect.cache_info {
            let (size, number) = (cache.block_size_label.clone(), cache.num_blocks_label.clone());
            wanted.want(Some(&cache.spec), || Kept::Cache(CacheShape::new(size, number)));
        }
        wanted.want(dialect.block_size.as_ref(), || Kept::BlockSize(Number::new(None)));
        wanted.want(dialect.num_blocks.as_ref(), || Kept::NumBlocks(Number::new(None)));
        for (name, spec) in &dialect.attributes {
            wanted.want(Some(spec), || Kept::Attribute(name.clone(), Number::new(None)));
        }
        wanted.want(dialect.counter.as_ref(), || Kept::Counter(Sum::default()));
        wanted.want_named(START_TIME, &[], Kept::StartTime(Number::new(None)));
        wanted
    }

    fn want(&mut self, spec: Option<&MetricSpec>, kept: impl FnOnce() -> Kept) {
        if let Some(spec) = spec {
            self.want_named(spec.name(), spec.labels(), kept());
        }
    }

    fn want_named(&mut self, name: &str, labels: &[(String, String)], kept: Kept) {
        let want = Want { labels: labels.to_vec(), malformed: false, kept };
        match self.families.iter_mut().find(|family| *family.name == *name) {
            Some(family) => family.wants.push(want),
            None => {
                self.families.push(Family { name: name.into(), has_values: false, wants: vec![want] });
            }
        }
    }

    pub(super) fn clear(&mut self) {
        for family in &mut self.families {
            family.has_values = false;
            for want in &mut family.wants {
                want.malformed = false;
                want.kept.clear();
            }
        }
    }

    pub(super) fn line(&mut self, line: &[u8]) {
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
                family.series(sample_in_braces(labels, max_labels));
            }
            return;
        }
        // The byte after the name is looked at first: it tells nearly all other lines apart without comparing.
        let named = |family: &&mut Family| {
            let at = family.name.len();
            matches!(line.get(at), Some(b'{' | b' ' | b'\t')) && line[..at] == *family.name.as_bytes()
        };
        if let Some(family) = self.families.iter_mut().find(named) {
            family.series(sample(&line[family.name.len()..], self.max_labels));
        }
    }

    fn family(&mut self, name: &[u8]) -> Option<&mut Family> {
        self.families.iter_mut().find(|family| *family.name.as_bytes() == *name)
    }

    pub(super) fn extract(&self) -> Extraction {
        let mut extraction = Extraction::default();
        let wants =
            self.families.iter().flat_map(|family| family.wants.iter().map(move |want| (family, want)));
        let (kv_usage, others): (Vec<_>, Vec<_>) =
            wants.partition(|(_, want)| matches!(want.kept, Kept::KvUsage(_)));
        for (_, want) in others {
            want.extract(&mut extraction);
        }
        let in_text = kv_usage.iter().find(|(_, want)| want.is_in_text());
        if let Some((family, want)) = in_text.or(kv_usage.first()) {
            want.extract(&mut extraction);
            extraction.kv_usage_metric = extraction.reading.kv_usage.map(|_| Arc::clone(&family.name));
        }
        extraction
    }
}

impl Family {
    /// `None`: the line is malformed.
    fn series(&mut self, sample: Option<Sample<'_>>) {
        let Some(mut sample) = sample else {
            for want in &mut self.wants {
                want.malformed = true;
            }
            return;
        };
        if !self.has_values {
            sample.value = 0.0;
        }
        for want in self.wants.iter_mut().filter(|want| want.fits(&sample)) {
            want.kept.offer(&sample);
        }
    }
}

impl Want {
    fn fits(&self, sample: &Sample<'_>) -> bool {
        self.labels.iter().all(|(name, value)| sample.labels.get(name).as_deref() == Some(value.as_bytes()))
    }

    /// Whether the text has the metric, be it malformed.
    fn is_in_text(&self) -> bool {
        self.malformed || matches!(&self.kept, Kept::KvUsage(number) if number.share().is_some())
    }

    fn extract(&self, into: &mut Extraction) {
        let Extraction { reading, process, faults, .. } = into;
        let mut say = Say { malformed: self.malformed, faults };
        match &self.kept {
            Kept::Waiting(number) => reading.waiting = say.value(Field::Waiting, number.count()),
            Kept::Running(number) => reading.running = say.value(Field::Running, number.count()),
            Kept::KvUsage(number) => reading.kv_usage = say.value(Field::KvUsage, number.share()),
            Kept::BlockSize(number) => reading.block_size = say.value(Field::BlockSize, number.small_count()),
            Kept::NumBlocks(number) => reading.num_blocks = say.value(Field::NumBlocks, number.small_count()),
            Kept::Attribute(name, number) => {
                let value = say.value(Field::Attribute, number.any());
                reading.attributes.extend(value.map(|value| (name.clone(), value)));
            }
            // A server need not have these two.
            Kept::StartTime(number) => process.start_time = number.any().and_then(Result::ok),
            Kept::Counter(sum) => process.counter = sum.total().filter(|_| !self.malformed),
            Kept::Cache(cache) => {
                reading.block_size = say.value(Field::BlockSize, cache.block_size());
                reading.num_blocks = say.value(Field::NumBlocks, cache.num_blocks());
            }
            // A server without adapters says nothing, and that is no fault.
            Kept::Lora(lists) => match lists.lists() {
                None if !self.malformed => {}
                said => {
                    reading.lora = say.value(Field::Lora, said);
                    if reading.lora.is_some() && lists.max().is_err() {
                        say.faults.push((Field::Lora, Fault::Invalid));
                    }
                }
            },
        }
    }
}

struct Say<'a> {
    malformed: bool,
    faults: &'a mut Vec<(Field, Fault)>,
}

impl Say<'_> {
    fn value<T>(&mut self, field: Field, said: Said<T>) -> Option<T> {
        let fault = match said {
            _ if self.malformed => Fault::Invalid,
            Some(Ok(value)) => return Some(value),
            Some(Err(Invalid)) => Fault::Invalid,
            None => Fault::Missing,
        };
        self.faults.push((field, fault));
        None
    }
}

impl Kept {
    fn clear(&mut self) {
        match self {
            Self::Waiting(n)
            | Self::Running(n)
            | Self::KvUsage(n)
            | Self::BlockSize(n)
            | Self::NumBlocks(n)
            | Self::StartTime(n)
            | Self::Attribute(_, n) => {
                n.clear();
            }
            Self::Counter(sum) => *sum = Sum::default(),
            Self::Lora(lists) => lists.clear(),
            Self::Cache(cache) => cache.clear(),
        }
    }

    fn offer(&mut self, sample: &Sample<'_>) {
        match self {
            Self::Waiting(n)
            | Self::Running(n)
            | Self::KvUsage(n)
            | Self::BlockSize(n)
            | Self::NumBlocks(n)
            | Self::StartTime(n)
            | Self::Attribute(_, n) => {
                n.offer(sample);
            }
            Self::Counter(sum) => sum.offer(sample),
            Self::Lora(lists) => lists.offer(sample),
            Self::Cache(cache) => cache.offer(sample),
        }
    }
}
