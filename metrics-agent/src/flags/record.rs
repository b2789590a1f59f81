//! Flags about the record of requests.

use std::path::PathBuf;

use clap::Args;

use super::values;
use crate::record::RecordSettings;

/// Flags about the record of requests.
#[derive(Args, Debug)]
#[command(next_help_heading = "The record of requests")]
pub(super) struct RecordFlags {
    /// The folder for records of finished requests, in JSON lines: times, lengths, endpoints and keyed hashes
    /// of prompts and sessions, without any text. For one agent alone.
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,

    /// The share of sessions that is recorded, 0 to 1: all requests of a session, or none. A pool's
    /// annotation endpoint-picker/record-sample takes its place.
    #[arg(long, value_name = "SHARE", requires = "record", default_value = "1", value_parser = values::share)]
    record_sample: f64,

    /// Maximum number of bytes of a pool's files together; the oldest are removed.
    #[arg(long, value_name = "BYTES", requires = "record", default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(1 << 16..))]
    record_max_bytes: u64,

    /// A file with the key of the hashes, 32 hexadecimal digits. Records with one key can be joined, and
    /// whoever knows it can check guesses. Without it each run of the agent draws a key.
    #[arg(long, value_name = "PATH", requires = "record")]
    record_key: Option<PathBuf>,
}

impl RecordFlags {
    /// The settings of the record; `None`: there is none.
    pub(super) fn settings(self) -> Option<RecordSettings> {
        let Self { record, record_sample, record_max_bytes, record_key } = self;
        let settings = |folder| RecordSettings {
            folder,
            sample: record_sample,
            max_bytes: record_max_bytes,
            key: record_key,
        };
        record.map(settings)
    }
}
