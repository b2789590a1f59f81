//! The values of one text.

use std::sync::Arc;

use endpoint_picker::pool::reading::Reading;

/// The values of one text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extraction {
    /// The values; `ready` and `updated` are left at their defaults.
    pub reading: Reading,
    /// The values that show whether the server has restarted.
    pub process: Process,
    /// The metric that `reading.kv_usage` is from.
    pub kv_usage_metric: Option<Arc<str>>,
    /// The fields of the dialect that the text gave no value for, and why.
    pub faults: Vec<(Field, Fault)>,
}

/// The values of a text about the server's process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// When it started, in seconds since the Unix epoch.
    pub start_time: Option<f64>,
    /// The sum of a counter's series.
    pub counter: Option<f64>,
}

impl Extraction {
    /// Whether the text has no value of the dialect.
    pub fn is_empty(&self) -> bool {
        self.reading == Reading::default()
    }
}

/// A value of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields of `Reading`")]
pub enum Field {
    Waiting,
    Running,
    KvUsage,
    Lora,
    BlockSize,
    NumBlocks,
    Attribute,
}

/// Why a field has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No series of the text matches the spec.
    Missing,
    /// The line is malformed, or the value is negative, NaN, infinite, not an integer or too large.
    Invalid,
}

impl Field {
    /// The value of a metric's label.
    pub(in crate::scrape) fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::KvUsage => "kv_usage",
            Self::Lora => "lora",
            Self::BlockSize => "block_size",
            Self::NumBlocks => "num_blocks",
            Self::Attribute => "attribute",
        }
    }
}

impl Fault {
    /// The value of a metric's label.
    pub(in crate::scrape) fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Invalid => "invalid",
        }
    }
}
