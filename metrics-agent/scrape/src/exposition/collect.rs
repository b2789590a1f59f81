//! Values collected from the series of a text, for each kind of field.

use core::str::FromStr;
use std::collections::HashSet;
use std::sync::Arc;

use endpoint_picker::pool::reading::Lora;
use metrics_agent_catalogue::dialect::CacheInfo;
use xxhash_rust::xxh64::xxh64;

use super::Fault;
use super::sample::{MetricSample, SampleLabels};

/// Maximum count, 2^53: above it an f64 cannot hold every integer.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// A field's value, or why it has none.
pub(super) type Collected<T> = Result<T, Fault>;

/// Which series of a metric are added up, and which are the same.
#[derive(Debug)]
pub(super) struct SeriesRules {
    /// The label over whose values series are added up.
    pub(super) sum_label: Option<String>,
    /// Labels of further ranks: series that differ in nothing else are the same.
    pub(super) rank_labels: Vec<String>,
    /// Whether all series are the same, as in the EPP.
    pub(super) are_same: bool,
    /// Maximum number of series that are added up; with more the field has no value.
    pub(super) max_parts: usize,
}

impl SeriesRules {
    /// Whether a label is the one over whose values series are added up.
    fn is_sum(&self, name: &[u8]) -> bool {
        self.sum_label.as_ref().is_some_and(|label| label.as_bytes() == name)
    }

    /// Whether series that differ in this label alone are added up or the same.
    fn is_known(&self, name: &[u8]) -> bool {
        self.is_sum(name) || self.rank_labels.iter().any(|label| label.as_bytes() == name)
    }

    /// Hashes of the sum label's value, and of all labels that are not known. An empty value is that of an
    /// absent label.
    fn hashes(&self, labels: SampleLabels<'_>) -> (Option<u64>, u64) {
        let (mut part, mut others) = (None, 0_u64);
        for (name, value) in labels.pairs().filter(|(_, value)| !value.is_empty()) {
            if self.is_sum(name) {
                part = part.or(Some(xxh64(value, 0)));
            } else if !self.is_known(name) {
                others = others.wrapping_add(xxh64(value, xxh64(name, 0)));
            }
        }
        (part, others)
    }

    /// A label that is not known, in which the series differ.
    fn difference<'a>(&self, one: SampleLabels<'a>, other: SampleLabels<'a>) -> Option<&'a [u8]> {
        let value = |labels: SampleLabels<'a>, name: &[u8]| {
            labels.pairs().find(|(found, _)| *found == name).map_or(&b""[..], |(_, value)| value)
        };
        let names = other.pairs().chain(one.pairs()).map(|(name, _)| name);
        names.filter(|name| !self.is_known(name)).find(|name| value(one, name) != value(other, name))
    }
}

/// A number: of each part, the series with the largest timestamp, the first of equals.
#[derive(Debug)]
pub(super) struct SeriesValue {
    rules: Arc<SeriesRules>,
    /// Whether its parts are added up. Otherwise the first series counts.
    is_summed: bool,
    parts: Vec<SeriesPart>,
    /// The labels of the first series.
    first_labels: Vec<u8>,
    /// A label that is not known, in which series differ.
    unread_label: Vec<u8>,
    is_ambiguous: bool,
    overflow: bool,
}

/// A series, or several that are the same.
#[derive(Debug)]
struct SeriesPart {
    /// A hash of its value of the sum label.
    key: Option<u64>,
    /// A hash of its labels that are not known.
    labels: u64,
    timestamp: i64,
    value: f64,
}

impl SeriesValue {
    /// A number whose parts are added up.
    pub(super) fn summed(rules: &Arc<SeriesRules>) -> Self {
        Self {
            rules: Arc::clone(rules),
            is_summed: true,
            parts: Vec::new(),
            first_labels: Vec::new(),
            unread_label: Vec::new(),
            is_ambiguous: false,
            overflow: false,
        }
    }

    /// A number of which the first series counts.
    pub(super) fn first(rules: &Arc<SeriesRules>) -> Self {
        Self { is_summed: false, ..Self::summed(rules) }
    }

    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.first_labels.clear();
        self.unread_label.clear();
        self.is_ambiguous = false;
        self.overflow = false;
    }

    pub(super) fn add(&mut self, sample: &MetricSample<'_>) {
        let are_same = self.rules.are_same;
        let (key, labels) = if are_same { (None, 0) } else { self.rules.hashes(sample.labels) };
        let new = SeriesPart {
            key: key.filter(|_| self.is_summed),
            labels,
            timestamp: sample.timestamp,
            value: sample.value,
        };
        let (known, max) = (self.parts.len(), self.rules.max_parts);
        match self.parts.iter_mut().find(|part| part.key == new.key) {
            Some(part) => {
                if part.labels != new.labels && !self.is_ambiguous {
                    self.is_ambiguous = true;
                    let first = SampleLabels::of_text(&self.first_labels);
                    let label = self.rules.difference(first, sample.labels).unwrap_or_default();
                    self.unread_label.extend_from_slice(label);
                }
                if new.timestamp > part.timestamp {
                    (part.timestamp, part.value) = (new.timestamp, new.value);
                }
            }
            None if known < max => {
                if known == 0 && !are_same {
                    self.first_labels.extend_from_slice(sample.labels.text());
                }
                self.parts.push(new);
            }
            None => self.overflow = true,
        }
    }

    /// Whether there is a series.
    pub(super) fn is_in_text(&self) -> bool {
        !self.parts.is_empty()
    }

    /// The label that is not read, in which series differ; `None`: they differ in none.
    pub(super) fn unread_label(&self) -> Option<&[u8]> {
        self.is_ambiguous.then_some(&self.unread_label)
    }

    /// The sum of the parts, fractions cut off.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
    pub(super) fn count(&self) -> Collected<u64> {
        let total = self.total(|value| (0.0..=MAX_COUNT).contains(&value).then_some(value.trunc()))?;
        Ok(total as u64)
    }

    /// Like [`Self::count`], within 32 bits.
    pub(super) fn small_count(&self) -> Collected<u32> {
        u32::try_from(self.count()?).map_err(|_| Fault::Invalid)
    }

    /// The number, which may be negative.
    pub(super) fn any(&self) -> Collected<f64> {
        self.total(Some)
    }

    /// The mean of the parts. +Inf, which a server computes for a cache without blocks, counts as full.
    pub(super) fn share(&self) -> Collected<f64> {
        let share = |value: f64| if value == f64::INFINITY { 1.0 } else { value };
        let total = self.total(|value| (value >= 0.0).then_some(share(value)))?;
        Ok(total / self.parts.len() as f64)
    }

    fn total(&self, legal: impl Fn(f64) -> Option<f64>) -> Collected<f64> {
        if self.parts.is_empty() {
            return Err(Fault::Missing);
        }
        // Of series that differ in an unknown label, neither the first nor the sum is the server's number.
        if self.is_ambiguous && self.is_summed {
            return Err(Fault::Ambiguous);
        }
        // An invalid value makes the field invalid: a sum without it would be too small.
        let values = self.parts.iter().map(|part| legal(part.value));
        let sum = values.sum::<Option<f64>>().filter(|sum| sum.is_finite() && !self.overflow);
        sum.ok_or(Fault::Invalid)
    }
}

