//! The newest snapshot, which one worker publishes for all.
//!
//! | key | value |
//! |---|---|
//! | `…/version` | the version of the readings (a word), cheap to check |
//! | `…/topology` | the last snapshot that carried a topology, as it came |
//! | `…/readings` | its arrival in nanoseconds since the epoch (a word), then the last snapshot, as it came |
//!
//! They are written from the bottom of this list upwards, but the topology first. So a reader of a version
//! finds at least the snapshot of that version.

use core::time::Duration;

use crate::shared_data::{SharedData, key};
use crate::words::{bytes, first_word, nanoseconds};

/// One worker's access to the published snapshot.
#[derive(Debug)]
pub struct SharedSnapshot {
    version: String,
    topology: String,
    readings: String,
    /// A version that this worker cannot use.
    refused: Option<u64>,
}

/// A snapshot that a worker of this proxy has published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSnapshot {
    /// The version under which it was found, for [`SharedSnapshot::refuse`].
    pub version: u64,
    /// When it arrived from the agent, not later than now.
    pub arrived: Duration,
    /// The snapshot, as it came.
    pub bytes: Vec<u8>,
}

impl SharedSnapshot {
    /// Access to a pool's snapshot.
    pub fn new(pool: &str) -> Self {
        let key = |name| key(pool, name);
        Self { version: key("version"), topology: key("topology"), readings: key("readings"), refused: None }
    }

    /// Publishes a snapshot for all workers. `version` is the version of its readings.
    pub fn publish<S: SharedData>(
        &self,
        data: &S,
        snapshot: &[u8],
        version: u64,
        has_topology: bool,
        arrived: Duration,
    ) -> Result<(), S::Error> {
        if has_topology {
            data.set(&self.topology, snapshot)?;
        }
        let mut stamped = Vec::with_capacity(8 + snapshot.len());
        stamped.extend(nanoseconds(arrived).to_le_bytes());
        stamped.extend(snapshot);
        data.set(&self.readings, &stamped)?;
        data.set(&self.version, &bytes([version]))
    }

    /// The published snapshot, unless this worker has it or has refused it. `own` is the version of this
    /// worker's readings, with their arrival.
    ///
    /// If the own snapshot arrived later than now, the clock was set back: then the snapshot is read again,
    /// and counts as having arrived now.
    pub fn newer<S: SharedData>(
        &self,
        data: &S,
        own: Option<(u64, Duration)>,
        now: Duration,
    ) -> Result<Option<NewSnapshot>, S::Error> {
        let Some(version) = first_word(&data.get(&self.version)?.bytes) else { return Ok(None) };
        let own = own.filter(|(_, arrived)| *arrived <= now).map(|(version, _)| version);
        if own == Some(version) || self.refused == Some(version) {
            return Ok(None);
        }
        // They may be newer than `version`, which is written last.
        let mut bytes = data.get(&self.readings)?.bytes;
        let Some(arrived) = first_word(&bytes) else { return Ok(None) };
        bytes.drain(..8);
        Ok(Some(NewSnapshot { version, arrived: Duration::from_nanos(arrived).min(now), bytes }))
    }

    /// The last snapshot that carried a topology.
    pub fn topology<S: SharedData>(&self, data: &S) -> Result<Vec<u8>, S::Error> {
        Ok(data.get(&self.topology)?.bytes)
    }

    /// Ignores a version that this worker cannot use, until another version is published.
    pub fn refuse(&mut self, version: u64) {
        self.refused = Some(version);
    }
}
