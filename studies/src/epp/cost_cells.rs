//! The conditions under which costs are measured, and the requests of each.

use anyhow::{Context, Result};
use endpoint_picker_bench::load::bodies::chat_line;
use endpoint_picker_bench::upstreams::PACED;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The traffic of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Chats of this many bytes.
    Chat(usize),
    /// Chats of 1 KB whose responses come in 1 000 chunks, without a pause.
    Streamed,
    /// The same, with a chunk every 2 ms.
    Paced,
    /// No requests.
    None,
    /// No requests, and metrics as long as vLLM's.
    NoneLongMetrics,
}

/// The conditions of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CostCell {
    pub(crate) endpoints: usize,
    pub(crate) traffic: Traffic,
    /// Requests each second; `None`: at the highest rate.
    pub(crate) rate: Option<u32>,
}

pub(crate) const KB: usize = 1 << 10;

const fn cell(endpoints: usize, traffic: Traffic, rate: Option<u32>) -> CostCell {
    CostCell { endpoints, traffic, rate }
}

/// All of them, by size of the pool; each size has a pool of its own.
pub(crate) const CELLS: &[&[CostCell]] = &[
    &[
        cell(10, Traffic::Chat(KB), None),
        cell(10, Traffic::Chat(8 * KB), None),
        cell(10, Traffic::Chat(128 * KB), None),
        cell(10, Traffic::Chat(1024 * KB), None),
        cell(10, Traffic::Streamed, None),
        cell(10, Traffic::Paced, None),
        cell(10, Traffic::Chat(KB), Some(200)),
        cell(10, Traffic::Chat(8 * KB), Some(200)),
        cell(10, Traffic::Chat(128 * KB), Some(50)),
        cell(10, Traffic::Chat(1024 * KB), Some(10)),
    ],
    &[
        cell(100, Traffic::Chat(KB), None),
        cell(100, Traffic::Chat(KB), Some(200)),
        cell(100, Traffic::None, None),
        cell(100, Traffic::NoneLongMetrics, None),
    ],
];

impl fmt::Display for CostCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoints, traffic, rate } = self;
        match traffic {
            Traffic::Chat(bytes) if *bytes < 1024 * KB => write!(f, "{} KB", bytes / KB)?,
            Traffic::Chat(bytes) => write!(f, "{} MiB", bytes / KB / 1024)?,
            Traffic::Streamed => write!(f, "answers of 1 000 chunks, at once")?,
            Traffic::Paced => write!(f, "answers of 1 000 chunks, one every 2 ms")?,
            Traffic::None => write!(f, "idle, short metrics")?,
            Traffic::NoneLongMetrics => write!(f, "idle, vLLM's metrics (48 KB)")?,
        }
        write!(f, ", {endpoints} endpoints")?;
        rate.map_or(Ok(()), |rate| write!(f, ", {rate} requests/s"))
    }
}

/// Connections under saturation: few where a request takes long, so that those in flight at the end hardly
/// count.
pub(crate) fn connections(traffic: Traffic) -> u32 {
    match traffic {
        Traffic::Chat(bytes) if bytes <= 8 * KB => 32,
        Traffic::Paced => 16,
        Traffic::Chat(_) | Traffic::Streamed | Traffic::None | Traffic::NoneLongMetrics => 4,
    }
}

/// A file with a body in each line. Prompts differ, so that the prefix rule spreads them.
pub(crate) fn bodies(folder: &Path, traffic: Traffic) -> Result<PathBuf> {
    let (bytes, is_streamed) = match traffic {
        Traffic::Chat(bytes) => (bytes, false),
        Traffic::Streamed | Traffic::Paced | Traffic::None | Traffic::NoneLongMetrics => (KB, true),
    };
    let path = folder.join(format!("bodies-{traffic:?}"));
    if !path.is_file() {
        let count = (4 << 20) / bytes;
        let text: String =
            (0..count.clamp(8, 500)).map(|number| chat_line(number, bytes, is_streamed)).collect();
        let text = if traffic == Traffic::Paced {
            text.replace("}\n", &format!(",\"user\":\"{PACED}\"}}\n"))
        } else {
            text
        };
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(path)
}
