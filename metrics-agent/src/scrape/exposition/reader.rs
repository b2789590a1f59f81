//! Reads a text into the values of a reading.

use super::extraction::Extraction;
use super::extractor::MetricExtractor;
use super::lines::Lines;
use crate::catalogue::dialect::{Dialect, MultiEngine};
use crate::catalogue::scraping::TextLimits;

/// Reads the texts of one endpoint, one after the other.
///
/// The rules are the EPP's: whole metric names match, a series must carry all labels of its spec, the largest
/// timestamp wins and the first of equals, a metric that is neither gauge nor counter reads 0, integers are cut off.
/// Unlike the EPP, [`MultiEngine::Sum`] adds up the engines of a data-parallel server, and a field that the text lacks, or has
/// as a negative number, NaN or infinity, becomes `None` instead of keeping an old value under a new age; only an infinite KV
/// usage counts as a full cache.
#[derive(Debug)]
pub struct Reader {
    lines: Lines,
    extractor: MetricExtractor,
    series: usize,
}

impl Reader {
    /// A reader of texts in this dialect.
    pub fn new(dialect: &Dialect, engines: MultiEngine) -> Self {
        Self::with_limits(dialect, engines, TextLimits::default())
    }

    /// A reader with other limits than the defaults.
    pub fn with_limits(dialect: &Dialect, engines: MultiEngine, limits: TextLimits) -> Self {
        let extractor = MetricExtractor::new(dialect, engines, limits);
        Self { lines: Lines::new(limits.line_bytes), extractor, series: 0 }
    }

    /// Starts a new text, and forgets the values of the last one.
    pub fn start(&mut self) {
        self.lines.clear();
        self.extractor.clear();
        self.series = 0;
    }

    /// Reads the next part of the text.
    pub fn feed(&mut self, chunk: &[u8]) {
        let Self { lines, extractor, series } = self;
        lines.feed(chunk, |line| {
            *series += usize::from(!matches!(line.first(), None | Some(b'#')));
            extractor.read_line(line);
        });
    }

    /// Series of the text so far, including those of other metrics than the dialect's.
    pub fn series(&self) -> usize {
        self.series
    }

    /// Ends the text, and returns its values.
    pub fn finish(&mut self) -> Extraction {
        self.lines.finish(|line| self.extractor.read_line(line));
        self.extractor.extract()
    }

    /// Reads a whole text.
    pub fn read(&mut self, text: &[u8]) -> Extraction {
        self.start();
        self.feed(text);
        self.finish()
    }
}
