//! From a text to a reading.

use std::sync::Arc;

use endpoint_picker::reading::Reading;

use super::lines::Lines;
use super::wanted::Wanted;
use crate::dialect::{Dialect, MultiEngine};

/// Reads the texts of one endpoint, one after the other.
///
/// The rules are the EPP's: whole metric names match, a series must carry all labels of its spec, the largest
/// timestamp wins and the first of equals, a metric that is neither gauge nor counter reads 0, integers are cut off.
/// Differently from it, [`MultiEngine::Sum`] adds up the engines of a data-parallel server, and a field that a good
/// scrape does not say, or says as a negative number, NaN or infinity, becomes `None` instead of keeping an old
/// value under a new age; but an infinite KV usage counts as a full cache.
#[derive(Debug)]
pub struct Reader {
    lines: Lines,
    wanted: Wanted,
    series: usize,
}

/// What a text may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextLimits {
    /// Most bytes of a line; a longer one is passed over.
    pub line_bytes: usize,
    /// Most labels of a series; one with more counts as malformed.
    pub labels: usize,
    /// Most engines of a data-parallel server; with more the field has no value.
    pub engines: usize,
}

impl Default for TextLimits {
    fn default() -> Self {
        Self { line_bytes: 64 * 1024, labels: 128, engines: 256 }
    }
}

/// What one text said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extraction {
    /// The values; `ready` and `updated` are left at their defaults.
    pub reading: Reading,
    /// What tells whether the server has restarted.
    pub process: Process,
    /// The metric that `reading.kv_usage` is from.
    pub kv_usage_metric: Option<Arc<str>>,
    /// The fields of the dialect that the text gave no value for, and why.
    pub faults: Vec<(Field, Fault)>,
}

/// What a text says of the server's process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// When it started, in seconds since the Unix epoch.
    pub start_time: Option<f64>,
    /// The sum of a counter's series.
    pub counter: Option<f64>,
}

impl Extraction {
    /// Whether the text held none of the wanted values.
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
    /// No series of the text fits the spec.
    Missing,
    /// The line is malformed, or the value is none: negative, NaN, infinite, not an integer, too large.
    Invalid,
}

impl Reader {
    /// A reader of texts in this dialect.
    pub fn new(dialect: &Dialect, engines: MultiEngine) -> Self {
        Self::with_limits(dialect, engines, TextLimits::default())
    }

    /// The same, with other limits.
    pub fn with_limits(dialect: &Dialect, engines: MultiEngine, limits: TextLimits) -> Self {
        let wanted = Wanted::new(dialect, engines, limits);
        Self { lines: Lines::new(limits.line_bytes), wanted, series: 0 }
    }

    /// Starts a new text; what was read of the last one is forgotten.
    pub fn start(&mut self) {
        self.lines.clear();
        self.wanted.clear();
        self.series = 0;
    }

    /// Reads on.
    pub fn feed(&mut self, chunk: &[u8]) {
        let Self { lines, wanted, series } = self;
        lines.feed(chunk, |line| {
            *series += usize::from(!matches!(line.first(), None | Some(b'#')));
            wanted.line(line);
        });
    }

    /// Series of the text so far, wanted or not.
    pub fn series(&self) -> usize {
        self.series
    }

    /// The text is complete.
    pub fn finish(&mut self) -> Extraction {
        self.lines.finish(|line| self.wanted.line(line));
        self.wanted.extract()
    }

    /// Reads a whole text.
    pub fn read(&mut self, text: &[u8]) -> Extraction {
        self.start();
        self.feed(text);
        self.finish()
    }
}
