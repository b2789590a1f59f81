//! The series of one field.

use super::collect::{CacheShape, LoraLists, Number, Sum};
use super::sample::Sample;

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
