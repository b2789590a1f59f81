//! The record of finished requests: proxies send them, and they become lines of files. They have lengths,
//! times and keyed hashes, and no text.
//!
//! The [`Recorder`] makes lines and queues them for one task that writes. What does not fit, or cannot be
//! written, is dropped and counted: nothing waits for a record.

mod files;
mod key;
mod line;

use core::fmt;
use core::time::Duration;
use std::io;
use std::path::PathBuf;

use endpoint_picker_wire::record::Records;
use endpoint_picker_wire::v1::RecordSample;
use metrics_agent_support::runtime::{Labels, Tasks, since_epoch};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use self::files::Files;
use self::key::HashUse;
pub use self::key::RecordKey;
use self::line::{Line, LineMaker};
use crate::publish::snapshot::PoolSnapshot;

/// Maximum number of messages whose lines are not written yet.
const MAX_QUEUED: usize = 32;

/// The sample of requests that is recorded, and its files.
#[derive(Clone, Debug)]
pub struct RecordSettings {
    /// The folder of the files.
    pub folder: PathBuf,
    /// The share of sessions that is recorded, 0 to 1, of pools without an annotation.
    pub sample: f64,
    /// Maximum size of the files of a pool together, in bytes.
    pub max_bytes: u64,
    /// The file with the key of the hashes; `None`: each run has its own.
    pub key: Option<PathBuf>,
}

/// Why requests cannot be recorded.
#[derive(Debug)]
pub enum RecordError {
    /// The key cannot be read.
    Key(PathBuf, String),
    /// There is no random key.
    NoKey(io::Error),
    /// The folder cannot be made.
    Folder(PathBuf, io::Error),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(path, problem) => write!(f, "--record-key {}: {problem}", path.display()),
            Self::NoKey(error) => write!(f, "--record: {error}"),
            Self::Folder(path, error) => write!(f, "--record {}: {error}", path.display()),
        }
    }
}

impl core::error::Error for RecordError {}

/// Counts requests that proxies have sent for the record, by outcome.
#[derive(Clone, Debug)]
pub struct RecordMetrics(Family<Labels<1>, Counter>);

impl RecordMetrics {
    /// Registers the counter, from zero for every outcome.
    pub fn register(registry: &mut Registry) -> Self {
        let counts = Family::<Labels<1>, Counter>::default();
        for outcome in ["written", "refused", "dropped"] {
            drop(counts.get_or_create(&[("outcome", outcome)]));
        }
        let help = "Requests that proxies have sent for the record, by outcome";
        registry.register("recorded_requests", help, counts.clone());
        Self(counts)
    }

    fn count(&self, outcome: &'static str, requests: usize) {
        self.0.get_or_create(&[("outcome", outcome)]).inc_by(requests as u64);
    }
}

/// Lines of one pool.
type PoolLines = (String, Vec<Line>);

/// Takes the requests that proxies send.
#[derive(Debug)]
pub struct Recorder {
    key: RecordKey,
    sample: f64,
    /// The start of the record, since the Unix epoch.
    started: Duration,
    lines: mpsc::Sender<PoolLines>,
    metrics: RecordMetrics,
    _writer: AbortOnDropHandle<()>,
}

/// The queue of lines is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl Recorder {
    /// Starts the task that writes. It ends with the recorder.
    pub fn start(
        settings: RecordSettings,
        tasks: &Tasks,
        metrics: RecordMetrics,
    ) -> Result<Self, RecordError> {
        let RecordSettings { folder, sample, max_bytes, key } = settings;
        let key = match key {
            None => RecordKey::random().map_err(RecordError::NoKey)?,
            Some(path) => RecordKey::read(&path).map_err(|problem| RecordError::Key(path, problem))?,
        };
        let started = since_epoch();
        let started_ms = u64::try_from(started.as_millis()).unwrap_or(u64::MAX);
        let files = Files::new(folder.clone(), max_bytes, started_ms);
        let files = files.map_err(|error| RecordError::Folder(folder, error))?;
        let (lines, queue) = mpsc::channel(MAX_QUEUED);
        let writer = tasks.spawn("record", write(files, queue, metrics.clone()));
        // As the header has it, so that no line seems to be older.
        let started = Duration::from_millis(started_ms);
        Ok(Self { key, sample, started, lines, metrics, _writer: writer })
    }

    /// The sample of a pool; `own` is the share that its annotation names. `None`: it is not recorded.
    pub fn sample(&self, own: Option<f64>) -> Option<RecordSample> {
        let share = own.unwrap_or(self.sample);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "saturates, which is the intent"
        )]
        let limit = (share * u64::MAX as f64) as u64;
        (limit > 0).then(|| RecordSample { key: self.key.hash(HashUse::Sample, 0), limit })
    }

    /// Takes the requests of a message about this pool. They are dropped if too many lines wait.
    pub fn take(&self, snapshot: &PoolSnapshot, records: Records) -> Result<(), QueueFull> {
        let pool = snapshot.topology().pool.name();
        let since_start = since_epoch().saturating_sub(self.started);
        let maker = LineMaker {
            pool,
            key: self.key,
            readings: snapshot.readings(),
            now_us: records.now_us,
            now_since_start_us: u64::try_from(since_start.as_micros()).unwrap_or(u64::MAX),
        };
        let requests = records.requests.len();
        let lines: Vec<Line> = records.requests.into_iter().filter_map(|entry| maker.line(entry)).collect();
        self.metrics.count("refused", requests - lines.len());
        let count = lines.len();
        self.lines.try_send((pool.to_owned(), lines)).map_err(|_| {
            self.metrics.count("dropped", count);
            QueueFull
        })
    }
}

/// Writes lines until the agent ends.
async fn write(mut files: Files, mut queue: mpsc::Receiver<PoolLines>, metrics: RecordMetrics) {
    let mut had_error = false;
    while let Some((pool, lines)) = queue.recv().await {
        let count = lines.len();
        let written = tokio::task::spawn_blocking(move || {
            let written = files.write(&pool, lines);
            (files, written)
        });
        // The runtime is shutting down, or a defect has ended the write.
        let Ok((rest, written)) = written.await else { return };
        files = rest;
        metrics.count(if written.is_ok() { "written" } else { "dropped" }, count);
        match &written {
            Err(error) if !had_error => {
                tracing::error!(%error, "the record cannot be written; its requests are dropped until it can");
            }
            Ok(()) if had_error => tracing::info!("the record is written again"),
            Ok(()) | Err(_) => {}
        }
        had_error = written.is_err();
    }
}
