//! From a text to a reading.

use super::extraction::Extraction;
use super::extractor::MetricExtractor;
use super::lines::Lines;
use crate::catalogue::dialect::{Dialect, MultiEngine};
use crate::catalogue::scraping::TextLimits;

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
    extractor: MetricExtractor,
    series: usize,
}

impl Reader {
    /// A reader of texts in this dialect.
    pub fn new(dialect: &Dialect, engines: MultiEngine) -> Self {
        Self::with_limits(dialect, engines, TextLimits::default())
    }

    /// The same, with other limits.
    pub fn with_limits(dialect: &Dialect, engines: MultiEngine, limits: TextLimits) -> Self {
        let extractor = MetricExtractor::new(dialect, engines, limits);
        Self { lines: Lines::new(limits.line_bytes), extractor, series: 0 }
    }

    /// Starts a new text; what was read of the last one is forgotten.
    pub fn start(&mut self) {
        self.lines.clear();
        self.extractor.clear();
        self.series = 0;
    }

    /// Reads on.
    pub fn feed(&mut self, chunk: &[u8]) {
        let Self { lines, extractor, series } = self;
        lines.feed(chunk, |line| {
            *series += usize::from(!matches!(line.first(), None | Some(b'#')));
            extractor.line(line);
        });
    }

    /// Series of the text so far, wanted or not.
    pub fn series(&self) -> usize {
        self.series
    }

    /// The text is complete.
    pub fn finish(&mut self) -> Extraction {
        self.lines.finish(|line| self.extractor.line(line));
        self.extractor.extract()
    }

    /// Reads a whole text.
    pub fn read(&mut self, text: &[u8]) -> Extraction {
        self.start();
        self.feed(text);
        self.finish()
    }
}
