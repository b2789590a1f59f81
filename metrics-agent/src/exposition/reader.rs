//! From a text to a reading.

use endpoint_picker::reading::Reading;

use super::collect::{CacheShape, Invalid, LoraLists, Number, Said};
use super::lines::Lines;
use super::sample::{Sample, sample, type_line};
use crate::dialect::{Dialect, MetricSpec, MultiEngine};

/// Reads the texts of one endpoint, one after the other.
///
/// The rules are the reference's: whole metric names match, a series must carry all labels of its spec, the largest
/// timestamp wins and the first of equals, a metric that is neither gauge nor counter reads 0, integers are cut off.
/// Differently from it, [`MultiEngine::Sum`] adds up the engines of a data-parallel server, and a field that a good
/// scrape does not say, or says as a negative number, NaN or infinity, becomes `None` instead of keeping an old
/// value under a new age.
#[derive(Debug)]
pub struct Reader {
    lines: Lines,
    body: Body,
}

/// What one text said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extraction {
    /// The values; `ready` and `updated` are left at their defaults.
    pub reading: Reading,
    /// The fields of the dialect that the text gave no value for, and why.
    pub faults: Vec<(Field, Fault)>,
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
}

/// Why a field has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// No series of the text fits the spec.
    Missing,
    /// The line is malformed, or the value is none: negative, NaN, infinite, not an integer, too large.
    Invalid,
}

/// Parts of the text that are wanted, in the order of their first mention.
#[derive(Debug)]
struct Body {
    families: Vec<Family>,
}

/// One metric: several fields may be read from it, by their labels.
#[derive(Debug)]
struct Family {
    name: Vec<u8>,
    /// Gauge or counter; the reference reads every other kind as 0.
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
}

impl Reader {
    /// A reader of texts in this dialect.
    pub fn new(dialect: &Dialect, engines: MultiEngine) -> Self {
        let engine_label = match engines {
            MultiEngine::Sum => dialect.engine_label.clone(),
            MultiEngine::First => None,
        };
        let per_engine = || Number::new(engine_label.clone());
        let mut body = Body { families: Vec::new() };
        body.want(dialect.waiting.as_ref(), || Kept::Waiting(per_engine()));
        body.want(dialect.running.as_ref(), || Kept::Running(per_engine()));
        body.want(dialect.kv_usage.as_ref(), || Kept::KvUsage(per_engine()));
        body.want(dialect.lora.as_ref(), || Kept::Lora(LoraLists::default()));
        if let Some(cache) = &dialect.cache_info {
            let (size, number) = (cache.block_size_label.clone(), cache.num_blocks_label.clone());
            body.want(Some(&cache.spec), || Kept::Cache(CacheShape::new(size, number)));
        }
        body.want(dialect.block_size.as_ref(), || Kept::BlockSize(Number::new(None)));
        body.want(dialect.num_blocks.as_ref(), || Kept::NumBlocks(Number::new(None)));
        Self { lines: Lines::default(), body }
    }

    /// Starts a new text; what was read of the last one is forgotten.
    pub fn start(&mut self) {
        self.lines.clear();
        self.body.clear();
    }

    /// Reads on.
    pub fn feed(&mut self, chunk: &[u8]) {
        self.lines.feed(chunk, |line| self.body.line(line));
    }

    /// The text is complete.
    pub fn finish(&mut self) -> Extraction {
        self.lines.finish(|line| self.body.line(line));
        self.body.extract()
    }

    /// Reads a whole text.
    pub fn read(&mut self, text: &[u8]) -> Extraction {
        self.start();
        self.feed(text);
        self.finish()
    }
}

impl Body {
    fn want(&mut self, spec: Option<&MetricSpec>, kept: impl FnOnce() -> Kept) {
        let Some(spec) = spec else { return };
        let want = Want { labels: spec.labels().to_vec(), malformed: false, kept: kept() };
        let name = spec.name().as_bytes();
        match self.families.iter_mut().find(|family| family.name == name) {
            Some(family) => family.wants.push(want),
            None => {
                self.families.push(Family { name: name.to_vec(), has_values: false, wants: vec![want] });
            }
        }
    }

    fn clear(&mut self) {
        for family in &mut self.families {
            family.has_values = false;
            for want in &mut family.wants {
                want.malformed = false;
                want.kept.clear();
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        let line = line.trim_ascii_start();
        if line.first() == Some(&b'#') {
            let Some((name, kind)) = type_line(line) else { return };
            if let Some(family) = self.families.iter_mut().find(|family| family.name == name) {
                family.has_values = matches!(kind, b"gauge" | b"counter");
            }
            return;
        }
        // The byte after the name is looked at first: it tells nearly all other lines apart without comparing.
        let named = |family: &&mut Family| {
            let at = family.name.len();
            matches!(line.get(at), Some(b'{' | b' ' | b'\t')) && line[..at] == family.name
        };
        if let Some(family) = self.families.iter_mut().find(named) {
            family.series(&line[family.name.len()..]);
        }
    }

    fn extract(&self) -> Extraction {
        let mut extraction = Extraction::default();
        for want in self.families.iter().flat_map(|family| &family.wants) {
            want.extract(&mut extraction);
        }
        extraction
    }
}

impl Family {
    fn series(&mut self, after_name: &[u8]) {
        let Some(mut sample) = sample(after_name) else {
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

    fn extract(&self, into: &mut Extraction) {
        let Extraction { reading, faults } = into;
        let mut say = Say { malformed: self.malformed, faults };
        match &self.kept {
            Kept::Waiting(number) => reading.waiting = say.value(Field::Waiting, number.count()),
            Kept::Running(number) => reading.running = say.value(Field::Running, number.count()),
            Kept::KvUsage(number) => reading.kv_usage = say.value(Field::KvUsage, number.share()),
            Kept::BlockSize(number) => reading.block_size = say.value(Field::BlockSize, number.small_count()),
            Kept::NumBlocks(number) => reading.num_blocks = say.value(Field::NumBlocks, number.small_count()),
            Kept::Cache(cache) => {
                reading.block_size = say.value(Field::BlockSize, cache.block_size());
                reading.num_blocks = say.value(Field::NumBlocks, cache.num_blocks());
            }
            // A server without adapters says nothing, and that is no fault.
            Kept::Lora(lists) => match lists.lists() {
                None if !self.malformed => {}
                said => reading.lora = say.value(Field::Lora, said),
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
            | Self::NumBlocks(n) => {
                n.clear();
            }
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
            | Self::NumBlocks(n) => {
                n.offer(sample);
            }
            Self::Lora(lists) => lists.offer(sample),
            Self::Cache(cache) => cache.offer(sample),
        }
    }
}
