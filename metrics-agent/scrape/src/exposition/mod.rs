//! Reads the metrics of a dialect out of a Prometheus text.
//!
//! The text passes through in the chunks in which it arrives. Each line is read once, only lines of metrics
//! in the dialect are parsed, and no line allocates. A malformed line costs the field it belongs to, never
//! the whole text.

mod collect;
mod engines;
mod extractor;
mod gpu;
mod sample;

use core::fmt;
use std::sync::Arc;

use endpoint_picker::pool::reading::Reading;
use engines::EngineReader;
pub use gpu::GpuReader;
use metrics_agent_catalogue::dialect::{Dialect, Engine, TextRules};

/// Reads texts, one after the other, in chunks that may end anywhere.
#[derive(Debug)]
pub struct TextReader<L> {
    lines: PartialLine,
    values: L,
    series: usize,
    is_first_line: bool,
}

/// Maximum number of bytes of a line. A longer line is skipped, as if the server had not written it.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The mark that some programs write at the beginning of a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Collects values from the lines of a text.
pub trait LineReader {
    /// Forgets the values of the last text.
    fn clear(&mut self);

    /// Reads a line, without its line feed.
    fn read_line(&mut self, line: &[u8]);
}

impl<L: LineReader> TextReader<L> {
    fn of(values: L) -> Self {
        Self { lines: PartialLine::new(MAX_LINE_BYTES), values, series: 0, is_first_line: true }
    }

    /// Starts a new text, and forgets the values of the last one.
    pub fn start(&mut self) {
        self.lines.clear();
        self.values.clear();
        self.series = 0;
        self.is_first_line = true;
    }

    /// Reads the next part of the text.
    pub fn feed(&mut self, chunk: &[u8]) {
        let Self { lines, values, series, is_first_line } = self;
        lines.feed(chunk, |line| read_line(line, values, series, is_first_line));
    }

    /// Series of the text so far, including series whose values are not read.
    pub fn series(&self) -> usize {
        self.series
    }

    /// Ends the text.
    fn end(&mut self) -> &L {
        let Self { lines, values, series, is_first_line } = self;
        lines.finish(|line| read_line(line, values, series, is_first_line));
        &self.values
    }
}

fn read_line(line: &[u8], values: &mut impl LineReader, series: &mut usize, is_first: &mut bool) {
    let line = Some(line)
        .filter(|_| core::mem::take(is_first))
        .and_then(|line| line.strip_prefix(BYTE_ORDER_MARK))
        .unwrap_or(line);
    *series += usize::from(!matches!(line.first(), None | Some(b'#')));
    values.read_line(line);
}

/// Reads the texts of one endpoint, one after the other.
///
/// The rules are the EPP's where [`TextRules`] says so: whole metric names match, a series must carry all
/// labels of its spec, the largest timestamp wins and the first of equals, integers are cut off. In the EPP a
/// metric that is neither gauge nor counter reads 0; by our own rules it has its value, as in Prometheus, and
/// a counter is not a number of requests. Series that differ in the dialect's label are added up, series that
/// differ in an unknown one have no value. Under both rules a field that the text lacks, or has as a negative
/// number, NaN or infinity, becomes `None` instead of keeping an old value under a new age; only an infinite
/// KV usage counts as a full cache.
pub type Reader = TextReader<EngineReader>;

impl Reader {
    /// A reader of texts in this dialect.
    pub fn new(dialect: &Dialect, rules: TextRules) -> Self {
        Self::of_engines(&[Engine { name: "".into(), dialect: dialect.clone().into() }], rules)
    }

    /// A reader of texts of one of these engines: the first one of whose metrics a text has a value, until a
    /// text has none.
    pub fn of_engines(engines: &[Engine], rules: TextRules) -> Self {
        Self::of(EngineReader::new(engines, rules))
    }

    /// Ends the text, and returns its values.
    pub fn finish(&mut self) -> Extraction {
        self.end();
        self.values.extract()
    }

    /// Reads a whole text.
    pub fn read(&mut self, text: &[u8]) -> Extraction {
        self.start();
        self.feed(text);
        self.finish()
    }
}

/// The values of one text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extraction {
    /// The values; `ready` and `updated` are left at their defaults.
    pub reading: Reading,
    /// The values that show whether the server has restarted.
    pub process: Process,
    /// The engine of the text; `None`: the text has no value.
    pub engine: Option<Arc<str>>,
    /// The metric that `reading.kv_usage` is from.
    pub kv_usage_metric: Option<Arc<str>>,
    /// The fields of the dialect that the text gave no value for, or a doubtful one, and why.
    pub faults: Vec<(Field, Fault)>,
    /// The faults that an operator can correct.
    pub doubts: Vec<Doubt>,
}

/// A field that the text has, but not as a server is expected to report it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The field.
    pub field: Field,
    /// Why the value is doubtful.
    pub fault: Fault,
    /// The field's metric.
    pub metric: Arc<str>,
    /// The label in which series differ, of [`Fault::Ambiguous`].
    pub label: Option<String>,
}

/// The values of a text about the server's process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// When it started, in seconds since the Unix epoch.
    pub start_time: Option<f64>,
    /// The sum of a counter's series.
    pub counter: Option<f64>,
}

