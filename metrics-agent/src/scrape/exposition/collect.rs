//! Values collected from the series of a text, for each kind of field.

use std::collections::HashSet;

use endpoint_picker::pool::reading::Lora;

use super::sample::{Labels, Sample};
use crate::catalogue::dialect::CacheInfo;

/// Maximum count, 2^53: above it an f64 cannot hold every integer.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// The text has a value that the field cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalid;

/// A field's value: `None` when the text lacks it, [`Invalid`] when the field cannot have it.
pub(super) type Collected<T> = Option<Result<T, Invalid>>;

/// The label that distinguishes the engines of a data-parallel server.
#[derive(Clone, Debug)]
pub(super) struct EngineLabel {
    /// The label's name; its values number the engines.
    pub(super) name: String,
    /// Maximum number of engines; with more the field has no value.
    pub(super) max_engines: usize,
}

/// A number: of each engine, the series with the largest timestamp, the first of equals.
#[derive(Debug)]
pub(super) struct Number {
    /// `None`: all series belong to one engine, as in the EPP.
    engine_label: Option<EngineLabel>,
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
    pub(super) fn new(engine_label: Option<EngineLabel>) -> Self {
        Self { engine_label, engines: Vec::new(), overflow: false }
    }

    pub(super) fn clear(&mut self) {
        self.engines.clear();
        self.overflow = false;
    }

    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        let engine = self.engine_label.as_ref().and_then(|label| integer(sample.labels, &label.name));
        let max = self.engine_label.as_ref().map_or(1, |label| label.max_engines);
        let new = EngineValue { engine, timestamp: sample.timestamp, value: sample.value };
        match self.engines.iter().position(|seen| seen.engine == engine) {
            Some(at) if new.timestamp > self.engines[at].timestamp => self.engines[at] = new,
            Some(_) => {}
            None if self.engines.len() < max => self.engines.push(new),
            None => self.overflow = true,
        }
    }

    /// The sum over the engines, fractions cut off.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    pub(super) fn count(&self) -> Collected<u64> {
        let total = self.total(|value| (0.0..=MAX_COUNT).contains(&value).then_some(value.trunc()))?;
        Some(total.map(|sum| sum as u64))
    }

    /// Like [`Self::count`], within 32 bits.
    pub(super) fn small_count(&self) -> Collected<u32> {
        let count = self.count()?;
        Some(count.and_then(|count| u32::try_from(count).map_err(|_| Invalid)))
    }

    /// The number, which may be negative.
    pub(super) fn any(&self) -> Collected<f64> {
        self.total(Some)
    }

    /// The mean over the engines. +Inf, which a server computes for a cache without blocks, counts as full.
    pub(super) fn share(&self) -> Collected<f64> {
        let share = |value: f64| if value == f64::INFINITY { 1.0 } else { value };
        let total = self.total(|value| (value >= 0.0).then_some(share(value)))?;
        Some(total.map(|sum| sum / self.engines.len() as f64))
    }

    fn total(&self, legal: impl Fn(f64) -> Option<f64>) -> Collected<f64> {
        if self.engines.is_empty() {
            return None;
        }
        // One engine's invalid value makes the field invalid: a sum without it would be too small.
        let values = self.engines.iter().map(|engine| legal(engine.value));
        let sum = values.sum::<Option<f64>>().filter(|sum| sum.is_finite() && !self.overflow);
        Some(sum.ok_or(Invalid))
    }
}

/// The sum of all series.
#[derive(Debug, Default)]
pub(super) struct Sum(Option<f64>);

impl Sum {
    pub(super) fn add(&mut self, sample: &Sample<'_>) {
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

    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        if sample.value.is_nan() || self.newest.is_some_and(|newest| sample.value <= newest) {
            return;
        }
        self.newest = Some(sample.value);
        for (list, label) in [
            (&mut self.running, "running_lora_adapters"),
            (&mut self.waiting, "waiting_lora_adapters"),
            (&mut self.max, "max_lora"),
        ] {
            list.clear();
            list.extend_from_slice(&sample.labels.get(label).unwrap_or_default());
        }
    }

    pub(super) fn lists(&self) -> Collected<Lora> {
        self.newest.map(|_| {
            let max = self.max().unwrap_or(0);
            Ok(Lora { running: names(&self.running)?, waiting: names(&self.waiting)?, max })
        })
    }

    /// The number of adapters that fit, rounded down, 0 for a negative one.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast cuts and clamps")]
    pub(super) fn max(&self) -> Result<u32, Invalid> {
        if self.newest.is_none() || self.max.is_empty() {
            return Ok(0);
        }
        let max = core::str::from_utf8(&self.max).ok().and_then(|text| text.parse::<f64>().ok());
        max.filter(|max| max.is_finite()).map(|max| max as u32).ok_or(Invalid)
    }
}

/// The names of a list, each once: some servers repeat names.
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
    match_unit_label: Option<String>,
    num_blocks_label: String,
    seen: Option<CacheLabels>,
}

#[derive(Clone, Copy, Debug)]
struct CacheLabels {
    timestamp: i64,
    block_size: Collected<u32>,
    num_blocks: Collected<u32>,
}

impl CacheShape {
    pub(super) fn new(cache: &CacheInfo) -> Self {
        let CacheInfo { block_size_label, match_unit_label, num_blocks_label, .. } = cache.clone();
        Self { block_size_label, match_unit_label, num_blocks_label, seen: None }
    }

    pub(super) fn clear(&mut self) {
        self.seen = None;
    }

    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        if self.seen.is_some_and(|seen| sample.timestamp <= seen.timestamp) {
            return;
        }
        let read = |label| sample.labels.get(label).map(|value| parse_u32(&value).ok_or(Invalid));
        let match_unit = self.match_unit_label.as_ref().and_then(|label| sample.labels.get(label));
        let match_unit = match_unit.and_then(|value| parse_u32(&value)).filter(|tokens| *tokens > 0);
        self.seen = Some(CacheLabels {
            timestamp: sample.timestamp,
            block_size: match_unit.map(Ok).or_else(|| read(&self.block_size_label)),
            num_blocks: read(&self.num_blocks_label),
        });
    }

    pub(super) fn block_size(&self) -> Collected<u32> {
        self.seen.and_then(|seen| seen.block_size)
    }

    pub(super) fn num_blocks(&self) -> Collected<u32> {
        self.seen.and_then(|seen| seen.num_blocks)
    }
}

fn integer(labels: Labels<'_>, name: &str) -> Option<u32> {
    parse_u32(&labels.get(name)?)
}

fn parse_u32(text: &[u8]) -> Option<u32> {
    core::str::from_utf8(text).ok()?.parse().ok()
}