/// The sum of all series.
#[derive(Debug, Default)]
pub(super) struct Sum(Option<f64>);

impl Sum {
    pub(super) fn add(&mut self, sample: &MetricSample<'_>) {
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

    pub(super) fn add(&mut self, sample: &MetricSample<'_>) {
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
        if self.newest.is_none() {
            return Err(Fault::Missing);
        }
        let max = self.max().unwrap_or(0);
        Ok(Lora { running: names(&self.running)?, waiting: names(&self.waiting)?, max })
    }

    /// The number of adapters that fit, rounded down, 0 for a negative one.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast cuts and clamps")]
    pub(super) fn max(&self) -> Collected<u32> {
        if self.newest.is_none() || self.max.is_empty() {
            return Ok(0);
        }
        let max = core::str::from_utf8(&self.max).ok().and_then(|text| text.parse::<f64>().ok());
        max.filter(|max| max.is_finite()).map(|max| max as u32).ok_or(Fault::Invalid)
    }
}

/// The names of a list, each once: some servers repeat names.
fn names(list: &[u8]) -> Collected<Vec<String>> {
    let list = core::str::from_utf8(list).map_err(|_| Fault::Invalid)?;
    let mut seen = HashSet::new();
    let names = list.split(',').map(str::trim).filter(|&name| !name.is_empty() && seen.insert(name));
    Ok(names.map(str::to_owned).collect())
}

/// The cache's shape, in the labels of the series with the largest timestamp, the first of equals.
#[derive(Debug)]
pub(super) struct CacheShape {
    labels: CacheInfo,
    seen: Option<CacheLabels>,
    /// Tokens that the caches of all parts of the server hold.
    tokens: SeriesValue,
}

#[derive(Clone, Copy, Debug)]
struct CacheLabels {
    timestamp: i64,
    block_size: Collected<u32>,
    num_blocks: Collected<u32>,
}

impl CacheShape {
    pub(super) fn new(cache: &CacheInfo, rules: &Arc<SeriesRules>) -> Self {
        Self { labels: cache.clone(), seen: None, tokens: SeriesValue::summed(rules) }
    }

    pub(super) fn clear(&mut self) {
        self.seen = None;
        self.tokens.clear();
    }

    pub(super) fn add(&mut self, sample: &MetricSample<'_>) {
        let value = |label: &String| sample.labels.get(label);
        let tokens = self.labels.tokens_label.as_ref().and_then(value);
        if let Some(tokens) = tokens.and_then(|text| parse::<u64>(&text)) {
            self.tokens.add(&MetricSample { value: tokens as f64, ..*sample });
        }
        if self.seen.is_some_and(|seen| sample.timestamp <= seen.timestamp) {
            return;
        }
        let read = |label| {
            let text = value(label).ok_or(Fault::Missing)?;
            parse(&text).ok_or(Fault::Invalid)
        };
        let match_unit = self.labels.match_unit_label.as_ref().and_then(value);
        let match_unit = match_unit.and_then(|value| parse(&value)).filter(|tokens| *tokens > 0);
        self.seen = Some(CacheLabels {
            timestamp: sample.timestamp,
            block_size: match_unit.map_or_else(|| read(&self.labels.block_size_label), Ok),
            num_blocks: read(&self.labels.num_blocks_label),
        });
    }

    pub(super) fn block_size(&self) -> Collected<u32> {
        self.seen.ok_or(Fault::Missing)?.block_size
    }

    pub(super) fn num_blocks(&self) -> Collected<u32> {
        self.seen.ok_or(Fault::Missing)?.num_blocks
    }

    /// Tokens that the cache holds; `None`: the text does not say.
    pub(super) fn tokens(&self) -> Option<u64> {
        self.tokens.count().ok().filter(|tokens| *tokens > 0)
    }
}

fn parse<T: FromStr>(text: &[u8]) -> Option<T> {
    core::str::from_utf8(text).ok()?.parse().ok()
}
