//! What is kept of the series seen so far, for each kind of field.

use std::collections::HashSet;

use endpoint_picker::reading::Lora;

use super::sample::{Labels, Sample};

/// Larger counts are no counts of requests, and from here on a double no longer holds every integer.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// The server's text holds no legal value where one should stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalid;

/// Outcome of a field: not in the text, not legal, or a value.
pub(super) type Said<T> = Option<Result<T, Invalid>>;

/// How the engines of a data-parallel server are told apart.
#[derive(Clone, Debug)]
pub(super) struct Engines {
    /// The label that numbers them.
    pub(super) label: String,
    /// A number of more engines is none.
    pub(super) most: usize,
}

/// A number: of each engine, the series with the largest timestamp, the first of equals.
#[derive(Debug)]
pub(super) struct Number {
    /// `None`: all series belong to one engine, as in the EPP.
    told_apart: Option<Engines>,
    engines: Vec<EngineValue>,
    overflow: bool,
}

#[derive(Debug)]
struct EngineValue {
    engine: Option<u32>,
    timestamp: i64,
    value: f64,
}

impl Number {
    pub(super) fn new(told_apart: Option<Engines>) -> Self {
        Self { told_apart, engines: Vec::new(), overflow: false }
    }

    pub(super) fn clear(&mut self) {
        self.engines.clear();
        self.overflow = false;
    }

    pub(super) fn offer(&mut self, sample: &Sample<'_>) {
        let engine = self.told_apart.as_ref().and_then(|engines| integer(sample.labels, &engines.label));
        let most = self.told_apart.as_ref().map_or(1, |engines| engines.most);
        let new = EngineValue { engine, timestamp: sample.timestamp, value: sample.value };
        match self.engines.iter().position(|seen| seen.engine == engine) {
            Some(at) if new.timestamp > self.engines[at].timestamp => self.engines[at] = new,
            Some(_) => {}
            None if self.engines.len() < most => self.engines.push(new),
            None => self.overflow = true,
        }
    }

    /// The sum over the engines, fractions cut off.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    pub(super) fn count(&self) -> Said<u64> {
        let total = self.total(|value| (0.0..=MAX_COUNT).contains(&value).then_some(value.trunc()))?;
        Some(total.map(|sum| sum as u64))
    }

    /// Like [`Self::count`], within 32 bits.
    pub(super) fn small_count(&self) -> Said<u32> {
        let count = self.count()?;
        Some(count.and_then(|count| u32::try_from(count).map_err(|_| Invalid)))
    }

    /// Any number, negative ones too.
    pub(super) fn any(&self) -> Said<f64> {
        self.total(Some)
    }

    /// The mean over the engines. +Inf, which a server computes for a cache without blocks, counts as full.
    pub(super) fn share(&self) -> Said<f64> {
        let share = |value: f64| if value == f64::INFINITY { 1.0 } else { value };
        let total = self.total(|value| (value >= 0.0).then_some(share(value)))?;
        Some(total.map(|sum| sum / self.engines.len() as f64))
    }

    fn total(&self, legal: impl Fn(f64) -> Option<f64>) -> Said<f64> {
        if self.engines.is_empty() {
            return None;
        }
        let values = self.engines.iter().map(|engine| legal(engine.value));
        let sum = values.sum::<Option<f64>>().filter(|sum| sum.is_finite() && !self.overflow);
        Some(sum.ok_or(Invalid))
    }
}

/// The sum of all series.
#[derive(Debug, Default)]
pub(super) struct Sum(Option<f64>);

impl Sum {
    pub(super) fn offer(&mut self, sample: &Sample<'_>) {
        *self.0.get_or_insert(0.0) += sample.value;
    }

    pub(super) fn total(&self) -> Option<f64> {
        self.0.filter(|total| total.is_finite())
    }
}

/// LoRA adapters: the labels of the series with the largest value, which is vLLM's time of writing it.
#[derive(Debug, Default)]
pub(super) struct LoraLists {
    newest: Option<f64>,
    running: Vec<u8>,
    waiting: Vec<u8>,
    max: Vec<u8>,
}

impl LoraLists {
    pub(super) fn clear(&mut self) {
        self.newest = None;
    }

    pub(super) fn offer(&mut self, sample: &Sample<'_>) {
        if sample.value.is_nan() || self.newest.is_some_and(|newest| sample.value <= newest) {
            return;
        }
        self.newest = Some(sample.value);
        for (kept, label) in [
            (&mut self.running, "running_lora_adapters"),
            (&mut self.waiting, "waiting_lora_adapters"),
            (&mut self.max, "max_lora"),
        ] {
            kept.clear();
            kept.extend_from_slice(&sample.labels.get(label).unwrap_or_default());
        }
    }

    pub(super) fn lists(&self) -> Said<Lora> {
        self.newest.map(|_| {
            let max = self.max().unwrap_or(0);
            Ok(Lora { running: names(&self.running)?, waiting: names(&self.waiting)?, max })
        })
    }

    /// How many adapters fit, cut to a whole number, 0 for a negative one.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast cuts and clamps")]
    pub(super) fn max(&self) -> Result<u32, Invalid> {
        if self.newest.is_none() || self.max.is_empty() {
            return Ok(0);
        }
        let max = core::str::from_utf8(&self.max).ok().and_then(|text| text.parse::<f64>().ok());
        max.filter(|max| max.is_finite()).map(|max| max as u32).ok_or(Invalid)
    }
}

/// A list of adapters is a set, whatever the server writes twice.
fn names(list: &[u8]) -> Result<Vec<String>, Invalid> {
    let list = core::str::from_utf8(list).map_err(|_| Invalid)?;
    let mut seen = HashSet::new();
    let names = list.split(',').map(str::trim).filter(|&name| !name.is_empty() && seen.insert(name));
    Ok(names.map(str::to_owned).collect())
}

/// The cache's shape, in the labels of the series with the largest timestamp, the first of equals.
#[derive(Debug)]
pub(super) struct CacheShape {
    block_size_label: String,
    num_blocks_label: String,
    seen: Option<CacheLabels>,
}

#[derive(Clone, Copy, Debug)]
struct CacheLabels {
    timestamp: i64,
    block_size: Said<u32>,
    num_blocks: Said<u32>,
}

impl CacheShape {
    pub(super) fn new(block_size_label: String, num_blocks_label: String) -> Self {
        Self { block_size_label, num_blocks_label, seen: None }
    }

    pub(super) fn clear(&mut self) {
        self.seen = None;
    }

    pub(super) fn offer(&mut self, sample: &Sample<'_>) {
        if self.seen.is_some_and(|seen| sample.timestamp <= seen.timestamp) {
            return;
        }
        let read = |label| sample.labels.get(label).map(|value| parse_u32(&value).ok_or(Invalid));
        self.seen = Some(CacheLabels {
            timestamp: sample.timestamp,
            block_size: read(&self.block_size_label),
            num_blocks: read(&self.num_blocks_label),
        });
    }

    pub(super) fn block_size(&self) -> Said<u32> {
        self.seen.and_then(|seen| seen.block_size)
    }

    pub(super) fn num_blocks(&self) -> Said<u32> {
        self.seen.and_then(|seen| seen.num_blocks)
    }
}

fn integer(labels: Labels<'_>, name: &str) -> Option<u32> {
    parse_u32(&labels.get(name)?)
}

fn parse_u32(text: &[u8]) -> Option<u32> {
    core::str::from_utf8(text).ok()?.parse().ok()
}