impl Doubt {
    /// Whether it is of the same field, for the same reason, whatever the label.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.field, self.fault) == (other.field, other.fault) && self.metric == other.metric
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            Fault::Ambiguous => {
                let label = self.label.as_deref().unwrap_or_default();
                let consequence = match self.field {
                    Field::Waiting | Field::Running | Field::KvUsage | Field::CacheTokens => {
                        "the field has no value"
                    }
                    Field::Lora | Field::BlockSize | Field::NumBlocks | Field::Attribute => {
                        "the first one counts"
                    }
                };
                write!(
                    f,
                    "several series differ in the label {label:?}, which is not read, so {consequence}; an entry of engineConfigs can add \
                     them up (sumOverLabelName), or name one of them"
                )
            }
            Fault::Counter => {
                write!(f, "the metric is a counter, not the number of the moment, so the field has no value")
            }
            Fault::Untyped => {
                write!(f, "the text calls the metric neither gauge nor counter, so it reads 0 as in the EPP")
            }
            Fault::Missing | Fault::Invalid => write!(f, "the field has no value"),
        }
    }
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
    CacheTokens,
    Attribute,
}

/// Why a field has no value, or a doubtful one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No series of the text matches the spec.
    Missing,
    /// The line is malformed, or the value is negative, NaN, infinite, not an integer or too large.
    Invalid,
    /// Several series differ in a label that is not read. A number that would be added up has no value; of
    /// another one the first series counts.
    Ambiguous,
    /// The metric is a counter, which is not a number of requests.
    Counter,
    /// The metric is neither gauge nor counter, so it reads 0 as in the EPP.
    Untyped,
}

impl Field {
    /// The value of a metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::KvUsage => "kv_usage",
            Self::Lora => "lora",
            Self::BlockSize => "block_size",
            Self::NumBlocks => "num_blocks",
            Self::CacheTokens => "cache_tokens",
            Self::Attribute => "attribute",
        }
    }
}

impl Fault {
    /// The value of a metric's label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Invalid => "invalid",
            Self::Ambiguous => "ambiguous",
            Self::Counter => "counter",
            Self::Untyped => "untyped",
        }
    }
}

/// Holds the part of a line that the next chunk continues.
#[derive(Debug)]
struct PartialLine {
    /// A longer line is skipped, as if the server had not written it.
    max_bytes: usize,
    partial: Vec<u8>,
    /// The line being received is already longer than allowed.
    too_long: bool,
}

impl PartialLine {
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes, partial: Vec::new(), too_long: false }
    }

    /// Forgets a partial line.
    fn clear(&mut self) {
        self.partial.clear();
        self.too_long = false;
    }

    /// Calls `each` for every line that `chunk` ends, without its line feed.
    fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(&[u8])) {
        let mut rest = chunk;
        if !self.partial.is_empty() || self.too_long {
            let Some(end) = memchr::memchr(b'\n', rest) else { return self.append(rest) };
            self.append(&rest[..end]);
            self.end_partial(&mut each);
            rest = &rest[end + 1..];
        }
        // Lines that lie within the chunk are read in place, without a copy.
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', rest) {
            if end - start <= self.max_bytes {
                each(&rest[start..end]);
            }
            start = end + 1;
        }
        self.append(&rest[start..]);
    }

    /// Calls `each` for a last line without a line feed.
    fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        self.end_partial(&mut each);
    }

    fn append(&mut self, part: &[u8]) {
        if self.too_long || self.partial.len() + part.len() > self.max_bytes {
            self.too_long = true;
            self.partial.clear();
        } else {
            self.partial.extend_from_slice(part);
        }
    }

    fn end_partial(&mut self, each: &mut impl FnMut(&[u8])) {
        if !self.too_long && !self.partial.is_empty() {
            each(&self.partial);
        }
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1000;

    fn lines(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut seen = Vec::new();
        let mut lines = PartialLine::new(MAX);
        for chunk in chunks {
            lines.feed(chunk, |line| seen.push(line.to_vec()));
        }
        lines.finish(|line| seen.push(line.to_vec()));
        seen
    }

    #[test]
    fn lines_do_not_depend_on_where_chunks_end() {
        let text = b"one\n\ntwo three\nfour";
        let whole = lines(&[text]);
        assert_eq!(whole, [&b"one"[..], b"", b"two three", b"four"]);
        for first in 0..=text.len() {
            for second in first..=text.len() {
                let cut: Vec<_> = lines(&[&text[..first], &text[first..second], &text[second..]]);
                let blank =
                    |lines: &[Vec<u8>]| lines.iter().filter(|l| !l.is_empty()).cloned().collect::<Vec<_>>();
                assert_eq!(blank(&cut), blank(&whole), "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn an_endless_line_is_skipped_and_its_memory_is_bounded() {
        let mut seen = Vec::new();
        let mut lines = PartialLine::new(MAX);
        let block = vec![b'x'; 300];
        for _ in 0..100 {
            lines.feed(&block, |line| seen.push(line.to_vec()));
            assert!(lines.partial.len() <= MAX);
        }
        lines.feed(b"\nnext\n", |line| seen.push(line.to_vec()));
        assert_eq!(seen, [b"next"]);
    }

    #[test]
    fn a_line_too_long_within_one_chunk_is_skipped() {
        let mut text = vec![b'x'; MAX + 1];
        text.extend_from_slice(b"\nnext\n");
        assert_eq!(lines(&[&text]), [b"next"]);
    }
}
